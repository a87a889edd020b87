"""Throughput as something grows, the loss, and how long steps take."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.figures.bandwidth import storage_read_chart
from benchmarks.figures.charts import Chart
from benchmarks.figures.training import loss_chart, step_time_chart, throughput_scaling
from tests.benchmarks.figures.making import EPOCH, row, topology


def by(name: str, rows: list[object]) -> Chart:
    return next(one for one in throughput_scaling(rows) if one.name == f"scaling-{name}")  # type: ignore[arg-type]


def test_throughput_by_threads_lies_beside_what_would_be_in_proportion() -> None:
    rows = [
        row(str(threads), threads=threads, steps=[seconds] * 3) for threads, seconds in ((2, 0.8), (4, 0.5), (8, 0.4))
    ]
    drawn = by("threads", list(rows))
    assert [(one.x, one.value) for one in drawn.marks] == [(2, 1280.0), (4, 2048.0), (8, 2560.0)]
    assert [one.value for one in drawn.ideals] == [1280.0, 2560.0, 5120.0]
    assert drawn.x.kind == "log"


def test_a_run_that_differs_in_something_else_too_is_on_no_line() -> None:
    rows = [row("1", batch=32, steps=[0.1] * 3), row("2", batch=64, steps=[0.15] * 3)]
    assert len(by("batch", list(rows)).marks) == 2
    rows = [row("1", batch=32, steps=[0.1] * 3), row("2", batch=64, precision="fp32", steps=[0.15] * 3)]
    assert by("batch", list(rows)).is_empty


def test_accelerators_grow_in_their_own_place_and_simulated_ones_on_a_line_of_their_own() -> None:
    rows = [
        row(f"{count} {provenance}", place=topology(local=count), devices=count, provenance=provenance, steps=[0.2] * 3)
        for count in (1, 2, 4) for provenance in ("measured", "simulated")
    ]  # fmt: skip
    drawn = by("devices", list(rows))
    assert {(one.group, one.provenance) for one in drawn.marks} == {
        ("ResNet-50", "measured"),
        ("ResNet-50", "simulated"),
    }
    assert [one.value for one in drawn.marks][:3] == [640.0, 1280.0, 2560.0]


def test_threads_that_are_left_to_the_library_are_no_place_on_the_axis() -> None:
    rows = [row(str(threads), threads=threads, steps=[0.2] * 3) for threads in (0, 2, 4)]
    drawn = by("threads", list(rows))
    assert [one.x for one in drawn.marks] == [2, 4]
    assert "1 run whose threads a process are not set" in drawn.notes[0]


def test_loss_goes_over_steps_and_long_runs_are_means_of_some() -> None:
    series = {"steps/timed/loss": (EPOCH + np.arange(900), np.linspace(9.0, 0.0, 900))}
    drawn = loss_chart(
        [row(series=series), row("short", series={"steps/timed/loss": ([EPOCH], [5.0])}), row("without")]
    )
    assert len(drawn.at) == 300
    assert drawn.at[:3] == (1.0, 4.0, 7.0)
    assert drawn.lines[0].values[0] == pytest.approx(9.0, abs=0.02)
    assert drawn.lines[1].values[:2] == (5.0, None)
    assert "mean of 3" in drawn.caption
    assert "without a loss" in drawn.notes[0]


def test_a_loss_that_became_no_number_is_a_gap() -> None:
    (line,) = loss_chart([row(series={"steps/timed/loss": (EPOCH + np.arange(3), [1.0, np.nan, 0.5])})]).lines
    assert line.values == (1.0, None, 0.5)


def test_step_times_are_told_by_the_share_that_stayed_below() -> None:
    drawn = step_time_chart([row(steps=[0.1] * 90 + [1.0] * 10)])
    found = dict(zip(drawn.at, drawn.lines[0].values, strict=True))
    assert (found[0.0], found[50.0], found[100.0]) == (0.1, 0.1, 1.0)


def test_runs_that_are_called_alike_are_numbered() -> None:
    from dataclasses import replace

    rows = [replace(row(str(one), steps=[0.1, 0.2]), title="=Same") for one in range(2)]
    assert [line.group for line in step_time_chart(rows).lines] == ["=Same", "=Same #2"]


def test_storage_is_read_at_the_bytes_of_its_file_over_a_pass() -> None:
    rows = [
        row(name, workload="storage_read", place=place, steps=[seconds] * 5, devices=processes, strategy="ddp")
        for name, place, seconds, processes in (("1", "localNVMe", 4.0, 1), ("2", "falconNVMe", 16.0, 2))
    ]
    drawn = storage_read_chart(rows)
    assert [(one.x, round(one.value, 3)) for one in drawn.marks] == [("local NVMe", 2.147), ("Falcon NVMe", 1.074)]
