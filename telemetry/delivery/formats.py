"""RFC 5424 messages, CEF lines, CSV and JSON Lines as bytes."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from json.encoder import encode_basestring
from typing import cast

from core.downloads import csv_block, csv_table

BOM = b"\xef\xbb\xbf"
# A receiver must accept 480 bytes and should accept 2,048 (RFC 5424, 6.1); one of RFC 5425 should accept 8,192.
MAX_MESSAGE_BYTES = 8192
# The site's severities as syslog severities: informational, warning, critical.
SYSLOG_SEVERITIES = {"OK": 6, "Warning": 4, "Critical": 2}
FACILITIES = {
    "kern": 0, "user": 1, "mail": 2, "daemon": 3, "auth": 4, "syslog": 5, "lpr": 6, "news": 7, "uucp": 8, "cron": 9,
    "authpriv": 10, "ftp": 11, "ntp": 12, "audit": 13, "alert": 14, "clock": 15, "local0": 16, "local1": 17,
    "local2": 18, "local3": 19, "local4": 20, "local5": 21, "local6": 22, "local7": 23,
}  # fmt: skip
NIL = "-"
# Embeddings, overrides and isolates of the bidirectional algorithm, which can disguise a text.
BIDI_CONTROLS = frozenset(map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A))))
# Printable, but not allowed in a name of structured data.
SD_NAME_ESCAPES = str.maketrans(dict.fromkeys('= ]"', "_"))


def rfc5424_message(
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
    longest: int = MAX_MESSAGE_BYTES,
) -> bytes:
    """Return one message without framing, `longest` bytes at most.

    `at` is timezone-aware; `severity` is 0 to 7, or a name of SYSLOG_SEVERITIES; `data` maps SD-IDs to parameters.
    Invalid characters of a header field become '_', long fields are truncated, and an empty one is '-'. Texts are
    converted by `one_line`, so that a message is a line. `mark` puts the BOM before the text; without it the text has
    no declared encoding. A message that is too long loses the end of its text first, then the last parameters. Raises
    ValueError.
    """
    number = SYSLOG_SEVERITIES[severity] if isinstance(severity, str) else severity
    if not 0 <= number <= 7 or not 0 <= facility <= 23:
        raise ValueError("severity is 0 to 7, facility 0 to 23")
    instant = at.astimezone(UTC)
    header = (
        f"<{facility * 8 + number}>1 {instant:%Y-%m-%dT%H:%M:%S}.{instant.microsecond:06d}Z "
        f"{_header_field(hostname, 255)} {_header_field(app, 48)} "
        f"{_header_field(process, 128)} {_header_field(message_id, 32)} "
    ).encode("ascii")
    structured = _structured_data(data or {}, longest - len(header))
    head = header + structured
    if not text:
        return head
    room = longest - len(head) - 1 - (len(BOM) if mark else 0)
    body = one_line(text).encode()
    if len(body) > room:
        body = body[: max(room, 0)].decode(errors="ignore").encode()
    return head + (b" " + (BOM if mark else b"") + body if body else b"")


def one_line(text: str) -> str:
    """Return a text as one safe line: control characters and line ends become spaces.

    Surrogates and bidirectional controls become U+FFFD.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_safe_character(letter) for letter in text)


def _safe_character(letter: str) -> str:
    kind = unicodedata.category(letter)
    if kind in {"Cc", "Zl", "Zp"}:
        return " "
    return "\ufffd" if kind == "Cs" or letter in BIDI_CONTROLS else letter


def _structured_data(data: Mapping[str, Mapping[str, str]], room: int) -> bytes:
    """Return SD-ELEMENTs that fit into `room` bytes; names that become equal by escaping are merged."""
    elements: dict[str, list[bytes]] = {}
    left = room
    for identity, parameters in data.items():
        name = _sd_name(identity)
        if name not in elements:
            left -= len(name) + 2
            if left < 0:
                break
        kept = elements.setdefault(name, [])
        for key, value in parameters.items():
            one = f' {_sd_name(key)}="{_escaped(value)}"'.encode()
            if len(one) <= left:
                kept.append(one)
                left -= len(one)
    if not elements:
        return NIL.encode()
    return b"".join(b"[%s%s]" % (name.encode(), b"".join(kept)) for name, kept in elements.items())


def _escaped(value: str) -> str:
    return one_line(value).replace("\\", "\\\\").replace('"', '\\"').replace("]", "\\]")


def _sd_name(text: str) -> str:
    return _header_field(text, 32).translate(SD_NAME_ESCAPES)


def _header_field(text: str, longest: int) -> str:
    """Return the value of a header field: printable ASCII without spaces, '-' for an empty one."""
    return "".join(letter if "!" <= letter <= "~" else "_" for letter in text[:longest]) or NIL


# The site's severities on CEF's scale of 0 to 10: low, high, very high.
CEF_SEVERITIES = {"OK": 2, "Warning": 6, "Critical": 9}


def cef_line(
    *,
    vendor: str,
    product: str,
    version: str,
    signature: str,
    name: str,
    severity: int | str,
    extension: Mapping[str, object],
    cef_version: int = 0,
) -> str:
    """Return one line; `severity` is 0 to 10 or a name of CEF_SEVERITIES; empty values of the extension are left out.

    Pipes and backslashes are escaped in the header, equals signs and backslashes in values, line ends there become
    backslash n and r; everything else is converted by `one_line`. Raises ValueError for an invalid key.
    """
    number = CEF_SEVERITIES[severity] if isinstance(severity, str) else severity
    if not 0 <= number <= 10 or cef_version not in {0, 1}:
        raise ValueError("severity is 0 to 10, the version 0 or 1")
    header = "|".join(_cef_header(part) for part in (vendor, product, version, signature, name))
    texts = {_cef_key(key): "" if value is None else _cef_value(str(value)) for key, value in extension.items()}
    pairs = " ".join(f"{key}={text}" for key, text in texts.items() if text)
    return f"CEF:{cef_version}|{header}|{number}|{pairs}"


def _cef_header(text: str) -> str:
    return one_line(text).replace("\\", "\\\\").replace("|", "\\|")


def _cef_value(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("=", "\\=")
    return one_line(escaped.replace("\r", "\\r").replace("\n", "\\n"))


def _cef_key(text: str) -> str:
    if not (text.isascii() and text.isalnum()):
        raise ValueError(f"'{text}' is no key of CEF")
    return text


# Some readers treat these as line ends, and terminals apply bidirectional controls.
JSON_ESCAPED = ("\x7f", "\x85", "\u2028", "\u2029", *sorted(BIDI_CONTROLS))
JSON_ESCAPES = {ord(letter): f"\\u{ord(letter):04x}" for letter in JSON_ESCAPED}
JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def csv_rows(rows: Iterable[Sequence[object]]) -> list[bytes]:
    """Return each row as a record of CSV (RFC 4180) in UTF-8; a header is a row like others."""
    lines = csv_table([], rows)
    next(lines)  # the empty header
    return [_utf8(line) for line in lines]


def csv_rows_block(columns: Iterable[Sequence[object]]) -> bytes:
    """Return all rows, given as columns, as the records that `csv_rows` has for them."""
    return _utf8(csv_block(columns))


def json_lines(columns: Mapping[str, Sequence[object]]) -> list[bytes]:
    """Return rows, given as columns by their names, as a line of JSON in UTF-8 each.

    Raises ValueError for NaN and infinities. Characters that some readers treat as line ends, and bidirectional
    controls, are escaped.
    """
    return [_utf8(_json_escaped(line)) for line in _json_lines(columns)]


def json_lines_block(columns: Mapping[str, Sequence[object]]) -> bytes:
    """Return all lines that `json_lines` has for the rows."""
    return _utf8(_json_escaped("".join(_json_lines(columns))))


def _json_lines(columns: Mapping[str, Sequence[object]]) -> Iterable[str]:
    found = [_json_values(cells) for cells in columns.values()]
    names = (encode_basestring(name).replace("%", "%%") for name in columns)
    members = ",".join(f"{name}:{shape}" for name, (shape, _) in zip(names, found, strict=True))
    line = f"{{{members}}}\n"
    return map(line.__mod__, zip(*(values for _, values in found), strict=True))


def _json_values(cells: Sequence[object]) -> tuple[str, Sequence[object]]:
    """Return how the values of a column stand in a line, and the values: few columns need a look at each."""
    kinds = set(map(type, cells))
    if kinds <= {int}:
        return "%s", cells
    if kinds == {str}:
        together = "".join(cast("Sequence[str]", cells))
        if together.isprintable() and '"' not in together and "\\" not in together:
            return '"%s"', cells
    return "%s", [encode_basestring(cell) if isinstance(cell, str) else JSON.encode(cell) for cell in cells]


def _json_escaped(text: str) -> str:
    # Looking for each of them takes a tenth of the time of a translation.
    return text.translate(JSON_ESCAPES) if any(letter in text for letter in JSON_ESCAPED) else text


def _utf8(text: str) -> bytes:
    # UTF-8 cannot encode surrogates, which some BMCs send.
    return text.encode(errors="replace")
