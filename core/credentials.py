"""BMC passwords at rest: Fernet, with key rotation (the first key encrypts, all decrypt)."""

from __future__ import annotations

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

from core.errors import Unavailable


def encrypt(text: str) -> str:
    """Return `text` encrypted with the newest key."""
    return _keys().encrypt(text.encode()).decode()


def decrypt(token: str) -> str:
    """Return the plain text; raises Unavailable when none of the site's keys fits."""
    try:
        return _keys().decrypt(token.encode()).decode()
    except InvalidToken as error:
        raise Unavailable(
            "The stored password of this chassis cannot be decrypted with the site's key. "
            "Restore FALCONWEB_CREDENTIALS_KEY, or enter the password again."
        ) from error


def reencrypt(token: str) -> str:
    """Return `token` encrypted with the newest key; unchanged where it already is, or where no key fits."""
    try:
        Fernet(settings.CREDENTIALS_KEYS[0]).decrypt(token.encode())
    except InvalidToken:
        try:
            return _keys().rotate(token.encode()).decode()
        except InvalidToken:
            return token
    return token


def _keys() -> MultiFernet:
    return MultiFernet([Fernet(key) for key in settings.CREDENTIALS_KEYS])
