"""What changes of attachments would do, device by device, and the work that a person has under way."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import Q
from django.utils import timezone

from accounts.models import User
from core.errors import Invalid, NotFound
from core.language import _
from core.text import parse_id
from core.zones import MINUTE, local_words
from fabric.agents.selectors import DeviceOnHost, devices_on_hosts, holders_label, uncertainty_label
from fabric.inventory.labels import host_port_name, slot_label
from fabric.inventory.models import Device, HostPort
from fabric.leases.models import Lease, LeaseItem
from fabric.operations.models import Operation, Plan
from fabric.operations.projected_state import DrawerKey
from fabric.operations.selectors import DurationRange, longest_drawer_duration, may_cancel, usual_durations
from fabric.plans.rules import DesiredState
from fabric.plans.selectors import plan_summaries
from fabric.plans.serialization import visible_rows

MAX_CHANGES_AT_ONCE: Final = 16  # devices; more are a draft
TASK_SHOWN: Final = timedelta(minutes=15)  # after its end
TASKS_SHOWN: Final = 5


@dataclass(frozen=True, kw_only=True)
class AttachmentChange:
    """A device, the host port that it is to be attached to, and the one that its person saw it at; None: no host."""

    device: Device
    target: HostPort | None
    expected: HostPort | None

    @property
    def kind(self) -> str:
        """The kind of operation that makes it."""
        return "detach" if self.target is None else "move" if self.expected is not None else "attach"

    @property
    def value(self) -> str:
        """It as a form sends it."""
        ports = (one.pk if one is not None else "" for one in (self.target, self.expected))
        return ":".join(str(part) for part in (self.device.pk, *ports))

    @property
    def drawer(self) -> DrawerKey:
        """The chassis and the drawer that it is made in."""
        return self.device.chassis_id, self.device.slot.drawer_id if self.device.slot else None


@dataclass(frozen=True, kw_only=True)
class ChangeImpact:
    """A change in words: who uses the device, whose it is and until when, and why it is refused ('' if it is not)."""

    change: AttachmentChange
    where: str
    before: str
    after: str
    used_by: str
    is_used: bool
    tenant: str
    lease: str
    obstacle: str


@dataclass(frozen=True, kw_only=True)
class OwnTask:
    """An operation, or a plan, that a person began: its progress, and what they can do about it.

    `undo` are the values of the changes that undo it; `undo_plan` is True where its undoing needs a draft.
    """

    pk: object
    page: str
    summary: str
    state: str
    state_label: str
    step: str
    done: int
    total: int
    seconds: float | None
    usually: str
    sentence: str
    is_open: bool
    cancel: str = ""  # the view that cancels it
    undo: tuple[str, ...] = ()
    undo_plan: bool = False

    @property
    def keep(self) -> str:
        """The name by which its button keeps the focus."""
        return f"cancel-{self.pk}"

    @property
    def cancel_label(self) -> str:
        """What a screen reader says of its button."""
        return _("Cancel {summary}", summary=self.summary)


def attachment_changes(person: User, values: Sequence[str]) -> list[AttachmentChange]:
    """Return changes from '<device>:<host port>:<expected host port>', ids or ''; raises Invalid and NotFound."""
    if not 0 < len(values) <= MAX_CHANGES_AT_ONCE:
        raise Invalid(_("Choose 1 to {most} devices. For more, use a draft.", most=MAX_CHANGES_AT_ONCE))
    parts = [one.split(":") for one in values]
    if any(len(one) != 3 for one in parts) or len({one[0] for one in parts}) < len(parts):
        raise Invalid(_("These are not changes of devices. Reload the page, then try again."))
    ids = [
        (parse_id(device), parse_id(target) if target else None, parse_id(expected) if expected else None)
        for device, target, expected in parts
    ]
    rows = Device.objects.select_related("chassis", "slot__drawer", "slot__port", "tenant", "host_port__host")
    devices = visible_rows(rows, person, [one[0] for one in ids])
    known = {port for _device, *places in ids for port in places if port is not None}
    ports = visible_rows(HostPort.objects.select_related("host", "chassis", "tenant"), person, known)
    if known - set(ports) or {one[0] for one in ids} - set(devices):
        raise NotFound(_("There is no such device or host port."))
    return [
        AttachmentChange(
            device=devices[device],
            target=ports[target] if target is not None else None,
            expected=ports[expected] if expected is not None else None,
        )
        for device, target, expected in ids
    ]


def change_impacts(
    person: User, changes: Collection[AttachmentChange], obstacles: Mapping[int, str]
) -> list[ChangeImpact]:
    """Return what each change would do, in a constant number of queries."""
    devices = [one.device for one in changes]
    held = {one.host_port_id for one in devices if one.host_port_id is not None}
    seen = set(HostPort.objects.visible_to(person).filter(pk__in=held).values_list("pk", flat=True))
    sides = devices_on_hosts([one for one in devices if one.host_port_id in seen])
    leases = _leases(devices)
    return [
        ChangeImpact(
            change=one,
            where=f"{one.device.chassis.name} · {slot_label(one.device)}".removesuffix(" · "),
            before=_(host_port_name(one.device.host_port))
            if one.device.host_port_id in {None, *seen}
            else _("another host"),
            after=_(host_port_name(one.target)),
            used_by=use_label(sides.get(one.device.pk)),
            is_used=bool((side := sides.get(one.device.pk)) and (side.holders or side.unsure)),
            tenant=one.device.tenant.name if one.device.tenant is not None else "",
            lease=leases.get(one.device.pk, ""),
            obstacle=obstacles.get(one.device.pk, ""),
        )
        for one in changes
    ]


def use_label(side: DeviceOnHost | None) -> str:
    """Return who uses a device, or why that is not known; '' for one that is attached to no host that is seen."""
    if side is None:
        return ""
    if not side.reported:
        return _("{why}: not known", why=side.no_report_reason.rstrip("."))
    if side.unsure:
        return _("Not known: {why}", why=uncertainty_label(side))
    return holders_label(side.holders) or _("No process found")


def _leases(devices: Iterable[Device]) -> dict[int, str]:
    """Return until when devices are leased, in words."""
    items = LeaseItem.objects.filter(
        device__in=list(devices), released_at=None, taken_at__isnull=False, lease__state__in=Lease.IN_EFFECT
    )
    ends = items.values_list("device_id", "lease__ends_at")
    return {
        pk or 0: _("until {time}", time=local_words(end, MINUTE)) if end else _("until further notice")
        for pk, end in ends
    }


def usual_change_duration(changes: Iterable[AttachmentChange]) -> DurationRange | None:
    """Return how long such changes usually take together; None where that is not known yet."""
    steps = [(one.drawer, one.kind) for one in changes]
    return longest_drawer_duration(steps, usual_durations({(kind, chassis) for (chassis, _drawer), kind in steps}))


def own_tasks(person: User) -> list[OwnTask]:
    """Return the person's operations and plans that run, wait for them, or ended minutes ago; newest first."""
    recent = Q(finished_at__gte=timezone.now() - TASK_SHOWN)
    operations = list(
        Operation.objects.visible_to(person)
        .filter(recent | Q(finished_at=None), requested_by=person, plan=None)
        .order_by("-requested_at")[:TASKS_SHOWN]
    )
    plans = Plan.objects.visible_to(person).filter(
        recent | Q(state__in=(*Plan.ACTIVE, Plan.State.STOPPED)), acting=person
    )
    found = [*_operation_tasks(person, operations), *_plan_tasks(person, plans.order_by("-applied_at")[:TASKS_SHOWN])]
    return [task for _at, task in sorted(found, key=lambda one: one[0], reverse=True)][:TASKS_SHOWN]


def _operation_tasks(person: User, rows: Collection[Operation]) -> list[tuple[datetime, OwnTask]]:
    usual = usual_durations({(row.kind, row.chassis_id) for row in rows if row.is_open})
    devices = visible_rows(Device.objects, person, {row.device_id for row in rows if row.device_id is not None})
    known = {port for row in rows for port in (row.source_id, row.target_id) if port is not None}
    ports = {None, *visible_rows(HostPort.objects, person, known)}
    tasks = []
    for row in rows:
        usually = usual.get((row.kind, row.chassis_id)) if row.is_open else None
        device = devices.get(row.device_id or 0)
        may_undo = (
            person.may_compose
            and row.state == Operation.State.DONE
            and device is not None
            and device.host_port_id == row.target_id != row.source_id
            and {row.source_id, row.target_id} <= ports
        )
        task = OwnTask(
            pk=row.pk,
            page="fabric:operation",
            summary=row.summary,
            state=row.state,
            state_label=row.get_state_display(),
            step=next((_(step["name"]) for step in row.steps if step["state"] == "running"), ""),
            done=len([step for step in row.steps if step["state"] in {"done", "skipped"}]),
            total=len(row.steps),
            seconds=_elapsed(row.started_at, row.finished_at),
            usually=usually.words if usually is not None else "",
            sentence=_(row.error),
            is_open=row.is_open,
            cancel="fabric:operation_cancel"
            if row.is_open and row.cancel_requested_at is None and may_cancel(person, row)
            else "",
            undo=(f"{row.device_id}:{row.source_id or ''}:{row.target_id or ''}",) if may_undo else (),
        )
        tasks.append((row.requested_at, task))
    return tasks


def _plan_tasks(person: User, plans: Iterable[Plan]) -> list[tuple[datetime, OwnTask]]:
    summaries = plan_summaries(plans)
    undoing = _plan_undo_values(person, [one.plan for one in summaries if one.plan.is_final])
    tasks = []
    for one in summaries:
        plan = one.plan
        undo = undoing.get(plan.pk, ()) if plan.state != Plan.State.ROLLED_BACK and person.may_compose else ()
        task = OwnTask(
            pk=plan.pk,
            page="fabric:plan",
            summary=plan.title,
            state=plan.state,
            state_label=plan.get_state_display(),
            step="",
            done=one.progress.done,
            total=one.progress.total,
            seconds=_elapsed(plan.applied_at, plan.finished_at),
            usually="",
            sentence=_(plan.sentence),
            is_open=plan.is_active,
            cancel="fabric:plan_cancel"
            if plan.state in {Plan.State.RUNNING, Plan.State.RESUMING} and person.may_compose
            else "",
            undo=undo or (),
            undo_plan=undo is None,
        )
        tasks.append((one.at, task))
    return tasks


def _plan_undo_values(person: User, plans: Collection[Plan]) -> dict[Any, tuple[str, ...] | None]:
    """Return the changes that undo ended plans, () where there is nothing to undo, None where it needs a draft."""
    begun: dict[Any, set[int]] = {plan.pk: set() for plan in plans}
    rows = Operation.objects.filter(plan__in=plans, attempts__gt=0).order_by()
    for plan, device in rows.values_list("plan", "device"):
        begun[plan].add(device or 0)
    devices = {pk for one in begun.values() for pk in one}
    # What others have attached to a host port of theirs by now is no longer this person's to undo.
    own = Device.objects.visible_to(person).filter(
        Q(host_port=None) | Q(host_port__in=HostPort.objects.visible_to(person)), pk__in=devices
    )
    now = dict(own.values_list("pk", "host_port"))
    found: dict[Any, tuple[str, ...] | None] = {}
    for plan in plans:
        wanted, before = DesiredState.from_json(plan.wanted), DesiredState.from_json(plan.base)
        if not begun[plan.pk]:
            found[plan.pk] = ()
            continue
        back = {
            pk: before.attachments[pk] for pk in wanted.attachments if pk in begun[plan.pk] & set(before.attachments)
        }
        if 0 in begun[plan.pk] or not set(back) <= set(now) or len(back) > MAX_CHANGES_AT_ONCE:
            found[plan.pk] = None
            continue
        found[plan.pk] = tuple(f"{pk}:{port or ''}:{now[pk] or ''}" for pk, port in back.items() if now[pk] != port)
    return found


def _elapsed(begin: datetime | None, end: datetime | None) -> float | None:
    return None if begin is None else max(0.0, ((end or timezone.now()) - begin).total_seconds())
