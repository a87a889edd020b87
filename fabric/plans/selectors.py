"""Plans as a user sees them: the list, the entries of each, its progress, and the user's own draft."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.db.models import Count, Q, QuerySet

from accounts.approvals.models import Danger
from accounts.approvals.services import Proposal
from accounts.audit.services import target_of
from accounts.models import User
from core.language import _, gettext_noop
from fabric.bmc.types import DrawerMode
from fabric.inventory.models import Device, Drawer, Host, HostPort, Port
from fabric.operations.models import Operation, Plan
from fabric.operations.rules import (
    MODE_VALUE_LABELS,
    DeviceSnapshot,
    DrawerSnapshot,
    PortSetting,
    attachment_violation,
    port_type_label,
)
from fabric.plans.rules import DesiredState, merged_setting
from fabric.plans.serialization import host_port_names, visible_rows

DRAFT_ORIGIN: Final = "topology"
UNKNOWN_MODE: Final = gettext_noop("not known")
STATE_FILTERS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "draft": (gettext_noop("Drafts"), (Plan.State.DRAFT,)),
    "active": (gettext_noop("Running"), Plan.ACTIVE),
    "stopped": (gettext_noop("Stopped"), (Plan.State.STOPPED,)),
    "ended": (gettext_noop("Ended"), Plan.FINAL),
}
ORIGIN_LABELS: Final = {
    "topology": gettext_noop("on the topology"),
    "file": gettext_noop("from a file"),
    "api": gettext_noop("by the API"),
    "drift": gettext_noop("after drift"),
    "lease": gettext_noop("at the end of a lease"),
    "undo": gettext_noop("to undo another plan"),
    "run": gettext_noop("for a run of a benchmark"),
    "recommend": gettext_noop("as recommended"),
    "compose": gettext_noop("on the topology at once"),
    "failure": gettext_noop("for a device that failed"),
    "firmware": gettext_noop("for an update of firmware"),
}


@dataclass(frozen=True, kw_only=True)
class PlanEntry:
    """One change of a plan: from and to, in words; `page` and `pk` link to the object."""

    key: str  # 'device-3', 'drawer-1', 'cable-2', 'port-7'
    name: str
    where: str
    before: str
    after: str
    page: str
    pk: int


@dataclass(frozen=True, kw_only=True)
class PlanProgress:
    """How many of the steps are done; `back`: of the rollback."""

    done: int
    total: int
    back: bool = False


@dataclass(frozen=True, kw_only=True)
class PlanSummary:
    """A plan in a list: who made or applied it last, and when."""

    plan: Plan
    by: str
    at: datetime
    origin: str
    progress: PlanProgress


@dataclass(frozen=True, kw_only=True)
class DraftView:
    """A user's open draft: its entries, and how many rules it violates."""

    id: UUID
    entries: tuple[PlanEntry, ...]
    objections: tuple[str, ...]
    steps: int


def plan_rows(person: User, *, group: str = "", search: str = "") -> QuerySet[Plan]:
    """Return the plans visible to a user, newest first; `group` is a key of FILTERS or '' for all."""
    rows: QuerySet[Plan] = Plan.objects.visible_to(person).order_by("-created_at")
    if group in STATE_FILTERS:
        rows = rows.filter(state__in=STATE_FILTERS[group][1])
    words = search.replace("\0", " ").strip()
    return rows.filter(title__icontains=words) if words else rows


def plan_summaries(plans: Iterable[Plan]) -> tuple[PlanSummary, ...]:
    """Return the summaries of plans, in two queries."""
    rows = list(plans)
    counts: dict[UUID, Counter[tuple[bool, int, str]]] = defaultdict(Counter)
    steps = Operation.objects.filter(plan__in=rows).order_by().values_list("plan", "is_rollback", "round", "state")
    for plan, rollback, round_, state, count in steps.annotate(count=Count("pk")):
        counts[plan][rollback, round_, state] = count
    return tuple(
        PlanSummary(
            plan=row,
            by=row.acting_name or row.requested_by_name,
            at=row.applied_at or row.created_at,
            origin=_(ORIGIN_LABELS.get(row.origin, "")),
            progress=plan_progress(row, counts[row.pk]),
        )
        for row in rows
    )


StepCounts = Mapping[tuple[bool, int, str], int]  # (is rollback, round, state) to how many operations


def plan_progress(plan: Plan, counts: StepCounts) -> PlanProgress:
    """Return the progress of a plan. Replanned steps count once: the steps done before, and the present ones."""
    if plan.state == Plan.State.DRAFT:
        return PlanProgress(done=0, total=len([step for step in plan.preview if "objection" not in step]))
    back = any(rollback and round_ == plan.round for rollback, round_, _state in counts)
    here = {(round_, state): count for (rollback, round_, state), count in counts.items() if rollback == back}
    last = max((round_ for round_, _state in here), default=0)
    done = sum(count for (_round, state), count in here.items() if state == Operation.State.DONE)
    left = sum(count for (round_, state), count in here.items() if round_ == last and state != Operation.State.DONE)
    return PlanProgress(done=done, total=done + left, back=back)


def open_draft(person: User) -> Plan | None:
    """Return the draft that a user is composing on the pages, None where there is none."""
    # A draft for another tenant stays with that tenant.
    rows = Plan.objects.visible_to(person).filter(requested_by=person, state=Plan.State.DRAFT, origin=DRAFT_ORIGIN)
    return rows.order_by("-created_at").first()


def draft_view(person: User) -> DraftView | None:
    """Return the user's open draft in words."""
    row = open_draft(person) if person.may_compose else None
    if row is None:
        return None
    return DraftView(
        id=row.pk,
        entries=plan_entries(person, row),
        objections=tuple(step["objection"] for step in row.preview if "objection" in step),
        steps=len([step for step in row.preview if "objection" not in step]),
    )


def plan_entries(person: User, plan: Plan) -> tuple[PlanEntry, ...]:
    """Return the changes of a plan that the user may see: devices, modes, cables, port settings."""
    desired, before = DesiredState.from_json(plan.wanted), DesiredState.from_json(plan.base)
    attachments = desired.attachments
    if plan.state != Plan.State.DRAFT or plan.origin != DRAFT_ORIGIN:
        # The desired state of an applied plan includes interrupted devices. Of a draft every entry can be removed.
        attachments = {pk: to for pk, to in attachments.items() if before.attachments.get(pk, to or 0) != to}
    return (
        *_devices(person, attachments, before.attachments),
        *_modes(person, desired, before),
        *_cables(person, desired, before),
        *_settings(person, desired, before),
    )


def _devices(person: User, desired: Mapping[int, int | None], before: Mapping[int, int | None]) -> list[PlanEntry]:
    names = host_port_names({*desired.values(), *(before.get(pk) for pk in desired)}, person)
    rows = visible_rows(Device.objects.select_related("chassis", "slot__drawer"), person, set(desired))
    return [
        PlanEntry(
            key=f"device-{pk}", name=row.name, where=device_location(row), page="fabric:device", pk=pk,
            before=names.get(before.get(pk), _("no host")), after=names.get(desired[pk], _("no host")),
        )
        for pk, row in rows.items()
    ]  # fmt: skip


def _modes(person: User, desired: DesiredState, before: DesiredState) -> list[PlanEntry]:
    rows = visible_rows(Drawer.objects.select_related("chassis"), person, set(desired.modes))
    return [
        PlanEntry(
            key=f"drawer-{pk}",
            name=_("Mode of {drawer}", drawer=row.name),
            where=row.chassis.name,
            page="fabric:drawer",
            pk=pk,
            before=_(MODE_VALUE_LABELS.get(before.modes.get(pk, DrawerMode.UNKNOWN), UNKNOWN_MODE)),
            after=_(MODE_VALUE_LABELS[desired.modes[pk]]),
        )
        for pk, row in rows.items()
    ]


def _cables(person: User, desired: DesiredState, before: DesiredState) -> list[PlanEntry]:
    pks = {host for one in (desired, before) for pk, host in one.cables.items() if host and pk in desired.cables}
    hosts = {pk: host.name for pk, host in visible_rows(Host.objects.all(), person, pks).items()}

    def named(host: int | None) -> str:
        return hosts.get(host, _("another host")) if host else _("no host")

    rows = visible_rows(HostPort.objects.select_related("chassis"), person, set(desired.cables))
    return [
        PlanEntry(
            key=f"cable-{pk}", name=_("Cable of host port {label}", label=row.label), where=row.chassis.name,
            page="fabric:port" if row.port_id else "fabric:chassis", pk=row.port_id or row.chassis_id,
            before=named(before.cables.get(pk)), after=named(desired.cables[pk]),
        )
        for pk, row in rows.items()
    ]  # fmt: skip


def _settings(person: User, desired: DesiredState, before: DesiredState) -> list[PlanEntry]:
    rows = visible_rows(Port.objects.select_related("chassis"), person, set(desired.settings))
    entries = []
    for pk, row in rows.items():
        now = before.settings.get(pk, PortSetting())
        after = merged_setting(now, desired.settings[pk])
        entries.append(
            PlanEntry(
                key=f"port-{pk}", name=row.name, where=row.chassis.name, page="fabric:port", pk=pk,
                before=port_setting_label(now), after=port_setting_label(after),
            )
        )  # fmt: skip
    return entries


def port_setting_label(setting: PortSetting) -> str:
    port_type = port_type_label(setting.port_type) if setting.port_type else ""
    lanes = f"x{setting.configured_width}" if setting.configured_width else ""
    return ", ".join(one for one in (port_type, lanes) if one) or _("not given")


def device_location(row: Any) -> str:
    """Return where a device is: chassis and slot, whose name includes its drawer."""
    return f"{row.chassis.name} · {row.slot.name}" if row.slot is not None else str(row.chassis.name)


def attachments_broken_by_mode(drawer: DrawerSnapshot, mode: DrawerMode) -> list[tuple[DeviceSnapshot, str]]:
    """Return the attachments that a mode would not permit, each with the rule: as few as possible, the rest may stay.

    Attachments of the most used host or port are kept first.
    """
    labels = {port.id: port.label for port in drawer.ports}
    state = replace(drawer, mode=mode).state(is_empty=True)
    held = [device for device in drawer.devices if device.attached in labels]
    shares = {device.attached: sum(other.attached == device.attached for other in held) for device in held}
    held.sort(key=lambda one: (-shares[one.attached], labels[one.attached or 0], one.slot))
    kept: set[str] = set()
    broken = []
    for device in held:
        label = labels[device.attached or 0]
        if reason := attachment_violation(state, slot=device.slot, label=label, others=kept, planned=True):
            broken.append((device, reason))
        else:
            kept.add(label)
    return sorted(broken, key=lambda one: (one[0].slot, one[0].id))


def plan_proposal(*, person: User, plan: Plan, force: Collection[int] = (), **_rest: Any) -> Proposal:
    """Return what the application of a draft would do."""
    # Ids of devices that the person may not see are no way to their names.
    forced = Device.objects.visible_to(person).filter(pk__in=force)
    by_force = list(forced.order_by("pk").values_list("name", flat=True))
    dangers = ([Danger.FORCE] if force else []) + desired_dangers(person, DesiredState.from_json(plan.wanted))
    proposal = course_proposal(plan, dangers, "Apply")
    return replace(
        proposal,
        sentence=f"Apply the plan ‘{plan.title}’{f', by force to {len(by_force)} devices' if by_force else ''}.",
        facts={**proposal.facts, "by force": by_force},
    )


def course_proposal(plan: Plan, dangers: list[Danger], verb: str) -> Proposal:
    """Return what an act that leads a plan on would do; two plans may be the same in words."""
    steps = [str(step.get("sentence") or step["objection"]) for step in plan.preview]
    return Proposal(
        dangers=dangers,
        target=target_of(plan),
        sentence=f"{verb} the plan ‘{plan.title}’.",
        facts={"state": plan.state, "steps": steps, "changes by id": plan.wanted},
    )


def desired_dangers(person: User, desired: DesiredState) -> list[Danger]:
    """Return the dangers of the changes that lead to a desired state."""
    modes = Drawer.objects.filter(pk__in=desired.modes).values_list("pk", "mode")
    found = [Danger.MODE] if any(DrawerMode(desired.modes[pk]).value != mode for pk, mode in modes) else []
    if person.is_administrator and _changes_leased_parts(desired):
        found.append(Danger.TENANT)
    return found


def _changes_leased_parts(desired: DesiredState) -> bool:
    """Return whether a device or host port that a tenant holds is changed, or the port or cable that it needs."""
    devices = Device.objects.filter(pk__in=desired.attachments).values_list("pk", "host_port")
    moved = {pk: desired.attachments[pk] for pk, port in devices if desired.attachments[pk] != port}
    cut = Q(slot__port__in=desired.settings) | Q(host_port__port__in=desired.settings) | Q(host_port__in=desired.cables)
    ports = Q(pk__in={*moved.values(), *desired.cables}) | Q(port__in=desired.settings)
    return (
        Device.objects.filter(Q(pk__in=moved) | cut, tenant__isnull=False).exists()
        or HostPort.objects.filter(ports, tenant__isnull=False).exists()
    )
