"""A chassis that offers less, or works by tasks, is the same chassis to everybody above the wire."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fabric.bmc.addresses import BmcAddress, CertificateTrust
from fabric.bmc.client import BmcClient
from fabric.bmc.composition import attach, detach, read_zone
from fabric.bmc.discovery import Discovery, discover
from fabric.bmc.errors import CompositionRefused, ServerFault, SignInRefused, TimedOut, Unreachable
from fabric.bmc.readings import ResourcePlan, plan_readings
from fabric.bmc.types import Dialect, Inventory
from falconweb.testing.processes import SimulatorProcess
from tests.bmc.conftest import pinned
from tests.bmc.nonsense import ROOT

ZONE = f"{ROOT}/Fabrics/PCIe/Zones/hostport1_H2"
NIC = f"{ROOT}/Fabrics/PCIe/Endpoints/drawer1slot7"


@pytest.fixture(scope="module")
def plain_chassis(certificates: Path) -> Iterator[SimulatorProcess]:
    """Run a chassis without sessions, $expand and reports, composed by the standard actions that answer with tasks."""
    options = ("--no-expand", "--no-sessions", "--no-report", "--dialect", "actions", "--bind-by-task")
    with SimulatorProcess(*options, certificate_directory=certificates) as process:
        yield process


def uris(inventory: Inventory) -> dict[str, list[str]]:
    """Return what is listed under each name."""
    names = ("chassis", "drawers", "slots", "devices", "functions", "switches", "ports", "port_metrics", "zones",
             "endpoints", "systems", "sensors", "fans", "log_services", "problems")  # fmt: skip
    return {name: [each.uri for each in getattr(inventory, name)] for name in names}


async def test_it_has_the_same_inventory(plain_chassis: SimulatorProcess, chassis: SimulatorProcess) -> None:
    async with BmcClient(pinned(plain_chassis)) as bmc:
        plain = await discover(bmc)
    async with BmcClient(pinned(chassis)) as bmc:
        full = await discover(bmc)
    assert uris(plain) == uris(full)
    assert not plain.problems
    assert (plain.dialect, full.dialect) == (Dialect.ZONE_ACTIONS, Dialect.ZONE_PATCH)
    assert (plain.service.expand, full.service.expand) == (False, True)


async def test_a_wrong_password_is_refused_by_basic_too(plain_chassis: SimulatorProcess) -> None:
    trust = CertificateTrust(fingerprint=plain_chassis.fingerprint)
    async with BmcClient(
        BmcAddress(url=plain_chassis.address, username="viewer", password="wrong", trust=trust)
    ) as bmc:
        with pytest.raises(SignInRefused):
            await discover(bmc)


async def test_attaching_follows_the_task_to_its_end(plain_chassis: SimulatorProcess) -> None:
    plain_chassis.set_speed(20.0)
    async with BmcClient(pinned(plain_chassis)) as bmc:
        before = await read_zone(bmc, ZONE)
        attached = await attach(bmc, Dialect.ZONE_ACTIONS, zone=before, endpoint_uri=NIC)
        assert NIC in attached.members
        detached = await detach(bmc, Dialect.ZONE_ACTIONS, zone=attached, endpoint_uri=NIC)
        assert detached.members == before.members
        with pytest.raises(CompositionRefused):
            await attach(bmc, Dialect.ZONE_PATCH, zone=detached, endpoint_uri=NIC)


async def test_its_readings_come_from_its_resources(plain_chassis: SimulatorProcess) -> None:
    async with BmcClient(pinned(plain_chassis)) as bmc:
        plan = await plan_readings(bmc, await discover(bmc))
        assert isinstance(plan, ResourcePlan)
        assert plan.period > 1
        assert len((await plan.read(bmc)).values) == len(plan.series) > 350
    assert max(plain_chassis.state()["max_in_flight"].values()) <= 4


async def test_a_refresh_that_breaks_off_loses_nothing(chassis: SimulatorProcess) -> None:
    async with BmcClient(pinned(chassis)) as bmc:
        discovery = Discovery(bmc)
        before = await discovery.walk()
        fault = chassis.fault("reset_connections")
        with pytest.raises((Unreachable, TimedOut, ServerFault)):
            await discovery.refresh()
        chassis.end_fault(fault)
        assert uris(await discovery.refresh()) == uris(before)
