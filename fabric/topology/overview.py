"""The overview: present problems, capacity, and current activity."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta

from django.utils import timezone

from accounts.models import User
from fabric.drift.selectors import DriftView, drift_rows, drift_views
from fabric.inventory.models import Chassis, Device, HostPort, Walk
from fabric.inventory.selectors import downgraded, host_link_degradation
from fabric.leases.selectors import LeaseNotice, lease_notices
from fabric.operations.models import Operation, Plan
from fabric.plans.selectors import PlanSummary, plan_summaries

DOWN_STATES = {"LinkDown", "NoLink"}
BAD_HEALTH = {"Warning", "Critical"}
FAILED_SHOWN = timedelta(hours=1)  # older failures are history, not present problems
OPERATIONS_SHOWN = 8
PLANS_SHOWN = 4
MAX_PARTS_SHOWN = 4
MAX_DRIFTS = 200
KIND_ORDER = {label: place for place, label in enumerate(Device.Kind.labels)}  # the order of display


@dataclass(frozen=True)
class Trouble:
    """A present problem; `page` and `pk` link to its details."""

    sentence: str
    page: str
    pk: object


TroubleSource = Callable[[User], Iterable[Trouble]]
_trouble_sources: list[TroubleSource] = []


def register_trouble_source(source: TroubleSource) -> None:
    """Register a source of problems in a room above: `source` returns those visible to a user, worst first."""
    if source not in _trouble_sources:
        _trouble_sources.append(source)


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """Visible devices of one kind and model."""

    kind: str
    model: str
    attached: int
    detached: int  # of those that can be attached
    total: int  # including those of services that are monitored only


@dataclass(frozen=True, kw_only=True)
class Overview:
    """The content of the overview."""

    chassis_count: int
    troubles: tuple[Trouble, ...]
    capacity: tuple[Capacity, ...]
    running: tuple[Operation, ...]
    newest: tuple[Operation, ...]
    running_plans: tuple[PlanSummary, ...]  # including stopped ones, which wait for a decision
    newest_plans: tuple[PlanSummary, ...]
    leases: tuple[LeaseNotice, ...]


def overview_for(person: User) -> Overview:
    """Return the present problems, worst first, the capacity, and the current activity."""
    chassis = list(Chassis.objects.visible_to(person))
    devices = list(Device.objects.visible_to(person).select_related("chassis", "slot__port", "slot__drawer"))
    operations = Operation.objects.visible_to(person)
    plans = Plan.objects.visible_to(person).exclude(state=Plan.State.DRAFT).order_by("-applied_at")
    going = (*Plan.ACTIVE, Plan.State.STOPPED)
    # The steps of a plan are shown with it.
    alone = operations.exclude(plan__in=Plan.objects.visible_to(person).values("pk"))
    counted: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for device in devices:
        if device.missing_since is None:
            # A device that is only monitored is neither.
            place = 0 if device.host_port_id else 1 if device.chassis.is_composable else 2
            counted[device.get_kind_display(), device.model or device.name][place] += 1
    notices = lease_notices(person)
    stuck = [Trouble(one.sentence, "fabric:lease", one.lease_id) for one in notices if one.bad]
    return Overview(
        chassis_count=len(chassis),
        troubles=(*_troubles(person, chassis, devices, operations), *stuck),
        capacity=tuple(
            Capacity(kind=kind, model=model, attached=attached, detached=detached, total=attached + detached + watched)
            for (kind, model), (attached, detached, watched) in sorted(
                counted.items(), key=lambda one: (KIND_ORDER[one[0][0]], one[0])
            )
        ),
        running=tuple(alone.open().order_by("requested_at")),
        newest=tuple(alone.order_by("-requested_at")[:OPERATIONS_SHOWN]),
        running_plans=plan_summaries(plans.filter(state__in=going)[:OPERATIONS_SHOWN]),
        newest_plans=plan_summaries(plans.exclude(state__in=going)[:PLANS_SHOWN]),
        leases=tuple(one for one in notices if not one.bad),
    )


def _troubles(
    person: User, chassis: list[Chassis], devices: list[Device], operations: Operation.OperationQuerySet
) -> Iterator[Trouble]:
    for one in chassis:
        if one.last_error:
            why = f" {one.last_error}" if person.is_administrator else ""
            yield Trouble(f"{one.name} is not answering.{why}", "fabric:chassis", one.pk)
        elif one.health in BAD_HEALTH and person.is_administrator:
            parts = _unhealthy_parts(one)
            why = f": {', '.join(parts)}" if parts else ""
            yield Trouble(f"{one.name} reports its health as {one.health}{why}.", "fabric:chassis", one.pk)
    yield from _drift_troubles(person)
    for device in devices:
        # '/redfish/v1/Chassis/CXL1/PCIeDevices/1': its number alone would be ambiguous.
        steps = device.uri.split("/")
        where = device.slot.name if device.slot else f"{''.join(steps[-3:-2])} {steps[-1]}"
        place = f"{device.name} in {device.chassis.name}, {where}"
        port = device.slot.port if device.slot is not None else None
        if device.missing_since is not None:
            yield Trouble(f"{place} is missing.", "fabric:device", device.pk)
        elif device.host_port_id and port is not None and port.link_status in DOWN_STATES:
            yield Trouble(f"The link of {place} is down.", "fabric:device", device.pk)
        elif below := downgraded(device):
            yield Trouble(
                f"The link of {place} runs below its maximum width or speed: {below}.", "fabric:device", device.pk
            )
        elif device.health in BAD_HEALTH:
            yield Trouble(f"{place} reports its health as {device.health}.", "fabric:device", device.pk)
    yield from _host_port_troubles(person)
    for source in _trouble_sources:
        yield from source(person)
    for plan in Plan.objects.visible_to(person).filter(state=Plan.State.STOPPED).order_by("-applied_at")[:5]:
        sentence = f"The plan ‘{plan.title}’ stopped and waits for a decision. {plan.sentence}"
        yield Trouble(sentence, "fabric:plan", plan.pk)
    since = timezone.now() - FAILED_SHOWN
    alone = operations.exclude(plan__in=Plan.objects.visible_to(person).values("pk"))
    for operation in alone.filter(state="failed", finished_at__gt=since).order_by("-finished_at")[:5]:
        yield Trouble(f"‘{operation.summary}’ failed. {operation.error}", "fabric:operation", operation.pk)


def _drift_troubles(person: User) -> Iterator[Trouble]:
    """Yield the drift; of a chassis with much of it only the number."""
    views = drift_views(person, drift_rows(person, is_open=True)[:MAX_DRIFTS])
    by_chassis: dict[int, list[DriftView]] = defaultdict(list)
    for view in views:
        by_chassis[view.chassis_id].append(view)
    for pk, here in by_chassis.items():
        if len(here) > MAX_PARTS_SHOWN:
            many = f"{len(here)}{' and more' if len(views) == MAX_DRIFTS else ''} parts"
            yield Trouble(f"{many} of {here[0].chassis_name} have drifted.", "fabric:chassis", pk)
            continue
        for view in here:
            yield Trouble(f"{view.chassis_name}: {view.sentence}", "fabric:drift", view.id)


def _unhealthy_parts(chassis: Chassis) -> list[str]:
    """Return some unhealthy fans and sensors of the chassis, worst first."""
    walk = Walk.objects.filter(chassis=chassis).first()
    parts = [part for kind in ("fans", "sensors") for part in (walk.found.get(kind, []) if walk else [])]
    unhealthy = [part for part in parts if part.get("health") in BAD_HEALTH]
    unhealthy.sort(key=lambda part: part["health"])
    return [f"{part['name']} ({part['health']})" for part in unhealthy[:MAX_PARTS_SHOWN]]


def _host_port_troubles(person: User) -> Iterator[Trouble]:
    rows = HostPort.objects.visible_to(person).filter(missing_since=None, port__isnull=False)
    for row in rows.select_related("chassis", "port", "host"):
        place = f"host port {row.label} of {row.chassis.name}" + (f" to {row.host.name}" if row.host else "")
        if row.host and row.port.link_status in DOWN_STATES:
            yield Trouble(f"The link of {place} is down.", "fabric:port", row.port_id)
        elif below := host_link_degradation(row.port):
            yield Trouble(
                f"The link of {place} runs below its maximum width or speed: {below}.", "fabric:port", row.port_id
            )
