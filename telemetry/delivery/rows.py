"""Rows as bytes: CSV that no spreadsheet takes for formulas, and JSON Lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from accounts.sheets import lines


def csv_rows(rows: Iterable[Sequence[object]]) -> list[bytes]:
    """Return each row as a record of CSV (RFC 4180) in UTF-8; a heading is a row like others."""
    made = lines([], rows)
    next(made)  # the heading, of which there is none
    return [_bytes(one) for one in made]


def json_line(values: Mapping[str, object]) -> bytes:
    """Return an object as a line of JSON in UTF-8; raises ValueError for NaN and what JSON has no word for."""
    return _bytes(json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n")


def _bytes(text: str) -> bytes:
    # Half of a character, which some BMCs send, is none in UTF-8.
    return text.encode(errors="replace")
