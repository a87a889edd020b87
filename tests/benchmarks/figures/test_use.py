"""How busy runs keep what they have, over their time and by configuration."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.figures.utilisation import MAX_LINES, reading_over_time, use_by_configuration
from benchmarks.runs.results import Summary
from tests.benchmarks.figures.making import EPOCH, figure, row, topology

SECONDS = np.arange(0.0, 100.0)
GPU = "gpu/0000:41:00.0/utilisation"
OTHER = "gpu/0000:42:00.0/utilisation"


def test_a_line_is_the_mean_of_the_devices_by_the_share_of_the_run() -> None:
    half, full = np.full(100, 0.5), np.full(100, 1.0)
    drawn = reading_over_time([row(series={GPU: (EPOCH + SECONDS, half), OTHER: (EPOCH + SECONDS, full)})])
    (line,) = drawn.lines
    assert line.values[50] == 75.0
    assert (drawn.at[0], drawn.at[-1]) == (0.25, 99.75)
    assert drawn.y.unit == "%"


def test_runs_of_different_length_lie_over_each_other_by_share_and_end_apart_by_seconds() -> None:
    rows = [
        row("1", series={GPU: (EPOCH + SECONDS, np.ones(100))}),
        row("2", series={GPU: (EPOCH + 5000 + SECONDS[:50], np.ones(50))}),
    ]
    by_share = reading_over_time(rows)
    assert all(line.values[-1] == 100.0 for line in by_share.lines)
    by_seconds = reading_over_time(rows, by_share=False)
    assert by_seconds.x.unit == "s"
    assert by_seconds.lines[0].values[-1] == 100.0
    assert by_seconds.lines[1].values[-1] is None


def test_a_gap_is_a_gap_and_a_missing_reading_no_zero() -> None:
    values = np.ones(100)
    values[40:60] = np.nan
    (line,) = reading_over_time([row(series={GPU: (EPOCH + SECONDS, values)})]).lines
    assert line.values[100] is None
    assert line.values[20] == 100.0
    assert line.values[180] == 100.0


def test_readings_that_come_seldom_hold_until_the_next_one_is_due() -> None:
    at = EPOCH + np.arange(0.0, 100.0, 10.0)
    (line,) = reading_over_time([row(series={GPU: (at, np.full(10, 0.5))})]).lines
    assert None not in line.values


def test_a_single_reading_is_drawn_and_nothing_breaks() -> None:
    (line,) = reading_over_time([row(series={GPU: ([EPOCH], [0.5])})]).lines
    assert [one for one in line.values if one is not None] == [50.0]


def test_runs_without_readings_and_those_that_are_too_many_are_told_of() -> None:
    rows = [row(str(one), series={GPU: (EPOCH + SECONDS, np.ones(100))}) for one in range(MAX_LINES + 3)]
    drawn = reading_over_time([*rows, row("without")])
    assert len(drawn.lines) == MAX_LINES
    assert any("1 run without such readings" in note for note in drawn.notes)
    assert any("3 runs since a chart has at most 8 lines" in note for note in drawn.notes)


def test_other_readings_are_shown_in_their_units_and_those_of_links_are_none_of_a_device() -> None:
    series = {
        "gpu/0/pcie_to": (EPOCH + SECONDS, np.full(100, 2e9)),
        "link/device-1/pcie_to": (EPOCH + SECONDS, np.ones(100)),
    }
    drawn = reading_over_time([row(series=series)], reading="pcie_to")
    assert drawn.y.unit == "GB/s"
    assert drawn.lines[0].values[10] == 2.0


def summary(**readings: float) -> Summary:
    return Summary(
        readings={name: figure(value, value * 0.9, value * 1.1, unit="") for name, value in readings.items()}
    )


def test_use_by_configuration_is_in_per_cent_of_what_there_is() -> None:
    place = topology(local=2)
    found = summary(utilisation=0.8, memory_used=8e9, memory_share=0.3, cpu=0.25, memory=place.memory_bytes / 4)
    panels = {one.name: one for one in use_by_configuration([row(place=place, summary=found)])}
    values = {name: one.marks[0].value for name, one in panels.items()}
    assert values == pytest.approx({"gpu": 80, "gpu-memory": 50, "gpu-memory-busy": 30, "cpu": 25, "system-memory": 25})
    assert panels["gpu"].marks[0].low == pytest.approx(72)


def test_of_repetitions_it_is_the_median_from_the_lowest_to_the_highest() -> None:
    rows = [row(str(one), summary=summary(utilisation=one)) for one in (0.5, 0.6, 0.9)]
    (mark,) = use_by_configuration(rows)[0].marks
    assert (mark.value, mark.low, mark.high) == pytest.approx((60, 45, 99))
    assert mark.runs == ("0.5", "0.6", "0.9")


def test_simulated_use_is_a_mark_of_its_own() -> None:
    rows = [row("1", summary=summary(cpu=0.5)), row("2", provenance="simulated", summary=summary(cpu=0.9))]
    cpu = next(one for one in use_by_configuration(rows) if one.name == "cpu")
    assert {one.provenance: one.value for one in cpu.marks} == pytest.approx({"measured": 50, "simulated": 90})


def test_memory_of_devices_that_nobody_knows_is_not_told() -> None:
    panels = use_by_configuration([row(place=None, summary=summary(memory_used=8e9))])
    assert next(one for one in panels if one.name == "gpu-memory").is_empty
