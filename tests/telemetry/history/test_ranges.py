"""Ranges of time as people and programs write them, and numbers as they are answered."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec
import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import Invalid
from fabric.inventory.rules import CounterBaseline
from telemetry.history.encoding import json_numbers, number_text, round_significant
from telemetry.history.rules import DAY, HOUR, combine_rows, iso_utc, named_range, parse_time, range_between, step_label
from telemetry.history.selectors import SeriesPart
from telemetry.history.subjects import SubjectMember

NOW = datetime(2026, 3, 29, 0, 30, tzinfo=UTC).timestamp()  # the night in which Europe's clocks go forward


@pytest.fixture(params=["UTC", "Europe/Berlin", "America/St_Johns", "Pacific/Apia"])
def zone(request: pytest.FixtureRequest) -> Iterator[str]:
    """The zone of the machine, which must play no part."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = request.param
    time.tzset()
    yield request.param
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("now", NOW), ("-1h", NOW - HOUR), ("now-1h", NOW - HOUR), ("-90s", NOW - 90), ("-2d", NOW - 2 * DAY),
        ("-1w", NOW - 7 * DAY), ("2026-03-29T00:30:00Z", NOW), ("2026-03-29T00:30:00", NOW),
        ("2026-03-29T01:30:00+01:00", NOW), ("2026-03-29T01:30:00 01:00", NOW), ("2026-03-28", NOW - DAY - 1800),
        (f"{NOW:.0f}", NOW), (f"{NOW + 0.25:.2f}", NOW + 0.25),
    ],
)  # fmt: skip
def test_a_time_means_the_same_wherever_the_machine_stands(zone: str, text: str, at: float) -> None:
    assert parse_time(text, now=NOW, field="since") == at


def test_a_day_is_24_hours_long_though_clocks_are_changed_in_it(zone: str) -> None:
    day = range_between("2026-03-29", "2026-03-30", now=NOW)
    assert day.seconds == DAY
    assert iso_utc(day.since) == "2026-03-29T00:00:00Z"
    assert named_range("24h", now=NOW).seconds == DAY


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "-h", "-1", "1h", "2026-13-01", "2026-03-29T25:00", "\0", "9" * 400, "-9999999999y", "nan", "inf",
     "0001-01-01", "9999-12-31T23:59:59Z", "2026-03-29T00:00:00+99:99", "now-1", "--1h", "٣"],
)  # fmt: skip
def test_what_is_no_time_is_refused_with_the_field_named(text: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_time(text, now=NOW, field="until")
    assert set(refused.value.details["errors"]) == {"until"}


@given(st.text(max_size=40))
def test_no_text_is_more_than_refused(text: str) -> None:
    try:
        found = parse_time(text, now=NOW, field="since")
    except Invalid:
        return
    assert 946_684_800 <= found <= 7_258_118_400


@pytest.mark.parametrize(("since", "until"), [("now", "now"), ("now", "-1h"), ("-11y", "now"), ("now", "")])
def test_a_range_without_length_or_without_end_is_refused(since: str, until: str) -> None:
    with pytest.raises(Invalid):
        range_between(since, until, now=NOW)


def test_a_range_that_ends_now_is_live() -> None:
    assert range_between("-1h", "", now=NOW).live
    assert range_between("-1h", "now", now=NOW).live
    assert not range_between("-2h", "-1h", now=NOW).live
    assert range_between("", "", now=NOW).seconds == HOUR


@pytest.mark.parametrize(
    ("seconds", "words"), [(1, "1 s"), (90, "90 s"), (180, "3 min"), (900, "15 min"), (86400, "1 d")]
)
def test_a_step_is_said_in_words(seconds: float, words: str) -> None:
    assert step_label(seconds) == words


@given(st.floats(width=32))
def test_a_fraction_is_told_with_seven_digits_and_no_more_and_what_is_whole_is_exact(value: float) -> None:
    found = float(round_significant(np.array([value], dtype=np.float32))[0])
    if not np.isfinite(value):
        assert msgspec.json.encode([found]) == b"[null]"
        return
    assert found == pytest.approx(value, rel=5.0001e-7, abs=1e-38)
    if value.is_integer() and abs(value) <= 2**53:
        assert found == value
    elif 1e-15 < abs(value) < 1e15:
        digits = f"{found:.17g}".lstrip("-")
        assert float(f"{found:.7g}") == found, digits


def test_whole_numbers_have_no_fraction_in_a_table_and_nothing_is_nothing() -> None:
    assert [number_text(value) for value in (5.0, 5.25, -3.0, float("nan"), 31_512_300_000.0, 2.0**53)] == [
        "5", "5.25", "-3", "", "31512300000", "9007199254740992",
    ]  # fmt: skip


NOTHING = np.nan
TWO = (np.array([1.0, NOTHING, NOTHING, 4.0]), np.array([3.0, 5.0, NOTHING, 2.0]))


@pytest.mark.parametrize(
    ("rule", "expected"),
    [("sum", [4, 5, NOTHING, 6]), ("mean", [2, 5, NOTHING, 3]), ("highest", [3, 5, NOTHING, 4]),
     ("lowest", [1, 5, NOTHING, 2])],
)  # fmt: skip
def test_several_readings_become_one_line_by_the_rule_and_a_gap_stays_a_gap(rule: str, expected: list[float]) -> None:
    np.testing.assert_array_equal(combine_rows(rule, TWO), expected)


def test_a_reset_that_left_a_counter_alone_changes_nothing_of_what_is_its_tenants() -> None:
    before = CounterBaseline({"Replay": 1000, "BadTLP": 50}, until=500.0, left={"Replay": 1000}, gained={"Replay": 3})
    member = SubjectMember(1, "port", 5, baseline=before)
    at, values = np.array([400.0, 600.0]), np.array([1002.0, 1003.0])
    (visible,) = SeriesPart.of(member, "port/5/errors/Replay").visible([values], at)
    assert visible.tolist() == [2.0, 3.0]
    # The other one was set back to nothing.
    (visible,) = SeriesPart.of(member, "port/5/errors/BadTLP").visible([np.array([51.0, 1.0])], at)
    assert visible.tolist() == [1.0, 1.0]


def test_rows_of_integers_have_no_fractions_in_json() -> None:
    rows = json_numbers(np.array([[3.0, np.nan, -2.0], [3.5, np.nan, 2.0], [1e300, 1.0, 2.0], [5.0, 2.0**53, 0.0]]))
    text = orjson.dumps(rows, option=orjson.OPT_SERIALIZE_NUMPY)
    assert text == b"[[3,null,-2],[3.5,null,2.0],[1e+300,1.0,2.0],[5,9007199254740992,0]]"
