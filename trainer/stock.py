"""Where the bytes of samples are: in memory, or on a drive that is read anew for each sample.

`FALCONWEB_DRIVE` names a folder on the drive that was chosen, where each process writes a file of random bytes, or the
drive's own device file, of which each process reads a part of its own. Nothing is ever written to a device file.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from hostwire.training import DRIVE_VARIABLE
from trainer.storage import ROOM, fill, free_bytes
from trainer.telling import log
from trainer.troubles import Refused, size

IN_MEMORY = 64  # samples
# Of a process, on a drive: what was read leaves the host's cache at once, so that it need not be larger than memory.
ON_DRIVE = 256 * 2**20
# One sample after the other lies elsewhere, as with shuffled files: a prime, so that all of them are met.
STRIDE = 7919


class Stock(Protocol):
    """Samples as bytes; `words` says where they are."""

    words: str

    def read(self, index: int) -> Tensor:
        """Return the bytes of a sample."""
        ...


class MemoryStock:
    """Random bytes in memory, the same ones for the same generator."""

    words = "Samples are made up in memory: no storage is read."

    def __init__(self, shape: tuple[int, ...], length: int, generator: torch.Generator) -> None:
        stock = (min(IN_MEMORY, length), *shape)
        self._stock = torch.randint(256, stock, dtype=torch.uint8, generator=generator)

    def read(self, index: int) -> Tensor:
        """Return the bytes of a sample."""
        return self._stock[index % len(self._stock)]


class DriveStock:
    """Bytes of a file, or of a part of a device file; each is read from the drive whenever it is wanted."""

    def __init__(self, file: int, shape: tuple[int, ...], *, first: int, samples: int, words: str) -> None:
        self.words = words
        self._file, self._shape, self._first, self._samples = file, shape, first, samples
        self._bytes = math.prod(shape)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)  # nothing is read ahead

    def read(self, index: int) -> Tensor:
        """Return the bytes of a sample. Raises OSError where the drive does not give them."""
        place = self._first + (index * STRIDE) % self._samples * self._bytes
        content = bytearray(self._bytes)
        read = 0
        while read < self._bytes:
            count = os.preadv(self._file, [memoryview(content)[read:]], place + read)
            if not count:
                raise OSError("The data ended before its end.")
            read += count
        # Whole pages: of one that is dropped in part the cache keeps all.
        begin = place // mmap.PAGESIZE * mmap.PAGESIZE
        os.posix_fadvise(self._file, begin, place + self._bytes - begin + mmap.PAGESIZE, os.POSIX_FADV_DONTNEED)
        return torch.frombuffer(content, dtype=torch.uint8).view(self._shape)


def stock_of(shape: tuple[int, ...], *, length: int, rank: int, generator: torch.Generator) -> Stock:
    """Return the samples of a process, at most `length` different ones. Raises Refused where they do not fit."""
    stock = _stock(shape, length, rank, generator)
    log.info(stock.words)
    return stock


def _stock(shape: tuple[int, ...], length: int, rank: int, generator: torch.Generator) -> Stock:
    chosen = os.environ.get(DRIVE_VARIABLE, "")
    if not chosen:
        return MemoryStock(shape, length, generator)
    place = Path(chosen)
    samples = max(1, min(length, ON_DRIVE // math.prod(shape)))
    wanted = samples * math.prod(shape)
    if place.is_dir():
        # Each process for itself: the others may have theirs already.
        if (free := free_bytes(place)) < wanted * ROOM:
            raise Refused(f"{place} has {size(free)} free; the samples of a process take {size(wanted)}.")
        try:
            file, name = tempfile.mkstemp(dir=place, prefix="falcon-samples-")
            Path(name).unlink()
            fill(file, wanted)
        except OSError as error:
            raise Refused(f"Samples cannot be written to {place}: {error.strerror or error}.") from error
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        return DriveStock(file, shape, first=0, samples=samples, words=f"Samples are read from a file in {place}.")
    file = os.open(place, os.O_RDONLY)
    there = os.lseek(file, 0, os.SEEK_END)
    if there < wanted:
        raise Refused(f"{place} has {size(there)}; samples take {size(wanted)}.")
    first = wanted * rank % max(1, there - wanted)
    return DriveStock(file, shape, first=first, samples=samples, words=f"Samples are read from {place}, as it is.")
