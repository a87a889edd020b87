"""What bmcweb of OpenBMC does in its own way: copies of sensors, labels of slots, ports without LinkStatus."""

from __future__ import annotations

from typing import Any

import pytest

from fabric.bmc.client import BmcClient
from fabric.bmc.crawl import CrawledResource
from fabric.bmc.discovery import discover
from fabric.bmc.readings import ResourcePlan, expected_properties, plan_readings
from fabric.bmc.relations import ResourceRelations
from fabric.bmc.slots import read_slots
from fabric.bmc.types import Inventory
from falconweb.testing.processes import SimulatorProcess
from tests.bmc.conftest import pinned
from tests.bmc.nonsense import ROOT, Answering, Asked, NonsenseServer, chassis, collection, service_root

SWITCH = f"{ROOT}/Fabrics/fabric/Switches/switch1"
PORTS = [f"{SWITCH}/Ports/port{number}" for number in range(8)]


def sensor(where: str, name: str, reading: float) -> dict[str, Any]:
    """Return a sensor as a chassis lists it."""
    return {
        "@odata.id": f"{ROOT}/Chassis/{where}/Sensors/{name}", "@odata.type": "#Sensor.v1_2_0.Sensor", "Id": name,
        "Name": name.replace("_", " "), "Reading": reading, "ReadingType": "Temperature", "ReadingUnits": "Cel",
    }  # fmt: skip


def port(path: str) -> dict[str, Any]:
    """Return a port without LinkStatus."""
    return {
        "@odata.id": path, "@odata.type": "#Port.v1_7_0.Port", "Id": path.rsplit("/", 1)[-1], "Name": path,
        "ActiveWidth": 16, "CurrentSpeedGbps": 256,
    }  # fmt: skip


def bmcweb() -> dict[str, Answering]:
    """Return a Falcon whose BMC runs bmcweb, with drawers in the chassis and $expand."""
    routes: dict[str, Answering] = {}

    def listing(path: str, kind: str, members: list[dict[str, Any]], *, partial: tuple[str, ...] = ()) -> None:
        """Serve a collection, expanded on demand, and its members; expanded ones are without `partial`."""

        def expanded(asked: Asked) -> dict[str, Any]:
            body = collection(path, kind, *(member["@odata.id"] for member in members))
            if "$expand" in asked.path:
                shown = [{name: value for name, value in one.items() if name not in partial} for one in members]
                body["Members"] = shown
            return body

        routes[path] = expanded
        routes.update({member["@odata.id"]: member for member in members})

    drawers = {
        f"drawer{number}": [sensor(f"drawer{number}", f"temperature_d{number}s{slot}", 40.0 + slot) for slot in (1, 2)]
        for number in (1, 2)
    }
    # Each drawer has an inlet of its own by the same name, and the chassis one as well.
    for name, own in drawers.items():
        own.append(sensor(name, "inlet", 20.0))
    around = [sensor("falcon", one["Id"], one["Reading"]) for own in drawers.values() for one in own[:2]]
    around += [sensor("falcon", "inlet", 21.0), sensor("falcon", "outlet", 30.0)]
    parts = [chassis(f"{ROOT}/Chassis/falcon", Sensors={"@odata.id": f"{ROOT}/Chassis/falcon/Sensors"})]
    for name in drawers:
        inside = {"ContainedBy": {"@odata.id": f"{ROOT}/Chassis/falcon"}}
        own_list = {"@odata.id": f"{ROOT}/Chassis/{name}/Sensors"}
        parts.append(chassis(f"{ROOT}/Chassis/{name}", ChassisType="Drawer", Links=inside, Sensors=own_list))
    listing(f"{ROOT}/Chassis", "Chassis", parts)
    for name, own in {**drawers, "falcon": around}.items():
        listing(f"{ROOT}/Chassis/{name}/Sensors", "Sensor", own)
    listing(f"{ROOT}/Fabrics", "Fabric", [{
        "@odata.id": f"{ROOT}/Fabrics/fabric", "@odata.type": "#Fabric.v1_3_0.Fabric", "Id": "fabric", "Name": "fabric",
        "FabricType": "PCIe", "Switches": {"@odata.id": f"{ROOT}/Fabrics/fabric/Switches"},
    }])  # fmt: skip
    listing(f"{ROOT}/Fabrics/fabric/Switches", "Switch", [{
        "@odata.id": SWITCH, "@odata.type": "#Switch.v1_8_0.Switch", "Id": "switch1", "Name": "switch1",
        "Ports": {"@odata.id": f"{SWITCH}/Ports"},
    }])  # fmt: skip
    listing(f"{SWITCH}/Ports", "Port", [port(path) for path in PORTS])
    routes[ROOT] = service_root(
        Chassis={"@odata.id": f"{ROOT}/Chassis"},
        Fabrics={"@odata.id": f"{ROOT}/Fabrics"},
        ProtocolFeaturesSupported={"ExpandQuery": {"NoLinks": True, "Levels": True, "MaxLevels": 6}},
    )
    return routes


async def walked(server: NonsenseServer) -> Inventory:
    async with server.client() as bmc:
        return await discover(bmc)


async def test_a_sensor_that_a_drawer_and_its_chassis_list_is_read_once() -> None:
    with NonsenseServer(bmcweb()) as server:
        inventory = await walked(server)
    copies = {one.uri: one.copy_of for one in inventory.sensors if one.copy_of}
    assert copies == {
        f"{ROOT}/Chassis/falcon/Sensors/temperature_d{drawer}s{slot}":
            f"{ROOT}/Chassis/drawer{drawer}/Sensors/temperature_d{drawer}s{slot}"
        for drawer in (1, 2) for slot in (1, 2)
    }  # fmt: skip
    read = {name.partition("#")[0] for name in expected_properties(inventory) if "/Sensors/" in name}
    assert len(read) == len(inventory.sensors) - len(copies) == 8


async def test_ports_that_have_no_link_status_at_all_are_read_expanded() -> None:
    with NonsenseServer(bmcweb()) as server:
        inventory = await walked(server)
        async with server.client() as bmc:
            plan = await plan_readings(bmc, inventory)
            server.asked.clear()
            reading = await plan.read(bmc)
    assert isinstance(plan, ResourcePlan)
    values = {one.property: value for one, value in zip(plan.series, reading.values, strict=True)}
    assert all(values[f"{path}#/CurrentSpeedGbps"] == 256 for path in PORTS)
    assert len(server.asked) == 4  # three lists of sensors, one of ports


async def test_a_falcon_whose_ports_have_no_link_status_is_read_in_as_many_requests() -> None:
    with SimulatorProcess("--no-report") as process:
        async with BmcClient(pinned(process)) as bmc:
            counts = []
            for _ in range(2):
                plan = await plan_readings(bmc, await discover(bmc))
                assert isinstance(plan, ResourcePlan)
                counts.append(len(plan.sources))
                process.fault("no_link_status")
    assert counts[0] == counts[1]


async def test_ports_that_are_only_expanded_without_it_are_read_one_by_one() -> None:
    routes = bmcweb()
    for path in PORTS:
        routes[path] = {**port(path), "LinkStatus": "LinkUp"}
    with NonsenseServer(routes) as server:
        inventory = await walked(server)
        async with server.client() as bmc:
            plan = await plan_readings(bmc, inventory)
            reading = await plan.read(bmc)
    values = {one.property: value for one, value in zip(plan.series, reading.values, strict=True)}
    assert all(values[f"{path}#/LinkStatus"] == values[f"{PORTS[0]}#/LinkStatus"] >= 0 for path in PORTS)


def legacy_slots(*labels: str) -> dict[str, Any]:
    """Return PCIeSlots with these labels."""
    return {
        "@odata.id": f"{ROOT}/Chassis/falcon/PCIeSlots", "@odata.type": "#PCIeSlots.v1_4_1.PCIeSlots",
        "Id": "PCIeSlots", "Name": "PCIe slots",
        "Slots": [{"Lanes": 16, "Location": {"PartLocation": {"ServiceLabel": label}}} for label in labels],
    }  # fmt: skip


async def test_slots_of_two_drawers_in_one_list_are_told_apart_by_their_labels() -> None:
    path = f"{ROOT}/Chassis/falcon"
    gpu = f"{path}/PCIeDevices/gpu1"
    device = {
        "@odata.id": gpu, "@odata.type": "#PCIeDevice.v1_9_0.PCIeDevice", "Id": "gpu1",
        "Name": "GPU", "Slot": {"Location": {"PartLocation": {"ServiceLabel": "D1-S1"}}},
        "Links": {"Chassis": [{"@odata.id": path}]},
    }  # fmt: skip
    routes: dict[str, Answering] = {
        ROOT: service_root(Chassis={"@odata.id": f"{ROOT}/Chassis"}),
        f"{ROOT}/Chassis": collection(f"{ROOT}/Chassis", "Chassis", path),
        path: chassis(
            path, PCIeDevices={"@odata.id": f"{path}/PCIeDevices"}, PCIeSlots={"@odata.id": f"{path}/PCIeSlots"}
        ),
        f"{path}/PCIeDevices": collection(f"{path}/PCIeDevices", "PCIeDevice", gpu),
        gpu: device,
        f"{path}/PCIeSlots": legacy_slots("D1-S1", "D1-S2", "D2-S1", "D2-S3"),
    }
    with NonsenseServer(routes) as server:
        slots = (await walked(server)).slots
    assert sorted((slot.name, slot.number) for slot in slots) == [
        ("D1-S1", 0), ("D1-S2", 2), ("D2-S1", 0), ("D2-S3", 3)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        ("D1-S1", "D2-S1", True),
        ("Slot 1", "slot 01", False),
        ("NVIDIA A100 80GB", "Slot 1", False),
        ("PCIe Slot 1", "Slot 1", False),
    ],
)
def test_labels_of_other_places(one: str, other: str, *, apart: bool) -> None:
    labels = [{"Location": {"PartLocation": {"ServiceLabel": label}}} for label in (one, other)]
    found = {
        f"{ROOT}/Chassis/1/{name}": CrawledResource(f"{ROOT}/Chassis/1/{name}", kind, body, "")
        for name, kind, body in (
            ("PCIeDevices/1", "PCIeDevice", {"Id": "1", "Slot": labels[0]}),
            ("PCIeSlots", "PCIeSlots", {"Slots": [labels[1]]}),
        )
    }
    assert len(read_slots(found.values(), ResourceRelations(found))) == (2 if apart else 1)
