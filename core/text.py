"""Texts: ids and instants in them, natural sorting, and enumerations in sentences."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time

from django.utils.dateparse import parse_date, parse_datetime

MAX_ID_DIGITS = 18  # digits: a database refuses larger ids


def parse_id(text: str) -> int:
    """Return the id in a text; 0, which no row has, for anything else."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MAX_ID_DIGITS else 0


def parse_instant(text: str) -> datetime | None:
    """Return the instant of a typed day, or day and time, in UTC unless it has an offset; None for anything else."""
    try:
        found = parse_datetime(text)
        if found is None and (day := parse_date(text)) is not None:
            found = datetime.combine(day, time())
        # Instants on the first and the last day of the calendar may not exist in UTC.
        return found and (found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        return None


MAX_NATURAL_DIGITS = 30  # digits; Python refuses to parse thousands


def natural_key(uri: str) -> tuple[tuple[int, str], ...]:
    """Return a key that sorts numbers inside text as numbers."""
    return tuple(
        (int(part), "") if part.isdecimal() and len(part) <= MAX_NATURAL_DIGITS else (-1, part)
        for part in re.split(r"(\d+)", uri)
        if part != ""
    )


def join_words(names: list[str]) -> str:
    """Return 'a', 'a and b' or 'a, b and c'."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
