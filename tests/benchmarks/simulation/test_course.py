"""What a simulated run takes from the simulation: its steps, its loads, what it shares, and what interrupts it."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from msgspec.structs import replace as changed

from agent.runs.contention import slowdown
from benchmarks.model.calibration import PAPER_TOPOLOGIES, paper_spec
from benchmarks.runs.simulation import simulation_profile
from benchmarks.simulation import simulate_step
from benchmarks.simulation.course import periodic_pauses, shared_resources
from benchmarks.workloads.catalogue import spec_of

FALCON, LOCAL = PAPER_TOPOLOGIES["falconGPUs"], PAPER_TOPOLOGIES["localGPUs"]
BERT, RESNET = paper_spec("bert_large"), paper_spec("resnet50")
UPLINKS = sorted(FALCON.uplinks)


def test_a_run_shares_the_uplinks_and_cores_that_it_uses_and_slows_as_the_simulation_of_both_does() -> None:
    alone = simulate_step(BERT, FALCON)
    shared = {resource.name: resource for resource in shared_resources(BERT, FALCON, alone)}
    assert sorted(shared) == sorted(["cores", *UPLINKS])
    cold = shared_resources(RESNET, LOCAL, simulate_step(RESNET, LOCAL, cold=True), cold=True)
    assert "drive local/local storage" in {one.name for one in cold}
    for resource in shared.values():
        seconds = [step for _, step in resource.curve]
        assert all(later <= earlier * 1.05 for earlier, later in itertools.pairwise(seconds))
    uplink = shared[UPLINKS[0]]
    assert uplink.waits
    both = simulate_step(BERT, FALCON, neighbours=[(BERT, FALCON)])
    felt = slowdown(uplink, [{uplink.name: uplink.demand}])
    assert felt == pytest.approx(both.step_seconds / alone.step_seconds, rel=0.2)
    assert felt > 1.2


def test_the_profile_of_a_run_has_simulated_steps_and_reads_what_meters_read() -> None:
    falcon, local = simulation_profile(BERT, FALCON, {}), simulation_profile(BERT, LOCAL, {})
    assert falcon.step_seconds > 1.5 * local.step_seconds
    assert min(falcon.steps) <= falcon.step_seconds <= max(falcon.steps)
    assert falcon.devices[0].share >= local.devices[0].share > 0.9
    assert (falcon.devices[0].memory_busy or 0) < (local.devices[0].memory_busy or 0)
    assert falcon.devices[0].peer_share == pytest.approx(3 / 4, rel=0.01)
    assert local.devices[0].peer_share < 0.01 or local.devices[0].to_device < 1e8  # it has no ring over PCIe
    assert simulation_profile(BERT, FALCON, {}, seed=1).steps != falcon.steps
    assert simulation_profile(BERT, FALCON, {}).steps == falcon.steps


def test_a_step_of_many_batches_is_simulated_in_part_and_takes_as_many_times_longer() -> None:
    sizes = {"options": {**BERT.options, "layers": 2}, "devices": 64, "strategy": "sharded"}
    gpu = FALCON.accelerators[0]
    place = replace(FALCON, accelerators=tuple(replace(gpu, name=f"gpu {number}") for number in range(64)))
    some, many = (simulation_profile(changed(BERT, accumulation=count, **sizes), place, {}) for count in (32, 256))
    assert many.step_seconds == pytest.approx(8 * some.step_seconds)
    assert many.devices[0].to_device == pytest.approx(some.devices[0].to_device)
    assert (len(many.steps), many.shared) == (1, ())


def test_a_run_on_a_chosen_drive_reads_it_as_in_a_first_pass_and_another_reads_the_hosts_memory() -> None:
    nvme = PAPER_TOPOLOGIES["falconNVMe"]
    profile = simulation_profile(RESNET, nvme, {}, drive="0000:50:00.0")
    assert profile.devices[-1].address == "0000:50:00.0"
    assert profile.devices[-1].from_device == profile.disk_read > 1e8
    assert simulation_profile(RESNET, nvme, {}).disk_read == 0


def test_validations_and_checkpoints_interrupt_a_run_that_asks_for_them() -> None:
    assert periodic_pauses(changed(BERT, validate_every=0, checkpoint_every=0), FALCON) == ()
    asked = changed(BERT, data="files", validate_every=50, checkpoint_every=100)
    validation, checkpoint = periodic_pauses(asked, FALCON)
    assert (validation.phase, validation.every, checkpoint.phase, checkpoint.every) == (
        "validation", 50, "checkpoint", 100,
    )  # fmt: skip
    assert validation.share > 0
    assert checkpoint.share == 0
    # Twelve bytes a parameter: a weight, and two moments.
    assert checkpoint.disk_write * checkpoint.seconds == pytest.approx(12 * 335e6, rel=0.01)
    fast = replace(FALCON, storage=PAPER_TOPOLOGIES["falconNVMe"].storage)
    assert periodic_pauses(asked, fast)[1].seconds < checkpoint.seconds


def test_workloads_that_measure_links_have_the_published_values_of_their_edges() -> None:
    profile = simulation_profile(spec_of("gpu_bandwidth", "paper", {}), FALCON, {})
    assert profile.result["units"] == {"bandwidth": "GB/s", "latency": "us"}
    assert (profile.steps, profile.shared) == ((), ())
