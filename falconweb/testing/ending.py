"""How the processes of tests end."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Self

_shared_start: ContextVar[bool] = ContextVar("shared_start", default=False)


@contextmanager
def shared_start() -> Iterator[None]:
    """Note that what starts meanwhile is kept for later tests, for suites that watch which test starts a process."""
    before = _shared_start.set(True)
    try:
        yield
    finally:
        _shared_start.reset(before)


def is_shared_start() -> bool:
    """Return whether the process that starts now is kept for later tests."""
    return _shared_start.get()


class OwnProcess:
    """A process of a test's own; a context manager that ends it."""

    process: subprocess.Popen[Any]

    def kill(self) -> None:
        """End it by SIGKILL, as a crash does."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """End it, by force where it does not listen; harmless when repeated."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
