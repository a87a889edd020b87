"""Passwords and secrets at rest: Fernet, with key rotation (the first key encrypts, all decrypt)."""

from __future__ import annotations

from typing import ClassVar

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.db import models

from core.errors import Unavailable
from core.language import _, gettext_noop


def encrypt(text: str) -> str:
    """Return `text` encrypted with the newest key."""
    return _keys().encrypt(text.encode()).decode()


def decrypt(token: str, *, of: str = gettext_noop("this chassis"), kind: str = gettext_noop("password")) -> str:
    """Return the plain text; raises Unavailable, which names it, when none of the site's keys fits."""
    try:
        return _keys().decrypt(token.encode()).decode()
    except InvalidToken as error:
        raise Unavailable(
            _(
                "The stored {kind} of {of} cannot be decrypted with the site's key. "
                "Restore FALCONWEB_CREDENTIALS_KEY, or enter the {kind} again.",
                kind=_(kind),
                of=_(of),
            )
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


class SecretHolder(models.Model):
    """A row that may have a secret, encrypted."""

    described_as: ClassVar[str]  # as sentences call the row
    secret_encrypted = models.TextField(blank=True, editable=False)

    class Meta:
        abstract = True

    @property
    def has_secret(self) -> bool:
        return bool(self.secret_encrypted)

    def set_secret(self, secret: str) -> None:
        self.secret_encrypted = encrypt(secret) if secret else ""

    def secret(self) -> str:
        """Return the secret, decrypted; raises Unavailable when the key does not fit."""
        return (
            decrypt(self.secret_encrypted, of=self.described_as, kind=gettext_noop("secret"))
            if self.secret_encrypted
            else ""
        )
