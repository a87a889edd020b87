"""Messages of RFC 5424, to the letter: priority, header, structured data, a text in UTF-8 behind its mark."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime

BOM = b"\xef\xbb\xbf"
# A receiver takes 2,048 bytes at least if it follows the RFC (6.1), one of RFC 5425 should take 8,192.
LONGEST = 8192
# What the site calls severity, as numbers of the protocol: informational, warning, critical.
SEVERITIES = {"OK": 6, "Warning": 4, "Critical": 2}
FACILITIES = {
    "kern": 0, "user": 1, "mail": 2, "daemon": 3, "auth": 4, "syslog": 5, "lpr": 6, "news": 7, "uucp": 8, "cron": 9,
    "authpriv": 10, "ftp": 11, "ntp": 12, "audit": 13, "alert": 14, "clock": 15, "local0": 16, "local1": 17,
    "local2": 18, "local3": 19, "local4": 20, "local5": 21, "local6": 22, "local7": 23,
}  # fmt: skip
NIL = "-"
# Embeddings, overrides and isolates of the bidirectional algorithm: with one of them a text reads as another.
TURNING = frozenset(map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A))))
# Not of a name in structured data, although printable.
NO_NAME = str.maketrans(dict.fromkeys('= ]"', "_"))


def rfc5424(
    *,
    at: datetime,
    severity: int | str,
    facility: int = FACILITIES["local0"],
    hostname: str,
    app: str,
    message_id: str,
    data: Mapping[str, Mapping[str, str]] | None = None,
    text: str,
    process: str = "",
    mark: bool = True,
    longest: int = LONGEST,
) -> bytes:
    """Return one message without framing, `longest` bytes at most.

    `at` is aware; `severity` is 0 to 7, or a word of SEVERITIES; `data` maps SD-IDs to parameters. What a header field
    may not hold becomes '_', and what is too long for it is cut; an empty one is '-'. Texts are as `one_line` has them,
    so that a message is a line. `mark` puts the BOM before the text; without it the text says nothing of its encoding.
    What is too long as a whole loses the end of its text first, then parameters from the last. Raises ValueError.
    """
    number = SEVERITIES[severity] if isinstance(severity, str) else severity
    if not 0 <= number <= 7 or not 0 <= facility <= 23:
        raise ValueError("severity is 0 to 7, facility 0 to 23")
    instant = at.astimezone(UTC)
    header = (
        f"<{facility * 8 + number}>1 {instant:%Y-%m-%dT%H:%M:%S}.{instant.microsecond:06d}Z {_field(hostname, 255)} "
        f"{_field(app, 48)} {_field(process, 128)} {_field(message_id, 32)} "
    ).encode("ascii")
    structured = _structured(data or {}, longest - len(header))
    head = header + structured
    if not text:
        return head
    room = longest - len(head) - 1 - (len(BOM) if mark else 0)
    said = one_line(text).encode()
    if len(said) > room:
        said = said[: max(room, 0)].decode(errors="ignore").encode()
    return head + (b" " + (BOM if mark else b"") + said if said else b"")


def one_line(text: str) -> str:
    """Return a text as a line that shows what it says: control characters and line ends become spaces.

    Halves of characters become U+FFFD, and so does what would turn the direction of what stands around it.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(letter) for letter in text)


def _shown(letter: str) -> str:
    kind = unicodedata.category(letter)
    if kind in {"Cc", "Zl", "Zp"}:
        return " "
    return "\ufffd" if kind == "Cs" or letter in TURNING else letter


def _structured(data: Mapping[str, Mapping[str, str]], room: int) -> bytes:
    """Return SD-ELEMENTs as far as they fit; what two names become one by is one element."""
    elements: dict[str, list[bytes]] = {}
    left = room
    for identity, parameters in data.items():
        name = _name(identity)
        if name not in elements:
            left -= len(name) + 2
            if left < 0:
                break
        kept = elements.setdefault(name, [])
        for key, value in parameters.items():
            one = f' {_name(key)}="{_escaped(value)}"'.encode()
            if len(one) <= left:
                kept.append(one)
                left -= len(one)
    if not elements:
        return NIL.encode()
    return b"".join(b"[%s%s]" % (name.encode(), b"".join(kept)) for name, kept in elements.items())


def _escaped(value: str) -> str:
    return one_line(value).replace("\\", "\\\\").replace('"', '\\"').replace("]", "\\]")


def _name(text: str) -> str:
    return _field(text, 32).translate(NO_NAME)


def _field(text: str, longest: int) -> str:
    """Return what a header field may hold: printable ASCII without spaces, '-' for nothing."""
    return "".join(letter if "!" <= letter <= "~" else "_" for letter in text[:longest]) or NIL
