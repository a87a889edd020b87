"""How the processes of tests end."""

from __future__ import annotations

import subprocess
from types import TracebackType
from typing import Any, Self


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
