"""What of an event is exported: its members by name, each a plain value of JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.conf import settings

from telemetry.events.models import Event


@dataclass(frozen=True)
class Column:
    """A column: what it is called on pages, the fields of an event that it needs, and its value."""

    words: str
    fields: tuple[str, ...]
    value: Callable[[Event], Any]


def stamp(at: datetime | None) -> str | None:
    """Return an instant in UTC as RFC 3339 has it, to the microsecond; None for none."""
    return None if at is None else at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _plain(words: str, field: str) -> Column:
    return Column(words, (field,), lambda event: getattr(event, field))


def _page(event: Event) -> str:
    """Return the address of the thing's page, whole where the site knows its own."""
    return f"{settings.CONFIG.address}{event.link}" if event.link else ""


COLUMNS: dict[str, Column] = {
    "id": _plain("Number", "id"),
    "at": Column("When", ("at",), lambda event: stamp(event.at)),
    "received_at": Column("Known since", ("received_at",), lambda event: stamp(event.received_at)),
    "told_at": Column("When, by the BMC’s clock", ("told_at",), lambda event: stamp(event.told_at)),
    "source": _plain("Source", "source"),
    "severity": _plain("Severity", "severity"),
    "message_id": _plain("Message", "message_id"),
    "text": _plain("Text", "text"),
    "arguments": _plain("Arguments of the message", "arguments"),
    "chassis": _plain("Chassis", "chassis_name"),
    "subject": _plain("What it is about", "subject_name"),
    "tenant": _plain("Tenant", "tenant_name"),
    "person": _plain("Person", "person_name"),
    "link": Column("Page of the thing", ("link",), _page),
    "chassis_id": _plain("Chassis, number", "chassis_id"),
    "drawer_id": _plain("Drawer, number", "drawer_id"),
    "device_id": _plain("Device, number", "device_id"),
    "port_id": _plain("Port, number", "port_id"),
    "host_id": _plain("Host, number", "host_id"),
    "tenant_id": _plain("Tenant, number", "tenant_id"),
    "origin": _plain("Resource of the BMC", "origin_uri"),
    "originator": _plain("Account on the BMC", "originator"),
    "address": _plain("Address on the BMC", "origin_address"),
}
USUAL = (
    "id", "at", "source", "severity", "message_id", "text", "chassis", "subject", "tenant", "person", "link",
)  # fmt: skip


def fields_of(columns: Sequence[str], *more: str) -> list[str]:
    """Return the fields of an event that these columns need."""
    return sorted({"id", *more, *(field for name in columns for field in COLUMNS[name].fields)})
