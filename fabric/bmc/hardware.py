"""Chassis, slots, devices, functions, switches, ports and systems, typed from what a walk found."""

from __future__ import annotations

import re
from typing import Any, TypedDict

from fabric.bmc.crawl import Found
from fabric.bmc.dialects import ADD_BLOCK
from fabric.bmc.relations import Relations
from fabric.bmc.types import (
    Chassis,
    Device,
    DeviceKind,
    Drawer,
    DrawerMode,
    Function,
    Port,
    PortMetrics,
    Slot,
    Switch,
    System,
)
from fabric.bmc.values import (
    Body,
    boolean,
    integer,
    link,
    link_speed,
    links,
    mapping,
    number,
    objects,
    text,
    trailing_number,
)


class Listed(TypedDict):
    """What every listed resource has."""

    uri: str
    name: str
    id: str | int | float | None
    state: str
    health: str


def listed(uri: str, body: Body) -> Listed:
    """Return what every resource has; one without a name goes by its Id or its last segment."""
    own_id = body.get("Id", body.get("MemberId"))
    if isinstance(own_id, bool) or not isinstance(own_id, str | int | float):
        own_id = None
    return Listed(
        uri=uri,
        name=text(body, "Name") or (str(own_id) if own_id is not None else uri.rsplit("/", 1)[-1]),
        id=own_id,
        state=text(body, "Status", "State"),
        health=text(body, "Status", "Health"),
    )


def enclosure(found: Found) -> Listed:
    """Return what every resource has; its health is the worse of its own and that of all it contains."""
    told = [text(found.body, "Status", name) for name in ("Health", "HealthRollup")]
    worse = next((health for health in ("Critical", "Warning") if health in told), told[0] or told[1])
    return {**listed(found.uri, found.body), "health": worse}


def place(body: Body) -> str:
    """Return where a thing sits, in the words on the sticker."""
    return text(body, "Location", "PartLocation", "ServiceLabel") or text(body, "Location", "Info")


def ordinal(found: Found) -> int:
    """Return the 1-based position of a drawer or slot from its sticker, its Id or its name; 0 where nothing says."""
    slot = mapping(found.body, "Slot")
    # A name may end in a model's number (ConnectX-5): it counts only if it speaks of a place.
    name = text(found.body, "Name")
    place_name = name if re.search(r"\b(slot|drawer|bay|tray|sled)\b", name, re.IGNORECASE) else ""
    for label in (place(slot), place(found.body), text(found.body, "Id"), place_name):
        position = trailing_number(label)
        if position is not None:
            return position
    return integer(found.body, "Location", "PartLocation", "LocationOrdinalValue") or 0


def is_drawer(found: Found, with_slots: frozenset[str]) -> bool:
    """Tell whether a chassis is a drawer: by its type, or as a sled or module inside another that holds PCIe slots."""
    kind = text(found.body, "ChassisType")
    inside = bool(link(found.body, "Links", "ContainedBy"))
    return kind == "Drawer" or (kind in {"Sled", "Module"} and inside and found.uri in with_slots)


def read_chassis(found: Found) -> Chassis:
    """Return a Chassis that is no drawer."""
    return Chassis(**enclosure(found), **_chassis(found.body))


def read_drawer(found: Found) -> Drawer:
    """Return a drawer with its number and, where its maker tells it, its mode."""
    mode, allowed = drawer_mode(found.body)
    return Drawer(**enclosure(found), **_chassis(found.body), number=ordinal(found), mode=mode, allowed_modes=allowed)


def _chassis(body: Body) -> dict[str, Any]:
    return {
        "chassis_type": text(body, "ChassisType"),
        "manufacturer": text(body, "Manufacturer"),
        "model": text(body, "Model"),
        "serial_number": text(body, "SerialNumber"),
        "part_number": text(body, "PartNumber"),
        "sku": text(body, "SKU"),
        "uuid": text(body, "UUID"),
        "power_state": text(body, "PowerState"),
        "location": place(body),
        "contained_by": link(body, "Links", "ContainedBy"),
    }


def drawer_mode(body: Body) -> tuple[DrawerMode, tuple[DrawerMode, ...]]:
    """Return a drawer's mode and the modes it may be given, from whichever maker's Oem part has them."""
    for vendor in mapping(body, "Oem").values():
        if isinstance(vendor, dict) and "DrawerMode" in vendor:
            allowed = vendor.get("AllowableDrawerModes", vendor.get("DrawerMode@Redfish.AllowableValues"))
            names = allowed if isinstance(allowed, list) else []
            modes = (known_mode(name) for name in names)
            return known_mode(vendor["DrawerMode"]), tuple(mode for mode in modes if mode is not DrawerMode.UNKNOWN)
    return DrawerMode.UNKNOWN, ()


def known_mode(name: object) -> DrawerMode:
    """Return the mode of a name, UNKNOWN for any other value."""
    return next((mode for mode in DrawerMode if mode.value == name), DrawerMode.UNKNOWN)


def read_slot(found: Found, relations: Relations) -> Slot:
    """Return the slot that a PCIeDevice describes, with the device in it unless it is absent."""
    slot = mapping(found.body, "Slot")
    occupied = is_present(found)
    return Slot(
        uri=f"{found.uri}#/Slot",
        name=place(slot) or text(found.body, "Name") or found.uri.rsplit("/", 1)[-1],
        id=listed(found.uri, found.body)["id"],
        state=text(found.body, "Status", "State"),
        health=text(found.body, "Status", "Health"),
        chassis_uri=chassis_of(found),
        number=ordinal(found),
        **_slot(slot),
        occupied=occupied,
        device_uri=found.uri if occupied else "",
        port_uri=relations.port_of(found.uri) or relations.port_labelled(place(slot)),
    )


def read_old_slot(found: Found, index: int, slot: Body, relations: Relations) -> Slot:
    """Return one member of the deprecated PCIeSlots."""
    devices = links(slot, "Links", "PCIeDevice")
    label = place(slot)
    number_of = trailing_number(label)
    named = listed(f"{found.uri}#/Slots/{index}", slot)
    named["name"] = label or f"Slot {index + 1}"
    return Slot(
        **named,
        chassis_uri=found.uri.rsplit("/", 1)[0],
        number=index + 1 if number_of is None else number_of,
        **_slot(slot),
        occupied=bool(devices),
        device_uri=devices[0] if devices else "",
        port_uri=(relations.port_of(devices[0]) if devices else "") or relations.port_labelled(label),
    )


def _slot(slot: Body) -> dict[str, Any]:
    return {
        "slot_type": text(slot, "SlotType"),
        "pcie_type": text(slot, "PCIeType"),
        "lanes": integer(slot, "Lanes"),
        "hot_pluggable": boolean(slot, "HotPluggable"),
    }


def is_present(found: Found) -> bool:
    """Tell whether a PCIe device is there, and not only its slot."""
    return text(found.body, "Status", "State") != "Absent"


def chassis_of(found: Found) -> str:
    """Return the chassis of a PCIe device, from its links or its place."""
    linked = links(found.body, "Links", "Chassis")
    return linked[0] if linked else _holder(found.uri, "PCIeDevices")


def _holder(uri: str, collection: str) -> str:
    head, separator, _ = uri.rpartition(f"/{collection}/")
    return head if separator and "/Chassis/" in head else ""


def read_device(found: Found, relations: Relations, slot_uri: str) -> Device:
    """Return a PCIe device with what its functions, processors, drives and endpoints add."""
    body = found.body
    functions = relations.functions_of(found.uri)
    first = functions[0].body if functions else {}
    processors = relations.of_device(found.uri, "Processor")
    drives = relations.of_device(found.uri, "Drive")
    capacities = [size for drive in drives if (size := integer(drive.body, "CapacityBytes")) is not None]
    return Device(
        **listed(found.uri, body),
        kind=device_kind(relations, found.uri),
        chassis_uri=chassis_of(found),
        slot_uri=slot_uri,
        manufacturer=text(body, "Manufacturer"),
        model=text(body, "Model"),
        serial_number=text(body, "SerialNumber"),
        part_number=text(body, "PartNumber"),
        firmware_version=text(body, "FirmwareVersion"),
        vendor_id=text(first, "VendorId"),
        device_id=text(first, "DeviceId"),
        subsystem_vendor_id=text(first, "SubsystemVendorId"),
        subsystem_id=text(first, "SubsystemId"),
        class_code=text(first, "ClassCode"),
        pcie_type=text(body, "PCIeInterface", "PCIeType"),
        max_pcie_type=text(body, "PCIeInterface", "MaxPCIeType"),
        lanes_in_use=integer(body, "PCIeInterface", "LanesInUse"),
        max_lanes=integer(body, "PCIeInterface", "MaxLanes"),
        ready_to_remove=boolean(body, "ReadyToRemove"),
        function_uris=tuple(function.uri for function in functions),
        processor_uris=tuple(processor.uri for processor in processors),
        endpoint_uris=relations.endpoints_of(found.uri),
        port_uri=relations.port_of(found.uri),
        block_uri=relations.block_of(found.uri),
        capacity_bytes=sum(capacities) if capacities else None,
        memory_bytes=_memory_bytes(processors),
    )


def _memory_bytes(processors: list[Found]) -> int | None:
    sizes: list[int] = []
    for processor in processors:
        total = integer(processor.body, "MemorySummary", "TotalMemorySizeMiB")
        parts = [integer(part, "CapacityMiB") for part in objects(processor.body, "ProcessorMemory")]
        known = [part for part in parts if part is not None]
        if total is not None or known:
            sizes.append((total if total is not None else sum(known)) * 2**20)
    return sum(sizes) if sizes else None


def device_kind(relations: Relations, uri: str) -> DeviceKind:
    """Tell what a device is from its processors, its functions' classes and what is linked to it."""
    if any(text(found.body, "ProcessorType") == "GPU" for found in relations.of_device(uri, "Processor")):
        return DeviceKind.GPU
    functions = relations.functions_of(uri)
    classes = {class_and_subclass(function.body) for function in functions}
    names = {text(function.body, "DeviceClass") for function in functions}
    if any(major == 0x03 for major, _ in classes) or "DisplayController" in names:
        return DeviceKind.GPU
    if (0x01, 0x08) in classes or (not any(classes) and "MassStorageController" in names):
        return DeviceKind.NVME
    if any(text(found.body, "Protocol") == "NVMe" for found in relations.of_device(uri, "Drive")):
        return DeviceKind.NVME
    if any(major == 0x02 for major, _ in classes) or "NetworkController" in names:
        return DeviceKind.NIC
    return DeviceKind.NIC if relations.of_device(uri, "NetworkAdapter") else DeviceKind.CUSTOM


def class_and_subclass(function: Body) -> tuple[int, int]:
    """Return base class and subclass of a function's ClassCode (PCI Code and ID Assignment), (0, 0) if unreadable."""
    try:
        code = int(text(function, "ClassCode"), 16)
    except ValueError:
        return 0, 0
    return code >> 16 & 0xFF, code >> 8 & 0xFF


def read_function(found: Found, relations: Relations) -> Function:
    """Return a PCIe function."""
    body = found.body
    return Function(
        **listed(found.uri, body),
        device_uri=relations.device_of(found.uri),
        vendor_id=text(body, "VendorId"),
        device_id=text(body, "DeviceId"),
        subsystem_vendor_id=text(body, "SubsystemVendorId"),
        subsystem_id=text(body, "SubsystemId"),
        revision_id=text(body, "RevisionId"),
        class_code=text(body, "ClassCode"),
        device_class=text(body, "DeviceClass"),
        function_type=text(body, "FunctionType"),
    )


def read_switch(found: Found) -> Switch:
    """Return a switch chip."""
    body = found.body
    chassis = links(body, "Links", "Chassis")
    return Switch(
        **listed(found.uri, body),
        fabric_uri=found.uri.rpartition("/Switches/")[0],
        switch_type=text(body, "SwitchType"),
        manufacturer=text(body, "Manufacturer"),
        model=text(body, "Model"),
        serial_number=text(body, "SerialNumber"),
        part_number=text(body, "PartNumber"),
        firmware_version=text(body, "FirmwareVersion"),
        total_width=integer(body, "TotalSwitchWidth"),
        chassis_uri=chassis[0] if chassis else "",
    )


def read_port(found: Found, relations: Relations) -> Port:
    """Return a port; speeds that a service divided by 2^30 are put right."""
    body = found.body
    parent = found.uri.rpartition("/")[0].rpartition("/")[0]
    width, active = integer(body, "Width"), integer(body, "ActiveWidth")
    return Port(
        **listed(found.uri, body),
        parent_uri=parent,
        switch_uri=parent if relations.is_kind(parent, "Switch") else "",
        port_id=text(body, "PortId"),
        port_type=text(body, "PortType"),
        protocol=text(body, "PortProtocol"),
        link_state=text(body, "LinkState"),
        link_status=text(body, "LinkStatus"),
        width=width,
        active_width=active,
        configured_width=integer(body, "ConfiguredWidth"),
        speed_gbps=link_speed(number(body, "CurrentSpeedGbps"), (active, width)),
        max_speed_gbps=link_speed(number(body, "MaxSpeedGbps"), (width, active)),
        endpoint_uris=relations.endpoints_at(found.uri),
        device_uris=relations.devices_at(found.uri),
        metrics_uri=link(body, "Metrics"),
    )


def read_port_metrics(found: Found, relations: Relations) -> PortMetrics:
    """Return the counters of a port."""
    body = found.body
    errors = {
        name: count for name in mapping(body, "PCIeErrors") if (count := integer(body, "PCIeErrors", name)) is not None
    }
    return PortMetrics(
        **listed(found.uri, body),
        port_uri=relations.port_of_metrics(found.uri),
        rx_bytes=integer(body, "RXBytes"),
        tx_bytes=integer(body, "TXBytes"),
        errors=errors,
        reset_target=text(body, "Actions", "#PortMetrics.ResetMetrics", "target"),
    )


def read_system(found: Found, relations: Relations) -> System:
    """Return a ComputerSystem with the GPUs that are its own."""
    body = found.body
    return System(
        **listed(found.uri, body),
        system_type=text(body, "SystemType"),
        manufacturer=text(body, "Manufacturer"),
        model=text(body, "Model"),
        serial_number=text(body, "SerialNumber"),
        uuid=text(body, "UUID"),
        host_name=text(body, "HostName"),
        power_state=text(body, "PowerState"),
        processor_summary=text(body, "ProcessorSummary", "Model"),
        processor_count=integer(body, "ProcessorSummary", "Count"),
        memory_gib=number(body, "MemorySummary", "TotalSystemMemoryGiB"),
        local_gpu_count=relations.gpus_below(found.uri),
        bios_version=text(body, "BiosVersion"),
        endpoint_uris=links(body, "Links", "Endpoints"),
        block_uris=links(body, "Links", "ResourceBlocks"),
        takes_blocks=bool(text(mapping(body, "Actions"), ADD_BLOCK, "target")),
    )
