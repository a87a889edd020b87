"""The features of a run and its topology for the formula."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from benchmarks.model.reference_data import (
    ACROSS_HOST,
    BETWEEN_DRAWERS,
    CORE_RATE,
    GLOO_LOOPBACK,
    HOST_MEMORY_RATE,
    LANE_RATES,
    LOCAL_STORAGE,
    MESH_LINKS,
    NVLINK_ALL_REDUCE,
    NVLINK_PAIR,
    PARAMETER_INDEX,
    SAME_SWITCH,
    UNKNOWN_DEVICE,
    WORKLOAD_FAMILY,
    X16_GEN3_RATE,
    Floats,
    GpuEdge,
    device_datasheet,
    drive_datasheet,
    workload_data_set,
)
from benchmarks.model.topology import LOCAL, Accelerator, PcieLink, Topology
from benchmarks.workloads import costs as workload_costs
from benchmarks.workloads.catalogue import workload_title
from benchmarks.workloads.definitions import Costs
from core.language import _, gettext_noop
from hostwire.training import Spec

VALUE_BYTES = {"fp32": 4.0, "fp16": 2.0, "bf16": 2.0}  # bytes of a value
# A kept value is written and read forward, read again backward, and its gradient is written and read.
MEMORY_PASSES = 5.0
LINK_WORKLOADS = ("gpu_bandwidth", "all_reduce", "host_copy", "storage_read")
# Bytes of memory for each parameter in an optimiser's step: SGD with momentum reads three and writes two values, Adam
# reads four and writes three.
OPTIMISER_BYTES = {"convolution": 20.0, "depthwise": 20.0, "transformer": 28.0}
LOADER_PARAMETERS = {"convolution": "images", "depthwise": "images", "transformer": "tokens"}
MIXED_BYTES = 8.0  # scaled gradients are read and written once more
NO_EDGE = math.inf
IMPOSSIBLE_INPUT = (
    gettext_noop("Its sizes or its links are impossible: there is no prediction.")  # of a record from elsewhere, mostly
)


class ModelError(ValueError):
    """The model does not cover a run; its text is a sentence with the reason."""

    def __init__(self, sentence: str) -> None:
        self.sentence = sentence
        super().__init__(sentence)


@dataclass(frozen=True, kw_only=True)
class Features:
    """One cell as input of the formula; values are of one step on one device unless stated otherwise.

    Seconds and bytes are nominal: parameters scale them. Rates of edges are inf where a ring has no such edge.
    """

    family: int  # indices of parameters
    workload: int
    half: int
    reached: int
    core: int
    device: int
    loader: int
    foreign: float  # of another generation than the V100: memory-bound operations feel its factor, too
    newer: float  # than the V100
    faster_units: float  # of matrices than a V100's, as an exponent: 0 for as fast, 1 for an H100's
    guest: float  # a measured step of a virtual machine, which starts operations at a rate of its own
    site: float  # flags are 0 or 1; this one: runs here, and is no published rate
    on_cpu: float
    mixed: float
    planar: float  # mixed-precision convolutions in PyTorch's default layout
    single: float
    ddp: float
    dp: float
    sharded: float
    compiled: float
    inline: float  # the training process loads its own samples
    devices: float
    accumulation: float
    flops_seconds: float  # of one batch at the peak rate
    winograd_seconds: float  # of these, those that Winograd shortens
    memory_seconds: float  # of one batch at the memory's rate
    operations: float
    optimiser_seconds: float
    update_tensors: float  # whose update is started in a step
    late: float
    gradient_bytes: float
    bucket_copy_seconds: float  # of the gradients once through device memory
    rented: float  # a published rate of a host whose fabric is not NVIDIA's
    weight_bytes: float  # in the precision of the arithmetic
    bucket_bytes: float
    nvlink_rate: float
    switch_rate: float
    across_rate: float
    drawers_rate: float
    loopback_rate: float
    hop_seconds: float  # all hops of one way round
    uplinked: float
    copy_bytes: float
    copy_seconds: float
    scatter_seconds: float  # DP: all samples through the first device's link
    decode: float  # bytes of tensors made a step, over all devices
    cores: float  # that load samples
    host_cores: float
    read_seconds: float
    samples: float
    chassis_devices: float


def link_rate(link: PcieLink) -> float:
    """Return the rate of a link one way, bytes a second."""
    return link.lanes * LANE_RATES.get(link.generation, LANE_RATES[max(LANE_RATES)])


def costs_of(spec: Spec) -> Costs:
    """Return the costs of one sample. Raises ModelError for a workload without a model."""
    function = (
        getattr(workload_costs, spec.workload, None)
        if spec.workload in WORKLOAD_FAMILY or is_link_workload(spec)
        else None
    )
    if function is None:
        raise ModelError(
            _("There is no model of the workload '{workload}': there is no prediction.", workload=spec.workload)
        )
    found: Costs = function(spec)
    return found


def is_link_workload(spec: Spec) -> bool:
    """Whether a workload measures links or drives, and trains nothing."""
    return spec.workload in LINK_WORKLOADS


def accelerators_used(spec: Spec, topology: Topology) -> tuple[Accelerator, ...]:
    """Return the accelerators of a run, the first ones. Raises ModelError for too few."""
    if spec.backend == "cpu":
        return ()
    if spec.devices > len(topology.accelerators):
        raise ModelError(
            _(
                "The run needs {devices} devices, but the topology has {available}: add devices, or use fewer.",
                devices=spec.devices,
                available=len(topology.accelerators),
            )
        )
    return topology.accelerators[: spec.devices]


def features_of(spec: Spec, topology: Topology) -> Features:
    """Return the features of one training run. Raises ModelError, also for impossible sizes and links."""
    try:
        found = _features_of(spec, topology)
    except ModelError:
        raise
    except (ArithmeticError, TypeError, ValueError) as error:
        raise ModelError(_(IMPOSSIBLE_INPUT)) from error
    if not (all(value >= 0 for value in _values(found)) and max(_sizes(found)) < NO_EDGE):
        raise ModelError(_(IMPOSSIBLE_INPUT))
    return found


def _features_of(spec: Spec, topology: Topology) -> Features:
    costs, accelerators = costs_of(spec), accelerators_used(spec, topology)
    if is_link_workload(spec):
        raise ModelError(
            _("{workload} measures links: it has no training step.", workload=workload_title(spec.workload))
        )
    family = WORKLOAD_FAMILY[spec.workload]
    devices = spec.devices
    facts = _processor(spec, topology, accelerators, family)
    width = VALUE_BYTES[spec.precision]
    edges = ring_edges(spec, topology, accelerators)
    first_rate = uplink_rate(accelerators[0], topology) if accelerators else HOST_MEMORY_RATE
    moment_bytes = OPTIMISER_BYTES[family] + (MIXED_BYTES if spec.precision != "fp32" else 0.0)
    shard = devices if spec.strategy == "sharded" else 1
    cores = max(1.0, float(topology.cores))
    workers = spec.loader_workers * (1 if spec.strategy == "dp" else devices)
    samples = float(spec.global_batch)
    data = workload_data_set(spec.workload)
    # If the data set fits into the host's memory, only the first pass reads the drive.
    from_drive = max(1 / data.epochs, data.uncached_share(topology.memory_bytes))
    drive = min(drive_datasheet(topology.storage.model).rate, storage_link_rate(topology))
    file_bytes = costs.input_bytes
    if generated := spec.data == "random":  # in memory, or as raw bytes past the host's cache where a drive is chosen
        from_drive, file_bytes = float(topology.storage.model != LOCAL_STORAGE), costs.device_bytes / 4
    prepared = "scenes" if spec.workload == "yolov5l" else LOADER_PARAMETERS[family]
    is_mixed = spec.precision != "fp32"
    return Features(
        family=PARAMETER_INDEX[f"family:{family}"],
        workload=PARAMETER_INDEX[f"workload:{spec.workload}"],
        half=PARAMETER_INDEX[f"half:{spec.workload}"],
        core=PARAMETER_INDEX[f"core:{spec.workload}"],
        reached=PARAMETER_INDEX[facts.reached],
        device=PARAMETER_INDEX[f"device:{facts.kind}"],
        loader=PARAMETER_INDEX[f"made:{prepared}" if generated else prepared],
        foreign=float(not facts.kind.startswith("V100")),
        newer=float(facts.newer),
        faster_units=facts.faster_units,
        guest=0.0,
        site=1.0,
        on_cpu=float(spec.backend == "cpu"),
        mixed=float(is_mixed),
        planar=float(is_mixed and spec.backend != "cpu" and family != "transformer"),
        single=float(devices == 1 or spec.strategy == "single"),
        ddp=float(devices > 1 and spec.strategy == "ddp"),
        dp=float(devices > 1 and spec.strategy == "dp"),
        sharded=float(devices > 1 and spec.strategy == "sharded"),
        compiled=float(spec.compile),
        inline=float(spec.loader_workers == 0),
        devices=float(devices),
        accumulation=float(spec.accumulation),
        flops_seconds=spec.batch * costs.flops * facts.flop_seconds,
        winograd_seconds=spec.batch
        * costs.flops
        * facts.flop_seconds
        * costs.winograd_share
        * (facts.reached == "conv_single"),
        memory_seconds=spec.batch * costs.activation_bytes * (width / 4) * MEMORY_PASSES * facts.byte_seconds,
        # A cast is undone backwards: of weights their gradient, of inputs that of the input.
        operations=3.0 * costs.operations + 2.0 * costs.casts * is_mixed,
        optimiser_seconds=costs.parameters * moment_bytes / shard * facts.byte_seconds,
        # The gradients' scaler visits each tensor, too.
        update_tensors=costs.tensors * (2.0 if spec.precision == "fp16" else 1.0),
        late=costs.late_share,
        gradient_bytes=costs.parameters * VALUE_BYTES[spec.gradient],
        bucket_copy_seconds=costs.parameters * VALUE_BYTES[spec.gradient] * facts.byte_seconds,
        rented=0.0,
        weight_bytes=costs.parameters * (VALUE_BYTES[spec.precision] if spec.strategy == "sharded" else 4.0),
        bucket_bytes=float(spec.bucket_bytes),
        decode=samples * costs.device_bytes,
        host_cores=cores,
        cores=min(cores, float(workers or (1 if spec.strategy == "dp" else devices))),
        read_seconds=samples * file_bytes * from_drive / drive,
        samples=samples,
        copy_bytes=samples / devices * costs.device_bytes,
        copy_seconds=_copy_seconds(spec, topology, accelerators, costs),
        scatter_seconds=samples * costs.device_bytes / first_rate,
        chassis_devices=float(sum(device.place != LOCAL for device in accelerators)),
        **edges,
    )


class _Processor(NamedTuple):
    """The slowest device: seconds an operation and a byte of its memory, its data sheet and share of the peak rate."""

    flop_seconds: float
    byte_seconds: float
    kind: str
    reached: str
    newer: bool = False
    faster_units: float = 0.0


def _processor(spec: Spec, topology: Topology, accelerators: Sequence[Accelerator], family: str) -> _Processor:
    if spec.backend == "cpu":
        # Processes share the cores and the memory of one host.
        cores = topology.cores if spec.threads == 0 else min(topology.cores, spec.threads * spec.devices)
        return _Processor(
            spec.devices / (max(1, cores) * CORE_RATE), spec.devices / HOST_MEMORY_RATE, UNKNOWN_DEVICE.name, "core"
        )
    slowest = min((device_datasheet(device.model) for device in accelerators), key=lambda facts: facts.single)
    is_convolution = family != "transformer"
    single = slowest.tf32 if is_convolution else slowest.single
    rate = {"fp32": single, "fp16": slowest.half, "bf16": slowest.bf16}[spec.precision]
    reached = "half" if rate > 1.5 * slowest.single else "single"  # units of matrices, or not
    return _Processor(
        1 / rate,
        1 / slowest.memory_rate,
        slowest.name,
        f"conv_{reached}" if is_convolution else reached,
        slowest.is_newer,
        slowest.faster_units if slowest.is_newer and reached == "half" else 0.0,
    )


PCIE_EDGES = ("switch", "across", "drawers")
EDGE_KINDS = ("nvlink", *PCIE_EDGES, "loopback")


def ring_edges(spec: Spec, topology: Topology, accelerators: Sequence[Accelerator]) -> dict[str, float]:
    """Return the slowest edge of each kind in a ring that visits one place after the other, and its hops.

    Devices of a place are adjacent, so each uplink carries one stream each way for any number of devices below it.
    """
    rates = dict.fromkeys(EDGE_KINDS, NO_EDGE)
    hops, devices = 0.0, spec.devices
    if devices == 1:
        pass
    elif spec.backend == "cpu":
        rates["loopback"], hops = GLOO_LOOPBACK.rate / devices, GLOO_LOOPBACK.latency * devices
    else:
        places = Counter(device.place for device in accelerators)
        for place, count in places.items():
            if count < 2:
                continue
            members = [device for device in accelerators if device.place == place]
            kind, rate, latency = edge_within_place(place, members, topology)
            rates[kind] = min(rates[kind], rate)
            hops += (count if len(places) == 1 else count - 1) * latency
        if len(places) > 1:
            edge = edge_between_places(places)
            hops += len(places) * edge.latency
            narrowest = min(uplink_rate(device, topology) for device in accelerators)
            kind = "across" if edge is ACROSS_HOST else "drawers"
            rates[kind] = min(rates[kind], edge.rate * narrowest / X16_GEN3_RATE)
    return {
        **{f"{kind}_rate": rate for kind, rate in rates.items()},
        "hop_seconds": hops,
        "uplinked": float(
            any(device.place != LOCAL for device in accelerators) and min(rates["across"], rates["drawers"]) < NO_EDGE
        ),
    }


def edge_between_places(places: Collection[str]) -> GpuEdge:
    """Return the slowest edge between devices of several places, over x16 Gen3."""
    return ACROSS_HOST if LOCAL in places else BETWEEN_DRAWERS


def edge_within_place(place: str, members: Sequence[Accelerator], topology: Topology) -> tuple[str, float, float]:
    """Return the kind of edges between devices of one place, their rate and latency."""
    narrowest = min(link_rate(device.link) for device in members) / X16_GEN3_RATE
    if place != LOCAL:
        return "switch", SAME_SWITCH.rate * narrowest, SAME_SWITCH.latency
    facts = [device_datasheet(device.model) for device in members]
    nvlink = min(device.nvlink for device in facts)
    if topology.local_fabric == "pcie" or not nvlink:
        return "across", ACROSS_HOST.rate * narrowest, ACROSS_HOST.latency
    if all(device.name == "V100-SXM2" for device in facts):
        rate = NVLINK_ALL_REDUCE * MESH_LINKS.get(len(members), 6.0) / MESH_LINKS[1]
    else:
        rate = NVLINK_ALL_REDUCE * nvlink / 300e9  # as far from its data sheet as the V100
    return "nvlink", rate, NVLINK_PAIR.latency


def uplink_rate(device: Accelerator, topology: Topology) -> float:
    """Return the rate of the narrowest link between a device and the host, bytes a second one way."""
    own = link_rate(device.link)
    uplink = topology.uplinks.get(device.place)
    return min(own, link_rate(uplink)) if uplink is not None and device.place != LOCAL else own


def _copy_seconds(spec: Spec, topology: Topology, accelerators: Sequence[Accelerator], costs: Costs) -> float:
    """Return the time of copying a step's samples to the devices: those below one uplink share it."""
    each = spec.batch * spec.accumulation * costs.device_bytes
    slowest = max((each / link_rate(device.link) for device in accelerators), default=0.0)
    below = Counter(device.place for device in accelerators if device.place != LOCAL)
    for place, count in below.items():
        uplink = topology.uplinks.get(place, PcieLink())
        slowest = max(slowest, count * each / link_rate(uplink))
    return slowest


def storage_link_rate(topology: Topology) -> float:
    """Return the rate of the narrowest link between the drive and the host."""
    storage = topology.storage
    uplink = topology.uplinks.get(storage.place)
    own = link_rate(storage.link)
    return min(own, link_rate(uplink)) if uplink is not None and storage.place != LOCAL else own


FEATURE_NAMES = tuple(field.name for field in fields(Features))
_values = attrgetter(*FEATURE_NAMES)
_sizes = attrgetter(*(name for name in FEATURE_NAMES if not name.endswith("_rate")))  # all that cannot be inf
INDEX_FEATURES = frozenset({"family", "workload", "half", "reached", "core", "device", "loader"})


def feature_columns(cells: Sequence[Features]) -> dict[str, Floats]:
    """Return each field as a row over all cells; those of INDEX_FEATURES as whole numbers."""
    table = np.array([_values(cell) for cell in cells]).reshape(len(cells), len(FEATURE_NAMES)).T
    return {
        name: row.astype(np.intp) if name in INDEX_FEATURES else row.astype(np.float64)
        for name, row in zip(FEATURE_NAMES, table, strict=True)
    }
