"""Simulated runs of one host that slow each other, and what interrupts them."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import msgspec
import pytest

from agent.runs.contention import available, other_demands, slowdown
from agent.runs.simulation import RunSimulator, SimulatedRun
from hostwire.training import (
    DeviceProfile,
    PeriodicPause,
    PhaseStarted,
    SharedResource,
    SimulationProfile,
    Spec,
    StepsCompleted,
    event_decoder,
)

UPLINK = SharedResource(
    name="falcon-1/drawer 1/H1", capacity=12e9, demand=8e9, curve=((3e9, 0.08), (6e9, 0.04), (12e9, 0.02)), waits=True
)
CORES = SharedResource(name="cores", capacity=40, demand=30, curve=((5, 0.16), (40, 0.02)))


def test_a_resource_is_divided_max_min_fairly() -> None:
    assert available(12, []) == 12
    assert available(12, [2]) == 10
    assert available(12, [8]) == 6
    assert available(12, [1, 8, 8]) == pytest.approx(11 / 3)


def test_a_step_takes_longer_the_less_there_is_and_never_less_than_alone() -> None:
    beside = [[], [2e9], [8e9], [8e9, 8e9], [8e9] * 9]
    steps = [slowdown(UPLINK, [{UPLINK.name: demand} for demand in demands]) for demands in beside]
    assert steps == sorted(steps)
    assert (steps[0], steps[2]) == (1.0, 2.0)
    # Ten runs share what four have shares of in the curve: bytes take as much longer.
    assert steps[-1] == pytest.approx(0.08 / 0.02 * 3e9 / 1.2e9)
    assert slowdown(UPLINK, [{"another link": 1e12}]) == 1.0
    assert slowdown(msgspec.structs.replace(UPLINK, curve=()), [{UPLINK.name: 8e9}]) == 1.0


def other_run(root: Path, demands: dict[str, float], *, age: float = 0.0, name: str = "1.json") -> None:
    (root / "loads").mkdir(exist_ok=True)
    file = root / "loads" / name
    file.write_text(json.dumps({"command": "trainer", "demands": demands}))
    os.utime(file, (time.time() - age, time.time() - age))


def test_runs_that_ended_and_files_that_are_no_loads_are_not_felt(tmp_path: Path) -> None:
    other_run(tmp_path, {"cores": 1}, name="1.json")
    other_run(tmp_path, {"cores": 2}, age=6, name="2.json")
    other_run(tmp_path, {"cores": 3}, name="3.json")
    (tmp_path / "loads/4.json").write_text("{")
    (tmp_path / "loads/5.json").write_text('{"devices": []}')  # of a run whose profile is older
    found = other_demands(tmp_path / "loads", tmp_path / "loads/3.json")
    assert sorted(sum(demands.values()) for demands in found) == [0, 1]
    assert other_demands(tmp_path / "nowhere", tmp_path / "nowhere/1.json") == []


def played(root: Path, **given: object) -> tuple[list[object], RunSimulator]:
    """Simulate a run to its end, and return its events."""
    spec = Spec(workload="resnet50", steps=40, warmup=0)
    profile = SimulationProfile(step_seconds=0.02, spread=0.0, **given)  # type: ignore[arg-type]
    simulator = RunSimulator(SimulatedRun(run="run-1", spec=spec, profile=profile, root=str(root)), root / "events")
    simulator.run()
    return [event_decoder.decode(line) for line in (root / "events").read_bytes().splitlines()], simulator


def seconds_of(events: list[object], phase: str) -> list[float]:
    return [
        second
        for event in events
        if isinstance(event, StepsCompleted) and event.phase == phase
        for second in event.seconds
    ]


def test_a_run_is_slowed_while_another_is_there_and_no_longer(tmp_path: Path) -> None:
    # Half a second from now, the load of the other is too old to be one that runs.
    other_run(tmp_path, {UPLINK.name: 8e9}, age=4.5)
    events, _ = played(tmp_path, shared=(UPLINK, CORES))
    steps = seconds_of(events, "timed")
    assert len(steps) == 40
    assert steps[0] == pytest.approx(0.04)
    assert steps[-1] == pytest.approx(0.02)


def test_kernels_that_wait_for_a_link_count_as_busy_and_those_that_wait_for_samples_do_not(tmp_path: Path) -> None:
    device = DeviceProfile(address="x", share=0.9, memory_busy=0.4, to_device=8e9)
    loads = []
    for shared, demand in ((UPLINK, 8e9), (CORES, 35.0)):
        other_run(tmp_path, {shared.name: demand})
        (tmp_path / "sys/bus/pci/devices/x").mkdir(parents=True, exist_ok=True)
        (tmp_path / "sys/bus/pci/devices/x/config").touch()
        _, simulator = played(tmp_path, shared=(shared,), devices=(device,))
        loads.append(json.loads((tmp_path / "loads" / f"{os.getpid()}.json").read_bytes()))
        simulator.remove_load()
    at_link, at_cores = (load["devices"][0] for load in loads)
    assert (at_link["share"], at_link["memory_busy"], at_link["to_device"]) == (0.9, 0.2, 4e9)
    assert at_cores["share"] < 0.5
    assert loads[0]["demands"] == {UPLINK.name: 8e9}


def test_validations_and_checkpoints_come_between_steps_as_phases_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "speed").write_text("1000")
    pauses = (
        PeriodicPause(phase="validation", every=20, seconds=2.0, share=0.3),
        PeriodicPause(phase="checkpoint", every=10, seconds=1.0, disk_write=1e9),
    )
    events, _ = played(tmp_path, pauses=pauses, first_loss=2.0, last_loss=1.0)
    phases = [event.name for event in events if isinstance(event, PhaseStarted)]
    part = ["timed", "checkpoint", "timed", "validation", "checkpoint"]
    assert phases == ["build", "warmup", *part, *part, "finish"]
    assert seconds_of(events, "checkpoint") == [1.0] * 4
    assert seconds_of(events, "validation") == [2.0] * 2
    numbers = [event.first for event in events if isinstance(event, StepsCompleted) and event.phase == "timed"]
    assert numbers[0] == 0
    assert numbers == sorted(numbers)
    assert len(seconds_of(events, "timed")) == 40


def test_a_profile_of_before_is_read_and_played(tmp_path: Path) -> None:
    (tmp_path / "speed").write_text("1000")
    profile = msgspec.json.decode(b'{"step_seconds": 0.5, "devices": [{"address": "x"}]}', type=SimulationProfile)
    assert (profile.steps, profile.shared, profile.pauses, profile.devices[0].memory_busy) == ((), (), (), None)
    assert len(seconds_of(played(tmp_path)[0], "timed")) == 40
