"""Published services that nobody here wrote: the inventory has what a plain walk of the tree finds."""

from __future__ import annotations

import asyncio
import base64
import functools
import http.client
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from fabric.bmc.addresses import BmcAddress
from fabric.bmc.client import BmcClient
from fabric.bmc.discovery import Discovery, discover
from fabric.bmc.errors import SignInRefused
from fabric.bmc.types import Inventory, ProblemKind
from tests.bmc.conftest import SHARED, serve_mockup
from tests.bmc.test_inventory_command import run
from tests.turns import in_turn

MOCKUPS = SHARED / "mockups"
FOLDERS = sorted(path.name for path in MOCKUPS.iterdir() if path.is_dir()) if MOCKUPS.is_dir() else []
# Open services and protected ones.
SERVED = [
    (folder, credentials)
    for turn, folder in enumerate(FOLDERS)
    for credentials in in_turn(["", "admin:secret"], turn, of=2)
]
pytestmark = [pytest.mark.process, pytest.mark.skipif(not FOLDERS, reason="../shared/redfish/mockups is missing")]

KINDS = {
    "PCIeFunction": "functions",
    "Switch": "switches",
    "Port": "ports",
    "PortMetrics": "port_metrics",
    "Zone": "zones",
    "Endpoint": "endpoints",
    "Connection": "connections",
    "VirtualCXLSwitch": "virtual_switches",
    "ResourceBlock": "resource_blocks",
    "ComputerSystem": "systems",
    "Sensor": "sensors",
    "Fan": "fans",
    "LogService": "log_services",
}
LISTS = ("chassis", "drawers", "slots", "devices", *KINDS.values())


def links_of(value: Any) -> Iterator[str]:
    """Yield every @odata.id below a value."""
    if isinstance(value, dict):
        for name, child in value.items():
            if name == "@odata.id" and isinstance(child, str):
                yield child
            else:
                yield from links_of(child)
    elif isinstance(value, list):
        for child in value:
            yield from links_of(child)


class PlainWalk:
    """Follows every link from the root with the standard library alone, and sorts what it finds by @odata.type."""

    def __init__(self, url: str, credentials: str) -> None:
        self.resources: dict[str, dict[str, Any]] = {}
        self.dead: set[str] = set()
        self.failed: dict[str, int] = {}  # other answers than success, by status
        self.foreign: set[str] = set()
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
        headers = {"Authorization": "Basic " + base64.b64encode(credentials.encode()).decode()} if credentials else {}
        waiting = ["/redfish/v1"]
        seen = set(waiting)
        while waiting:
            path = waiting.pop()
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            told = answer.read()
            if answer.status == 404:
                self.dead.add(path)
                continue
            if answer.status != 200:
                self.failed[path] = answer.status
                continue
            body = json.loads(told)
            self.resources[path] = body
            for link in links_of(body):
                target = link.split("#")[0].rstrip("/")
                if not target.startswith("/"):
                    self.foreign.add(target)
                elif target not in seen:
                    seen.add(target)
                    waiting.append(target)
        connection.close()

    def kinds(self) -> dict[str, set[str]]:
        """Return the paths of each kind of resource."""
        found: dict[str, set[str]] = defaultdict(set)
        for path, body in self.resources.items():
            match = re.match(r"#\s*(\w+)\.", str(body.get("@odata.type", "")))
            # A template of what a collection creates is no member.
            if match and not path.endswith("/Capabilities"):
                found[match[1]].add(path)
        return found


async def walk(url: str, credentials: str) -> Inventory:
    username, _, password = credentials.partition(":")
    async with BmcClient(BmcAddress(url=url, username=username, password=password)) as bmc:
        return await discover(bmc, everything=True)


@functools.cache
def walked(folder: str, credentials: str | None = None) -> tuple[PlainWalk, Inventory]:
    """Return both walks of a published service; each takes seconds, and the trees never change."""
    if credentials is None:
        return walked(folder, dict(SERVED)[folder])
    with serve_mockup(MOCKUPS / folder, credentials) as url:
        return PlainWalk(url, credentials), asyncio.run(walk(url, credentials))


@pytest.mark.parametrize(("folder", "credentials"), SERVED, ids=lambda said: {"": "open"}.get(said, said))
def test_every_resource_that_a_plain_walk_finds_is_listed(folder: str, credentials: str) -> None:
    plain, inventory = walked(folder, credentials)
    kinds = plain.kinds()
    for kind, name in KINDS.items():
        listed = [resource.uri for resource in getattr(inventory, name)]
        assert {uri for uri in listed if "#" not in uri} == kinds[kind], kind
        assert len(set(listed)) == len(listed), kind
    assert {each.uri for each in (*inventory.chassis, *inventory.drawers)} == kinds["Chassis"]
    present = {uri for uri in kinds["PCIeDevice"] if plain.resources[uri].get("Status", {}).get("State") != "Absent"}
    assert {device.uri for device in inventory.devices} == present
    problems = {problem.uri: problem.kind for problem in inventory.problems}
    assert {uri for uri, kind in problems.items() if kind is ProblemKind.DEAD_LINK} == plain.dead
    assert {uri for uri, kind in problems.items() if kind is ProblemKind.FOREIGN_LINK} == plain.foreign
    assert not plain.failed
    assert len(plain.resources) > 50
    assert kinds["Chassis"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_identifying_fields_are_as_the_service_gave_them(folder: str) -> None:
    plain, inventory = walked(folder)
    names = {
        "serial_number": "SerialNumber",
        "part_number": "PartNumber",
        "model": "Model",
        "class_code": "ClassCode",
        "revision_id": "RevisionId",
    }
    for resource in (*inventory.chassis, *inventory.devices, *inventory.switches, *inventory.functions):
        body = plain.resources[resource.uri]
        assert resource.id == body["Id"]
        assert resource.name == body["Name"]
        for field, name in names.items():
            if hasattr(resource, field) and body.get(name) is not None:
                assert getattr(resource, field) == body[name]


@pytest.mark.parametrize("folder", FOLDERS)
def test_members_of_the_older_thermal_and_power_are_listed_with_a_pointer(folder: str) -> None:
    plain, inventory = walked(folder)
    kinds = plain.kinds()
    # What the sensors and fans of a chassis tell as well is read once.
    told = {(uri.rpartition("/Sensors/")[0], plain.resources[uri].get("ReadingType")) for uri in kinds["Sensor"]}
    cooled = {uri.rpartition("/ThermalSubsystem/")[0] for uri in kinds["Fan"]}
    groups = {"Temperatures": "Temperature", "Voltages": "Voltage", "PowerControl": ""}
    expected = {
        f"{uri}#/{group}/{index}"
        for uri in kinds["Thermal"] | kinds["Power"]
        for group, kind in groups.items()
        for index in range(len(plain.resources[uri].get(group, [])))
        if (uri.rpartition("/")[0], kind) not in told
    }
    assert {sensor.uri for sensor in inventory.sensors if "#" in sensor.uri} == expected
    fans = {
        f"{uri}#/Fans/{index}"
        for uri in kinds["Thermal"]
        for index in range(len(plain.resources[uri].get("Fans", [])))
        if uri.rpartition("/")[0] not in cooled
    }
    assert {fan.uri for fan in inventory.fans if "#" in fan.uri} == fans


@pytest.mark.parametrize("folder", ["public-cxl", "rsd-pcie-fabric"])
async def test_a_refresh_of_an_unchanged_service_changes_nothing(folder: str) -> None:
    with serve_mockup(MOCKUPS / folder) as url:
        async with BmcClient(BmcAddress(url=url)) as bmc:
            discovery = Discovery(bmc)
            first = await discovery.walk()
            assert await discovery.refresh() == first


def test_the_real_pcie_fabric_is_understood() -> None:
    _, inventory = walked("rsd-pcie-fabric")
    (port,) = inventory.ports
    assert (port.port_type, port.width, port.speed_gbps, port.max_speed_gbps) == ("UpstreamPort", 4, 32.0, 64.0)
    (zone,) = inventory.zones
    assert [uri.rsplit("/", 1)[-1] for uri in zone.endpoint_uris] == ["HostRootComplex1", "NVMeDrivePF2"]
    (device,) = inventory.devices
    assert (device.kind.value, device.vendor_id, device.class_code) == ("nvme", "0x8086", "0x10802")


async def test_a_wrong_password_is_refused_before_anything_is_walked() -> None:
    with serve_mockup(MOCKUPS / "public-cxl", "admin:secret") as url:
        async with BmcClient(BmcAddress(url=url, username="admin", password="guess-me")) as bmc:
            with pytest.raises(SignInRefused) as refusal:
                await discover(bmc)
    assert "guess-me" not in str(refusal.value)


async def test_without_a_name_a_protected_service_is_listed_as_refused() -> None:
    with serve_mockup(MOCKUPS / "public-cxl", "admin:secret") as url:
        async with BmcClient(BmcAddress(url=url)) as bmc:
            inventory = await discover(bmc)
    assert not inventory.chassis
    assert {problem.kind for problem in inventory.problems} == {ProblemKind.REFUSED}


@pytest.mark.parametrize(
    ("folder", "credentials"), [*in_turn(SERVED, 0, of=2)], ids=lambda said: {"": "open"}.get(said, said)
)
def test_the_command_prints_every_list_as_json(folder: str, credentials: str, tmp_path: Path) -> None:
    user, _, password = credentials.partition(":")
    (tmp_path / "password").write_text(password + "\n")
    signing = ["--user", user, "--password-file", str(tmp_path / "password")] if user else []
    plain, _ = walked(folder, credentials)
    with serve_mockup(MOCKUPS / folder, credentials) as url:
        done = run(url, "--json", *signing)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    for name in LISTS:
        assert all(entry["uri"] and entry["name"] for entry in printed[name]), name
    for kind, name in KINDS.items():
        assert {entry["uri"] for entry in printed[name] if "#" not in entry["uri"]} == plain.kinds()[kind], kind
    assert {entry["uri"] for entry in printed["problems"]} == plain.dead | plain.foreign
