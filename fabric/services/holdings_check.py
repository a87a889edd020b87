"""Holdings, tenures and leases tell one truth: what differs after something wrote a row by itself is put right."""

from __future__ import annotations

import logging
from collections import defaultdict

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q
from django.utils import timezone

from accounts.models import Tenant
from fabric.models import Device, HostPort, Lease, LeaseItem, Tenure
from fabric.services.booking import items_add, listed
from fabric.services.hands import Thing, about, holdings_lock, leases_settle, say, tenure_begin, tenure_end
from fabric.services.locks import lock_held
from fabric.services.wording import SITE_NAME

logger = logging.getLogger(__name__)
RELATED = {"device": ("tenant", "chassis", "slot__drawer"), "host_port": ("tenant", "chassis")}


def holdings_reconcile() -> None:
    """Let tenures and leases say what the rows of devices and host ports say; whatever is right is not touched."""
    if not (_unlike_tenures() or _stale_tenures() or _without_lease() or _stale_items()):
        return
    with transaction.atomic():
        holdings_lock()
        _lock_suspects()
        for row in _unlike_tenures():
            logger.warning("the tenure of %s %s was not as its row says", type(row).__name__, row.pk)
            at = tenure_end(row)
            if row.tenant is not None:
                tenure_begin(row, row.tenant, at=at)
        for tenure in _stale_tenures():
            tenure.ended_at = max(timezone.now(), tenure.began_at)
            tenure.save(update_fields=["ended_at"])
        losing = set()
        for item in _stale_items():
            item.released_at = timezone.now()
            item.save(update_fields=["released_at"])
            losing.add(item.lease_id)
        leases_settle(losing, by=SITE_NAME)
        _lease_what_is_held()


def _lock_suspects() -> None:
    """Wait for walks: one that finds a device swapped ends its tenure, and has the rows of all its devices by then."""
    things = [*_unlike_tenures(), *_without_lease()]
    kept: list[Tenure | LeaseItem] = [*_stale_tenures(), *_stale_items()]
    lock_held(
        devices={row.pk for row in things if isinstance(row, Device)} | {one.device_id for one in kept},
        host_ports={row.pk for row in things if isinstance(row, HostPort)} | {one.host_port_id for one in kept},
    )


def _lease_what_is_held() -> None:
    """Make leases without an end of what tenants hold without one."""
    held: dict[Tenant, list[Thing]] = defaultdict(list)
    for row in _without_lease():
        if row.tenant is not None:
            held[row.tenant].append(row)
    for tenant, things in held.items():
        since = [thing.tenant_since or timezone.now() for thing in things]
        lease = Lease.objects.create(
            tenant=tenant,
            tenant_name=tenant.name,
            state=Lease.State.ACTIVE,
            starts_at=min(since),
            asked_by_name=SITE_NAME,
            decided_by_name=SITE_NAME,
            decided_at=timezone.now(),
        )
        items_add(lease, things)
        for thing, at in zip(things, since, strict=True):
            LeaseItem.objects.filter(lease=lease, **about(thing)).update(taken_at=at)
        say(lease, SITE_NAME, f"Found to be held without a lease: {listed(things)}. It is until further notice.")


def _unlike_tenures() -> list[Thing]:
    """Return what is held without a tenure of its tenant that goes on."""
    found: list[Thing] = []
    for model, name in ((Device, "device"), (HostPort, "host_port")):
        going_on = Tenure.objects.filter(**{name: OuterRef("pk")}, ended_at=None)
        rows = model.objects.filter(tenant__isnull=False).exclude(Exists(going_on.filter(tenant=OuterRef("tenant"))))
        found += rows.select_related(*RELATED[name]).order_by("pk")
    return found


def _stale_tenures() -> list[Tenure]:
    """Return tenures that go on of what is the tenant's no more, or gone from the site."""
    going_on = Tenure.objects.filter(ended_at=None)
    right = Q(device__tenant=F("tenant")) | Q(host_port__tenant=F("tenant"))
    # Asked as 'which are right': what is NULL on one side is neither equal nor unequal.
    return list(going_on.exclude(pk__in=going_on.filter(right).values("pk")))


def _stale_items() -> list[LeaseItem]:
    """Return items that say to be held and are not."""
    held = LeaseItem.objects.filter(released_at=None, taken_at__isnull=False, lease__state__in=Lease.HOLDING)
    right = Q(device__tenant=F("lease__tenant")) | Q(host_port__tenant=F("lease__tenant"))
    return list(held.exclude(pk__in=held.filter(right).values("pk")))


def _without_lease() -> list[Thing]:
    """Return what is held and in no lease of its tenant."""
    found: list[Thing] = []
    for model, name in ((Device, "device"), (HostPort, "host_port")):
        held = LeaseItem.objects.filter(
            **{name: OuterRef("pk")}, released_at=None, taken_at__isnull=False, lease__state__in=Lease.HOLDING
        )
        rows = model.objects.filter(tenant__isnull=False).exclude(Exists(held.filter(lease__tenant=OuterRef("tenant"))))
        found += rows.select_related(*RELATED[name]).order_by("pk")
    return found
