"""Django's engine for SQLite, which opens a file anew that was replaced, and tells of damage."""

from __future__ import annotations

from falconweb.sqlite.base import PooledWrapper, file_identity


class DatabaseWrapper(PooledWrapper):
    """A connection to the present file at its path, as far as no transaction is under way."""

    def ensure_connection(self) -> None:
        """Connect, and connect anew where the file was replaced."""
        is_idle = self.connection is not None and not self.in_atomic_block and not self.is_in_memory_db()
        if is_idle and self._file != file_identity(str(self.settings_dict["NAME"])):
            self.close()
        super().ensure_connection()
