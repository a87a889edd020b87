"""Leases: requested by a tenant and approved by an administrator, or created directly; until they start.

Every change locks with `lock_tenants` and then the lease's row, so that simultaneous decisions are serialised.
Everything raises NotFound for a lease that the user may not see, Forbidden without permission, and Conflict where the
lease has changed meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from django.utils import timezone

from accounts.access import require_administrator, require_composer
from accounts.approvals.services import two_people
from accounts.audit.actions import Action
from accounts.audit.services import audited, target_of
from accounts.models import Tenant, User
from core.database import lock_rows
from core.errors import Conflict, Forbidden, Invalid, NotFound
from core.language import _, english, gettext_noop, joined
from fabric.inventory.locks import lock_parts, lock_tenants
from fabric.inventory.models import Chassis, Device, HostPort, LeasablePart
from fabric.leases import emails
from fabric.leases.models import KINDS, Lease, kind_of
from fabric.leases.ownership import check_not_booked, format_period, items_add, lease_acquire, parts_label, timeline_add
from fabric.leases.proposals import lease_approve_proposal, lease_give_proposal
from fabric.leases.quotas import quota_objections
from fabric.leases.rules import RequestedParts, TimeSpan
from fabric.leases.selectors import requested_label

MAX_REQUEST_LINES: Final = 20
MAX_COUNT: Final = 1000
MAX_PENDING_REQUESTS: Final = 20  # of a tenant that wait for a decision
MAX_REQUESTS_PER_DAY: Final = 60  # requests of a tenant, withdrawn ones too: administrators get an e-mail of each
MAX_TEXT_LENGTH: Final = 2000
MAX_DURATION: Final = timedelta(days=3660)
DAY: Final = timedelta(days=1)
START_TOLERANCE: Final = timedelta(minutes=5)  # a start in the past by at most this means now


def lease_request(
    *,
    person: User,
    wishes: Sequence[RequestedParts],
    starts_at: datetime | None,
    ends_at: datetime | None,
    note: str = "",
) -> Lease:
    """Request devices and host ports for the user's tenant; `starts_at` None starts the lease on approval.

    Exceeded quotas are for the caller to show (`request_objections`): an administrator decides. Raises Invalid with
    `errors`, and Conflict while too many requests wait.
    """
    with audited(Action.LEASE_REQUEST, actor=person) as act:
        tenant = person.tenant
        if person.is_administrator:
            raise Forbidden(_("Administrators create leases directly."))
        if tenant is None or not person.may_compose:
            raise Forbidden(_("Viewers cannot request leases. Ask an administrator for the role 'user'."))
        begin = _check_times(starts_at, ends_at)
        _check_requested_parts(person, wishes)
        lock_tenants(tenant)
        if Lease.objects.filter(tenant=tenant, state=Lease.State.REQUESTED).count() >= MAX_PENDING_REQUESTS:
            raise Conflict(
                _(
                    "{count} requests of {tenant} wait for a decision. Withdraw one first.",
                    count=MAX_PENDING_REQUESTS,
                    tenant=tenant.name,
                )
            )
        today = Lease.objects.filter(tenant=tenant, asked_at__gt=timezone.now() - DAY).exclude(wishes=[])
        if today.count() >= MAX_REQUESTS_PER_DAY:
            raise Conflict(
                _(
                    "{tenant} has made {count} requests within a day. Try again tomorrow.",
                    tenant=tenant.name,
                    count=MAX_REQUESTS_PER_DAY,
                )
            )
        lease = Lease.objects.create(
            tenant=tenant,
            tenant_name=tenant.name,
            starts_at=begin,
            ends_at=ends_at,
            wishes=[{"kind": one.kind, "count": one.count, "chassis": one.chassis} for one in wishes],
            note=clean_text(note),
            asked_by=person,
            asked_by_name=person.get_username(),
        )
        parts = english(requested_label(lease))
        timeline_add(lease, lease.asked_by_name, f"Requested {parts}, {format_period(lease)}.")
        emails.notify_requested(lease)
        act.target, act.after = target_of(lease), lease_audit_values(lease)
    return lease


@two_people(lease_give_proposal)
def lease_give(
    *,
    person: User,
    tenant: Tenant,
    things: Sequence[LeasablePart],
    starts_at: datetime | None,
    ends_at: datetime | None,
    note: str = "",
    override: bool = False,
) -> Lease:
    """Create a lease of these parts from `starts_at` (None: now) to `ends_at` (None: until further notice).

    Raises as `lease_approve` does.
    """
    with audited(Action.LEASE_GIVE, actor=person, target=target_of(tenant)) as act:
        require_administrator(person)
        begin = _check_times(starts_at, ends_at)
        lock_tenants(tenant)
        name = person.get_username()
        lease = Lease.objects.create(
            tenant=tenant,
            tenant_name=tenant.name,
            starts_at=begin,
            ends_at=ends_at,
            note=clean_text(note),
            asked_by=person,
            asked_by_name=name,
        )
        _book(person, lease, things, override=override, word="Given")
        act.target, act.after = target_of(lease), lease_audit_values(lease)
    return lease


@two_people(lease_approve_proposal)
def lease_approve(
    *,
    person: User,
    lease: Lease,
    things: Sequence[LeasablePart],
    starts_at: datetime | None,
    ends_at: datetime | None,
    reason: str = "",
    override: bool = False,
) -> Lease:
    """Approve a request with these parts and times; parts of a lease that starts now are granted immediately.

    Raises Invalid without parts or with impossible times, Conflict where another lease needs one of them then (it is
    named), where a part is missing, and, unless `override`, where a quota would be exceeded (`quota`).
    """
    with audited(Action.LEASE_APPROVE, actor=person, target=target_of(lease)) as act:
        require_administrator(person)
        begin = _check_times(starts_at, ends_at)
        row = lock_lease(person, lease)
        _check_undecided(row)
        act.before = lease_audit_values(row)
        row.starts_at, row.ends_at, row.reason = begin, ends_at, clean_text(reason)
        _book(person, row, things, override=override, word="Approved")
        emails.notify_decided(row)
        act.after = lease_audit_values(row)
    return row


def lease_decline(*, person: User, lease: Lease, reason: str = "") -> Lease:
    """Decline a request; the tenant reads the reason."""
    with audited(Action.LEASE_DECLINE, actor=person, target=target_of(lease)) as act:
        require_administrator(person)
        row = lock_lease(person, lease)
        _check_undecided(row)
        act.before = lease_audit_values(row)
        row.state, row.reason, row.ended_at = Lease.State.DECLINED, clean_text(reason), timezone.now()
        _decide(row, person)
        row.save(update_fields=["state", "reason", "ended_at", "decided_by", "decided_by_name", "decided_at"])
        declined = gettext_noop("Declined.")
        timeline_add(row, row.decided_by_name, f"{declined} {row.reason}".strip())
        emails.notify_decided(row)
        act.after = lease_audit_values(row)
    return row


def lease_withdraw(*, person: User, lease: Lease) -> Lease:
    """Withdraw a request, or an approved lease that has not started, as a user of the tenant or an administrator."""
    with audited(Action.LEASE_WITHDRAW, actor=person, target=target_of(lease)) as act:
        row = lock_lease(person, lease)
        require_composer(person, "change leases")
        if row.state not in {Lease.State.REQUESTED, Lease.State.APPROVED}:
            state = row.get_state_display()
            raise Conflict(
                _("Lease {lease} is '{state}': only what has not started is withdrawn.", lease=row.pk, state=state)
            )
        act.before = lease_audit_values(row)
        now = timezone.now()
        row.state, row.ended_at, row.extension_to = Lease.State.WITHDRAWN, now, None
        row.save(update_fields=["state", "ended_at", "extension_to"])
        row.items.filter(released_at=None).update(released_at=now)
        timeline_add(row, person.get_username(), gettext_noop("Withdrawn before it started."))
        emails.notify_withdrawn(row, person)
        act.after = lease_audit_values(row)
    return row


def request_objections(
    tenant: Tenant,
    parts: Sequence[RequestedParts],
    starts_at: datetime | None,
    ends_at: datetime | None,
    but: Lease | None = None,
) -> list[str]:
    """Return a sentence for each quota that the tenant would exceed with these parts for this time."""
    counts: Counter[str] = Counter()
    for wish in parts:
        counts[wish.kind] += wish.count
    now = timezone.now()
    return quota_objections(tenant, counts, TimeSpan(max(starts_at or now, now), ends_at), but=but)


def lock_lease(person: User | None, lease: Lease) -> Lease:
    """Return a lease locked until the end of the transaction; `person` None is the site itself."""
    lock_tenants()
    rows = Lease.objects.all() if person is None else Lease.objects.visible_to(person)
    # The visibility is checked apart from the lock: it may need a join, which cannot be locked.
    seen = rows.filter(pk=lease.pk).exists()
    row: Lease | None = lock_rows(Lease.objects.select_related("tenant").filter(pk=lease.pk)).first()
    if not seen or row is None:
        raise NotFound(_("There is no such lease."))
    return row


def check_quota(person: User, lease: Lease, kinds: Counter[str], span: TimeSpan, *, override: bool) -> list[str]:
    """Return the quotas that an administrator overrides; raises Conflict (`quota`) without `override`."""
    if lease.tenant is None:
        raise Conflict(_("The tenant of lease {lease} was removed.", lease=lease.pk))
    objections = quota_objections(lease.tenant, kinds, span, but=lease)
    if objections and not override:
        advice = _("Allow it over quota, or choose less.")
        raise Conflict(joined([*objections, advice]), quota=objections)
    return objections


def lease_audit_values(lease: Lease) -> dict[str, object]:
    return {
        "tenant": lease.tenant_name,
        "state": lease.state,
        "starts": lease.starts_at.isoformat(),
        "ends": lease.ends_at.isoformat() if lease.ends_at else None,
        "holds": [item.name for item in lease.items.filter(released_at=None)],
    }


def clean_text(typed: str) -> str:
    """Return a text for storage; raises Invalid for one that is too long."""
    text = typed.replace("\0", " ").strip()
    if len(text) > MAX_TEXT_LENGTH:
        raise Invalid(_("The text is too long: at most {count} characters.", count=MAX_TEXT_LENGTH))
    return text


def _book(person: User, lease: Lease, things: Sequence[LeasablePart], *, override: bool, word: str) -> None:
    if not things:
        raise Invalid(_("Choose at least one device or host port."), errors={"things": _("Choose at least one.")})
    things = _locked_parts(things)
    span = TimeSpan(lease.starts_at, lease.ends_at)
    check_not_booked(things, span, but=lease)
    over = check_quota(person, lease, Counter(kind_of(one) for one in things), span, override=override)
    _decide(lease, person)
    starts = lease.starts_at <= timezone.now()
    lease.state = Lease.State.ACTIVE if starts else Lease.State.APPROVED
    lease.save()
    items_add(lease, things)
    passed = f" Over the quota on {lease.decided_by_name}'s word: {' '.join(map(english, over))}" if over else ""
    sentence = f"{word}: {parts_label(things)}, {format_period(lease)}.{passed} {lease.reason}".strip()
    timeline_add(lease, lease.decided_by_name, sentence)
    if starts and (awaited := lease_acquire(lease, by=lease.decided_by_name)):
        sentence = f"{awaited} of them are not available yet: they follow as soon as they are."
        timeline_add(lease, lease.decided_by_name, sentence)
    if over:
        lease.reason = f"{lease.reason} Over the quota on an administrator's word.".strip()
        lease.save(update_fields=["reason"])


def _locked_parts(things: Sequence[LeasablePart]) -> list[LeasablePart]:
    """Return the present rows of the parts, locked; raises Conflict for one that is removed or missing."""
    devices = [one.pk for one in things if isinstance(one, Device)]
    host_ports = [one.pk for one in things if isinstance(one, HostPort)]
    lock_parts(devices=devices, host_ports=host_ports)
    rows: list[LeasablePart] = [
        *Device.objects.select_related("chassis", "slot__drawer").filter(pk__in=devices),
        *HostPort.objects.select_related("chassis").filter(pk__in=host_ports),
    ]
    if len(rows) != len({(type(one), one.pk) for one in things}):
        raise NotFound(_("Something that you chose is no longer there."))
    for row in rows:
        if row.missing_since is not None:
            raise Conflict(_("{part} is missing: the chassis no longer reports it. Choose another.", part=row.name))
    return rows


def _decide(lease: Lease, person: User) -> None:
    lease.decided_by, lease.decided_by_name, lease.decided_at = person, person.get_username(), timezone.now()


def _check_undecided(lease: Lease) -> None:
    if lease.state != Lease.State.REQUESTED:
        state, by = lease.get_state_display(), lease.decided_by_name
        if by:
            raise Conflict(_("Lease {lease} is '{state}' already by {name}.", lease=lease.pk, state=state, name=by))
        raise Conflict(_("Lease {lease} is '{state}' already.", lease=lease.pk, state=state))


def _check_times(starts_at: datetime | None, ends_at: datetime | None) -> datetime:
    """Return the start; raises Invalid for impossible times."""
    now = timezone.now()
    errors = {}
    if starts_at is not None and starts_at < now - START_TOLERANCE:
        errors["starts_at"] = _("The start is in the past. Leave it empty to start immediately.")
    begin = max(starts_at or now, now)
    if begin > now + MAX_DURATION:
        errors["starts_at"] = _("The start is more than ten years from now.")
    elif ends_at is not None and ends_at <= begin:
        errors["ends_at"] = _("The end must come after the start.")
    elif ends_at is not None and ends_at > begin + MAX_DURATION:
        errors["ends_at"] = _("The end is more than ten years after the start.")
    if errors:
        raise Invalid(joined(errors.values()), errors=errors)
    return begin


def _check_requested_parts(person: User, wishes: Sequence[RequestedParts]) -> None:
    if not 1 <= len(wishes) <= MAX_REQUEST_LINES:
        raise Invalid(
            _("Ask for at least one thing, in at most {count} lines.", count=MAX_REQUEST_LINES),
            errors={"wishes": _("Ask for something.")},
        )
    seen = set(Chassis.objects.visible_to(person).values_list("pk", flat=True))
    for wish in wishes:
        if wish.kind not in dict(KINDS):
            raise Invalid(
                _("'{kind}' is not a kind that can be leased.", kind=wish.kind[:50]),
                errors={"wishes": _("Choose a kind.")},
            )
        if not 1 <= wish.count <= MAX_COUNT:
            raise Invalid(
                _("Ask for 1 to 1000 of a kind."),
                errors={"wishes": _("Give a number from 1 to {largest}.", largest=MAX_COUNT)},
            )
        if wish.chassis is not None and wish.chassis not in seen:
            raise NotFound(_("There is no such chassis."))
