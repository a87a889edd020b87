"""Slots, each typed once: from the PCIe device that describes it, or from the deprecated PCIeSlots."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import msgspec

from fabric.bmc.crawl import CrawledResource
from fabric.bmc.hardware import chassis_of, common_properties, is_present, physical_location, position_number
from fabric.bmc.relations import ResourceRelations
from fabric.bmc.types import RedfishSlot
from fabric.bmc.values import JsonObject, boolean, integer, links, mapping, named_texts, objects, text, trailing_number


def read_slots(found: Iterable[CrawledResource], relations: ResourceRelations) -> list[RedfishSlot]:
    """Return every slot once: as described by its PCIeDevice, else from the deprecated PCIeSlots."""
    everything = list(found)
    slots = [read_slot(each, relations) for each in everything if each.kind == "PCIeDevice" and "Slot" in each.body]
    devices = {slot.uri.removesuffix("#/Slot") for slot in slots}
    # The labels of what has a number of a chassis: by their form, the numbers in them.
    described: dict[tuple[str, int], dict[str, set[tuple[str, ...]]]] = defaultdict(lambda: defaultdict(set))
    for slot in slots:
        form, numbers = _split_label(slot.name)
        described[slot.chassis_uri, slot.number][form].add(numbers)
    for each in everything:
        if each.kind == "PCIeSlots":
            for index, member in enumerate(objects(each.body, "Slots")):
                slot = read_legacy_slot(each, index, member, relations)
                form, numbers = _split_label(slot.name)
                named = described.get((slot.chassis_uri, slot.number), {})
                # Labels of one form with different numbers, as 'D1-S1' and 'D2-S1', are other places.
                is_other = named.keys() <= {form} and numbers not in named.get(form, ())
                if slot.device_uri not in devices and is_other:
                    slots.append(slot)
    # A number that two slots of a chassis share names neither: their labels do.
    count = Counter((slot.chassis_uri, slot.number) for slot in slots)
    return [
        slot if count[slot.chassis_uri, slot.number] == 1 else msgspec.structs.replace(slot, number=0) for slot in slots
    ]


def _split_label(label: str) -> tuple[str, tuple[str, ...]]:
    folded = label.casefold()
    return re.sub(r"\d+", "0", folded), tuple(digits.lstrip("0") for digits in re.findall(r"\d+", folded))


def read_slot(found: CrawledResource, relations: ResourceRelations) -> RedfishSlot:
    """Return the slot that a PCIeDevice describes, with the device in it unless it is absent."""
    slot = mapping(found.body, "Slot")
    occupied = is_present(found)
    return RedfishSlot(
        uri=f"{found.uri}#/Slot",
        name=physical_location(slot) or text(found.body, "Name") or found.uri.rsplit("/", 1)[-1],
        id=common_properties(found.uri, found.body)["id"],
        state=text(found.body, "Status", "State"),
        health=text(found.body, "Status", "Health"),
        chassis_uri=chassis_of(found),
        number=position_number(found),
        **_slot(slot),
        occupied=occupied,
        device_uri=found.uri if occupied else "",
        port_uri=relations.port_of(found.uri) or relations.port_labelled(physical_location(slot)),
    )


def read_legacy_slot(found: CrawledResource, index: int, slot: JsonObject, relations: ResourceRelations) -> RedfishSlot:
    """Return one member of the deprecated PCIeSlots."""
    devices = links(slot, "Links", "PCIeDevice")
    label = physical_location(slot)
    number_of = trailing_number(label)
    named = common_properties(f"{found.uri}#/Slots/{index}", slot)
    named["name"] = label or f"Slot {index + 1}"
    return RedfishSlot(
        **named,
        chassis_uri=found.uri.rsplit("/", 1)[0],
        number=index + 1 if number_of is None else number_of,
        **_slot(slot),
        occupied=bool(devices),
        device_uri=devices[0] if devices else "",
        port_uri=(relations.port_of(devices[0]) if devices else "") or relations.port_labelled(label),
    )


def _slot(slot: JsonObject) -> dict[str, Any]:
    return {
        **named_texts(slot, "SlotType", "PCIeType"),
        "lanes": integer(slot, "Lanes"),
        "hot_pluggable": boolean(slot, "HotPluggable"),
    }
