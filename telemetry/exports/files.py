"""Files of exports: below one folder, under names that the site makes, whole before they have them.

A file grows under a name that ends in '.part' and is known as good up to a position that its run keeps. Whoever goes on
after a death cuts off what came later. A lock of the system, which no death outlives, keeps two from writing one.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from django.conf import settings
from django.utils import timezone

from accounts.access import require_administrator
from accounts.audit.actions import Action
from accounts.audit.services import Target, audit_record
from accounts.models import User
from core.downloads import Download
from core.errors import FalconWebError, Invalid, NotFound
from telemetry.exports.formats import CONTENT_TYPES, SUFFIXES
from telemetry.exports.models import ExportDefinition, ExportFormat, ExportRun
from telemetry.exports.options import FOLDER_PATTERN, ExportOptions

DOWNLOADS = "downloads"
PART_SUFFIX = ".part"
CHUNK_BYTES = 2**20
# What a disk says that has no room: none, none for this account, none in one file.
NO_SPACE_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
PARTS_KEPT = timedelta(days=7)  # for somebody to resume


class InsufficientStorage(FalconWebError):
    """The file cannot grow."""

    status = 507
    code = "no_room"


class FileBusy(FalconWebError):
    """Somebody else is writing the file."""

    status = 409
    code = "conflict"


def exports_root() -> Path:
    """Return the folder of all exports, made where it is missing."""
    folder = Path(settings.EXPORTS_FOLDER)
    folder.mkdir(parents=True, exist_ok=True, mode=0o750)
    return folder.resolve()


def export_folder(name: str) -> Path:
    """Return a folder below that of exports, made where it is missing; '' is that of downloads.

    Raises Invalid for a name that leads elsewhere, by its letters or by a link on the disk.
    """
    name = name or DOWNLOADS
    base = exports_root()
    folder = base / name
    if not FOLDER_PATTERN.fullmatch(name) or not folder.resolve().is_relative_to(base):
        raise Invalid("The folder is not below that of exports.", errors={"folder": "Choose another folder."})
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o750)
    except OSError as error:
        raise InsufficientStorage(f"The folder {name} cannot be made: {error.strerror}.") from error
    return folder


def folder_check(name: str) -> str:
    """See that a folder can be written, and return its path; raises Invalid and InsufficientStorage."""
    folder = export_folder(name)
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".test-") as file:
            file.write(b"test")
    except OSError as error:
        raise InsufficientStorage(f"Nothing can be written to {folder}: {error.strerror}.") from error
    return str(folder)


def file_name(run: ExportRun) -> str:
    """Return the name of a run's file below the folder of exports."""
    options = ExportOptions.of(run.snapshot["options"])
    plain = re.sub(r"[^a-z0-9]+", "-", run.name.lower()).strip("-")[:60] or "export"
    suffix = SUFFIXES[ExportFormat(run.snapshot["format"])] + (".gz" if options.gzip else "")
    return f"{options.folder or DOWNLOADS}/{plain}-{run.created_at:%Y%m%dT%H%M%SZ}-{run.pk}.{suffix}"


class PartFile:
    """A context manager: the file of a run that is being written, from a position on.

    `digest` is the SHA-256 of all that it holds. Raises Elsewhere, InsufficientStorage, and FileNotFoundError where
    less is there than was written once.
    """

    def __init__(self, name: str, position: int, *, heed: Callable[[], None]) -> None:
        folder = export_folder(name.rpartition("/")[0])
        self._final = folder / name.rpartition("/")[2]
        self._path = self._final.with_name(self._final.name + PART_SUFFIX)
        self.position, self._heed = position, heed
        self.digest = hashlib.sha256()

    def __enter__(self) -> Self:
        # It has its name already where a worker died right after it had finished.
        there = self._path if self._path.exists() or not self._final.exists() else self._final
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self._file = os.fdopen(os.open(there, flags, 0o640), "r+b", buffering=0)
        except OSError as error:
            raise _storage_error(error) from error
        try:
            self._lock(there)
            self._take_up()
        except BaseException:
            self._file.close()
            raise
        return self

    def _lock(self, there: Path) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FileBusy("Another worker is still at this file.") from error
        if not there.exists() or not os.path.samestat(os.fstat(self._file.fileno()), there.stat()):
            raise FileBusy("Another worker has just renamed this file.")
        if there == self._final:
            there.rename(self._path)

    def _take_up(self) -> None:
        if os.fstat(self._file.fileno()).st_size < self.position:
            raise FileNotFoundError(self._path)
        left = self.position
        while left and (part := self._file.read(min(CHUNK_BYTES, left))):
            self.digest.update(part)
            left -= len(part)
            self._heed()
        self._file.truncate(self.position)
        self._file.seek(self.position)

    def write(self, data: bytes) -> None:
        """Add to the file; raises InsufficientStorage."""
        view = memoryview(data)
        try:
            while view:
                view = view[self._file.write(view) :]
        except OSError as error:
            raise _storage_error(error) from error
        self.digest.update(data)
        self.position += len(data)

    def sync(self) -> None:
        """Return when everything so far is on the disk; raises InsufficientStorage."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise _storage_error(error) from error

    def finish(self) -> None:
        """Give the file its name."""
        self.sync()
        self._path.replace(self._final)
        folder = os.open(self._final.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()


def _storage_error(error: OSError) -> InsufficientStorage:
    if error.errno in NO_SPACE_ERRORS:
        return InsufficientStorage(
            "The disk of the exports has no more room. Make some, then resume: it goes on where it stopped."
        )
    return InsufficientStorage(
        f"The file cannot be written: {error.strerror or 'the disk failed'}. Resume when that is mended."
    )


def run_file(run: ExportRun) -> Path:
    """Return the path of a run's whole file; raises NotFound where there is none any more."""
    if not run.has_file:
        raise NotFound("This run has no file.")
    path = export_folder(run.file.rpartition("/")[0]) / run.file.rpartition("/")[2]
    if not path.is_file() or path.is_symlink():
        raise NotFound("The file is no longer there: somebody moved or deleted it.")
    return path


def read_parts(path: Path) -> Iterator[bytes]:
    """Yield a file in parts."""
    with path.open("rb") as file:
        while part := file.read(CHUNK_BYTES):
            yield part


def files_delete_expired(definition: ExportDefinition) -> int:
    """Delete files of a definition that are more, or older, than it keeps; returns how many."""
    options = ExportOptions.of(definition.options)
    whole = definition.runs.filter(state=ExportRun.State.DONE, file_removed_at=None).exclude(file="").order_by("-pk")
    gone = set(whole.values_list("pk", flat=True)[options.keep_files :]) if options.keep_files else set()
    if options.keep_days:
        before = timezone.now() - timedelta(days=options.keep_days)
        gone |= set(whole.filter(ended_at__lt=before).values_list("pk", flat=True))
    return files_delete(gone)


def files_delete(runs: Collection[int]) -> int:
    """Delete the files of ended runs, whole and partial; the runs stay. Returns how many there were."""
    removed = 0
    for run in ExportRun.objects.filter(pk__in=runs, file_removed_at=None).exclude(file=""):
        if run.is_open:
            continue
        with suppress(Invalid, InsufficientStorage):
            path = export_folder(run.file.rpartition("/")[0]) / run.file.rpartition("/")[2]
            path.unlink(missing_ok=True)
            path.with_name(path.name + PART_SUFFIX).unlink(missing_ok=True)
        ExportRun.objects.filter(pk=run.pk).update(file_removed_at=timezone.now())
        removed += 1
    return removed


def parts_delete_abandoned(now: datetime) -> int:
    """Delete what failed and cancelled runs left half written and nobody resumed; returns how many."""
    left = ExportRun.objects.filter(
        state__in=[ExportRun.State.FAILED, ExportRun.State.CANCELLED], ended_at__lt=now - PARTS_KEPT
    )
    return files_delete(list(left.filter(file_removed_at=None).exclude(file="").values_list("pk", flat=True)))


def run_download(*, by: User, run: ExportRun) -> Download:
    """Return the whole file of a run, in parts; who took it is kept. Raises Forbidden, and NotFound without a file."""
    require_administrator(by)
    path = run_file(run)
    audit_record(action=Action.EXPORT_DOWNLOAD, actor=by, target=Target("export run", str(run.pk), run.name))
    packed = path.suffix == ".gz"
    kind = "application/gzip" if packed else CONTENT_TYPES[ExportFormat(run.snapshot["format"])]
    answer = Download(read_parts(path), content_type=kind)
    # The name is ours: letters, digits, dashes and dots.
    answer["Content-Disposition"] = f'attachment; filename="{path.name}"'
    answer["Content-Length"] = str(path.stat().st_size)
    return answer
