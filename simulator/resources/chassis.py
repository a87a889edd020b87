"""The enclosure and its drawers."""

from __future__ import annotations

import asyncio
from functools import partial

from simulator.catalog import DeviceModel, DeviceModelKind
from simulator.errors import Body, RedfishError, property_not_writable, property_unknown, property_value
from simulator.events import Actor
from simulator.resources.tasking import task_accepted
from simulator.rules import MODES, Mode
from simulator.service import Falcon
from simulator.state import COMPOSITION_BLOCKS, SimulatedDrawer, SimulatedSlot
from simulator.tasks import BmcTask
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
FALCON = f"{V1}/Chassis/falcon"
MODE_SECONDS = 2.0
MODE_STEPS = 4


def drawer_uri(number: int) -> str:
    """Return the URI of a drawer."""
    return f"{V1}/Chassis/drawer{number}"


def slot_uri(slot: SimulatedSlot) -> str:
    """Return the URI of a slot's PCIeDevice."""
    return f"{drawer_uri(slot.drawer)}/PCIeDevices/slot{slot.number}"


def gpu_uri(slot: SimulatedSlot) -> str:
    """Return the URI of the Processor of a GPU, which is in the slot's resource block."""
    return f"{block_uri(slot)}/Processors/gpu{slot.number}"


def block_uri(slot: SimulatedSlot) -> str:
    """Return the URI of the resource block of a slot."""
    return f"{slot.blocks}/{slot.endpoint}"


def processor_uri(slot: SimulatedSlot, model: DeviceModel) -> str | None:
    """Return the URI of the Processor of a device; with resource blocks, a custom card has one too."""
    if model.kind is DeviceModelKind.GPU:
        return gpu_uri(slot)
    if model.kind is DeviceModelKind.CUSTOM and slot.blocks == COMPOSITION_BLOCKS:
        return f"{block_uri(slot)}/Processors/card{slot.number}"
    return None


def slots_of_kind(drawer: SimulatedDrawer, kind: DeviceModelKind) -> list[SimulatedSlot]:
    """Return the slots of a drawer that have a device of a kind."""
    return [slot for slot in drawer.slots.values() if slot.present is not None and slot.present.model.kind is kind]


def register(falcon: Falcon) -> None:
    """Add the enclosure and the drawers."""
    tree, state = falcon.tree, falcon.state
    uris = [FALCON] + [drawer_uri(number) for number in state.drawers]
    tree.resource(f"{V1}/Chassis", lambda: collection(f"{V1}/Chassis", "Chassis", "Chassis Collection", uris))
    tree.add(
        ResourceNode(
            FALCON,
            lambda: _enclosure(falcon),
            {"PATCH": WriteMethod(_identify(falcon, None), ("ConfigureComponents",))},
        )
    )
    for drawer in state.drawers.values():
        tree.add(
            ResourceNode(
                drawer_uri(drawer.number),
                partial(_drawer, falcon, drawer),
                {"PATCH": WriteMethod(_identify(falcon, drawer), ("ConfigureComponents",))},
            )
        )


def _health(falcon: Falcon, slots: list[SimulatedSlot]) -> str:
    bands = {slot.band for slot in slots}
    if "critical" in bands:
        return "Critical"
    if "caution" in bands or any(slot.link.degraded for slot in slots):
        return "Warning"
    return "OK"


def _enclosure(falcon: Falcon) -> Body:
    state = falcon.state
    failed = any(fan.failed for fan in state.fans)
    health = _health(falcon, state.all_slots())
    links = add_references(
        {}, Contains=[drawer_uri(number) for number in state.drawers], ManagedBy=[f"{V1}/Managers/bmc"]
    )
    links["ManagersInChassis"] = [link(f"{V1}/Managers/bmc")]
    return {
        "@odata.id": FALCON,
        "@odata.type": "#Chassis.v1_28_0.Chassis",
        "Id": "falcon",
        "Name": state.name,
        "ChassisType": "Enclosure",
        "Manufacturer": "H3 Platform",
        "Model": state.model,
        "SerialNumber": state.serial,
        "PartNumber": "FALCON-4016",
        "UUID": state.uuid,
        "HeightMm": 178.0,
        "PowerState": "On",
        "LocationIndicatorActive": state.identify,
        "EnvironmentalClass": "A2",
        "Status": {
            "State": "Enabled",
            "Health": "OK",
            "HealthRollup": "Critical" if failed or health == "Critical" else health,
        },
        "Sensors": link(f"{FALCON}/Sensors"),
        "ThermalSubsystem": link(f"{FALCON}/ThermalSubsystem"),
        "PowerSubsystem": link(f"{FALCON}/PowerSubsystem"),
        "EnvironmentMetrics": link(f"{FALCON}/EnvironmentMetrics"),
        "Links": links,
    }


def _drawer(falcon: Falcon, drawer: SimulatedDrawer) -> Body:
    uri = drawer_uri(drawer.number)
    slots = list(drawer.slots.values())
    gpus = slots_of_kind(drawer, DeviceModelKind.GPU)
    links = add_references(
        {},
        ManagedBy=[f"{V1}/Managers/bmc"],
        Processors=[gpu_uri(slot) for slot in gpus],
        Switches=[f"{V1}/Fabrics/PCIe/Switches/drawer{drawer.number}_switch"],
        ResourceBlocks=[
            block_uri(slot) for slot in slots if slot.present is not None and (falcon.blocks or slot in gpus)
        ],
    )
    links["ContainedBy"] = link(FALCON)
    return {
        "@odata.id": uri,
        "@odata.type": "#Chassis.v1_28_0.Chassis",
        "Id": f"drawer{drawer.number}",
        "Name": f"Drawer {drawer.number}",
        "ChassisType": "Drawer",
        "Manufacturer": "H3 Platform",
        "Model": "Falcon 4016 drawer",
        "SerialNumber": drawer.serial,
        "PowerState": "On",
        "LocationIndicatorActive": drawer.identify,
        "Location": {
            "PartLocation": {
                "ServiceLabel": f"Drawer {drawer.number}",
                "LocationType": "Bay",
                "LocationOrdinalValue": drawer.number,
            }
        },
        "Status": {"State": "Enabled", "Health": "OK", "HealthRollup": _health(falcon, slots)},
        "PCIeDevices": link(f"{uri}/PCIeDevices"),
        "Drives": link(f"{uri}/Drives"),
        "NetworkAdapters": link(f"{uri}/NetworkAdapters"),
        "Sensors": link(f"{uri}/Sensors"),
        "EnvironmentMetrics": link(f"{uri}/EnvironmentMetrics"),
        "Links": links,
        "Oem": {
            "H3": {
                "@odata.type": "#H3Drawer.v1_0_0.Drawer",
                "DrawerMode": drawer.mode,
                "AllowableDrawerModes": falcon.composer.allowed_modes(drawer),
            }
        },
    }


def _identify(falcon: Falcon, drawer: SimulatedDrawer | None) -> Handler:
    async def change(call: AuthenticatedRequest) -> Reply:
        if not call.body:
            raise RedfishError(400, "NoOperation", "The request body names no property to change.")
        mode: Mode | None = None
        known = _drawer(falcon, drawer) if drawer is not None else _enclosure(falcon)
        for key, value in call.body.items():
            if key == "LocationIndicatorActive":
                if not isinstance(value, bool):
                    raise property_value(key, value)
            elif key == "Oem" and drawer is not None:
                mode = _wanted_mode(value)
            else:
                raise property_not_writable(key) if key in known else property_unknown(key)
        if "LocationIndicatorActive" in call.body:
            target = drawer if drawer is not None else falcon.state
            target.identify = call.body["LocationIndicatorActive"]
        if mode is None or drawer is None or mode == drawer.mode:
            return Reply(200, _drawer(falcon, drawer) if drawer is not None else _enclosure(falcon))
        falcon.composer.check_mode(drawer, mode)
        return task_accepted(_start_mode_change(falcon, drawer, mode, call.actor))

    return change


def _wanted_mode(value: object) -> Mode | None:
    vendor = value.get("H3") if isinstance(value, dict) else None
    if not isinstance(vendor, dict):
        raise property_value("Oem", value)
    for key in vendor:
        if key == "AllowableDrawerModes":
            raise property_not_writable(key)
        if key not in ("DrawerMode", "@odata.type"):
            raise property_unknown(key)
    for mode in MODES:
        if vendor.get("DrawerMode") == mode:
            return mode
    raise property_value("DrawerMode", vendor.get("DrawerMode"))


def _start_mode_change(falcon: Falcon, drawer: SimulatedDrawer, mode: Mode, by: Actor | None) -> BmcTask:
    drawer.changing_to = mode

    async def work(task: BmcTask) -> tuple[int, Body | None]:
        try:
            for step in range(MODE_STEPS):
                await asyncio.sleep(MODE_SECONDS / MODE_STEPS / falcon.clock.speed)
                task.percent = 100 * (step + 1) // (MODE_STEPS + 1)
        finally:
            drawer.changing_to = None
        # A device may have been lost meanwhile, so the rules are checked again at the change.
        falcon.composer.check_mode(drawer, mode)
        falcon.composer.set_mode(drawer, mode, by)
        return 200, _drawer(falcon, drawer)

    return falcon.tasks.start(f"Change the mode of drawer {drawer.number}", drawer_uri(drawer.number), work)
