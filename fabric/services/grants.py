"""Whose a device or host port is: one tenant's at a time, or the free pool's (tenant None). Administrators only."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from accounts.models import Tenant, User
from fabric.holdings import holdings_revision
from fabric.models import Device, HostPort, Operation
from fabric.signals import access_changed
from falconweb.errors import Conflict, Forbidden, NotFound

logger = logging.getLogger(__name__)


def device_grant(*, person: User, device: Device, tenant: Tenant | None, take: bool = False) -> Device:
    """Grant a device to a tenant, or free it; returns it as it is now. Raises as `grants_set` does."""
    with transaction.atomic():
        _administrators_only(person)
        _lock_tenants(tenant)
        _grant_devices(person, {device.pk: tenant}, may_take={device.pk} if take else set())
    device.refresh_from_db()
    return device


def host_port_grant(*, person: User, host_port: HostPort, tenant: Tenant | None, take: bool = False) -> HostPort:
    """Grant a host port to a tenant, or free it; returns it as it is now. Raises as `grants_set` does."""
    with transaction.atomic():
        _administrators_only(person)
        _lock_tenants(tenant)
        _grant_host_ports(person, {host_port.pk: tenant}, may_take={host_port.pk} if take else set())
    host_port.refresh_from_db()
    return host_port


def grants_set(
    *,
    person: User,
    tenant: Tenant,
    devices: Collection[Device],
    host_ports: Collection[HostPort],
    take: Collection[Device | HostPort] = (),
    seen: str | None = None,
) -> None:
    """Let a tenant hold exactly these devices and host ports: all others that it holds become free.

    `take` names those that may be taken from another tenant; `seen` is the `holdings_revision` that the person saw.
    Raises Forbidden, NotFound, and Conflict when another tenant holds something that may not be taken, when an
    operation on something that would change is open, or when grants changed since they were seen. Then nothing changes.
    """
    with transaction.atomic():
        _administrators_only(person)
        _lock_tenants(tenant)
        wanted: dict[int, Tenant | None] = {device.pk: tenant for device in devices}
        wanted_ports: dict[int, Tenant | None] = {port.pk: tenant for port in host_ports}
        wanted |= dict.fromkeys(
            Device.objects.filter(tenant=tenant).exclude(pk__in=wanted).values_list("pk", flat=True), None
        )
        wanted_ports |= dict.fromkeys(
            HostPort.objects.filter(tenant=tenant).exclude(pk__in=wanted_ports).values_list("pk", flat=True), None
        )
        if seen is not None and seen != holdings_revision():
            raise Conflict("Somebody changed grants since you opened the page. Look at them again, then choose anew.")
        _grant_devices(person, wanted, may_take={one.pk for one in take if isinstance(one, Device)})
        _grant_host_ports(person, wanted_ports, may_take={one.pk for one in take if isinstance(one, HostPort)})


def _administrators_only(person: User) -> None:
    if not person.is_administrator:
        raise Forbidden("Only an administrator may say what a tenant holds.")


def _lock_tenants(tenant: Tenant | None) -> None:
    """Let one change of grants happen at a time: each depends on what all tenants hold, and they are rare."""
    held = [row.pk for row in Tenant.objects.select_for_update().order_by("pk")]
    if tenant is not None and tenant.pk not in held:
        raise NotFound("There is no such tenant any more.")


def _grant_devices(person: User, wanted: dict[int, Tenant | None], *, may_take: set[int]) -> None:
    """Change whose the devices are; rows are locked in one order, so that two who grant at once wait, not deadlock."""
    rows = list(
        Device.objects.select_for_update(of=("self",))
        .select_related("tenant", "slot__drawer", "chassis")
        .filter(pk__in=wanted)
        .order_by("pk")
    )
    if len(rows) != len(wanted):
        raise NotFound("There is no such device.")
    changed = [row for row in rows if row.tenant != wanted[row.pk]]
    operation = Operation.objects.open().filter(device__in=changed).select_related("device").first()
    if operation is not None:
        raise Conflict(_busy(operation, operation.device.name if operation.device else "The device"))
    for row in changed:
        name = f"{row.name} ({row.chassis.name}{f' {row.slot.drawer.name}' if row.slot and row.slot.drawer else ''})"
        _refuse_to_take(name, row.tenant, wanted[row.pk], allowed=row.pk in may_take)
    _change_hands(person, changed, wanted)


def _grant_host_ports(person: User, wanted: dict[int, Tenant | None], *, may_take: set[int]) -> None:
    rows = list(
        HostPort.objects.select_for_update(of=("self",))
        .select_related("tenant", "chassis")
        .filter(pk__in=wanted)
        .order_by("pk")
    )
    if len(rows) != len(wanted):
        raise NotFound("There is no such host port.")
    changed = [row for row in rows if row.tenant != wanted[row.pk]]
    # A device that is on its way to or from the port would arrive at somebody else's host.
    operation = Operation.objects.open().filter(Q(source__in=changed) | Q(target__in=changed)).first()
    if operation is not None:
        port = next(row for row in changed if row.pk in {operation.source_id, operation.target_id})
        raise Conflict(_busy(operation, f"Host port {port.label} ({port.chassis.name})"))
    for row in changed:
        name = f"Host port {row.label} ({row.chassis.name})"
        _refuse_to_take(name, row.tenant, wanted[row.pk], allowed=row.pk in may_take)
    _change_hands(person, changed, wanted)


def _change_hands(
    person: User, changed: Sequence[Device] | Sequence[HostPort], wanted: dict[int, Tenant | None]
) -> None:
    for row in changed:
        _note(person, row, wanted[row.pk])
        row.tenant, row.tenant_since = wanted[row.pk], timezone.now()
        row.save(update_fields=["tenant", "tenant_since"])
    if changed:
        _announce(type(changed[0]))


def _refuse_to_take(name: str, holder: Tenant | None, tenant: Tenant | None, *, allowed: bool) -> None:
    # To free something takes nothing from anybody by mistake: it was named, and its holder is the one who loses it.
    if holder is not None and tenant is not None and not allowed:
        raise Conflict(f"{name} is held by {holder.name}. Take it from them explicitly, or free it there first.")


def _busy(operation: Operation, what: str) -> str:
    return (
        f"{what} cannot change hands now: {operation.requested_by_name} asked to '{operation.summary}', which has not"
        " ended."
    )


def _note(person: User, row: Device | HostPort, tenant: Tenant | None) -> None:
    before, after = (one.name if one else "the free pool" for one in (row.tenant, tenant))
    logger.info("%s granted %s %s from %r to %r", person.username, type(row).__name__, row.pk, before, after)


def _announce(sender: type[Device | HostPort]) -> None:
    transaction.on_commit(lambda: access_changed.send(sender), robust=True)
