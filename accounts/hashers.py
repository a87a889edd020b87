"""How passwords are hashed: slowly, with much memory, and by few at a time."""

from __future__ import annotations

import threading

from django.contrib.auth.hashers import Argon2PasswordHasher

AT_A_TIME = 4
_places = threading.BoundedSemaphore(AT_A_TIME)


class BoundedArgon2PasswordHasher(Argon2PasswordHasher):
    """Argon2 with at most four at work in a process: each takes 100 MB, and anybody may ask to sign in."""

    def encode(self, password: str, salt: str) -> str:
        """Hash a password."""
        with _places:
            return super().encode(password, salt)

    def verify(self, password: str, encoded: str) -> bool:
        """Tell whether a password is the one that was hashed."""
        with _places:
            return super().verify(password, encoded)
