"""Files of maintenance, in folders of the site that its workers share: uploaded images, collected logs."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, NoReturn, Self

from django.conf import settings

from core.errors import Invalid
from core.language import _

MAX_IMAGE_BYTES: Final = 512 * 2**20
MAX_IMAGES: Final = 20
MAX_LOG_BYTES: Final = 512 * 2**20
MAX_LOGS: Final = 50
CHUNK_BYTES: Final = 2**20


def image_path(pk: int) -> Path:
    """Return the file of an image by its id."""
    return _folder() / "firmware" / f"{pk}.bin"


def log_path(pk: int) -> Path:
    """Return the file of a collected log by its id."""
    return _folder() / "logs" / f"{pk}.bin"


def read_chunks(path: Path) -> Iterator[bytes]:
    """Yield a file in parts."""
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


class IncomingFile:
    """A file that is written as it comes, of at most so many bytes; without `keep` it is gone at the end."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._digest = hashlib.sha256()
        self.size = 0

    def __enter__(self) -> Self:
        _folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(".part", dir=_folder())
        self._path, self._file = Path(name), os.fdopen(descriptor, "wb")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)

    @property
    def sha256(self) -> str:
        """The SHA-256 of what was written."""
        return self._digest.hexdigest()

    def write(self, chunk: bytes) -> None:
        """Add to it; raises Invalid for more than it may have."""
        self.size += len(chunk)
        if self.size > self._most:
            _refuse(_("A file has at most {most} MB.", most=self._most >> 20))
        self._digest.update(chunk)
        self._file.write(chunk)

    def end(self) -> None:
        """Write what is left to the disk; raises Invalid for an empty file."""
        self._file.flush()
        if not self.size:
            _refuse(_("The file is empty."))

    def keep(self, path: Path) -> None:
        """Give it its lasting name."""
        path.parent.mkdir(mode=0o700, exist_ok=True)
        self._path.replace(path)


def _folder() -> Path:
    return Path(settings.CONFIG.data) / "maintenance"


def _refuse(sentence: str) -> NoReturn:
    raise Invalid(sentence, errors={"file": sentence})
