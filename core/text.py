"""Texts: ids in them, natural sorting, and places in errors."""

from __future__ import annotations

import re
from functools import lru_cache

MAX_ID_DIGITS = 18  # digits: a database refuses larger ids


def parse_id(text: str) -> int:
    """Return the id in a text; 0, which no row has, for anything else."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MAX_ID_DIGITS else 0


NATURAL_KEYS = 4096  # chassis of one model have the same URIs
MAX_NATURAL_DIGITS = 30  # digits; Python refuses to parse thousands


@lru_cache(NATURAL_KEYS)
def natural_key(uri: str) -> tuple[tuple[int, str], ...]:
    """Return a key that sorts numbers inside text as numbers."""
    return tuple(
        (int(part), "") if part.isdecimal() and len(part) <= MAX_NATURAL_DIGITS else (-1, part)
        for part in re.split(r"(\d+)", uri)
        if part != ""
    )


def split_location(message: str) -> tuple[str, str]:
    """Return msgspec's sentence and its field: 'cores' of 'Expected `int`, got `str` - at `$.cores`', '' for none."""
    sentence, at, field = message.partition(" - at `")
    if not at or not field.endswith("`"):
        return message, ""
    return sentence, field.removesuffix("`").removeprefix("key in ").removeprefix("$").removeprefix(".")
