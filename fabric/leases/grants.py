"""Grants of devices and host ports to one tenant at a time, or to none (tenant None). Administrators only."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.utils import timezone

from accounts.access import SITE_NAME
from accounts.approvals.services import two_people
from accounts.audit.actions import Action
from accounts.audit.services import audit_record, audited, target_of
from accounts.models import Tenant, User
from core.errors import Conflict, Forbidden, NotFound
from core.language import _
from fabric.inventory.locks import lock_parts, lock_tenants
from fabric.inventory.models import Device, HostPort, LeasablePart
from fabric.leases.models import Lease, LeaseItem, Tenure
from fabric.leases.ownership import (
    RELATED_ROWS,
    check_not_booked,
    lease_create_granted,
    leases_end_empty,
    ownership_change,
    parts_label,
    tenure_begin,
    tenure_end,
)
from fabric.leases.proposals import device_grant_proposal, grants_set_proposal, host_port_grant_proposal
from fabric.leases.rules import TimeSpan
from fabric.leases.selectors import ownership_revision
from fabric.operations.models import Operation

logger = logging.getLogger(__name__)
Row = TypeVar("Row", Tenure, LeaseItem)
# The open tenures and lease items, with the path to their tenants.
TENURES: Final = (Tenure.objects.filter(ended_at=None), "tenant")
ITEMS: Final = (
    LeaseItem.objects.filter(released_at=None, taken_at__isnull=False, lease__state__in=Lease.IN_EFFECT),
    "lease__tenant",
)


@dataclass(frozen=True)
class GrantChange:
    row: Device | HostPort
    before: Tenant | None
    after: Tenant | None


@two_people(device_grant_proposal)
def device_grant(*, person: User, device: Device, tenant: Tenant | None, take: bool = False) -> Device:
    """Grant a device to a tenant, or free it; returns it with its new tenant. Raises as `grants_set` does."""
    with audited(Action.GRANT_CHANGE, actor=person, target=target_of(device)) as act:
        _require_administrator(person)
        lock_tenants(tenant)
        lock_parts(devices=[device.pk])
        moved = _grant_devices(person, {device.pk: tenant}, may_take={device.pk} if take else set())
        _create_lease(person, tenant, [one.row for one in moved])
        act.before, act.after = _audit_values(moved, tenant)
    device.refresh_from_db()
    return device


@two_people(host_port_grant_proposal)
def host_port_grant(*, person: User, host_port: HostPort, tenant: Tenant | None, take: bool = False) -> HostPort:
    """Grant a host port to a tenant, or free it; returns it with its new tenant. Raises as `grants_set` does."""
    with audited(Action.GRANT_CHANGE, actor=person, target=target_of(host_port, host_port.label)) as act:
        _require_administrator(person)
        lock_tenants(tenant)
        lock_parts(host_ports=[host_port.pk])
        moved = _grant_host_ports(person, {host_port.pk: tenant}, may_take={host_port.pk} if take else set())
        _create_lease(person, tenant, [one.row for one in moved])
        act.before, act.after = _audit_values(moved, tenant)
    host_port.refresh_from_db()
    return host_port


@two_people(grants_set_proposal)
def grants_set(
    *,
    person: User,
    tenant: Tenant,
    devices: Collection[Device],
    host_ports: Collection[HostPort],
    take: Collection[Device | HostPort] = (),
    seen: str | None = None,
) -> None:
    """Grant a tenant exactly these devices and host ports: all its others become free.

    `take` names those that may be taken from another tenant; `seen` is the `ownership_revision` that the user saw.
    Raises Forbidden, NotFound, and Conflict where another tenant has a part that may not be taken, where an operation
    on a part that would change is open, or where grants changed since `seen`. Nothing changes then.
    """
    with audited(Action.GRANTS_SET, actor=person, target=target_of(tenant)) as act:
        _require_administrator(person)
        lock_tenants(tenant)
        act.before = _owned_counts(tenant)
        tenants = _tenants_after(tenant, Device, devices)
        port_tenants = _tenants_after(tenant, HostPort, host_ports)
        if seen is not None and seen != ownership_revision():
            raise Conflict(_("Somebody changed grants since you opened the page. Check them, then choose again."))
        lock_parts(devices=tenants, host_ports=port_tenants)
        moved = _grant_devices(person, tenants, may_take={one.pk for one in take if isinstance(one, Device)})
        moved += _grant_host_ports(person, port_tenants, may_take={one.pk for one in take if isinstance(one, HostPort)})
        _create_lease(person, tenant, [one.row for one in moved if one.after is not None])
        for one in moved:
            name = one.row.label if isinstance(one.row, HostPort) else one.row.name
            before, after = _audit_values([one], one.after)
            audit_record(
                action=Action.GRANT_CHANGE, actor=person, target=target_of(one.row, name), before=before, after=after
            )
        act.after = _owned_counts(tenant)


def _create_lease(person: User, tenant: Tenant | None, granted: Sequence[LeasablePart]) -> None:
    """Create the lease of parts that were just granted; raises Conflict where another tenant has booked one of them."""
    if tenant is None or not granted:
        return
    now = timezone.now()
    check_not_booked(granted, TimeSpan(now, None))
    sentence = f"Granted until further notice: {parts_label(granted)}."
    lease_create_granted(person=person, tenant=tenant, things=granted, starts_at=now, sentence=sentence)


def _require_administrator(person: User) -> None:
    if not person.is_administrator:
        raise Forbidden(_("Only an administrator may change the grants of a tenant."))


def _tenants_after(
    tenant: Tenant, model: type[Device | HostPort], parts: Collection[LeasablePart]
) -> dict[int, Tenant | None]:
    others = model.objects.filter(tenant=tenant).values_list("pk", flat=True)
    return {**dict.fromkeys(others), **{part.pk: tenant for part in parts}}


def _grant_devices(person: User, tenants: dict[int, Tenant | None], *, may_take: set[int]) -> list[GrantChange]:
    """Change the tenants of the devices; their rows are locked."""
    rows = list(
        Device.objects.select_related("tenant", "slot__drawer", "chassis").filter(pk__in=tenants).order_by("pk")
    )
    if len(rows) != len(tenants):
        raise NotFound(_("There is no such device."))
    changed = [row for row in rows if row.tenant != tenants[row.pk]]
    # A tenant's open operation on a device, its drawer's mode or its port would affect its next tenant.
    around = Q(drawer__slots__device__in=changed, kind=Operation.Kind.MODE) | Q(port__slot__device__in=changed)
    operations = Operation.objects.open().filter(Q(device__in=changed) | Q(around, tenant__isnull=False))
    operation = operations.select_related("device").first()
    if operation is not None:
        raise Conflict(_busy_sentence(operation, operation.device.name if operation.device else _("The device")))
    for row in changed:
        name = f"{row.name} ({row.chassis.name}{f' {row.slot.drawer.name}' if row.slot and row.slot.drawer else ''})"
        _check_may_take(name, row.tenant, tenants[row.pk], allowed=row.pk in may_take)
    return _change_ownership(person, changed, tenants)


def _grant_host_ports(person: User, tenants: dict[int, Tenant | None], *, may_take: set[int]) -> list[GrantChange]:
    """Change the tenants of the host ports; their rows are locked."""
    rows = list(HostPort.objects.select_related("tenant", "chassis").filter(pk__in=tenants).order_by("pk"))
    if len(rows) != len(tenants):
        raise NotFound(_("There is no such host port."))
    changed = [row for row in rows if row.tenant != tenants[row.pk]]
    # A device that is being moved to or from the port would arrive at another tenant's host.
    around = Q(drawer__host_ports__in=changed, kind=Operation.Kind.MODE) | Q(port__host_port__in=changed)
    own = Q(source__in=changed) | Q(target__in=changed)
    operation = Operation.objects.open().filter(own | Q(around, tenant__isnull=False)).first()
    if operation is not None:
        ends = {operation.source_id, operation.target_id}
        port = next((row for row in changed if row.pk in ends), changed[0])
        raise Conflict(_busy_sentence(operation, _host_port_label(port)))
    for row in changed:
        _check_may_take(_host_port_label(row), row.tenant, tenants[row.pk], allowed=row.pk in may_take)
    return _change_ownership(person, changed, tenants)


def _change_ownership(
    person: User, changed: Sequence[Device] | Sequence[HostPort], tenants: dict[int, Tenant | None]
) -> list[GrantChange]:
    moved = [GrantChange(row, row.tenant, tenants[row.pk]) for row in changed]
    ownership_change(changed, tenants, by=person.get_username())
    return moved


def _audit_values(moved: Sequence[GrantChange], tenant: Tenant | None) -> tuple[dict[str, object], dict[str, object]]:
    """Return the audit values of parts whose tenant changed, or that were the tenant's already."""
    after = {"tenant": tenant.name if tenant else None}
    before = {"tenant": moved[0].before.name if moved[0].before else None} if moved else after
    return {**before}, {**after}


def _owned_counts(tenant: Tenant) -> dict[str, object]:
    return {
        "devices": Device.objects.filter(tenant=tenant).count(),
        "host ports": HostPort.objects.filter(tenant=tenant).count(),
    }


def _check_may_take(name: str, holder: Tenant | None, tenant: Tenant | None, *, allowed: bool) -> None:
    # Freeing takes nothing from anybody by mistake: the part was named, and its tenant is the one who loses it.
    if holder is not None and tenant is not None and not allowed:
        raise Conflict(
            _(
                "{part} is granted to {tenant}. Take it from them explicitly, or unassign it there first.",
                part=name,
                tenant=holder.name,
            )
        )


def _host_port_label(row: HostPort) -> str:
    return _("Host port {label} ({chassis})", label=row.label, chassis=row.chassis.name)


def _busy_sentence(operation: Operation, what: str) -> str:
    return _(
        "{part} cannot be granted now: {name} asked to '{operation}', which has not ended.",
        part=what,
        name=operation.requested_by_name,
        operation=operation.summary,
    )


def ownership_reconcile() -> None:
    """Correct tenures and leases that contradict the rows of devices and host ports; leave consistent ones."""
    if not (_parts_without(*TENURES) or _stale(*TENURES) or _parts_without(*ITEMS) or _stale(*ITEMS)):
        return
    with transaction.atomic():
        lock_tenants()
        _lock_inconsistent()
        for row in _parts_without(*TENURES):
            logger.warning("the tenure of %s %s did not match its row", type(row).__name__, row.pk)
            at = tenure_end(row)
            if row.tenant is not None:
                tenure_begin(row, row.tenant, at=at)
        for tenure in _stale(*TENURES):
            tenure.ended_at = max(timezone.now(), tenure.began_at)
            tenure.save(update_fields=["ended_at"])
        losing = set()
        for item in _stale(*ITEMS):
            item.released_at = timezone.now()
            item.save(update_fields=["released_at"])
            losing.add(item.lease_id)
        leases_end_empty(losing, by=SITE_NAME)
        _create_missing_leases()


def _lock_inconsistent() -> None:
    """Wait for walks: one that finds a device replaced ends its tenure, and has locked all its rows by then."""
    things = [*_parts_without(*TENURES), *_parts_without(*ITEMS)]
    kept: list[Tenure | LeaseItem] = [*_stale(*TENURES), *_stale(*ITEMS)]
    lock_parts(
        devices={row.pk for row in things if isinstance(row, Device)} | {one.device_id for one in kept},
        host_ports={row.pk for row in things if isinstance(row, HostPort)} | {one.host_port_id for one in kept},
    )


def _create_missing_leases() -> None:
    """Create leases without an end for granted parts without a lease."""
    owned: dict[Tenant, list[LeasablePart]] = defaultdict(list)
    for row in _parts_without(*ITEMS):
        if row.tenant is not None:
            owned[row.tenant].append(row)
    for tenant, things in owned.items():
        since = min(thing.tenant_since or timezone.now() for thing in things)
        sentence = f"Found to be granted without a lease: {parts_label(things)}. It is until further notice."
        lease_create_granted(person=None, tenant=tenant, things=things, starts_at=since, sentence=sentence)


def _parts_without(rows: QuerySet[Any], owner: str) -> list[LeasablePart]:
    """Return granted parts of which none of these rows is their tenant's."""
    found: list[LeasablePart] = []
    for model, name in ((Device, "device"), (HostPort, "host_port")):
        own = rows.filter(**{name: OuterRef("pk"), owner: OuterRef("tenant")})
        parts = model.objects.filter(tenant__isnull=False).exclude(Exists(own))
        found += parts.select_related(*RELATED_ROWS[name]).order_by("pk")
    return found


def _stale(rows: QuerySet[Row], owner: str) -> list[Row]:
    """Return those of these rows whose part is no longer granted to their tenant, or removed from the site."""
    right = rows.filter(Q(device__tenant=F(owner)) | Q(host_port__tenant=F(owner)))
    # The condition is negated as a whole: NULL on one side is neither equal nor unequal.
    return list(rows.exclude(pk__in=right.values("pk")))
