"""Django's engine for SQLite, with a queue before the write lock, and with connections that stay open.

SQLite lets one connection write and has the others ask again, more and more rarely: who has waited long asks least
often, and where many write, some are refused in the end. Here the threads of a process take turns, and the one whose
turn it is asks often, since only writers of other processes can be before it.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar
from weakref import WeakSet

from django.db.backends.sqlite3 import base

from falconweb.sqlite.patience import patience_left
from falconweb.sqlite.spare import File, Spares, file_at
from falconweb.sqlite.turns import Turns

ASKS_EVERY = 0.002  # s
WRITES = ("INSERT", "UPDATE", "DELETE")

Done = TypeVar("Done")
_turns = Turns()  # a site has one database
_spares = Spares()


class DatabaseWrapper(base.DatabaseWrapper):
    """A connection that waits for its turn before it writes."""

    _has_turn = False
    _path = ""
    _file: File | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._cursors: WeakSet[Cursor] = WeakSet()

    @property
    def patience(self) -> float:
        """How long a writer waits for the others now, s."""
        return patience_left(float(self.settings_dict["OPTIONS"].get("timeout", 5.0)))

    def create_cursor(self, name: str | None = None) -> Any:
        """Return a cursor whose writes take turns, too, where they are a transaction of their own."""
        cursor = self.connection.cursor(factory=partial(Cursor, lambda: self.patience))
        self._cursors.add(cursor)
        return cursor

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """Return a connection: one that is open and that nobody uses, where there is one."""
        if self.is_in_memory_db():
            return super().get_new_connection(conn_params)
        self._path = str(conn_params["database"])
        found = _spares.take(self._path)
        if found is None:
            found = super().get_new_connection(conn_params)
        else:
            # What somebody may have changed, and Django relies on.
            found.execute("PRAGMA foreign_keys = ON")
            found.execute(f"PRAGMA busy_timeout = {1000 * conn_params.get('timeout', 5.0):.0f}")
        self._file = file_at(self._path)
        return found

    def is_usable(self) -> bool:
        """Tell whether nothing went wrong: a file that could not be written once may have been opened to be read."""
        return not self.errors_occurred

    def _start_transaction_under_autocommit(self) -> None:
        # Without a turn SQLite alone decides: it refuses with its own error.
        self._has_turn = _turns.take(self.patience)
        try:
            super()._start_transaction_under_autocommit()  # type: ignore[misc]
        except BaseException:
            self._give_turn()
            raise

    def _commit(self) -> None:
        super()._commit()  # type: ignore[misc]
        self._give_turn()

    def _rollback(self) -> None:
        super()._rollback()  # type: ignore[misc]
        self._give_turn()

    def _close(self) -> None:
        try:
            if not self._kept():
                super()._close()  # type: ignore[misc]
        finally:
            self._give_turn()

    def _kept(self) -> bool:
        """Let somebody else have the connection, as good as new; tell whether it is kept for them."""
        if self.connection is None or self.in_atomic_block or self.errors_occurred:
            return False
        try:
            # A statement that was not read to its end would hold on to the past for whoever comes next.
            for cursor in tuple(self._cursors):
                cursor.close()
            self.connection.rollback()
        except sqlite3.Error:
            return False
        return _spares.give(self._path, self._file, self.connection)

    def _give_turn(self) -> None:
        if self._has_turn:
            self._has_turn = False
            _turns.give()


class Cursor(base.SQLiteCursorWrapper):
    """A cursor that waits for its turn before a write that is a transaction of its own, and asks often to begin one."""

    def __init__(self, patience: Callable[[], float], connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self._patience = patience

    def execute(self, query: str, params: Any = None) -> Any:
        """Execute a statement."""
        ask = partial(super().execute, query, params)
        if query.startswith("BEGIN"):
            return asked_often(self.connection, self._patience(), ask)
        if self.connection.in_transaction or not query.startswith(WRITES):
            return ask()
        has_turn = _turns.take(self._patience())
        try:
            return asked_often(self.connection, self._patience(), ask)
        finally:
            if has_turn:
                _turns.give()


def asked_often(connection: sqlite3.Connection, seconds: float, ask: Callable[[], Done]) -> Done:
    """Return what `ask` returns, asked again while another process writes, for so long at most."""
    end = time.monotonic() + seconds
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        while True:
            try:
                return ask()
            except sqlite3.OperationalError as error:
                # The lower byte is the kind of error; the rest says more of it.
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                    raise
            time.sleep(ASKS_EVERY)
    finally:
        connection.execute(f"PRAGMA busy_timeout = {seconds * 1000:.0f}")
