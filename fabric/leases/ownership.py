"""Changes of the tenant of a device or host port: its row, the tenures that end and begin, and the lease that loses it.

The only place where `tenant` of a device or host port is written for users and leases. Call it in a transaction, with
`lock_tenants` held, then the rows locked. `device_replaced` alone is called without `lock_tenants`, by walks, which
have locked the chassis and would take it too late: it grants nothing and changes no lease's row.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.dispatch import receiver
from django.utils import timezone

from accounts.access import SITE_NAME, actor_name
from accounts.models import Tenant, User
from core.database import lock_rows
from core.errors import Conflict
from core.language import _, gettext_noop
from fabric.history.services import attachments_record
from fabric.inventory.labels import part_name
from fabric.inventory.locks import lock_parts
from fabric.inventory.models import Chassis, Device, HostPort, LeasablePart
from fabric.leases.models import Lease, LeaseEvent, LeaseItem, Tenure, kind_of
from fabric.leases.rules import TimeSpan, end_label, format_end, format_instant
from fabric.operations.models import Operation
from fabric.signals import access_changed, chassis_removing, device_replaced

logger = logging.getLogger(__name__)
RELATED_ROWS = {"device": ("tenant", "chassis", "slot__drawer"), "host_port": ("tenant", "chassis")}


def ownership_change(
    rows: Sequence[LeasablePart], tenants: Mapping[int, Tenant | None], *, by: str, lease: Lease | None = None
) -> None:
    """Set the tenants of rows of one model by their ids; `lease` is the lease that includes them then.

    The lease that included a row before loses it, and ends when nothing is left of it.
    """
    losing: set[int] = set()
    for row in rows:
        tenant = tenants[row.pk]
        before, after = (one.name if one else "unassigned" for one in (row.tenant, tenant))
        logger.info("%s granted %s %s from %r to %r", by, type(row).__name__, row.pk, before, after)
        now = tenure_end(row)
        losing |= items_release(row, at=now, but=lease)
        row.tenant, row.tenant_since = tenant, now
        row.save(update_fields=["tenant", "tenant_since"])
        if tenant is not None:
            tenure_begin(row, tenant, at=now)
            if lease is not None:
                LeaseItem.objects.filter(lease=lease, released_at=None, **part_filter(row)).update(taken_at=now)
    attachments_record([row.pk for row in rows if isinstance(row, Device)])
    leases_end_empty(losing, by=by)
    if rows:
        # The visibility of parts may have changed, which the rooms above follow.
        transaction.on_commit(partial(access_changed.send, type(rows[0])), robust=True)


@receiver(device_replaced)
def ownership_end_replaced(device: Device, **kwargs: Any) -> datetime:
    """End the tenure of a device that was replaced by another one in its slot, which is in no lease; returns the time.

    The caller has locked the device's row and saves it. A lease without parts left is ended by the periodic task.
    """
    at = tenure_end(device)
    items = LeaseItem.objects.filter(released_at=None, device=device)
    for item in items.select_related("lease"):
        sentence = f"{item.name} was replaced by another device, and is no longer part of the lease."
        timeline_add(item.lease, SITE_NAME, sentence)
    items.update(released_at=at)
    return at


@receiver(chassis_removing)
def ownership_end_chassis(chassis: Chassis, **kwargs: Any) -> None:
    """End the tenures of the parts of a chassis that is about to be removed from the site."""
    losing: set[int] = set()
    held: list[LeasablePart] = [*Device.objects.filter(chassis=chassis), *HostPort.objects.filter(chassis=chassis)]
    for row in held:
        at = tenure_end(row)
        items = LeaseItem.objects.filter(released_at=None, **part_filter(row))
        losing |= set(items.values_list("lease", flat=True))
        items.update(released_at=at)
    for lease in Lease.objects.filter(pk__in=losing):
        timeline_add(lease, SITE_NAME, f"{chassis.name} was removed from the site, with the lease's parts there.")
    leases_end_empty(losing, by=SITE_NAME)


def tenure_begin(row: LeasablePart, tenant: Tenant, *, at: datetime) -> None:
    Tenure.objects.create(
        tenant=tenant, tenant_name=tenant.name, kind=kind_of(row), name=part_name(row), began_at=at, **part_filter(row)
    )


def tenure_end(row: LeasablePart) -> datetime:
    """End the tenure of a part, if there is one; returns when the next may begin.

    That is now, or the end of the newest one where the clock was set back: tenures of one part never overlap.
    """
    now = timezone.now()
    known = Tenure.objects.filter(**part_filter(row))
    for begun in known.filter(ended_at=None):
        begun.ended_at = max(now, begun.began_at)
        begun.save(update_fields=["ended_at"])
    newest = known.order_by("-ended_at").values_list("ended_at", flat=True).first()
    return max(now, newest) if newest is not None else now


def items_release(row: LeasablePart, *, at: datetime, but: Lease | None = None) -> set[int]:
    """Release a part from its lease; returns the ids of leases that lost it."""
    items = LeaseItem.objects.filter(released_at=None, taken_at__isnull=False, **part_filter(row))
    if but is not None:
        items = items.exclude(lease=but)
    losing = set(items.values_list("lease", flat=True))
    items.update(released_at=at)
    return losing


def leases_end_empty(pks: Iterable[int], *, by: str) -> None:
    """End the leases that have no parts left."""
    now = timezone.now()
    open_ones = Lease.objects.filter(pk__in=set(pks), state__in=(*Lease.BOOKED, Lease.State.ENDING))
    for lease in lock_rows(open_ones):
        if lease.items.filter(released_at=None).exists():
            continue
        lease.state, lease.ended_at, lease.trouble, lease.extension_to = Lease.State.ENDED, now, "", None
        lease.save(update_fields=["state", "ended_at", "trouble", "extension_to"])
        timeline_add(lease, by, gettext_noop("Everything that it included is returned: the lease has ended."))


def timeline_add(lease: Lease, by: str, sentence: str) -> None:
    LeaseEvent.objects.create(lease=lease, by_name=by, sentence=sentence)


def part_filter(row: LeasablePart) -> dict[str, Any]:
    """Return the relation that leads to a part, for filters and new rows."""
    return {"device": row} if isinstance(row, Device) else {"host_port": row}


def parts_query(rows: Iterable[LeasablePart]) -> Q:
    """Return the condition under which a row is about one of these parts."""
    rows = list(rows)
    devices = [row.pk for row in rows if isinstance(row, Device)]
    return Q(device__in=devices) | Q(host_port__in=[row.pk for row in rows if isinstance(row, HostPort)])


def lease_create_granted(
    *, person: User | None, tenant: Tenant, things: Sequence[LeasablePart], starts_at: datetime, sentence: str
) -> None:
    """Create the lease without an end of parts that a tenant has already; the sentence tells its timeline why."""
    by = actor_name(person)
    lease = Lease.objects.create(
        tenant=tenant,
        tenant_name=tenant.name,
        state=Lease.State.ACTIVE,
        starts_at=starts_at,
        asked_by=person,
        asked_by_name=by,
        decided_by=person,
        decided_by_name=by,
        decided_at=timezone.now(),
    )
    items_add(lease, things, is_granted=True)
    timeline_add(lease, by, sentence)


def items_add(lease: Lease, things: Iterable[LeasablePart], *, is_granted: bool = False) -> None:
    """Add parts to a lease: granted already, or not yet acquired."""
    now = timezone.now()
    LeaseItem.objects.bulk_create(
        LeaseItem(
            lease=lease,
            kind=kind_of(thing),
            name=part_name(thing),
            taken_at=(thing.tenant_since or now) if is_granted else None,
            **part_filter(thing),
        )
        for thing in things
    )


def booked_items(things: Iterable[LeasablePart], span: TimeSpan, *, but: Lease | None = None) -> list[LeaseItem]:
    """Return the items of other leases that need one of these parts within a span."""
    items = LeaseItem.objects.filter(parts_query(things), released_at=None, lease__state__in=Lease.BOOKED)
    if but is not None:
        items = items.exclude(lease=but)
    rows = items.select_related("lease", "device", "host_port").order_by("lease__starts_at", "pk")
    return [row for row in rows if TimeSpan(row.lease.starts_at, row.lease.ends_at).overlaps(span)]


def check_not_booked(
    things: Iterable[LeasablePart], span: TimeSpan, *, but: Lease | None = None, person: User | None = None
) -> None:
    """Raise Conflict where another lease needs one of these parts within the span.

    It is named, except to a `person` of another tenant: to them the part is in use then.
    """
    found = booked_items(things, span, but=but)
    if not found:
        return
    item, lease = found[0], found[0].lease
    if person is not None and not person.is_administrator and lease.tenant_id != person.tenant_id:
        start = format_instant(lease.starts_at)
        raise Conflict(_("{part} is in use from {start} on. Choose an end before that.", part=item.name, start=start))
    values = {
        "part": item.name,
        "tenant": lease.tenant_name,
        "start": format_instant(lease.starts_at),
        "end": end_label(lease.ends_at),
        "lease": lease.pk,
    }
    if item.taken_at:
        raise Conflict(_("{part} is held by {tenant} from {start} {end} (lease {lease}).", **values), lease=lease.pk)
    raise Conflict(_("{part} is promised to {tenant} from {start} {end} (lease {lease}).", **values), lease=lease.pk)


def booked_parts(lease: Lease) -> list[LeasablePart]:
    """Return the parts that a lease includes or will include."""
    rows = lease.items.filter(released_at=None).select_related("device__chassis", "device__slot__drawer")
    return [item.thing for item in rows.select_related("host_port__chassis") if item.thing is not None]


def lease_acquire(lease: Lease, *, by: str) -> int:
    """Grant the tenant all free parts of its lease; returns how many are still pending.

    A part with an open operation is pending too. Raises Conflict for a lease whose tenant was removed.
    """
    tenant = lease.tenant
    if tenant is None:
        raise Conflict(_("The tenant of lease {lease} was removed.", lease=lease.pk))
    items = lease.items.filter(released_at=None, taken_at=None)
    pending = list(items)
    lock_parts(devices=[one.device_id for one in pending], host_ports=[one.host_port_id for one in pending])
    awaited = 0
    for model in (Device, HostPort):
        # Again, under the lock: parts that were replaced meanwhile have left the lease.
        name = "device" if model is Device else "host_port"
        rows = list(model.objects.select_related(*RELATED_ROWS[name]).filter(pk__in=items.values(name)).order_by("pk"))
        free = [row for row in rows if row.tenant_id is None and not operations_on(row).open().exists()]
        kept = [row for row in rows if row.tenant_id == tenant.pk]
        awaited += len(rows) - len(free) - len(kept)
        ownership_change(free, dict.fromkeys((row.pk for row in free), tenant), by=by, lease=lease)
        for row in kept:
            # It moves from one lease to the next without leaving the tenant.
            at = timezone.now()
            losing = items_release(row, at=at, but=lease)
            LeaseItem.objects.filter(lease=lease, released_at=None, **part_filter(row)).update(taken_at=at)
            leases_end_empty(losing, by=by)
    return awaited


def operations_on(row: LeasablePart) -> Operation.OperationQuerySet:
    """Return the operations that change a part."""
    about = Q(device=row) if isinstance(row, Device) else Q(source=row) | Q(target=row)
    rows: Operation.OperationQuerySet = Operation.objects.filter(about)
    return rows


def format_period(lease: Lease) -> str:
    return f"from {format_instant(lease.starts_at).english} {format_end(lease.ends_at)}"


def parts_label(things: Iterable[LeasablePart], most: int = 5) -> str:
    names = [part_name(thing) for thing in things]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
