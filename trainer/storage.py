"""Reads storage, past the host's cache as far as the host lets it go: a scratch file, or a drive's device file."""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from hostwire.training import DRIVE_VARIABLE, Spec
from trainer.ranks import world_here
from trainer.troubles import Refused, size

# The folder of the scratch file where no drive was chosen: whoever runs the host says what it measures.
SCRATCH = "FALCONWEB_SCRATCH"
_WRITE = 2**22
ROOM = 1.05  # of what is written: file systems keep some for themselves
# Files there are memory: reading them says nothing about storage.
_IN_MEMORY = ("tmpfs", "ramfs")


class StorageRounds:
    """Rounds of reading `file_bytes` of an open file from the byte `first` on, in blocks of `block_bytes`."""

    def __init__(self, file: int, *, first: int, file_bytes: int, block_bytes: int, note: str) -> None:
        self.file_bytes, self.block_bytes, self.note = file_bytes, block_bytes, note
        self._file, self._first = file, first
        self._buffer = bytearray(block_bytes)
        self._rates: list[float] = []
        self._blocks: list[float] = []

    def take(self) -> None:
        """Read it once."""
        os.posix_fadvise(self._file, self._first, self.file_bytes, os.POSIX_FADV_DONTNEED)
        began = last = time.perf_counter()
        place = 0
        while place < self.file_bytes:
            buffer = memoryview(self._buffer)[: self.file_bytes - place]
            read = os.preadv(self._file, [buffer], self._first + place)
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


def data_place(spec: Spec) -> Path:
    """Return the folder for the scratch file of a spec, or the device file of the drive that was chosen.

    Raises Refused where there is too little room.
    """
    place = Path(os.environ.get(DRIVE_VARIABLE, "") or os.environ.get(SCRATCH, "") or tempfile.gettempdir())
    file_bytes = _file_bytes(spec)
    processes = world_here()
    asked = f"{size(file_bytes)} for each of {processes} processes" if processes > 1 else size(file_bytes)
    if place.is_dir():
        if (free := free_bytes(place)) < file_bytes * processes * ROOM:
            raise Refused(f"The scratch folder has {size(free)} free; the run reads {asked}. Use a smaller file.")
    elif not os.environ.get(DRIVE_VARIABLE, ""):
        raise Refused(f"The scratch folder {place} is not there.")
    elif (there := _device_bytes(place)) < file_bytes * processes:
        raise Refused(f"The drive {place} has {size(there)}; the run reads {asked}. Use a smaller file.")
    return place


def storage_rounds(spec: Spec, place: Path, *, rank: int) -> StorageRounds:
    """Write the scratch file of a spec to a folder, or take the part of a device file that a process reads."""
    file_bytes, block_bytes = _file_bytes(spec), int(spec.options.get("block_bytes", 2**20))
    if not place.is_dir():
        file = os.open(place, os.O_RDONLY)
        note = f"{place} itself: blocks that were never written may be read more quickly than others."
        return StorageRounds(file, first=rank * file_bytes, file_bytes=file_bytes, block_bytes=block_bytes, note=note)
    kind = _file_system(place)
    note = (
        f"The scratch folder lies in memory ({kind}): this is no storage."
        if kind in _IN_MEMORY
        else f"A scratch file on {kind or 'an unknown file system'}, its cache dropped before each pass."
    )
    file, name = tempfile.mkstemp(dir=place, prefix="falcon-read-")
    # It is gone with the process.
    Path(name).unlink()
    fill(file, file_bytes)
    return StorageRounds(file, first=0, file_bytes=file_bytes, block_bytes=block_bytes, note=note)


def fill(file: int, file_bytes: int) -> None:
    """Write random bytes to the storage below an open file, none twice, that no layer below can shorten."""
    left = file_bytes
    while left > 0:
        left -= os.write(file, os.urandom(min(left, _WRITE)))
    os.fsync(file)


def free_bytes(folder: Path) -> int:
    """Return how much more fits in a folder."""
    return shutil.disk_usage(folder).free


def _device_bytes(place: Path) -> int:
    try:
        file = os.open(place, os.O_RDONLY)
    except OSError as error:
        raise Refused(f"The drive {place} cannot be read: {error.strerror}.") from error
    try:
        return os.lseek(file, 0, os.SEEK_END)
    finally:
        os.close(file)


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
