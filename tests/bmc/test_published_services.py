"""Published services that nobody here wrote, counted and compared with a plain crawl; `pytest -s` prints the table."""

from __future__ import annotations

import asyncio
import importlib.util
import math
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fabric.bmc.types import Inventory, RedfishResource
from tests.bmc.nonsense import ROOT, Answering, NonsenseServer, collection, service_root
from tests.bmc.test_mockups import FOLDERS, KINDS, PlainWalk, walk, walked
from tests.bmc.test_odd_services import resource, to
from tests.waiting import wait_for

pytestmark = pytest.mark.process

# Types of resources and the list of an inventory that each is in; components are told apart by their kind.
COMPONENTS = {
    "PowerSupply": "power_supply", "Battery": "battery", "Processor": "processor", "Memory": "memory",
    "MemoryChunks": "memory_chunk", "Drive": "drive", "Cable": "cable",
}  # fmt: skip
# Properties as the services have them, by the fields that show them unchanged.
FACTS: dict[str, tuple[str, ...]] = {
    "serial_number": ("SerialNumber",), "part_number": ("PartNumber",), "model": ("Model",),
    "manufacturer": ("Manufacturer",), "firmware_version": ("FirmwareVersion",), "uuid": ("UUID",), "sku": ("SKU",),
    "host_name": ("HostName",), "power_state": ("PowerState",), "state": ("Status", "State"),
    "switch_type": ("SwitchType",), "total_width": ("TotalSwitchWidth",), "width": ("Width",),
    "active_width": ("ActiveWidth",), "link_status": ("LinkStatus",), "port_type": ("PortType",),
    "max_pcie_type": ("PCIeInterface", "MaxPCIeType"), "pcie_type": ("PCIeInterface", "PCIeType"),
    "max_lanes": ("PCIeInterface", "MaxLanes"), "lanes_in_use": ("PCIeInterface", "LanesInUse"),
    "revision_id": ("RevisionId",), "zone_type": ("ZoneType",), "connection_type": ("ConnectionType",),
    "rx_bytes": ("RXBytes",), "tx_bytes": ("TXBytes",), "capacity_watts": ("PowerCapacityWatts",),
    "cores": ("TotalCores",), "reading_type": ("ReadingType",), "physical_context": ("PhysicalContext",),
    "speed_percent": ("SpeedPercent", "Reading"), "speed_rpm": ("SpeedPercent", "SpeedRPM"),
    "memory_gib": ("MemorySummary", "TotalSystemMemoryGiB"), "bios_version": ("BiosVersion",),
    "max_records": ("MaxNumberOfRecords",), "overwrite_policy": ("OverWritePolicy",),
}  # fmt: skip
LANES_GBPS = [rate * lanes for rate in (2.5, 5, 8, 16, 32, 64) for lanes in (1, 2, 4, 8, 16, 32)]


def listed(inventory: Inventory) -> dict[str, list[RedfishResource]]:
    """Return what an inventory lists of each type of resource; members of Thermal and Power are no resources."""
    lists: dict[str, Any] = {kind: getattr(inventory, name) for kind, name in KINDS.items()}
    lists["Chassis"], lists["PCIeDevice"] = (*inventory.chassis, *inventory.drawers), inventory.devices
    for kind, name in COMPONENTS.items():
        lists[kind] = [one for one in inventory.components if one.kind.value == name]
    return {kind: [one for one in found if "#" not in one.uri] for kind, found in lists.items()}


def value_of(body: dict[str, Any], steps: tuple[str, ...]) -> Any:
    value: Any = body
    for step in steps:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def facts_of(one: RedfishResource, body: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield each fact that the service tells of a resource: its name, as listed and as told."""
    told = {name: value_of(body, steps) for name, steps in FACTS.items()}
    told["speed_mhz"] = next((body[name] for name in ("OperatingSpeedMhz", "MaxSpeedMHz") if body.get(name)), None)
    told["capacity_bytes"] = body.get("CapacityBytes") or next(
        (body[name] * 2**20 for name in ("CapacityMiB", "MemoryChunkSizeMiB") if body.get(name)), None
    )
    for name, property_name in (("speed_gbps", "CurrentSpeedGbps"), ("max_speed_gbps", "MaxSpeedGbps")):
        told[name] = body.get(property_name)
        if told[name] and told[name] not in LANES_GBPS:
            # Divided by 2^30 where that makes a speed of PCIe of it.
            full = told[name] * 2**30 / 1e9
            told[name] = next((rate for rate in LANES_GBPS if math.isclose(rate, full, rel_tol=2e-3)), told[name])
    for name, value in told.items():
        if value is not None and hasattr(one, name):
            yield name, getattr(one, name), value


def compare(plain: PlainWalk, inventory: Inventory) -> Iterator[tuple[str, int, int, int, list[str]]]:
    """Yield each type of resource: how many there are, how many are listed, facts compared, and wrong ones."""
    kinds = plain.kinds()
    for kind, found in listed(inventory).items():
        there = {
            uri for uri in kinds[kind]
            if kind != "PCIeDevice" or value_of(plain.resources[uri], ("Status", "State")) != "Absent"
        }  # fmt: skip
        facts = [
            (f"{one.uri} {name}: {shown} for {value}", shown == value)
            for one in found
            if one.uri in there
            for name, shown, value in facts_of(one, plain.resources[one.uri])
        ]
        strange = [one.uri for one in found if one.uri not in there]
        wrong = [words for words, holds in facts if not holds] + strange
        yield kind, len(there), len(found), len(facts), wrong


def check(service: str, plain: PlainWalk, inventory: Inventory, *, least: int) -> None:
    """Print the table of a service, and hold that every count and fact in it is right."""
    rows = [row for row in compare(plain, inventory) if row[1] or row[2]]
    sys.stdout.write(f"\n{service}: {len(plain.resources)} resources, {len(plain.dead)} dead links\n")
    for kind, there, shown, facts, wrong in rows:
        sys.stdout.write(f"  {kind:<16} {there:>4} there {shown:>4} listed {facts:>5} facts {len(wrong):>3} wrong\n")
    assert [wrong for *_, wrong in rows if wrong] == []
    assert {row[0]: row[1] for row in rows} == {row[0]: row[2] for row in rows}
    assert sum(row[3] for row in rows) >= least


@pytest.mark.skipif(not FOLDERS, reason="../shared/redfish/mockups is missing: published services are served from it")
@pytest.mark.parametrize("folder", FOLDERS)
def test_a_published_mockup_is_listed_as_a_plain_crawl_finds_it(folder: str) -> None:
    check(folder, *walked(folder), least=40)


def is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@contextmanager
def sushy_emulator(folder: Path) -> Iterator[str]:
    """Run the emulator of sushy-tools with its fake systems, and yield its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    configuration = folder / "configuration.py"
    configuration.write_text(f"SUSHY_EMULATOR_STATE_DIR = {str(folder)!r}\n")
    command = [sys.executable, "-m", "sushy_tools.emulator.main", "--fake", "--interface", "127.0.0.1",
               "--port", str(port), "--config", str(configuration)]  # fmt: skip
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            wait_for(lambda: is_open(port), f"{url} did not get ready")
            yield url
        finally:
            process.terminate()


@pytest.mark.skipif(
    importlib.util.find_spec("sushy_tools") is None,
    reason="sushy-tools is not installed: its emulator is another live service (pip install sushy-tools)",
)
def test_the_emulator_of_sushy_is_listed_as_a_plain_crawl_finds_it(tmp_path: Path) -> None:
    with sushy_emulator(tmp_path) as url:
        plain, inventory = PlainWalk(url, ""), asyncio.run(walk(url, ""))
    check("sushy-tools", plain, inventory, least=5)
    problems = {problem.uri: problem.status for problem in inventory.problems}
    assert problems == dict.fromkeys(plain.dead, 404) | plain.failed


def emulated() -> dict[str, Answering]:
    """Return a service in the layout of DMTF's Interface Emulator.

    Resource blocks hold processors, memory and storage of their own, and no PCIe devices; composed systems are in one
    collection with physical ones; readings are null at the source.
    """
    service, systems, box = f"{ROOT}/CompositionService", f"{ROOT}/Systems", f"{ROOT}/Chassis/Chassis-1"
    blocks = [f"{service}/ResourceBlocks/RB-{number}" for number in (1, 2, 3)]
    resources = [
        resource(box, "Chassis", ChassisType="RackMount", SerialNumber="437XR1138R2", Model="3500RX",
                 Thermal={"@odata.id": f"{box}/Thermal"}),
        resource(f"{box}/Thermal", "Thermal", Temperatures=[
            {"@odata.id": f"{box}/Thermal#/Temperatures/0", "MemberId": "0", "Name": "CPU1", "ReadingCelsius": None}
        ]),
        resource(f"{systems}/System-1", "ComputerSystem", SystemType="Physical", SerialNumber="1", PowerState="On"),
        resource(f"{systems}/CS-1", "ComputerSystem", SystemType="Composed", Links={"ResourceBlocks": to(blocks[0])}),
        resource(f"{service}/ResourceZones/1", "Zone", Links={"ResourceBlocks": to(*blocks)}),
        resource(service, "CompositionService", ResourceBlocks=to(f"{service}/ResourceBlocks")[0],
                 ResourceZones=to(f"{service}/ResourceZones")[0]),
    ]  # fmt: skip
    for place, block in enumerate(blocks):
        parts = {"Processors": f"{block}/Processors/1", "Memory": f"{block}/Memory/1", "Storage": f"{block}/Storage/1"}
        state = "Composed" if place == 0 else "Unused"
        resources += [
            resource(block, "ResourceBlock", CompositionStatus={"CompositionState": state}, Links={"Zones": []},
                     **{name: to(uri) for name, uri in parts.items()}),
            resource(parts["Processors"], "Processor", ProcessorType="CPU", TotalCores=8, MaxSpeedMHz=2200),
            resource(parts["Memory"], "Memory", CapacityMiB=32768, OperatingSpeedMhz=2400),
            resource(parts["Storage"], "Storage", Drives=to(f"{block}/Storage/1/Drives/1")),
            resource(f"{block}/Storage/1/Drives/1", "Drive", CapacityBytes=899527000000, SerialNumber=f"D{place}"),
        ]  # fmt: skip
    members = {
        f"{ROOT}/Chassis": ("Chassis", box),
        systems: ("ComputerSystem", f"{systems}/System-1", f"{systems}/CS-1"),
        f"{service}/ResourceBlocks": ("ResourceBlock", *blocks),
        f"{service}/ResourceZones": ("Zone", f"{service}/ResourceZones/1"),
    }
    names = {"Chassis": to(f"{ROOT}/Chassis")[0], "Systems": to(systems)[0], "CompositionService": to(service)[0]}
    return (
        {ROOT: service_root(**names), f"{ROOT}/SessionService/Sessions": collection(ROOT, "Session")}
        | {uri: collection(uri, kind, *uris) for uri, (kind, *uris) in members.items()}
        | {each["@odata.id"]: each for each in resources}
    )


def test_the_layout_of_the_interface_emulator_is_listed_as_a_plain_crawl_finds_it() -> None:
    with NonsenseServer(emulated()) as server:
        plain, inventory = PlainWalk(server.url, ""), asyncio.run(walk(server.url, ""))
    check("the Interface Emulator's layout", plain, inventory, least=20)
    assert [one.composition_state for one in inventory.resource_blocks] == ["Composed", "Unused", "Unused"]
    assert [sensor.reading for sensor in inventory.sensors] == [None], "a reading that is null at the source"
