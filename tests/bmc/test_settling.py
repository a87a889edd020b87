"""A BMC is given the time that it needs to show a change, and what it drops from a zone at a write is put back."""

from __future__ import annotations

from typing import Any

import pytest

from fabric.bmc import client, settling
from fabric.bmc.client import BmcClient
from fabric.bmc.composition import attach, detach, read_zone
from fabric.bmc.errors import CompositionRefused
from fabric.bmc.settling import FIRST_SECONDS, MAX_SECONDS, MIN_SECONDS, settle_learned, settle_limit
from fabric.bmc.types import Dialect
from falconweb.testing.processes import SimulatorProcess
from tests.bmc.conftest import pinned
from tests.bmc.nonsense import ROOT, Asked, NonsenseServer, Reply

FABRIC = f"{ROOT}/Fabrics/PCIe"
ENDPOINTS = f"{FABRIC}/Endpoints"
H1, H2 = f"{FABRIC}/Zones/hostport1_H1", f"{FABRIC}/Zones/hostport1_H2"
NIC, TAKEN = f"{ENDPOINTS}/drawer1slot7", f"{ENDPOINTS}/drawer1slot1"
PATCH = Dialect.ZONE_PATCH


@pytest.fixture(autouse=True)
async def free_nic(bmc: BmcClient, chassis: SimulatorProcess) -> None:
    """Leave the NIC of drawer 1 unattached, and nothing broken."""
    chassis.clear_faults()
    for uri in (H1, H2):
        await detach(bmc, PATCH, zone=await read_zone(bmc, uri), endpoint_uri=NIC)


def test_a_bmc_is_given_long_at_first_then_a_multiple_of_what_was_seen() -> None:
    assert settle_limit(None) == FIRST_SECONDS
    assert settle_limit(0.1) == MIN_SECONDS
    assert settle_limit(8.0) == 32.0
    assert settle_limit(60.0) == MAX_SECONDS


def test_a_slower_change_counts_at_once_and_faster_ones_little_by_little() -> None:
    known = settle_learned(None, 1.0)
    assert known == 1.0
    known = settle_learned(known, 8.0)
    assert known == 8.0
    seen = [known := settle_learned(known, 1.0) for _ in range(20)]
    assert seen == sorted(seen, reverse=True)
    assert 6.0 < seen[0] < 7.0
    assert 1.0 < seen[-1] < 1.5


async def test_a_change_that_is_shown_late_is_waited_for_and_its_time_learned(
    bmc: BmcClient, chassis: SimulatorProcess
) -> None:
    await attach(bmc, PATCH, zone=await read_zone(bmc, H2), endpoint_uri=NIC)
    quick = bmc.settle_seconds or 0.0
    assert quick > 0
    chassis.fault("late_bind", delay=1.0)
    zone = await detach(bmc, PATCH, zone=await read_zone(bmc, H2), endpoint_uri=NIC)
    assert NIC not in zone.members
    assert max(quick, 0.5) < (bmc.settle_seconds or 0.0) < 30.0


async def test_a_change_that_is_not_shown_in_time_is_none_and_the_next_one_gets_long_again(
    bmc: BmcClient, chassis: SimulatorProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    bmc.settle_seconds = 0.01
    monkeypatch.setattr(settling, "MIN_SECONDS", 0.3)
    chassis.fault("late_bind", delay=600.0)
    with pytest.raises(CompositionRefused, match="accepted the change, but zone"):
        await attach(bmc, PATCH, zone=await read_zone(bmc, H2), endpoint_uri=NIC)
    assert bmc.settle_seconds is None


@pytest.mark.parametrize("dialect", [Dialect.ZONE_PATCH, Dialect.ZONE_ACTIONS])
async def test_a_task_at_another_host_name_is_followed_at_the_address_that_was_entered(dialect: Dialect) -> None:
    with SimulatorProcess("--bind-by-task", "--slow-bind", "0.4") as process:
        process.fault("foreign_location")
        async with BmcClient(pinned(process)) as bmc:
            zone = await attach(bmc, dialect, zone=await read_zone(bmc, H2), endpoint_uri=NIC)
    assert NIC in zone.members


async def test_a_task_that_cannot_be_read_is_given_the_time_of_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(client, "MIN_TASK_POLL_SECONDS", 0.01)
    held: dict[str, Any] = {"Id": "1", "Name": "Zone 1", "Links": {"Endpoints": [{"@odata.id": TAKEN}]}}
    reads = iter(range(5))

    def zone(_asked: Asked) -> dict[str, Any]:
        late = [{"@odata.id": NIC}] if next(reads, None) is None else []
        return held | {"Links": {"Endpoints": [*held["Links"]["Endpoints"], *late]}}

    accepted = Reply(202, {}, {"Location": "https://bmc.example/tasks/1"})
    with NonsenseServer({H1: zone, f"PATCH {H1}": accepted}) as server:
        async with server.client() as bmc:
            found = await attach(bmc, PATCH, zone=await read_zone(bmc, H1), endpoint_uri=NIC)
    assert found.members == (TAKEN, NIC)
    assert {asked.path for asked in server.asked} == {H1}


@pytest.mark.parametrize("dialect", [Dialect.ZONE_PATCH, Dialect.ZONE_ACTIONS])
async def test_what_a_refusal_wiped_is_put_back_and_said(
    dialect: Dialect, bmc: BmcClient, chassis: SimulatorProcess
) -> None:
    before = chassis.state()["zones"]
    chassis.fault("wiping_refusal", count=1)
    with pytest.raises(CompositionRefused, match=r"hostport1_H1.* dropped: they were put back\.") as refusal:
        await attach(bmc, dialect, zone=await read_zone(bmc, H2), endpoint_uri=TAKEN)
    assert refusal.value.details["lost"] == [f"{ENDPOINTS}/{name}" for name in before["hostport1_H2"]]
    assert refusal.value.details["left"] == []
    assert chassis.state()["zones"] == before


def zone_server(listed: list[str], after: list[str], status: int) -> dict[str, Any]:
    """Return the routes of a zone that has `after` in place of `listed` once the first PATCH is answered."""
    members = listed

    def zone(_asked: Asked) -> dict[str, Any]:
        return {"Id": "1", "Name": "Zone 1", "Links": {"Endpoints": [{"@odata.id": uri} for uri in members]}}

    def patched(_asked: Asked) -> Reply:
        nonlocal members
        members = after
        return Reply(status, {"error": {"message": "No."}} if status >= 400 else {})

    return {H1: zone, f"PATCH {H1}": patched}


@pytest.mark.parametrize(("status", "said"), [(409, "No"), (200, "accepted the change"), (500, "No")])
async def test_what_cannot_be_put_back_is_said_too(status: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "FIRST_SECONDS", 0.1)
    with NonsenseServer(zone_server([TAKEN, f"{ENDPOINTS}/2"], [], status)) as server:
        async with server.client() as bmc:
            with pytest.raises(CompositionRefused, match=f"{said}.*2 could not be put back"):
                await attach(bmc, PATCH, zone=await read_zone(bmc, H1), endpoint_uri=NIC)


async def test_a_detachment_that_is_done_and_answered_with_an_error_is_not_undone() -> None:
    with NonsenseServer(zone_server([TAKEN, NIC], [TAKEN], 409)) as server:
        async with server.client() as bmc:
            with pytest.raises(CompositionRefused, match=r"^No\.$"):
                await detach(bmc, PATCH, zone=await read_zone(bmc, H1), endpoint_uri=NIC)
    assert len(server.paths("PATCH")) == 1


async def test_a_zone_that_somebody_else_changed_meanwhile_is_not_restored() -> None:
    with NonsenseServer(zone_server([TAKEN, f"{ENDPOINTS}/2"], [TAKEN], 412)) as server:
        async with server.client() as bmc:
            with pytest.raises(Exception, match="changed by somebody else"):
                await attach(bmc, PATCH, zone=await read_zone(bmc, H1), endpoint_uri=NIC)
    assert len(server.paths("PATCH")) == 1
