"""Profiles of simulated runs: trainings as the event simulation plays them, links as published for their edges."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from benchmarks import model
from benchmarks.model.step_time import LINK_UNITS
from benchmarks.model.topology import LOCAL, Topology
from benchmarks.simulation import StepSimulation, simulate_step
from benchmarks.simulation.constants import COUNTED_EXCHANGE
from benchmarks.simulation.course import periodic_pauses, shared_resources
from benchmarks.workloads.catalogue import workload_of
from benchmarks.workloads.definitions import Costs, Workload
from hostwire.training import DeviceProfile, SimulationProfile, Spec

# Steps that a run repeats; of many batches on all devices fewer, as a worker simulates each for some milliseconds.
SIMULATED_STEPS, SIMULATED_BATCHES = 16, 256
MOST_BATCHES: Final = 2048  # of one step on all devices: a step of more takes as many times longer
FINAL_LOSS_SHARE: Final = 0.5  # share of the first loss that is left at the end; for display only


def simulation_profile(
    spec: Spec,
    topology: Topology,
    addresses: Mapping[str, str],
    *,
    drive: str = "",
    exercise: Mapping[str, Any] = {},
    seed: int = 0,
) -> SimulationProfile:
    """Return the profile of a simulated run; `addresses` are the PCI addresses of accelerators by name.

    `drive` is the address of the NVMe drive for data, '' if unknown: a training reads from it as in a first pass, else
    from the host's memory. `exercise` may make the run fail: {"fails": "crash", "after": 5}. Raises ModelError.
    """
    workload = workload_of(spec.workload)
    ends: dict[str, Any] = {"fails": exercise.get("fails", ""), "fails_at": int(exercise.get("after", 0))}
    if workload.family == "link":
        return _link_profile(spec, topology, addresses, drive, ends)
    found = _simulated_steps(spec, topology, seed=seed, cold=bool(drive))
    shared = shared_resources(spec, topology, found, seed=seed, cold=bool(drive))
    profile = _training_profile(spec, topology, found, addresses, drive)
    return msgspec.structs.replace(profile, shared=shared, pauses=periodic_pauses(spec, topology), **ends)


def _simulated_steps(spec: Spec, topology: Topology, *, seed: int, cold: bool) -> StepSimulation:
    """Return simulated steps, of so many batches that a worker's claim on the run outlasts them."""
    steps = max(1, min(SIMULATED_STEPS, SIMULATED_BATCHES // (spec.devices * spec.accumulation)))
    part = min(spec.accumulation, max(1, MOST_BATCHES // spec.devices))
    found = simulate_step(msgspec.structs.replace(spec, accumulation=part), topology, seed=seed, steps=steps, cold=cold)
    factor = spec.accumulation / part
    return replace(
        found,
        step_seconds=found.step_seconds * factor,
        steps=tuple(one * factor for one in found.steps),
        devices={name: (into * factor, out * factor) for name, (into, out) in found.devices.items()},
    )


def host_profile(profile: SimulationProfile, topology: Topology, *, host: str, drive: str) -> SimulationProfile:
    """Return the part of a profile that one of several hosts plays: the same steps, with its own devices and drive.

    `host` is the name of a further host, '' for the first.
    """
    devices = zip(topology.accelerators, profile.devices, strict=False)
    own = (device for one, device in devices if one.host == host)
    return msgspec.structs.replace(profile, devices=(*own, *_drive_profile(drive, profile.disk_read)))


def _training_profile(
    spec: Spec, topology: Topology, found: StepSimulation, addresses: Mapping[str, str], drive: str
) -> SimulationProfile:
    workload = workload_of(spec.workload)
    costs = workload.costs(spec) if workload.costs is not None else Costs()
    read = spec.global_batch / spec.hosts * costs.input_bytes / found.step_seconds if drive else 0.0
    first = _first_loss(spec, workload)
    copied = spec.batch * spec.accumulation * costs.device_bytes
    places = Counter((one.host, one.place) for one in topology.accelerators)
    devices = []
    for one in topology.accelerators:
        into, out = found.devices.get(one.name, (0.0, 0.0))
        exchanged = COUNTED_EXCHANGE * (into + out - copied)
        to_device = copied + COUNTED_EXCHANGE * (into - copied)
        devices.append(
            DeviceProfile(
                address="" if one.place == LOCAL else addresses.get(one.name, ""),
                share=found.kernel_busy,
                memory_share=min(1.0, model.memory_bytes(spec) / one.memory_bytes),
                memory_busy=found.memory_busy,
                to_device=to_device / found.step_seconds,
                from_device=COUNTED_EXCHANGE * out / found.step_seconds,
                peer_share=_peer_share(
                    exchanged, to_device + COUNTED_EXCHANGE * out, places[one.host, one.place], topology
                ),
            )
        )
    return SimulationProfile(
        step_seconds=found.step_seconds,
        steps=found.steps,
        devices=(*devices, *_drive_profile(drive, read)),
        host_cpu_share=found.cpu_share,
        host_memory_bytes=found.host_memory_bytes / spec.hosts,
        disk_read=read,
        first_loss=first,
        last_loss=first * FINAL_LOSS_SHARE,
    )


def _link_profile(
    spec: Spec, topology: Topology, addresses: Mapping[str, str], drive: str, ends: Mapping[str, Any]
) -> SimulationProfile:
    """Return the profile of a workload that measures links: what is published for them, scaled to these."""
    workload = workload_of(spec.workload)
    prediction = model.predict(spec, topology)
    costs = workload.costs(spec) if workload.costs is not None else Costs()
    step = prediction.step_seconds
    read = costs.input_bytes / step
    tables = model.link_tables(spec, topology, model.prior().mean)
    return SimulationProfile(
        step_seconds=step,
        devices=(
            *(
                DeviceProfile(
                    address="" if one.place == LOCAL else addresses.get(one.name, ""),
                    share=min(1.0, prediction.utilisation),
                    memory_share=min(1.0, prediction.memory_bytes / one.memory_bytes),
                    to_device=costs.device_bytes / step,
                    from_device=costs.device_bytes / step,
                )
                for one in topology.accelerators
            ),
            *_drive_profile(drive, read),
        ),
        host_cpu_share=min(1.0, spec.devices / topology.cores),
        disk_read=read,
        result={"values": tables, "units": {name: LINK_UNITS[name] for name in tables}},
        **ends,
    )


def _drive_profile(drive: str, read: float) -> tuple[DeviceProfile, ...]:
    return (DeviceProfile(address=drive, from_device=read),) if drive else ()


def _peer_share(exchanged: float, moved: float, together: int, topology: Topology) -> float:
    """Return the share of a device's traffic in a training that stays below its switch.

    Traffic that does not come from the host belongs to a ring: below a switch all devices but one receive it from a
    neighbour there, and all of them if the ring has no other devices.
    """
    if moved <= 0:
        return 0.0
    inside = together if together == len(topology.accelerators) else together - 1
    return min(1.0, max(0.0, exchanged / moved * inside / together))


def _first_loss(spec: Spec, workload: Workload) -> float:
    """Return the loss of a random guess: the logarithm of the number of classes; 0 without training."""
    if not workload.is_training:
        return 0.0
    answers = spec.options.get("classes") or spec.options.get("sequence") or 0
    return math.log(float(answers)) if isinstance(answers, int | float) and answers > 1 else 1.0
