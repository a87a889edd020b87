"""Slots and their contents: PCIe devices, functions, drives, network adapters."""

from __future__ import annotations

from functools import partial

from simulator.errors import no_operation, property_refused, property_value
from simulator.lab import DeviceModel, DeviceModelKind
from simulator.odata import V1, Body, identity, link, references
from simulator.resources.chassis import slots_of_kind
from simulator.service import Falcon
from simulator.state import (
    COMPOSITION_BLOCKS,
    SLOT_GENERATION,
    SWITCHES,
    SimulatedDevice,
    SimulatedDrawer,
    SimulatedSlot,
    drawer_uri,
)
from simulator.tree import COMPOSE, AuthenticatedRequest, Reply, ResourceTree, WriteMethod

_CLASSES = {
    DeviceModelKind.GPU: ("DisplayController", "GPU"),
    DeviceModelKind.DRIVE: ("MassStorageController", "NVMe drive"),
    DeviceModelKind.NETWORK: ("NetworkController", "Network adapter"),
    DeviceModelKind.CUSTOM: ("ProcessingAccelerators", "Accelerator card"),
}


def typed_uri(slot: SimulatedSlot, kind: DeviceModelKind) -> str | None:
    """Return the URI of a device's resource other than PCIeDevice, or None for a custom card."""
    base = drawer_uri(slot.drawer)
    return {
        DeviceModelKind.GPU: slot.gpu_uri,
        DeviceModelKind.DRIVE: f"{base}/Drives/nvme{slot.number}",
        DeviceModelKind.NETWORK: f"{base}/NetworkAdapters/nic{slot.number}",
    }.get(kind)


def processor_uri(slot: SimulatedSlot, model: DeviceModel) -> str | None:
    """Return the URI of the Processor of a device; with resource blocks, a custom card has one too."""
    if model.kind is DeviceModelKind.GPU:
        return slot.gpu_uri
    if model.kind is DeviceModelKind.CUSTOM and slot.blocks == COMPOSITION_BLOCKS:
        return f"{slot.block_uri}/Processors/card{slot.number}"
    return None


def register(falcon: Falcon) -> None:
    """Add the slots of each drawer and the collections of their contents."""
    for drawer in falcon.state.drawers.values():
        _register_drawer(falcon.tree, drawer)


def _register_drawer(tree: ResourceTree, drawer: SimulatedDrawer) -> None:
    base, slots = drawer_uri(drawer.number), drawer.slots.values()
    tree.collection(f"{base}/PCIeDevices", "PCIeDevice", "PCIe Slots", lambda: [slot.uri for slot in slots])
    for slot in slots:
        change = WriteMethod(partial(_change_slot, slot), COMPOSE)
        tree.resource(slot.uri, partial(_pcie_device, slot), PATCH=change)
        if slot.device is not None:
            _register_device(tree, slot, slot.device)
    for kind in (DeviceModelKind.DRIVE, DeviceModelKind.NETWORK):
        tree.collection(f"{base}/{kind}s", kind, f"{kind}s", partial(_typed_members, drawer, kind))


def _register_device(tree: ResourceTree, slot: SimulatedSlot, device: SimulatedDevice) -> None:
    functions, kind = f"{slot.uri}/PCIeFunctions", device.model.kind
    tree.collection(
        functions, "PCIeFunction", "PCIe Functions", lambda: [f"{functions}/0"], exists=lambda: slot.connected
    )
    tree.resource(f"{functions}/0", partial(_function, slot, device), exists=lambda: slot.connected)
    render = {DeviceModelKind.DRIVE: _drive, DeviceModelKind.NETWORK: _network_adapter}.get(kind)
    uri = typed_uri(slot, kind)
    if render is not None and uri is not None:
        tree.resource(uri, partial(render, uri, slot, device), exists=lambda: slot.connected)


def _typed_members(drawer: SimulatedDrawer, kind: DeviceModelKind) -> list[str]:
    return [uri for slot in slots_of_kind(drawer, kind) if (uri := typed_uri(slot, kind)) is not None]


def _pcie_device(slot: SimulatedSlot) -> Body:
    uri, device = slot.uri, slot.present
    body: Body = {
        **identity(uri, "PCIeDevice", f"Drawer {slot.drawer} slot {slot.number}"),
        "LocationIndicatorActive": slot.identify,
        "Slot": {
            "Lanes": slot.link.max_lanes,
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
        },
    }
    if device is None:
        return {**body, "Status": {"State": "Absent"}, "Links": references(Chassis=[drawer_uri(slot.drawer)])}
    model = device.model
    processor = processor_uri(slot, model)
    up = slot.link.status == "LinkUp"
    return {
        **body,
        "Description": _CLASSES[model.kind][1],
        "DeviceType": "SingleFunction",
        **hardware(device),
        "UUID": device.uuid,
        "FirmwareVersion": device.firmware,
        "ReadyToRemove": slot.attached_to is None,
        "Status": {"State": "Enabled", "Health": slot_health(slot)},
        "PCIeInterface": {
            "PCIeType": slot.link.generation if up else None,
            "MaxPCIeType": model.generation,
            "LanesInUse": slot.link.lanes if up else None,
            "MaxLanes": model.lanes,
        },
        "PCIeFunctions": link(f"{uri}/PCIeFunctions"),
        "Links": {
            **references(Chassis=[drawer_uri(slot.drawer)], Processors=[processor] if processor is not None else []),
            "Switch": link(f"{SWITCHES}/{slot.switch}"),
        },
    }


def hardware(device: SimulatedDevice) -> Body:
    """Return the properties that identify the hardware of a device."""
    model = device.model
    return {
        "Manufacturer": model.manufacturer,
        "Model": model.model,
        "PartNumber": model.part_number,
        "SerialNumber": device.serial,
    }


def slot_health(slot: SimulatedSlot) -> str:
    """Return the health of the device in a slot."""
    if slot.band == "critical":
        return "Critical"
    return "Warning" if slot.band == "caution" or slot.link.degraded else "OK"


async def _change_slot(slot: SimulatedSlot, call: AuthenticatedRequest) -> Reply:
    if not call.body:
        raise no_operation()
    known = _pcie_device(slot)
    for key, value in call.body.items():
        if key != "LocationIndicatorActive":
            raise property_refused(key, known)
        if not isinstance(value, bool):
            raise property_value(key, value)
    slot.identify = call.body["LocationIndicatorActive"]
    return Reply(200, _pcie_device(slot))


def _function(slot: SimulatedSlot, device: SimulatedDevice) -> Body:
    model, typed, processor = device.model, typed_uri(slot, device.model.kind), processor_uri(slot, device.model)
    chain: Body = {"PCIeDevice": link(slot.uri)}
    if processor is not None:
        chain["Processor"] = link(processor)
    elif model.kind is DeviceModelKind.DRIVE and typed is not None:
        chain |= references(Drives=[typed])
    return {
        **identity(f"{slot.uri}/PCIeFunctions/0", "PCIeFunction", f"{model.model} function 0"),
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
        "Links": chain,
    }


def _drive(uri: str, slot: SimulatedSlot, device: SimulatedDevice) -> Body:
    model = device.model
    return {
        **identity(uri, "Drive", f"NVMe drive in drawer {slot.drawer} slot {slot.number}"),
        **hardware(device),
        "Revision": device.firmware,
        "MediaType": "SSD",
        "Protocol": "NVMe",
        "CapacityBytes": model.capacity_bytes,
        "PredictedMediaLifeLeftPercent": 97.0,
        "FailurePredicted": False,
        "Status": {"State": "Enabled", "Health": slot_health(slot)},
        "Links": {
            **references(
                PCIeFunctions=[f"{slot.uri}/PCIeFunctions/0"],
                Endpoints=[f"{V1}/Fabrics/PCIe/Endpoints/{slot.endpoint}"],
            ),
            "Chassis": link(drawer_uri(slot.drawer)),
        },
    }


def _network_adapter(uri: str, slot: SimulatedSlot, device: SimulatedDevice) -> Body:
    return {
        **identity(uri, "NetworkAdapter", f"Network adapter in drawer {slot.drawer} slot {slot.number}"),
        **hardware(device),
        "Status": {"State": "Enabled", "Health": slot_health(slot)},
        "Controllers": [{"FirmwarePackageVersion": device.firmware, "Links": references(PCIeDevices=[slot.uri])}],
    }
