"""Devices in vendors' own resources, of services that describe them nowhere else; one reader for each type of resource.

docs/recipes.md has the recipe for another reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fabric.bmc.crawl import CrawledResource
from fabric.bmc.hardware import common_properties, is_present
from fabric.bmc.types import DeviceKind, RedfishDevice
from fabric.bmc.values import JsonObject, integer, links, named_texts, text

# A reader returns the device that a resource describes, None where it describes none; it may follow links.
OemReader = Callable[[CrawledResource, Mapping[str, CrawledResource]], RedfishDevice | None]

# HpeServerDevice of iLO 5 and 6, by its DeviceType; risers, switches and storage controllers are no devices here.
HPE_KINDS = {
    "GPU": DeviceKind.GPU,
    "Direct Attached NVMe Device": DeviceKind.NVME,
    "LOM/NIC": DeviceKind.NIC,
    "Converged Network Adapter": DeviceKind.NIC,
}


def read_hpe_device(found: CrawledResource, resources: Mapping[str, CrawledResource]) -> RedfishDevice | None:
    """Return the device of an HpeServerDevice; its ids are those of the first PCI function that it links."""
    body = found.body
    kind = HPE_KINDS.get(text(body, "DeviceType"))
    if kind is None or not is_present(found):
        return None
    functions = [resources[uri].body for uri in links(body, "DeviceInstances") if uri in resources]
    return RedfishDevice(
        **common_properties(found.uri, body),
        kind=kind,
        chassis_uri=found.uri.rpartition("/Devices/")[0],
        model=text(body, "Name"),
        **named_texts(body, "Manufacturer", "SerialNumber", "PartNumber"),
        firmware_version=text(body, "FirmwareVersion", "Current", "VersionString"),
        **_hpe_ids(functions[0] if functions else {}),
    )


def _hpe_ids(function: JsonObject) -> dict[str, Any]:
    """Return the ids of an HpeServerPciDevice, which are decimal there, as PCIeFunction has them."""
    ids = {
        "vendor_id": "VendorID",
        "device_id": "DeviceID",
        "subsystem_vendor_id": "SubsystemVendorID",
        "subsystem_id": "SubsystemDeviceID",
    }
    found = {field: f"0x{number:04X}" for field, name in ids.items() if (number := integer(function, name)) is not None}
    base, subclass = integer(function, "ClassCode"), integer(function, "SubclassCode")
    return found | ({"class_code": f"0x{base:02X}{subclass or 0:02X}00"} if base is not None else {})


OEM_READERS: dict[str, OemReader] = {"HpeServerDevice": read_hpe_device}


def oem_devices(resources: Mapping[str, CrawledResource]) -> Iterator[RedfishDevice]:
    """Yield the devices of vendors' own resources that no PCIeDevice describes.

    Serial numbers tell: one without is taken only of a service that has no PCIeDevice at all.
    """
    standard = [each for each in resources.values() if each.kind == "PCIeDevice" and is_present(each)]
    known = {text(each.body, "SerialNumber") for each in standard}
    for each in resources.values():
        device = OEM_READERS[each.kind](each, resources) if each.kind in OEM_READERS else None
        if device is not None and (device.serial_number not in known if device.serial_number else not standard):
            yield device
