"""The published experiment: five workloads on five configurations of one host."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from benchmarks.model.facts import LOCAL_STORAGE
from benchmarks.model.shapes import LOCAL, Accelerator, Link, Storage, Topology
from benchmarks.workloads.catalogue import spec_of
from hostwire.training import Spec

WORKLOADS = ("mobilenet_v2", "resnet50", "yolov5l", "bert_base", "bert_large")
CONFIGURATIONS = ("localGPUs", "hybridGPUs", "falconGPUs", "localNVMe", "falconNVMe")
DRAWERS = ("falcon-1/drawer 1/H1", "falcon-1/drawer 2/H2")
LOCAL_GPU, FALCON_GPU, DRIVE = "V100-SXM2-16GB", "V100-PCIE-16GB", "SSDPEDKX040T7"


def paper_spec(workload: str) -> Spec:
    """Return what the published experiment runs of a workload."""
    return spec_of(workload, "paper", {})


def _local(count: int) -> tuple[Accelerator, ...]:
    return tuple(Accelerator(name=f"local GPU {index}", model=LOCAL_GPU) for index in range(count))


def _falcon(drawer: int, count: int) -> tuple[Accelerator, ...]:
    return tuple(
        Accelerator(name=f"drawer {drawer + 1} GPU {index}", model=FALCON_GPU, place=DRAWERS[drawer])
        for index in range(count)
    )


def _host(name: str, accelerators: tuple[Accelerator, ...], storage: Storage) -> Topology:
    places = {device.place for device in accelerators} | {storage.place}
    return Topology(
        name=name,
        host="host",
        accelerators=accelerators,
        storage=storage,
        uplinks={place: Link() for place in sorted(places - {LOCAL})},
    )


def local_gpus() -> Topology:
    """Eight local GPUs, local storage: the slower end of a disk, where localNVMe names its own."""
    return _host("localGPUs", _local(8), Storage(model=LOCAL_STORAGE))


def hybrid_gpus() -> Topology:
    """Four local GPUs and two in each of two drawers."""
    return _host("hybridGPUs", (*_local(4), *_falcon(0, 2), *_falcon(1, 2)), Storage(model=LOCAL_STORAGE))


def falcon_gpus() -> Topology:
    """Four GPUs in each of two drawers, each drawer at its own host port."""
    return _host("falconGPUs", (*_falcon(0, 4), *_falcon(1, 4)), Storage(model=LOCAL_STORAGE))


def local_nvme() -> Topology:
    """Eight local GPUs, an NVMe drive in the host."""
    return _host("localNVMe", _local(8), Storage(model=DRIVE))


def falcon_nvme() -> Topology:
    """Eight local GPUs, an NVMe drive in a drawer."""
    return _host("falconNVMe", _local(8), Storage(model=DRIVE, place=DRAWERS[0]))


CELLS: Mapping[str, Topology] = MappingProxyType(
    {topology.name: topology for topology in (local_gpus(), hybrid_gpus(), falcon_gpus(), local_nvme(), falcon_nvme())}
)


def paper_cells() -> list[tuple[str, str, Spec, Topology]]:
    """Return the 25 cells: workload, configuration, what runs and where."""
    return [
        (workload, configuration, paper_spec(workload), CELLS[configuration])
        for workload in WORKLOADS
        for configuration in CONFIGURATIONS
    ]
