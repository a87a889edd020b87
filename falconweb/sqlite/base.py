"""Database engine for SQLite: a fair write lock, a pool of open connections, a limit on the wait for a lock.

SQLite allows one writer, and the others poll at growing intervals: the longest waiting polls least often, and with many
writers some time out. Here a fair lock serialises the threads of a process, and the one that has the lock polls often,
since it competes only with writers of other processes.

A connection belongs to a thread, and requests of many threads come and go: each request would open the file, register
Django's functions and read the schema, which takes longer than most of its queries.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakSet

from django.db.backends.sqlite3 import base

from core.database import NATURAL
from core.sqlite_damage import DamageAnnouncer, known_damage
from core.text import natural_key

POOL_SIZE = 16  # per path: the number of concurrent requests

FileIdentity = tuple[int, int, int]  # the process, and the file's device and inode
Opening = tuple[str, ...]  # a path, and the commands with which connections to it begin


class ConnectionPool:
    """Connections by how they were opened. One of another process, or of a replaced file, is not reused."""

    def __init__(self, most: int = POOL_SIZE) -> None:
        self._most = most
        self._guard = threading.Lock()
        self._spare: dict[Opening, list[tuple[FileIdentity, sqlite3.Connection]]] = defaultdict(list)

    def take(self, opening: Opening, file: FileIdentity | None) -> sqlite3.Connection | None:
        """Return a connection to this file, None where the pool has none."""
        with self._guard:
            spare = self._spare[opening]
            self._spare[opening] = [one for one in spare if one[0] == file]
            found = self._spare[opening].pop()[1] if self._spare[opening] else None
        for of, connection in spare:
            if of != file:
                connection.close()
        return found

    def add(self, opening: Opening, file: FileIdentity | None, connection: sqlite3.Connection) -> bool:
        """Add a connection to the pool; returns whether it was added: not if the pool is full."""
        with self._guard:
            if file is None or len(self._spare[opening]) >= self._most:
                return False
            self._spare[opening].append((file, connection))
            return True


@lru_cache(maxsize=10_000)
def _key(text: str) -> tuple[object, str]:
    return natural_key(text.casefold()), text


def compare_naturally(one: str, other: str) -> int:
    """Compare texts for the collation: numbers inside them as numbers, in any case."""
    first, second = _key(one), _key(other)
    return (first > second) - (first < second)


def file_identity(path: str) -> FileIdentity | None:
    """Return the identity of the present file at a path in this process; None where there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116 - before each query: a Path takes longer than the call
    except OSError:
        return None
    return os.getpid(), found.st_dev, found.st_ino


class FairLock:
    """A lock that the longest waiting thread gets next; `threading.Lock` has no order."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._taken = False
        self._waiting: deque[threading.Lock] = deque()

    def acquire(self, seconds: float) -> bool:
        """Acquire the lock within a time limit; returns whether it was acquired, and must then be released."""
        with self._guard:
            if not self._taken:
                self._taken = True
                return True
            mine = threading.Lock()
            mine.acquire()
            self._waiting.append(mine)
        if mine.acquire(timeout=seconds):
            return True
        with self._guard:
            if mine in self._waiting:
                self._waiting.remove(mine)
                return False
            return True  # it was acquired at the same moment

    def release(self) -> None:
        """Release the lock to the next thread."""
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._taken = False


RETRY_SECONDS = 0.002  # s
WRITE_STATEMENTS = ("INSERT", "UPDATE", "DELETE")

Result = TypeVar("Result")
_write_lock = FairLock()  # a site has one database
_pool = ConnectionPool()


class PooledWrapper(DamageAnnouncer, base.DatabaseWrapper):
    """A wrapper whose connection is one of the pool's, and returns to it when it is closed."""

    init_commands: list[str]  # the stub lacks it
    _opening: Opening = ()
    _file: FileIdentity | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._cursors: WeakSet[base.SQLiteCursorWrapper] = WeakSet()

    def create_cursor(self, name: str | None = None) -> Any:
        """Return a cursor."""
        cursor = self.connection.cursor(factory=self.cursor_factory)
        self._cursors.add(cursor)
        return cursor

    @property
    def cursor_factory(self) -> Callable[[sqlite3.Connection], base.SQLiteCursorWrapper]:
        """Returns a cursor of a connection."""
        return base.SQLiteCursorWrapper

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """Return a connection: an idle one of the pool, or a new one."""
        if self.is_in_memory_db():
            return self.open(conn_params)
        path = str(conn_params["database"])
        self._opening = (path, *self.init_commands)
        # Before it is opened: if it is replaced meanwhile, the next use opens it again.
        self._file = file_identity(path)
        found = _pool.take(self._opening, self._file)
        if found is None:
            found = self.open(conn_params)
            self._file = self._file or file_identity(path)
        elif found.execute("PRAGMA foreign_keys").fetchone() != (1,):
            # It may have been changed, and Django relies on it. To set it discards the statements that are compiled.
            found.execute("PRAGMA foreign_keys = ON")
        return found

    def open(self, conn_params: dict[str, Any]) -> sqlite3.Connection:
        """Return a new connection."""
        made: sqlite3.Connection = super().get_new_connection(conn_params)
        return made

    def _close(self) -> None:
        if not self._return_to_pool():
            super()._close()  # type: ignore[misc]

    def _return_to_pool(self) -> bool:
        """Reset the connection and return it to the pool; returns whether the pool took it."""
        if self.connection is None or self.in_atomic_block or self.errors_occurred:
            return False
        try:
            # An unfinished statement would keep an old snapshot for the next user.
            for cursor in tuple(self._cursors):
                cursor.close()
            self.connection.rollback()
        except sqlite3.Error:
            return False
        return _pool.add(self._opening, self._file, self.connection)


class DatabaseWrapper(PooledWrapper):
    """A connection that acquires the fair lock before it writes."""

    _holds_write_lock = False
    _timeout = 0.0  # s that a statement waits for a lock

    @property
    def lock_wait(self) -> float:
        """The present wait limit of a writer in s."""
        return remaining_lock_wait(self._timeout)

    @property
    def cursor_factory(self) -> Callable[[sqlite3.Connection], base.SQLiteCursorWrapper]:
        """Returns a cursor whose writes outside of transactions acquire the lock, too."""
        return partial(Cursor, lambda: self.lock_wait)

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """Return a connection: an idle one of the pool, or a new one."""
        # A damaged file may stay locked until it is replaced: nobody waits for that.
        is_damaged = known_damage(Path(str(conn_params["database"])))
        self._timeout = 0.0 if is_damaged else float(conn_params.get("timeout", 5.0))
        found = super().get_new_connection({**conn_params, "timeout": self._timeout})
        found.execute(f"PRAGMA busy_timeout = {1000 * self._timeout:.0f}")
        return found

    def open(self, conn_params: dict[str, Any]) -> sqlite3.Connection:
        """Return a new connection, with the collation of names."""
        made = super().open(conn_params)
        made.create_collation(NATURAL, compare_naturally)
        return made

    def is_usable(self) -> bool:
        """Return whether the connection had no errors: after a failed write, the file may be open read-only."""
        return not self.errors_occurred

    def _start_transaction_under_autocommit(self) -> None:
        # Without the fair lock, SQLite decides, and raises its own error.
        self._holds_write_lock = _write_lock.acquire(self.lock_wait)
        try:
            super()._start_transaction_under_autocommit()  # type: ignore[misc]
        except BaseException:
            self._release_write_lock()
            raise

    def _commit(self) -> None:
        super()._commit()  # type: ignore[misc]
        self._release_write_lock()

    def _rollback(self) -> None:
        super()._rollback()  # type: ignore[misc]
        self._release_write_lock()

    def _close(self) -> None:
        try:
            super()._close()
        finally:
            self._release_write_lock()

    def _release_write_lock(self) -> None:
        if self._holds_write_lock:
            self._holds_write_lock = False
            _write_lock.release()


class Cursor(base.SQLiteCursorWrapper):
    """A cursor that acquires the fair lock before a write outside of a transaction, and polls often to begin one."""

    def __init__(self, lock_wait: Callable[[], float], connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self._lock_wait = lock_wait

    def execute(self, query: str, params: Any = None) -> Any:
        """Execute a statement."""
        run = partial(super().execute, query, params)
        if query.startswith("BEGIN"):
            return retry_while_busy(self.connection, self._lock_wait(), run)
        if self.connection.in_transaction or not query.startswith(WRITE_STATEMENTS):
            return run()
        has_lock = _write_lock.acquire(self._lock_wait())
        try:
            return retry_while_busy(self.connection, self._lock_wait(), run)
        finally:
            if has_lock:
                _write_lock.release()


def retry_while_busy(connection: sqlite3.Connection, seconds: float, run: Callable[[], Result]) -> Result:
    """Return the result of `run`, retried for at most `seconds` while another process writes."""
    end = time.monotonic() + seconds
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        while True:
            try:
                return run()
            except sqlite3.OperationalError as error:
                # The lower byte is the kind of error; the rest is its extended code.
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                    raise
            time.sleep(RETRY_SECONDS)
    finally:
        connection.execute(f"PRAGMA busy_timeout = {seconds * 1000:.0f}")


_lock_wait_end: ContextVar[float | None] = ContextVar("lock_wait_end", default=None)


@contextmanager
def limit_lock_wait(seconds: float) -> Iterator[None]:
    """Limit the total wait for writers in the context; after that a locked database raises immediately."""
    token = _lock_wait_end.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _lock_wait_end.reset(token)


def remaining_lock_wait(seconds: float) -> float:
    """Return the wait limit for another writer in s: `seconds`, or the remainder of `limit_lock_wait`."""
    end = _lock_wait_end.get()
    return seconds if end is None else max(0.0, min(seconds, end - time.monotonic()))
