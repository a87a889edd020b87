"""What the course of a simulated run needs beside its steps: what other runs may slow, and what interrupts it."""

from __future__ import annotations

from benchmarks.model.features import accelerators_used
from benchmarks.model.memory import checkpoint_bytes
from benchmarks.model.reference_data import NVME_DRIVE, device_datasheet, drive_datasheet
from benchmarks.model.topology import LOCAL, Topology
from benchmarks.simulation import constants as c
from benchmarks.simulation.links import CORES, HostLinks
from benchmarks.simulation.result import StepSimulation
from benchmarks.simulation.steps import simulate_step
from benchmarks.simulation.work import cpu_work, gpu_work, sample_seconds
from hostwire.training import PeriodicPause, SharedResource, Spec

# Shares of a resource's capacity at which a step is simulated, for how it slows beside other runs.
CURVE_SHARES = (0.125, 0.25, 0.5, 1.0)
CURVE_STEPS = 3
MOST_BATCHES = 32  # a step on all devices
NEGLIGIBLE = 0.02  # share of a capacity below which nobody feels a demand


def shared_resources(
    spec: Spec, topology: Topology, found: StepSimulation, *, seed: int = 0, cold: bool = False
) -> tuple[SharedResource, ...]:
    """Return what a run shares with others of its host: uplinks, the drive and the cores that it uses.

    The steps of its curves are simulated with less and less of one resource.
    """
    devices = accelerators_used(spec, topology)
    if spec.devices * spec.accumulation > MOST_BATCHES:
        return ()  # it takes too long
    links = HostLinks(topology, devices)
    capacities = links.capacities()
    groups: dict[str, tuple[str, ...]] = {links.drive: (links.drive,), CORES: (CORES,)}
    for place in sorted({device.place for device in devices} - {LOCAL}):
        groups[place] = (f"{place}/up", f"{place}/down")
    resources = []
    for name, members in groups.items():
        capacity = capacities[members[0]]
        demand = max(found.links.get(member, 0.0) for member in members)
        if name == CORES:
            demand = found.cpu_share * capacity
        if demand < NEGLIGIBLE * capacity:
            continue

        def step(share: float, members: tuple[str, ...] = members, capacity: float = capacity) -> float:
            limits = dict.fromkeys(members, share * capacity)
            return simulate_step(spec, topology, seed=seed, steps=CURVE_STEPS, cold=cold, limits=limits).step_seconds

        resources.append(
            SharedResource(
                name=name,
                capacity=capacity,
                demand=demand,
                curve=tuple((share * capacity, step(share)) for share in CURVE_SHARES),
                waits=name not in (links.drive, CORES),
            )
        )
    return tuple(resources)


def periodic_pauses(spec: Spec, topology: Topology) -> tuple[PeriodicPause, ...]:
    """Return the validations and checkpoints that a specification asks for."""
    found = []
    ranks = spec.processes
    if spec.validate_every:
        batches = max(1.0, (spec.samples or c.USUAL_SAMPLES) / c.VALIDATION_SHARE / (ranks * spec.batch))
        devices = accelerators_used(spec, topology)
        work = [gpu_work(spec, device_datasheet(device.model)) for device in devices] or [
            cpu_work(spec, topology.cores / spec.devices)
        ]
        forward = batches * max(one.forward for one in work)
        workers = min(max(1, spec.loader_workers), topology.cores / ranks)
        loading = batches * spec.batch * sample_seconds(spec) / workers
        seconds = max(forward, loading)
        found.append(
            PeriodicPause(
                phase="validation",
                every=spec.validate_every,
                seconds=seconds,
                share=forward / seconds,
                cpu_share=min(1.0, ranks * (1 + workers * loading / seconds) / topology.cores),
            )
        )
    if spec.checkpoint_every:
        found.append(checkpoint_pause(spec, topology))
    return tuple(found)


def checkpoint_pause(spec: Spec, topology: Topology) -> PeriodicPause:
    """Return how long one process writes weights and moments while the devices wait."""
    size, drive = checkpoint_bytes(spec), drive_datasheet(topology.storage.model)
    written = drive.write_rate if drive is NVME_DRIVE else drive.rate / 2  # assumed of others: half of their reading
    seconds = size / min(written, c.SAVE_RATE)
    return PeriodicPause(
        phase="checkpoint",
        every=max(1, spec.checkpoint_every),
        seconds=seconds,
        cpu_share=min(1.0, 1 / topology.cores),
        disk_write=size / seconds,
    )
