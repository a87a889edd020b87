"""A database that is away or locked, in the site's own words: one error for the API and for pages."""

from __future__ import annotations

import sqlite3

from django.db import InterfaceError, OperationalError

from falconweb.errors import Unavailable

AWAY = "The database does not answer just now: try again."
# What SQLite says of a file that is locked or cannot be reached. Its other errors are errors of the site.
OF_THE_FILE = {
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN,
}  # fmt: skip


def database_away(error: BaseException | None) -> Unavailable | None:
    """Return what to say of an error of a database that does not answer, None for any other error."""
    if not isinstance(error, OperationalError | InterfaceError):
        return None
    cause = error.__cause__
    # The lower byte is the kind of error; the rest says more of it.
    if isinstance(cause, sqlite3.Error) and getattr(cause, "sqlite_errorcode", 0) & 0xFF not in OF_THE_FILE:
        return None
    return Unavailable(AWAY)
