"""Files between the look at them and their import: kept for an hour, for the person who brought them."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from django.conf import settings

from accounts.models import User
from benchmarks.records.content import LARGEST, TOO_LARGE, Content
from falconweb.errors import NotFound, TooLarge

KEPT_SECONDS: Final = 3600.0
MOST_KEPT: Final = 5  # of one person
TOKEN = re.compile(r"[0-9a-f]{64}")


def staged(person: User, parts: Iterable[bytes], name: str) -> tuple[str, Content]:
    """Keep what somebody brought; return the word for it, and the file. Raises TooLarge."""
    folder = _folder()
    _clear(folder, person)
    with tempfile.NamedTemporaryFile(dir=folder, prefix=f"{person.pk}-", suffix=".part", delete=False) as file:
        path = Path(file.name)
        try:
            for part in _bounded(parts):
                file.write(part)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
    token = Content(path=path).sha256
    kept = path.rename(folder / f"{person.pk}-{token}")
    return token, Content(path=kept, name=name)


def staged_again(person: User, token: str, name: str) -> Content:
    """Return what somebody brought before; raises NotFound where it was brought by another, or is not kept any more."""
    path = _folder() / f"{person.pk}-{token}"
    if not TOKEN.fullmatch(token) or not path.is_file():
        raise NotFound("The file was looked at more than an hour ago, or imported since. Choose it again.")
    return Content(path=path, name=name)


def forget(content: Content) -> None:
    """Remove a file that was imported."""
    if content.path is not None:
        content.path.unlink(missing_ok=True)


def _bounded(parts: Iterable[bytes]) -> Iterator[bytes]:
    size = 0
    for part in parts:
        size += len(part)
        if size > LARGEST:
            raise TooLarge(TOO_LARGE)
        yield part


def _folder() -> Path:
    folder = Path(settings.CONFIG.data) / "imports"
    folder.mkdir(parents=True, exist_ok=True, mode=0o750)
    return folder


def _clear(folder: Path, person: User) -> None:
    """Remove what is too old, and the oldest of a person who has many."""
    times: dict[Path, float] = {}
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # somebody else was faster
            times[path] = path.stat().st_mtime
    old = [path for path, at in times.items() if at < time.time() - KEPT_SECONDS]
    own = sorted((path for path in times if path.name.startswith(f"{person.pk}-")), key=times.__getitem__)
    for path in {*old, *own[: max(0, len(own) - MOST_KEPT + 1)]}:
        path.unlink(missing_ok=True)
