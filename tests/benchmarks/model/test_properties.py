"""What holds of every prediction, whatever is asked."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.model import memory_bytes, predict, prior, step_seconds
from benchmarks.model.calibration import PAPER_LOCAL_GPU
from benchmarks.model.topology import LOCAL, Accelerator, PcieLink, Storage, Topology
from benchmarks.workloads.catalogue import CATALOGUE, spec_of
from hostwire.training import Spec

TRAINED = [name for name, workload in CATALOGUE.items() if workload.is_training]
QUICK = settings(max_examples=40, deadline=None)
LANES = [1, 2, 4, 8, 16]
MODELS = ["V100-PCIE-16GB", "P100-PCIE-16GB", "A100-PCIE-40GB", "H100-PCIE-80GB", "unheard of"]


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    local = draw(st.integers(0, 8))
    places = draw(st.lists(st.sampled_from(["a/1/H1", "a/2/H2", "b/1/H1"]), max_size=8))
    devices = [Accelerator(name=f"local {index}", model=PAPER_LOCAL_GPU) for index in range(local)]
    devices += [
        Accelerator(
            name=f"far {index}",
            model=draw(st.sampled_from(MODELS)),
            place=place,
            link=PcieLink(lanes=draw(st.sampled_from(LANES)), generation=draw(st.integers(1, 4))),
        )
        for index, place in enumerate(places)
    ]
    storage = Storage(place=draw(st.sampled_from([LOCAL, *sorted(set(places))])))
    return Topology(
        cores=draw(st.integers(1, 128)),
        accelerators=tuple(devices or [Accelerator(name="one", model=PAPER_LOCAL_GPU)]),
        storage=storage,
        uplinks={
            place: PcieLink(lanes=draw(st.sampled_from(LANES)), generation=draw(st.integers(1, 4)))
            for place in sorted({*places, storage.place} - {LOCAL})
        },
        local_fabric=draw(st.sampled_from(["nvlink", "pcie"])),
    )


@st.composite
def cells(draw: st.DrawFn) -> tuple[Spec, Topology]:
    topology = draw(topologies())
    devices = draw(st.integers(1, len(topology.accelerators)))
    given_fields: dict[str, object] = {
        "devices": devices,
        "batch": draw(st.integers(2, 256)),
        "accumulation": draw(st.integers(1, 4)),
        "precision": draw(st.sampled_from(["fp32", "fp16", "bf16"])),
        "strategy": "single" if devices == 1 else draw(st.sampled_from(["dp", "ddp", "sharded"])),
        "compile": draw(st.booleans()),
        "loader_workers": draw(st.integers(0, 16)),
        "bucket_bytes": draw(st.sampled_from([2**20, 25 * 2**20, 2**30])),
    }
    return spec_of(draw(st.sampled_from(TRAINED)), "custom", given_fields), topology


def steps(spec: Spec, topology: Topology) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return step_seconds(prior().draws(40, 1), [(spec, topology)], misfit=False)[:, 0]


def wider(link: PcieLink) -> PcieLink:
    return PcieLink(lanes=16, generation=max(4, link.generation))


@QUICK
@given(cells())
def test_predictions_are_finite_positive_and_ordered(cell: tuple[Spec, Topology]) -> None:
    spec, topology = cell
    found = predict(spec, topology, count=50)
    assert 0 < found.interval.low <= found.step_seconds <= found.interval.high < np.inf
    assert abs(sum(term.seconds for term in found.terms) - found.step_seconds) < 1e-6 * found.step_seconds
    assert all(np.isfinite(both).all() and min(both) >= 0 for both in found.pcie_bytes.values())


@QUICK
@given(cells())
def test_more_bandwidth_is_never_slower(cell: tuple[Spec, Topology]) -> None:
    spec, topology = cell
    better = replace(
        topology,
        accelerators=tuple(replace(device, link=wider(device.link)) for device in topology.accelerators),
        uplinks={place: wider(link) for place, link in topology.uplinks.items()},
        storage=replace(topology.storage, link=wider(topology.storage.link)),
    )
    assert np.all(steps(spec, better) <= steps(spec, topology) * (1 + 1e-9))


@QUICK
@given(cells(), st.integers(1, 64))
def test_a_larger_batch_never_makes_a_shorter_step_nor_needs_less_memory(
    cell: tuple[Spec, Topology], more: int
) -> None:
    spec, topology = cell
    larger = msgspec.structs.replace(spec, batch=spec.batch + more)
    assert np.all(steps(larger, topology) >= steps(spec, topology) * (1 - 1e-9))
    assert memory_bytes(larger) > memory_bytes(spec)


@QUICK
@given(cells())
def test_more_cores_and_more_loaders_are_never_slower(cell: tuple[Spec, Topology]) -> None:
    spec, topology = cell
    more = msgspec.structs.replace(spec, loader_workers=spec.loader_workers + 1)
    assert np.all(steps(spec, replace(topology, cores=topology.cores * 2)) <= steps(spec, topology) * (1 + 1e-9))
    assert np.all(steps(more, topology) <= steps(spec, topology) * (1 + 1e-9))


@QUICK
@given(cells())
def test_traffic_in_chassis_is_zero_without_devices_there_and_never_more_than_their_links_carry(
    cell: tuple[Spec, Topology],
) -> None:
    spec, topology = cell
    far = [device for device in topology.accelerators[: spec.devices] if device.place != LOCAL]
    assert (predict(spec, topology, count=20).pcie_bytes_per_second > 0) == bool(far)


@QUICK
@given(cells())
def test_twice_the_accumulation_is_at_most_twice_the_step(cell: tuple[Spec, Topology]) -> None:
    spec, topology = cell
    twice = msgspec.structs.replace(spec, accumulation=2 * spec.accumulation)
    ratio = steps(twice, topology) / steps(spec, topology)
    assert np.all((ratio >= 1 - 1e-9) & (ratio <= 2 * (1 + 1e-9)))
