"""The end of a lease: extensions, requested or set, the early return, and the release of its parts.

A part is released only when it is certainly detached: the stored state is as old as the last walk, so the chassis is
read first.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from accounts.access import SITE_NAME, require_administrator, require_composer
from accounts.approvals.services import two_people
from accounts.audit.actions import Action
from accounts.audit.services import audit_batch, audited, target_of
from accounts.models import User
from core.enqueue import enqueue
from core.errors import Conflict, FalconWebError, Forbidden, Invalid
from core.failpoints import failpoint
from core.language import _, english, gettext_noop
from fabric.inventory.locks import lock_chassis, lock_parts
from fabric.inventory.models import Chassis, Device, HostPort
from fabric.leases import emails
from fabric.leases.models import Lease, LeaseItem
from fabric.leases.ownership import (
    booked_parts,
    check_not_booked,
    leases_end_empty,
    operations_on,
    ownership_change,
    timeline_add,
)
from fabric.leases.proposals import lease_extend_proposal, lease_return_proposal
from fabric.leases.rules import TimeSpan, format_end, format_instant
from fabric.leases.services import (
    DAY,
    MAX_DURATION,
    check_quota,
    clean_text,
    lease_audit_values,
    lock_lease,
)
from fabric.operations.models import Operation, Plan
from fabric.plans.jobs import plan_cancel, plan_resume
from fabric.plans.refresh import refresh_allocation
from fabric.plans.rules import DesiredState
from fabric.plans.services import plan_apply, plan_create

EXTENSION_PREFIX: Final = "Requested extension"
MAX_EXTENSION_REQUESTS_PER_DAY: Final = 20  # of one lease
# What a part of a lease that is returned early has from it.
SPLIT_FIELDS: Final = (
    "tenant", "tenant_name", "state", "starts_at", "ends_at", "note", "asked_by", "asked_by_name", "asked_at",
    "decided_by", "decided_by_name", "decided_at",
)  # fmt: skip


def lease_extension_request(*, person: User, lease: Lease, ends_at: datetime, note: str = "") -> Lease:
    """Request a later end of a lease of the user's tenant; a second request replaces the first.

    Raises Invalid for an end that is not later, and Conflict where a part is booked by another tenant by then.
    """
    with audited(Action.LEASE_EXTENSION_REQUEST, actor=person, target=target_of(lease)) as act:
        row = lock_lease(person, lease)
        require_composer(person, "change leases")
        if person.is_administrator:
            raise Forbidden(_("Administrators set the end directly."))
        _check_extendable(row)
        if row.ends_at is None:
            raise Conflict(_("Lease {lease} has no end: there is nothing to extend.", lease=row.pk))
        _check_end(ends_at, after=row.ends_at)
        check_not_booked(booked_parts(row), TimeSpan(row.ends_at, ends_at), but=row, person=person)
        # Administrators get an e-mail of each.
        requests = row.events.filter(at__gt=timezone.now() - DAY, sentence__startswith=EXTENSION_PREFIX)
        if requests.count() >= MAX_EXTENSION_REQUESTS_PER_DAY:
            raise Conflict(
                _(
                    "Another end was requested {count} times within a day. Wait for a decision.",
                    count=MAX_EXTENSION_REQUESTS_PER_DAY,
                )
            )
        row.extension_to, row.extension_note = ends_at, clean_text(note)
        row.extension_by_name = person.get_username()
        row.save(update_fields=["extension_to", "extension_note", "extension_by_name"])
        why = f" {row.extension_note}" if row.extension_note else ""
        timeline_add(row, row.extension_by_name, f"{EXTENSION_PREFIX} {format_end(ends_at)}.{why}")
        emails.notify_extension_requested(row, ends_at)
        act.after = {"asked for": ends_at.isoformat()}
    return row


def lease_extension_decline(*, person: User, lease: Lease, reason: str = "") -> Lease:
    """Decline a requested extension: the lease keeps its end."""
    with audited(Action.LEASE_EXTENSION_DECLINE, actor=person, target=target_of(lease)) as act:
        require_administrator(person)
        row = lock_lease(person, lease)
        if row.extension_to is None:
            raise Conflict(_("The request for another end of lease {lease} is no longer open.", lease=row.pk))
        why = clean_text(reason)
        act.before = {"asked for": row.extension_to.isoformat()}
        _clear_extension(row)
        row.save(update_fields=["extension_to", "extension_note", "extension_by_name"])
        timeline_add(
            row, person.get_username(), f"Declined another end: it stays {format_end(row.ends_at)}. {why}".strip()
        )
        emails.notify_end_changed(row, person.get_username(), why, declined=True)
    return row


@two_people(lease_extend_proposal)
def lease_extend(
    *, person: User, lease: Lease, ends_at: datetime | None, reason: str = "", override: bool = False
) -> Lease:
    """Set the end of a lease, later or sooner (None: until further notice); it also answers an extension request.

    Administrators only. Raises Invalid for an end in the past, Conflict where another lease needs one of its parts then
    (it is named), and, unless `override`, where a quota would be exceeded (`quota`).
    """
    with audited(Action.LEASE_EXTEND, actor=person, target=target_of(lease)) as act:
        require_administrator(person)
        row = lock_lease(person, lease)
        _check_extendable(row)
        act.before = lease_audit_values(row)
        _check_end(ends_at, after=max(timezone.now(), row.starts_at))
        things = booked_parts(row)
        check_not_booked(things, TimeSpan(max(timezone.now(), row.starts_at), ends_at), but=row)
        later = row.ends_at is not None and (ends_at is None or ends_at > row.ends_at)
        over: list[str] = []
        if later:
            kinds = Counter(row.items.filter(released_at=None).values_list("kind", flat=True))
            over = check_quota(person, row, kinds, TimeSpan(row.starts_at, ends_at), override=override)
        row.ends_at, row.warned_seconds = ends_at, None
        _clear_extension(row)
        row.save(update_fields=["ends_at", "warned_seconds", "extension_to", "extension_note", "extension_by_name"])
        passed = f" Over the quota on {person.get_username()}'s word: {' '.join(map(english, over))}" if over else ""
        timeline_add(
            row, person.get_username(), f"Its end is set: {format_end(ends_at)}.{passed} {clean_text(reason)}".strip()
        )
        emails.notify_end_changed(row, person.get_username(), clean_text(reason))
        act.after = lease_audit_values(row)
    return row


@two_people(lease_return_proposal)
def lease_return(*, person: User, lease: Lease, items: Collection[LeaseItem] | None = None) -> Lease:
    """Return a lease before its end, or only some `items` of it; returns the lease that is being returned.

    Attached devices are detached first, which takes time. A part of a lease becomes a lease of its own that ends now.
    Permitted to the tenant's users and administrators. Raises Conflict unless the lease is active.
    """
    with audited(Action.LEASE_RETURN, actor=person, target=target_of(lease)) as act:
        row = lock_lease(person, lease)
        require_composer(person, "change leases")
        if row.state != Lease.State.ACTIVE:
            state = row.get_state_display()
            raise Conflict(
                _("Lease {lease} is '{state}': only an active one can be returned.", lease=row.pk, state=state)
            )
        act.before = lease_audit_values(row)
        name = person.get_username()
        held = {item.pk: item for item in row.items.filter(released_at=None)}
        part = set(held) if items is None else {item.pk for item in items}
        if not part <= set(held):
            raise Conflict(_("Some of that is no longer part of this lease. Reload, then choose again."))
        if not part:
            raise Invalid(_("Choose what to return."), errors={"items": _("Choose at least one.")})
        now = timezone.now()
        if part == set(held):
            returning = row
            timeline_add(row, name, gettext_noop("Returned before its end."))
        else:
            names = ", ".join(held[pk].name for pk in sorted(part))
            returning = _split(row, part)
            timeline_add(row, name, f"Returned {names} before its end: lease {returning.pk} does that.")
            timeline_add(returning, name, f"Returned before the end of lease {row.pk}: {names}.")
        returning.state, returning.ends_at = Lease.State.ENDING, max(now, returning.starts_at)
        _clear_extension(returning)
        returning.save(update_fields=["state", "ends_at", "extension_to", "extension_note", "extension_by_name"])
        act.after = lease_audit_values(returning)
        # Without a broker beat does it within a minute.
        transaction.on_commit(partial(enqueue, "fabric.tend_leases"), robust=True)
    return returning


def _split(lease: Lease, part: set[int]) -> Lease:
    """Move items of a lease to one of its own."""
    other = Lease.objects.create(**{name: getattr(lease, name) for name in SPLIT_FIELDS})
    lease.items.filter(pk__in=part).update(lease=other)
    return other


def _clear_extension(lease: Lease) -> None:
    lease.extension_to, lease.extension_note, lease.extension_by_name = None, "", ""


def _check_extendable(lease: Lease) -> None:
    if lease.state not in Lease.BOOKED:
        raise Conflict(
            _(
                "Lease {lease} is '{state}': its end cannot be changed.",
                lease=lease.pk,
                state=lease.get_state_display(),
            )
        )


def _check_end(ends_at: datetime | None, *, after: datetime) -> None:
    sentence = ""
    if ends_at is not None and ends_at <= after:
        sentence = _("The end must come after {time}.", time=format_instant(after))
    elif ends_at is not None and ends_at > timezone.now() + MAX_DURATION:
        sentence = _("The end is more than ten years from now.")
    if sentence:
        raise Invalid(sentence, errors={"ends_at": sentence})


logger = logging.getLogger(__name__)
READ_SECONDS: Final = 10.0  # for reading one chassis; a slower one is read again at the next try
MIN_RETRY_PAUSE: Final = 60.0  # s after the first try; doubled after each further one
MAX_RETRY_PAUSE: Final = 900.0
REPORT_AFTER_TRIES: Final = 2  # tries: a single failure may be transient


def lease_release_parts(lease: Lease) -> None:
    """Release all detached parts, and let a plan detach the rest; to be called until the lease has ended."""
    known = _read_chassis(lease)
    failpoint("lease.read")
    with transaction.atomic():
        row = lock_lease(None, lease)
        if row.state != Lease.State.ENDING:
            return
        attached, waits = _release_detached(row, known)
        leases_end_empty([row.pk], by=SITE_NAME)
        row.refresh_from_db()
        failpoint("lease.released.uncommitted")
        if row.state == Lease.State.ENDED:
            emails.notify_ended(row)
            return
    failpoint("lease.released")
    # Outside the transaction above, which locks devices first: here chassis are locked first.
    with audit_batch():
        row = lock_lease(None, lease)
        if row.state == Lease.State.ENDING:
            _detach(row, attached, waits)
        failpoint("lease.detaching.uncommitted")
    failpoint("lease.detaching")


def _read_chassis(lease: Lease) -> Mapping[int, datetime]:
    """Read the attachments from each chassis of a lease; returns the time of the read by chassis.

    One that is disabled is not read: its last known state counts.
    """
    items = lease.items.filter(released_at=None, taken_at__isnull=False)
    chassis = Q(pk__in=items.values("device__chassis")) | Q(pk__in=items.values("host_port__chassis"))
    known: dict[int, datetime] = {}
    for row in Chassis.objects.filter(chassis).exclude(~Q(last_error=""), enabled=True).order_by("pk"):
        now = timezone.now()
        try:
            if row.enabled:
                asyncio.run(asyncio.wait_for(refresh_allocation(row, DesiredState()), READ_SECONDS))
            known[row.pk] = now
        except (FalconWebError, TimeoutError) as error:
            logger.info("lease %s: %s could not be read: %s", lease.pk, row.name, error)
    return known


def _release_detached(lease: Lease, known: Mapping[int, datetime]) -> tuple[list[Device], str]:
    """Release the parts of a lease that are detached as far as `known` of their chassis.

    Returns the devices that are to be detached first, and a sentence on what else must be waited for, '' for nothing.
    """
    held = list(lease.items.filter(released_at=None))
    # All together, in the common lock order: a lease lists them in another.
    lock_parts(devices=[item.device_id for item in held], host_ports=[item.host_port_id for item in held])
    now = timezone.now()
    lease.items.filter(released_at=None, taken_at=None).update(released_at=now)
    attached: dict[int, Device] = {}
    waits = ""
    for item in lease.items.filter(released_at=None).select_related("device", "host_port"):
        thing, hanging = _state_of(item, lease)
        if thing is None:
            item.released_at = now
            item.save(update_fields=["released_at"])
        elif thing.chassis_id not in known:
            waits = waits or f"{thing.chassis.name} is not answering."
        elif hanging:
            attached |= {device.pk: device for device in hanging}
        elif why := _pending_reason(thing, known[thing.chassis_id]):
            waits = waits or why
        else:
            ownership_change([thing], {thing.pk: None}, by=SITE_NAME)
    return list(attached.values()), waits


def _state_of(item: LeaseItem, lease: Lease) -> tuple[Device | HostPort | None, Sequence[Device]]:
    """Return the row behind an item, None where it is no longer the tenant's; and the devices to be detached."""
    if item.device_id is not None:
        devices = Device.objects.select_related("tenant", "chassis", "slot__drawer")
        device: Device | None = devices.filter(pk=item.device_id, tenant=lease.tenant_id).first()
        return device, (device,) if device is not None and device.host_port_id is not None else ()
    ports = HostPort.objects.select_related("tenant", "chassis")
    port: HostPort | None = ports.filter(pk=item.host_port_id, tenant=lease.tenant_id).first()
    if port is None:
        return None, ()
    # Devices of others stay attached: whoever attached them decides.
    own = Device.objects.filter(tenant=lease.tenant_id, host_port=port, missing_since=None)
    return port, tuple(own.select_related("chassis"))


def _pending_reason(thing: Device | HostPort, known: datetime) -> str:
    """Return why a detached part may be attached soon, or again by now, '' where it is certainly detached."""
    name = thing.name if isinstance(thing, Device) else f"Host port {thing.label}"
    if operations_on(thing).open().exists():
        return f"An operation on {name} has not ended."
    # An operation that ended after the read may have attached the part, unless it is a successful detach.
    ended = operations_on(thing).filter(finished_at__gte=known)
    if ended.exclude(state=Operation.State.DONE, target=None).exists():
        return f"An operation on {name} has just ended: its result must be read first."
    return ""


def _detach(lease: Lease, attached: Sequence[Device], waits: str) -> None:
    """Continue the lease's plan, or create one, unless it runs or was tried a moment ago."""
    plan, now = lease.plan, timezone.now()
    if plan is not None and plan.is_active:
        return
    failed = plan is not None and plan.state != Plan.State.DONE
    trouble = waits or (plan.sentence if failed and plan is not None else "")
    if attached and _is_due(lease, failed=failed):
        lease.tries, lease.tried_at = lease.tries + 1, now
        try:
            # A partial change of an attempt that proves impossible is rolled back; the lease's own row is not.
            with audit_batch():
                lease.plan = _return_plan(lease, attached)
            trouble = waits
        except FalconWebError as error:
            trouble = english(error.sentence)
    if trouble and lease.tries == 0:
        lease.tries, lease.tried_at = 1, now
    lease.trouble = trouble
    lease.save(update_fields=["plan", "tries", "tried_at", "trouble"])
    if trouble and (
        lease.tries >= REPORT_AFTER_TRIES or (lease.tried_at and now - lease.tried_at > timedelta(minutes=2))
    ):
        emails.notify_stuck(lease)


def _return_plan(lease: Lease, attached: Sequence[Device]) -> Plan | None:
    """Return the running plan that detaches these devices; the previous one where none is left to be detached."""
    plan = lease.plan
    # Lock the devices of both plans together: one after the other they could be locked in another order.
    former = plan.operations.values_list("chassis", flat=True) if plan is not None else ()
    lock_chassis({device.chassis_id for device in attached}.union(former))
    # Devices that were detached or replaced meanwhile are not the lease's to detach.
    held = Device.objects.filter(pk__in=[one.pk for one in attached], tenant=lease.tenant_id, host_port__isnull=False)
    where = dict(held.values_list("pk", "host_port"))
    if not where:
        return plan
    if plan is not None and plan.state == Plan.State.STOPPED:
        before = DesiredState.from_json(plan.base).attachments
        desired = DesiredState.from_json(plan.wanted).attachments
        if all(pk in desired and before.get(pk) == port for pk, port in where.items()):
            return plan_resume(person=None, plan=plan)
        # A device was attached elsewhere since: that needs another plan.
        plan_cancel(person=None, plan=plan)
    fresh = plan_create(
        person=None,
        desired=DesiredState(attachments=dict.fromkeys(where)),
        title=f"Return lease {lease.pk} of {lease.tenant_name}",
        origin="lease",
    )
    return plan_apply(person=None, plan=fresh)


def _is_due(lease: Lease, *, failed: bool) -> bool:
    """Return whether the next try is due: immediately after success, with growing pauses after failures."""
    if lease.tried_at is None or (lease.plan_id is not None and not failed):
        return True
    pause = min(MIN_RETRY_PAUSE * 2 ** min(lease.tries - 1, 10), MAX_RETRY_PAUSE)
    since = (timezone.now() - lease.tried_at).total_seconds()
    # A clock that was set back must not delay it by years.
    return since >= pause * 0.9 or since < 0
