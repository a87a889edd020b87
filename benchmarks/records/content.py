"""A file to import, whether it came as bytes or lies on the disk: read line by line, never held as a whole."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, Final

from benchmarks.strict import BrokenError
from falconweb.errors import Invalid, TooLarge

LARGEST: Final = 32 * 2**20  # of a file by the pages and the API
TOO_LARGE: Final = f"The file is larger than {LARGEST // 2**20} MiB. Split it, or let the command import it."
LARGEST_ON_DISK: Final = 2**30  # by the command
LARGEST_WHOLE: Final = 8 * 2**20  # of what is read at once: the outputs of other tools
LONGEST_LINE: Final = 8 * 2**20
PACKED: Final = {
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "zip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}
HEAD: Final = 65_536
CHUNK: Final = 2**20


@dataclass(frozen=True)
class Content:
    """The bytes of a file, or where they are; `name` is what its owner calls it."""

    data: bytes = b""
    path: Path | None = None
    name: str = ""

    def open(self) -> BinaryIO:
        """Open it for reading."""
        return self.path.open("rb") if self.path is not None else io.BytesIO(self.data)

    @cached_property
    def size(self) -> int:
        """Bytes."""
        return self.path.stat().st_size if self.path is not None else len(self.data)

    @cached_property
    def sha256(self) -> str:
        """The hash of all of it, hexadecimal."""
        found = hashlib.sha256()
        with self.open() as file:
            while part := file.read(CHUNK):
                found.update(part)
        return found.hexdigest()

    @cached_property
    def head(self) -> bytes:
        """Its beginning."""
        with self.open() as file:
            return file.read(HEAD)

    def refuse_unreadable(self, largest: int = LARGEST) -> None:
        """Raise Invalid for an empty file and for one that is no text, TooLarge for one that is too large."""
        if self.size > largest:
            raise TooLarge(TOO_LARGE if largest == LARGEST else f"The file is larger than {largest // 2**20} MiB.")
        if not self.head.strip():
            raise Invalid("There is nothing in the file.", errors={"file": "It is empty."})
        for sign, packed in PACKED.items():
            if self.head.startswith(sign):
                raise Invalid(f"This is a {packed} file. Unpack it first.", errors={"file": "It is packed."})
        if b"\x00" in self.head:
            raise Invalid("This is no text: it has zero bytes.", errors={"file": "It is no text."})

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield lines that are not blank with their numbers from 1; raises BrokenError, whose field is the number."""
        with self.open() as file:
            number = 0
            while raw := file.readline(LONGEST_LINE + 1):
                number += 1
                if len(raw) > LONGEST_LINE:
                    raise BrokenError(f"The line is longer than {LONGEST_LINE // 2**20} MiB.", str(number))
                text = _decoded(raw, number)
                if text.strip():
                    yield number, text

    def text(self) -> str:
        """Return all of it; raises Invalid where it is too large for that, BrokenError for what is no UTF-8."""
        if self.size > LARGEST_WHOLE:
            raise TooLarge(f"The output of a tool may have {LARGEST_WHOLE // 2**20} MiB at most.")
        with self.open() as file:
            raw = file.read()
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise BrokenError("This is no UTF-8.", str(raw.count(b"\n", 0, error.start) + 1)) from error
        if "\x00" in text:
            raise BrokenError("A zero byte is here: this is no text.", str(text.count("\n", 0, text.index("\x00")) + 1))
        return text


def _decoded(raw: bytes, number: int) -> str:
    try:
        text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise BrokenError(f"This is no UTF-8, from byte {error.start + 1} on.", str(number)) from error
    if "\x00" in text:
        raise BrokenError("A zero byte is here: this is no text.", str(number))
    return text
