"""Profiles of simulated runs, as the performance model predicts them for each device."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from benchmarks import model
from benchmarks.model.prediction import Prediction
from benchmarks.model.step_time import LINK_UNITS
from benchmarks.model.topology import LOCAL, Topology
from benchmarks.workloads.catalogue import workload_of
from benchmarks.workloads.definitions import Costs, Workload
from hostwire.training import DeviceProfile, SimulationProfile, Spec

STEP_SPREAD: Final = 0.02  # relative, of a step on an idle machine
PREFETCHED_BATCHES: Final = 2.0  # batches that a loader prefetches, PyTorch's default
FINAL_LOSS_SHARE: Final = 0.5  # share of the first loss that is left at the end; for display only


def simulation_profile(
    spec: Spec, topology: Topology, addresses: Mapping[str, str], *, drive: str = "", exercise: Mapping[str, Any] = {}
) -> SimulationProfile:
    """Return the profile of a simulated run; `addresses` are the PCI addresses of accelerators by name.

    `drive` is the address of the NVMe drive for data, '' if unknown. `exercise` may make the run fail:
    {"fails": "crash", "after": 5}.
    """
    workload = workload_of(spec.workload)
    prediction = model.predict(spec, topology)
    costs = workload.costs(spec) if workload.costs is not None else Costs()
    step = prediction.step_seconds
    read = costs.input_bytes * (spec.global_batch if workload.is_training else 1) / step
    prefetched = spec.devices * max(1, spec.loader_workers) * PREFETCHED_BATCHES * spec.batch * costs.device_bytes
    first = _first_loss(spec, workload)
    tables = model.link_tables(spec, topology, model.prior().mean) if workload.family == "link" else {}
    return SimulationProfile(
        step_seconds=step,
        spread=STEP_SPREAD,
        devices=(
            *_device_profiles(prediction, workload, costs, addresses),
            *((DeviceProfile(address=drive, from_device=read),) if drive else ()),
        ),
        host_cpu_share=min(1.0, spec.devices * max(1, spec.loader_workers) / topology.cores),
        host_memory_bytes=prefetched if workload.is_training else 0.0,
        disk_read=read,
        first_loss=first,
        last_loss=first * FINAL_LOSS_SHARE,
        fails=exercise.get("fails", ""),
        fails_at=int(exercise.get("after", 0)),
        result={"values": tables, "units": {name: LINK_UNITS[name] for name in tables}} if tables else {},
    )


def _device_profiles(
    prediction: Prediction, workload: Workload, costs: Costs, addresses: Mapping[str, str]
) -> list[DeviceProfile]:
    step = prediction.step_seconds
    found = []
    moved = costs.device_bytes if workload.family == "link" else 0.0
    places = Counter(one.place for one in prediction.topology.accelerators)
    for one in prediction.topology.accelerators:
        to_device, from_device = prediction.pcie_bytes.get(one.name, (moved, moved))
        found.append(
            DeviceProfile(
                address="" if one.place == LOCAL else addresses.get(one.name, ""),
                share=min(1.0, prediction.utilisation),
                memory_share=min(1.0, prediction.memory_bytes / one.memory_bytes),
                to_device=to_device / step,
                from_device=from_device / step,
                peer_share=_peer_share(prediction, costs, to_device + from_device, places[one.place])
                if workload.is_training
                else 0.0,
            )
        )
    return found


def _peer_share(prediction: Prediction, costs: Costs, moved: float, together: int) -> float:
    """Return the share of a device's traffic in a training that stays below its switch.

    Traffic that does not come from the host belongs to a ring: below a switch all devices but one receive it from a
    neighbour there, and all of them if the ring has no other devices.
    """
    if moved <= 0:
        return 0.0
    spec = prediction.spec
    exchanged = max(0.0, moved - spec.batch * spec.accumulation * costs.device_bytes) / moved
    inside = together if together == len(prediction.topology.accelerators) else together - 1
    return exchanged * inside / together


def _first_loss(spec: Spec, workload: Workload) -> float:
    """Return the loss of a random guess: the logarithm of the number of classes; 0 without training."""
    if not workload.is_training:
        return 0.0
    answers = spec.options.get("classes") or spec.options.get("sequence") or 0
    return math.log(float(answers)) if isinstance(answers, int | float) and answers > 1 else 1.0
