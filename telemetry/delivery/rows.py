"""Rows as bytes: CSV that no spreadsheet takes for formulas, and JSON Lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from accounts.sheets import lines
from telemetry.delivery.syslog import TURNING

# Readers that look for line ends by Unicode's rules find these, and terminals follow what turns the direction.
ESCAPED = {ord(letter): f"\\u{ord(letter):04x}" for letter in ("\x7f", "\x85", "\u2028", "\u2029", *sorted(TURNING))}


def csv_rows(rows: Iterable[Sequence[object]]) -> list[bytes]:
    """Return each row as a record of CSV (RFC 4180) in UTF-8; a heading is a row like others."""
    made = lines([], rows)
    next(made)  # the heading, of which there is none
    return [_bytes(one) for one in made]


def json_line(values: Mapping[str, object]) -> bytes:
    """Return an object as a line of JSON in UTF-8; raises ValueError for NaN and what JSON has no word for.

    What some take for the end of a line, or what turns the direction of a text, is escaped: it reads back as it was.
    """
    made = json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return _bytes(made.translate(ESCAPED) + "\n")


def _bytes(text: str) -> bytes:
    # Half of a character, which some BMCs send, is none in UTF-8.
    return text.encode(errors="replace")
