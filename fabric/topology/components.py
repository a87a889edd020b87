"""The components of a chassis or a device, as its newest walk found them, for pages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from core.language import _, _n, gettext_noop
from fabric.bmc.types import ComponentKind
from fabric.inventory.models import Device, Walk
from fabric.topology.problems import BAD_HEALTH

MAX_SHOWN = 100  # of a kind
LABELS = {
    ComponentKind.POWER_SUPPLY: gettext_noop("Power supplies"),
    ComponentKind.BATTERY: gettext_noop("Batteries"),
    ComponentKind.PROCESSOR: gettext_noop("Processors"),
    ComponentKind.MEMORY: gettext_noop("Memory"),
    ComponentKind.MEMORY_CHUNK: gettext_noop("Memory chunks"),
    ComponentKind.DRIVE: gettext_noop("Drives"),
    ComponentKind.CABLE: gettext_noop("Cables"),
}


class ComponentGroup:
    """The components of one kind, of which `unhealthy` (a number) are critical or warn."""

    def __init__(self, kind: ComponentKind, found: Iterable[dict[str, Any]]) -> None:
        self.kind, self.label = kind, _(LABELS[kind])
        # The unhealthy first: of thousands, only some are shown.
        rows = sorted(found, key=lambda one: one["health"] not in BAD_HEALTH)
        self.count = len(rows)
        self.rows = [
            {**one, "facts": component_facts(one), "model": _model(one), "is_absent": one["state"] == "Absent"}
            for one in rows[:MAX_SHOWN]
        ]
        self.left_out = self.count - len(self.rows)
        self.unhealthy = sum(one["health"] in BAD_HEALTH for one in rows)


def chassis_components(walked: Iterable[dict[str, Any]]) -> list[ComponentGroup]:
    """Return the components that a walk found and that belong to no PCIe device."""
    return _groups(one for one in walked if not one["device_uri"])


def device_components(device: Device) -> list[ComponentGroup]:
    """Return the parts of a device; not the one resource that only repeats it, such as its processor."""
    walked = Walk.objects.filter(chassis=device.chassis_id).values_list("found__components", flat=True).first()
    found = [one for one in walked or () if one["device_uri"] == device.uri]
    return _groups(found) if len(found) > 1 else []


def _groups(found: Iterable[dict[str, Any]]) -> list[ComponentGroup]:
    by_kind: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for one in found:
        by_kind[one["kind"]].append(one)
    return [ComponentGroup(kind, by_kind[kind]) for kind in LABELS if kind in by_kind]


def _model(one: dict[str, Any]) -> str:
    """Return manufacturer and model; some models begin with their manufacturer."""
    maker, model = one["manufacturer"], one["model"]
    return model if model.startswith(maker) else f"{maker} {model}".strip()


def component_facts(one: dict[str, Any]) -> str:
    """Return what a component is: 'DDR4, 32 GiB, 3200 MHz'."""
    size, is_memory = one["capacity_bytes"], one["kind"] in {ComponentKind.MEMORY, ComponentKind.MEMORY_CHUNK}
    facts = [one["variety"]]
    if size is not None:
        facts.append(
            f"{size / 2**30:g} GiB"
            if is_memory
            else f"{size / 1e12:.3g} TB"
            if size >= 1e12
            else f"{size / 1e9:.0f} GB"
        )
    if (watts := one["capacity_watts"]) is not None:
        facts.append(f"{watts:g} W")
    if (cores := one["cores"]) is not None:
        facts.append(_n("{count} core", "{count} cores", cores))
    if (mhz := one["speed_mhz"]) is not None:
        facts.append(f"{mhz:g} MHz")
    if (gbps := one["speed_gbps"]) is not None:
        facts.append(f"{gbps:g} Gb/s")
    facts += [uri.rsplit("/", 1)[-1] for uri in one["end_uris"]]
    return ", ".join(fact for fact in facts if fact)
