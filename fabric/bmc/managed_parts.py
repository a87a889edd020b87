"""Parts as maintenance sees them: version of the firmware, location LED, resets, from the resources of a walk."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

import msgspec

from fabric.bmc.crawl import CrawledResource
from fabric.bmc.hardware import common_properties, is_lit, is_present
from fabric.bmc.relations import ResourceRelations
from fabric.bmc.types import RedfishManagedPart
from fabric.bmc.update_service import ManagedPartKind
from fabric.bmc.values import JsonObject, boolean, links, mapping, named_texts, objects, text, texts

KINDS = {
    "Manager": ManagedPartKind.BMC, "Chassis": ManagedPartKind.CHASSIS, "Switch": ManagedPartKind.SWITCH,
    "PCIeDevice": ManagedPartKind.DEVICE, "Drive": ManagedPartKind.DRIVE, "ComputerSystem": ManagedPartKind.HOST,
}  # fmt: skip
# What a device consists of besides its PCIeDevice: any of them may have its version, LED or reset.
DEVICE_PARTS = ("Processor", "Drive", "NetworkAdapter")
VERSIONS = ("FirmwareVersion", "BiosVersion", "Version", "Revision")


def reset_action(body: JsonObject, kind: str) -> JsonObject:
    """Return the reset that a resource of this type offers, {} for none."""
    return mapping(body, "Actions", f"#{kind}.Reset")


def read_managed_parts(
    found: Mapping[str, CrawledResource], relations: ResourceRelations, drawers: Collection[str]
) -> Iterator[RedfishManagedPart]:
    """Yield the parts that have a version, a location LED or a reset, then software that belongs to none of them."""
    parts = {each.uri: _part(each, relations, drawers) for each in found.values() if _is_part(each, relations)}
    software = {each.uri: each for each in found.values() if each.kind == "SoftwareInventory"}
    by_part: dict[str, list[CrawledResource]] = defaultdict(list)
    for each in software.values():
        for uri in links(each.body, "RelatedItem"):
            owner = uri if uri in parts else relations.device_of(uri)
            if owner in parts:
                by_part[owner].append(each)
    for uri, candidates in by_part.items():
        # A part may have several images: that of the version which it runs.
        version = parts[uri].version
        chosen = next((one for one in candidates if text(one.body, "Version") == version), candidates[0])
        software.pop(chosen.uri, None)
        parts[uri] = msgspec.structs.replace(
            parts[uri],
            version=version or text(chosen.body, "Version"),
            software_uri=chosen.uri,
            is_updateable=boolean(chosen.body, "Updateable") is True,
        )
    yield from (one for one in parts.values() if one.version or one.led_uri or one.reset_uri)
    yield from (_software(each) for each in software.values() if text(each.body, "Version"))


def _is_part(each: CrawledResource, relations: ResourceRelations) -> bool:
    if each.kind not in KINDS or not (is_present(each) or each.kind == "PCIeDevice"):
        return False
    return each.kind != "Drive" or not relations.device_of(each.uri)


def _part(each: CrawledResource, relations: ResourceRelations, drawers: Collection[str]) -> RedfishManagedPart:
    is_device = each.kind == "PCIeDevice"
    parts = [each, *(part for kind in DEVICE_PARTS if is_device for part in relations.of_device(each.uri, kind))]
    led = next((part for part in parts if is_lit(part.body) is not None), None)
    reset = next((part for part in parts if reset_action(part.body, part.kind)), None)
    action: JsonObject = reset_action(reset.body, reset.kind) if reset is not None else {}
    chassis = links(each.body, "Links", "Chassis")
    return RedfishManagedPart(
        **common_properties(each.uri, each.body),
        kind=_kind(each, drawers),
        **named_texts(each.body, "Manufacturer", "Model", "SerialNumber", "PowerState"),
        version=next((version for part in parts if (version := _version(part.body))), ""),
        led_uri=led.uri if led is not None else "",
        is_lit=is_lit(led.body) if led is not None else None,
        reset_uri=reset.uri if reset is not None else "",
        reset_types=texts(action, "ResetType@Redfish.AllowableValues"),
        chassis_uri=each.uri if each.kind == "Chassis" else next(iter(chassis), ""),
    )


def _kind(each: CrawledResource, drawers: Collection[str]) -> ManagedPartKind:
    if each.uri in drawers:
        return ManagedPartKind.DRAWER
    return KINDS[each.kind] if is_present(each) else ManagedPartKind.SLOT


def _version(body: JsonObject) -> str:
    packages = (text(one, "FirmwarePackageVersion") for one in objects(body, "Controllers"))
    return next((version for name in VERSIONS if (version := text(body, name))), next(filter(None, packages), ""))


def _software(each: CrawledResource) -> RedfishManagedPart:
    return RedfishManagedPart(
        **common_properties(each.uri, each.body),
        kind=ManagedPartKind.SOFTWARE,
        manufacturer=text(each.body, "Manufacturer"),
        model=text(each.body, "SoftwareId"),
        version=text(each.body, "Version"),
        software_uri=each.uri,
        is_updateable=boolean(each.body, "Updateable") is True,
    )
