"""Leases: asked for by a tenant and decided by an administrator, or given; until they start.

Whoever changes one holds `holdings_lock` and the lease's row, in this order, so that two who decide at once decide one
after the other. Everything raises NotFound for a lease that the person may not see, Forbidden for those who may not,
and Conflict for what is not so any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from django.utils import timezone

from accounts.access import administrator_required
from accounts.audit.actions import Action
from accounts.audit.services import audited, target_of
from accounts.models import Tenant, User
from core.enqueue import enqueue
from fabric.booking import Span, Wish
from fabric.models import Chassis, Device, HostPort, Lease
from fabric.models.leases import KINDS, kind_of
from fabric.permissions import refuse_onlooker
from fabric.services import lease_letters
from fabric.services.booking import items_add, lease_take, listed, period, refuse_booked
from fabric.services.hands import Thing, holdings_lock, say
from fabric.services.locks import lock_held, locked_rows
from fabric.services.quotas import counted, quota_objections
from falconweb.errors import Conflict, Forbidden, Invalid, NotFound

MOST_WISHES: Final = 20
MOST_COUNT: Final = 1000
MOST_REQUESTS: Final = 20  # of a tenant that wait for a decision
MOST_A_DAY: Final = 60  # requests of a tenant, withdrawn ones too: administrators get a letter of each
LONGEST_TEXT: Final = 2000
LONGEST: Final = timedelta(days=3660)
DAY: Final = timedelta(days=1)
LATE: Final = timedelta(minutes=5)  # a start that lies so little in the past means now


def lease_request(
    *, person: User, wishes: Sequence[Wish], starts_at: datetime | None, ends_at: datetime | None, note: str = ""
) -> Lease:
    """Ask for devices and host ports for the person's tenant; `starts_at` None is as soon as it is approved.

    What a quota says of it is for the face to tell (`objections_to`): an administrator decides. Raises Invalid with
    `errors`, and Conflict while too many requests wait.
    """
    with audited(Action.LEASE_REQUEST, actor=person) as act:
        tenant = person.tenant
        if person.is_administrator:
            raise Forbidden("Administrators ask nobody: give the lease.")
        if tenant is None or not person.may_compose:
            raise Forbidden("You may look, but not ask for leases. Ask an administrator for the role 'user'.")
        begin = _times(starts_at, ends_at)
        _refuse_wishes(person, wishes)
        holdings_lock(tenant)
        if Lease.objects.filter(tenant=tenant, state=Lease.State.REQUESTED).count() >= MOST_REQUESTS:
            raise Conflict(f"{MOST_REQUESTS} requests of {tenant.name} wait for a decision. Withdraw one first.")
        today = Lease.objects.filter(tenant=tenant, asked_at__gt=timezone.now() - DAY).exclude(wishes=[])
        if today.count() >= MOST_A_DAY:
            raise Conflict(f"{tenant.name} has asked {MOST_A_DAY} times within a day. Ask again tomorrow.")
        lease = Lease.objects.create(
            tenant=tenant,
            tenant_name=tenant.name,
            starts_at=begin,
            ends_at=ends_at,
            wishes=[{"kind": one.kind, "count": one.count, "chassis": one.chassis} for one in wishes],
            note=text_of(note),
            asked_by=person,
            asked_by_name=person.get_username(),
        )
        say(lease, lease.asked_by_name, f"Asked for {wished(lease)}, {period(lease)}.")
        lease_letters.asked(lease)
        act.target, act.after = target_of(lease, f"Lease {lease.pk}"), told(lease)
    return lease


def lease_give(
    *,
    person: User,
    tenant: Tenant,
    things: Sequence[Thing],
    starts_at: datetime | None,
    ends_at: datetime | None,
    note: str = "",
    override: bool = False,
) -> Lease:
    """Let a tenant hold these things from `starts_at` (None: now) to `ends_at` (None: until further notice).

    Raises as `lease_approve` does.
    """
    with audited(Action.LEASE_GIVE, actor=person, target=target_of(tenant)) as act:
        administrator_required(person)
        begin = _times(starts_at, ends_at)
        holdings_lock(tenant)
        name = person.get_username()
        lease = Lease.objects.create(
            tenant=tenant,
            tenant_name=tenant.name,
            starts_at=begin,
            ends_at=ends_at,
            note=text_of(note),
            asked_by=person,
            asked_by_name=name,
        )
        _book(person, lease, things, override=override, word="Given")
        act.target, act.after = target_of(lease, f"Lease {lease.pk}"), told(lease)
    return lease


def lease_approve(
    *,
    person: User,
    lease: Lease,
    things: Sequence[Thing],
    starts_at: datetime | None,
    ends_at: datetime | None,
    reason: str = "",
    override: bool = False,
) -> Lease:
    """Approve a request with these things and times; what starts now is the tenant's at once.

    Raises Invalid without things or with times that cannot be, Conflict where another lease needs one of them then
    (it is named), where something is missing, and, unless `override`, where a quota would be passed (`quota`).
    """
    with audited(Action.LEASE_APPROVE, actor=person, target=target_of(lease, f"Lease {lease.pk}")) as act:
        administrator_required(person)
        begin = _times(starts_at, ends_at)
        row = lease_locked(person, lease)
        _refuse_decided(row)
        act.before = told(row)
        row.starts_at, row.ends_at, row.reason = begin, ends_at, text_of(reason)
        _book(person, row, things, override=override, word="Approved")
        lease_letters.decided(row)
        act.after = told(row)
    return row


def lease_decline(*, person: User, lease: Lease, reason: str = "") -> Lease:
    """Decline a request; the tenant reads the reason."""
    with audited(Action.LEASE_DECLINE, actor=person, target=target_of(lease, f"Lease {lease.pk}")) as act:
        administrator_required(person)
        row = lease_locked(person, lease)
        _refuse_decided(row)
        act.before = told(row)
        row.state, row.reason, row.ended_at = Lease.State.DECLINED, text_of(reason), timezone.now()
        _decide(row, person)
        row.save(update_fields=["state", "reason", "ended_at", "decided_by", "decided_by_name", "decided_at"])
        say(row, row.decided_by_name, f"Declined. {row.reason}".strip())
        lease_letters.decided(row)
        act.after = told(row)
    return row


def lease_withdraw(*, person: User, lease: Lease) -> Lease:
    """Take back a request, or an approved lease that has not started: the tenant's users and administrators may."""
    with audited(Action.LEASE_WITHDRAW, actor=person, target=target_of(lease, f"Lease {lease.pk}")) as act:
        row = lease_locked(person, lease)
        refuse_viewer(person)
        if row.state not in {Lease.State.REQUESTED, Lease.State.APPROVED}:
            raise Conflict(f"Lease {row.pk} is '{row.get_state_display()}': only what has not started is withdrawn.")
        act.before = told(row)
        now = timezone.now()
        row.state, row.ended_at, row.extension_to = Lease.State.WITHDRAWN, now, None
        row.save(update_fields=["state", "ended_at", "extension_to"])
        row.items.filter(released_at=None).update(released_at=now)
        say(row, person.get_username(), "Withdrawn before it started.")
        lease_letters.withdrawn(row, person)
        act.after = told(row)
    return row


def objections_to(
    tenant: Tenant,
    wanted: Sequence[Wish],
    starts_at: datetime | None,
    ends_at: datetime | None,
    but: Lease | None = None,
) -> list[str]:
    """Return a sentence for each quota that a tenant would pass with so much for so long."""
    counts: Counter[str] = Counter()
    for wish in wanted:
        counts[wish.kind] += wish.count
    return quota_objections(tenant, counts, Span(_begin(starts_at), ends_at), but=but)


def lease_locked(person: User | None, lease: Lease) -> Lease:
    """Return a lease that nobody else changes until the end of the transaction; `person` None is the site itself."""
    holdings_lock()
    rows = Lease.objects.all() if person is None else Lease.objects.visible_to(person)
    # Asked apart from the lock: a person's sight may take a join, which is no row to lock.
    seen = rows.filter(pk=lease.pk).exists()
    row: Lease | None = locked_rows(Lease.objects.select_related("tenant").filter(pk=lease.pk)).first()
    if not seen or row is None:
        raise NotFound("There is no such lease.")
    return row


def refuse_viewer(person: User) -> None:
    """Raise Forbidden for those who only look."""
    refuse_onlooker(person, "change leases")


def refuse_over_quota(person: User, lease: Lease, kinds: Counter[str], span: Span, *, override: bool) -> list[str]:
    """Return the quotas that are passed on an administrator's word; raises Conflict (`quota`) without it."""
    if lease.tenant is None:
        raise Conflict(f"The tenant of lease {lease.pk} was removed.")
    objections = quota_objections(lease.tenant, kinds, span, but=lease)
    if objections and not override:
        raise Conflict(f"{' '.join(objections)} Say that it may be passed, or choose less.", quota=objections)
    return objections


def told(lease: Lease) -> dict[str, object]:
    """Return what the audit log tells of a lease."""
    return {
        "tenant": lease.tenant_name,
        "state": lease.state,
        "starts": lease.starts_at.isoformat(),
        "ends": lease.ends_at.isoformat() if lease.ends_at else None,
        "holds": [item.name for item in lease.items.filter(released_at=None)],
    }


def wished(lease: Lease) -> str:
    """Return in words what a lease was asked for."""
    names = dict(Chassis.objects.filter(pk__in=[one["chassis"] for one in lease.wishes]).values_list("pk", "name"))
    words = []
    for one in lease.wishes:
        where = f" on {names[one['chassis']]}" if one["chassis"] in names else ""
        words.append(f"{counted(one['kind'], one['count'])}{where}")
    return ", ".join(words) or "what is listed"


def text_of(typed: str) -> str:
    """Return a text as it is kept; raises Invalid for one that is too long."""
    text = typed.replace("\0", " ").strip()
    if len(text) > LONGEST_TEXT:
        raise Invalid(f"The text is too long: at most {LONGEST_TEXT} characters.")
    return text


def soon(task: str) -> Callable[[], None]:
    """Return what asks a worker for a task at once; without a broker beat asks for it within a minute."""
    return partial(enqueue, f"fabric.{task}")


def _book(person: User, lease: Lease, things: Sequence[Thing], *, override: bool, word: str) -> None:
    """Let a lease hold things, from now on or from its start."""
    if not things:
        raise Invalid("Choose at least one device or host port.", errors={"things": "Choose at least one."})
    things = _fresh(things)
    span = Span(lease.starts_at, lease.ends_at)
    refuse_booked(things, span, but=lease)
    over = refuse_over_quota(person, lease, Counter(kind_of(one) for one in things), span, override=override)
    _decide(lease, person)
    starts = lease.starts_at <= timezone.now()
    lease.state = Lease.State.ACTIVE if starts else Lease.State.APPROVED
    lease.save()
    items_add(lease, things)
    passed = f" Over the quota on {lease.decided_by_name}'s word: {' '.join(over)}" if over else ""
    say(lease, lease.decided_by_name, f"{word}: {listed(things)}, {period(lease)}.{passed} {lease.reason}".strip())
    if starts:
        awaited = lease_take(lease, by=lease.decided_by_name)
        if awaited:
            say(lease, lease.decided_by_name, f"{awaited} of them are not free yet: they follow as soon as they are.")
    if over:
        lease.reason = f"{lease.reason} Over the quota on an administrator's word.".strip()
        lease.save(update_fields=["reason"])


def _fresh(things: Sequence[Thing]) -> list[Thing]:
    """Return the things as they are now, locked; raises Conflict for one that is gone or missing."""
    lock_held(
        devices=[one.pk for one in things if isinstance(one, Device)],
        host_ports=[one.pk for one in things if isinstance(one, HostPort)],
    )
    devices = Device.objects.filter(pk__in=[one.pk for one in things if isinstance(one, Device)])
    ports = HostPort.objects.filter(pk__in=[one.pk for one in things if isinstance(one, HostPort)])
    rows: list[Thing] = [*devices.select_related("chassis", "slot__drawer"), *ports.select_related("chassis")]
    if len(rows) != len({(type(one), one.pk) for one in things}):
        raise NotFound("Something that you chose is no longer there.")
    for row in rows:
        if row.missing_since is not None:
            raise Conflict(f"{row.name} is missing: the chassis no longer reports it. Choose another.")
    return rows


def _decide(lease: Lease, person: User) -> None:
    lease.decided_by, lease.decided_by_name, lease.decided_at = person, person.get_username(), timezone.now()


def _refuse_decided(lease: Lease) -> None:
    if lease.state != Lease.State.REQUESTED:
        by = f" by {lease.decided_by_name}" if lease.decided_by_name else ""
        raise Conflict(f"Lease {lease.pk} is '{lease.get_state_display()}' already{by}.")


def _begin(starts_at: datetime | None) -> datetime:
    now = timezone.now()
    return now if starts_at is None else max(starts_at, now)


def _times(starts_at: datetime | None, ends_at: datetime | None) -> datetime:
    """Return the start; raises Invalid for times that cannot be."""
    now = timezone.now()
    errors = {}
    if starts_at is not None and starts_at < now - LATE:
        errors["starts_at"] = "The start lies in the past. Leave it empty to begin at once."
    begin = _begin(starts_at)
    if begin > now + LONGEST:
        errors["starts_at"] = "The start is more than ten years away."
    elif ends_at is not None and ends_at <= begin:
        errors["ends_at"] = "The end must come after the start."
    elif ends_at is not None and ends_at > begin + LONGEST:
        errors["ends_at"] = "The end is more than ten years after the start."
    if errors:
        raise Invalid(" ".join(errors.values()), errors=errors)
    return begin


def _refuse_wishes(person: User, wishes: Sequence[Wish]) -> None:
    if not 1 <= len(wishes) <= MOST_WISHES:
        raise Invalid(
            f"Ask for at least one thing, in at most {MOST_WISHES} lines.", errors={"wishes": "Ask for something."}
        )
    seen = set(Chassis.objects.visible_to(person).values_list("pk", flat=True))
    for wish in wishes:
        if wish.kind not in dict(KINDS):
            raise Invalid(f"'{wish.kind[:50]}' is nothing that can be held.", errors={"wishes": "Choose a kind."})
        if not 1 <= wish.count <= MOST_COUNT:
            raise Invalid("Ask for 1 to 1000 of a kind.", errors={"wishes": f"Give a number from 1 to {MOST_COUNT}."})
        if wish.chassis is not None and wish.chassis not in seen:
            raise NotFound("There is no such chassis.")
