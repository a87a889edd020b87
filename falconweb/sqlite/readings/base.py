"""Django's engine for SQLite, which opens a file anew that was replaced, and tells of damage."""

from __future__ import annotations

from typing import Any

from django.db.backends.sqlite3 import base

from core.sqlite_damage import DamageAnnouncer
from falconweb.sqlite.base import FileIdentity, file_identity


class DatabaseWrapper(DamageAnnouncer, base.DatabaseWrapper):
    """A connection to the present file at its path, as far as no transaction is under way."""

    _file: FileIdentity | None = None

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """Return a connection."""
        # Before it is opened: if it is replaced meanwhile, the next use opens it again.
        self._file = file_identity(str(conn_params["database"]))
        found = super().get_new_connection(conn_params)
        self._file = self._file or file_identity(str(conn_params["database"]))
        return found

    def ensure_connection(self) -> None:
        """Connect, and connect anew where the file was replaced."""
        is_idle = self.connection is not None and not self.in_atomic_block and not self.is_in_memory_db()
        if is_idle and self._file != file_identity(str(self.settings_dict["NAME"])):
            self.close()
        super().ensure_connection()
