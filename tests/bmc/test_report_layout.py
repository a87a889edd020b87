"""Reports that are read by their layout, beside the same ones that are decoded: values are the same to the last bit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.bmc import report_layout
from fabric.bmc.errors import Malformed
from fabric.bmc.metric_report import parse_report
from fabric.bmc.readings import ReportPlan
from fabric.bmc.report_layout import LayoutReader, ReportLayout, load_library
from fabric.bmc.series import SeriesFactory
from fabric.bmc.types import Inventory

TIMES = ("2026-01-02T03:04:05.678Z", "2026-01-02T03:04:06.001Z", "2026-01-02T03:04:07+00:00")
# As services write them, and as they should not.
NUMBERS = st.one_of(
    st.integers(-(10**6), 10**6).map(str),
    st.integers(-(2**70), 2**70).map(str),
    st.decimals(-(10**9), 10**9, places=3).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.from_regex(r"\A-?[0-9]{1,20}(\.[0-9]{1,20})?\Z"),
)
ODD = st.sampled_from(
    ["", "-", "-0", "007", "1.", ".5", " 1", "1_0", "nan", "inf", "LinkUp", "LinkDown", "é", '"', "\\"]
)
VALUES = st.one_of(NUMBERS, NUMBERS, ODD, st.floats(-1e6, 1e6), st.integers(-10, 2**64), st.none(), st.booleans())


pytestmark = pytest.mark.skipif(report_layout.read_report is None, reason="report_numbers.c is not compiled here")


def report(values: list[Any], time: str = TIMES[0], *, indent: int | None = None, **more: Any) -> bytes:
    """Return a report of these values."""
    entries = [
        {
            "MetricId": f"m{number}",
            "MetricValue": value,
            "Timestamp": time,
            "MetricProperty": f"/redfish/v1/{number}#/A",
        }
        for number, value in enumerate(values)
    ]
    return json.dumps(
        {"Id": "All", "Timestamp": time, **more, "MetricValues": entries, "Count": 1}, indent=indent
    ).encode()


def plan_of(count: int) -> ReportPlan:
    return ReportPlan("/r", [f"/redfish/v1/{number}#/A" for number in range(count)], SeriesFactory(Inventory()))


def outcome(plan: ReportPlan, raw: bytes) -> tuple[bytes, float] | None:
    """Return what a plan makes of a report, None where it refuses it."""
    try:
        reading = plan.decode(raw, 1.0)
    except Malformed:
        return None
    return (np.asarray(reading.values) + 0.0).tobytes(), reading.measured_at  # -0 is 0


def outcomes(count: int, raws: list[bytes]) -> Iterator[tuple[tuple[bytes, float] | None, tuple[bytes, float] | None]]:
    """Yield of each report in turn what is read by a layout where there is one, and what is decoded."""
    plan, plain = plan_of(count), plan_of(count)
    with pytest.MonkeyPatch.context() as patch:
        for raw in raws:
            found = outcome(plan, raw)
            patch.setattr(LayoutReader, "read", lambda *_: None)
            yield found, outcome(plain, raw)
            patch.undo()


@given(st.integers(1, 6).flatmap(lambda n: st.lists(st.lists(VALUES, min_size=n, max_size=n), min_size=2, max_size=5)))
def test_every_report_is_read_as_it_is_decoded(reports: list[list[Any]]) -> None:
    times = chain(TIMES, TIMES)
    raws = [report(values, time) for values, time in zip(reports, times, strict=False)]
    for found, expected in outcomes(len(reports[0]), raws):
        assert found == expected


@given(st.data())
def test_a_damaged_report_is_read_as_it_is_decoded(data: st.DataObject) -> None:
    raw = report(["12.50", "LinkUp", 7, "3"], indent=data.draw(st.sampled_from([None, 1])))
    begin = data.draw(st.integers(0, len(raw)))
    end = data.draw(st.integers(begin, min(len(raw), begin + 4)))
    damaged = raw[:begin] + data.draw(st.binary(max_size=4)) + raw[end:]
    for found, expected in outcomes(4, [raw, damaged, raw]):
        assert found == expected


def is_read(first: bytes, second: bytes) -> bool:
    """Return whether the layout of the first report reads the second, as it is decoded."""
    numbers = [np.asarray(plan_of(2).decode(raw, 1.0).values) for raw in (first, second)]
    layout = ReportLayout.learn(first, numbers[0])
    found = layout.read(second) if layout is not None else None
    if found is None:
        return False
    assert found[1].tobytes() == numbers[1].tobytes()
    assert found[0] == parse_report(second, "a BMC").timestamp
    return True


@pytest.mark.parametrize("indent", [None, 2])
def test_other_numbers_times_and_surroundings_need_no_decoding(indent: int | None) -> None:
    first = report(["9.99", "LinkUp"], indent=indent, ReportSequence="9")
    assert is_read(first, report(["-10.01", "LinkUp"], TIMES[1], indent=indent, ReportSequence="10", Oem={"A": [{}]}))
    assert is_read(first, report(["9007199254740993", "LinkUp"], TIMES[2], indent=indent))


@pytest.mark.parametrize(
    "other", [["9.99", "LinkDown"], ["9.99"], ["9.99", "LinkUp", "1"], ["1e3", "LinkUp"], ["nan", "LinkUp"]]
)
def test_other_words_and_entries_are_decoded(other: list[str]) -> None:
    assert not is_read(report(["9.99", "LinkUp"]), report(other))


def test_values_inside_entries_are_not_those_of_entries() -> None:
    inner = b'"Oem": {"MetricValue": "5"}, "MetricValue"'
    first, second = (report([value, "4"]).replace(b'"MetricValue"', inner) for value in ("5", "6"))
    assert is_read(first, second)
    assert not is_read(first, second.replace(b'{"MetricValue": "5"}', b'{"MetricValue": "7"}', 1))


def test_two_lists_are_no_layout() -> None:
    first = report(["1", "2"])
    assert is_read(first, first)
    assert not is_read(first, first[:-1] + b', "MetricValues": []}')


def test_without_the_library_reports_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_library(Path("/nowhere.so")) is None
    monkeypatch.setattr(report_layout, "read_report", None)
    plan = plan_of(1)
    assert [plan.decode(report([value]), 1.0).values[0] for value in ("1", "2")] == [1.0, 2.0]
