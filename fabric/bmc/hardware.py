"""Chassis, slots, devices, functions, switches, ports and systems, typed from the resources of a walk."""

from __future__ import annotations

import re
from typing import Any

from fabric.bmc.crawl import CrawledResource
from fabric.bmc.relations import ResourceRelations
from fabric.bmc.types import (
    DeviceKind,
    DrawerMode,
    RedfishChassis,
    RedfishDevice,
    RedfishDrawer,
    RedfishFunction,
    RedfishPort,
    RedfishPortMetrics,
    RedfishSwitch,
    RedfishSystem,
)
from fabric.bmc.values import (
    JsonObject,
    boolean,
    bytes_of,
    corrected_link_speed,
    integer,
    link,
    links,
    mapping,
    named_texts,
    number,
    objects,
    text,
    trailing_number,
    value_at,
)

ADD_BLOCK = "#ComputerSystem.AddResourceBlock"
OLDER_LIT = {"Lit": True, "Blinking": True, "Off": False}  # by IndicatorLED


def common_properties(uri: str, body: JsonObject) -> dict[str, Any]:
    """Return the common properties; a resource without a name gets its Id or its last path segment."""
    own_id = body.get("Id", body.get("MemberId"))
    if isinstance(own_id, bool) or not isinstance(own_id, str | int | float):
        own_id = None
    return {
        "uri": uri,
        "name": text(body, "Name") or (str(own_id) if own_id is not None else uri.rsplit("/", 1)[-1]),
        "id": own_id,
        "state": text(body, "Status", "State"),
        "health": text(body, "Status", "Health"),
    }


def chassis_properties(found: CrawledResource) -> dict[str, Any]:
    """Return the common properties; the health is the worse of the chassis' own and its rollup."""
    states = [text(found.body, "Status", name) for name in ("Health", "HealthRollup")]
    worse = next((health for health in ("Critical", "Warning") if health in states), states[0] or states[1])
    return {**common_properties(found.uri, found.body), "health": worse}


def physical_location(body: JsonObject) -> str:
    """Return the location of a part, as labelled on the hardware."""
    return text(body, "Location", "PartLocation", "ServiceLabel") or text(body, "Location", "Info")


def position_number(found: CrawledResource) -> int:
    """Return the 1-based position of a drawer or slot from its label, its Id or its name; 0 if unknown."""
    slot = mapping(found.body, "Slot")
    # A name may end in a model's number (ConnectX-5): it counts only if the name refers to a location.
    name = text(found.body, "Name")
    place_name = name if re.search(r"\b(slot|drawer|bay|tray|sled)\b", name, re.IGNORECASE) else ""
    for label in (physical_location(slot), physical_location(found.body), text(found.body, "Id"), place_name):
        position = trailing_number(label)
        if position is not None:
            return position
    return integer(found.body, "Location", "PartLocation", "LocationOrdinalValue") or 0


def is_drawer(found: CrawledResource, with_slots: frozenset[str]) -> bool:
    """Return whether a chassis is a drawer: by its type, or as a sled or module inside another that has PCIe slots."""
    kind = text(found.body, "ChassisType")
    inside = bool(link(found.body, "Links", "ContainedBy"))
    return kind == "Drawer" or (kind in {"Sled", "Module"} and inside and found.uri in with_slots)


def read_chassis(found: CrawledResource) -> RedfishChassis:
    """Return a Chassis that is not a drawer."""
    return RedfishChassis(**chassis_properties(found), **_chassis(found.body))


def read_drawer(found: CrawledResource) -> RedfishDrawer:
    """Return a drawer with its number and, where its vendor reports it, its mode."""
    mode, allowed = drawer_mode(found.body)
    return RedfishDrawer(
        **chassis_properties(found),
        **_chassis(found.body),
        number=position_number(found),
        mode=mode,
        allowed_modes=allowed,
    )


def is_lit(body: JsonObject) -> bool | None:
    """Return whether the location LED of a resource is lit; None where its BMC reports none."""
    active = boolean(body, "LocationIndicatorActive")
    return OLDER_LIT.get(text(body, "IndicatorLED")) if active is None else active


def _chassis(body: JsonObject) -> dict[str, Any]:
    return {
        **named_texts(body, "ChassisType", "Manufacturer", "Model", "SerialNumber", "PartNumber", "SKU", "UUID"),
        "power_state": text(body, "PowerState"),
        "location": physical_location(body),
        "contained_by": link(body, "Links", "ContainedBy"),
    }


def drawer_mode(body: JsonObject) -> tuple[DrawerMode, tuple[DrawerMode, ...]]:
    """Return a drawer's mode and its allowed modes, from any vendor's Oem property."""
    for vendor in mapping(body, "Oem").values():
        if isinstance(vendor, dict) and "DrawerMode" in vendor:
            allowed = vendor.get("AllowableDrawerModes", vendor.get("DrawerMode@Redfish.AllowableValues"))
            names = allowed if isinstance(allowed, list) else []
            modes = (parse_drawer_mode(name) for name in names)
            return parse_drawer_mode(vendor["DrawerMode"]), tuple(
                mode for mode in modes if mode is not DrawerMode.UNKNOWN
            )
    return DrawerMode.UNKNOWN, ()


def parse_drawer_mode(name: object) -> DrawerMode:
    """Return the mode of a name, UNKNOWN for any other value."""
    return next((mode for mode in DrawerMode if mode.value == name), DrawerMode.UNKNOWN)


def is_present(found: CrawledResource) -> bool:
    """Return whether a PCIe device is present, and not only its slot."""
    return text(found.body, "Status", "State") != "Absent"


def chassis_of(found: CrawledResource) -> str:
    """Return the chassis of a PCIe device, from its links or its path."""
    if linked := links(found.body, "Links", "Chassis"):
        return linked[0]
    head, separator, _ = found.uri.rpartition("/PCIeDevices/")
    return head if separator and "/Chassis/" in head else ""


def read_device(found: CrawledResource, relations: ResourceRelations, slot_uri: str) -> RedfishDevice:
    """Return a PCIe device with the properties of its functions, processors, drives and endpoints."""
    body = found.body
    functions = relations.functions_of(found.uri)
    first = functions[0].body if functions else {}
    processors = relations.of_device(found.uri, "Processor")
    drives = relations.of_device(found.uri, "Drive")
    capacities = [size for drive in drives if (size := integer(drive.body, "CapacityBytes")) is not None]
    return RedfishDevice(
        **common_properties(found.uri, body),
        kind=device_kind(relations, found.uri),
        chassis_uri=chassis_of(found),
        slot_uri=slot_uri,
        **named_texts(body, "Manufacturer", "Model", "SerialNumber", "PartNumber", "FirmwareVersion"),
        **named_texts(first, "VendorId", "DeviceId", "SubsystemVendorId", "SubsystemId", "ClassCode"),
        **named_texts(mapping(body, "PCIeInterface"), "PCIeType", "MaxPCIeType"),
        lanes_in_use=integer(body, "PCIeInterface", "LanesInUse"),
        max_lanes=integer(body, "PCIeInterface", "MaxLanes"),
        ready_to_remove=boolean(body, "ReadyToRemove"),
        function_uris=tuple(function.uri for function in functions),
        processor_uris=tuple(processor.uri for processor in processors),
        endpoint_uris=relations.endpoints_of[found.uri],
        port_uri=relations.port_of(found.uri),
        block_uri=next(iter(relations.blocks_of[found.uri]), ""),
        capacity_bytes=sum(capacities) if capacities else None,
        memory_bytes=_memory_bytes(processors),
    )


def _memory_bytes(processors: list[CrawledResource]) -> int | None:
    sizes: list[int] = []
    for processor in processors:
        total = integer(processor.body, "MemorySummary", "TotalMemorySizeMiB")
        parts = [integer(part, "CapacityMiB") for part in objects(processor.body, "ProcessorMemory")]
        known = [part for part in parts if part is not None]
        if total is not None or known:
            sizes.append(total if total is not None else sum(known))
    return bytes_of(sum(sizes)) if sizes else None


def device_kind(relations: ResourceRelations, uri: str) -> DeviceKind:
    """Return the kind of a device: from the resources that represent it, else from its functions' classes.

    Some services have the same class code, a placeholder, on every function.
    """
    processors = {text(found.body, "ProcessorType") for found in relations.of_device(uri, "Processor")}
    if "GPU" in processors:
        return DeviceKind.GPU
    if any(text(found.body, "Protocol") == "NVMe" for found in relations.of_device(uri, "Drive")):
        return DeviceKind.NVME
    if relations.of_device(uri, "NetworkAdapter"):
        return DeviceKind.NIC
    if any(processors) or relations.of_device(uri, "Memory"):
        return DeviceKind.CUSTOM
    functions = relations.functions_of(uri)
    classes = {class_and_subclass(function.body) for function in functions}
    names = {text(function.body, "DeviceClass") for function in functions}
    if any(major == 0x03 for major, _ in classes) or "DisplayController" in names:
        return DeviceKind.GPU
    if (0x01, 0x08) in classes or (not any(classes) and "MassStorageController" in names):
        return DeviceKind.NVME
    is_nic = any(major == 0x02 for major, _ in classes) or "NetworkController" in names
    return DeviceKind.NIC if is_nic else DeviceKind.CUSTOM


def class_and_subclass(function: JsonObject) -> tuple[int, int]:
    """Return base class and subclass of a function's ClassCode (PCI Code and ID Assignment), (0, 0) if unreadable."""
    try:
        code = int(text(function, "ClassCode"), 16)
    except ValueError:
        return 0, 0
    return code >> 16 & 0xFF, code >> 8 & 0xFF


def read_function(found: CrawledResource, relations: ResourceRelations) -> RedfishFunction:
    """Return a PCIe function."""
    body = found.body
    return RedfishFunction(
        **common_properties(found.uri, body),
        device_uri=relations.device_of(found.uri),
        **named_texts(body, "VendorId", "DeviceId", "SubsystemVendorId", "SubsystemId", "RevisionId", "ClassCode"),
        **named_texts(body, "DeviceClass", "FunctionType"),
    )


def read_switch(found: CrawledResource) -> RedfishSwitch:
    """Return a switch chip."""
    body = found.body
    chassis = links(body, "Links", "Chassis")
    return RedfishSwitch(
        **common_properties(found.uri, body),
        fabric_uri=found.uri.rpartition("/Switches/")[0],
        **named_texts(body, "SwitchType", "Manufacturer", "Model", "SerialNumber", "PartNumber", "FirmwareVersion"),
        total_width=integer(body, "TotalSwitchWidth"),
        chassis_uri=chassis[0] if chassis else "",
    )


def read_port(found: CrawledResource, relations: ResourceRelations) -> RedfishPort:
    """Return a port; speeds that a service divided by 2^30 are corrected."""
    body = found.body
    parent = found.uri.rpartition("/")[0].rpartition("/")[0]
    width, active = integer(body, "Width"), integer(body, "ActiveWidth")
    return RedfishPort(
        **common_properties(found.uri, body),
        parent_uri=parent,
        switch_uri=parent if relations.is_kind(parent, "Switch") else "",
        **named_texts(body, "PortId", "PortType", "LinkState", "LinkStatus"),
        protocol=text(body, "PortProtocol"),
        width=width,
        active_width=active,
        configured_width=integer(body, "ConfiguredWidth"),
        speed_gbps=corrected_link_speed(number(body, "CurrentSpeedGbps"), (active, width)),
        max_speed_gbps=corrected_link_speed(number(body, "MaxSpeedGbps"), (width, active)),
        endpoint_uris=relations.endpoints_at[found.uri],
        device_uris=relations.devices_at[found.uri],
        metrics_uri=link(body, "Metrics"),
        far_end=relations.far_end_of(found),
    )


def read_port_metrics(found: CrawledResource, relations: ResourceRelations) -> RedfishPortMetrics:
    """Return the counters of a port."""
    body = found.body
    errors = {
        name: count for name in mapping(body, "PCIeErrors") if (count := integer(body, "PCIeErrors", name)) is not None
    }
    return RedfishPortMetrics(
        **common_properties(found.uri, body),
        port_uri=relations.port_of_metrics(found.uri),
        rx_bytes=integer(body, "RXBytes"),
        tx_bytes=integer(body, "TXBytes"),
        errors=errors,
        reset_target=text(body, "Actions", "#PortMetrics.ResetMetrics", "target"),
    )


def lists_blocks(system: JsonObject) -> bool:
    """Return whether a system has a list of resource blocks, though it may be empty."""
    return isinstance(value_at(system, "Links", "ResourceBlocks"), list)


def read_system(found: CrawledResource, relations: ResourceRelations) -> RedfishSystem:
    """Return a ComputerSystem with the number of its local GPUs."""
    body = found.body
    return RedfishSystem(
        **common_properties(found.uri, body),
        **named_texts(body, "SystemType", "Manufacturer", "Model", "SerialNumber", "UUID", "HostName", "PowerState"),
        processor_summary=text(body, "ProcessorSummary", "Model"),
        processor_count=integer(body, "ProcessorSummary", "Count"),
        memory_gib=number(body, "MemorySummary", "TotalSystemMemoryGiB"),
        local_gpu_count=relations.gpus_below[found.uri],
        bios_version=text(body, "BiosVersion"),
        endpoint_uris=links(body, "Links", "Endpoints"),
        block_uris=links(body, "Links", "ResourceBlocks"),
        lists_blocks=lists_blocks(body),
        takes_blocks=bool(text(mapping(body, "Actions"), ADD_BLOCK, "target")),
    )
