"""The preview of a draft: steps by drawer, affected objects, objections, and the usual duration."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from accounts.models import User
from core.database import natural
from core.errors import FalconWebError
from core.language import _, gettext_noop
from fabric.agents.limits import attachment_warnings
from fabric.agents.models import HostAgent
from fabric.agents.selectors import devices_on_hosts, holders_label, uncertainty_label
from fabric.inventory.models import Chassis, Device, Drawer, HostPort
from fabric.operations.models import Operation, Plan
from fabric.operations.projected_state import DrawerKey, projected_drawers
from fabric.operations.selectors import NO_HISTORY, DurationKey, DurationRange, longest_drawer_duration, usual_durations
from fabric.plans.permissions import desired_parts
from fabric.plans.rules import DesiredState
from fabric.plans.selectors import PlanEntry, device_location, plan_entries
from fabric.plans.serialization import base_differences, base_state_json, host_port_names, visible_rows
from fabric.plans.services import involved_drawers

StoredStep = Mapping[str, Any]
FOREIGN_DEVICE: Final = gettext_noop("It would detach a device that is not yours. Ask an administrator to do it.")


@dataclass(frozen=True, kw_only=True)
class DrawerQueue:
    """The open work of a drawer: `page` is '' where the user may not see it."""

    words: str
    by: str = ""
    page: str = ""
    pk: object = None
    more: int = 0


@dataclass(frozen=True, kw_only=True)
class PreviewLane:
    """The steps in one drawer; drawers are processed in parallel.

    A step is as the plan stores it, with `usually` ('' where there is no history yet) and `after` in words.
    """

    name: str
    steps: tuple[StoredStep, ...]
    usually: str
    ahead: DrawerQueue | None


@dataclass(frozen=True, kw_only=True)
class DeviceInUse:
    """A device that the draft detaches from its host although it is in use there."""

    device: int
    name: str
    where: str
    by: str


@dataclass(frozen=True, kw_only=True)
class PlanPreview:
    entries: tuple[PlanEntry, ...]
    interrupted: tuple[str, ...]  # devices that are detached and reattached
    hosts: tuple[str, ...]  # that gain or lose a device
    links: tuple[str, ...]
    objections: tuple[tuple[str, Drawer | None], ...]  # sentences, each with its drawer where the user may see it
    lanes: tuple[PreviewLane, ...]
    steps: int
    usually: str
    differences: tuple[str, ...]
    chassis: tuple[int, ...]
    unreachable: tuple[str, ...]  # chassis
    in_use: tuple[DeviceInUse, ...]
    warnings: tuple[str, ...]  # of what hosts may not be able to hold

    @property
    def why_not(self) -> str:
        """Return why it cannot be applied, '' where it can."""
        if self.differences:
            return _("The state has changed since it was planned: replan first.")
        if self.objections:
            return _("A rule blocks it: change the draft first.")
        return "" if self.steps else _("There is nothing to change.")


def plan_preview(person: User, plan: Plan) -> PlanPreview:
    """Return the preview of a draft."""
    steps = [step for step in plan.preview if "objection" not in step]
    usual = usual_durations({(step["kind"], step["chassis"]) for step in steps})
    moves = [step for step in steps if step["device"] is not None]
    ends = {step[end] for step in steps for end in ("source", "target") if step[end] is not None}
    rows = Device.objects.select_related("chassis", "slot__drawer")
    devices = visible_rows(rows, person, {step["device"] for step in moves})
    chassis = {step["chassis"] for step in steps}
    unreachable = Chassis.objects.filter(pk__in=chassis).exclude(last_error="").order_by(natural("name"))
    return PlanPreview(
        entries=plan_entries(person, plan),
        interrupted=tuple(
            dict.fromkeys(
                f"{devices[step['device']].name} ({device_location(devices[step['device']])})"
                if step["device"] in devices
                else _("a device of others")
                for step in steps
                if step["interrupts"]
            )
        ),
        hosts=tuple(sorted({name for pk, name in host_port_names(ends, person).items() if pk is not None})),
        links=_links(person, steps, devices),
        objections=_objections(person, plan, others=any(step["device"] not in devices for step in moves)),
        lanes=_lanes(person, steps, devices, usual),
        steps=len(steps),
        usually=duration_label(longest_drawer_duration([_step_key(step) for step in steps], usual)),
        differences=tuple(current_differences(person, plan)),
        chassis=tuple(sorted(chassis | _affected_chassis(person, plan))),
        unreachable=tuple(unreachable.values_list("name", flat=True)),
        in_use=devices_in_use(person, plan),
        warnings=plan_warnings(person, plan),
    )


def plan_warnings(person: User, plan: Plan) -> tuple[str, ...]:
    """Return what hosts may not be able to hold with the devices that a draft attaches."""
    return attachment_warnings(person, DesiredState.from_json(plan.wanted).attachments)


def devices_in_use(person: User, plan: Plan) -> tuple[DeviceInUse, ...]:
    """Return the devices that a draft detaches from hosts where agents report that they are, or may be, in use."""
    taken = {step["device"] for step in plan.preview if step.get("source") and step.get("device")}
    hosts = HostAgent.objects.values("host")
    rows = Device.objects.select_related("chassis", "slot", "host_port__host").filter(
        host_port__host__in=hosts,
        # Processes on a host that another tenant has by now are shown to nobody else.
        host_port__in=HostPort.objects.visible_to(person),
    )
    found = visible_rows(rows, person, taken)
    sides = devices_on_hosts(found.values())
    return tuple(
        DeviceInUse(
            device=pk,
            name=row.name,
            where=device_location(row),
            by=_("not known: {reason}", reason=uncertainty_label(side)) if side.unsure else holders_label(side.holders),
        )
        for pk, row in found.items()
        if (side := sides[pk]).holders or side.unsure
    )


def current_differences(person: User, plan: Plan) -> list[str]:
    """Return sentences on what has changed since a draft was planned, and on objects the user has lost access to."""
    desired = DesiredState.from_json(plan.wanted)
    try:
        drawers = involved_drawers(projected_drawers(desired_parts(person, desired).chassis), desired)
    except FalconWebError as error:
        return [error.sentence]
    return base_differences(plan.base, base_state_json(drawers), person)


def _lanes(
    person: User, steps: Sequence[StoredStep], devices: Mapping[int, Any], usual: dict[DurationKey, DurationRange]
) -> tuple[PreviewLane, ...]:
    lanes: dict[DrawerKey, list[StoredStep]] = defaultdict(list)
    for step in steps:
        lanes[step["chassis"], step["drawer"]].append(step)
    names = drawer_names(lanes)
    busy = drawer_queues(person, lanes)
    return tuple(
        PreviewLane(
            name=names[place],
            steps=tuple(_step(step, devices, usual) for step in here),
            usually=duration_label(longest_drawer_duration([_step_key(step) for step in here], usual)),
            ahead=busy.get(place),
        )
        for place, here in lanes.items()
    )


def _step(step: StoredStep, devices: Mapping[int, Any], usual: Mapping[DurationKey, DurationRange]) -> StoredStep:
    usually = usual.get((step["kind"], step["chassis"]))
    hidden = step["device"] is not None and step["device"] not in devices
    return {
        **step,
        "sentence": _("Changes a device of others") if hidden else step["sentence"],
        "after": predecessors_label([position + 1 for position in step["after"]]),
        "usually": usually.words if usually is not None else "",
    }


def predecessors_label(numbers: Iterable[int]) -> str:
    """Return 'after 1, 3 to 5' for the numbers of steps, '' for none."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [
        _("{first} to {last}", first=run[0], last=run[-1]) if len(run) > 2 else ", ".join(map(str, run)) for run in runs
    ]
    return _("after {steps}", steps=", ".join(parts)) if parts else ""


def duration_label(total: DurationRange | None) -> str:
    """Return how long a change usually takes, or that there is no estimate."""
    return total.words if total is not None else _(NO_HISTORY)


def drawer_names(places: Iterable[DrawerKey]) -> dict[DrawerKey, str]:
    """Return the labels of drawers: 'falcon-1 Drawer 1'; the chassis alone for what is outside drawers."""
    known = list(places)
    chassis = dict(Chassis.objects.filter(pk__in={one for one, _drawer in known}).values_list("pk", "name"))
    drawers = dict(Drawer.objects.filter(pk__in={one for _chassis, one in known if one}).values_list("pk", "name"))
    return {
        (one, drawer): " ".join(word for word in (chassis.get(one, ""), drawers.get(drawer or 0, "")) if word)
        for one, drawer in known
    }


def drawer_queues(person: User, places: Iterable[DrawerKey], plan: Plan | None = None) -> dict[DrawerKey, DrawerQueue]:
    """Return the open work of drawers ahead of `plan` (None: ahead of a change that would be requested now)."""
    keys = set(places)
    found: dict[DrawerKey, list[Operation]] = {}
    rows = Operation.objects.open().filter(chassis__in={chassis for chassis, _drawer in keys})
    seen = set(rows.filter(pk__in=Operation.objects.visible_to(person)).values_list("pk", flat=True))
    plans = set(Plan.objects.visible_to(person).filter(operations__in=rows).values_list("pk", flat=True))
    passed: set[DrawerKey] = set()
    for row in rows.select_related("plan").in_turn():
        place = (row.chassis_id, row.drawer_id)
        if plan is not None and row.plan_id == plan.pk:
            passed.add(place)
        if place in keys and place not in passed:
            found.setdefault(place, []).append(row)
    return {
        place: _drawer_queue(rows_of_place, seen, plans)
        for place, rows_of_place in found.items()
        if plan is None or place in passed
    }


def _drawer_queue(rows: list[Operation], seen: set[Any], plans: set[Any]) -> DrawerQueue:
    first, plan = rows[0], rows[0].plan
    more = len({row.plan_id or row.pk for row in rows}) - 1
    if plan is not None and plan.pk in plans:
        return DrawerQueue(words=plan.title, by=plan.acting_name, page="fabric:plan", pk=plan.pk, more=more)
    if first.pk in seen:
        by = first.requested_by_name
        return DrawerQueue(words=first.summary, by=by, page="fabric:operation", pk=first.pk, more=more)
    return DrawerQueue(words=_("another operation"), more=more)


def _step_key(step: StoredStep) -> tuple[DrawerKey, str]:
    return (step["chassis"], step["drawer"]), step["kind"]


def _links(person: User, steps: Sequence[StoredStep], devices: Mapping[int, Any]) -> tuple[str, ...]:
    """Return the links that go down or are retrained."""
    links = [device_location(row) for row in devices.values()]
    cables = {step["source"] for step in steps if step["kind"] == "cable"}
    ports = {step["port"] for step in steps if step["kind"] == "port"}
    host_ports = HostPort.objects.visible_to(person).select_related("chassis")
    links += [f"{row.chassis.name} · {row.label}" for row in host_ports.filter(pk__in=cables)]
    links += [f"{row.chassis.name} · {row.label}" for row in host_ports.filter(port__in=ports).exclude(pk__in=cables)]
    return tuple(dict.fromkeys(links))


def _objections(person: User, plan: Plan, *, others: bool) -> tuple[tuple[str, Drawer | None], ...]:
    found: list[tuple[str, int | None]] = [(_(FOREIGN_DEVICE), None)] if others else []
    found += [(step["objection"], step.get("drawer")) for step in plan.preview if "objection" in step]
    drawers = visible_rows(Drawer.objects.select_related("chassis"), person, {one for _sentence, one in found if one})
    return tuple((sentence, drawers.get(drawer or 0)) for sentence, drawer in found)


def _affected_chassis(person: User, plan: Plan) -> set[int]:
    """Return the chassis of a plan, so that the page subscribes to them, whether it has steps or not."""
    desired = DesiredState.from_json(plan.wanted)
    devices = Device.objects.visible_to(person).filter(pk__in=list(desired.attachments))
    drawers = Drawer.objects.visible_to(person).filter(pk__in=list(desired.modes))
    return set(devices.values_list("chassis", flat=True)) | set(drawers.values_list("chassis", flat=True))
