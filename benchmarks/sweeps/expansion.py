"""A grid expanded for a person: feasible points in order, with predictions and cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from accounts.models import User
from benchmarks import model
from benchmarks.model.topology import Topology
from benchmarks.runs.choices import HostChoice, host_choices
from benchmarks.runs.rules import Composition
from benchmarks.runs.topology import composition_topology
from benchmarks.sweeps.grid import GridExpansion, GridPoint, SweepGrid, expand_grid
from benchmarks.sweeps.placement import (
    CompositionCost,
    PoolDevice,
    PoolHost,
    SweepPool,
    cheapest_order,
    composition_cost,
    composition_key,
)
from benchmarks.workloads.catalogue import CATALOGUE
from core.errors import Conflict, FalconWebError
from fabric.inventory.models import Device
from fabric.operations.projected_state import projected_drawers
from fabric.plans.rules import DesiredState
from fabric.plans.services import involved_drawers, steps_plan
from hostwire.training import Spec


@dataclass(frozen=True, kw_only=True)
class ExpandedPoint:
    """A point with its prediction; None without one."""

    point: GridPoint
    predicted: PointPrediction | None = None

    @property
    def told(self) -> dict[str, Any]:
        """The prediction as JSON; {} without one."""
        if self.predicted is None:
            return {}
        one = self.predicted
        return {
            "step_seconds": one.step_seconds, "low": one.low, "high": one.high,
            "samples_per_second": one.samples_per_second, "basis": one.basis,
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ExpandedSweep:
    """All points in order, the cost of composing, and the duration: `seconds`, of `predicted_count` points.

    `as_given` is the cost of composing in the order of the grid.
    """

    points: tuple[ExpandedPoint, ...]
    expansion: GridExpansion
    cost: CompositionCost
    as_given: CompositionCost
    seconds: float
    predicted_count: int

    @property
    def words_of_time(self) -> str:
        """The duration as text."""
        return duration_text(self.seconds)


def duration_text(seconds: float) -> str:
    """Return a rounded duration as text: '40 s', '12 min', '3.5 h'."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def expand_sweep(person: User, grid: SweepGrid, pool: SweepPool | None = None) -> ExpandedSweep:
    """Expand a checked grid on the current fabric. Raises Invalid for too many points."""
    judge = FeasibilityChecker()
    expansion = expand_grid(grid, pool if pool is not None else sweep_pool(person), judge.refuse)
    wanted = [one.composition.devices for one in expansion.points]
    now = current_attachments({device: None for places in wanted for device in places})
    order = cheapest_order(wanted, now)
    points = tuple(
        ExpandedPoint(point=one, predicted=judge.predicted(one.spec, one.composition))
        for one in (expansion.points[number] for number in order)
    )
    cost = composition_cost([one.point.composition.devices for one in points], now)
    known = [one for one in points if one.predicted is not None]
    return ExpandedSweep(
        points=points,
        expansion=expansion,
        cost=cost,
        as_given=composition_cost(wanted, now),
        seconds=_total_seconds(known) + COMPOSITION_SECONDS * cost.moves,
        predicted_count=len(known),
    )


def _total_seconds(points: Iterable[ExpandedPoint]) -> float:
    """Return the duration of points: sequential on one host, parallel on several."""
    hosts: dict[int, float] = {}
    for one in points:
        if one.predicted is not None:
            host = one.point.composition.host
            hosts[host] = hosts.get(host, 0.0) + one.predicted.seconds_of(one.point.spec)
    return max(hosts.values(), default=0.0)


# Rough overheads in seconds of a run besides its steps, and of a composition.
RUN_OVERHEAD_SECONDS: Final = 3.0
COMPOSITION_SECONDS: Final = 15.0
WARMUP_FACTOR: Final = 1.5
POOL_KINDS: Final = (Device.Kind.GPU, Device.Kind.NVME)


@dataclass(frozen=True, kw_only=True)
class PointPrediction:
    """The prediction for a point: median seconds of a step with its 90 % interval, samples a second, basis."""

    step_seconds: float
    low: float
    high: float
    samples_per_second: float
    basis: str

    def seconds_of(self, spec: Spec) -> float:
        """Return the duration of the whole run, seconds."""
        return self.step_seconds * (spec.steps + WARMUP_FACTOR * spec.warmup) + RUN_OVERHEAD_SECONDS


def sweep_pool(person: User) -> SweepPool:
    """Return the hosts and devices that a person may compose; none for read-only users."""
    if not person.may_compose:
        return SweepPool()
    hosts = host_choices(person)
    ids = {device.id for host in hosts for device in host.devices if device.kind in POOL_KINDS}
    rows = Device.objects.filter(pk__in=ids).select_related("slot__drawer", "chassis", "host_port")
    placed = [row for row in rows if row.slot is not None and row.slot.drawer is not None]
    ports: dict[int, dict[int, int]] = {}
    models: dict[int, str] = {}
    for host in hosts:
        for device in host.devices:
            ports.setdefault(device.id, {})[host.id] = device.targets[0].id
            models[device.id] = device.model
    return SweepPool(
        hosts=tuple(_pool_host(host) for host in hosts),
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


def _pool_host(host: HostChoice) -> PoolHost:
    return PoolHost(
        id=host.id,
        name=host.name,
        local_gpus=host.local_gpus,
        own_drive=host.own_drive,
        executors=host.executors,
    )


@dataclass
class FeasibilityChecker:
    """Feasibility and duration of specifications on compositions; each composition is read once."""

    _topologies: dict[str, Topology | str] = field(default_factory=dict)
    _predicted: dict[tuple[str, str], PointPrediction | None] = field(default_factory=dict)

    def refuse(self, spec: Spec, composition: Composition) -> str:
        """Return '' if it can run, else a sentence with the limit or the rule that prevents it."""
        topology = self._topology(composition)
        if isinstance(topology, str):
            return topology
        if composition.cpu or CATALOGUE[spec.workload].costs is None or not topology.accelerators:
            return ""
        return model.fits(spec, topology)

    def predicted(self, spec: Spec, composition: Composition) -> PointPrediction | None:
        """Return the prediction; None on the CPU, for a user's command, and for link measurements."""
        key = spec.hash, composition_key(composition)
        if key not in self._predicted:
            self._predicted[key] = self._predict(spec, composition)
        return self._predicted[key]

    def _predict(self, spec: Spec, composition: Composition) -> PointPrediction | None:
        topology = self._topology(composition)
        workload = CATALOGUE[spec.workload]
        if isinstance(topology, str) or composition.cpu or not workload.is_training or workload.costs is None:
            return None
        found = model.predict(spec, topology)
        return PointPrediction(
            step_seconds=found.step_seconds,
            low=found.interval.low,
            high=found.interval.high,
            samples_per_second=found.samples_per_second,
            basis=found.basis,
        )

    def _topology(self, composition: Composition) -> Topology | str:
        key = composition_key(composition)
        if key not in self._topologies:
            try:
                self._topologies[key] = composition_objection(composition) or composition_topology(composition)
            except FalconWebError as error:
                self._topologies[key] = error.sentence
        return self._topologies[key]


def composition_objection(composition: Composition) -> str:
    """Return the violation of a drawer's rules by a composition on the current fabric; '' for none."""
    if not composition.devices:
        return ""
    wanted = DesiredState(attachments=dict(composition.devices))
    chassis = set(Device.objects.filter(pk__in=composition.devices).values_list("chassis_id", flat=True))
    try:
        planned = steps_plan(involved_drawers(projected_drawers(chassis), wanted), wanted)
    except Conflict as error:
        return error.sentence
    return planned.objections[0].sentence if planned.objections else ""


def current_attachments(devices: Mapping[int, object]) -> dict[int, int | None]:
    """Return the current attachments of devices (ids), from the database."""
    return dict(Device.objects.filter(pk__in=devices).values_list("pk", "host_port_id"))
