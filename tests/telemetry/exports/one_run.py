"""`python -m tests.telemetry.exports.one_run RUN FOLDER full|killed BYTES`: a worker's turn at one run, in a process.

Once the export is about to become larger than that, the disk is `full`, for exports though not for the database's
files, or the worker is `killed` halfway through what it writes.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import django
from django.conf import settings

if TYPE_CHECKING:
    from telemetry.exports.files import PartFile

    Write = Callable[[PartFile, bytes], None]


def main(run: int, folder: str, end: str, most: int) -> None:
    """Go on with a run until there is nothing more to do."""
    django.setup()
    from telemetry.exports import services
    from telemetry.exports.execution import run_continue
    from telemetry.exports.files import PartFile

    settings.EXPORTS_FOLDER = folder
    services.CHECK_SECONDS = 0.0
    PartFile.write = ENDS[end](PartFile.write, most)  # type: ignore[method-assign, assignment]  # of this process alone
    while run_continue(run, worker="mortal"):
        pass


def limited(write: Write, most: int) -> Write:
    """Have the system refuse what would make an export larger than that."""

    def write_limited(part: PartFile, data: bytes) -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
        try:
            write(part, data)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))

    return write_limited


def mortal(write: Write, most: int) -> Write:
    """Have this process killed in the middle of what would make an export larger than that."""

    def write_half(part: PartFile, data: bytes) -> None:
        if part.position + len(data) > most:
            write(part, data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        write(part, data)

    return write_half


ENDS = {"full": limited, "killed": mortal}

if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
