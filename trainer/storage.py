"""Reads a scratch file from storage, past the host's cache as far as the host lets it go."""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from hostwire.training import Spec
from trainer.troubles import Refused, size

# The folder of the scratch file: where the storage that is measured is mounted.
SCRATCH = "FALCONWEB_SCRATCH"
_WRITE = 2**22
# Files there are memory: reading them says nothing about storage.
_IN_MEMORY = ("tmpfs", "ramfs")


class StorageRounds:
    """Rounds of reading one file from beginning to end; it has no name any more and is gone with the process."""

    def __init__(self, folder: Path, *, file_bytes: int, block_bytes: int) -> None:
        self.file_bytes, self.block_bytes = file_bytes, block_bytes
        kind = _file_system(folder)
        self.note = (
            f"The scratch folder lies in memory ({kind}): this is no storage."
            if kind in _IN_MEMORY
            else f"A scratch file on {kind or 'an unknown file system'}, its cache dropped before each pass."
        )
        self._file, name = tempfile.mkstemp(dir=folder, prefix="falcon-read-")
        Path(name).unlink()
        self._fill()
        self._buffer = bytearray(block_bytes)
        self._rates: list[float] = []
        self._blocks: list[float] = []

    def _fill(self) -> None:
        """Write random bytes, none twice, that no layer below can shorten."""
        left = self.file_bytes
        while left > 0:
            left -= os.write(self._file, os.urandom(min(left, _WRITE)))
        os.fsync(self._file)

    def take(self) -> None:
        """Read the file once."""
        os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_DONTNEED)
        began = last = time.perf_counter()
        place = 0
        while place < self.file_bytes:
            read = os.preadv(self._file, [self._buffer], place)
            if not read:
                raise OSError("The scratch file ended before its end.")
            place += read
            now = time.perf_counter()
            self._blocks.append(now - last)
            last = now
        self._rates.append(self.file_bytes / max(last - began, 1e-9) / 1e9)

    def forget(self) -> None:
        """Begin anew."""
        self._rates.clear()
        self._blocks.clear()

    def rates(self) -> list[float]:
        """Return GB/s of each pass."""
        return list(self._rates)

    def block_seconds(self) -> float | None:
        """Return the median seconds of one block."""
        return statistics.median(self._blocks) if self._blocks else None


def scratch_folder(spec: Spec) -> Path:
    """Return where the scratch files of a spec go. Raises Refused where they do not fit."""
    folder = Path(os.environ.get(SCRATCH, "") or tempfile.gettempdir())
    if not folder.is_dir():
        raise Refused(f"The scratch folder {folder} is not there.")
    file_bytes, free = _file_bytes(spec), shutil.disk_usage(folder).free
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if free < file_bytes * processes * 1.05:
        asked = f"{size(file_bytes)} for each of {processes} processes" if processes > 1 else size(file_bytes)
        raise Refused(f"The scratch folder has {size(free)} free; the run reads {asked}. Use a smaller file.")
    return folder


def storage_rounds(spec: Spec, folder: Path) -> StorageRounds:
    """Write the scratch file of a spec."""
    block_bytes = int(spec.options.get("block_bytes", 2**20))
    return StorageRounds(folder, file_bytes=_file_bytes(spec), block_bytes=block_bytes)


def _file_bytes(spec: Spec) -> int:
    return int(spec.options.get("file_bytes", 2**32))


def _file_system(folder: Path) -> str:
    """Return the kind of file system that a folder lies on, '' where the host does not say."""
    best, kind = "", ""
    real = str(folder.resolve())
    try:
        mounts = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return ""
    for line in mounts:
        _, point, name, *_ = line.split()
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, name
    return kind
