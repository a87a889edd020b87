"""Files to import: content, problems by line, staging between preview and import."""

from __future__ import annotations

import hashlib
import io
import math
import re
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Final

from django.conf import settings

from accounts.models import User
from core.errors import Invalid, NotFound, TooLarge
from core.language import _, _n, gettext_noop, joined
from core.strict_json import InvalidDocument

MAX_UPLOAD_BYTES: Final = 32 * 2**20  # of a file by the pages and the API
TOO_LARGE_SENTENCE: Final = gettext_noop("The file is larger than 32 MiB. Split it, or let the command import it.")
BODY_LIMIT: Final = (MAX_UPLOAD_BYTES + 2**20, TOO_LARGE_SENTENCE)  # alone or with the rest of a form
MAX_DISK_BYTES: Final = 2**30  # by the command
MAX_TEXT_BYTES: Final = 8 * 2**20  # of files that are read as a whole: the outputs of other tools
MAX_LINE_BYTES: Final = 8 * 2**20
MAX_TOOL_LINE_LENGTH: Final = 10_000  # characters of a line of a tool's table: a row of some hundred GPUs has fewer
COMPRESSION_SIGNATURES: Final = {
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "zip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}
HEAD_BYTES: Final = 65_536
CHUNK_BYTES: Final = 2**20


@dataclass(frozen=True)
class ImportFile:
    """The bytes of a file, or their path; `name` is the original file name."""

    data: bytes = b""
    path: Path | None = None
    name: str = ""

    def open(self) -> BinaryIO:
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
            while part := file.read(CHUNK_BYTES):
                found.update(part)
        return found.hexdigest()

    @cached_property
    def head(self) -> bytes:
        with self.open() as file:
            return file.read(HEAD_BYTES)

    def refuse_unreadable(self, largest: int = MAX_UPLOAD_BYTES) -> None:
        """Raise Invalid for an empty file or one that is not text, TooLarge for one that is too large."""
        if self.size > largest:
            raise TooLarge(
                _(TOO_LARGE_SENTENCE)
                if largest == MAX_UPLOAD_BYTES
                else _("The file is larger than {most} MiB.", most=largest // 2**20)
            )
        if not self.head.strip():
            raise Invalid(_("There is nothing in the file."), errors={"file": _("It is empty.")})
        for sign, packed in COMPRESSION_SIGNATURES.items():
            if self.head.startswith(sign):
                raise Invalid(
                    _("This is a {format} file. Unpack it first.", format=packed), errors={"file": _("It is packed.")}
                )
        if b"\x00" in self.head:
            raise Invalid(_("This is no text: it has zero bytes."), errors={"file": _("It is no text.")})

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield non-blank lines with their numbers from 1; raises InvalidDocument, whose field is the number."""
        with self.open() as file:
            number = 0
            while raw := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                if len(raw) > MAX_LINE_BYTES:
                    raise InvalidDocument(
                        _("The line is longer than {most} MiB.", most=MAX_LINE_BYTES // 2**20), str(number)
                    )
                text = _decode_line(raw, number)
                if text.strip():
                    yield number, text

    def text(self) -> str:
        """Return its whole text; raises Invalid if it is too large for that, InvalidDocument if it is not UTF-8."""
        if self.size > MAX_TEXT_BYTES:
            raise TooLarge(_("The output of a tool may have {most} MiB at most.", most=MAX_TEXT_BYTES // 2**20))
        with self.open() as file:
            raw = file.read()
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise InvalidDocument(_("This is no UTF-8."), str(raw.count(b"\n", 0, error.start) + 1)) from error
        if "\x00" in text:
            raise InvalidDocument(
                _("A zero byte is here: this is no text."), str(text.count("\n", 0, text.index("\x00")) + 1)
            )
        return text


def _decode_line(raw: bytes, number: int) -> str:
    try:
        text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise InvalidDocument(_("This is no UTF-8, from byte {byte} on.", byte=error.start + 1), str(number)) from error
    if "\x00" in text:
        raise InvalidDocument(_("A zero byte is here: this is no text."), str(number))
    return text


MAX_PROBLEMS: Final = 20
MAX_FIELD_LENGTH: Final = 120


@dataclass(frozen=True)
class ImportProblem:
    """A problem: `line` counts from 1, 0 for the file as a whole; `field` is '' for a whole line."""

    line: int
    field: str
    sentence: str

    @property
    def words(self) -> str:
        """All of it as one sentence."""
        field = f"{self.field[:1].upper()}{self.field[1:]}" if not self.line else self.field
        named = {"line": self.line, "field": field, "sentence": self.sentence}
        if self.line:
            return _("Line {line}, {field}: {sentence}", **named) if field else _("Line {line}: {sentence}", **named)
        return _("{field}: {sentence}", **named) if field else self.sentence


class ProblemLimitReached(Exception):
    """The limit of problems was reached, so reading stops."""


@dataclass
class ImportProblems:
    """The problems found so far, up to a limit."""

    found: list[ImportProblem] = field(default_factory=list)
    more: bool = False

    def note(self, line: int, where: str, sentence: str) -> None:
        """Add a problem; raises ProblemLimitReached at the limit."""
        if len(self.found) >= MAX_PROBLEMS:
            self.more = True
            raise ProblemLimitReached
        self.found.append(ImportProblem(line, where[:MAX_FIELD_LENGTH], sentence))


def tool_lines(text: str, problems: ImportProblems) -> Iterator[tuple[int, str]]:
    """Yield non-blank lines of a tool's output with their numbers from 1; longer ones than any tool's are problems."""
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > MAX_TOOL_LINE_LENGTH:
            problems.note(number, "", _("The line is longer than {most:,} characters.", most=MAX_TOOL_LINE_LENGTH))
        elif line.strip():
            yield number, line


def refuse_problems(found: tuple[ImportProblem, ...], more: bool) -> None:
    """Raise Invalid if there are any, with each by its place."""
    if not found:
        return
    count = len(found)
    raise Invalid(
        joined(
            [
                _("More than {count} problems in the file: {first}", count=count, first=found[0].words)
                if more
                else _n(
                    "{count} problem in the file: {first}",
                    "{count} problems in the file: {first}",
                    count,
                    first=found[0].words,
                ),
                _("Nothing was imported."),
            ]
        ),
        problems=[{"line": one.line, "path": one.field, "sentence": one.sentence} for one in found],
        more_problems=more,
    )


def finite_number(cell: Any) -> float | None:
    """Return a number, or the one in a text; None for anything else, for NaN and for infinity."""
    try:
        value = float(cell) if isinstance(cell, str | int | float) and not isinstance(cell, bool) else math.nan
    except (ValueError, OverflowError):
        value = math.nan
    return value if math.isfinite(value) else None


STAGED_SECONDS: Final = 3600.0
MAX_STAGED_FILES: Final = 5  # of one person
TOKEN_PATTERN = re.compile(r"[0-9a-f]{64}")


def stage_file(person: User, parts: Iterable[bytes], name: str) -> tuple[str, ImportFile]:
    """Stage an uploaded file; return its token, and the file. Raises TooLarge."""
    folder = _staging_folder()
    _delete_old(folder, person)
    with tempfile.NamedTemporaryFile(dir=folder, prefix=f"{person.pk}-", suffix=".part", delete=False) as file:
        path = Path(file.name)
        try:
            for part in _limited_parts(parts):
                file.write(part)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
    token = ImportFile(path=path).sha256
    kept = path.rename(folder / f"{person.pk}-{token}")
    return token, ImportFile(path=kept, name=name)


def staged_file_get(person: User, token: str, name: str) -> ImportFile:
    """Return a staged file; raises NotFound if it belongs to another person, or has expired."""
    path = _staging_folder() / f"{person.pk}-{token}"
    if not TOKEN_PATTERN.fullmatch(token) or not path.is_file():
        raise NotFound(_("The preview is older than an hour, or the file was imported since. Choose the file again."))
    return ImportFile(path=path, name=name)


def staged_file_delete(content: ImportFile) -> None:
    """Remove a file that was imported."""
    if content.path is not None:
        content.path.unlink(missing_ok=True)


def _limited_parts(parts: Iterable[bytes]) -> Iterator[bytes]:
    size = 0
    for part in parts:
        size += len(part)
        if size > MAX_UPLOAD_BYTES:
            raise TooLarge(_(TOO_LARGE_SENTENCE))
        yield part


def _staging_folder() -> Path:
    folder = Path(settings.CONFIG.data) / "imports"
    folder.mkdir(parents=True, exist_ok=True, mode=0o750)
    return folder


def _delete_old(folder: Path, person: User) -> None:
    """Remove expired files, and the oldest of a person with too many."""
    times: dict[Path, float] = {}
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # removed concurrently
            times[path] = path.stat().st_mtime
    old = [path for path, at in times.items() if at < time.time() - STAGED_SECONDS]
    own = sorted((path for path in times if path.name.startswith(f"{person.pk}-")), key=times.__getitem__)
    for path in {*old, *own[: max(0, len(own) - MAX_STAGED_FILES + 1)]}:
        path.unlink(missing_ok=True)
