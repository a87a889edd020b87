"""The files of uploaded images, in a folder of the site that its workers read too."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NoReturn

from django.conf import settings

from core.errors import Invalid
from core.language import _

MAX_IMAGE_BYTES: Final = 512 * 2**20
MAX_IMAGES: Final = 20


def image_path(pk: int) -> Path:
    """Return the file of an image by its id."""
    return _folder() / f"{pk}.bin"


def image_write(chunks: Iterable[bytes]) -> tuple[Path, int, str]:
    """Write a file as it comes; returns it under a name for the time being, its size in bytes and its SHA-256.

    Raises Invalid for an empty or too large one.
    """
    _folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(".part", dir=_folder())
    path, digest, size = Path(name), hashlib.sha256(), 0
    try:
        with os.fdopen(descriptor, "wb") as file:
            for chunk in chunks:
                size += len(chunk)
                if size > MAX_IMAGE_BYTES:
                    _refuse(_("An image has at most {most} MB.", most=MAX_IMAGE_BYTES >> 20))
                digest.update(chunk)
                file.write(chunk)
        if not size:
            _refuse(_("The image is empty."))
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path, size, digest.hexdigest()


def _folder() -> Path:
    return Path(settings.CONFIG.data) / "firmware"


def _refuse(sentence: str) -> NoReturn:
    raise Invalid(sentence, errors={"file": sentence})
