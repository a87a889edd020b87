"""Time spans of tenures and bookings: overlap, concurrency, and seconds per month.

Pure: no database. All instants are aware; a span includes its begin and not its end, None never ends. Months are UTC.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from core.language import Text, _, english
from core.zones import MINUTE, local_words

Month = tuple[int, int]  # year, month


@dataclass(frozen=True)
class RequestedParts:
    """A number of parts of a kind, of one chassis (its id) or of any."""

    kind: str
    count: int
    chassis: int | None = None


@dataclass(frozen=True)
class TimeSpan:
    """From `begin` to `end`, None: without one."""

    begin: datetime
    end: datetime | None

    def overlaps(self, other: TimeSpan) -> bool:
        """Return whether there is an instant in both."""
        return not self.within(other).is_empty

    def within(self, other: TimeSpan) -> TimeSpan:
        """Return the intersection with another span; that of two that do not overlap is empty."""
        ends = [end for end in (self.end, other.end) if end is not None]
        return TimeSpan(max(self.begin, other.begin), min(ends) if ends else None)

    @property
    def is_empty(self) -> bool:
        """Whether there is no instant in it."""
        return self.end is not None and self.end <= self.begin


def max_concurrent(spans: Iterable[TimeSpan]) -> int:
    """Return the largest number of spans that share an instant."""
    steps: list[tuple[datetime, int]] = []
    for span in spans:
        if not span.is_empty:
            steps.append((span.begin, 1))
            if span.end is not None:
                steps.append((span.end, -1))
    most = now = 0
    # At one instant those that end come first: -1 sorts before 1.
    for _at, step in sorted(steps):
        now += step
        most = max(most, now)
    return most


def month_of(at: datetime) -> Month:
    here = at.astimezone(UTC)
    return here.year, here.month


def month_begin(month: Month) -> datetime:
    return datetime(*month, 1, tzinfo=UTC)


def month_after(month: Month, by: int = 1) -> Month:
    """Return the month `by` months later, or earlier if negative."""
    place = month[0] * 12 + month[1] - 1 + by
    return place // 12, place % 12 + 1


def months_between(first: Month, last: Month) -> Iterator[Month]:
    """Yield the months from the first to the last, both included."""
    while first <= last:
        yield first
        first = month_after(first)


def seconds_by_month(spans: Iterable[TimeSpan], *, within: TimeSpan) -> dict[Month, float]:
    """Return the seconds of the spans in each month of `within`, which must have an end.

    Months without any are left out. Raises ValueError for a `within` without an end.
    """
    if within.end is None:
        raise ValueError("the span to sum up must have an end")
    found: dict[Month, float] = defaultdict(float)
    for span in spans:
        part = span.within(within)
        if part.is_empty or part.end is None:
            continue
        for month in months_between(month_of(part.begin), month_of(part.end)):
            here = part.within(TimeSpan(month_begin(month), month_begin(month_after(month))))
            if not here.is_empty and here.end is not None:
                found[month] += (here.end - here.begin).total_seconds()
    return dict(found)


def format_instant(at: datetime) -> Text:
    """Return an instant in the format of sentences, in the reader's zone."""
    return local_words(at, MINUTE)


def end_label(at: datetime | None) -> Text:
    """Return an end in the format of sentences."""
    return _("until {end}", end=format_instant(at)) if at else _("until further notice")


def format_end(at: datetime | None) -> str:
    """Return an end in the format of sentences that are stored or sent."""
    return english(end_label(at))


TIME_UNITS: Final = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


def format_duration(seconds: float) -> str:
    """Return a duration in its largest unit, rounded: '7 days', '1 hour'."""
    for size, name in TIME_UNITS:
        number = round(seconds / size)
        if number >= 1 and seconds >= size * 0.95:
            return f"{number} {name}{'' if number == 1 else 's'}"
    return "a moment"


def month_label(month: Month) -> str:
    """Return a month as '2026-11'."""
    return f"{month[0]:04}-{month[1]:02}"


def parse_month(text: str) -> Month | None:
    """Return '2026-11' as a month, None for anything else."""
    year, _, month = text.partition("-")
    if not (len(year) == 4 and len(month) == 2 and (year + month).isascii() and (year + month).isdecimal()):
        return None
    return (int(year), int(month)) if 1 <= int(month) <= 12 and 2000 <= int(year) <= 9000 else None
