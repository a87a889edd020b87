"""Hands on a chassis that FalconWeb knows nothing of: a client of somebody else's, with an account of the BMC."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from fabric.bmc.addresses import BmcAddress, CertificateTrust
from fabric.bmc.client import BmcClient
from fabric.bmc.composition import attach, detach, read_zone, set_drawer_mode
from fabric.bmc.types import Dialect, DrawerMode
from fabric.drift.services import drifts_explain
from fabric.inventory.models import Chassis, Device, Drawer, HostPort, Port
from falconweb.testing import SimulatorProcess

ACCOUNT = "operator"


def outside(chassis: Chassis, simulator: SimulatorProcess, do: Callable[[BmcClient], Awaitable[Any]]) -> None:
    """Do something at the BMC as its account 'operator'."""

    async def done() -> None:
        trust = CertificateTrust(fingerprint=simulator.fingerprint)
        address = BmcAddress(url=chassis.url, username=ACCOUNT, password=simulator.password, trust=trust)
        async with BmcClient(address) as bmc:
            await do(bmc)

    asyncio.run(done())


def put(chassis: Chassis, simulator: SimulatorProcess, device: Device, *, to: HostPort | None) -> None:
    """Attach a device elsewhere, or to nothing."""
    at = Device.objects.get(pk=device.pk).host_port

    async def done(bmc: BmcClient) -> None:
        if at is not None:
            await detach(bmc, Dialect.ZONE_PATCH, zone=await read_zone(bmc, at.uri), endpoint_uri=device.endpoint_uri)
        if to is not None:
            await attach(bmc, Dialect.ZONE_PATCH, zone=await read_zone(bmc, to.uri), endpoint_uri=device.endpoint_uri)

    outside(chassis, simulator, done)


def turn(chassis: Chassis, simulator: SimulatorProcess, drawer: Drawer, mode: DrawerMode) -> None:
    """Put a drawer into another mode."""

    async def done(bmc: BmcClient) -> None:
        await set_drawer_mode(bmc, drawer.uri, mode)

    outside(chassis, simulator, done)


def configure(chassis: Chassis, simulator: SimulatorProcess, port: Port, **properties: Any) -> None:
    """Configure a port."""

    async def done(bmc: BmcClient) -> None:
        etag = (await bmc.get(port.uri)).etag
        await bmc.patch(port.uri, properties, etag=etag)

    outside(chassis, simulator, done)


def recable(simulator: SimulatorProcess, port: str, host: str | None) -> None:
    """Move a cable by hand."""
    simulator.ask_control("POST", "/chassis/falcon-1/cabling", {"port": port, "host": host})


def explain(chassis: Chassis) -> None:
    """Ask the BMC's log, as the poller does after a walk."""

    address = chassis.address()

    async def asked() -> None:
        async with BmcClient(address) as bmc:
            await drifts_explain(chassis_id=chassis.pk, bmc=bmc)

    asyncio.run(asked())
