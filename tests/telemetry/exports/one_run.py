"""`python -m tests.telemetry.exports.one_run RUN FOLDER [BYTES]`: a worker's turn at one run, in a process of its own.

With BYTES the system lets no export become larger than that: the disk is full there. The database's files may.
"""

from __future__ import annotations

import resource
import sys

import django
from django.conf import settings


def main(run: int, folder: str, most: int | None) -> None:
    """Go on with a run until there is nothing more to do."""
    django.setup()
    from telemetry.exports import runs
    from telemetry.exports.running import run_go_on

    settings.EXPORTS_FOLDER = folder
    runs.LOOK_SECONDS = 0.0
    if most is not None:
        limit_writes(most)
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


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else None)
