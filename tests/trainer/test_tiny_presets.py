"""Tiny presets as a host runs them: real PyTorch on the CPU, two processes. One of a kind by day, all at night."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.workloads.catalogue import CATALOGUE, spec_of
from hostwire.training import RunStarted
from tests.trainer.starting import RunOutcome

pytestmark = pytest.mark.process

Ran = Callable[..., RunOutcome]
TRAINED = [name for name, workload in CATALOGUE.items() if workload.is_training]
WARMUP = 2
# Images and boxes; test_models takes a step with the model of each.
BY_DAY = {"mnist_cnn", "yolov5l"}


def ended_well(ran: Ran, name: str) -> RunOutcome:
    spec = spec_of(name, "tiny", {})
    assert (spec.devices, spec.backend) == (2, "cpu")
    outcome = ran(spec)
    assert outcome.code == 0, outcome.log
    assert outcome.trouble is None
    began = outcome.events[0]
    assert isinstance(began, RunStarted)
    assert began.software.framework.startswith("torch ")
    assert began.software.python
    assert began.software.processor
    assert began.software.cores >= 1
    assert len(outcome.seconds("timed")) == spec.steps >= 10
    assert len(outcome.seconds("warmup")) == spec.warmup == WARMUP
    assert statistics.median(outcome.seconds("timed")) > 0
    times = [event.at for event in outcome.events]
    assert times == sorted(times)
    return outcome


@pytest.mark.parametrize(
    "name", [name if name in BY_DAY else pytest.param(name, marks=pytest.mark.nightly) for name in TRAINED]
)
def test_a_tiny_preset_trains_and_tells_its_steps_losses_and_exposed_communication(ran: Ran, name: str) -> None:
    outcome = ended_well(ran, name)
    assert outcome.phases == ["build", "data", "warmup", "timed", "no_sync", "finish"]
    losses = outcome.losses("warmup") + outcome.losses()
    assert len(losses) == 12
    assert all(loss is not None and math.isfinite(loss) and loss > 0 for loss in losses)
    assert len(set(losses)) > 1
    # Exposed communication: it may be below the noise, but both sides of the difference are there.
    alone = outcome.seconds("no_sync")
    assert len(alone) >= 5
    assert min(*outcome.seconds("timed"), *alone) > 0
    assert outcome.losses("no_sync") == []
    assert outcome.result.values["parameters"] > 100_000
    assert outcome.result.values["gradient_bytes"] == 4 * outcome.result.values["parameters"]
    assert outcome.result.values["peak_memory"] > 2**20
    assert outcome.result.units["peak_memory"] == "B"


def square(table: Any) -> list[float]:
    """Return what stands off the diagonal of a table of two devices."""
    assert [table[0][0], table[1][1]] == [None, None]
    return [table[0][1], table[1][0]]


def test_bandwidth_and_latency_between_processes_are_a_table_with_units(ran: Ran) -> None:
    outcome = ended_well(ran, "gpu_bandwidth")
    values = outcome.result.values
    one, other = square(values["bandwidth"])
    assert one == other > 0
    assert all(microseconds > 0 for microseconds in square(values["latency"]))
    assert (outcome.result.units["bandwidth"], outcome.result.units["latency"]) == ("GB/s", "us")
    assert values["sizes"] == [4 * 4**step for step in range(9)]
    assert len(values["bandwidth_by_size"]) == 9
    assert values["bandwidth_by_size"][-1] == pytest.approx(one)
    assert "no GPU" in values["note"]
    assert "no_sync" not in outcome.phases


def test_all_reduce_tells_algorithm_and_bus_bandwidth_of_each_size(ran: Ran) -> None:
    outcome = ended_well(ran, "all_reduce")
    values = outcome.result.values
    assert values["sizes"] == [1024, 4096, 16384, 65536, 262144]
    for number, seconds, algorithm, bus in zip(
        values["sizes"], values["seconds"], values["algorithm_bandwidth"], values["bus_bandwidth"], strict=True
    ):
        assert algorithm == pytest.approx(number / seconds / 1e9)
        assert bus == pytest.approx(algorithm)  # 2 (n - 1) / n is 1 with two
    assert values["backend"] == "gloo"


def test_host_copy_tells_both_ways_of_each_device_and_that_there_was_no_gpu(ran: Ran) -> None:
    outcome = ended_well(ran, "host_copy")
    values = outcome.result.values
    for way in ("to_device", "from_device"):
        assert [len(rates) for rates in values[way]] == [len(values["sizes"])] * 2
        assert all(rate > 0 for rates in values[way] for rate in rates)
    assert "no GPU" in values["note"]


def test_storage_read_reads_its_file_and_leaves_nothing(ran: Ran, tmp_path: Any) -> None:
    outcome = ended_well(ran, "storage_read")
    values = outcome.result.values
    assert values["bandwidth"] == pytest.approx(sum(values["bandwidth_by_process"]))
    assert len(values["bandwidth_by_process"]) == 2
    assert values["block_latency"] > 0
    assert values["file_bytes"] == 2**23
    assert values["note"]
    assert list(tmp_path.rglob("falcon-read-*")) == []


def test_every_tiny_preset_but_the_own_command_is_tried_here() -> None:
    links = {"gpu_bandwidth", "all_reduce", "host_copy", "storage_read"}
    assert set(TRAINED) | links | {"command"} == set(CATALOGUE)
