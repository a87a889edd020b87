"""Attachment history: consecutive periods, written by everything that changes an attachment or a grant.

There are several writers: walks, read-backs of operations, grants. Each locks the devices' rows first and then writes
their present state, so that no device has two open periods, and no change is recorded twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from core.database import CompiledQuery, lock_rows
from fabric.history.models import Attachment
from fabric.inventory.labels import slot_label
from fabric.inventory.models import Device
from fabric.operations.models import Operation

Origin = Attachment.Origin
# How long after its end a failed operation is taken for the cause, s: by then the chassis has been walked.
CAUSE_WINDOW = timedelta(minutes=10)
NO_OPERATIONS: Mapping[int, Operation] = {}


def attachments_record(devices: Collection[int], *, operations: Mapping[int, Operation] = NO_OPERATIONS) -> None:
    """Record the present attachment and tenant of these devices (ids), where they have changed.

    `operations` has the causing operation by device; the default is the one that runs on the device.
    """
    if not devices:
        return
    with transaction.atomic():
        rows, held = _locked_with_periods(devices)
        changed = [row for row in rows if is_attachment_changed(row, held.get(row.pk))]
        if not changed:
            return
        known = dict(operations)
        if others := [row for row in changed if row.pk not in known]:
            at_work = Operation.objects.filter(device__in=others, state__in=Operation.AT_WORK).in_turn()
            running = {one.device_id: one for one in at_work if one.device_id is not None}
            known = {**_ended_operations(others, held), **running, **known}
        new = [row for row in changed if row.pk not in held]
        earlier = Attachment.objects.filter(device__in=new).order_by()
        seen_before = set(earlier.values_list("device", flat=True)) if new else set()
        now = timezone.now()
        begun = []
        for row in changed:
            at, operation = _changed_at(row, held.get(row.pk), now), known.get(row.pk)
            origin = _origin(row, held.get(row.pk), operation, is_first=row.pk not in seen_before)
            if (before := held.get(row.pk)) is not None:
                before.until, before.ending = at, origin
                before.ended_by = operation if origin == Origin.OPERATION else None
                before.save(update_fields=["until", "ending", "ended_by"])
            if row.missing_since is None:
                begun.append(_new_attachment(row, at, origin, operation))
        Attachment.objects.bulk_create(begun)


def attachments_begin(devices: Iterable[Device]) -> None:
    """Record the first attachments of devices that were never known before; slots and host ports are loaded."""
    now = timezone.now()
    found = [row for row in devices if row.missing_since is None]
    Attachment.objects.bulk_create(_new_attachment(row, now, Origin.FOUND, None) for row in found)


def _known_as() -> QuerySet[Device]:
    return lock_rows(Device.objects.select_related("slot__drawer", "host_port__host", "tenant"))


LOCKED_DEVICE: Final[CompiledQuery[Device]] = CompiledQuery(lambda pk: _known_as().filter(pk=pk).order_by())
OPEN_PERIOD: Final[CompiledQuery[Attachment]] = CompiledQuery(
    lambda device: Attachment.objects.filter(device=device, until=None).order_by()
)


def _locked_with_periods(devices: Collection[int]) -> tuple[list[Device], dict[int, Attachment]]:
    """Lock devices (ids), and return them with their open periods by device."""
    if len(devices) == 1:
        rows = [row for pk in devices for row in LOCKED_DEVICE.objects(pk)]
        periods = [one for row in rows for one in OPEN_PERIOD.objects(row.pk)]
    else:
        rows = list(_known_as().filter(pk__in=devices))
        periods = list(Attachment.objects.filter(device__in=rows, until=None).order_by())
    return rows, {one.device_id: one for one in periods}


def attachments_backdate(*, chassis: int, since: datetime) -> None:
    """Let the open periods of a chassis begin earlier, where it is known that its devices were in place."""
    Attachment.objects.filter(chassis=chassis, until=None, since__gt=since).update(since=since)


def is_attachment_changed(device: Device, held: Attachment | None) -> bool:
    """Return whether a device differs from its open period (None: it has none)."""
    if held is None:
        return device.missing_since is None
    return (
        device.missing_since is not None
        or _place(device) != (held.slot_id, held.host_port_id)
        or device.tenant_id != held.tenant_id
        or _is_replacement(device, held)
    )


def _place(device: Device) -> tuple[int | None, int | None]:
    return device.slot_id, device.host_port_id


def _is_replacement(device: Device, held: Attachment) -> bool:
    if device.serial_number or held.serial_number:
        # A serial number that is missing for a moment proves nothing.
        return bool(device.serial_number and held.serial_number) and device.serial_number != held.serial_number
    return device.name != held.device_name


def _ended_operations(devices: Iterable[Device], held: Mapping[int, Attachment]) -> dict[int, Operation]:
    """Return the operation that failed on a device lately, where it may have caused its present state."""
    since = timezone.now() - CAUSE_WINDOW
    states = (Operation.State.FAILED, Operation.State.CANCELLED)
    ended = Operation.objects.filter(
        device__in=devices, state__in=states, started_at__isnull=False, finished_at__gt=since
    ).order_by("finished_at")
    newest = {row.device_id: row for row in ended}
    return {
        one.pk: operation
        for one in devices
        if (operation := newest.get(one.pk)) is not None
        and (before := held.get(one.pk)) is not None
        and operation.finished_at > before.since
        and one.host_port_id in {operation.target_id, None}
    }


def _changed_at(device: Device, held: Attachment | None, now: datetime) -> datetime:
    """Return when the change happened: the grant's own time where only the tenant changed, else now."""
    since = device.tenant_since
    if held is None or since is None or _place(device) != (held.slot_id, held.host_port_id):
        return now
    return since if device.tenant_id != held.tenant_id and held.since < since < now else now


def _origin(
    device: Device, held: Attachment | None, operation: Operation | None, *, is_first: bool
) -> Attachment.Origin:
    if device.missing_since is not None:
        return Origin.MISSING
    if held is None:
        return Origin.FOUND if is_first else Origin.OUTSIDE
    if _is_replacement(device, held):
        return Origin.SWAP
    if _place(device) == (held.slot_id, held.host_port_id):
        return Origin.GRANT
    return Origin.OUTSIDE if operation is None else Origin.OPERATION


def _new_attachment(device: Device, at: datetime, origin: Attachment.Origin, operation: Operation | None) -> Attachment:
    slot, port = device.slot, device.host_port
    return Attachment(
        chassis_id=device.chassis_id,
        device=device,
        slot=slot,
        host_port=port,
        tenant=device.tenant,
        device_name=device.name,
        serial_number=device.serial_number,
        slot_name=slot_label(device),
        host_port_label=port.label if port is not None else "",
        host_name=port.host.name if port is not None and port.host is not None else "",
        tenant_name=device.tenant.name if device.tenant is not None else "",
        since=at,
        origin=origin,
        begun_by=operation if origin == Origin.OPERATION else None,
    )
