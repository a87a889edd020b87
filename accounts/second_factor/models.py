"""Passkeys, authenticator apps and recovery codes of people."""

from __future__ import annotations

from django.db import models

from accounts.models import User
from core import credentials
from core.errors import Unavailable
from core.language import _


class Passkey(models.Model):
    """A WebAuthn credential that names its person and verifies them (PIN, fingerprint): it needs no password."""

    person = models.ForeignKey(User, on_delete=models.CASCADE, related_name="passkeys")
    name = models.CharField(max_length=100)
    credential_id = models.CharField(max_length=1400, unique=True, help_text="URL-safe base64")
    credential = models.BinaryField(help_text="Attested credential data of WebAuthn: model, id and public key")
    # The same for all passkeys of a person, so that an authenticator shows one account; it tells nothing of the person.
    user_handle = models.BinaryField(max_length=64)
    sign_count = models.BigIntegerField(help_text="Of the last use; 0 where the authenticator does not count")
    transports = models.JSONField(default=list, help_text="How a browser reaches it: usb, nfc, internal, ...")
    is_backed_up = models.BooleanField(help_text="Whether its provider keeps a copy, such as for another phone")
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["created_at", "pk"]


class TotpDevice(models.Model):
    """An authenticator app (RFC 6238), confirmed by a code; its secret is encrypted."""

    person = models.OneToOneField(User, on_delete=models.CASCADE, related_name="totp_device")
    secret_encrypted = models.TextField()
    # A code is used once: only those of later time steps (of 30 s since 1970) are accepted.
    last_step = models.BigIntegerField()
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name = "authenticator app"

    def secret(self) -> str:
        """Return the secret in base32; raises Unavailable where none of the site's keys fits."""
        try:
            return credentials.decrypt(self.secret_encrypted)
        except Unavailable as error:
            raise Unavailable(
                _(
                    "Codes of authenticator apps cannot be checked: the site's key does not fit. Use a passkey or a"
                    " recovery code, and ask an administrator to restore FALCONWEB_CREDENTIALS_KEY."
                )
            ) from error


class RecoveryCode(models.Model):
    """A code for one sign-in without the other factors, stored as its SHA-256 (it is random: a plain hash suffices)."""

    person = models.ForeignKey(User, on_delete=models.CASCADE, related_name="recovery_codes")
    digest = models.CharField(max_length=64)
    used_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["person", "digest"], name="recovery_code_of_person")]
