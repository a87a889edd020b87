"""The mail server of FALCONWEB_EMAIL_URL, as Django's settings want it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self
from urllib.parse import parse_qs, unquote, urlsplit

from falconweb.config import ConfigurationError

SMTP = "django.core.mail.backends.smtp.EmailBackend"
CONSOLE = "django.core.mail.backends.console.EmailBackend"
WRONG = "FALCONWEB_EMAIL_URL cannot be used: {} It is such as smtp://name:password@mail.example.org:587."


@dataclass(frozen=True, kw_only=True)
class MailServer:
    """How letters leave the site: by SMTP, in TLS from the start (`tls`) or after a word (`starttls`), or printed."""

    backend: str
    host: str = ""
    port: int = 0
    name: str = ""
    password: str = field(default="", repr=False)
    tls: bool = False
    starttls: bool = False

    @classmethod
    def from_url(cls, url: str) -> Self | None:
        """Read the setting, None for an empty one; raises ConfigurationError, which never says the password."""
        if not url:
            return None
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise ConfigurationError(WRONG.format("it is no address.")) from error
        if parts.scheme == "console":
            return cls(backend=CONSOLE)
        if parts.scheme not in {"smtp", "smtps"}:
            raise ConfigurationError(WRONG.format("it begins with neither smtp:// nor smtps:// nor console:."))
        if not parts.hostname:
            raise ConfigurationError(WRONG.format("it names no host."))
        asked = parse_qs(parts.query, keep_blank_values=True)
        if set(asked) - {"tls"} or asked.get("tls", ["no"]) != ["no"]:
            raise ConfigurationError(WRONG.format("after '?' only tls=no is known."))
        tls = parts.scheme == "smtps"
        return cls(
            backend=SMTP,
            host=parts.hostname,
            port=port or (465 if tls else 587),
            name=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            tls=tls,
            starttls=not tls and "tls" not in asked,
        )
