"""Services that arrange their resources otherwise than a Falcon: hosts, devices and answers are still told apart."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fabric.bmc.discovery import discover
from fabric.bmc.indicator import set_indicator
from fabric.bmc.readings import MAX_METRICS, metrics_properties
from fabric.bmc.types import ComponentKind, DeviceKind, Inventory, ProblemKind, RedfishComponent, RedfishMetrics
from fabric.bmc.values import paths_above
from tests.bmc.nonsense import ROOT, Answering, Asked, NonsenseServer, Reply, chassis, collection, service_root

LIST, SYSTEM, FABRIC = f"{ROOT}/Chassis", f"{ROOT}/Systems/X", f"{ROOT}/Fabrics/F"
BOX = f"{LIST}/box"


def resource(uri: str, kind: str, **more: Any) -> dict[str, Any]:
    """Return a plain resource."""
    own = uri.rsplit("/", 1)[-1]
    return {"@odata.id": uri, "@odata.type": f"#{kind}.v1_0_0.{kind}", "Id": own, "Name": own, **more}


def to(*uris: str) -> list[dict[str, str]]:
    return [{"@odata.id": uri} for uri in uris]


def service(*resources: dict[str, Any], **routes: Answering) -> dict[str, Answering]:
    """Return a service of these resources; one chassis links all of them."""
    return {
        ROOT: service_root(Chassis={"@odata.id": LIST}),
        LIST: collection(LIST, "Chassis", BOX),
        BOX: chassis(BOX, Oem={"All": to(*(each["@odata.id"] for each in resources), *routes)}),
        **{each["@odata.id"]: each for each in resources},
        **routes,
    }


async def walk(*resources: dict[str, Any], **routes: Answering) -> Inventory:
    with NonsenseServer(service(*resources, **routes)) as server:
        async with server.client() as bmc:
            return await discover(bmc)


def device(number: int, **more: Any) -> dict[str, Any]:
    return resource(f"{BOX}/PCIeDevices/{number}", "PCIeDevice", **more)


def entity(kind: str, uri: str, role: str = "") -> dict[str, Any]:
    return {"EntityType": kind, "EntityLink": {"@odata.id": uri}, **({"EntityRole": role} if role else {})}


def endpoint(name: str, *entities: dict[str, Any], **more: Any) -> dict[str, Any]:
    return resource(f"{FABRIC}/Endpoints/{name}", "Endpoint", ConnectedEntities=list(entities), **more)


@pytest.mark.parametrize(
    "answer", [{"error": {"code": "Base.1.0.GeneralError", "message": "no such GPU"}}, b"", {}, {"@odata.id": "/x"}]
)
async def test_a_success_without_a_resource_is_a_problem_and_no_device(answer: Any) -> None:
    inventory = await walk(device(1), **{f"{BOX}/PCIeDevices/2": answer})
    assert [each.id for each in inventory.devices] == ["1"]
    (problem,) = inventory.problems
    assert (problem.uri, problem.kind, problem.status) == (f"{BOX}/PCIeDevices/2", ProblemKind.MALFORMED, 200)
    assert ("no such GPU" in problem.sentence) == bool(answer and "error" in answer)


@pytest.mark.parametrize("role", ["Initiator", ""])
async def test_an_end_at_a_processor_of_a_system_is_the_hosts(role: str) -> None:
    cpu = resource(f"{SYSTEM}/Processors/CPU", "Processor", ProcessorType="CPU")
    inventory = await walk(
        resource(SYSTEM, "ComputerSystem"), cpu, endpoint("host", entity("Processor", cpu["@odata.id"], role))
    )
    (host,) = inventory.endpoints
    assert host.role == "Initiator"
    assert SYSTEM in paths_above(host.entity_uris[0])


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        (
            "Processor",
            resource(f"{BOX}/Processors/1", "Processor", Links={"PCIeDevices": to(f"{BOX}/PCIeDevices/1")}),
        ),
        ("Bridge", resource(f"{BOX}/PCIeDevices/1/PCIeFunctions/0", "PCIeFunction")),
        ("CXLDevice", resource(f"{BOX}/PCIeDevices/1/CXLLogicalDevices/1", "CXLLogicalDevice")),
        (
            "MemoryChunk",
            resource(
                f"{BOX}/MemoryDomains/1/MemoryChunks/1",
                "MemoryChunks",
                Links={"CXLLogicalDevices": to(f"{BOX}/PCIeDevices/1/CXLLogicalDevices/1")},
            ),
        ),
        ("Chassis", {"@odata.id": BOX}),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
async def test_an_end_at_any_part_of_a_device_is_the_devices(kind: str, part: dict[str, Any]) -> None:
    target = endpoint("target", entity(kind, part["@odata.id"], "Target"))
    inventory = await walk(device(1), target, *([part] if "Id" in part else []))
    assert inventory.devices[0].endpoint_uris == (target["@odata.id"],)


async def test_an_end_at_a_chassis_of_several_devices_is_none_of_theirs() -> None:
    inventory = await walk(device(1), device(2), endpoint("target", entity("Chassis", BOX, "Target")))
    assert [each.endpoint_uris for each in inventory.devices] == [(), ()]


@pytest.mark.parametrize(
    ("part", "body", "kind"),
    [
        ("Processor", {"ProcessorType": "CPU"}, DeviceKind.CUSTOM),
        ("Processor", {"ProcessorType": "GPU"}, DeviceKind.GPU),
        ("Drive", {"Protocol": "NVMe"}, DeviceKind.NVME),
        ("NetworkAdapter", {}, DeviceKind.NIC),
        ("MemoryChunks", {}, DeviceKind.GPU),
    ],
)
async def test_a_placeholder_for_a_class_code_yields_to_what_represents_the_device(
    part: str, body: dict[str, Any], kind: DeviceKind
) -> None:
    placeholder = resource(f"{BOX}/PCIeDevices/1/PCIeFunctions/0", "PCIeFunction", ClassCode="0x030000")
    face = resource(f"{BOX}/Parts/1", part, Links={"PCIeDevices": to(f"{BOX}/PCIeDevices/1")}, **body)
    inventory = await walk(device(1), placeholder, face)
    assert inventory.devices[0].kind is kind


async def test_a_link_between_switches_names_its_other_end() -> None:
    one, two = (f"{FABRIC}/Switches/{number}" for number in (1, 2))
    inventory = await walk(
        resource(one, "Switch", Name="Leaf"),
        resource(two, "Switch", Name="Spine"),
        resource(f"{one}/Ports/1", "Port", Links={"ConnectedSwitchPorts": to(f"{two}/Ports/7")}),
        resource(f"{two}/Ports/7", "Port", Name="Port 7", Links={"ConnectedSwitches": to(one)}),
        resource(f"{two}/Ports/8", "Port"),
    )
    assert [port.far_end for port in inventory.ports] == ["Spine, Port 7", "Leaf", ""]


async def test_a_device_behind_two_switches_is_at_the_port_nearest_to_it() -> None:
    leaf, spine = (f"{FABRIC}/Switches/{name}/Ports/1" for name in ("leaf", "spine"))
    inventory = await walk(
        device(1),
        endpoint("t", entity("PCIeDevice", f"{BOX}/PCIeDevices/1", "Target")),
        *(resource(uri.rpartition("/Ports/")[0], "Switch") for uri in (spine, leaf)),
        resource(spine, "Port", PortType="InterswitchPort", Links={"AssociatedEndpoints": to(f"{FABRIC}/Endpoints/t")}),
        resource(leaf, "Port", PortType="DownstreamPort", Links={"AssociatedEndpoints": to(f"{FABRIC}/Endpoints/t")}),
    )
    assert inventory.devices[0].port_uri == leaf


def test_metrics_of_devices_are_read_first_and_no_more_than_a_service_bears() -> None:
    memory = tuple(
        RedfishMetrics(uri=f"{BOX}/Memory/{n}/MemoryMetrics", name="m", owner_uri=f"{BOX}/Memory/{n}", pointers=("A",))
        for n in range(200)
    )
    gpu = RedfishMetrics(uri=f"{BOX}/Z/1/ProcessorMetrics", name="g", owner_uri=f"{BOX}/Z/1", pointers=("B",))
    part = RedfishComponent(uri=f"{BOX}/Z/1", name="z", kind=ComponentKind.PROCESSOR, device_uri=f"{BOX}/PCIeDevices/1")
    found = list(metrics_properties(Inventory(metrics=(*memory, gpu), components=(part,))))
    assert found[0] == f"{gpu.uri}#/B"
    assert len(found) == MAX_METRICS


async def test_accelerators_in_hpes_own_resources_are_devices_unless_a_standard_one_describes_them() -> None:
    def hpe(number: int, kind: str, serial: str, **more: Any) -> dict[str, Any]:
        uri = f"{BOX}/Devices/{number}"
        return resource(uri, "HpeServerDevice", Name="A100", DeviceType=kind, SerialNumber=serial, **more)

    function = resource(f"{SYSTEM}/PCIDevices/5", "HpeServerPciDevice", VendorID=4318, DeviceID=8373, ClassCode=3,
                        SubclassCode=2)  # fmt: skip
    firmware = {"FirmwareVersion": {"Current": {"VersionString": "92.00.45"}}}
    inventory = await walk(
        device(1, SerialNumber="S1"),
        function,
        hpe(1, "GPU", "S1"),
        hpe(2, "GPU", "S2", DeviceInstances=to(function["@odata.id"]), Manufacturer="NVIDIA", **firmware),
        hpe(3, "Expansion Riser", "S3"),
        hpe(4, "GPU", "S4", Status={"State": "Absent"}),
        hpe(5, "GPU", ""),
    )
    (gpu,) = [each for each in inventory.devices if each.uri.startswith(f"{BOX}/Devices/")]
    assert (gpu.kind, gpu.model, gpu.manufacturer, gpu.serial_number) == (DeviceKind.GPU, "A100", "NVIDIA", "S2")
    assert (gpu.vendor_id, gpu.device_id, gpu.class_code) == ("0x10DE", "0x20B5", "0x030200")
    assert (gpu.firmware_version, gpu.chassis_uri) == ("92.00.45", BOX)
    alone = await walk(hpe(5, "GPU", ""))
    assert [each.id for each in alone.devices] == ["5"]


async def test_components_and_metrics_of_nonsense_are_listed_without_it() -> None:
    inventory = await walk(
        resource(f"{BOX}/Memory/1", "Memory", CapacityMiB=2**62, OperatingSpeedMhz="fast", Links=[], Location=7),
        resource(f"{BOX}/Memory/2", "Memory", CapacityMiB=-1, Manufacturer=None, Status=[]),
        resource(f"{BOX}/Cables/1", "Cable", Links={"UpstreamPorts": {"@odata.id": 7}}),
        resource(f"{BOX}/Power", "Power", PowerSupplies=["none", {"PowerCapacityWatts": "much"}]),
        resource(f"{BOX}/EnvironmentMetrics", "EnvironmentMetrics", TemperatureCelsius=41, PowerWatts=None),
        resource(f"{BOX}/Memory/1/MemoryMetrics", "MemoryMetrics", LifeTime="long", BandwidthPercent=None),
    )
    assert {one.capacity_bytes for one in inventory.components} == {None}
    assert {one.capacity_watts for one in inventory.components} == {None}
    assert [(one.owner_uri, one.pointers) for one in inventory.metrics] == [(f"{BOX}/Memory/1", ("BandwidthPercent",))]
    assert msgspec.json.encode(inventory)


async def test_the_led_of_a_service_that_asks_for_an_etag_is_switched_whatever_its_clock_says() -> None:
    writes: list[str] = []

    def patched(asked: Asked) -> Reply:
        writes.append(asked.headers.get("If-Match", ""))
        return Reply(204, b"") if writes[-1] == "*" else Reply(428)

    routes = {BOX: lambda _asked: {"LocationIndicatorActive": "*" in writes}, f"PATCH {BOX}": patched}
    with NonsenseServer(routes) as server:
        async with server.client() as bmc:
            await set_indicator(bmc, BOX, lit=True)
    assert writes == ["", "*"]
