"""Time as spans: overlaps, how many at once, and how much of each month."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.leases.rules import (
    TimeSpan,
    max_concurrent,
    month_after,
    month_begin,
    month_of,
    months_between,
    seconds_by_month,
)

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
instants = st.integers(0, 5000).map(lambda hours: BEGIN + hours * HOUR)
spans = st.tuples(instants, st.none() | st.integers(0, 3000)).map(
    lambda one: TimeSpan(one[0], None if one[1] is None else one[0] + one[1] * HOUR)
)


def hours(begin: int, end: int | None) -> TimeSpan:
    return TimeSpan(BEGIN + begin * HOUR, None if end is None else BEGIN + end * HOUR)


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        (hours(0, 2), hours(1, 3), True),
        (hours(0, 2), hours(2, 3), False),  # an end is not in it
        (hours(0, None), hours(9, 10), True),
        (hours(0, None), hours(9, None), True),
        (hours(5, None), hours(0, 5), False),
        (hours(1, 1), hours(0, 2), False),  # nothing is in it
        (hours(0, 9), hours(3, 4), True),
    ],
)
def test_two_spans_overlap_where_an_instant_is_in_both(one: TimeSpan, other: TimeSpan, overlap: bool) -> None:
    assert one.overlaps(other) is overlap
    assert other.overlaps(one) is overlap


@given(spans, spans)
def test_what_is_in_both_is_empty_just_where_they_do_not_overlap(one: TimeSpan, other: TimeSpan) -> None:
    assert one.overlaps(other) == (not one.within(other).is_empty)
    assert one.within(other) == other.within(one)


@given(st.lists(spans, max_size=12), instants)
def test_no_instant_has_more_than_the_most_at_once(many: list[TimeSpan], at: datetime) -> None:
    here = sum(span.begin <= at and (span.end is None or at < span.end) for span in many)
    most = max_concurrent(many)
    assert here <= most <= len(many)
    begins = [sum(one.overlaps(TimeSpan(span.begin, span.begin + HOUR / 100)) for one in many) for span in many]
    assert most == max(begins, default=0)


@given(st.lists(spans, max_size=8), instants, st.integers(1, 4000))
def test_months_sum_up_to_the_whole(many: list[TimeSpan], begin: datetime, length: int) -> None:
    within = TimeSpan(begin, begin + length * HOUR)
    found = seconds_by_month(many, within=within)
    parts = [span.within(within) for span in many]
    whole = sum((part.end - part.begin).total_seconds() for part in parts if part.end and not part.is_empty)
    assert sum(found.values()) == pytest.approx(whole)
    for month, seconds in found.items():
        longest = (month_begin(month_after(month)) - month_begin(month)).total_seconds()
        assert 0 < seconds <= longest * len(many)


def test_what_never_ends_is_not_summed_up() -> None:
    with pytest.raises(ValueError, match="must have an end"):
        seconds_by_month([hours(0, 1)], within=hours(0, None))


def test_months_go_over_the_turn_of_the_year() -> None:
    assert month_after((2026, 12)) == (2027, 1)
    assert month_after((2026, 1), -1) == (2025, 12)
    assert list(months_between((2026, 11), (2027, 2))) == [(2026, 11), (2026, 12), (2027, 1), (2027, 2)]
    assert month_of(datetime.fromisoformat("2026-02-01T00:30:00+02:00")) == (2026, 1)
