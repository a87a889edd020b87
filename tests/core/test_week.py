"""Times of the week, past midnight too."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta, timezone

import pytest

from core.week import WeeklyTimes, days_label

SUNDAY = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("times", "inside", "outside"),
    [
        (WeeklyTimes(begins=time(2), ends=time(4), days=(0,)), (2.0, 3.99), (1.99, 4.0, 26.5)),
        (WeeklyTimes(begins=time(22), ends=time(4), days=(0,)), (22.0, 27.99), (0.0, 3.0, 28.0, 46.5)),
        (WeeklyTimes(begins=time(22), ends=time(4)), (0.0, 3.0, 22.0, 46.5), (4.0, 21.99)),
        (WeeklyTimes(begins=time(), ends=time(), days=(0,)), (0.0, 23.99), (24.0, -0.01)),
    ],
)
def test_the_day_that_counts_is_that_of_the_beginning(
    times: WeeklyTimes, inside: tuple[float, ...], outside: tuple[float, ...]
) -> None:
    """The numbers are hours since Sunday began."""
    assert all(times.includes(SUNDAY + timedelta(hours=one)) for one in inside)
    assert not any(times.includes(SUNDAY + timedelta(hours=one)) for one in outside)


def test_times_are_those_of_utc_and_are_said_in_words() -> None:
    there = timezone(timedelta(hours=5))
    times = WeeklyTimes(begins=time(2), ends=time(4), days=(0, 1))
    assert times.includes(datetime(2026, 3, 1, 8, tzinfo=there))
    assert not times.includes(datetime(2026, 3, 1, 3, tzinfo=there))
    assert times.words == "Mon, Sun, 02:00 to 04:00 UTC"
    assert (days_label(()), days_label(range(7))) == ("each day", "each day")
