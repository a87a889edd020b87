"""Resource blocks: of GPUs only, for their metrics, or of every device, if hosts are composed of blocks."""

from __future__ import annotations

from functools import partial

from simulator.composition import ENDPOINTS
from simulator.lab import DeviceModel, DeviceModelKind
from simulator.odata import Body, identity, link, references
from simulator.power import DEVICE_RESETS
from simulator.resources.controls import register_reset, reset_action
from simulator.resources.devices import hardware, processor_uri, slot_health, typed_uri
from simulator.resources.pools import (
    SERVICE,
    ZONES_OF_BLOCKS,
    assignment,
    capabilities,
    pool_properties,
    register_pools,
)
from simulator.service import Falcon
from simulator.state import (
    COMPOSITION_BLOCKS,
    ROOT_BLOCKS,
    SimulatedDevice,
    SimulatedDrawer,
    SimulatedSlot,
    drawer_uri,
)

_TYPES = {
    DeviceModelKind.GPU: "Processor",
    DeviceModelKind.DRIVE: "Storage",
    DeviceModelKind.NETWORK: "Network",
    DeviceModelKind.CUSTOM: "Processor",
}


def register(falcon: Falcon) -> None:
    """Add the resource blocks, and the composition service if hosts are composed of them."""
    uri = COMPOSITION_BLOCKS if falcon.blocks else ROOT_BLOCKS
    slots = []
    for slot in falcon.state.all_slots():
        device = slot.device
        if device is not None and (falcon.blocks or device.model.kind is DeviceModelKind.GPU):
            slots.append(slot)
            _register_block(falcon, slot, device)
    hosts = [port.block_uri for port in falcon.state.host_ports()] if falcon.pooled else []
    falcon.tree.collection(
        uri, "ResourceBlock", "Resource Blocks", lambda: hosts + [slot.block_uri for slot in slots if slot.connected]
    )
    if falcon.blocks:
        _register_service(falcon)


def _register_block(falcon: Falcon, slot: SimulatedSlot, device: SimulatedDevice) -> None:
    tree, model = falcon.tree, device.model

    def exists() -> bool:
        return slot.connected

    writes = assignment(slot, lambda: slot.attached_to is not None) if falcon.pooled else {}
    tree.resource(slot.block_uri, partial(_block, falcon, slot, device), exists=exists, **writes)
    processor = processor_uri(slot, model)
    if processor is not None:
        tree.resource(processor, partial(_processor, processor, slot, device), exists=exists)
        register_reset(falcon, processor, "Processor", DEVICE_RESETS, lambda _kind: falcon.power.device(slot))
    if model.kind is DeviceModelKind.GPU:
        tree.resource(f"{slot.gpu_uri}/ProcessorMetrics", partial(_gpu_metrics, slot, device), exists=exists)
    if model.kind is DeviceModelKind.NETWORK:
        tree.resource(_interface_uri(slot), partial(_interface, slot), exists=exists)


def _register_service(falcon: Falcon) -> None:
    tree, drawers = falcon.tree, falcon.state.drawers
    service: Body = {
        **identity(SERVICE, "CompositionService", "Composition Service"),
        "ServiceEnabled": True,
        "AllowOverprovisioning": False,
        "AllowZoneAffinity": False,
        "Status": {"State": "Enabled", "Health": "OK"},
        "ResourceBlocks": link(COMPOSITION_BLOCKS),
        "ResourceZones": link(ZONES_OF_BLOCKS),
    }
    if falcon.pooled:
        service |= register_pools(falcon)
    tree.resource(SERVICE, lambda: service)
    zones = [f"{ZONES_OF_BLOCKS}/drawer{number}" for number in drawers]
    tree.collection(ZONES_OF_BLOCKS, "Zone", "Resource Zones", lambda: zones)
    for drawer in drawers.values():
        tree.resource(f"{ZONES_OF_BLOCKS}/drawer{drawer.number}", partial(_zone_of_blocks, falcon, drawer))


def _zone_of_blocks(falcon: Falcon, drawer: SimulatedDrawer) -> Body:
    """Render a resource zone: the blocks of a drawer reach only the drawer's host ports."""
    hosts = [port.block_uri for port in drawer.host_ports.values()] if falcon.pooled else []
    devices = [slot.block_uri for slot in drawer.slots.values() if slot.connected]
    name = f"Resource blocks of drawer {drawer.number}"
    return {
        **identity(f"{ZONES_OF_BLOCKS}/drawer{drawer.number}", "Zone", name),
        "ZoneType": "ZoneOfResourceBlocks",
        "Status": {"State": "Enabled", "Health": "OK"},
        "Links": references(ResourceBlocks=hosts + devices),
        **(capabilities(falcon) if falcon.pooled else {}),
    }


def _device_label(slot: SimulatedSlot, model: DeviceModel) -> str:
    kind = "GPU" if model.kind is DeviceModelKind.GPU else model.model
    return f"{kind} in drawer {slot.drawer} slot {slot.number}"


def _block(falcon: Falcon, slot: SimulatedSlot, device: SimulatedDevice) -> Body:
    model, owner = device.model, None
    if slot.attached_to is not None:
        owner = falcon.state.drawers[slot.drawer].host_ports[slot.attached_to]
    chain = references(Chassis=[drawer_uri(slot.drawer)])
    if falcon.blocks:
        systems = [falcon.composer.holder_uri(owner)] if owner is not None else []
        chain |= references(ComputerSystems=systems, Zones=[f"{ZONES_OF_BLOCKS}/drawer{slot.drawer}"])
    elif owner is not None:
        joined = falcon.composer.fabric_links(owner, slot)
        chain |= {name: uris for name, uris in joined.items() if name.startswith("Zones")}
    body: Body = {
        **identity(slot.block_uri, "ResourceBlock", _device_label(slot, model)),
        "ResourceBlockType": [_TYPES[model.kind]],
        "CompositionStatus": {"CompositionState": "Composed" if owner is not None else "Unused"},
        "Status": {"State": "Enabled", "Health": slot_health(slot)},
        **(pool_properties(slot) if falcon.pooled else {}),
        "Links": chain,
    }
    processor, typed = processor_uri(slot, model), typed_uri(slot, model.kind)
    if processor is not None:
        body |= references(Processors=[processor])
    elif model.kind is DeviceModelKind.NETWORK:
        body |= references(NetworkInterfaces=[_interface_uri(slot)])
    elif typed is not None:
        body |= references(Drives=[typed])
    return body


def _interface_uri(slot: SimulatedSlot) -> str:
    return f"{slot.block_uri}/NetworkInterfaces/nic{slot.number}"


def _interface(slot: SimulatedSlot) -> Body:
    adapter = typed_uri(slot, DeviceModelKind.NETWORK)
    name = f"Network interface in drawer {slot.drawer} slot {slot.number}"
    return {
        **identity(_interface_uri(slot), "NetworkInterface", name),
        "Status": {"State": "Enabled", "Health": slot_health(slot)},
        "Links": {"NetworkAdapter": link(str(adapter))},
    }


def _processor(uri: str, slot: SimulatedSlot, device: SimulatedDevice) -> Body:
    model = device.model
    body: Body = {
        **identity(uri, "Processor", _device_label(slot, model)),
        "ProcessorType": "GPU" if model.kind is DeviceModelKind.GPU else "Accelerator",
        **hardware(device),
        "UUID": device.uuid,
        "FirmwareVersion": device.firmware,
        "TDPWatts": int(model.max_watts),
        "Location": {
            "PartLocation": {
                "ServiceLabel": f"Drawer {slot.drawer} slot {slot.number}",
                "LocationType": "Slot",
                "LocationOrdinalValue": slot.number,
            }
        },
        "Status": {"State": "Enabled", "Health": slot_health(slot)},
        "Links": {
            **references(Endpoints=[f"{ENDPOINTS}/{slot.endpoint}"]),
            "Chassis": link(drawer_uri(slot.drawer)),
            "PCIeDevice": link(slot.uri),
        },
        "Actions": reset_action(uri, "Processor", DEVICE_RESETS),
    }
    if model.kind is DeviceModelKind.GPU:
        body["MemorySummary"] = {"TotalMemorySizeMiB": model.memory_mib}
        body["Metrics"] = link(f"{uri}/ProcessorMetrics")
    return body


def _gpu_metrics(slot: SimulatedSlot, device: SimulatedDevice) -> Body:
    name = f"Metrics of the GPU in drawer {slot.drawer} slot {slot.number}"
    return {
        **identity(f"{slot.gpu_uri}/ProcessorMetrics", "ProcessorMetrics", name),
        "BandwidthPercent": round(100 * device.load, 1),
    }
