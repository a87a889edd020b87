"""Finding what one can look at, by name or place: as the person sees it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from django.db.models import Q

from accounts.models import Tenant, User
from fabric.listing import device_rows, drawer_rows, host_rows, port_rows, slot_rows
from fabric.models import Chassis, Slot
from telemetry.catalogue import Entry
from telemetry.history.ranges import DAY
from telemetry.history.subjects import port_place, slot_place
from telemetry.store.reading import known_series

SENSORS_OF = 8  # chassis whose sensors are looked through


@dataclass(frozen=True)
class Found:
    """A subject that fits: `ref` names it in addresses."""

    ref: str
    kind: str
    name: str
    place: str


def subjects_matching(person: User, text: str, *, chassis: int | None = None, most: int = 24) -> list[Found]:
    """Return at most so many subjects whose name or place contains a text, large things first; all fit ''."""
    text = " ".join(text.replace("\0", " ").split())[:200]
    return list(islice(_matching(person, text, chassis), most))


def _matching(person: User, text: str, chassis: int | None) -> Iterator[Found]:
    of_chassis = Q() if chassis is None else Q(pk=chassis)
    all_chassis = Chassis.objects.visible_to(person).filter(of_chassis)
    for pk, name in all_chassis.filter(name__icontains=text).values_list("pk", "name"):
        yield Found(f"chassis/{pk}", "chassis", name, "")
    asked: dict[str, Any] = {"search": text, "chassis": chassis}
    for row in drawer_rows(person, **asked).filter(missing_since=None).iterator(100):
        yield Found(f"drawer/{row.pk}", "drawer", row.name, row.chassis.name)
    if chassis is None:
        for row in host_rows(person, search=text).iterator(100):
            yield Found(f"host/{row.pk}", "host", row.name, "")
        yield from _tenants(person, text)
    for row in device_rows(person, **asked).iterator(100):
        place = ", ".join(part for part in (row.chassis.name, _slot_words(row.slot)) if part)
        yield Found(f"device/{row.pk}", "device", row.name, place)
    for row in slot_rows(person, **asked).filter(missing_since=None).iterator(100):
        yield Found(f"slot/{row.pk}", "slot", _slot_words(row), row.chassis.name)
    for row in port_rows(person, **asked).filter(missing_since=None).iterator(100):
        part = getattr(row, "slot", None) or getattr(row, "host_port", None)
        drawer = part.drawer.name if part is not None and part.drawer is not None else None
        yield Found(f"port/{row.pk}", "port", row.name, port_place(row.name, row.chassis.name, drawer))
    if person.is_administrator and (text or chassis is not None):
        for pk, name in all_chassis.values_list("pk", "name")[:SENSORS_OF]:
            yield from sensors_of(pk, name, text)


def _slot_words(slot: Slot | None) -> str:
    return "" if slot is None else slot_place(slot.name, slot.drawer.name if slot.drawer is not None else None)


def _tenants(person: User, text: str) -> Iterator[Found]:
    rows = Tenant.objects.filter(name__icontains=text)
    if not person.is_administrator:
        rows = rows.filter(pk=person.tenant_id) if person.tenant_id else rows.none()
    for pk, name in rows.order_by("name").values_list("pk", "name"):
        yield Found(f"tenant/{pk}", "tenant", name, "")


def sensors_of(chassis: int, name: str, text: str = "") -> Iterator[Found]:
    """Yield the sensors of a chassis and its drawers that were read within a day: each a series by itself."""
    now = time.time()
    words = text.casefold()
    for entry in known_series(chassis, since=now - DAY, until=now):
        if entry["object"] in {"chassis", "drawer"} and words in f"{entry['label']} {name}".casefold():
            yield Found(f"series/{chassis}/{entry['key']}", "sensor", _labelled(entry), name)


def _labelled(entry: Entry) -> str:
    return f"{entry['label']} ({entry['unit']})" if entry["unit"] else entry["label"]
