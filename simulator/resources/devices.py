"""Slots and their contents: PCIe devices, functions, drives, network adapters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from simulator.catalog import DeviceModel, DeviceModelKind
from simulator.errors import Body, RedfishError, not_found, property_not_writable, property_unknown, property_value
from simulator.resources.chassis import drawer_uri, gpu_uri, processor_uri, slot_uri, slots_of_kind
from simulator.service import Falcon
from simulator.state import SLOT_GENERATION, SLOT_LANES, SimulatedDevice, SimulatedDrawer, SimulatedSlot
from simulator.tree import (
    AuthenticatedRequest,
    Handler,
    Reply,
    ResourceNode,
    WriteMethod,
    add_references,
    collection,
    link,
)

V1 = "/redfish/v1"
_CLASSES = {
    DeviceModelKind.GPU: ("DisplayController", "GPU"),
    DeviceModelKind.DRIVE: ("MassStorageController", "NVMe drive"),
    DeviceModelKind.NETWORK: ("NetworkController", "Network adapter"),
    DeviceModelKind.CUSTOM: ("ProcessingAccelerators", "Accelerator card"),
}


def typed_uri(slot: SimulatedSlot, model: DeviceModel) -> str | None:
    """Return the URI of a device's resource other than PCIeDevice, or None for a custom card."""
    base = drawer_uri(slot.drawer)
    if model.kind is DeviceModelKind.GPU:
        return gpu_uri(slot)
    if model.kind is DeviceModelKind.DRIVE:
        return f"{base}/Drives/nvme{slot.number}"
    if model.kind is DeviceModelKind.NETWORK:
        return f"{base}/NetworkAdapters/nic{slot.number}"
    return None


def register(falcon: Falcon) -> None:
    """Add the slots of each drawer and the collections of their contents."""
    for drawer in falcon.state.drawers.values():
        _register_drawer(falcon, drawer)


def _register_drawer(falcon: Falcon, drawer: SimulatedDrawer) -> None:
    tree, base = falcon.tree, drawer_uri(drawer.number)
    uris = [slot_uri(slot) for slot in drawer.slots.values()]
    tree.resource(f"{base}/PCIeDevices", lambda: collection(f"{base}/PCIeDevices", "PCIeDevice", "PCIe Slots", uris))
    for slot in drawer.slots.values():
        uri = slot_uri(slot)
        tree.add(
            ResourceNode(
                uri,
                partial(_pcie_device, slot),
                {"PATCH": WriteMethod(_identify(slot), ("ConfigureComponents",))},
            )
        )
        tree.members(uri, partial(_functions_node, slot))
        tree.members(f"{uri}/PCIeFunctions", partial(_function_node, slot))
    for name, kind, schema in (
        ("Drives", DeviceModelKind.DRIVE, "Drive"),
        ("NetworkAdapters", DeviceModelKind.NETWORK, "NetworkAdapter"),
    ):
        where = f"{base}/{name}"
        tree.resource(where, partial(_typed_collection, drawer, kind, schema, where))
        tree.members(where, partial(_typed_node, drawer, kind))


def _typed_collection(drawer: SimulatedDrawer, kind: DeviceModelKind, schema: str, where: str) -> Body:
    members = [
        uri for slot in slots_of_kind(drawer, kind) if (uri := typed_uri(slot, present_device(slot).model)) is not None
    ]
    return collection(where, schema, f"{schema}s", members)


def _typed_node(drawer: SimulatedDrawer, kind: DeviceModelKind, last: str) -> ResourceNode | None:
    render = _drive if kind is DeviceModelKind.DRIVE else _network_adapter
    for slot in slots_of_kind(drawer, kind):
        uri = typed_uri(slot, present_device(slot).model)
        if uri is not None and uri.endswith(f"/{last}"):
            return ResourceNode(uri, partial(_render_present, render, slot))
    return None


def _render_present(render: Callable[[SimulatedSlot, SimulatedDevice], Body], slot: SimulatedSlot) -> Body:
    return render(slot, present_device(slot))


def present_device(slot: SimulatedSlot) -> SimulatedDevice:
    """Return the device in a slot; refuses with 404 where it was removed."""
    device = slot.present
    if device is None:
        raise not_found(slot_uri(slot))
    return device


def _slot_part(slot: SimulatedSlot) -> Body:
    return {
        "Lanes": SLOT_LANES,
        "PCIeType": SLOT_GENERATION,
        "SlotType": "FullLength",
        "HotPluggable": True,
        "LaneSplitting": "None",
        "Location": {
            "PartLocation": {
                "ServiceLabel": f"Drawer {slot.drawer} slot {slot.number}",
                "LocationType": "Slot",
                "LocationOrdinalValue": slot.number,
            }
        },
    }


def _pcie_device(slot: SimulatedSlot) -> Body:
    uri, device = slot_uri(slot), slot.present
    body: Body = {
        "@odata.id": uri,
        "@odata.type": "#PCIeDevice.v1_21_0.PCIeDevice",
        "Id": f"slot{slot.number}",
        "Name": f"Drawer {slot.drawer} slot {slot.number}",
        "LocationIndicatorActive": slot.identify,
        "Slot": _slot_part(slot),
    }
    if device is None:
        body["Status"] = {"State": "Absent"}
        body["Links"] = add_references({}, Chassis=[drawer_uri(slot.drawer)])
        return body
    model = device.model
    up = slot.link.status == "LinkUp"
    body.update(
        {
            "Description": _CLASSES[model.kind][1],
            "DeviceType": "SingleFunction",
            "Manufacturer": model.manufacturer,
            "Model": model.model,
            "PartNumber": model.part_number,
            "SerialNumber": device.serial,
            "UUID": device.uuid,
            "FirmwareVersion": model.firmware,
            "ReadyToRemove": slot.attached_to is None,
            "Status": {"State": "Enabled", "Health": slot_health(slot)},
            "PCIeInterface": {
                "PCIeType": slot.link.generation if up else None,
                "MaxPCIeType": model.generation,
                "LanesInUse": slot.link.lanes if up else None,
                "MaxLanes": model.lanes,
            },
            "PCIeFunctions": link(f"{uri}/PCIeFunctions"),
        }
    )
    processor = processor_uri(slot, model)
    links = add_references(
        {}, Chassis=[drawer_uri(slot.drawer)], Processors=[processor] if processor is not None else []
    )
    links["Switch"] = link(f"{V1}/Fabrics/PCIe/Switches/drawer{slot.drawer}_switch")
    body["Links"] = links
    return body


def slot_health(slot: SimulatedSlot) -> str:
    """Return the health of the device in a slot."""
    if slot.band == "critical":
        return "Critical"
    return "Warning" if slot.band == "caution" or slot.link.degraded else "OK"


def _identify(slot: SimulatedSlot) -> Handler:
    async def change(call: AuthenticatedRequest) -> Reply:
        if not call.body:
            raise RedfishError(400, "NoOperation", "The request body names no property to change.")
        known = _pcie_device(slot)
        for key, value in call.body.items():
            if key != "LocationIndicatorActive":
                raise property_not_writable(key) if key in known else property_unknown(key)
            if not isinstance(value, bool):
                raise property_value(key, value)
        slot.identify = call.body["LocationIndicatorActive"]
        return Reply(200, _pcie_device(slot))

    return change


def _functions_node(slot: SimulatedSlot, last: str) -> ResourceNode | None:
    if last != "PCIeFunctions" or slot.present is None:
        return None
    uri = f"{slot_uri(slot)}/PCIeFunctions"
    return ResourceNode(uri, lambda: collection(uri, "PCIeFunction", "PCIe Functions", [f"{uri}/0"]))


def _function_node(slot: SimulatedSlot, last: str) -> ResourceNode | None:
    if last != "0" or slot.present is None:
        return None
    return ResourceNode(f"{slot_uri(slot)}/PCIeFunctions/0", lambda: _function(slot, present_device(slot)))


def _function(slot: SimulatedSlot, device: SimulatedDevice) -> Body:
    model, uri = device.model, slot_uri(slot)
    links: Body = {"PCIeDevice": link(uri)}
    twin = typed_uri(slot, model)
    processor = processor_uri(slot, model)
    if processor is not None:
        links["Processor"] = link(processor)
    elif model.kind is DeviceModelKind.DRIVE and twin is not None:
        add_references(links, Drives=[twin])
    return {
        "@odata.id": f"{uri}/PCIeFunctions/0",
        "@odata.type": "#PCIeFunction.v1_7_0.PCIeFunction",
        "Id": "0",
        "Name": f"{model.model} function 0",
        "FunctionId": 0,
        "FunctionType": "Physical",
        "DeviceClass": _CLASSES[model.kind][0],
        "VendorId": model.vendor_id,
        "DeviceId": model.device_id,
        "SubsystemVendorId": model.subsystem_vendor_id,
        "SubsystemId": model.subsystem_id,
        "ClassCode": model.class_code,
        "RevisionId": "0x01",
        "Enabled": True,
        "Status": {"State": "Enabled", "Health": slot_health(slot)},
        "Links": links,
    }


def _drive(slot: SimulatedSlot, device: SimulatedDevice) -> Body:
    model, base = device.model, drawer_uri(slot.drawer)
    links = add_references(
        {},
        PCIeFunctions=[f"{slot_uri(slot)}/PCIeFunctions/0"],
        Endpoints=[f"{V1}/Fabrics/PCIe/Endpoints/{slot.endpoint}"],
    )
    links["Chassis"] = link(base)
    return {
        "@odata.id": f"{base}/Drives/nvme{slot.number}",
        "@odata.type": "#Drive.v1_22_0.Drive",
        "Id": f"nvme{slot.number}",
        "Name": f"NVMe drive in drawer {slot.drawer} slot {slot.number}",
        "Manufacturer": model.manufacturer,
        "Model": model.model,
        "PartNumber": model.part_number,
        "SerialNumber": device.serial,
        "Revision": model.firmware,
        "MediaType": "SSD",
        "Protocol": "NVMe",
        "CapacityBytes": model.capacity_bytes,
        "PredictedMediaLifeLeftPercent": 97.0,
        "FailurePredicted": False,
        "Status": {"State": "Enabled", "Health": slot_health(slot)},
        "Links": links,
    }


def _network_adapter(slot: SimulatedSlot, device: SimulatedDevice) -> Body:
    model, base = device.model, drawer_uri(slot.drawer)
    return {
        "@odata.id": f"{base}/NetworkAdapters/nic{slot.number}",
        "@odata.type": "#NetworkAdapter.v1_14_0.NetworkAdapter",
        "Id": f"nic{slot.number}",
        "Name": f"Network adapter in drawer {slot.drawer} slot {slot.number}",
        "Manufacturer": model.manufacturer,
        "Model": model.model,
        "PartNumber": model.part_number,
        "SerialNumber": device.serial,
        "Status": {"State": "Enabled", "Health": slot_health(slot)},
        "Controllers": [
            {
                "FirmwarePackageVersion": model.firmware,
                "Links": add_references({}, PCIeDevices=[slot_uri(slot)]),
            }
        ],
    }
