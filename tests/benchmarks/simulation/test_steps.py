"""What holds for any simulated step, whatever its constants are."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from msgspec.structs import replace as changed

from benchmarks.model import ModelError
from benchmarks.model.calibration import paper_cells
from benchmarks.model.topology import PcieLink, Storage, Topology
from benchmarks.simulation import StepSimulation, simulate_step
from benchmarks.simulation.links import HOST_UP
from hostwire.training import Spec

CELLS = {(workload, topology.name): (spec, topology) for workload, _, spec, topology in paper_cells()}
BERT, FALCON = CELLS["bert_large", "falconGPUs"]
LOCAL_GPUS = CELLS["bert_large", "localGPUs"][1]
RESNET = CELLS["resnet50", "falconGPUs"][0]


def simulated(spec: Spec, topology: Topology, **given: object) -> StepSimulation:
    return simulate_step(spec, topology, steps=3, **given)  # type: ignore[arg-type]


def with_links(topology: Topology, link: PcieLink) -> Topology:
    return replace(
        topology,
        accelerators=tuple(replace(device, link=link) for device in topology.accelerators),
        uplinks=dict.fromkeys(topology.uplinks, link),
    )


@pytest.mark.parametrize("strategy", ["ddp", "sharded", "dp"])
def test_more_bandwidth_is_never_slower(strategy: str) -> None:
    spec = changed(BERT, strategy=strategy)
    links = [PcieLink(lanes=lanes, generation=generation) for lanes, generation in ((4, 3), (8, 3), (16, 3), (16, 4))]
    steps = [simulated(spec, with_links(FALCON, link)).step_seconds for link in links]
    assert steps == sorted(steps, reverse=True)
    assert steps[0] > 2 * steps[-1]


def test_one_device_exchanges_nothing() -> None:
    found = simulated(changed(RESNET, devices=1, strategy="single"), FALCON)
    assert found.exposed == 0
    (into, out) = found.devices[FALCON.accelerators[0].name]
    assert (into, out) == (128 * 4 * 3 * 224**2, 0)


def test_equal_seeds_give_equal_steps_and_others_differ() -> None:
    one, again, other = (simulated(BERT, FALCON, seed=seed) for seed in (1, 1, 2))
    assert one == again
    assert one.steps != other.steps


def test_an_exchange_that_overlaps_takes_less_than_both_and_slows_the_computation() -> None:
    alone = simulated(changed(BERT, devices=1, strategy="single"), FALCON)
    together = simulated(BERT, FALCON)
    exchange = sum(together.devices[FALCON.accelerators[0].name]) / 2 / 10e9
    assert max(alone.step_seconds, exchange) < together.step_seconds < alone.step_seconds + exchange
    assert together.compute > alone.compute * 1.02


@pytest.mark.parametrize("strategy", ["ddp", "sharded"])
def test_the_bytes_of_an_exchange_are_those_that_the_links_carry(strategy: str) -> None:
    """A ring passes one stream each way over each of both uplinks, and up to the host as much as down from it."""
    found = simulated(changed(BERT, strategy=strategy), FALCON)
    sent = found.devices[FALCON.accelerators[0].name][1]
    mean = sum(found.steps) / len(found.steps)
    places = sorted(FALCON.uplinks)
    for place in places:
        assert found.links[f"{place}/up"] * mean == pytest.approx(sent, rel=0.02)
    assert found.links[HOST_UP] * mean == pytest.approx(len(places) * sent, rel=0.02)
    parameters, way = 335e6, 7 / 8
    expected = 2 * way * 4 * parameters if strategy == "ddp" else way * (2 * 2 + 4) * parameters
    assert sent == pytest.approx(expected, rel=0.02)


def test_runs_on_one_uplink_slow_each_other_and_runs_on_other_links_do_not() -> None:
    four = tuple(device for device in FALCON.accelerators if device.place == FALCON.accelerators[0].place)
    one = replace(FALCON, accelerators=(four[0], LOCAL_GPUS.accelerators[0]))
    beside = replace(FALCON, accelerators=(four[1], LOCAL_GPUS.accelerators[1]))
    away = replace(FALCON, accelerators=(FALCON.accelerators[-1], LOCAL_GPUS.accelerators[1]))
    spec = changed(BERT, devices=2)
    alone = simulated(spec, one).step_seconds
    assert simulated(spec, one, neighbours=[(spec, away)]).step_seconds == pytest.approx(alone, rel=0.02)
    assert simulated(spec, one, neighbours=[(spec, beside)]).step_seconds > 1.2 * alone


def test_runs_share_the_cores_of_their_host() -> None:
    four = replace(FALCON, accelerators=FALCON.accelerators[:4], cores=24)
    others = replace(FALCON, accelerators=FALCON.accelerators[4:], cores=24)
    spec = changed(RESNET, devices=4)
    alone = simulated(spec, four)
    assert simulated(spec, four, neighbours=[(spec, others)]).step_seconds > 1.3 * alone.step_seconds


def test_a_run_that_may_use_few_cores_waits_for_its_samples() -> None:
    few, all_of_them = simulated(changed(RESNET, cores=8), FALCON), simulated(RESNET, FALCON)
    assert few.step_seconds > 2 * all_of_them.step_seconds
    on_cpu = changed(RESNET, backend="cpu", devices=2, batch=2, precision="fp32", loader_workers=1)
    assert simulated(changed(on_cpu, cores=2), FALCON).step_seconds > 3 * simulated(on_cpu, FALCON).step_seconds


def test_a_cold_first_pass_waits_for_a_slow_drive_and_not_for_a_fast_one() -> None:
    slow, fast = (replace(FALCON, storage=Storage(model=model)) for model in ("a disk", "SSDPEDKX040T7"))
    warm, cold, quick = simulated(RESNET, slow), simulated(RESNET, slow, cold=True), simulated(RESNET, fast, cold=True)
    assert cold.step_seconds > 1.1 * warm.step_seconds
    assert quick.step_seconds < cold.step_seconds
    assert not any(name.startswith("drive") for name in warm.links)
    read = RESNET.global_batch * 110e3 / (sum(cold.steps) / len(cold.steps))
    assert cold.links["drive local/a disk"] == pytest.approx(read, rel=0.35)  # loaders read ahead


def test_runs_that_read_one_drive_slow_each_other_and_those_of_two_drives_do_not() -> None:
    halves = [replace(FALCON, cores=200, accelerators=FALCON.accelerators[start : start + 4]) for start in (0, 4)]
    slow = [replace(half, storage=Storage(model="a disk")) for half in halves]
    other = replace(halves[1], storage=Storage(model="another disk"))
    spec = changed(RESNET, devices=4)
    alone = simulated(spec, slow[0], cold=True).step_seconds
    assert simulated(spec, slow[0], neighbours=[(spec, slow[1])], cold=True).step_seconds > 1.25 * alone
    assert simulated(spec, slow[0], neighbours=[(spec, other)], cold=True).step_seconds < 1.1 * alone


def test_waiting_kernels_count_as_busy_and_their_memory_as_idle() -> None:
    falcon, local = simulated(BERT, FALCON), simulated(BERT, LOCAL_GPUS)
    assert falcon.kernel_busy >= local.kernel_busy > 0.9
    assert falcon.memory_busy < 0.8 * local.memory_busy
    assert falcon.compute_busy < 0.8 * local.compute_busy


def test_samples_prepared_by_the_process_itself_add_to_the_step() -> None:
    inline = simulated(changed(RESNET, loader_workers=0), FALCON)
    fed = simulated(changed(RESNET, loader_workers=16), replace(FALCON, cores=400))
    assert inline.input_wait > 0.5 * inline.step_seconds
    assert fed.input_wait < 0.1 * fed.step_seconds


def test_accumulated_batches_are_exchanged_once() -> None:
    one, four = simulated(BERT, FALCON), simulated(changed(BERT, accumulation=4), FALCON)
    assert four.devices["drawer 1 GPU 0"][1] == pytest.approx(one.devices["drawer 1 GPU 0"][1], rel=0.05)
    assert four.step_seconds < 4 * one.step_seconds


def test_times_of_a_step_are_finite_and_shares_are_shares() -> None:
    for (workload, name), (spec, topology) in CELLS.items():
        found = simulated(spec, topology)
        assert all(0 < step < math.inf for step in found.steps), (workload, name)
        for share in (found.compute_busy, found.kernel_busy, found.memory_busy, found.cpu_share):
            assert 0 < share <= 1, (workload, name)
        assert found.compute_busy <= found.kernel_busy + 1e-9
        assert found.timeline[-1].at == pytest.approx(sum(found.steps))


def test_a_run_on_the_cpu_is_simulated_and_what_trains_nothing_is_not() -> None:
    assert simulated(changed(RESNET, backend="cpu", devices=2, batch=4, precision="fp32"), FALCON).step_seconds > 0.1
    with pytest.raises(ModelError):
        simulated(Spec(workload="storage_read"), FALCON)
    with pytest.raises(ModelError):
        simulated(changed(BERT, devices=9), FALCON)


def test_a_run_over_two_hosts_meets_on_their_network_and_has_the_cores_of_both() -> None:
    eight = CELLS["resnet50", "localGPUs"][1]
    halves = tuple(replace(device, host="" if number < 4 else "b") for number, device in enumerate(eight.accelerators))
    two = replace(eight, accelerators=halves, other_hosts=("b",))
    together, apart = simulated(BERT, eight), simulated(changed(BERT, hosts=2), two)
    assert apart.step_seconds > 1.3 * together.step_seconds
    assert apart.links["network/out"] == pytest.approx(apart.links["b: network/in"])
    few = simulated(changed(RESNET, loader_workers=8), replace(eight, cores=16))
    more = simulated(changed(RESNET, loader_workers=8, hosts=2), replace(two, cores=16))
    assert more.step_seconds < 0.8 * few.step_seconds


@pytest.mark.parametrize(
    ("fields", "links"),
    [
        ({"options": {"sequence": 0}}, 16),
        ({"options": {"sequence": "long"}}, 16),
        ({"workload": "of another site"}, 16),
        ({}, 0),
    ],
    ids=["no tokens", "a size in words", "an unknown network", "no lanes"],
)
def test_impossible_runs_are_refused_in_a_sentence(fields: dict[str, object], links: int) -> None:
    with pytest.raises(ModelError):
        simulated(changed(BERT, **fields), with_links(FALCON, PcieLink(lanes=links)))


def test_many_devices_and_small_buckets_are_simulated_in_reasonable_numbers_of_events() -> None:
    many = tuple(replace(FALCON.accelerators[number % 8], name=f"GPU {number}") for number in range(64))
    one = simulate_step(changed(BERT, devices=64), replace(FALCON, accelerators=many), steps=1)
    assert 0.1 < one.step_seconds < 2
    assert simulated(changed(BERT, bucket_bytes=1024), FALCON).step_seconds > 10
