"""Workloads that measure links and drives: how long a step of theirs takes, and what they would find."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.model.facts import (
    FULL_LINK,
    GLOO,
    HOST_MEMORY_RATE,
    NVLINK_PAIR,
    device_facts,
    drive_facts,
)
from benchmarks.model.features import ModelError, across, inside, link_rate, ring, storage_link, used, way_out
from benchmarks.model.parameters import INDEX, Floats
from benchmarks.model.shapes import LOCAL, Accelerator, Topology
from benchmarks.workloads.costs import message_sizes
from hostwire.training import Spec

UNITS = {"bandwidth": "GB/s", "latency": "us", "bus_bandwidth": "GB/s", "to_device": "GB/s", "read": "GB/s"}


def pair(one: Accelerator, other: Accelerator, topology: Topology) -> tuple[float, float]:
    """Return bytes a second one way and seconds of a small write between two accelerators, as published or scaled."""
    if one.place == other.place:
        kind, rate, latency = inside(one.place, (one, other), topology)
        # A pair of a V100's mesh has the published mean; behind NVSwitch it has all that a ring has.
        mesh = kind == "nvlink" and device_facts(one.model).name == "V100-SXM2"
        return (NVLINK_PAIR.rate if mesh else rate), latency
    narrowest = min(way_out(one, topology), way_out(other, topology))
    edge = across({one.place, other.place})
    return edge.rate * narrowest / FULL_LINK, edge.latency


def link_seconds(logs: Floats, spec: Spec, topology: Topology) -> Floats:
    """Return the seconds of a step of a link workload for draws of the parameters. Raises ModelError."""
    devices, sizes = used(spec, topology), np.array(message_sizes(spec))
    times = float(spec.options.get("iterations", 20))

    def p(name: str) -> Floats:
        value: Floats = np.exp(logs[:, INDEX[name]])
        return value

    if spec.workload == "storage_read":
        file_bytes = float(spec.options.get("file_bytes", 2**32))
        found: Floats = (
            file_bytes / min(drive_facts(topology.storage.model).rate, storage_link(topology)) / p("storage")
        )
        return found
    if spec.workload == "host_copy":
        way = max((_share(device, devices, topology) for device in devices), default=spec.devices / HOST_MEMORY_RATE)
        return times * 2 * float(sizes.sum()) * way / p("copy")
    if spec.devices < 2:
        raise ModelError(f"{spec.workload} is between devices: it needs at least 2.")
    if spec.workload == "gpu_bandwidth":
        return times * _pairs(p("loopback"), sizes, devices, spec, topology)
    edges = ring(spec, topology, devices)
    slowest = np.min([p(kind) * edges[f"{kind}_rate"] for kind in ("nvlink", "switch", "across", "loopback")], axis=0)
    way = (spec.devices - 1) / spec.devices
    total, count = float(sizes.sum()), len(sizes)
    slow: Floats = times * (2 * way * total / slowest + count * 2 * way * edges["hop_seconds"] * p("latency"))
    return slow


def _pairs(loopback: Floats, sizes: Floats, devices: tuple[Accelerator, ...], spec: Spec, topology: Topology) -> Floats:
    """Return the time of one transfer of each size between each two devices, one pair after the other."""
    if not devices:
        pairs = spec.devices * (spec.devices - 1) / 2
        return pairs * (float(sizes.sum()) / (GLOO.rate * loopback) + len(sizes) * GLOO.latency)
    total = 0.0
    for index, one in enumerate(devices):
        for other in devices[index + 1 :]:
            rate, latency = pair(one, other, topology)
            total += sizes.sum() / rate + len(sizes) * latency
    return np.full(len(loopback), total)


def _share(device: Accelerator, devices: tuple[Accelerator, ...], topology: Topology) -> float:
    """Return the seconds a byte to a device while all others are copied to: those below one uplink share it."""
    below = sum(other.place == device.place for other in devices) if device.place != LOCAL else 1
    return max(1 / link_rate(device.link), below / way_out(device, topology))


def link_tables(spec: Spec, topology: Topology, logs: Floats) -> dict[str, Any]:
    """Return what a link workload would find, for one draw of the parameters; units are those of UNITS.

    `bandwidth` (both ways together) and `latency` have a row and a column for each device, with None on the diagonal.
    """
    devices, row = used(spec, topology), logs[None]
    if spec.workload == "gpu_bandwidth":
        pairs = [[None if one is other else pair(one, other, topology) for other in devices] for one in devices]
        return {
            "bandwidth": [[None if found is None else 2 * found[0] / 1e9 for found in line] for line in pairs],
            "latency": [[None if found is None else found[1] * 1e6 for found in line] for line in pairs],
        }
    seconds = float(link_seconds(row, spec, topology)[0])
    moved = sum(message_sizes(spec)) * float(spec.options.get("iterations", 20))
    if spec.workload == "all_reduce":
        return {"bus_bandwidth": 2 * (spec.devices - 1) / spec.devices * moved / seconds / 1e9}
    if spec.workload == "host_copy":
        return {"to_device": 2 * moved / seconds / 1e9}
    return {"read": float(spec.options.get("file_bytes", 2**32)) / seconds / 1e9}
