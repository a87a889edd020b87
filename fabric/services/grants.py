"""Whose a device or host port is: one tenant's at a time, or the free pool's (tenant None). Administrators only."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from django.db.models import Q

from accounts.audit.actions import Action
from accounts.audit.services import audit_record, audited, target_of
from accounts.models import Tenant, User
from fabric.holdings import holdings_revision
from fabric.models import Device, HostPort, Operation
from fabric.services.booking import lease_of_grant
from fabric.services.hands import change_hands, holdings_lock
from fabric.services.locks import lock_held
from falconweb.errors import Conflict, Forbidden, NotFound


@dataclass(frozen=True)
class Moved:
    """A thing that changed hands."""

    row: Device | HostPort
    before: Tenant | None
    after: Tenant | None


def device_grant(*, person: User, device: Device, tenant: Tenant | None, take: bool = False) -> Device:
    """Grant a device to a tenant, or free it; returns it as it is now. Raises as `grants_set` does."""
    with audited(Action.GRANT_CHANGE, actor=person, target=target_of(device)) as act:
        _administrators_only(person)
        holdings_lock(tenant)
        lock_held(devices=[device.pk])
        moved = _grant_devices(person, {device.pk: tenant}, may_take={device.pk} if take else set())
        lease_of_grant(person=person, tenant=tenant, things=[one.row for one in moved])
        act.before, act.after = _told(moved, tenant)
    device.refresh_from_db()
    return device


def host_port_grant(*, person: User, host_port: HostPort, tenant: Tenant | None, take: bool = False) -> HostPort:
    """Grant a host port to a tenant, or free it; returns it as it is now. Raises as `grants_set` does."""
    with audited(Action.GRANT_CHANGE, actor=person, target=target_of(host_port, host_port.label)) as act:
        _administrators_only(person)
        holdings_lock(tenant)
        lock_held(host_ports=[host_port.pk])
        moved = _grant_host_ports(person, {host_port.pk: tenant}, may_take={host_port.pk} if take else set())
        lease_of_grant(person=person, tenant=tenant, things=[one.row for one in moved])
        act.before, act.after = _told(moved, tenant)
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
    with audited(Action.GRANTS_SET, actor=person, target=target_of(tenant)) as act:
        _administrators_only(person)
        holdings_lock(tenant)
        act.before = _held_by(tenant)
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
        lock_held(devices=wanted, host_ports=wanted_ports)
        moved = _grant_devices(person, wanted, may_take={one.pk for one in take if isinstance(one, Device)})
        moved += _grant_host_ports(person, wanted_ports, may_take={one.pk for one in take if isinstance(one, HostPort)})
        lease_of_grant(person=person, tenant=tenant, things=[one.row for one in moved if one.after is not None])
        for one in moved:
            name = one.row.label if isinstance(one.row, HostPort) else one.row.name
            before, after = _told([one], one.after)
            audit_record(
                action=Action.GRANT_CHANGE, actor=person, target=target_of(one.row, name), before=before, after=after
            )
        act.after = _held_by(tenant)


def _administrators_only(person: User) -> None:
    if not person.is_administrator:
        raise Forbidden("Only an administrator may say what a tenant holds.")


def _grant_devices(person: User, wanted: dict[int, Tenant | None], *, may_take: set[int]) -> list[Moved]:
    """Change whose the devices are; their rows are locked."""
    rows = list(Device.objects.select_related("tenant", "slot__drawer", "chassis").filter(pk__in=wanted).order_by("pk"))
    if len(rows) != len(wanted):
        raise NotFound("There is no such device.")
    changed = [row for row in rows if row.tenant != wanted[row.pk]]
    # What a tenant asked for around a device, its drawer's mode or its port, would reach into somebody else's.
    around = Q(drawer__slots__device__in=changed, kind=Operation.Kind.MODE) | Q(port__slot__device__in=changed)
    operations = Operation.objects.open().filter(Q(device__in=changed) | Q(around, tenant__isnull=False))
    operation = operations.select_related("device").first()
    if operation is not None:
        raise Conflict(_busy(operation, operation.device.name if operation.device else "The device"))
    for row in changed:
        name = f"{row.name} ({row.chassis.name}{f' {row.slot.drawer.name}' if row.slot and row.slot.drawer else ''})"
        _refuse_to_take(name, row.tenant, wanted[row.pk], allowed=row.pk in may_take)
    return _change_hands(person, changed, wanted)


def _grant_host_ports(person: User, wanted: dict[int, Tenant | None], *, may_take: set[int]) -> list[Moved]:
    """Change whose the host ports are; their rows are locked."""
    rows = list(HostPort.objects.select_related("tenant", "chassis").filter(pk__in=wanted).order_by("pk"))
    if len(rows) != len(wanted):
        raise NotFound("There is no such host port.")
    changed = [row for row in rows if row.tenant != wanted[row.pk]]
    # A device that is on its way to or from the port would arrive at somebody else's host.
    around = Q(drawer__host_ports__in=changed, kind=Operation.Kind.MODE) | Q(port__host_port__in=changed)
    operation = (
        Operation.objects.open()
        .filter(Q(source__in=changed) | Q(target__in=changed) | Q(around, tenant__isnull=False))
        .first()
    )
    if operation is not None:
        ends = {operation.source_id, operation.target_id}
        port = next((row for row in changed if row.pk in ends), changed[0])
        raise Conflict(_busy(operation, f"Host port {port.label} ({port.chassis.name})"))
    for row in changed:
        name = f"Host port {row.label} ({row.chassis.name})"
        _refuse_to_take(name, row.tenant, wanted[row.pk], allowed=row.pk in may_take)
    return _change_hands(person, changed, wanted)


def _change_hands(
    person: User, changed: Sequence[Device] | Sequence[HostPort], wanted: dict[int, Tenant | None]
) -> list[Moved]:
    moved = [Moved(row, row.tenant, wanted[row.pk]) for row in changed]
    change_hands(changed, wanted, by=person.get_username())
    return moved


def _told(moved: Sequence[Moved], tenant: Tenant | None) -> tuple[dict[str, object], dict[str, object]]:
    """Return what the audit log tells of a thing that changed hands, or that was the tenant's already."""
    after = {"tenant": tenant.name if tenant else None}
    before = {"tenant": moved[0].before.name if moved[0].before else None} if moved else after
    return {**before}, {**after}


def _held_by(tenant: Tenant) -> dict[str, object]:
    return {
        "devices": Device.objects.filter(tenant=tenant).count(),
        "host ports": HostPort.objects.filter(tenant=tenant).count(),
    }


def _refuse_to_take(name: str, holder: Tenant | None, tenant: Tenant | None, *, allowed: bool) -> None:
    # To free something takes nothing from anybody by mistake: it was named, and its holder is the one who loses it.
    if holder is not None and tenant is not None and not allowed:
        raise Conflict(f"{name} is held by {holder.name}. Take it from them explicitly, or free it there first.")


def _busy(operation: Operation, what: str) -> str:
    return (
        f"{what} cannot change hands now: {operation.requested_by_name} asked to '{operation.summary}', which has not"
        " ended."
    )
