"""Sessions in the database, looked for by keys that the site could have made."""

from __future__ import annotations

from django.contrib.sessions.backends import db


class SessionStore(db.SessionStore):
    """Takes no other cookie for a key: PostgreSQL refuses one with a NUL in it, which would be an error of the site."""

    def _validate_session_key(self, key: str) -> bool:
        return bool(key) and len(key) >= 8 and key.isascii() and key.isalnum()
