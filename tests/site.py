"""A whole site in processes of its own, started as an operator starts it, on free ports and in a fresh folder."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from falconweb.launch.broker import free_port
from falconweb.testing.snapshots import copy_databases, link_static_files

ROOT = Path(__file__).resolve().parent.parent
ADMINISTRATOR_PASSWORD = "Falcon-site-test-1"


# Commands that the launcher starts; the site's other processes go on from it, each under its name.
COMMANDS = {"broker": "server 127.0.0.1:", "falcon-1": "simulator\0--chassis\0falcon-1"}


class RunningSite:
    """`python -m falconweb.launch`; `address` ends without a slash. A context manager that ends it by SIGINT.

    An empty folder gets tables and static files first, unless it is not `prepared`. `arguments` are those of the
    command, `environment` adds settings.
    Raises RuntimeError with the site's own words where it does not start.
    """

    def __init__(self, data: Path, *, prepared: bool = True, arguments: Sequence[str] = (), **environment: str) -> None:
        self.data = data
        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self.said: list[str] = []
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "REDIS_URL"},
            "FALCONWEB_DATA": str(data),
            "PORT": str(self.port),
            "FALCONWEB_ADMIN_PASSWORD": ADMINISTRATOR_PASSWORD,
            # Tests that share a site and a sign-in may take longer together.
            "FALCONWEB_FRESH_SIGN_IN_MINUTES": "720",
            **environment,
        }
        if prepared and not (data.exists() and any(data.iterdir())):
            copy_databases(data)
            link_static_files(data)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "falconweb.launch", *arguments],
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            for line in self.process.stdout or ():
                self.said.append(line.rstrip())
                if line.startswith("FalconWeb is at "):
                    return
        except BaseException:  # a test that takes too long ends here, and the site with it
            self.process.kill()
            raise
        raise RuntimeError("the site did not start:\n" + "\n".join(self.said))

    def get(self, path: str) -> tuple[int, str]:
        """Return status and text of a plain GET without sign-in."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(self.address + path, timeout=60) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def control(self, chassis: str, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Send a request to a simulated chassis' control address; return its JSON, None where there is none."""
        ports = json.loads((self.data / "simulator" / "ports.json").read_text())
        request = urllib.request.Request(
            f"http://127.0.0.1:{ports[chassis][1]}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=60) as reply:
            content = reply.read()
        return json.loads(content) if content else None

    def stop(self) -> int:
        """End it as Ctrl-C does; return the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def pids_naming(text: str) -> set[int]:
    """Return the ids of running processes whose command line holds `text`."""
    found = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                if text.encode() in (folder / "cmdline").read_bytes():
                    found.add(int(folder.name))
            except OSError:
                continue
    return found


def parent_of(pid: int) -> int:
    """Return the parent of a process, 0 where it has ended."""
    try:
        # The name in parentheses may hold spaces.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def processes_of(site: RunningSite, part: str) -> set[int]:
    """Return the processes that a part of the site consists of: worker, beat, web, or one of COMMANDS."""
    found = pids_naming(COMMANDS[part]) if part in COMMANDS else pids_named(part)
    return {pid for pid in found if parent_of(pid) == site.process.pid}


def pids_named(part: str) -> set[int]:
    """Return the ids of running processes that are called so, with a number or without."""
    found = set()
    for file in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            if file.read_text().strip().partition("-")[0] == part:
                found.add(int(file.parent.name))
    return found


def kill(pids: set[int]) -> None:
    """End processes as a power cut does."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
