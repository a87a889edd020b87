"""The attachment history of slots and devices as a user sees it, with the operations that changed it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import F, Max, QuerySet

from accounts.models import User
from core.language import _, english, gettext_noop
from fabric.history.models import Attachment
from fabric.inventory.labels import FOREIGN_HOST_PORT
from fabric.inventory.models import Device, HostPort
from fabric.operations.models import Operation

Origin = Attachment.Origin
COLUMNS = (
    "since", "until", "slot", "device", "serial_number", "host", "host_port", "tenant", "begun", "begun_by_operation",
    "ended", "ended_by_operation",
)  # fmt: skip
COPIED_FIELDS = (
    "id", "device_id", "device_name", "serial_number", "slot_id", "slot_name", "tenant_name", "since", "until",
)  # fmt: skip
BEGIN_LABELS = {
    Origin.OPERATION: gettext_noop("by an operation"),
    Origin.OUTSIDE: gettext_noop("outside FalconWeb"),
    Origin.FOUND: gettext_noop("found so at the first sight"),
    Origin.GRANT: gettext_noop("changed hands"),
    Origin.SWAP: gettext_noop("put in for another device"),
}
END_LABELS = {
    **BEGIN_LABELS,
    Origin.SWAP: gettext_noop("swapped for another device"),
    Origin.MISSING: gettext_noop("it went missing"),
}


@dataclass(frozen=True, kw_only=True)
class AttachmentView:
    """A period of a device in a slot as a user may read it; `until` None: it lasts."""

    id: int
    device_id: int
    device_name: str
    serial_number: str
    slot_id: int | None
    slot_name: str
    host_name: str
    host_port_label: str
    place: str
    tenant_name: str
    since: datetime
    until: datetime | None
    begun: str
    begun_by_id: UUID | None
    begun_by: str
    ended: str
    ended_by_id: UUID | None
    ended_by: str


def attachment_rows(person: User, *, slot: int | None = None, device: int | None = None) -> QuerySet[Attachment]:
    """Return the periods of a slot or of a device, newest first."""
    rows: QuerySet[Attachment] = Attachment.objects.visible_to(person).select_related("begun_by", "ended_by")
    if slot is not None:
        rows = rows.filter(slot=slot)
    if device is not None:
        rows = rows.filter(device=device)
    return rows.order_by("-since", "-pk")


def attachment_views(person: User, rows: Iterable[Attachment]) -> list[AttachmentView]:
    """Return rows of `attachment_rows` as the user may read them, in two queries."""
    rows = list(rows)
    ports = HostPort.objects.visible_to(person).filter(pk__in={row.host_port_id for row in rows} - {None})
    pks = {pk for row in rows for pk in (row.begun_by_id, row.ended_by_id)} - {None}
    operations = Operation.objects.visible_to(person).filter(pk__in=pks)
    seen_ports, seen_operations = (set(found.values_list("pk", flat=True)) for found in (ports, operations))
    return [_view(row, person, seen_ports, seen_operations) for row in rows]


def attachment_table_rows(views: Iterable[AttachmentView]) -> Iterable[tuple[object, ...]]:
    """Yield a table row for each period; its columns are COLUMNS, times ISO 8601 in UTC."""
    for view in views:
        yield (
            view.since.isoformat(timespec="seconds"),
            view.until.isoformat(timespec="seconds") if view.until else "",
            view.slot_name, view.device_name, view.serial_number, view.host_name, view.host_port_label,
            view.tenant_name or "unassigned", view.begun, english(view.begun_by), view.ended, english(view.ended_by),
        )  # fmt: skip


def _view(row: Attachment, person: User, ports: set[int], operations: set[UUID]) -> AttachmentView:
    known = person.is_administrator or row.host_port_id in ports
    attached = bool(row.host_port_label)
    host, label = (row.host_name, row.host_port_label) if known else ("", "")
    place = _("no host") if not attached else f"{host or _('no host')} ({label})" if known else _(FOREIGN_HOST_PORT)
    begun_by = row.begun_by if row.begun_by_id in operations else None
    ended_by = row.ended_by if row.ended_by_id in operations else None
    return AttachmentView(
        **{name: getattr(row, name) for name in COPIED_FIELDS},
        host_name=host,
        host_port_label=label,
        place=place,
        begun=BEGIN_LABELS.get(Origin(row.origin), row.origin),
        begun_by_id=begun_by.pk if begun_by is not None else None,
        begun_by=_operation_label(begun_by),
        ended=END_LABELS.get(Origin(row.ending), row.ending) if row.ending else "",
        ended_by_id=ended_by.pk if ended_by is not None else None,
        ended_by=_operation_label(ended_by),
    )


def _operation_label(operation: Operation | None) -> str:
    if operation is None:
        return ""
    return _("{summary}, requested by {name}", summary=operation.summary, name=operation.requested_by_name)


def owned_since(*chassis_ids: int) -> dict[tuple[str, int], datetime]:
    """Return since when devices and ports of chassis belong to their tenants; those never granted are left out.

    A port belongs to a tenant only while its device is behind it: its earlier data may belong to another tenant.
    """
    since: dict[tuple[str, int], datetime] = {}
    left = device_departures(Attachment.objects.filter(chassis__in=chassis_ids))
    devices = Device.objects.filter(chassis__in=chassis_ids, tenant_since__isnull=False)
    for pk, port, at in devices.values_list("pk", "slot__port", "tenant_since"):
        since["device", pk] = at
        if port is not None:
            since["port", port] = max(at, left.get(port, at))
    host_ports = HostPort.objects.filter(chassis__in=chassis_ids, tenant_since__isnull=False, port__isnull=False)
    for port, at in host_ports.values_list("port", "tenant_since"):
        since["port", port] = at
    return since


def device_departures(attachments: QuerySet[Attachment]) -> dict[int, datetime]:
    """Return when the last other device left a slot, by the slot's port: of slots that are occupied again."""
    rows = attachments.filter(slot__port__isnull=False, slot__device__isnull=False, until__isnull=False)
    rows = rows.exclude(device=F("slot__device"))
    last: QuerySet[Any, Any] = rows.order_by().values("slot__port").annotate(left=Max("until"))
    return {row["slot__port"]: row["left"] for row in last}
