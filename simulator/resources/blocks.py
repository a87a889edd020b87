"""Resource blocks: of GPUs only, for their metrics, or of every device, if hosts are composed of blocks."""

from __future__ import annotations

from functools import partial

from simulator.catalog import DeviceModel, DeviceModelKind
from simulator.errors import Body
from simulator.resources.chassis import block_uri, drawer_uri, gpu_uri, processor_uri, slot_uri
from simulator.resources.devices import present_device, slot_health, typed_uri
from simulator.resources.systems import SYSTEMS
from simulator.resources.zones import ENDPOINTS, ZONES
from simulator.service import Falcon
from simulator.state import COMPOSITION_BLOCKS, ROOT_BLOCKS, SimulatedDevice, SimulatedDrawer, SimulatedSlot
from simulator.tree import ResourceNode, add_references, collection, link, links

SERVICE = "/redfish/v1/CompositionService"
POOLS = f"{SERVICE}/ResourceZones"
_TYPES = {
    DeviceModelKind.GPU: "Processor",
    DeviceModelKind.DRIVE: "Storage",
    DeviceModelKind.NETWORK: "Network",
    DeviceModelKind.CUSTOM: "Processor",
}


def register(falcon: Falcon) -> None:
    """Add the resource blocks, and the composition service if hosts are composed of them."""
    tree, state = falcon.tree, falcon.state
    slots = [slot for slot in state.all_slots() if slot.device is not None and _is_block(falcon, slot.device)]
    uri = COMPOSITION_BLOCKS if falcon.blocks else ROOT_BLOCKS

    def uris() -> list[str]:
        return [block_uri(slot) for slot in slots if slot.present is not None]

    tree.resource(uri, lambda: collection(uri, "ResourceBlock", "Resource Blocks", uris()))
    tree.members(uri, lambda last: _block_node(falcon, slots, last))
    for slot in slots:
        tree.members(f"{block_uri(slot)}/Processors", partial(_processor_node, slot))
        tree.members(f"{block_uri(slot)}/NetworkInterfaces", partial(_interface_node, slot))
        tree.members(gpu_uri(slot), partial(_gpu_metrics_node, slot))
    if falcon.blocks:
        _register_service(falcon)


def _is_block(falcon: Falcon, device: SimulatedDevice) -> bool:
    return falcon.blocks or device.model.kind is DeviceModelKind.GPU


def _register_service(falcon: Falcon) -> None:
    tree, drawers = falcon.tree, falcon.state.drawers
    tree.resource(
        SERVICE,
        lambda: {
            "@odata.id": SERVICE,
            "@odata.type": "#CompositionService.v1_2_3.CompositionService",
            "Id": "CompositionService",
            "Name": "Composition Service",
            "ServiceEnabled": True,
            "AllowOverprovisioning": False,
            "AllowZoneAffinity": False,
            "Status": {"State": "Enabled", "Health": "OK"},
            "ResourceBlocks": link(COMPOSITION_BLOCKS),
            "ResourceZones": link(POOLS),
        },
    )
    pools = [f"{POOLS}/drawer{number}" for number in drawers]
    tree.resource(POOLS, lambda: collection(POOLS, "Zone", "Resource Zones", pools))
    for drawer in drawers.values():
        tree.resource(f"{POOLS}/drawer{drawer.number}", partial(_pool, drawer))


def _pool(drawer: SimulatedDrawer) -> Body:
    """Render a resource zone: the blocks of a drawer reach only the drawer's host ports."""
    return {
        "@odata.id": f"{POOLS}/drawer{drawer.number}",
        "@odata.type": "#Zone.v1_6_3.Zone",
        "Id": f"drawer{drawer.number}",
        "Name": f"Resource blocks of drawer {drawer.number}",
        "ZoneType": "ZoneOfResourceBlocks",
        "Status": {"State": "Enabled", "Health": "OK"},
        "Links": add_references(
            {}, ResourceBlocks=[block_uri(slot) for slot in drawer.slots.values() if slot.present is not None]
        ),
    }


def _block_node(falcon: Falcon, slots: list[SimulatedSlot], last: str) -> ResourceNode | None:
    for slot in slots:
        if slot.endpoint == last and slot.present is not None:
            return ResourceNode(block_uri(slot), partial(_block, falcon, slot))
    return None


def _device_label(slot: SimulatedSlot, model: DeviceModel) -> str:
    kind = "GPU" if model.kind is DeviceModelKind.GPU else model.model
    return f"{kind} in drawer {slot.drawer} slot {slot.number}"


def _block(falcon: Falcon, slot: SimulatedSlot) -> Body:
    model, owners = present_device(slot).model, []
    if slot.attached_to is not None:
        owners.append(falcon.state.drawers[slot.drawer].host_ports[slot.attached_to].endpoint)
    chains = add_references({}, Chassis=[drawer_uri(slot.drawer)])
    if falcon.blocks:
        systems = [f"{SYSTEMS}/{owner}" for owner in owners]
        add_references(chains, ComputerSystems=systems, Zones=[f"{POOLS}/drawer{slot.drawer}"])
    elif owners:
        add_references(chains, Zones=[f"{ZONES}/{owner}" for owner in owners])
    body: Body = {
        "@odata.id": block_uri(slot),
        "@odata.type": "#ResourceBlock.v1_4_3.ResourceBlock",
        "Id": slot.endpoint,
        "Name": _device_label(slot, model),
        "ResourceBlockType": [_TYPES[model.kind]],
        "CompositionStatus": {"CompositionState": "Composed" if owners else "Unused"},
        "Status": {"State": "Enabled", "Health": slot_health(slot)},
        "Links": chains,
    }
    processor, twin = processor_uri(slot, model), typed_uri(slot, model)
    if processor is not None:
        body["Processors"], body["Processors@odata.count"] = links([processor]), 1
    elif model.kind is DeviceModelKind.NETWORK:
        body["NetworkInterfaces"] = links([f"{block_uri(slot)}/NetworkInterfaces/nic{slot.number}"])
        body["NetworkInterfaces@odata.count"] = 1
    elif twin is not None:
        body["Drives"], body["Drives@odata.count"] = links([twin]), 1
    return body


def _interface_node(slot: SimulatedSlot, last: str) -> ResourceNode | None:
    device = slot.present
    if last != f"nic{slot.number}" or device is None or device.model.kind is not DeviceModelKind.NETWORK:
        return None
    uri, adapter = f"{block_uri(slot)}/NetworkInterfaces/{last}", typed_uri(slot, device.model)

    def render() -> Body:
        return {
            "@odata.id": uri,
            "@odata.type": "#NetworkInterface.v1_2_3.NetworkInterface",
            "Id": last,
            "Name": f"Network interface in drawer {slot.drawer} slot {slot.number}",
            "Status": {"State": "Enabled", "Health": slot_health(slot)},
            "Links": {"NetworkAdapter": link(str(adapter))},
        }

    return ResourceNode(uri, render)


def _processor_node(slot: SimulatedSlot, last: str) -> ResourceNode | None:
    uri = processor_uri(slot, slot.present.model) if slot.present is not None else None
    if uri is None or not uri.endswith(f"/{last}"):
        return None
    return ResourceNode(uri, lambda: _processor(uri, slot, present_device(slot)))


def _processor(uri: str, slot: SimulatedSlot, device: SimulatedDevice) -> Body:
    model = device.model
    chains = add_references({}, Endpoints=[f"{ENDPOINTS}/{slot.endpoint}"])
    chains["Chassis"] = link(drawer_uri(slot.drawer))
    chains["PCIeDevice"] = link(slot_uri(slot))
    body: Body = {
        "@odata.id": uri,
        "@odata.type": "#Processor.v1_22_0.Processor",
        "Id": uri.rpartition("/")[2],
        "Name": _device_label(slot, model),
        "ProcessorType": "GPU" if model.kind is DeviceModelKind.GPU else "Accelerator",
        "Manufacturer": model.manufacturer,
        "Model": model.model,
        "PartNumber": model.part_number,
        "SerialNumber": device.serial,
        "UUID": device.uuid,
        "FirmwareVersion": model.firmware,
        "TDPWatts": int(model.max_watts),
        "Status": {"State": "Enabled", "Health": slot_health(slot)},
        "Links": chains,
    }
    if model.kind is DeviceModelKind.GPU:
        body["MemorySummary"] = {"TotalMemorySizeMiB": model.memory_mib}
        body["Metrics"] = link(f"{uri}/ProcessorMetrics")
    return body


def _gpu_metrics_node(slot: SimulatedSlot, last: str) -> ResourceNode | None:
    if last != "ProcessorMetrics" or slot.present is None or slot.present.model.kind is not DeviceModelKind.GPU:
        return None
    return ResourceNode(
        f"{gpu_uri(slot)}/ProcessorMetrics",
        lambda: {
            "@odata.id": f"{gpu_uri(slot)}/ProcessorMetrics",
            "@odata.type": "#ProcessorMetrics.v1_7_0.ProcessorMetrics",
            "Id": "ProcessorMetrics",
            "Name": f"Metrics of the GPU in drawer {slot.drawer} slot {slot.number}",
            "BandwidthPercent": round(100 * present_device(slot).load, 1),
        },
    )
