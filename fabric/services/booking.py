"""What leases hold and will hold: made, refused where two overlap, and taken when their time has come.

Everything here runs in a transaction that has `holdings_lock`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from django.utils import timezone

from accounts.models import Tenant, User
from fabric.booking import Span
from fabric.models import Device, HostPort, Lease, LeaseItem, Operation
from fabric.models.leases import kind_of
from fabric.services.hands import (
    Thing,
    about,
    about_any,
    called,
    change_hands,
    items_release,
    leases_settle,
    say,
)
from fabric.services.locks import lock_held
from fabric.services.wording import name_of
from falconweb.errors import Conflict


def lease_of_grant(*, person: User | None, tenant: Tenant | None, things: Sequence[Thing]) -> Lease | None:
    """Make the lease of what was just granted without an end; None where nothing was granted to anybody.

    Raises Conflict where some of it is promised to somebody from a later day on.
    """
    if tenant is None or not things:
        return None
    by, now = name_of(person), timezone.now()
    refuse_booked(things, Span(now, None))
    lease = Lease.objects.create(
        tenant=tenant,
        tenant_name=tenant.name,
        state=Lease.State.ACTIVE,
        starts_at=now,
        asked_by=person,
        asked_by_name=by,
        decided_by=person,
        decided_by_name=by,
        decided_at=now,
    )
    items_add(lease, things)
    for thing in things:
        LeaseItem.objects.filter(lease=lease, **about(thing)).update(taken_at=thing.tenant_since or now)
    say(lease, by, f"Granted until further notice: {listed(things)}.")
    return lease


def items_add(lease: Lease, things: Iterable[Thing]) -> None:
    """Put things into a lease; they are not taken yet."""
    LeaseItem.objects.bulk_create(
        [LeaseItem(lease=lease, kind=kind_of(thing), name=called(thing), **about(thing)) for thing in things]
    )


def booked_items(things: Iterable[Thing], span: Span, *, but: Lease | None = None) -> list[LeaseItem]:
    """Return the items of other leases that need one of these things within a span."""
    items = LeaseItem.objects.filter(about_any(things), released_at=None, lease__state__in=Lease.BOOKED)
    if but is not None:
        items = items.exclude(lease=but)
    rows = items.select_related("lease", "device", "host_port").order_by("lease__starts_at", "pk")
    return [row for row in rows if Span(row.lease.starts_at, row.lease.ends_at).overlaps(span)]


def refuse_booked(things: Iterable[Thing], span: Span, *, but: Lease | None = None, person: User | None = None) -> None:
    """Raise Conflict where another lease needs one of these things within the span.

    It is named, except to a `person` whose tenant it is not of: to them the thing is in use then.
    """
    found = booked_items(things, span, but=but)
    if not found:
        return
    item, lease = found[0], found[0].lease
    if person is not None and not person.is_administrator and lease.tenant_id != person.tenant_id:
        raise Conflict(f"{item.name} is in use from {instant(lease.starts_at)} on. Choose an end before that.")
    raise Conflict(
        f"{item.name} is {'held by' if item.taken_at else 'promised to'} {lease.tenant_name} {period(lease)}"
        f" (lease {lease.pk}).",
        lease=lease.pk,
    )


def booked_things(lease: Lease) -> list[Thing]:
    """Return what a lease holds or will hold."""
    rows = lease.items.filter(released_at=None).select_related("device__chassis", "device__slot__drawer")
    return [item.thing for item in rows.select_related("host_port__chassis") if item.thing is not None]


def lease_take(lease: Lease, *, by: str) -> int:
    """Let the tenant have what its lease holds and nobody else holds any more; returns how many are still awaited.

    A thing on which an operation is open is awaited too. Raises Conflict for a lease whose tenant was removed.
    """
    tenant = lease.tenant
    if tenant is None:
        raise Conflict(f"The tenant of lease {lease.pk} was removed.")
    items = lease.items.filter(released_at=None, taken_at=None)
    wanted = list(items)
    lock_held(devices=[one.device_id for one in wanted], host_ports=[one.host_port_id for one in wanted])
    awaited = 0
    for model in (Device, HostPort):
        # Once more: of what was swapped until now the lease holds nothing.
        name = "device" if model is Device else "host_port"
        related = ("tenant", "chassis", "slot__drawer") if model is Device else ("tenant", "chassis")
        rows = list(model.objects.select_related(*related).filter(pk__in=items.values(name)).order_by("pk"))
        free = [row for row in rows if row.tenant_id is None and not is_busy(row)]
        kept = [row for row in rows if row.tenant_id == tenant.pk]
        awaited += len(rows) - len(free) - len(kept)
        change_hands(free, dict.fromkeys((row.pk for row in free), tenant), by=by, lease=lease)
        for row in kept:
            # It goes from one lease to the next without leaving the tenant.
            at = timezone.now()
            losing = items_release(row, at=at, but=lease)
            LeaseItem.objects.filter(lease=lease, released_at=None, **about(row)).update(taken_at=at)
            leases_settle(losing, by=by)
    return awaited


def is_busy(row: Thing) -> bool:
    """Tell whether an operation that has not ended is about a thing."""
    operations = Operation.objects.open()
    if isinstance(row, Device):
        return bool(operations.filter(device=row).exists())
    return bool(operations.filter(source=row).exists() or operations.filter(target=row).exists())


def instant(at: datetime) -> str:
    """Return an instant as sentences say it."""
    return f"{at:%Y-%m-%d %H:%M} UTC"


def until(at: datetime | None) -> str:
    """Return an end as sentences say it."""
    return f"until {instant(at)}" if at else "until further notice"


def period(lease: Lease) -> str:
    """Return from when to when a lease is."""
    return f"from {instant(lease.starts_at)} {until(lease.ends_at)}"


def listed(things: Iterable[Thing], most: int = 5) -> str:
    """Return things in words."""
    names = [called(thing) for thing in things]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
