"""Plans of a whole site while its parts are killed: workers, beat, the web, Valkey, a chassis, the database.

Each is ended by SIGKILL in the middle of a plan, as a power cut does, and started again by the launcher.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fabric.bmc.client import BmcClient
from fabric.bmc.log import read_log_entries
from fabric.bmc.types import Address, Trust
from tests.falconweb.operating import Operator, parent_of
from tests.postgres import PROGRAMS, PostgresServer
from tests.site import RunningSite, pids_naming
from tests.waiting import wait_for

pytestmark = pytest.mark.process

# A drawer of each chassis in which any host port reaches any slot.
PLANNED = {"falcon-1": (1, (1, 2, 3, 4, 5, 6), ("H1", "H2", "H3")), "falcon-2": (2, (1, 2, 3, 4), ("H3", "H4"))}
SLOW = {"kind": "slow", "path": "/Zones/", "method": "PATCH", "delay": 0.6}
NAMED = {
    "worker": "worker-{pid}@",
    "beat": "beat\0--loglevel",
    "web": "falconweb.asgi:application",
    "broker": "server 127.0.0.1:",
    "falcon-1": "simulator\0--chassis\0falcon-1",
}


def processes_of(site: RunningSite, part: str) -> set[int]:
    """Return the processes that a part of the site consists of."""
    found = pids_naming(NAMED[part].format(pid=site.process.pid))
    return {pid for pid in found if parent_of(pid) == site.process.pid}


def elsewhere(operator: Operator) -> dict[tuple[str, str], dict[str, Any]]:
    """Return a wanted place, other than that of now, for ten devices of two chassis, by chassis and slot."""
    wanted = {}
    for name, (drawer, slots, labels) in PLANNED.items():
        chassis, devices = operator.chassis(name), operator.devices(name)
        for number, slot in enumerate(slots):
            device = devices[f"drawer{drawer}slot{slot}"]
            free = [label for label in labels if label != device["host_port_label"]]
            label = free[number % len(free)]
            port = next(port for port in chassis["host_ports"] if port["label"] == label)
            zone = f"hostport{drawer}_{label}"
            wanted[name, f"drawer{drawer}slot{slot}"] = {"device": device["id"], "port": port["id"], "zone": zone}
    return wanted


def applied(operator: Operator, wanted: dict[tuple[str, str], dict[str, Any]]) -> str:
    """Plan and apply it; returns the plan's id."""
    attachments = [{"device_id": one["device"], "host_port_id": one["port"]} for one in wanted.values()]
    plan = operator.post("plans/", {"attachments": attachments})
    assert plan["objections"] == []
    return str(operator.post(f"plans/{plan['id']}/apply/", {})["id"])


def zones_of(site: RunningSite, name: str) -> dict[str, str]:
    """Return where each device of a chassis is attached, by the chassis itself."""
    zones = site.control(name, "GET", "/state")["zones"]
    return {member: zone for zone, members in zones.items() for member in members}


def is_shown(operator: Operator, name: str) -> bool:
    """Tell whether the site shows a chassis as it is."""
    zones = zones_of(operator.site, name)
    devices = operator.devices(name)
    shown = {
        place: f"hostport{place.removeprefix('drawer')[0]}_{device['host_port_label']}"
        for place, device in devices.items()
        if device["host_port_label"]
    }
    return shown == zones


def zone_writes(operator: Operator, name: str) -> int:
    """Return how often the site has changed a zone of a chassis, as the chassis' own log has it."""
    data = operator.site.data
    port = json.loads((data / "simulator" / "ports.json").read_text())[name][0]
    said = dict(line.partition(" ")[::2] for line in (data / "logs" / f"{name}.log").read_text().splitlines())
    address = Address(
        url=f"https://127.0.0.1:{port}",
        username="administrator",
        password=(data / "secrets" / "simulator_password").read_text().strip(),
        trust=Trust(fingerprint=said["fingerprint"]),
    )

    async def counted() -> int:
        async with BmcClient(address) as bmc:
            entries = await read_log_entries(bmc, datetime.fromtimestamp(0, UTC), most=5000)
        return sum(one.originator == "administrator" and "ZoneModified" in one.message_id for one in entries)

    return asyncio.run(counted())


def carried_out(operator: Operator, plan: str) -> dict[str, Any]:
    """Wait until a plan has ended, whatever does not answer meanwhile; one that stops is resumed, at last left."""
    end = time.monotonic() + 110
    decisions = ["resume", "resume", "cancel"]
    while True:
        assert time.monotonic() < end, "the plan did not end"
        with contextlib.suppress(OSError):
            found: dict[str, Any] = operator.get(f"plans/{plan}/")
            if found["finished_at"]:
                return found
            if found["state"] == "stopped":
                operator.post(f"plans/{plan}/{decisions[0]}/", {})
                decisions.pop(0)
        time.sleep(0.3)


def is_at_work(operator: Operator, plan: str) -> bool:
    """Tell whether operations of a plan are at their chassis, after the first."""
    operations = operator.get(f"plans/{plan}/")["operations"]
    running = [operator.get(f"operations/{one['id']}/") for one in operations if one["state"] == "running"]
    steps = {step["name"] for one in running for step in one["steps"] if step["state"] == "running"}
    return "done" in {one["state"] for one in operations} and bool(steps) and steps <= {"Detach", "Attach"}


def killed_in_the_middle(operator: Operator, part: str, plan: str) -> None:
    """Kill a part of the site while an operation of a plan is carried out, after the first; it comes back."""
    wait_for(lambda: is_at_work(operator, plan), lambda: f"it did not begin: {operator.get(f'plans/{plan}/')}", 60.0)
    before = processes_of(operator.site, part)
    assert len(before) == 1
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: processes_of(operator.site, part) - before, f"{part} was not started again")


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """The administrator of a site of this module's own, which has seen both chassis."""
    with RunningSite(tmp_path_factory.mktemp("kills")) as site:
        operator = Operator(site)
        begin(operator)
        yield operator


@pytest.fixture(autouse=True)
def no_fault_stays(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "operator" in request.fixturenames:
        for name in PLANNED:
            request.getfixturevalue("operator").site.control(name, "DELETE", "/faults")


def begin(operator: Operator) -> None:
    """Wait until both chassis were seen."""
    for name in PLANNED:
        operator.site.control(name, "POST", "/time", {"speed": 20})
        wait_for(lambda name=name: len(operator.devices(name)) >= 11, f"{name} was not seen")  # type: ignore[misc]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("part", ["worker", "beat", "web", "broker"])
def test_a_plan_is_carried_out_to_its_end_whatever_is_killed_and_nothing_is_done_twice(
    operator: Operator, part: str
) -> None:
    wanted = elsewhere(operator)
    writes = {name: zone_writes(operator, name) for name in PLANNED}
    for name in PLANNED:
        operator.site.control(name, "POST", "/faults", SLOW)
    plan = applied(operator, wanted)
    killed_in_the_middle(operator, part, plan)
    ended = carried_out(operator, plan)
    assert (ended["state"], ended["sentence"]) == ("done", "")
    assert [one["state"] for one in ended["operations"]] == ["done"] * len(wanted)
    for name, (_, slots, _) in PLANNED.items():
        zones = zones_of(operator.site, name)
        assert {key: one["zone"] for key, one in wanted.items() if key[0] == name} == {
            (name, f"drawer{PLANNED[name][0]}slot{slot}"): zones[f"drawer{PLANNED[name][0]}slot{slot}"]
            for slot in slots
        }
        # Each is taken out of one zone and put into another, once.
        assert zone_writes(operator, name) - writes[name] == 2 * len(slots)
        wait_for(lambda name=name: is_shown(operator, name), f"{name} is not shown as it is")  # type: ignore[misc]


def test_a_plan_whose_chassis_dies_and_forgets_everything_ends_in_what_is_true(operator: Operator) -> None:
    """A simulated chassis that is started again is as at its first start: whatever was switched is undone."""
    site, wanted = operator.site, elsewhere(operator)
    site.control("falcon-1", "POST", "/faults", SLOW)
    plan = applied(operator, wanted)
    killed_in_the_middle(operator, "falcon-1", plan)
    wait_for(lambda: answers(site, "falcon-1"), "the chassis did not come back")
    site.control("falcon-1", "POST", "/time", {"speed": 20})
    # What is neither where it was nor where it shall be was put there by others, for all that the site knows.
    ended = carried_out(operator, plan)
    assert ended["state"] == "done" or "by somebody else" in ended["sentence"], ended["sentence"]
    for name in PLANNED:
        wait_for(lambda name=name: is_shown(operator, name), f"{name} is not shown as it is")  # type: ignore[misc]
    # What was lost is no secret: the same wish leads there, by what is missing of it.
    again = carried_out(operator, applied(operator, wanted))
    assert again["state"] == "done"
    assert {key: zones_of(site, key[0]).get(key[1]) for key in wanted} == {
        key: one["zone"] for key, one in wanted.items()
    }


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.skipif(PROGRAMS is None, reason="PostgreSQL is not installed")
def test_a_plan_waits_for_a_database_that_is_away_and_loses_nothing(tmp_path: Path) -> None:
    with PostgresServer() as server, RunningSite(tmp_path, DATABASE_URL=server.url) as site:
        operator = Operator(site)
        begin(operator)
        for name in PLANNED:
            site.control(name, "POST", "/faults", SLOW)
        wanted = elsewhere(operator)
        plan = applied(operator, wanted)
        wait_for(lambda: is_at_work(operator, plan), "the plan did not begin")
        server.stop()
        time.sleep(60)
        server.start()
        ended = carried_out(operator, plan)
        assert (ended["state"], ended["sentence"]) == ("done", "")
        assert [one["state"] for one in ended["operations"]] == ["done"] * len(wanted)
        for name, (_, slots, _) in PLANNED.items():
            assert zone_writes(operator, name) == 2 * len(slots)
            wait_for(lambda name=name: is_shown(operator, name), f"{name} is not shown as it is")  # type: ignore[misc]


def answers(site: RunningSite, name: str) -> bool:
    with contextlib.suppress(OSError):
        return bool(site.control(name, "GET", "/state"))
    return False
