"""A device or host port changes hands: its row, the tenure that ends and begins, and the lease that loses it.

The one place where `tenant` of a device or host port is written for people and leases. Call it in a transaction, with
`holdings_lock` held, then the rows locked. `swapped` alone is called without `holdings_lock`, by walks, which hold the
chassis and could only take it too late: it gives nothing to anybody and changes no lease's row.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from accounts.models import Tenant
from fabric.models import Chassis, Device, HostPort, Lease, LeaseEvent, LeaseItem, Tenure
from fabric.models.leases import kind_of
from fabric.services.history import attachments_follow
from fabric.services.locks import locked_rows
from fabric.services.wording import SITE_NAME
from fabric.signals import access_changed
from falconweb.errors import NotFound

logger = logging.getLogger(__name__)
Thing = Device | HostPort


def holdings_lock(tenant: Tenant | None = None) -> None:
    """Let one change of grants and leases happen at a time: each depends on what all tenants hold, and they are rare.

    Raises NotFound when `tenant` was removed meanwhile.
    """
    # New rows may refer to a tenant meanwhile: who writes an operation holds its device, and must not wait for us.
    held = [row.pk for row in locked_rows(Tenant.objects.all())]
    if tenant is not None and tenant.pk not in held:
        raise NotFound("There is no such tenant any more.")


def change_hands(
    rows: Sequence[Thing], wanted: Mapping[int, Tenant | None], *, by: str, lease: Lease | None = None
) -> None:
    """Let rows of one model be whose `wanted` says by their ids; `lease` is the one that they are held by then.

    The lease that held one before loses it, and ends when nothing is left of it.
    """
    losing: set[int] = set()
    for row in rows:
        tenant = wanted[row.pk]
        before, after = (one.name if one else "the free pool" for one in (row.tenant, tenant))
        logger.info("%s granted %s %s from %r to %r", by, type(row).__name__, row.pk, before, after)
        now = tenure_end(row)
        losing |= items_release(row, at=now, but=lease)
        row.tenant, row.tenant_since = tenant, now
        row.save(update_fields=["tenant", "tenant_since"])
        if tenant is not None:
            tenure_begin(row, tenant, at=now)
            if lease is not None:
                LeaseItem.objects.filter(lease=lease, released_at=None, **about(row)).update(taken_at=now)
    attachments_follow([row.pk for row in rows if isinstance(row, Device)])
    leases_settle(losing, by=by)
    if rows:
        announce(type(rows[0]))


def swapped(device: Device) -> datetime:
    """Note that a slot holds another device than before: it is nobody's, and no lease is about it; returns when.

    The caller holds the device's row and writes it. A lease of which nothing is left is ended by the clock.
    """
    at = tenure_end(device)
    for item in LeaseItem.objects.filter(released_at=None, device=device):
        _say(item.lease_id, f"{item.name} was swapped for another device: the lease holds it no more.")
    LeaseItem.objects.filter(released_at=None, device=device).update(released_at=at)
    return at


def forgotten(chassis: Chassis) -> None:
    """Note that a chassis is about to be removed from the site: whatever of it was held is held no more."""
    losing: set[int] = set()
    held: list[Thing] = [*Device.objects.filter(chassis=chassis), *HostPort.objects.filter(chassis=chassis)]
    for row in held:
        at = tenure_end(row)
        items = LeaseItem.objects.filter(released_at=None, **about(row))
        losing |= set(items.values_list("lease", flat=True))
        items.update(released_at=at)
    for pk in losing:
        _say(pk, f"{chassis.name} was removed from the site, and with it what the lease held there.")
    leases_settle(losing, by=SITE_NAME)


def tenure_begin(row: Thing, tenant: Tenant, *, at: datetime) -> None:
    """Begin the time in which a tenant holds a thing."""
    Tenure.objects.create(
        tenant=tenant, tenant_name=tenant.name, kind=kind_of(row), name=called(row), began_at=at, **about(row)
    )


def tenure_end(row: Thing) -> datetime:
    """End the time in which somebody holds a thing, if anybody does; returns when the next may begin.

    That is now, or the end of the newest one where the clock was set back: times of one thing never overlap.
    """
    now = timezone.now()
    known = Tenure.objects.filter(**about(row))
    for begun in known.filter(ended_at=None):
        begun.ended_at = max(now, begun.began_at)
        begun.save(update_fields=["ended_at"])
    newest = known.order_by("-ended_at").values_list("ended_at", flat=True).first()
    return max(now, newest) if newest is not None else now


def items_release(row: Thing, *, at: datetime, but: Lease | None = None) -> set[int]:
    """Release a thing from the lease that holds it; returns the ids of leases that lost it."""
    items = LeaseItem.objects.filter(released_at=None, taken_at__isnull=False, **about(row))
    if but is not None:
        items = items.exclude(lease=but)
    losing = set(items.values_list("lease", flat=True))
    items.update(released_at=at)
    return losing


def leases_settle(pks: Iterable[int], *, by: str) -> None:
    """End those leases of which nothing is left."""
    now = timezone.now()
    open_ones = Lease.objects.filter(pk__in=set(pks), state__in=(*Lease.BOOKED, Lease.State.ENDING))
    for lease in locked_rows(open_ones):
        if lease.items.filter(released_at=None).exists():
            continue
        lease.state, lease.ended_at, lease.trouble, lease.extension_to = Lease.State.ENDED, now, "", None
        lease.save(update_fields=["state", "ended_at", "trouble", "extension_to"])
        say(lease, by, "Everything that it held is back: the lease has ended.")


def say(lease: Lease, by: str, sentence: str) -> None:
    """Add a line to a lease's timeline."""
    _say(lease.pk, sentence, by)


def about(row: Thing) -> dict[str, Any]:
    """Return the relation that leads to a thing, for filters and new rows."""
    return {"device": row} if isinstance(row, Device) else {"host_port": row}


def about_any(rows: Iterable[Thing]) -> Q:
    """Return the condition under which a row is about one of these things."""
    devices: list[int] = []
    ports: list[int] = []
    for row in rows:
        (devices if isinstance(row, Device) else ports).append(row.pk)
    return Q(device__in=devices) | Q(host_port__in=ports)


def called(row: Thing) -> str:
    """Return a thing's name with its place, as it is kept of it."""
    if isinstance(row, HostPort):
        return f"Host port {row.label} ({row.chassis.name})"[:300]
    slot, drawer = row.slot, row.slot.drawer if row.slot else None
    parts = [row.chassis.name, slot.name if slot else ""]
    # 'Drawer 1 slot 3' says it already.
    if slot is not None and drawer is not None and drawer.name not in slot.name:
        parts.insert(1, drawer.name)
    return f"{row.name} ({' '.join(part for part in parts if part)})"[:300]


def announce(sender: type[Thing]) -> None:
    """Tell the rooms above that somebody's sight may differ from now on."""
    transaction.on_commit(lambda: access_changed.send(sender), robust=True)


def _say(lease: int, sentence: str, by: str = SITE_NAME) -> None:
    LeaseEvent.objects.create(lease_id=lease, at=timezone.now(), by_name=by, sentence=sentence)
