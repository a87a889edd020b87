"""What is kept of runs: series, log, figures, and what events become."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest

from benchmarks.runs.models import Run
from benchmarks.runs.recording import (
    VALUES_A_CHUNK,
    downsample,
    log_append,
    log_read,
    log_tail,
    run_update_store,
    series_append,
    series_values,
)
from benchmarks.runs.results import summarise
from benchmarks.runs.rules import Composition
from hostwire.training import PhaseStarted, RunFailed, RunReading, RunUpdate, Spec, StepsCompleted

pytestmark = pytest.mark.django_db


@pytest.fixture
def run() -> Run:
    spec = Spec(workload="resnet50", devices=2, batch=8)
    plain = {"workload": spec.workload, "devices": spec.devices, "batch": spec.batch}
    return Run.objects.create(
        title="A run", workload="resnet50", provenance="measured", requested_by_name="ada", spec=plain
    )


def test_a_series_is_read_as_it_was_written_whatever_the_pieces(run: Run) -> None:
    values = np.random.default_rng(1).normal(size=3 * VALUES_A_CHUNK + 7)
    values[5] = math.nan
    begin = 0
    for size in (1, VALUES_A_CHUNK - 1, 1, 2 * VALUES_A_CHUNK, 6):
        series_append(run, "gpu/0/power", at=np.arange(begin, begin + size), values=values[begin : begin + size])
        begin += size
    at, found = series_values(run, ["gpu/0/power"])["gpu/0/power"]
    assert np.array_equal(found, values, equal_nan=True)
    assert np.array_equal(at, np.arange(len(values)))
    assert max(len(bytes(one.at)) for one in run.series.get().chunks.all()) <= 8 * VALUES_A_CHUNK
    few, _ = downsample(at, found, 10)
    assert (len(few), few[0], few[-1]) == (10, at[0], at[-1])
    assert series_values(run, ["none"]) == {}


def test_what_a_host_tells_is_kept_in_as_many_queries_however_many_devices_it_has(
    run: Run, django_assert_max_num_queries: Any
) -> None:
    def update_of(devices: int, number: int) -> RunUpdate:
        values = {f"gpu/{device}/{name}": 1.0 * number for device in range(devices) for name in ("power", "cpu")}
        event = RunReading(at=100.0 + number, interval=1.0, source="nvml", values=values)
        return RunUpdate(run=str(run.pk), state="running", events=(event,), first_event=number)

    for number in range(3):
        with django_assert_max_num_queries(9):
            Run.objects.filter(pk=run.pk).update(**run_update_store(run, update_of(32, number), run.all_nodes()[0]))
        run.refresh_from_db()
    at, values = series_values(run, ["gpu/31/power"])["gpu/31/power"]
    assert (at.tolist(), values.tolist()) == ([100.0, 101.0, 102.0], [0.0, 1.0, 2.0])
    assert run.series.count() == 64


def test_a_log_is_read_on_from_any_byte_without_half_a_character(run: Run) -> None:
    text = "Zeile über Zeile\n" * 9000
    for begin in range(0, len(text), 40_000):
        log_append(run, len(text[:begin].encode()), text[begin : begin + 40_000])
    read, first = "", 0
    while True:
        piece = log_read(run, first, most=10_001)
        read, first = read + piece.text, piece.next
        if not piece.more:
            break
    assert read == text
    assert log_tail(run).text.startswith("Zeile")
    assert log_read(run, 10**9).text == ""


def test_events_that_are_told_twice_are_kept_once(run: Run) -> None:
    events = (
        PhaseStarted(at=100.0, name="timed"),
        StepsCompleted(at=103.0, phase="timed", first=0, seconds=(1.0, 2.0), loss=(3.0, None)),
        RunReading(at=102.0, interval=1.0, source="nvml", values={"gpu/0000:41:00.0/power": 200.0, "cpu": 0.5}),
        RunFailed(at=104.0, what="crash", sentence="First."),
        RunFailed(at=105.0, what="lost", sentence="Second."),
    )
    told = RunUpdate(run=str(run.pk), state="running", events=events, log="one\n", next_byte=4)
    for _ in range(2):
        changes = run_update_store(run, told, run.all_nodes()[0])
        Run.objects.filter(pk=run.pk).update(**changes)
        run.refresh_from_db()
    assert (run.steps_done, run.phase, run.next_event, run.next_byte) == (2, "timed", 5, 4)
    assert (run.trouble, run.error) == ("crash", "First.")
    at, seconds = series_values(run, ["steps/timed/seconds"])["steps/timed/seconds"]
    assert (at.tolist(), seconds.tolist()) == ([101.0, 103.0], [1.0, 2.0])
    assert log_read(run).text == "one\n"
    summary = summarise(run)
    assert summary.step_seconds is not None
    assert summary.samples_per_second is not None
    assert (summary.step_seconds.value, summary.samples_per_second.value) == (1.5, 12.0)
    assert (summary.first_loss, summary.last_loss) == (3.0, 3.0)
    assert (summary.readings["power"].value, summary.readings["power"].unit) == (200.0, "W")


def test_traffic_is_summed_over_devices_and_both_ways_and_of_uplinks_nothing(run: Run) -> None:
    at = np.arange(0.0, 10.0)
    for key, value in (("device-1/pcie_to", 3e9), ("device-1/pcie_from", 1e9), ("uplink-4/pcie_to", 9e9)):
        series_append(run, f"link/{key}", at=at, values=np.full(10, value), unit="B/s")
    # A moment of which a link is missing would tell too little.
    series_append(run, "link/device-1/pcie_to", at=[10.0], values=[5e9], unit="B/s")
    summary = summarise(run)
    assert summary.pcie is not None
    assert (summary.pcie.value, summary.pcie.count) == (4e9, 10)
    assert "pcie_to" not in summary.readings


def test_exposed_communication_is_what_steps_take_longer_for_it(run: Run) -> None:
    draws = np.random.default_rng(2)
    series_append(run, "steps/timed/seconds", at=np.arange(40.0), values=draws.normal(0.30, 0.01, 40))
    series_append(run, "steps/no_sync/seconds", at=np.arange(40.0), values=draws.normal(0.25, 0.01, 40))
    exposed = summarise(run).exposed_seconds
    assert exposed is not None
    assert exposed.low < 0.05 < exposed.high
    assert exposed.high - exposed.low < 0.02


def test_exposed_communication_is_never_below_zero(run: Run) -> None:
    series_append(run, "steps/timed/seconds", at=np.arange(40.0), values=np.full(40, 0.25))
    series_append(run, "steps/no_sync/seconds", at=np.arange(40.0), values=np.full(40, 0.26))
    exposed = summarise(run).exposed_seconds
    assert exposed is not None
    assert (exposed.low, exposed.value, exposed.high) == (0, 0, 0)


def test_very_many_steps_are_summed_up_in_little_memory(run: Run) -> None:
    draws = np.random.default_rng(3)
    count = 300_000
    series_append(run, "steps/timed/seconds", at=np.arange(count), values=draws.normal(0.30, 0.01, count))
    series_append(run, "steps/no_sync/seconds", at=np.arange(count), values=draws.normal(0.25, 0.01, count))
    tracemalloc.start()
    try:
        exposed = summarise(run).exposed_seconds
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 200 * 2**20
    assert exposed is not None
    assert exposed.count == count
    assert exposed.low < 0.05 < exposed.high


def test_the_order_of_ranks_is_kept_whatever_the_database_does_with_objects(run: Run) -> None:
    place = Composition(host=1, devices={12: 3, 7: 3, 100: 4})
    Run.objects.filter(pk=run.pk).update(composition=place.as_stored())
    run.refresh_from_db()
    assert list(Composition.from_json(run.composition).devices) == [12, 7, 100]
    shuffled = {**place.as_stored(), "devices": {"7": 3, "12": 3, "100": 4}}
    assert list(Composition.from_json(shuffled).devices) == [12, 7, 100]
