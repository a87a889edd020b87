"""Ranges of time as addresses have them: pure. Everything is UTC; other offsets are understood and left behind."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from falconweb.errors import Invalid

HOUR, DAY = 3600.0, 86400.0
# By their name in addresses: words, s. The last is what a page shows unasked.
RANGES: Final = {
    "15m": ("15 min", 900.0), "1h": ("1 h", HOUR), "6h": ("6 h", 6 * HOUR), "24h": ("24 h", DAY),
    "7d": ("7 d", 7 * DAY), "30d": ("30 d", 30 * DAY), "1y": ("a year", 365 * DAY),
}  # fmt: skip
USUAL: Final = "1h"
EARLIEST, LATEST = 946_684_800.0, 7_258_118_400.0  # 2000 to 2200, Unix s
SHORTEST: Final = 1.0
LONGEST: Final = 10 * 366 * DAY
UNITS = {"s": 1.0, "m": 60.0, "h": HOUR, "d": DAY, "w": 7 * DAY, "y": 365 * DAY}
BACK = re.compile(r"(?:now)?-(\d{1,9})([smhdwy])")
HOW = "Give a time such as 2026-03-01T12:00:00Z, -6h or now."


@dataclass(frozen=True)
class Span:
    """From a time until before another, Unix s; `live` tells that it ends now and goes on."""

    since: float
    until: float
    live: bool = False

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.until - self.since


def moment(text: str, *, now: float, field: str) -> float:
    """Return the Unix time of ISO 8601 (without an offset: UTC), Unix seconds, 'now' or '-6h'; raises Invalid."""
    text = text.strip()
    if text == "now":
        return now
    back = BACK.fullmatch(text)
    found = now - float(back[1]) * UNITS[back[2]] if back else _absolute(text, field)
    if not EARLIEST <= found <= LATEST:
        raise Invalid(f"'{field}' is not between the years 2000 and 2200.", errors={field: HOW})
    return found


def _absolute(text: str, field: str) -> float:
    try:
        if re.fullmatch(r"\d{9,11}(\.\d+)?", text):
            return float(text)
        # In an address the plus of an offset is read as a space.
        read = datetime.fromisoformat(re.sub(r" (\d\d:\d\d)$", r"+\1", text) if "T" in text else text)
        found = (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise Invalid(f"'{field}' is no time that can be understood.", errors={field: HOW}) from error
    return found if math.isfinite(found) else LATEST + 1


def span_between(since: str, until: str, *, now: float) -> Span:
    """Return the range of two texts; without an end it ends now, without a begin it is an hour long. Raises Invalid."""
    end = moment(until, now=now, field="until") if until.strip() else now
    begin = moment(since, now=now, field="since") if since.strip() else end - HOUR
    if end - begin < SHORTEST:
        raise Invalid("The range has no length.", errors={"until": "Give a time at least a second after 'since'."})
    if end - begin > LONGEST:
        raise Invalid("The range is longer than ten years.", errors={"since": "Give a later begin."})
    return Span(begin, end, live=until.strip() in {"", "now"})


def span_named(name: str, *, now: float) -> Span:
    """Return the range of one of RANGES that ends now; raises Invalid."""
    if name not in RANGES:
        raise Invalid("There is no such range.", errors={"range": f"One of {', '.join(RANGES)}."})
    return Span(now - RANGES[name][1], now, live=True)


def iso(at: float) -> str:
    """Return a Unix time as ISO 8601 in UTC, to the second."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def step_words(seconds: float) -> str:
    """Return how long a bucket is, in words: '10 s', '15 min', '6 h'."""
    for unit, size in (("d", DAY), ("h", HOUR), ("min", 60.0)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"
