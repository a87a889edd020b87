"""The overview: present problems, capacity, and current activity."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from django.db.models import Count, Q

from accounts.models import User
from core.language import _, gettext_noop
from fabric.agents.selectors import devices_on_hosts, holders_label
from fabric.bmc.types import Dialect
from fabric.inventory.models import Chassis, Device, HostPort
from fabric.leases.selectors import LeaseNotice, lease_notices
from fabric.operations.models import Operation, Plan
from fabric.plans.selectors import PlanSummary, plan_summaries
from fabric.topology.fleet import Fleet, fleet_of
from fabric.topology.presentation import rate_label, sparkline_path
from fabric.topology.problems import (
    DRIFTED,
    Problem,
    ProblemLevel,
    StatusBoard,
    parts_of,
    present_problems,
    worst_first,
)
from fabric.topology.readings import FleetReadings, HotDevice, RunningWork, fleet_readings, running_work

OPERATIONS_SHOWN = 5
PLANS_SHOWN = 3
CAPACITY_NUMBERS = ("free", "attached", "detached", "assigned", "total")
MAX_DRIFTS_LISTED = 4  # of a chassis
KIND_ORDER = {kind: place for place, kind in enumerate(Device.Kind.values)}  # the order of display


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """Visible devices of one kind and model."""

    kind: str
    model: str
    free: int  # detached and unassigned
    attached: int
    detached: int  # of those that can be attached
    assigned: int
    total: int  # including those of services that are monitored only


@dataclass(frozen=True, kw_only=True)
class Hottest:
    """One of the hottest devices, with the visible host it is attached to, and who uses it as its agent says."""

    device: Device
    reading: HotDevice
    host_name: str
    used_by: str


@dataclass(frozen=True, kw_only=True)
class PowerOfChassis:
    """The power of a chassis, W."""

    name: str
    watts: float


@dataclass(frozen=True, kw_only=True)
class Overview:
    """The content of the overview."""

    fleet: Fleet
    answering: int  # chassis that are read and have answered; one that does not is a problem
    problems: tuple[Problem, ...]  # worst first
    capacity: tuple[Capacity, ...]
    readings: FleetReadings
    hottest: tuple[Hottest, ...]
    power: tuple[PowerOfChassis, ...]  # of the chassis that report it, highest first
    running: tuple[Operation, ...]
    working: tuple[RunningWork, ...]
    newest: tuple[Operation, ...]
    running_plans: tuple[PlanSummary, ...]  # including stopped ones, which wait for a decision
    newest_plans: tuple[PlanSummary, ...]
    leases: tuple[LeaseNotice, ...]

    @property
    def watts(self) -> float | None:
        """The total power; None where no chassis reports it."""
        return sum(one.watts for one in self.power) if self.power else None

    @property
    def bytes_per_second(self) -> float | None:
        """The total traffic; None where none is measured."""
        found = [one.bytes_per_second for one in self.readings.of.values() if one.bytes_per_second is not None]
        return sum(found) if found else None

    @property
    def traffic(self) -> str:
        """The total traffic in words; '' where none is measured."""
        return rate_label(self.bytes_per_second) if self.bytes_per_second is not None else ""

    @property
    def busiest(self) -> str:
        """The highest traffic of the last ten minutes, which end now, in words."""
        found = (*self.readings.traffic, self.bytes_per_second)
        return rate_label(max((one for one in found if one is not None), default=0.0))

    @property
    def running_count(self) -> int:
        """How many operations, plans and other work run, or wait for a decision."""
        return len(self.running) + len(self.running_plans) + len(self.working)

    @property
    def problems_shown(self) -> int:
        """How many problems are listed before the others: the fleet has to fit below them."""
        return 3 if self.fleet.is_dense else 6

    @property
    def first_problems(self) -> tuple[Problem, ...]:
        """The worst problems."""
        return self.problems[: self.problems_shown]

    @property
    def other_problems(self) -> tuple[Problem, ...]:
        """The problems after these."""
        return self.problems[self.problems_shown :]

    @property
    def traffic_path(self) -> str:
        """The traffic of the last ten minutes as the path of a sparkline."""
        return sparkline_path(self.readings.traffic)

    @property
    def free(self) -> int:
        """The number of free devices."""
        return sum(one.free for one in self.capacity)


def overview_for(person: User, *, by: str = "status") -> Overview:
    """Return the present problems, worst first, the fleet by a measure, capacity, readings and current activity."""
    operations = Operation.objects.visible_to(person)
    plans = Plan.objects.visible_to(person).exclude(state=Plan.State.DRAFT).order_by("-applied_at")
    going = (*Plan.ACTIVE, Plan.State.STOPPED)
    # The steps of a plan are shown with it.
    alone = operations.exclude(plan__in=Plan.objects.visible_to(person).values("pk"))
    notices, found = lease_notices(person), present_problems(person)
    stuck = [
        Problem(
            level=ProblemLevel.WARNING,
            word=gettext_noop("stuck"),
            sentence=one.sentence,
            page="fabric:lease",
            pk=one.lease_id,
        )
        for one in notices
        if one.bad
    ]
    readings = fleet_readings(person)
    fleet = fleet_of(person, StatusBoard(found, parts_of(person)), by=by, readings=readings.of)
    names = {one.id: one.name for one in fleet.tiles}
    return Overview(
        fleet=fleet,
        answering=Chassis.objects.visible_to(person).filter(enabled=True, inventory_at__isnull=False).count(),
        problems=_listed((*stuck, *found), names),
        capacity=_capacity(person),
        readings=readings,
        hottest=_hottest(person, readings),
        power=_power(readings, names),
        running=tuple(alone.open().order_by("requested_at")),
        working=tuple(running_work(person)),
        newest=tuple(alone.order_by("-requested_at")[:OPERATIONS_SHOWN]),
        running_plans=plan_summaries(plans.filter(state__in=going)[:OPERATIONS_SHOWN]),
        newest_plans=plan_summaries(plans.exclude(state__in=going)[:PLANS_SHOWN]),
        leases=tuple(one for one in notices if not one.bad),
    )


def _capacity(person: User) -> tuple[Capacity, ...]:
    present = Device.objects.visible_to(person).filter(missing_since=None)
    groups = present.order_by().values_list("kind", "model", "name", "chassis__dialect")
    counted: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    rows = groups.annotate(
        Count("pk"), Count("host_port"), Count("tenant"), unused=Count("pk", filter=Q(host_port=None, tenant=None))
    )
    for kind, model, name, dialect, *counts in rows:
        total, attached, assigned, unused = counts
        numbers = counted[kind, model or name]
        numbers.update(total=total, attached=attached, assigned=assigned)
        # A device that is only monitored is neither detached nor free.
        if dialect != Dialect.NONE:
            numbers.update(detached=total - attached, free=unused)
    return tuple(
        Capacity(kind=str(Device.Kind(kind).label), model=model, **{name: numbers[name] for name in CAPACITY_NUMBERS})
        for (kind, model), numbers in sorted(counted.items(), key=lambda one: (KIND_ORDER[one[0][0]], one[0]))
    )


def _hottest(person: User, readings: FleetReadings) -> tuple[Hottest, ...]:
    found = Device.objects.visible_to(person).filter(pk__in=[one.device_id for one in readings.hottest])
    devices = {one.pk: one for one in found.select_related("chassis", "slot__drawer", "tenant", "host_port__host")}
    seen = HostPort.objects.visible_to(person).filter(devices__in=devices).values_list("pk", flat=True)
    # Nothing is shown of a host that the person may not see, nor of its processes.
    hosts = {one.pk: one.host_port.host for one in devices.values() if one.host_port and one.host_port_id in {*seen}}
    reported = devices_on_hosts([one for one in devices.values() if hosts.get(one.pk)])
    return tuple(
        Hottest(
            device=devices[one.device_id],
            reading=one,
            host_name=host.name if (host := hosts.get(one.device_id)) else "",
            used_by=holders_label(side.holders) if (side := reported.get(one.device_id)) and not side.unsure else "",
        )
        for one in readings.hottest
        if one.device_id in devices
    )


def _power(readings: FleetReadings, names: Mapping[int, str]) -> tuple[PowerOfChassis, ...]:
    found = [
        PowerOfChassis(name=names[pk], watts=one.watts)
        for pk, one in readings.of.items()
        if one.watts is not None and pk in names
    ]
    return tuple(sorted(found, key=lambda one: -one.watts))


def _listed(problems: Iterable[Problem], names: Mapping[int, str]) -> tuple[Problem, ...]:
    """Return problems worst first, with one line for the drift of a chassis (`names`, by id) that has much of it."""
    drifts: dict[int, list[Problem]] = defaultdict(list)
    listed = []
    for one in problems:
        if one.word == DRIFTED and one.chassis_id is not None:
            drifts[one.chassis_id].append(one)
        else:
            listed.append(one)
    for pk, here in drifts.items():
        if len(here) > MAX_DRIFTS_LISTED:
            sentence = _("{count} parts of {name} have drifted.", count=len(here), name=names[pk])
            listed.append(replace(here[0], sentence=sentence, page="fabric:chassis", pk=pk))
        else:
            listed += here
    return worst_first(listed)
