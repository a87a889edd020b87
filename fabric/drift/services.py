"""Actions on drift: find the cause in the BMC's log, accept the found state, or re-apply the approved one."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import transaction
from django.utils import timezone

from accounts.access import require_composer
from accounts.approvals.services import Proposal, two_people
from accounts.audit.actions import Action
from accounts.audit.services import Target, audited
from accounts.models import User
from core.database import natural
from core.errors import Conflict, Forbidden, Invalid, NotFound
from core.language import _, joined
from core.threads import run_in_thread
from core.zones import CLOCK, local_words
from fabric.bmc.client import BmcClient
from fabric.bmc.errors import BmcError
from fabric.bmc.log_search import LogEntry, read_log_entries
from fabric.bmc.types import DrawerMode
from fabric.drift.approved_state import approve_state, found_state, state_label
from fabric.drift.models import Drift
from fabric.drift.selectors import DriftVisibility, drift_rows, drift_views, drift_visibility
from fabric.inventory.labels import part_name
from fabric.inventory.locks import lock_chassis, lock_parts
from fabric.inventory.models import Approvable, Chassis, Device, HostPort
from fabric.operations.models import Operation, Plan
from fabric.operations.projected_state import projected_drawers
from fabric.operations.rules import PortSetting
from fabric.plans.rules import DesiredState
from fabric.plans.selectors import desired_dangers
from fabric.plans.services import involved_drawers, plan_apply, plan_create, steps_plan
from fabric.signals import inventory_changed

logger = logging.getLogger(__name__)

Kind = Drift.Kind
PartKey = tuple[type[Approvable], int]
ORIGIN = "drift"
MAX_AT_ONCE = 1000
# The previous walk may have begun so long before it was stored.
MAX_WALK_DURATION = timedelta(seconds=60)


@dataclass(frozen=True, kw_only=True)
class ReapplyEffects:
    """Side effects of a re-apply: devices detached meanwhile, cables to be moved; `key` is a digest of them."""

    detached: tuple[str, ...] = ()
    cables: tuple[str, ...] = ()
    key: str = ""


def drifts_accept(*, person: User, drifts: Collection[int]) -> list[Drift]:
    """Approve the found state of each of these drifts (ids), all or none; returns them as they ended.

    Raises NotFound for drifts that the user may not see, Forbidden for those of others, Conflict with `differences`
    where one ended meanwhile, has another state by now, or is being changed by an operation.
    """
    with audited(Action.DRIFT_ACCEPT, actor=person, target=Target(kind="drift")) as act:
        chassis = {row.chassis_id for row in _requested_drifts(person, drifts)}
        lock_chassis(chassis)
        rows = _requested_drifts(person, drifts)
        lock_parts(devices=[row.device_id for row in rows], host_ports=[row.host_port_id for row in rows])
        visibility = drift_visibility(person, rows)
        _check_permitted(rows, visibility)
        act.target = _audit_target(rows)
        act.before = {f"{row.chassis.name}: {row.what}": row.expected_words for row in rows}
        act.after = {f"{row.chassis.name}: {row.what}": row.found_words for row in rows}
        going_on = _open_operations(chassis)
        _refuse([_accept_obstacle(row, visibility, going_on) for row in rows])
        now = timezone.now()
        for row in rows:
            part = row.part
            if part is not None and row.kind != Kind.DEVICE:
                part.save(update_fields=approve_state(part, row.found, now))
            row.ended_at, row.end = now, Drift.End.ACCEPTED
            row.ended_by, row.ended_by_name = person, person.get_username()
            row.save(update_fields=["ended_at", "end", "ended_by", "ended_by_name"])
        for pk in chassis:
            transaction.on_commit(partial(inventory_changed.send, Chassis, chassis_id=pk), robust=True)
    return rows


def reapply_proposal(*, person: User, drifts: Collection[int], **_rest: Any) -> Proposal:
    """Return what re-applying the approved state would do."""
    rows = _requested_drifts(person, drifts)
    return Proposal(
        dangers=desired_dangers(person, approved_desired_state(rows)),
        target=_audit_target(rows),
        sentence=f"Re-apply the approved state of {', '.join(row.what for row in rows)}.",
        facts={f"{row.chassis.name}: {row.what}": row.found_words for row in rows},
    )


@two_people(reapply_proposal)
def drifts_reapply(*, person: User, drifts: Collection[int], agreed: str | None = None) -> Plan:
    """Re-apply the approved state of each of these drifts (ids), in one plan that starts immediately; returns the plan.

    `agreed` is the `key` of the effects that `drifts_reapply_effects` showed, None for callers that did not ask. Raises
    as `drifts_accept` does, Conflict where the effects differ by now, and as `plan_create` and `plan_apply` do: nothing
    is started then.
    """
    with audited(Action.DRIFT_REAPPLY, actor=person, target=Target(kind="drift")) as act:
        lock_chassis({row.chassis_id for row in _requested_drifts(person, drifts)})
        rows = _requested_drifts(person, drifts)
        visibility = drift_visibility(person, rows)
        _check_permitted(rows, visibility)
        act.target = _audit_target(rows)
        _refuse([_reapply_obstacle(row, visibility) for row in rows])
        if agreed is not None and agreed != _reapply_effects(person, rows, visibility).key:
            raise Conflict(
                _("Re-applying would detach other devices than the page showed. Reload, then review it again.")
            )
        plan = plan_create(person=person, desired=approved_desired_state(rows), title=_title(rows), origin=ORIGIN)
        applied = plan_apply(person=person, plan=plan)
        act.after = {"plan": str(applied.pk), "title": applied.title}
    return applied


def drifts_reapply_effects(*, person: User, drifts: Collection[int]) -> ReapplyEffects:
    """Return the devices that re-applying these (ids) would detach, and the cables to move; nothing of refused ones."""
    rows = list(drift_rows(person, is_open=True).filter(pk__in=drifts).select_related("device", "host_port"))
    visibility = drift_visibility(person, rows)
    if not all(visibility.may_reapply(row) for row in rows):
        return ReapplyEffects()
    try:
        return _reapply_effects(person, rows, visibility)
    except Conflict:
        return ReapplyEffects()


def _reapply_effects(person: User, rows: Sequence[Drift], visibility: DriftVisibility) -> ReapplyEffects:
    wanted = approved_desired_state(rows)
    planned = steps_plan(involved_drawers(projected_drawers({row.chassis_id for row in rows}), wanted), wanted)
    # Only devices that are reattached or attached elsewhere: detaching is what the user expects.
    back = {step.device for step in planned.steps if step.kind == "attach"}
    out = {step.device for step in planned.steps if step.kind == "detach" and step.device in back}
    devices = Device.objects.visible_to(person).filter(pk__in=out).select_related("chassis", "slot")
    moved = [row for row in rows if row.host_port_id in {one.source for one in planned.steps if one.kind == "cable"}]
    cables = [
        _(
            "The cable of {part} of {chassis}, from {before} to {after}",
            part=row.what,
            chassis=row.chassis.name,
            before=visibility.words(row, row.found, row.found_words),
            after=visibility.words(row, row.expected, row.expected_words),
        )
        for row in moved
    ]
    return ReapplyEffects(
        detached=tuple(part_name(device) for device in devices.order_by(natural("chassis__name"), "pk")),
        cables=tuple(cables),
        key=" ".join([*sorted(f"device-{pk}" for pk in out), *sorted(f"cable-{row.pk}" for row in moved)]),
    )


def drifts_of_chassis(*, person: User, chassis: int, reapply: bool = False) -> list[int]:
    """Return the ids of all drift of a chassis that the user may accept, or re-apply.

    Raises Conflict where there is none, NotFound for a chassis that they may not see.
    """
    if not Chassis.objects.visible_to(person).filter(pk=chassis).exists():
        raise NotFound(_("There is no such chassis."))
    require_composer(person, _("accept or re-apply"))
    views = drift_views(person, drift_rows(person, chassis=chassis, is_open=True))
    found = [view.id for view in views if (view.may_reapply if reapply else view.may_accept)]
    if not found:
        raise Conflict(_("This chassis has no drift that you could change. Reload the page."))
    return found


def approved_desired_state(rows: Iterable[Drift]) -> DesiredState:
    """Return the approved state of the parts of these drifts."""
    attachments: dict[int, int | None] = {}
    modes: dict[int, DrawerMode] = {}
    cables: dict[int, int | None] = {}
    settings: dict[int, PortSetting] = {}
    for row in rows:
        state = int(row.expected) if row.kind in {Kind.ATTACHMENT, Kind.CABLE} and row.expected else None
        match row.kind:
            case Kind.ATTACHMENT if row.device_id is not None:
                attachments[row.device_id] = state
            case Kind.CABLE if row.host_port_id is not None:
                cables[row.host_port_id] = state
            case Kind.MODE if row.drawer_id is not None:
                modes[row.drawer_id] = DrawerMode(row.expected)
            case Kind.PORT if row.port_id is not None:
                kind, _slash, width = row.expected.partition("/")
                settings[row.port_id] = PortSetting(port_type=kind, configured_width=int(width) if width else None)
    return DesiredState(attachments=attachments, modes=modes, cables=cables, settings=settings)


def _requested_drifts(person: User, drifts: Collection[int]) -> list[Drift]:
    """Return the rows, including ended ones, whose end is reported."""
    require_composer(person, _("accept or re-apply"))
    if not drifts:
        raise Invalid(_("Choose at least one."), errors={"drift_ids": "Give at least one id."})
    if len(drifts) > MAX_AT_ONCE:
        raise Invalid(
            _("At most {count} together.", count=MAX_AT_ONCE), errors={"drift_ids": f"Give at most {MAX_AT_ONCE} ids."}
        )
    rows = list(
        drift_rows(person).filter(pk__in=drifts).select_related("chassis", "device", "drawer", "host_port", "port")
    )
    if len(rows) != len(set(drifts)):
        raise NotFound(_("There is no such drift."))
    return rows


def _check_permitted(rows: Sequence[Drift], visibility: DriftVisibility) -> None:
    for row in rows:
        if not visibility.is_theirs(row):
            raise Forbidden(_("Only an administrator may decide on {part}.", part=row.what))


def _audit_target(rows: Sequence[Drift]) -> Target:
    return Target(kind="drift", id=",".join(str(row.pk) for row in rows)[:64], name=_parts_label(rows))


def _refuse(obstacles: Iterable[str]) -> None:
    if differences := [sentence for sentence in obstacles if sentence]:
        raise Conflict(joined(differences[:5]), differences=differences)


def _accept_obstacle(row: Drift, visibility: DriftVisibility, going_on: Mapping[PartKey, Operation]) -> str:
    """Return '' if the found state is unchanged, else what it is by now."""
    if row.ended_at is not None:
        return _ended_sentence(row)
    part = row.part
    if part is None or part.missing_since is not None:
        return _("{part} is missing: the chassis no longer reports it.", part=row.what)
    if row.kind == Kind.DEVICE:
        return ""
    if (operation := going_on.get((type(part), part.pk))) is not None:
        is_seen = Operation.objects.visible_to(visibility.person).filter(pk=operation.pk).exists()
        if not is_seen:
            return _("{part} is being changed. See how that ends.", part=row.what)
        return _(
            "{part} is being changed: {name} asked to '{operation}'. See how that ends.",
            part=row.what,
            name=operation.requested_by_name,
            operation=operation.summary,
        )
    found = found_state(part)
    if found != row.found:
        ports = [int(found)] if found and row.kind == Kind.ATTACHMENT else []
        visible = HostPort.objects.visible_to(visibility.person).filter(pk__in=ports).exists() or not ports
        now = state_label(part, found or "") if visible else _("another host port")
        was = visibility.words(row, row.found, row.found_words)
        return _(
            "{part} has changed again meanwhile: it is {now} now, not {before}.", part=row.what, now=now, before=was
        )
    return ""


def _reapply_obstacle(row: Drift, visibility: DriftVisibility) -> str:
    if row.ended_at is not None:
        return _ended_sentence(row)
    if row.kind == Kind.DEVICE:
        return _("{part} was replaced: reinstall the approved device, or accept the new one.", part=row.what)
    part = row.part
    if part is None or part.missing_since is not None:
        return _("{part} is missing: the chassis no longer reports it.", part=row.what)
    if not row.chassis.is_composable:
        return _(
            "{chassis} is monitored only: {part} can be changed only at the chassis.",
            chassis=row.chassis.name,
            part=row.what,
        )
    if not visibility.may_reapply(row):
        raise Forbidden(_("{part} is approved for a host port that is not granted to your tenant.", part=row.what))
    return ""


def _ended_sentence(row: Drift) -> str:
    when = local_words(row.ended_at, CLOCK) if row.ended_at else _("meanwhile")
    values = {"part": row.what, "name": row.ended_by_name or _("somebody"), "time": when}
    match row.end:
        case Drift.End.ACCEPTED:
            return _("{part}: {name} accepted it at {time}.", **values)
        case Drift.End.REAPPLIED:
            return _("{part}: {name} re-applied it at {time}.", **values)
        case Drift.End.WENT_AWAY:
            return _("{part} has its approved state again since {time}.", **values)
    return _("{part} has changed again at {time}. Reload the page.", **values)


def _open_operations(chassis: Collection[int]) -> dict[PartKey, Operation]:
    """Return the first operation that has not ended of each part of these chassis (ids)."""
    rows = Operation.objects.open().filter(chassis__in=chassis).in_turn()
    found: dict[PartKey, Operation] = {}
    for operation in rows.select_related("device", "drawer", "source", "port"):
        if (part := operation.subject) is not None:
            found.setdefault((type(part), part.pk), operation)
    return found


def _parts_label(rows: Sequence[Drift]) -> str:
    return rows[0].what if len(rows) == 1 else f"{len(rows)} parts"


def _title(rows: Sequence[Drift]) -> str:
    names = sorted({row.chassis.name for row in rows})
    where = names[0] if len(names) == 1 else f"{len(names)} chassis"
    return f"Re-apply the approved state: {_parts_label(rows)}, {where}"


async def drifts_explain(*, chassis_id: int, bmc: BmcClient) -> None:
    """Read a BMC's log once, with the poller's client, for the account that caused each unexplained drift.

    An unreachable BMC is retried after the next walk; one whose log has no answer is not.
    """
    queries: list[_CauseQuery] = await run_in_thread(_cause_queries, chassis_id)
    if not queries:
        return
    since = min(one.since for one in queries)
    try:
        records = await read_log_entries(bmc, since)
    except BmcError as error:
        logger.info("the log of chassis %s: %s", chassis_id, error.sentence)
        if error.retry_helps:
            return
        records = []
    await run_in_thread(_store_causes, chassis_id, queries, records)


class _CauseQuery:
    """The search for the cause of a drift: log entries on one of `uris`, the best ones first, since a moment."""

    def __init__(self, row: Drift) -> None:
        self.pk = row.pk
        self.since = (row.not_before or row.noticed_at) - MAX_WALK_DURATION
        self.uris = [uri for uri in _origin_uris(row) if uri]

    def answer(self, records: Iterable[LogEntry]) -> LogEntry | None:
        """Return the newest matching entry, preferably one that names an account."""
        about = [one for one in records if one.origin_uri in self.uris and one.is_since(self.since)]
        about.sort(key=lambda one: (bool(one.originator), -self.uris.index(one.origin_uri), one.at))
        return about[-1] if about else None


def _origin_uris(row: Drift) -> list[str]:
    """Return the URIs that the BMC's log would name as the origin of such a change."""
    match row.kind:
        case Kind.ATTACHMENT:
            ports = [int(state) for state in (row.found, row.expected) if state]
            zones = dict(HostPort.objects.filter(pk__in=ports).values_list("pk", "uri"))
            return [zones[pk] for pk in ports if pk in zones]
        case Kind.CABLE if row.host_port is not None:
            # Not the zone: its log entries are about devices.
            port = row.host_port.port
            return [port.uri if port is not None else "", row.host_port.endpoint_uri]
        case Kind.DEVICE if row.device is not None:
            slot = row.device.slot
            return [row.device.uri, slot.uri if slot is not None else ""]
    return [row.part.uri] if row.part is not None else []


def _cause_queries(chassis_id: int) -> list[_CauseQuery]:
    rows = Drift.objects.open().filter(chassis=chassis_id, log_asked_at=None, cause=Drift.Cause.UNKNOWN)
    return [
        _CauseQuery(row)
        for row in rows.select_related("device__slot", "drawer", "host_port__port", "port").order_by("pk")
    ]


def _store_causes(chassis_id: int, queries: Sequence[_CauseQuery], records: Sequence[LogEntry]) -> None:
    now = timezone.now()
    for question in queries:
        answer = question.answer(records)
        values: dict[str, str | datetime] = {"log_asked_at": now}
        if answer is not None:
            values |= {
                "cause": Drift.Cause.LOG,
                "originator": answer.originator[:150].replace("\0", ""),
                "origin_address": answer.address[:150].replace("\0", ""),
                "log_message": answer.message[:500].replace("\0", ""),
                "changed_at": answer.at,
            }
        Drift.objects.filter(pk=question.pk, log_asked_at=None).update(**values)
    inventory_changed.send(Chassis, chassis_id=chassis_id)
