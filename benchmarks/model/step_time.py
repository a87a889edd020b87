"""The formula of a step, of training and of workloads that measure links.

compute   = forward and backward of all batches of the step, on the slowest device
exposed   = the part of the exchange that does not overlap with the backward pass, and its slowdown of that pass
step      = both and the optimiser, or the input pipeline if that is slower
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.model.features import (
    EDGE_KINDS,
    PCIE_EDGES,
    ModelError,
    accelerators_used,
    edge_between_places,
    edge_within_place,
    link_rate,
    ring_edges,
    storage_link_rate,
    uplink_rate,
)
from benchmarks.model.reference_data import (
    GLOO_LOOPBACK,
    HOST_MEMORY_RATE,
    NVLINK_PAIR,
    PARAMETER_INDEX,
    X16_GEN3_RATE,
    Floats,
    device_datasheet,
    drive_datasheet,
)
from benchmarks.model.topology import LOCAL, Accelerator, Topology
from benchmarks.workloads.catalogue import workload_title
from core.language import _
from hostwire.training import Spec

BACKWARD = 2 / 3  # of the time of a batch: two of its three passes
# Sharpness of the soft maximum of two times: near a tie both count, since batches and steps vary.
INPUT_SHARPNESS, LAUNCH_SHARPNESS = 6.0, 4.0


@dataclass(frozen=True)
class StepTimes:
    """Seconds of a step and its parts, draws by cells; `copied` and the following fields explain the parts."""

    step: Floats
    compute: Floats
    exposed: Floats
    optimiser: Floats
    waited: Floats
    exchange: Floats  # all of it, hidden or not
    input: Floats  # of the pipeline alone
    decode: Floats
    read: Floats
    copied: Floats
    rate: Floats  # of the slowest edge
    kernels: Floats  # of the compute, without waits for operations to be started
    updating: Floats  # of the optimiser, likewise
    memory: Floats  # of these, those of operations that the memory's rate limits


def step_times(logs: Floats, cells: Mapping[str, Floats]) -> StepTimes:
    """Return the times of cells (a row of features each) for draws of the parameters' logarithms, one a row."""
    values = np.exp(logs)
    p = _by_name(values)
    compute, batch_time, kernels, memory = _compute(values, cells)
    updating = (
        cells["optimiser_seconds"] * p("optimiser") / np.where(cells["on_cpu"] > 0, p("host_memory"), p("memory"))
    )
    optimiser = _smooth_maximum(
        updating, cells["update_tensors"] * p("update") * _start_seconds(p, cells), LAUNCH_SHARPNESS
    )
    rate = np.minimum.reduce(list(edge_rates(p, cells).values()))
    rate = rate * np.where(cells["rented"] > 0, p("rented"), 1.0)
    copied = cells["copy_seconds"] * p("sample") / p("copy")
    exposed, exchange = _communication(values, cells, batch_time, rate, copied)
    loaders = np.where(cells["site"] > 0, p("loaders"), 1.0)
    decode = cells["decode"] * values[:, cells["loader"]] * loaders / cells["cores"]
    read = cells["read_seconds"] / p("storage")
    pipeline = _smooth_maximum(_smooth_maximum(decode, read, INPUT_SHARPNESS), copied, INPUT_SHARPNESS)
    device = compute + exposed + optimiser
    step = np.where(cells["inline"] > 0, device + pipeline, _smooth_maximum(device, pipeline, INPUT_SHARPNESS))
    return StepTimes(
        step=step,
        compute=compute,
        exposed=exposed,
        optimiser=optimiser,
        waited=np.maximum(step - device, 0.0),
        exchange=exchange,
        input=pipeline,
        decode=decode,
        read=read,
        copied=copied,
        rate=np.broadcast_to(rate, step.shape),
        kernels=kernels,
        updating=updating,
        memory=memory,
    )


def edge_rates(p: Callable[[str], Floats], cells: Mapping[str, Any]) -> dict[str, Floats]:
    """Return the rate of a ring over the slowest edge of each kind; inf where it has none."""
    return {kind: p(kind) * (p("ring") if kind in PCIE_EDGES else 1.0) * cells[f"{kind}_rate"] for kind in EDGE_KINDS}


def _by_name(values: Floats) -> Callable[[str], Floats]:
    """Return a function of a parameter's name: its draws as a column."""
    return lambda name: values[:, PARAMETER_INDEX[name], None]


def _smooth_maximum(one: Floats, other: Floats, sharpness: float) -> Floats:
    """Return the larger of two times, or somewhat more where they are near each other."""
    top = np.maximum(np.maximum(one, other), 1e-12)
    low = np.minimum(one, other) / top
    return top * (1 + low**sharpness) ** (1 / sharpness)


def _compute(values: Floats, cells: Mapping[str, Floats]) -> tuple[Floats, Floats, Floats, Floats]:
    """Return seconds of forward and backward: of a step, of one batch, of a step's kernels: all, memory-bound ones."""
    p = _by_name(values)
    cpu = cells["on_cpu"] > 0
    memory = np.where(cpu, p("host_memory"), p("memory"))
    fused = np.where(cells["compiled"] > 0, p("compile"), 1.0)
    scale = values[:, cells["workload"]] * values[:, cells["family"]]
    scale = scale * np.where(cells["mixed"] > 0, values[:, cells["half"]], 1.0)
    scale = scale * np.where(cells["planar"] > 0, p("layout"), 1.0)
    scale = scale * np.where(cells["site"] > 0, np.where(cpu, p("machine"), p("stack")), 1.0)
    own = np.where(cpu, values[:, cells["core"]], values[:, cells["device"]])
    own = own * np.where(cells["newer"] > 0, p("newer"), 1.0)
    memory_bound = fused * cells["memory_seconds"] / memory * scale * np.where(cells["foreign"] > 0, own, 1.0)
    products = cells["flops_seconds"] - cells["winograd_seconds"] * (1 - 1 / p("winograd"))
    units = p("faster_units") ** cells["faster_units"]
    busy = products / values[:, cells["reached"]] * scale * own * units + memory_bound
    # With DP one interpreter starts the operations of all devices, one after the other.
    start = np.where(cells["dp"] > 0, cells["devices"] * p("interpreter"), _start_seconds(p, cells))
    launched = cells["operations"] * start * np.where(cells["compiled"] > 0, fused**2, 1.0)
    batch = _smooth_maximum(busy, launched, LAUNCH_SHARPNESS)
    batch = batch * (1 + p("straggle") * np.log(cells["devices"]))
    times = cells["accumulation"]
    return batch * times, batch, busy * times, memory_bound * times


def _start_seconds(p: Callable[[str], Floats], cells: Mapping[str, Floats]) -> Floats:
    """Return the seconds to start an operation."""
    gpu = p("launch") * np.where(cells["guest"] > 0, p("guest"), 1.0)
    start: Floats = np.where(cells["on_cpu"] > 0, p("call"), gpu)
    return start


def _communication(
    values: Floats, cells: Mapping[str, Floats], batch: Floats, rate: Floats, copied: Floats
) -> tuple[Floats, Floats]:
    """Return the exposed seconds of the exchange, and all its seconds."""
    p = _by_name(values)
    n = cells["devices"]
    way = (n - 1) / n  # of the bytes that go once round a ring
    hop = cells["hop_seconds"] * way * p("latency")
    gradients = cells["gradient_bytes"] * p("gradient")
    count = np.ceil(gradients / cells["bucket_bytes"])
    backward, forward = BACKWARD * batch, (1 - BACKWARD) * batch
    # Copies to the devices go over the same uplinks as the ring: they take their share of time from it.
    rate = rate / (1 + cells["uplinked"] * np.minimum(1.0, copied / (batch * cells["accumulation"])))

    # DDP: buckets follow each other on one stream, each as soon as its gradients are there.
    reduce = 2 * way * gradients / rate + count * 2 * hop
    early, late = (1 - cells["late"]) * reduce, cells["late"] * reduce
    buckets = np.maximum(1.0, np.round((1 - cells["late"]) * count))
    end = np.maximum(backward / buckets + early, backward + early / buckets) + late
    exposed = np.maximum(end - backward, 0.0)
    ddp = exposed + p("contention") * np.maximum(reduce - exposed, 0.0)
    copies = p("buckets") * cells["bucket_copy_seconds"] / np.where(cells["on_cpu"] > 0, p("host_memory"), p("memory"))

    # Sharded: weights are gathered for each pass of each batch, gradients scattered after each.
    gather = (way * cells["weight_bytes"] / rate + count * hop) * p("sharded")
    scatter = (way * gradients / rate + count * hop) * p("sharded")
    spread = np.maximum(gather - forward, gather / np.maximum(count, 1.0))
    spread = spread + np.maximum(gather + scatter - backward, (gather + scatter) / np.maximum(count, 1.0))
    hidden = np.maximum(2 * gather + scatter - spread, 0.0)
    all_sharded = (2 * gather + scatter) * cells["accumulation"]
    sharded = (spread + p("contention") * hidden) * cells["accumulation"]

    # DP: weights go out from the first device and gradients come back to it, with all samples; nothing overlaps.
    dp = (way * (cells["weight_bytes"] + gradients) / rate + 2 * hop) * p("dp")
    dp = (dp + way * cells["scatter_seconds"] * p("sample") / p("copy") / cells["accumulation"]) * cells["accumulation"]

    exchange = cells["ddp"] * (reduce + copies) + cells["sharded"] * all_sharded + cells["dp"] * dp
    return cells["ddp"] * (ddp + copies) + cells["sharded"] * sharded + cells["dp"] * dp, exchange


def ring_bytes(logs: Floats, cells: Mapping[str, Floats]) -> Floats:
    """Return the bytes that a device sends for the exchange of one step, and as many that it receives."""
    n = cells["devices"]
    way = (n - 1) / n
    gradients = cells["gradient_bytes"] * np.exp(logs[:, PARAMETER_INDEX["gradient"], None])
    weights = cells["weight_bytes"]
    return (
        cells["ddp"] * 2 * way * gradients
        + cells["sharded"] * way * (2 * weights + gradients) * cells["accumulation"]
        + cells["dp"] * way * (weights + gradients) * cells["accumulation"]
    )


def counted_traffic(logs: Floats, cells: Mapping[str, Floats], step: Floats) -> Floats:
    """Return the bytes a second that the ports of devices in chassis count, both ways together, draws by cells."""
    exchanged = 2 * ring_bytes(logs, cells)
    copied = cells["copy_bytes"] * np.exp(logs[:, PARAMETER_INDEX["sample"], None])
    counted = np.exp(logs[:, PARAMETER_INDEX["count"], None])
    return counted * cells["chassis_devices"] * (exchanged + copied) / step


LINK_UNITS = {"bandwidth": "GB/s", "latency": "us", "bus_bandwidth": "GB/s", "to_device": "GB/s", "read": "GB/s"}


def pair_performance(one: Accelerator, other: Accelerator, topology: Topology) -> tuple[float, float]:
    """Return bytes a second one way and seconds of a small write between two accelerators, as published or scaled."""
    if one.place == other.place:
        kind, rate, latency = edge_within_place(one.place, (one, other), topology)
        # A pair of a V100's mesh has the published mean; behind NVSwitch it has all that a ring has.
        mesh = kind == "nvlink" and device_datasheet(one.model).name == "V100-SXM2"
        return (NVLINK_PAIR.rate if mesh else rate), latency
    narrowest = min(uplink_rate(one, topology), uplink_rate(other, topology))
    edge = edge_between_places({one.place, other.place})
    return edge.rate * narrowest / X16_GEN3_RATE, edge.latency


def link_seconds(logs: Floats, spec: Spec, topology: Topology) -> Floats:
    """Return the seconds of a step of a link workload for draws of the parameters. Raises ModelError."""
    devices, sizes = accelerators_used(spec, topology), np.array(spec.message_sizes, float)
    times = float(spec.options.get("iterations", 20))

    def p(name: str) -> Floats:
        value: Floats = np.exp(logs[:, PARAMETER_INDEX[name]])
        return value

    if spec.workload == "storage_read":
        file_bytes = float(spec.options.get("file_bytes", 2**32))
        found: Floats = (
            file_bytes / min(drive_datasheet(topology.storage.model).rate, storage_link_rate(topology)) / p("storage")
        )
        return found
    if spec.workload == "host_copy":
        way = max(
            (_shared_copy_seconds(device, devices, topology) for device in devices),
            default=spec.devices / HOST_MEMORY_RATE,
        )
        return times * 2 * float(sizes.sum()) * way / p("copy")
    if spec.devices < 2:
        raise ModelError(
            _("{workload} is between devices: it needs at least 2.", workload=workload_title(spec.workload))
        )
    if spec.workload == "gpu_bandwidth":
        return times * _pair_seconds(p("loopback"), sizes, devices, spec, topology)
    edges = ring_edges(spec, topology, devices)
    slowest = np.minimum.reduce(list(edge_rates(p, edges).values()))
    way = (spec.devices - 1) / spec.devices
    total, count = float(sizes.sum()), len(sizes)
    slow: Floats = times * (2 * way * total / slowest + count * 2 * way * edges["hop_seconds"] * p("latency"))
    return slow


def _pair_seconds(
    loopback: Floats, sizes: Floats, devices: tuple[Accelerator, ...], spec: Spec, topology: Topology
) -> Floats:
    """Return the time of one transfer of each size between each two devices, one pair after the other."""
    if not devices:
        pairs = spec.devices * (spec.devices - 1) / 2
        return pairs * (float(sizes.sum()) / (GLOO_LOOPBACK.rate * loopback) + len(sizes) * GLOO_LOOPBACK.latency)
    total = 0.0
    for index, one in enumerate(devices):
        for other in devices[index + 1 :]:
            rate, latency = pair_performance(one, other, topology)
            total += sizes.sum() / rate + len(sizes) * latency
    return np.full(len(loopback), total)


def _shared_copy_seconds(device: Accelerator, devices: tuple[Accelerator, ...], topology: Topology) -> float:
    """Return the seconds a byte to a device while all others are copied to: those below one uplink share it."""
    below = sum(other.place == device.place for other in devices) if device.place != LOCAL else 1
    return max(1 / link_rate(device.link), below / uplink_rate(device, topology))


def link_tables(spec: Spec, topology: Topology, logs: Floats) -> dict[str, Any]:
    """Return the predicted results of a link workload, for one draw of the parameters; units are LINK_UNITS.

    `bandwidth` (both ways together) and `latency` have a row and a column for each device, with None on the diagonal.
    """
    devices, row = accelerators_used(spec, topology), logs[None]
    if spec.workload == "gpu_bandwidth":
        pairs = [
            [None if one is other else pair_performance(one, other, topology) for other in devices] for one in devices
        ]
        return {
            "bandwidth": [[None if found is None else 2 * found[0] / 1e9 for found in line] for line in pairs],
            "latency": [[None if found is None else found[1] * 1e6 for found in line] for line in pairs],
        }
    seconds = float(link_seconds(row, spec, topology)[0])
    moved = sum(spec.message_sizes) * float(spec.options.get("iterations", 20))
    if spec.workload == "all_reduce":
        return {"bus_bandwidth": 2 * (spec.devices - 1) / spec.devices * moved / seconds / 1e9}
    if spec.workload == "host_copy":
        return {"to_device": 2 * moved / seconds / 1e9}
    return {"read": float(spec.options.get("file_bytes", 2**32)) / seconds / 1e9}
