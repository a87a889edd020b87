"""All settings of an operator, typed; the documentation's table is generated from them.

All come from environment variables. Missing secrets are generated once and stored in the data folder with mode 0600, so
that a first start needs no configuration and sessions survive a restart.
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

BASE_DIR = Path(__file__).resolve().parent.parent
# s; finer readings must be stored for longer than the delay of the rollup that is made from them.
MIN_RETENTION = (2 * 3600, 6 * 3600, 24 * 3600, 24 * 3600)


class ConfigurationError(Exception):
    """An invalid setting; the sentence names the variable."""


def _setting(
    name: str,
    description: str,
    default: Any,
    *,
    secret: bool = False,
    least: float = 0,
    most: float = math.inf,
    among: tuple[str, ...] = (),
) -> Any:
    metadata = {"name": name, "description": description, "least": least, "most": most, "among": among}
    # Secrets are not in the repr, which debug pages show.
    return field(default=default, metadata=metadata, repr=not secret)


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of one site. Build it with `Config.from_environment()`."""

    data: Path = _setting("FALCONWEB_DATA", "Folder of the database, generated secrets and logs", BASE_DIR / "var")
    port: int = _setting("PORT", "Port the site listens on", 8000, least=1, most=65535)
    host: str = _setting("FALCONWEB_HOST", "Address the site listens on", "127.0.0.1")
    allowed_hosts: tuple[str, ...] = _setting(
        "FALCONWEB_ALLOWED_HOSTS",
        "Host names the site answers to, comma-separated",
        ("localhost", "127.0.0.1", "[::1]"),
    )
    https: bool = _setting(
        "FALCONWEB_HTTPS",
        "1 where people reach the site over HTTPS: secure cookies, HSTS, redirect of plain HTTP",
        False,
    )
    debug: bool = _setting("FALCONWEB_DEBUG", "1 for Django's debug pages; never where strangers can reach it", False)
    secret_key: str = _setting("FALCONWEB_SECRET_KEY", "Django's signing key; generated when empty", "", secret=True)
    credentials_key: str = _setting(
        "FALCONWEB_CREDENTIALS_KEY",
        "Fernet keys for BMC passwords and other secrets at rest, newest first, comma-separated; generated when empty",
        "",
        secret=True,
    )
    audit_key: str = _setting(
        "FALCONWEB_AUDIT_KEY", "Key that seals the end of the audit log; generated when empty", "", secret=True
    )
    admin_password: str = _setting(
        "FALCONWEB_ADMIN_PASSWORD",
        "Password of the first administrator; generated and printed once when empty",
        "",
        secret=True,
    )
    database_url: str = _setting(
        "DATABASE_URL", "Database address; SQLite in the data folder when empty", "", secret=True
    )
    redis_url: str = _setting(
        "REDIS_URL",
        "Redis or Valkey address; a server on the PATH or the embedded Valkey is started when empty",
        "",
        secret=True,
    )
    log: str = _setting(
        "FALCONWEB_LOG", "Format of the site's logs: plain, or json for log collectors", "plain",
        among=("plain", "json"),
    )  # fmt: skip
    simulated: int = _setting("FALCONWEB_SIMULATED", "How many simulated chassis `make up` starts (0 to 2)", 2, most=2)
    web_processes: int = _setting("FALCONWEB_WEB_PROCESSES", "Web processes of `make up`", 1, least=1, most=256)
    workers: int = _setting(
        "FALCONWEB_WORKERS",
        "Worker processes of `make up`: they share the chassis, some 400 each",
        1,
        least=1,
        most=256,
    )
    web_hang_seconds: float = _setting(
        "FALCONWEB_WEB_HANG_SECONDS",
        "Seconds without a turn of its event loop after which `make up` restarts a web process",
        30.0,
        least=2,
        most=3600,
    )
    hang_seconds: float = _setting(
        "FALCONWEB_HANG_SECONDS",
        "The same for workers, scheduler, agents of simulated hosts and the site's own Redis or Valkey",
        60.0,
        least=2,
        most=3600,
    )
    inventory_period: float = _setting(
        "FALCONWEB_INVENTORY_PERIOD",
        "Seconds between reads of the inventory of a chassis; up to four times as many while nothing changes and its "
        "events arrive",
        15.0,
        least=1,
        most=3600,
    )
    inventory_memory: float = _setting(
        "FALCONWEB_INVENTORY_MEMORY",
        "MB of memory for inventories of more than 8 MB that a worker reads; what does not fit is left out",
        128.0,
        least=1.0,
        most=65_536,
    )
    # A frame is numbered by its second.
    reading_period: float = _setting(
        "FALCONWEB_READING_PERIOD", "Seconds between readings of a chassis", 1.0, least=1, most=3600
    )
    break_glass: str = _setting(
        "FALCONWEB_BREAK_GLASS",
        "User name of the one administrator who may still sign in with a local password when all others sign in "
        "through an identity provider; each such sign-in is reported. Everybody with a local password may when empty",
        "",
    )
    trusted_proxies: int = _setting(
        "FALCONWEB_TRUSTED_PROXIES", "Reverse proxies in front of the site whose X-Forwarded-For is trusted", 0
    )
    api_requests: int = _setting(
        "FALCONWEB_API_REQUESTS",
        "Requests to the API a minute that each token, and each person without one, may send; 0 for no limit",
        12_000,
        most=10_000_000,
    )
    api_stranger_requests: int = _setting(
        "FALCONWEB_API_STRANGER_REQUESTS",
        "Requests to the API a minute without a valid sign-in or token, of each address; 0 for no limit",
        3_000,
        most=10_000_000,
    )

    second_factor_roles: tuple[str, ...] = _setting(
        "FALCONWEB_SECOND_FACTOR_ROLES",
        "Roles that must have a second factor, comma-separated, such as administrator,user; none when empty",
        (),
        among=("administrator", "user", "viewer"),
    )
    exports: str = _setting(
        "FALCONWEB_EXPORTS",
        "Folder of exported files, on the worker and the web machine alike; `exports` in the data folder when empty",
        "",
    )
    email_url: str = _setting(
        "FALCONWEB_EMAIL_URL",
        "Mail server: smtp://name:password@host:587 (STARTTLS; ?tls=no without), smtps://host:465, or console: to print"
        " e-mail into the log; no e-mail is sent when empty",
        "",
        secret=True,
    )
    email_from: str = _setting("FALCONWEB_EMAIL_FROM", "Sender of the site's e-mail", "FalconWeb <falconweb@localhost>")
    lease_warnings: tuple[str, ...] = _setting(
        "FALCONWEB_LEASE_WARNINGS",
        "How long before the end of a lease people are warned, comma-separated, in d, h or m",
        ("7d", "1d", "1h"),
    )
    approval_hours: float = _setting(
        "FALCONWEB_APPROVAL_HOURS",
        "Hours that an act waits for the approval of a second administrator",
        24.0,
        least=0.1,
        most=720,
    )
    session_hours: float = _setting(
        "FALCONWEB_SESSION_HOURS", "Hours after which a person has to sign in again", 12.0, least=0.1, most=720
    )
    session_idle_minutes: float = _setting(
        "FALCONWEB_SESSION_IDLE_MINUTES",
        "Minutes after which a session ends in which nobody opened a page or changed something; 0 never",
        60.0,
        most=43_200,
    )
    fresh_sign_in_minutes: float = _setting(
        "FALCONWEB_FRESH_SIGN_IN_MINUTES",
        "Minutes after a sign-in in which tokens, people, keys, approvals and forced changes need no further password",
        10.0,
        least=1,
        most=720,
    )
    idle_hours: float = _setting(
        "FALCONWEB_IDLE_HOURS", "Hours without use after which a leased device counts as idle; 0 never", 24.0, most=8760
    )
    keep_events: str = _setting(
        "FALCONWEB_KEEP_EVENTS", "Retention of events, in d, h or m; two years by default", "731d"
    )

    keep_raw: str = _setting("FALCONWEB_KEEP_RAW", "Retention of all readings, in d, h or m", "1d")
    keep_10s: str = _setting(
        "FALCONWEB_KEEP_10S", "Retention of minimum, mean and maximum of each 10 s, in d, h or m", "7d"
    )
    keep_1min: str = _setting("FALCONWEB_KEEP_1MIN", "The same for each minute", "92d")
    keep_15min: str = _setting("FALCONWEB_KEEP_15MIN", "The same for each quarter of an hour", "731d")
    store_memory: float = _setting(
        "FALCONWEB_STORE_MEMORY",
        "MB of packed readings that a worker keeps in memory while their database is unavailable; then the oldest "
        "are dropped",
        64.0,
        least=0.01,
        most=65_536,
    )
    store_seconds: int = _setting(
        "FALCONWEB_STORE_SECONDS",
        "Seconds of readings that a worker stores in one batch, and loses when it is killed; fewer take more bytes",
        60,
        least=1,
        most=60,
    )

    @property
    def keep_seconds(self) -> tuple[int, int, int, int]:
        """The retention of readings, and of those of 10 s, 1 min and 15 min, in seconds, as telemetry.store.rules.Tier.

        Each is made from the previous one, which must be stored for long enough: raises ConfigurationError otherwise.
        """
        names = ("FALCONWEB_KEEP_RAW", "FALCONWEB_KEEP_10S", "FALCONWEB_KEEP_1MIN", "FALCONWEB_KEEP_15MIN")
        texts = (self.keep_raw, self.keep_10s, self.keep_1min, self.keep_15min)
        periods = tuple(_seconds(name, text) for name, text in zip(names, texts, strict=True))
        for name, text, period, needed in zip(names, texts, periods, MIN_RETENTION, strict=True):
            if period < needed:
                raise ConfigurationError(f"{name} is '{text}'; it may be {needed // 3600}h or more.")
        for name, text, period, before in zip(names[1:], texts[1:], periods[1:], periods, strict=False):
            if period < before:
                raise ConfigurationError(f"{name} is '{text}', which is less than what is finer is kept.")
        return periods[0], periods[1], periods[2], periods[3]

    @property
    def lease_warning_seconds(self) -> tuple[int, ...]:
        """The times before the end of a lease at which people are warned, in seconds; raises ConfigurationError."""
        return tuple(sorted({_seconds("FALCONWEB_LEASE_WARNINGS", one) for one in self.lease_warnings}))

    @property
    def keep_events_seconds(self) -> int:
        """The retention of events in seconds; raises ConfigurationError."""
        return _seconds("FALCONWEB_KEEP_EVENTS", self.keep_events)

    @property
    def address(self) -> str:
        """The base URL of the site without a trailing slash; '' where the settings do not define it."""
        host = next((one for one in self.allowed_hosts if one != "*" and not one.startswith(".")), "")
        if not host:
            return ""
        local = host in {"localhost", "127.0.0.1", "[::1]"}
        return f"{'https' if self.https else 'http'}://{host}{f':{self.port}' if local and not self.https else ''}"

    @classmethod
    def from_environment(cls, environment: dict[str, str] | None = None) -> Config:
        """Read the settings; raises ConfigurationError with the name of an invalid variable."""
        source = dict(os.environ) if environment is None else environment
        values: dict[str, Any] = {}
        for setting in fields(cls):
            text = source.get(setting.metadata["name"], "")
            if text != "":
                values[setting.name] = _convert(setting.metadata["name"], text, setting.default)
                _check_range(setting.metadata, values[setting.name])
        return cls(**values)

    def secret(self, name: str, given: str, *, size: int = 32) -> str:
        """Return `given`, or the secret of that name stored in the data folder, made of `size` random bytes."""
        return given or stored_secret(self.data, name, size=size)


def stored_secret(folder: Path, name: str, *, size: int = 32) -> str:
    """Return the secret in `folder/secrets/name`, creating it if missing (random, URL-safe base64, mode 0600).

    Raises ConfigurationError for one that cannot be read, or is shorter than those that are created.
    """
    path = folder / "secrets" / name
    if not path.exists():
        import base64

        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        value = base64.urlsafe_b64encode(secrets.token_bytes(size)).decode()
        new = path.with_name(f"{name}.{secrets.token_hex(8)}")
        new.touch(0o600)
        new.write_text(value)
        with suppress(FileExistsError):  # a concurrent process created it
            path.hardlink_to(new)
        new.unlink()
    try:
        value = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}. {RESTORE_SENTENCE}") from error
    if len(value) < 4 * math.ceil(size / 3) or not value.isprintable():
        raise ConfigurationError(f"{path} is damaged. {RESTORE_SENTENCE}")
    return value


RESTORE_SENTENCE = (
    "Restore it from a backup; 'When a file is damaged' in docs/operate.md says what is lost without one."
)


def _check_range(metadata: Mapping[str, Any], value: Any) -> None:
    values = value if isinstance(value, tuple) else (value,)
    if metadata["among"] and (wrong := [one for one in values if one not in metadata["among"]]):
        raise ConfigurationError(f"{metadata['name']} is '{wrong[0]}'; it may be {' or '.join(metadata['among'])}.")
    least, most = metadata["least"], metadata["most"]
    if isinstance(value, int | float) and not isinstance(value, bool) and not least <= value <= most:
        limit = f"from {least:g}" + ("" if most == math.inf else f" to {most:g}")
        raise ConfigurationError(f"{metadata['name']} is {value:g}; it may be {limit}.")


def _seconds(name: str, text: str) -> int:
    """Return '7d', '1h' or '30m' in seconds."""
    number, unit = text[:-1], {"d": 86400, "h": 3600, "m": 60}.get(text[-1:])
    if unit is None or not (number.isascii() and number.isdecimal() and int(number[:6]) > 0 and len(number) < 6):
        raise ConfigurationError(f"{name} has '{text}', which is no time such as 7d, 1h or 30m.")
    return int(number) * unit


def _convert(name: str, text: str, default: Any) -> Any:
    try:
        if isinstance(default, bool):
            return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}[text.lower()]
        if isinstance(default, int | float):
            return type(default)(text)
        if isinstance(default, tuple):
            return tuple(part.strip() for part in text.split(",") if part.strip())
        if isinstance(default, Path):
            return Path(text).resolve()
    except (ValueError, KeyError) as error:
        raise ConfigurationError(f"{name} is '{text}', which is no {type(default).__name__}.") from error
    return text


SECRET_VARIABLES = frozenset(one.metadata["name"] for one in fields(Config) if not one.repr)
SMTP_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
CONSOLE_BACKEND = "django.core.mail.backends.console.EmailBackend"
MAIL_URL_INVALID = "FALCONWEB_EMAIL_URL cannot be used: {} It is such as smtp://name:password@mail.example.org:587."


@dataclass(frozen=True, kw_only=True)
class MailServer:
    """The transport of e-mail: SMTP with implicit TLS (`tls`) or STARTTLS (`starttls`), or printed."""

    backend: str
    host: str = ""
    port: int = 0
    name: str = ""
    password: str = field(default="", repr=False)
    tls: bool = False
    starttls: bool = False

    @classmethod
    def from_url(cls, url: str) -> Self | None:
        """Parse the setting, None for an empty one; raises ConfigurationError, without the password."""
        if not url:
            return None
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise ConfigurationError(MAIL_URL_INVALID.format("it is no address.")) from error
        if parts.scheme == "console":
            return cls(backend=CONSOLE_BACKEND)
        if parts.scheme not in {"smtp", "smtps"}:
            raise ConfigurationError(
                MAIL_URL_INVALID.format("it begins with neither smtp:// nor smtps:// nor console:.")
            )
        if not parts.hostname:
            raise ConfigurationError(MAIL_URL_INVALID.format("it names no host."))
        options = parse_qs(parts.query, keep_blank_values=True)
        if set(options) - {"tls"} or options.get("tls", ["no"]) != ["no"]:
            raise ConfigurationError(MAIL_URL_INVALID.format("after '?' only tls=no is known."))
        tls = parts.scheme == "smtps"
        return cls(
            backend=SMTP_BACKEND,
            host=parts.hostname,
            port=port or (465 if tls else 587),
            name=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            tls=tls,
            starttls=not tls and "tls" not in options,
        )
