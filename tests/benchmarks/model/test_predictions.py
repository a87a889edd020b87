"""A prediction, its terms and what it rests on."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from benchmarks.model import (
    ModelError,
    fits,
    link_tables,
    memory_bytes,
    paper_cells,
    predict,
    prior,
    refit,
    step_seconds,
)
from benchmarks.model.calibration import PAPER_TOPOLOGIES, Observation, paper_spec
from benchmarks.model.topology import Accelerator, Topology
from benchmarks.workloads.catalogue import CATALOGUE, spec_of
from hostwire.training import Spec

BERT = paper_spec("bert_large")
LOCAL_GPUS, HYBRID_GPUS, FALCON_GPUS = (PAPER_TOPOLOGIES[name] for name in ("localGPUs", "hybridGPUs", "falconGPUs"))


def changed(spec: Spec, **fields: object) -> Spec:
    return msgspec.structs.replace(spec, **fields)


def single(model: str) -> Topology:
    return replace(LOCAL_GPUS, accelerators=(Accelerator(name="GPU", model=model, memory_bytes=80e9),))


@pytest.mark.parametrize(("workload", "configuration", "spec", "topology"), paper_cells())
def test_terms_add_up_to_the_step_inside_its_interval(
    workload: str, configuration: str, spec: Spec, topology: Topology
) -> None:
    found = predict(spec, topology)
    assert sum(term.seconds for term in found.terms) == pytest.approx(found.step_seconds, rel=1e-6)
    assert [term.name for term in found.terms] == ["compute", "communication", "input", "optimiser"]
    assert all(term.why and term.source and term.seconds >= -1e-9 for term in found.terms)
    assert found.interval.low < found.step_seconds < found.interval.high
    assert found.samples_per_second == pytest.approx(spec.global_batch / found.step_seconds)
    assert 0 < found.utilisation <= 1
    assert found.basis == "prior"
    assert found.fits == ""


def test_the_same_question_has_the_same_answer() -> None:
    assert predict(BERT, FALCON_GPUS) == predict(BERT, FALCON_GPUS)


def test_chassis_count_no_traffic_of_local_gpus_nor_of_a_drive() -> None:
    assert predict(BERT, LOCAL_GPUS).pcie_bytes_per_second == 0
    assert predict(BERT, PAPER_TOPOLOGIES["falconNVMe"]).pcie_bytes_per_second == 0


def test_traffic_of_devices_adds_up_to_the_chassis_traffic() -> None:
    found = predict(BERT, HYBRID_GPUS)
    chassis = {device.name for device in HYBRID_GPUS.accelerators if device.place != "local"}
    total = sum(sum(both) for name, both in found.pcie_bytes.items() if name in chassis)
    assert total / found.step_seconds == pytest.approx(found.pcie_bytes_per_second, rel=1e-6)
    # Of four local GPUs on NVLink only the ends of their chain send and receive gradients over PCIe.
    sending = [name for name, (_to, back) in found.pcie_bytes.items() if name not in chassis and back]
    assert len(sending) == 1


def test_a_single_device_exchanges_nothing() -> None:
    found = predict(changed(BERT, devices=1, strategy="single"), FALCON_GPUS)
    assert found.terms[1].seconds == 0
    assert all(back == 0 for _to, back in found.pcie_bytes.values())


def test_links_across_the_host_cost_more_than_nvlink_and_large_models_more_than_small_ones() -> None:
    def overhead(workload: str) -> float:
        spec = paper_spec(workload)
        return predict(spec, FALCON_GPUS).step_seconds / predict(spec, LOCAL_GPUS).step_seconds

    assert overhead("bert_large") > overhead("bert_base") > overhead("mobilenet_v2") >= 0.999


def test_overlap_hides_communication_that_dp_shows() -> None:
    ddp, dp = (predict(changed(BERT, strategy=name), LOCAL_GPUS) for name in ("ddp", "dp"))
    assert dp.step_seconds > ddp.step_seconds


def test_mixed_precision_is_faster_and_smaller() -> None:
    full, mixed = (predict(changed(BERT, precision=name, batch=4), LOCAL_GPUS) for name in ("fp32", "fp16"))
    assert mixed.step_seconds < full.step_seconds
    assert mixed.memory_bytes < full.memory_bytes


def test_half_width_gradients_halve_what_is_sent() -> None:
    whole, half = (predict(changed(BERT, gradient=name), FALCON_GPUS) for name in ("fp32", "fp16"))
    name = FALCON_GPUS.accelerators[0].name
    assert half.pcie_bytes[name][1] == pytest.approx(whole.pcie_bytes[name][1] / 2)
    assert half.step_seconds < whole.step_seconds


def test_sharding_makes_room_for_a_larger_batch() -> None:
    whole, sharded = changed(BERT, batch=10), changed(BERT, batch=10, strategy="sharded")
    assert memory_bytes(sharded) < memory_bytes(whole) - 3e9
    assert fits(changed(BERT, batch=20, precision="fp32"), LOCAL_GPUS)
    assert fits(sharded, LOCAL_GPUS) == ""


def test_too_little_memory_is_told_with_both_numbers() -> None:
    spec = changed(BERT, batch=40)
    sentence = predict(spec, LOCAL_GPUS).fits
    assert f"{memory_bytes(spec) / 1e9:.1f} GB" in sentence
    assert "16.0 GB" in sentence


def test_a_cpus_memory_is_shared_by_its_processes() -> None:
    spec = spec_of("bert_large", "custom", {"backend": "cpu", "precision": "fp32", "devices": 8, "batch": 16})
    assert "8 processes" in fits(spec, Topology(memory_bytes=32e9))
    assert fits(spec, Topology(memory_bytes=756e9)) == ""


def test_too_few_devices_are_refused_with_both_numbers() -> None:
    with pytest.raises(ModelError, match="9 devices, but the topology has 8"):
        predict(changed(BERT, devices=9), LOCAL_GPUS)


def test_nothing_is_said_of_a_users_command() -> None:
    with pytest.raises(ModelError, match="command"):
        predict(Spec(workload="command", command=("true",)), LOCAL_GPUS)
    with pytest.raises(ModelError, match="efficient"):
        predict(Spec(workload="efficientnet"), LOCAL_GPUS)


@pytest.mark.parametrize("slow", ["P100-PCIE-16GB", "Tesla K80"])
@pytest.mark.parametrize("fast", ["NVIDIA A100-SXM4-40GB", "NVIDIA H100 PCIe", "NVIDIA H100 80GB HBM3", "NVIDIA H200"])
def test_devices_rank_as_their_data_sheets(slow: str, fast: str) -> None:
    spec = changed(BERT, devices=1, strategy="single")
    steps = [predict(spec, single(model)).step_seconds for model in (slow, "Tesla V100-PCIE-16GB", fast)]
    assert steps == sorted(steps, reverse=True)


def test_an_unknown_device_is_named_and_much_doubted() -> None:
    # With a batch of some size, as a fast device would wait for operations to be started.
    spec = changed(BERT, devices=1, strategy="single", batch=24)
    known, unknown = (predict(spec, single(model)) for model in ("V100-PCIE-16GB", "Wonder 9"))
    assert "'Wonder 9'" in unknown.basis_sentence
    assert unknown.interval.high / unknown.interval.low > 3 * known.interval.high / known.interval.low


def test_the_slowest_of_mixed_devices_sets_the_pace() -> None:
    mixed = replace(
        LOCAL_GPUS,
        accelerators=(*LOCAL_GPUS.accelerators[:7], Accelerator(name="old", model="P100-PCIE-16GB")),
        local_fabric="pcie",
    )
    assert predict(BERT, mixed).terms[0].seconds > 1.5 * predict(BERT, LOCAL_GPUS).terms[0].seconds


def test_a_measured_cell_shrinks_to_what_was_measured() -> None:
    runs = [Observation(spec=BERT, topology=FALCON_GPUS, step_seconds=0.6, spread=0.01)]
    before, after = predict(BERT, FALCON_GPUS), predict(BERT, FALCON_GPUS, refit(runs))
    assert after.basis == "measured"
    assert "one run" in after.basis_sentence
    assert after.step_seconds == pytest.approx(0.6, rel=0.02)
    assert after.interval.high / after.interval.low < 1.1 < before.interval.high / before.interval.low
    assert sum(term.seconds for term in after.terms) == pytest.approx(after.step_seconds, rel=1e-6)


def test_equal_topologies_are_one_whatever_hosts_and_places_are_called() -> None:
    drawers = {"falcon-1/drawer 1/H1": "b/1/H3", "falcon-1/drawer 2/H2": "a/2/H4"}
    there = FALCON_GPUS
    other = replace(
        there,
        name="elsewhere",
        host="node-7",
        accelerators=tuple(
            replace(device, name=f"x{index}", place=drawers[device.place])
            for index, device in enumerate(there.accelerators)
        ),
        uplinks={drawers[place]: link for place, link in there.uplinks.items()},
    )
    belief = refit([Observation(spec=BERT, topology=other, step_seconds=0.5)])
    assert predict(BERT, there, belief).basis == "measured"
    assert predict(BERT, HYBRID_GPUS, belief).basis == "calibrated"


def test_runs_of_a_workload_calibrate_its_other_cells() -> None:
    belief = refit([Observation(spec=BERT, topology=LOCAL_GPUS, step_seconds=0.25, spread=0.01)])
    # The ends of an interval scatter by their draws, which are others for each set of workloads.
    before, after = predict(BERT, HYBRID_GPUS, count=20_000), predict(BERT, HYBRID_GPUS, belief, count=20_000)
    assert after.basis == "calibrated"
    assert after.step_seconds > before.step_seconds  # slower here than published rates say, so slower there
    assert np.log(after.interval.high / after.interval.low) < np.log(before.interval.high / before.interval.low)
    assert predict(paper_spec("resnet50"), HYBRID_GPUS, belief).basis == "prior"


def test_repeated_runs_narrow_an_interval_and_contradicting_ones_leave_it_between() -> None:
    def interval_of(*seconds: float) -> tuple[float, float]:
        runs = [Observation(spec=BERT, topology=LOCAL_GPUS, step_seconds=one) for one in seconds]
        interval = predict(BERT, LOCAL_GPUS, refit(runs)).interval
        return interval.low, interval.high

    one, nine = interval_of(0.2), interval_of(*[0.2] * 9)
    assert nine[1] - nine[0] < one[1] - one[0]
    assert 0.2 < interval_of(0.2, 0.24)[0] < interval_of(0.2, 0.24)[1] < 0.24


def test_measured_traffic_corrects_predicted_traffic() -> None:
    before = predict(BERT, FALCON_GPUS)
    run = Observation(
        spec=BERT,
        topology=FALCON_GPUS,
        step_seconds=before.step_seconds,
        traffic=1.6 * before.pcie_bytes_per_second,
    )
    after = predict(BERT, FALCON_GPUS, refit([run]))
    assert after.pcie_bytes_per_second > 1.2 * before.pcie_bytes_per_second


def test_runs_without_figures_teach_nothing() -> None:
    nothing = [
        Observation(spec=BERT, topology=LOCAL_GPUS, step_seconds=0.0),
        Observation(spec=BERT, topology=LOCAL_GPUS, step_seconds=float("nan")),
        Observation(spec=BERT, topology=LOCAL_GPUS, step_seconds=0.2, spread=float("inf")),
        Observation(spec=changed(BERT, devices=9), topology=LOCAL_GPUS, step_seconds=0.2),
        Observation(spec=Spec(workload="command", command=("true",)), topology=LOCAL_GPUS, step_seconds=1.0),
    ]
    belief = refit(nothing)
    assert belief.runs == {}
    assert predict(BERT, LOCAL_GPUS, belief).step_seconds == pytest.approx(predict(BERT, LOCAL_GPUS).step_seconds)


def test_a_wild_outlier_widens_intervals_and_breaks_nothing() -> None:
    good = [Observation(spec=BERT, topology=topology, step_seconds=0.2) for topology in (LOCAL_GPUS,)]
    wild = Observation(spec=BERT, topology=FALCON_GPUS, step_seconds=1e6)
    found = predict(BERT, HYBRID_GPUS, refit([*good, wild]))
    assert np.isfinite(found.step_seconds)
    assert found.interval.high / found.interval.low > predict(BERT, HYBRID_GPUS).interval.high / 0.65


def test_many_cells_are_drawn_as_one_by_one() -> None:
    cells = [(spec, topology) for _workload, _configuration, spec, topology in paper_cells()]
    draws = prior().draws(50, 3)
    together = step_seconds(draws, cells)
    assert together.shape == (50, 25)
    for column, cell in enumerate(cells):
        assert step_seconds(draws, [cell])[:, 0] == pytest.approx(together[:, column], rel=1e-12)
    assert step_seconds(draws, []).shape == (50, 0)


@pytest.mark.parametrize("name", [name for name, workload in CATALOGUE.items() if workload.family != "command"])
@pytest.mark.parametrize("preset", ["tiny", "paper", "custom"])
def test_each_preset_of_each_workload_has_a_prediction(name: str, preset: str) -> None:
    spec = spec_of(name, preset, {})
    found = predict(spec, Topology(cores=4) if spec.backend == "cpu" else FALCON_GPUS)
    assert 0 < found.interval.low < found.step_seconds < found.interval.high < 1000
    assert found.terms
    assert found.memory_bytes > 0


def test_link_tests_find_the_published_table() -> None:
    tables = link_tables(spec_of("gpu_bandwidth", "paper", {}), HYBRID_GPUS, prior().mean)
    assert tables["bandwidth"][0][0] is None
    assert tables["bandwidth"][0][1] == pytest.approx(72.37)
    assert tables["bandwidth"][0][4] == pytest.approx(19.64)
    assert tables["bandwidth"][4][5] == pytest.approx(24.47)
    assert tables["latency"][0][1] == pytest.approx(1.85)
    assert tables["latency"][4][5] == pytest.approx(2.08)
    assert tables["latency"][0][4] == pytest.approx(2.66)


def test_all_reduce_over_eight_v100_with_nvlink_reaches_about_its_published_bus_bandwidth() -> None:
    spec = spec_of("all_reduce", "paper", {"least_bytes": 2**26})
    assert 100 < link_tables(spec, LOCAL_GPUS, prior().mean)["bus_bandwidth"] < 135
