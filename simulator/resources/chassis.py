"""The enclosure and its drawers."""

from __future__ import annotations

import asyncio
from functools import partial

from simulator.errors import no_operation, property_refused, property_value
from simulator.events import Actor
from simulator.lab import DeviceModelKind
from simulator.odata import V1, Body, identity, link, references
from simulator.power import CHASSIS_RESETS
from simulator.resources.controls import register_reset, reset_action
from simulator.resources.services import task_accepted
from simulator.rules import Mode, ModelRules
from simulator.service import Falcon
from simulator.state import SWITCHES, SimulatedDrawer, SimulatedSlot, drawer_uri
from simulator.tasks import BmcTask
from simulator.tree import COMPOSE, AuthenticatedRequest, Reply, WriteMethod

FALCON = f"{V1}/Chassis/falcon"
ASSEMBLY = f"{FALCON}/Assembly"
# Without devices, and what its power supplies give with one to spare.
MIN_WATTS, MAX_WATTS = 180.0, 6000.0
MODE_SECONDS = 2.0
MODE_STEPS = 4


def slots_of_kind(drawer: SimulatedDrawer, kind: DeviceModelKind) -> list[SimulatedSlot]:
    """Return the slots of a drawer that have a device of a kind."""
    return [slot for slot in drawer.slots.values() if slot.present is not None and slot.present.model.kind is kind]


def register(falcon: Falcon) -> None:
    """Add the enclosure and the drawers."""
    tree, state = falcon.tree, falcon.state
    uris = [FALCON, *map(drawer_uri, state.drawers)]
    tree.collection(f"{V1}/Chassis", "Chassis", "Chassis Collection", lambda: uris)
    for drawer in (None, *state.drawers.values()):
        uri = FALCON if drawer is None else drawer_uri(drawer.number)
        change = WriteMethod(partial(_change_chassis, falcon, drawer), COMPOSE)
        tree.resource(uri, partial(_chassis, falcon, drawer), PATCH=change)
        drawers = [*state.drawers.values()] if drawer is None else [drawer]
        register_reset(falcon, uri, "Chassis", CHASSIS_RESETS, partial(falcon.power.drawers, drawers))
    tree.resource(ASSEMBLY, partial(_assembly, falcon))


def _assembly(falcon: Falcon) -> Body:
    """Render the parts that can be replaced apart from devices, fans and power supplies."""
    serial = falcon.state.serial
    parts = {"BMC board": "B", **{f"Backplane of drawer {number}": f"D{number}" for number in falcon.state.drawers}}
    return {
        **identity(ASSEMBLY, "Assembly", "Boards of the enclosure"),
        "Assemblies": [
            {
                "@odata.id": f"{ASSEMBLY}#/Assemblies/{number}",
                "MemberId": str(number),
                "Name": name,
                "Vendor": falcon.state.rules.manufacturer,
                "Producer": falcon.state.rules.manufacturer,
                "Model": falcon.state.model,
                "SerialNumber": f"{serial}-{suffix}",
                "Status": {"State": "Enabled", "Health": "OK"},
            }
            for number, (name, suffix) in enumerate(parts.items())
        ],
        "Assemblies@odata.count": len(parts),
    }


def _chassis(falcon: Falcon, drawer: SimulatedDrawer | None) -> Body:
    return _enclosure(falcon) if drawer is None else _drawer(falcon, drawer)


def _health(slots: list[SimulatedSlot]) -> str:
    bands = {slot.band for slot in slots}
    if "critical" in bands:
        return "Critical"
    if "caution" in bands or any(slot.link.degraded for slot in slots):
        return "Warning"
    return "OK"


def _enclosure(falcon: Falcon) -> Body:
    state = falcon.state
    failed = any(fan.failed for fan in state.fans)
    return {
        **identity(FALCON, "Chassis", state.name),
        "ChassisType": "Enclosure",
        "Manufacturer": state.rules.manufacturer,
        "Model": state.model,
        "SerialNumber": state.serial,
        "PartNumber": state.model.upper().replace(" ", "-"),
        "SKU": f"{state.model.upper().replace(' ', '-')}-{len(state.drawers)}D",
        "UUID": state.uuid,
        "HeightMm": 178.0,
        "PowerState": falcon.power.state_of(*(f"drawer{number}" for number in state.drawers)),
        "LocationIndicatorActive": state.identify,
        "EnvironmentalClass": "A2",
        "Status": {
            "State": "Enabled",
            "Health": "OK",
            "HealthRollup": "Critical" if failed else _health(state.all_slots()),
        },
        "Assembly": link(ASSEMBLY),
        "MinPowerWatts": MIN_WATTS,
        "MaxPowerWatts": MAX_WATTS,
        "Sensors": link(f"{FALCON}/Sensors"),
        "ThermalSubsystem": link(f"{FALCON}/ThermalSubsystem"),
        "PowerSubsystem": link(f"{FALCON}/PowerSubsystem"),
        "EnvironmentMetrics": link(f"{FALCON}/EnvironmentMetrics"),
        **({name: link(f"{FALCON}/{name}") for name in ("Thermal", "Power")} if falcon.options.legacy else {}),
        "Links": {
            **references(Contains=[*map(drawer_uri, state.drawers)], ManagedBy=[f"{V1}/Managers/bmc"]),
            "ManagersInChassis": [link(f"{V1}/Managers/bmc")],
        },
        "Actions": reset_action(FALCON, "Chassis", CHASSIS_RESETS),
    }


def _drawer(falcon: Falcon, drawer: SimulatedDrawer) -> Body:
    uri = drawer_uri(drawer.number)
    gpus = slots_of_kind(drawer, DeviceModelKind.GPU)
    present = [slot for slot in drawer.slots.values() if slot.connected]
    return {
        **identity(uri, "Chassis", f"Drawer {drawer.number}"),
        "ChassisType": "Drawer",
        "Manufacturer": falcon.state.rules.manufacturer,
        "Model": f"{falcon.state.model} drawer",
        "SerialNumber": drawer.serial,
        "PowerState": falcon.power.state_of(f"drawer{drawer.number}"),
        "LocationIndicatorActive": drawer.identify,
        "Location": {
            "PartLocation": {
                "ServiceLabel": f"Drawer {drawer.number}",
                "LocationType": "Bay",
                "LocationOrdinalValue": drawer.number,
            }
        },
        "Status": {"State": "Enabled", "Health": "OK", "HealthRollup": _health([*drawer.slots.values()])},
        "PCIeDevices": link(f"{uri}/PCIeDevices"),
        "Drives": link(f"{uri}/Drives"),
        "NetworkAdapters": link(f"{uri}/NetworkAdapters"),
        "Sensors": link(f"{uri}/Sensors"),
        "EnvironmentMetrics": link(f"{uri}/EnvironmentMetrics"),
        "Links": {
            **references(
                ManagedBy=[f"{V1}/Managers/bmc"],
                Processors=[slot.gpu_uri for slot in gpus],
                Switches=[f"{SWITCHES}/drawer{drawer.number}_switch"],
                ResourceBlocks=[slot.block_uri for slot in (present if falcon.blocks else gpus)],
            ),
            "ContainedBy": link(FALCON),
        },
        "Actions": reset_action(uri, "Chassis", CHASSIS_RESETS),
        **_mode(falcon, drawer),
    }


def _mode(falcon: Falcon, drawer: SimulatedDrawer) -> Body:
    """Render the mode of a drawer, of a model whose modes are known."""
    if not falcon.state.rules.modes:
        return {}
    modes = {"DrawerMode": drawer.mode, "AllowableDrawerModes": falcon.composer.allowed_modes(drawer)}
    return {"Oem": {"H3": {"@odata.type": "#H3Drawer.v1_0_0.Drawer", **modes}}}


async def _change_chassis(falcon: Falcon, drawer: SimulatedDrawer | None, call: AuthenticatedRequest) -> Reply:
    if not call.body:
        raise no_operation()
    mode: Mode | None = None
    known = _chassis(falcon, drawer)
    for key, value in call.body.items():
        if key == "LocationIndicatorActive":
            if not isinstance(value, bool):
                raise property_value(key, value)
        elif key == "Oem" and key in known:
            mode = _requested_mode(value, falcon.state.rules)
        else:
            raise property_refused(key, known)
    if "LocationIndicatorActive" in call.body:
        (drawer or falcon.state).identify = call.body["LocationIndicatorActive"]
    if mode is None or drawer is None or mode == drawer.mode:
        return Reply(200, _chassis(falcon, drawer))
    falcon.composer.check_mode(drawer, mode)
    return task_accepted(_start_mode_change(falcon, drawer, mode, call.actor))


def _requested_mode(value: object, rules: ModelRules) -> Mode:
    vendor = value.get("H3") if isinstance(value, dict) else None
    if not isinstance(vendor, dict):
        raise property_value("Oem", value)
    for key in vendor:
        if key not in ("DrawerMode", "@odata.type"):
            raise property_refused(key, ("AllowableDrawerModes",))
    for mode in rules.modes:
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

    return falcon.tasks.start(f"Change the mode of drawer {drawer.number}", work)
