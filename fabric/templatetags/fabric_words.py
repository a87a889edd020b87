"""Labels for values of Redfish."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import template

from fabric.operations.rules import port_type_label

register = template.Library()
register.filter("port_words", port_type_label)
LINKS = {
    "LinkUp": "up",
    "LinkDown": "down",
    "NoLink": "no link",
    "Training": "training",
    "Starting": "starting",
}
SLOTS = {
    "FullLength": "full length",
    "HalfLength": "half length",
    "LowProfile": "low profile",
    "Mini": "mini",
    "M2": "M.2",
    "U2": "U.2",
    "OCP3Small": "OCP 3.0, small",
    "OCP3Large": "OCP 3.0, large",
    "OEM": "vendor-specific",
}


@register.filter
def link_words(status: str) -> str:
    """Return a port's LinkStatus in words."""
    return LINKS.get(status, status) or "not given"


@register.filter
def total(counts: dict[str, int]) -> int:
    """Return the sum of counters."""
    return sum(counts.values())


@register.filter
def generation(pcie_type: str) -> str:
    """Return 'Gen3' as 'Gen 3'."""
    return pcie_type.replace("Gen", "Gen ")


@register.filter
def slot_words(slot_type: str) -> str:
    """Return a slot's SlotType in words."""
    return SLOTS.get(slot_type, slot_type) or "not given"


@register.filter
def of(values: Mapping[Any, Any], key: Any) -> Any:
    """Return a value by its key, None where there is none."""
    return values.get(key)
