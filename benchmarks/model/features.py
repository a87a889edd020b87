"""The features of a run and its topology for the formula, and its memory requirement."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields

import numpy as np

from benchmarks.model.reference_data import (
    ACROSS_HOST,
    BETWEEN_DRAWERS,
    CORE_RATE,
    DATA_SETS,
    DEFAULT_DATA_SET,
    GLOO_LOOPBACK,
    HOST_MEMORY_RATE,
    LANE_RATES,
    MESH_LINKS,
    NVLINK_ALL_REDUCE,
    NVLINK_PAIR,
    PARAMETER_INDEX,
    SAME_SWITCH,
    WORKLOAD_FAMILY,
    X16_GEN3_RATE,
    Floats,
    GpuEdge,
    device_datasheet,
    drive_datasheet,
)
from benchmarks.model.topology import LOCAL, Accelerator, PcieLink, Topology
from benchmarks.workloads import costs as workload_costs
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
    core: int
    device: int
    loader: int
    site: float  # flags are 0 or 1; this one: runs here, and is no published rate
    on_cpu: float
    mixed: float
    tensor: float  # computes in fp16 or bf16 units
    single: float
    ddp: float
    dp: float
    sharded: float
    compiled: float
    inline: float  # the training process loads its own samples
    devices: float
    accumulation: float
    flops_seconds: float  # of one batch at the peak rate
    memory_seconds: float  # of one batch at the memory's rate
    operations: float
    optimiser_seconds: float
    late: float
    gradient_bytes: float
    weight_bytes: float  # in the precision of the arithmetic
    bucket_bytes: float
    nvlink_rate: float
    switch_rate: float
    across_rate: float
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
    values = ((name, getattr(found, name)) for name in FEATURE_NAMES)
    if not all(value >= 0 and (value < NO_EDGE or name.endswith("_rate")) for name, value in values):
        raise ModelError(_(IMPOSSIBLE_INPUT))
    return found


def _features_of(spec: Spec, topology: Topology) -> Features:
    costs, accelerators = costs_of(spec), accelerators_used(spec, topology)
    if is_link_workload(spec):
        raise ModelError(_("{workload} measures links: it has no training step.", workload=spec.workload))
    family = WORKLOAD_FAMILY[spec.workload]
    devices = spec.devices
    flops_seconds, memory_seconds, optimiser_rate, kind, tensor = _processor(spec, topology, accelerators)
    width = VALUE_BYTES[spec.precision]
    edges = ring_edges(spec, topology, accelerators)
    first_rate = uplink_rate(accelerators[0], topology) if accelerators else HOST_MEMORY_RATE
    moment_bytes = OPTIMISER_BYTES[family] + (MIXED_BYTES if spec.precision != "fp32" else 0.0)
    shard = devices if spec.strategy == "sharded" else 1
    cores = max(1.0, float(topology.cores))
    workers = spec.loader_workers * (1 if spec.strategy == "dp" else devices)
    samples = float(spec.global_batch)
    data = DATA_SETS.get(spec.workload, DEFAULT_DATA_SET)
    # If the data set fits into the host's memory, only the first pass reads the drive.
    from_drive = max(1 / data.epochs, 1 - min(1.0, 0.8 * topology.memory_bytes / data.bytes))
    drive = min(drive_datasheet(topology.storage.model).rate, storage_link_rate(topology))
    return Features(
        family=PARAMETER_INDEX[f"family:{family}"],
        workload=PARAMETER_INDEX[f"workload:{spec.workload}"],
        half=PARAMETER_INDEX[f"half:{spec.workload}"],
        core=PARAMETER_INDEX[f"core:{spec.workload}"],
        device=PARAMETER_INDEX[f"device:{kind}"],
        loader=PARAMETER_INDEX["scenes" if spec.workload == "yolov5l" else LOADER_PARAMETERS[family]],
        site=1.0,
        on_cpu=float(spec.backend == "cpu"),
        mixed=float(spec.precision != "fp32"),
        tensor=float(tensor),
        single=float(devices == 1 or spec.strategy == "single"),
        ddp=float(devices > 1 and spec.strategy == "ddp"),
        dp=float(devices > 1 and spec.strategy == "dp"),
        sharded=float(devices > 1 and spec.strategy == "sharded"),
        compiled=float(spec.compile),
        inline=float(spec.loader_workers == 0),
        devices=float(devices),
        accumulation=float(spec.accumulation),
        flops_seconds=spec.batch * costs.flops * flops_seconds,
        memory_seconds=spec.batch * costs.activation_bytes * (width / 4) * MEMORY_PASSES * memory_seconds,
        operations=3.0 * costs.operations,
        optimiser_seconds=costs.parameters * moment_bytes / shard * optimiser_rate,
        late=costs.late_share,
        gradient_bytes=costs.parameters * VALUE_BYTES[spec.gradient],
        weight_bytes=costs.parameters * (VALUE_BYTES[spec.precision] if spec.strategy == "sharded" else 4.0),
        bucket_bytes=float(spec.bucket_bytes),
        decode=samples * costs.device_bytes,
        host_cores=cores,
        cores=min(cores, float(workers or (1 if spec.strategy == "dp" else devices))),
        read_seconds=samples * costs.input_bytes * from_drive / drive,
        samples=samples,
        copy_bytes=samples / devices * costs.device_bytes,
        copy_seconds=_copy_seconds(spec, topology, accelerators, costs),
        scatter_seconds=samples * costs.device_bytes / first_rate,
        chassis_devices=float(sum(device.place != LOCAL for device in accelerators)),
        **edges,
    )


def _processor(
    spec: Spec, topology: Topology, accelerators: Sequence[Accelerator]
) -> tuple[float, float, float, str, bool]:
    """Return of the slowest device: s an operation, s a byte of activations and of weights, its name, tensor units."""
    if spec.backend == "cpu":
        # Processes share the cores and the memory of one host.
        cores = topology.cores if spec.threads == 0 else min(topology.cores, spec.threads * spec.devices)
        memory = spec.devices / HOST_MEMORY_RATE
        return spec.devices / (max(1, cores) * CORE_RATE), memory, memory, "other", False
    slowest = min((device_datasheet(device.model) for device in accelerators), key=lambda facts: facts.single)
    rate = {"fp32": slowest.single, "fp16": slowest.half, "bf16": slowest.bf16}[spec.precision]
    memory = 1 / slowest.memory_rate
    return 1 / rate, memory, memory, slowest.name, rate > 1.5 * slowest.single


def ring_edges(spec: Spec, topology: Topology, accelerators: Sequence[Accelerator]) -> dict[str, float]:
    """Return the slowest edge of each kind in a ring that visits one place after the other, and its hops.

    Devices of a place are adjacent, so each uplink carries one stream each way for any number of devices below it.
    """
    rates = {"nvlink": NO_EDGE, "switch": NO_EDGE, "across": NO_EDGE, "loopback": NO_EDGE}
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
            rates["across"] = min(rates["across"], edge.rate * narrowest / X16_GEN3_RATE)
    return {
        **{f"{kind}_rate": rate for kind, rate in rates.items()},
        "hop_seconds": hops,
        "uplinked": float(any(device.place != LOCAL for device in accelerators) and rates["across"] < NO_EDGE),
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
INDEX_FEATURES = frozenset({"family", "workload", "half", "core", "device", "loader"})


def feature_columns(cells: Sequence[Features]) -> dict[str, Floats]:
    """Return each field as a row over all cells; those of INDICES as whole numbers."""
    return {
        name: np.array([getattr(cell, name) for cell in cells], dtype=np.intp if name in INDEX_FEATURES else np.float64)
        for name in FEATURE_NAMES
    }


# Bytes a parameter. The optimiser keeps one value (momentum) or two (Adam); DDP copies gradients into its buckets.
WEIGHT_BYTES, GRADIENT_BYTES, BUCKET_BYTES = 4.0, 4.0, 4.0
MOMENT_BYTES = {"convolution": 4.0, "depthwise": 4.0, "transformer": 8.0}
CUDA_CONTEXT_BYTES, CPU_PROCESS_BYTES = 1.0e9, 0.4e9  # bytes of a process before anything is trained
FRAGMENTATION = 1.05  # of what the allocator holds against what is used
GATHERED_SHARE = 0.1  # of the weights, whole at a time when sharded
# Of a device's memory the driver keeps a little for itself.
USABLE_SHARE = 0.98


def memory_bytes(spec: Spec) -> float:
    """Return the bytes of memory that a run needs on one device, on the CPU backend those of one process.

    Weights, gradients, optimiser, tensors kept for the backward pass, and the runtime. Raises ModelError for a workload
    without a model.
    """
    costs = costs_of(spec)
    fixed = CPU_PROCESS_BYTES if spec.backend == "cpu" else CUDA_CONTEXT_BYTES
    if is_link_workload(spec):
        return fixed + costs.activation_bytes
    width = VALUE_BYTES[spec.precision]
    each = WEIGHT_BYTES + GRADIENT_BYTES + MOMENT_BYTES[WORKLOAD_FAMILY[spec.workload]]
    if spec.devices > 1 and spec.strategy == "sharded":
        weights = each / spec.devices + GATHERED_SHARE * width
    else:
        # Mixed precision keeps a copy of the weights in half width while a batch is computed.
        weights = each + (width if spec.precision != "fp32" else 0.0)
        weights += BUCKET_BYTES if spec.devices > 1 else 0.0
    activations = spec.batch * costs.activation_bytes * width / 4
    return fixed + FRAGMENTATION * (costs.parameters * weights + activations)


def fits(spec: Spec, topology: Topology) -> str:
    """Return '' if the run fits, else a sentence with the required and the available memory. Raises ModelError."""
    needed = memory_bytes(spec)
    if spec.backend == "cpu":
        processes = math.ceil(spec.devices / spec.hosts)  # of the host that has the most
        total = needed * processes
        if total <= USABLE_SHARE * topology.memory_bytes:
            return ""
        return _(
            "It needs about {needed:.1f} GB of the host's memory for {devices} processes, and the host has "
            "{total:.1f} GB.",
            needed=total / 1e9,
            devices=processes,
            total=topology.memory_bytes / 1e9,
        )
    devices = accelerators_used(spec, topology)
    if not devices:
        return ""
    smallest = min(devices, key=lambda device: device.memory_bytes)
    if needed <= USABLE_SHARE * smallest.memory_bytes:
        return ""
    return _(
        "It needs about {needed:.1f} GB a device, and {name} ({model}) has {memory:.1f} GB: choose a smaller "
        "batch, mixed precision or sharding.",
        needed=needed / 1e9,
        name=smallest.name,
        model=smallest.model,
        memory=smallest.memory_bytes / 1e9,
    )
