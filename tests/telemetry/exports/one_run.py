"""`python -m tests.telemetry.exports.one_run RUN FOLDER full|killed BYTES`: a worker's turn at one run, in a process.

Once the export is about to become larger than that, the disk is `full`, for exports though not for the database's
files, or the worker is `killed` halfway through what it writes.
"""

from __future__ import annotations

import os
import resource
import signal
import sys

import django
from django.conf import settings


def main(run: int, folder: str, end: str, most: int) -> None:
    """Go on with a run until there is nothing more to do."""
    django.setup()
    from telemetry.exports import runs
    from telemetry.exports.running import run_go_on

    settings.EXPORTS_FOLDER = folder
    runs.LOOK_SECONDS = 0.0
    (limit_writes if end == "full" else die_at)(most)
    while run_go_on(run, worker="mortal"):
        pass


def limit_writes(most: int) -> None:
    """Have the system refuse what would make an export larger than that."""
    from telemetry.exports.files import PartFile

    write = PartFile.write

    def limited(self: PartFile, data: bytes) -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
        try:
            write(self, data)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))

    PartFile.write = limited  # type: ignore[method-assign]  # of this process alone


def die_at(most: int) -> None:
    """Have this process killed in the middle of what would make an export larger than that."""
    from telemetry.exports.files import PartFile

    write = PartFile.write

    def mortal(self: PartFile, data: bytes) -> None:
        if self.position + len(data) > most:
            write(self, data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        write(self, data)

    PartFile.write = mortal  # type: ignore[method-assign]  # of this process alone


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
