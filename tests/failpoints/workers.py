"""`python -m tests.failpoints.workers`: does courses in copies of itself; a line of JSON orders one, with a fault.

The answer says how the copy ended, and which failpoints it reached how often.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import django

from tests.processes import ROOT


def main() -> None:
    """Carry out orders until the input ends."""
    django.setup()
    import tests.failpoints.courses  # noqa: F401 - so that copies have everything

    print("ready", flush=True)  # noqa: T201 - its answers
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            work(order)
        print(pid, flush=True)  # noqa: T201
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201


def work(order: dict[str, Any]) -> None:
    """Do a course until nothing is left to do, an error comes, or the fault; does not return."""
    from core.failpoints import set_failpoint_handler
    from tests.failpoints import courses
    from tests.failpoints.injector import FaultInjector

    folder, status = Path(order["folder"]), 1
    injector = FaultInjector(order["fault"], folder)
    try:
        courses.shorten_waits(Path(order["exports"]))
        set_failpoint_handler(injector)
        courses.ASKS[order["course"]]()
        courses.settle()
        status = 0
    except Exception:
        logging.getLogger(__name__).exception("the course broke off")
    finally:
        (folder / "counts").write_text(json.dumps(injector.reached))
        os._exit(status)


class Workers:
    """The process that copies itself for each course; a context manager that ends it."""

    def __init__(self, database: str) -> None:
        environment = {**os.environ, "DATABASE_URL": database, "DJANGO_SETTINGS_MODULE": "falconweb.settings"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.failpoints.workers"],
            cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._line() == "ready"

    @contextmanager
    def begun(self, course: str, fault: str, exports: Path) -> Iterator[Copy]:
        """Begin a course in a copy, which is killed where it has not ended by then."""
        with tempfile.TemporaryDirectory() as folder:
            order = {"course": course, "fault": fault, "folder": folder, "exports": str(exports)}
            pipe: IO[str] | None = self._process.stdin
            assert pipe is not None
            pipe.write(json.dumps(order) + "\n")
            pipe.flush()
            copy = Copy(self, int(self._line()), Path(folder))
            try:
                yield copy
            finally:
                copy.kill()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


class Copy:
    """One copy at work, in a folder of its own."""

    def __init__(self, workers: Workers, pid: int, folder: Path) -> None:
        self._workers, self.pid, self.folder = workers, pid, folder
        self.status: int | None = None

    def end(self) -> int:
        """Wait for its end; returns its exit status."""
        if self.status is None:
            self.status = int(self._workers._line())
        return self.status

    def kill(self) -> int:
        """Kill it if it still works."""
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
        return self.end()

    @property
    def hangs(self) -> bool:
        """Whether it has reached the failpoint at which it hangs."""
        return (self.folder / "reached").exists()

    @property
    def is_uncommitted(self) -> bool:
        """Whether it hangs within a transaction."""
        return (self.folder / "reached").read_text() != ""

    @property
    def is_over(self) -> bool:
        """Whether it has ended by itself."""
        return (self.folder / "counts").exists()

    def release(self) -> None:
        """Let it go on."""
        (self.folder / "release").touch()

    def counts(self) -> dict[str, int]:
        """Return how often it reached each failpoint, at its end."""
        counted: dict[str, int] = json.loads((self.folder / "counts").read_text())
        return counted


if __name__ == "__main__":
    main()
