"""Damaged SQLite files: how they are found and set aside, and what is known of them, by files beside them."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from django.db.utils import DatabaseErrorWrapper
from django.dispatch import Signal
from django.utils.functional import cached_property

DAMAGE_CODES: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
INTERRUPT_SECONDS: Final = 0.05  # between two attempts to end a look
JOURNALS: Final = ("-wal", "-shm")
SET_ASIDE: Final = ".damaged-"  # and the time (UTC), in the name of a file that was set aside
SET_ASIDE_FORMAT: Final = "%Y%m%dT%H%M%SZ"
SHOWN: Final = timedelta(days=1)  # how long a file that was set aside is shown, unless it is moved away before

damage_met = Signal()  # a query met damage; argument: alias


class DamageAnnouncer:
    """What a database wrapper of Django inherits to send `damage_met`."""

    @cached_property
    def wrap_database_errors(self) -> DatabaseErrorWrapper:
        """The context of all that may raise the driver's errors."""
        return _DamageAnnouncingWrapper(self)


class _DamageAnnouncingWrapper(DatabaseErrorWrapper):
    wrapper: Any  # the stub lacks it

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if is_damage(error):
            damage_met.send_robust(sender=None, alias=self.wrapper.alias)
        super().__exit__(kind, error, traceback)


def is_damage(error: BaseException | None) -> bool:
    """Return whether an error, of the driver or of Django, says that a file is damaged."""
    found = error if isinstance(error, sqlite3.Error) else getattr(error, "__cause__", None)
    # The lower byte is the kind of error; the rest is its extended code.
    return isinstance(found, sqlite3.Error) and getattr(found, "sqlite_errorcode", 0) & 0xFF in DAMAGE_CODES


def has_no_table(path: Path) -> bool:
    """Return whether a file has no table at all, as one that was emptied while connections to it are open."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=0.0)) as connection:
            return connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone() is None
    except sqlite3.Error:
        return False


def file_damage(path: Path, *, seconds: float) -> str:
    """Return what is wrong with an SQLite file, in a few words.

    '' for a sound file, for none, and where nothing was found within `seconds` or while another process kept it locked.
    """
    if not path.exists():
        return ""
    if not path.is_file():
        return "it is no file"
    if not any(one.is_file() and one.stat().st_size for one in (path, path.with_name(f"{path.name}-wal"))):
        return "it is empty"
    address = f"{path.absolute().as_uri()}?mode=rw"
    try:
        with (
            closing(sqlite3.connect(address, uri=True, check_same_thread=False)) as connection,
            limited(connection, seconds),
        ):
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        return str(error) if is_damage(error) else ""
    return "" if found == "ok" else " ".join(str(found).split())


@contextmanager
def limited(connection: sqlite3.Connection, seconds: float) -> Iterator[None]:
    """Interrupt a statement after that time: SQLite asks no progress handler while it checks pages."""
    over = threading.Event()

    def interrupt() -> None:
        if not over.wait(seconds):
            while not over.wait(INTERRUPT_SECONDS):
                connection.interrupt()

    thread = threading.Thread(target=interrupt, name="limit", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def set_aside(path: Path, make: Callable[[Path], None], *, seconds: float) -> tuple[str, Path] | None:
    """Replace a damaged file by a new one that `make` creates at a path; returns the damage, and where the file is now.

    None where it is not damaged, also since another process has just replaced it. Open connections keep the file that
    was set aside: who uses them compares its inode (falconweb.sqlite.readings).
    """
    with _only_one(path):
        damage = file_damage(path, seconds=seconds)
        if not damage:
            return None
        new, aside = path.with_name(f"{path.name}.new"), _aside_path(path)
        for suffix in ("", *JOURNALS):
            new.with_name(new.name + suffix).unlink(missing_ok=True)
        make(new)
        # The journals before the file: the new one must not get the changes of the old one.
        for suffix in JOURNALS:
            if (journal := path.with_name(path.name + suffix)).exists():
                journal.rename(aside.with_name(aside.name + suffix))
        if path.is_file():
            aside.hardlink_to(path)  # no moment without a file, which somebody would create
        else:
            path.rename(aside)
        new.replace(path)
        return damage, aside


def files_set_aside(path: Path) -> list[Path]:
    """Return the files that were set aside at a path within SHOWN and are still there, newest first."""
    since = datetime.now(UTC) - SHOWN
    found = {
        at: file
        for file in path.parent.glob(f"{path.name}{SET_ASIDE}*")
        if (at := _set_aside_at(file)) is not None and at >= since
    }
    return [found[at] for at in sorted(found, reverse=True)]


def note_damage(path: Path, damage: str) -> None:
    """Keep what is wrong with a file that is not replaced, '' for nothing, for `known_damage` in all processes."""
    note = path.with_name(f"{path.name}.damage")
    if damage:
        note.write_text(damage)
    else:
        note.unlink(missing_ok=True)


def known_damage(path: Path) -> str:
    """Return what was found to be wrong with a file, '' for nothing."""
    try:
        return path.with_name(f"{path.name}.damage").read_text()
    except OSError:
        return ""


def _aside_path(path: Path) -> Path:
    at = datetime.now(UTC)
    while (aside := path.with_name(f"{path.name}{SET_ASIDE}{at:{SET_ASIDE_FORMAT}}")).exists():
        at += timedelta(seconds=1)
    return aside


def _set_aside_at(file: Path) -> datetime | None:
    try:
        return datetime.strptime(file.name.rpartition(SET_ASIDE)[2], SET_ASIDE_FORMAT).replace(tzinfo=UTC)
    except ValueError:  # such as a journal's
        return None


@contextmanager
def _only_one(path: Path) -> Iterator[None]:
    """Wait until no other process or thread is at this."""
    lock = os.open(path.with_name(f"{path.name}.lock"), os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
