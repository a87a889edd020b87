"""A grid expanded for a person: feasible points in order, with predictions and cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from accounts.models import User
from benchmarks import model
from benchmarks.model.prediction import Prediction
from benchmarks.model.topology import Topology
from benchmarks.runs.choices import host_choices
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

# Rough overheads in seconds of a run besides its steps, and of a composition.
RUN_OVERHEAD_SECONDS: Final = 3.0
COMPOSITION_SECONDS: Final = 15.0
WARMUP_FACTOR: Final = 1.5
POOL_KINDS: Final = (Device.Kind.GPU, Device.Kind.NVME)


@dataclass(frozen=True, kw_only=True)
class ExpandedPoint:
    """A point with its prediction; None without one."""

    point: GridPoint
    predicted: Prediction | None = None

    def stored_prediction(self) -> dict[str, Any]:
        """Return the prediction as JSON; {} without one."""
        if self.predicted is None:
            return {}
        one = self.predicted
        return {
            "step_seconds": one.step_seconds, "low": one.interval.low, "high": one.interval.high,
            "samples_per_second": one.samples_per_second, "basis": one.basis,
        }  # fmt: skip

    def run_seconds(self) -> float:
        """Return the predicted duration of the whole run, 0 without a prediction."""
        if self.predicted is None:
            return 0.0
        spec = self.point.spec
        return self.predicted.step_seconds * (spec.steps + WARMUP_FACTOR * spec.warmup) + RUN_OVERHEAD_SECONDS


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


def duration_text(seconds: float) -> str:
    """Return a rounded duration as text: '40 s', '12 min', '3.5 h'."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def expand_sweep(person: User, grid: SweepGrid, pool: SweepPool | None = None) -> ExpandedSweep:
    """Expand a checked grid on the current fabric. Raises Invalid for too many points."""
    checker = FeasibilityChecker()
    expansion = expand_grid(grid, pool if pool is not None else sweep_pool(person), checker.refuse)
    wanted = [one.composition.devices for one in expansion.points]
    devices = {device for places in wanted for device in places}
    now = dict(Device.objects.filter(pk__in=devices).values_list("pk", "host_port_id"))
    order = cheapest_order(wanted, now)
    points = tuple(
        ExpandedPoint(point=one, predicted=checker.predicted(one.spec, one.composition))
        for one in (expansion.points[number] for number in order)
    )
    cost = composition_cost([one.point.composition.devices for one in points], now)
    return ExpandedSweep(
        points=points,
        expansion=expansion,
        cost=cost,
        as_given=composition_cost(wanted, now),
        seconds=_total_seconds(points) + COMPOSITION_SECONDS * cost.moves,
        predicted_count=sum(one.predicted is not None for one in points),
    )


def _total_seconds(points: Iterable[ExpandedPoint]) -> float:
    """Return the duration of points: sequential on one host, parallel on several."""
    hosts: dict[int, float] = {}
    for one in points:
        host = one.point.composition.host
        hosts[host] = hosts.get(host, 0.0) + one.run_seconds()
    return max(hosts.values(), default=0.0)


def sweep_pool(person: User) -> SweepPool:
    """Return the hosts and devices that a person may compose; none for read-only users."""
    if not person.may_compose:
        return SweepPool()
    hosts = host_choices(person)
    ids = {device.id for host in hosts for device in host.devices if device.kind in POOL_KINDS}
    ports: dict[int, dict[int, int]] = {}
    models: dict[int, str] = {}
    for host in hosts:
        for device in host.devices:
            ports.setdefault(device.id, {})[host.id] = device.targets[0].id
            models[device.id] = device.model
    devices, drawers = [], {}
    for row in Device.objects.filter(pk__in=ids).select_related("slot__drawer", "chassis", "host_port"):
        slot = row.slot
        if slot is None or slot.drawer is None:
            continue
        drawers[slot.drawer.pk] = f"{row.chassis.name} {slot.drawer.name}"
        devices.append(
            PoolDevice(
                id=row.pk,
                name=row.name,
                model=models[row.pk],
                drawer=slot.drawer.pk,
                slot=slot.number,
                attached=None if row.host_port is None else row.host_port.host_id or 0,
                is_storage=row.kind == Device.Kind.NVME,
                where=f"{row.chassis.name} {slot.name}",
                ports=ports[row.pk],
            )
        )
    return SweepPool(
        hosts=tuple(
            PoolHost(
                id=host.id,
                name=host.name,
                local_gpus=host.local_gpus,
                own_drive=host.own_drive,
                executors=host.executors,
                backends=host.trainer.backends if host.trainer is not None else (),
            )
            for host in hosts
        ),
        devices=tuple(devices),
        drawers=drawers,
    )


@dataclass
class FeasibilityChecker:
    """Feasibility and duration of specifications on compositions; each composition is read once."""

    _topologies: dict[str, Topology | str] = field(default_factory=dict)
    _predicted: dict[tuple[str, str], Prediction | None] = field(default_factory=dict)

    def refuse(self, spec: Spec, composition: Composition) -> str:
        """Return '' if it can run, else a sentence with the limit or the rule that prevents it."""
        topology = self._topology(composition)
        if isinstance(topology, str):
            return topology
        if composition.cpu or CATALOGUE[spec.workload].costs is None or not topology.accelerators:
            return ""
        return model.fits(spec, topology)

    def predicted(self, spec: Spec, composition: Composition) -> Prediction | None:
        """Return the prediction; None on the CPU, for a user's command, and for link measurements."""
        key = spec.hash, composition_key(composition)
        if key not in self._predicted:
            self._predicted[key] = self._predict(spec, composition)
        return self._predicted[key]

    def _predict(self, spec: Spec, composition: Composition) -> Prediction | None:
        topology = self._topology(composition)
        workload = CATALOGUE[spec.workload]
        if isinstance(topology, str) or composition.cpu or not workload.is_training or workload.costs is None:
            return None
        return model.predict(spec, topology)

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
