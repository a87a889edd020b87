"""What a person's grid may go over: hosts and devices as the fabric has them, what stands against a point, how long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from accounts.models import User
from benchmarks import model
from benchmarks.model.shapes import Topology
from benchmarks.runs.composition import Composition
from benchmarks.runs.placing import HostChoice, hosts_for, topology_of
from benchmarks.sweeps.pool import Pool, PoolDevice, PoolHost, key_of
from benchmarks.workloads.catalogue import CATALOGUE
from fabric.models import Device
from fabric.outlook import drawers_seen
from fabric.planning import Wanted
from fabric.services.plans import involved, steps_planned
from falconweb.errors import Conflict, FalconWebError
from hostwire.training import Spec

# Seconds that a run takes besides its steps, and a composition: to be seen beside the steps, not to be relied on.
AROUND_A_RUN: Final = 3.0
A_COMPOSITION: Final = 15.0
WARMUP_FACTOR: Final = 1.5
KINDS: Final = (Device.Kind.GPU, Device.Kind.NVME)


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """What is predicted of a point: median seconds of a step with its 90 % interval, samples a second, basis."""

    step_seconds: float
    low: float
    high: float
    samples_per_second: float
    basis: str

    def seconds_of(self, spec: Spec) -> float:
        """Return what the whole run takes, seconds."""
        return self.step_seconds * (spec.steps + WARMUP_FACTOR * spec.warmup) + AROUND_A_RUN


def pool_of(person: User) -> Pool:
    """Return the hosts and devices that a person may compose; nothing for those who may only look."""
    if not person.may_compose:
        return Pool()
    hosts = hosts_for(person)
    ids = {device.id for host in hosts for device in host.devices if device.kind in KINDS}
    rows = Device.objects.filter(pk__in=ids).select_related("slot__drawer", "chassis", "host_port")
    placed = [row for row in rows if row.slot is not None and row.slot.drawer is not None]
    ports: dict[int, dict[int, int]] = {}
    models: dict[int, str] = {}
    for host in hosts:
        for device in host.devices:
            ports.setdefault(device.id, {})[host.id] = device.targets[0].id
            models[device.id] = device.model
    return Pool(
        hosts=tuple(_host(host) for host in hosts),
        devices=tuple(
            PoolDevice(
                id=row.pk,
                name=row.name,
                model=models[row.pk],
                drawer=row.slot.drawer_id or 0,
                slot=row.slot.number,
                attached=None if row.host_port is None else row.host_port.host_id or 0,
                is_storage=row.kind == Device.Kind.NVME,
                where=f"{row.chassis.name} {row.slot.name}",
                ports=ports[row.pk],
            )
            for row in placed
            if row.slot is not None
        ),
        drawers={
            row.slot.drawer.pk: f"{row.chassis.name} {row.slot.drawer.name}"
            for row in placed
            if row.slot is not None and row.slot.drawer is not None
        },
    )


def _host(host: HostChoice) -> PoolHost:
    return PoolHost(
        id=host.id,
        name=host.name,
        local_gpus=host.local_gpus,
        own_drive=host.own_drive,
        executors=host.executors,
    )


@dataclass
class Judge:
    """Says why a specification cannot run on a composition, and how long it takes; each composition is read once."""

    _topologies: dict[str, Topology | str] = field(default_factory=dict)
    _predicted: dict[tuple[str, str], Predicted | None] = field(default_factory=dict)

    def refuse(self, spec: Spec, composition: Composition) -> str:
        """Return '' where it can run, else the sentence with the number or the rule that stands against it."""
        topology = self._topology(composition)
        if isinstance(topology, str):
            return topology
        if composition.cpu or CATALOGUE[spec.workload].costs is None or not topology.accelerators:
            return ""
        return model.fits(spec, topology)

    def predicted(self, spec: Spec, composition: Composition) -> Predicted | None:
        """Return what is predicted; None on the CPU, of a user's command, and of what measures links."""
        key = spec.hash, key_of(composition)
        if key not in self._predicted:
            self._predicted[key] = self._predict(spec, composition)
        return self._predicted[key]

    def _predict(self, spec: Spec, composition: Composition) -> Predicted | None:
        topology = self._topology(composition)
        workload = CATALOGUE[spec.workload]
        if isinstance(topology, str) or composition.cpu or not workload.is_training or workload.costs is None:
            return None
        found = model.predict(spec, topology)
        return Predicted(
            step_seconds=found.step_seconds,
            low=found.interval.low,
            high=found.interval.high,
            samples_per_second=found.samples_per_second,
            basis=found.basis,
        )

    def _topology(self, composition: Composition) -> Topology | str:
        key = key_of(composition)
        if key not in self._topologies:
            try:
                self._topologies[key] = objection_to(composition) or topology_of(composition)
            except FalconWebError as error:
                self._topologies[key] = error.sentence
        return self._topologies[key]


def objection_to(composition: Composition) -> str:
    """Return what the rules of a drawer have against a composition, as the fabric is now; '' for nothing."""
    if not composition.devices:
        return ""
    wanted = Wanted(attachments=dict(composition.devices))
    chassis = set(Device.objects.filter(pk__in=composition.devices).values_list("chassis_id", flat=True))
    try:
        planned = steps_planned(involved(drawers_seen(chassis), wanted), wanted)
    except Conflict as error:
        return error.sentence
    return planned.objections[0].sentence if planned.objections else ""


def attached_now(devices: Mapping[int, object]) -> dict[int, int | None]:
    """Return where devices (ids) are attached, by the mirror."""
    return dict(Device.objects.filter(pk__in=devices).values_list("pk", "host_port_id"))
