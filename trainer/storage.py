"""Storage reads and samples on a drive, bypassing the host's cache: a scratch file, or a drive's device file.

`FALCONWEB_DRIVE` names a folder on the chosen drive, where each process writes a file of random bytes, or the drive's
device file, of which each process reads a separate part. Nothing is ever written to a device file.
"""

from __future__ import annotations

import math
import mmap
import os
import shutil
import stat
import tempfile
import time
from pathlib import Path

import torch
from torch import Tensor

from hostwire.training import DRIVE_VARIABLE, SCRATCH_VARIABLE, Spec
from trainer.processes import world_size
from trainer.reporting import RunRefused, format_bytes, logger

_WRITE_BYTES = 2**22
FREE_SPACE_FACTOR = 1.05  # times the data size: file systems need some space for themselves
# File systems in memory: reading them does not measure storage.
_MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs")


class StorageReader:
    """Passes that read `file_bytes` of an open file from byte `first` on, in blocks of `block_bytes`."""

    def __init__(self, file: int, *, first: int, file_bytes: int, block_bytes: int, note: str) -> None:
        self.file_bytes, self.block_bytes, self.note = file_bytes, block_bytes, note
        self._file, self._first = file, first
        self._buffer = bytearray(block_bytes)
        self.rates: list[float] = []  # GB/s of each pass
        self.blocks: list[float] = []  # seconds of each block

    def run_round(self) -> None:
        os.posix_fadvise(self._file, self._first, self.file_bytes, os.POSIX_FADV_DONTNEED)
        began = last = time.perf_counter()
        place = 0
        while place < self.file_bytes:
            buffer = memoryview(self._buffer)[: self.file_bytes - place]
            read = os.preadv(self._file, [buffer], self._first + place)
            if not read:
                raise OSError("The scratch file is shorter than expected.")
            place += read
            now = time.perf_counter()
            self.blocks.append(now - last)
            last = now
        self.rates.append(self.file_bytes / max(last - began, 1e-9) / 1e9)

    def reset(self) -> None:
        self.rates.clear()
        self.blocks.clear()


def _data_place() -> Path:
    return Path(os.environ.get(DRIVE_VARIABLE, "") or os.environ.get(SCRATCH_VARIABLE, "") or tempfile.gettempdir())


def data_folder() -> Path:
    """Return the folder of data sets and checkpoints. Raises RunRefused where the chosen drive has none."""
    place = _data_place()
    if not place.is_dir():
        raise RunRefused(
            f"{place} is no folder, so it holds no files and no checkpoints: mount the drive, or use random samples."
        )
    return place


def require_own(place: Path) -> None:
    """Raise RunRefused where something is that is a link, or another account's: it could lead writes elsewhere."""
    try:
        found = place.lstat()
    except FileNotFoundError:
        return
    if stat.S_ISLNK(found.st_mode) or found.st_uid != os.geteuid():
        raise RunRefused(f"{place} is a link, or another account's: name another folder in {SCRATCH_VARIABLE}.")


def data_path(spec: Spec) -> Path:
    """Return the folder for the scratch file of a spec, or the device file of the chosen drive.

    Raises RunRefused where there is too little room.
    """
    place = _data_place()
    file_bytes = _file_bytes(spec)
    processes = world_size()
    amount = (
        f"{format_bytes(file_bytes)} for each of {processes} processes" if processes > 1 else format_bytes(file_bytes)
    )
    if place.is_dir():
        if (free := shutil.disk_usage(place).free) < file_bytes * processes * FREE_SPACE_FACTOR:
            raise RunRefused(
                f"The scratch folder has {format_bytes(free)} free; the run reads {amount}. Use a smaller file."
            )
    elif not os.environ.get(DRIVE_VARIABLE, ""):
        raise RunRefused(f"The scratch folder {place} does not exist.")
    elif (there := _device_bytes(place)) < file_bytes * processes:
        raise RunRefused(f"The drive {place} has {format_bytes(there)}; the run reads {amount}. Use a smaller file.")
    return place


def open_storage_reader(spec: Spec, place: Path, *, rank: int) -> StorageReader:
    """Write the scratch file of a spec to a folder, or open the process's part of a device file."""
    file_bytes, block_bytes = _file_bytes(spec), int(spec.options.get("block_bytes", 2**20))
    if not place.is_dir():
        file = os.open(place, os.O_RDONLY)
        note = f"{place} itself: blocks that were never written may be read more quickly than others."
        return StorageReader(file, first=rank * file_bytes, file_bytes=file_bytes, block_bytes=block_bytes, note=note)
    kind = _file_system_type(place)
    note = (
        f"The scratch folder is in memory ({kind}), not on storage."
        if kind in _MEMORY_FILE_SYSTEMS
        else f"A scratch file on {kind or 'an unknown file system'}, its cache dropped before each pass."
    )
    file, name = tempfile.mkstemp(dir=place, prefix="falcon-read-")
    # It is deleted with the process.
    Path(name).unlink()
    write_random_bytes(file, file_bytes)
    return StorageReader(file, first=0, file_bytes=file_bytes, block_bytes=block_bytes, note=note)


def write_random_bytes(file: int, file_bytes: int) -> None:
    """Write distinct random bytes to an open file, which no layer below can compress or deduplicate."""
    left = file_bytes
    while left > 0:
        left -= os.write(file, os.urandom(min(left, _WRITE_BYTES)))
    os.fsync(file)


def _device_bytes(place: Path) -> int:
    try:
        file = os.open(place, os.O_RDONLY)
    except OSError as error:
        raise RunRefused(f"The drive {place} cannot be read: {error.strerror}.") from error
    try:
        return os.lseek(file, 0, os.SEEK_END)
    finally:
        os.close(file)


def _file_bytes(spec: Spec) -> int:
    return int(spec.options.get("file_bytes", 2**32))


def _file_system_type(folder: Path) -> str:
    """Return the type of a folder's file system, '' where unknown."""
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


MEMORY_SAMPLES = 64  # samples
# Per process, on a drive: data leaves the host's cache right after the read, so it need not exceed the memory.
DRIVE_BYTES = 256 * 2**20
# The stride between successive samples, as with shuffled files: a prime, so that all samples are read.
SAMPLE_STRIDE = 7919


class MemorySamples:
    """Random bytes in memory, equal for equal generators."""

    description = "Samples are generated in memory: no storage is read."

    def __init__(self, shape: tuple[int, ...], length: int, generator: torch.Generator) -> None:
        size = (min(MEMORY_SAMPLES, length), *shape)
        self._samples = torch.randint(256, size, dtype=torch.uint8, generator=generator)

    def read(self, index: int) -> Tensor:
        return self._samples[index % len(self._samples)]


class DriveSamples:
    """Bytes of a file, or of a part of a device file; each access reads the drive."""

    def __init__(self, file: int, shape: tuple[int, ...], *, first: int, samples: int, description: str) -> None:
        self.description = description
        self._file, self._shape, self._first, self._samples = file, shape, first, samples
        self._bytes = math.prod(shape)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)  # no read-ahead

    def read(self, index: int) -> Tensor:
        """Return the bytes of a sample. Raises OSError where the drive cannot be read."""
        place = self._first + (index * SAMPLE_STRIDE) % self._samples * self._bytes
        content = bytearray(self._bytes)
        read = 0
        while read < self._bytes:
            count = os.preadv(self._file, [memoryview(content)[read:]], place + read)
            if not count:
                raise OSError("The data is shorter than expected.")
            read += count
        # Whole pages: the cache keeps a page that is dropped only in part.
        begin = place // mmap.PAGESIZE * mmap.PAGESIZE
        os.posix_fadvise(self._file, begin, place + self._bytes - begin + mmap.PAGESIZE, os.POSIX_FADV_DONTNEED)
        return torch.frombuffer(content, dtype=torch.uint8).view(self._shape)


SampleSource = MemorySamples | DriveSamples


def sample_source(shape: tuple[int, ...], *, length: int, rank: int, generator: torch.Generator) -> SampleSource:
    """Return the samples of a process, at most `length` distinct ones. Raises RunRefused where they do not fit."""
    source = _open_source(shape, length, rank, generator)
    logger.info(source.description)
    return source


def _open_source(shape: tuple[int, ...], length: int, rank: int, generator: torch.Generator) -> SampleSource:
    chosen = os.environ.get(DRIVE_VARIABLE, "")
    if not chosen:
        return MemorySamples(shape, length, generator)
    place = Path(chosen)
    samples = max(1, min(length, DRIVE_BYTES // math.prod(shape)))
    size = samples * math.prod(shape)
    if place.is_dir():
        # Checked per process: the others may have written theirs already.
        if (free := shutil.disk_usage(place).free) < size * FREE_SPACE_FACTOR:
            raise RunRefused(
                f"{place} has {format_bytes(free)} free; the samples of a process take {format_bytes(size)}."
            )
        try:
            file, name = tempfile.mkstemp(dir=place, prefix="falcon-samples-")
            Path(name).unlink()
            write_random_bytes(file, size)
        except OSError as error:
            raise RunRefused(f"Samples cannot be written to {place}: {error.strerror or error}.") from error
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        return DriveSamples(
            file, shape, first=0, samples=samples, description=f"Samples are read from a file in {place}."
        )
    file = os.open(place, os.O_RDONLY)
    there = os.lseek(file, 0, os.SEEK_END)
    if there < size:
        raise RunRefused(f"{place} has {format_bytes(there)}; samples take {format_bytes(size)}.")
    first = size * rank % max(1, there - size)
    description = f"Samples are read from {place}, unmodified."
    return DriveSamples(file, shape, first=first, samples=samples, description=description)
