"""The part of a fabric that fits on a page: a service may have ten thousand slots."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.core.paginator import Page, Paginator
from django.db.models import F

from accounts.models import User
from fabric.inventory.models import Device, Slot

SLOTS_A_PAGE = 100

SlotPlace = tuple[int, int]  # a slot (id), or 0 and a device outside of slots


@dataclass(frozen=True)
class ShownSlots:
    """The slots, and the devices outside of slots, that are shown (ids)."""

    slots: frozenset[int]
    devices: frozenset[int]

    @classmethod
    def of(cls, places: Iterable[SlotPlace]) -> ShownSlots:
        """Return those at some places."""
        here = list(places)
        return cls(frozenset(slot for slot, _ in here if slot), frozenset(device for _, device in here if device))


def slot_places(
    person: User, chassis_ids: Collection[int], *, drawer: int | None = None, devices: Collection[int] | None = None
) -> dict[int, list[SlotPlace]]:
    """Return the places of each chassis, in order: those of a drawer, or with `devices` (ids) in them, or all."""
    slots = Slot.objects.filter(chassis__in=chassis_ids, missing_since=None)
    outside = Device.objects.visible_to(person).filter(chassis__in=chassis_ids, slot=None)
    if drawer is not None:
        slots, outside = slots.filter(drawer=drawer), outside.none()
    places: dict[int, list[SlotPlace]] = defaultdict(list)
    order = ("chassis_id", F("drawer__number").asc(nulls_last=True), "drawer_id", "number", "uri")
    for pk, chassis, device in slots.order_by(*order).values_list("pk", "chassis", "device"):
        if devices is None or device in devices:
            places[chassis].append((pk, 0))
    for pk, chassis in outside.order_by("name", "uri").values_list("pk", "chassis"):
        if devices is None or pk in devices:
            places[chassis].append((0, pk))
    return places


def slots_on_page(places: Sequence[SlotPlace], number: str | None) -> tuple[Page[Any], ShownSlots | None]:
    """Return a page of places, and what is on it; None where there is but one page, with all."""
    page: Page[Any] = Paginator(places, SLOTS_A_PAGE).get_page(number)
    return page, ShownSlots.of(page) if page.paginator.num_pages > 1 else None
