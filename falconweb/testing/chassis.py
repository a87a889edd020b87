"""A simulated chassis, its row in the database, and functions for tests of both.

    def test_a_network_card_is_seen(falcon_chassis):
        assert device_in(falcon_chassis, drawer=1, slot=7).kind == "nic"

The process starts within a quarter of a second, so that every test gets a chassis of its own, in the state of the
simulator's `falcon-1`, and leaves nothing behind for the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from falconweb.testing.people import PASSWORD
from falconweb.testing.processes import SimulatorProcess

if TYPE_CHECKING:
    from accounts.models import Tenant, User
    from fabric.bmc.types import Inventory
    from fabric.inventory.models import Chassis, Device, HostPort
    from fabric.operations.models import Operation, Plan

SPEED = 20.0  # simulated seconds per second: links train immediately
# Recorded walks, by the options of the simulator.
_recorded: dict[tuple[str, ...], Inventory] = {}


@pytest.fixture
def simulated_falcon(simulated_hosts: Path) -> Iterator[SimulatorProcess]:
    """A running `falcon-1` for this test; read its true state, or inject faults.

    def test_a_free_device_is_in_no_zone(simulated_falcon):
        assert "drawer1slot7" not in simulated_falcon.state()["zones"]["hostport1_H1"]

    def test_a_bmc_that_reboots(simulated_falcon):
        simulated_falcon.fault("bmc_reboot", seconds=2)
    """
    with SimulatorProcess("--hosts-root", str(simulated_hosts), chassis="falcon-1", password=PASSWORD) as process:
        process.set_speed(SPEED)
        yield process


@pytest.fixture
def falcon_chassis(transactional_db: None, simulated_falcon: SimulatorProcess) -> Chassis:
    """The row of `simulated_falcon`, walked once: drawers, slots, devices and host ports are there.

    Transactions are real, because operations are carried out in threads.

        def test_a_look_at_the_lab(falcon_chassis):
            assert falcon_chassis.drawers.count() == 2
    """
    return add_mirrored(simulated_falcon)


@pytest.fixture
def grant_to_tenant(falconweb_administrator: User, falconweb_tenant: Tenant) -> Callable[..., None]:
    """A function that grants devices and host ports to `falconweb_tenant`, as an administrator does.

    def test_a_granted_device_is_seen(falcon_chassis, grant_to_tenant, user_client):
        grant_to_tenant(device_in(falcon_chassis, drawer=1, slot=7), host_port_of(falcon_chassis, "H2"))
        assert len(user_client.get("/api/v1/chassis/").json()) == 1
    """
    from fabric.inventory.models import Device
    from fabric.leases.grants import device_grant, host_port_grant

    def grant(*things: Device | HostPort) -> None:
        for thing in things:
            if isinstance(thing, Device):
                device_grant(person=falconweb_administrator, device=thing, tenant=falconweb_tenant)
            else:
                host_port_grant(person=falconweb_administrator, host_port=thing, tenant=falconweb_tenant)

    return grant


def add_chassis(process: SimulatorProcess, *, name: str = "falcon-1") -> Chassis:
    """Store the row of a running simulated chassis, before any walk, and return it.

    def test_what_nobody_looked_at_has_no_devices(transactional_db, simulated_falcon):
        assert not add_chassis(simulated_falcon).devices.exists()
    """
    from fabric.inventory.models import Chassis

    row = Chassis(name=name, url=process.address, username="administrator", fingerprint=process.fingerprint)
    row.set_password(process.password)
    row.save()
    return row


def add_mirrored(process: SimulatorProcess, *, name: str = "falcon-1") -> Chassis:
    """Store the row of an unchanged simulated chassis, with the result of a walk, and return it.

    The first walk of a chassis with these options is recorded: later ones are spared.

        def test_a_chassis_has_two_drawers(transactional_db, simulated_falcon):
            assert add_mirrored(simulated_falcon).drawers.count() == 2
    """
    from fabric.inventory.models import Chassis
    from fabric.inventory.sync import inventory_apply

    row = add_chassis(process, name=name)
    if process.options not in _recorded:
        _recorded[process.options] = _walk(row)
    inventory_apply(chassis=row, inventory=_recorded[process.options])
    return Chassis.objects.get(pk=row.pk)


def mirror(chassis: Chassis) -> Chassis:
    """Walk a chassis' BMC, store the result, and return the fresh row. Raises BmcError where it cannot be read.

    def test_a_removed_device_is_missed(falcon_chassis, simulated_falcon):
        simulated_falcon.fault("surprise_removal", "drawer1slot7")
        mirror(falcon_chassis)
        assert device_in(falcon_chassis, drawer=1, slot=7).missing_since
    """
    from fabric.inventory.models import Chassis
    from fabric.inventory.sync import inventory_apply

    inventory_apply(chassis=chassis, inventory=_walk(chassis))
    return Chassis.objects.get(pk=chassis.pk)


def _walk(chassis: Chassis) -> Inventory:
    from fabric.bmc.client import BmcClient
    from fabric.bmc.discovery import discover

    async def walk() -> Inventory:
        async with BmcClient(address) as bmc:
            return await discover(bmc)

    address = chassis.address()
    return asyncio.run(walk())


def device_in(chassis: Chassis, *, drawer: int, slot: int) -> Device:
    """Return the device in a slot, as the newest walk found it; raises Device.DoesNotExist for an empty one.

    def test_the_lab_has_gpus(falcon_chassis):
        assert device_in(falcon_chassis, drawer=1, slot=1).kind == "gpu"
    """
    from fabric.inventory.models import Device

    return Device.objects.get(chassis=chassis, slot__drawer__number=drawer, slot__number=slot)


def host_port_of(chassis: Chassis, label: str) -> HostPort:
    """Return the host port with this label, `H1` to `H8`; raises HostPort.DoesNotExist where nothing is cabled to it.

    def test_a_host_is_cabled(falcon_chassis):
        assert host_port_of(falcon_chassis, "H2").host.name
    """
    from fabric.inventory.models import HostPort

    return HostPort.objects.get(chassis=chassis, label=label)


def carry_out(operation: Operation | UUID | str) -> Operation:
    """Carry out an operation (or that with an id from the API) as a worker does; returns it after its end.

    def test_a_detach(falcon_chassis, administrator_client):
        asked = {"device_id": device_in(falcon_chassis, drawer=1, slot=1).pk, "target_host_port_id": None}
        answer = administrator_client.post("/api/v1/operations/", asked, content_type="application/json")
        assert carry_out(answer.json()["id"]).state == "done"
    """
    from fabric.execution.services import execute
    from fabric.operations.models import Operation

    pk = operation.pk if isinstance(operation, Operation) else operation
    execute(str(pk), worker="falconweb.testing")
    return Operation.objects.get(pk=pk)


def carry_out_plan(plan: Plan | UUID | str) -> Plan:
    """Carry out an applied plan (or that with an id from the API) as the workers do; returns it afterwards.

    It has ended then, or waits for a decision.

        def test_a_plan_that_frees_two_gpus(falcon_chassis, administrator_client):
            gpus = [device_in(falcon_chassis, drawer=1, slot=slot) for slot in (1, 2)]
            wanted = {"attachments": [{"device_id": gpu.pk, "host_port_id": None} for gpu in gpus]}
            plan = administrator_client.post("/api/v1/plans/", wanted, content_type="application/json").json()
            administrator_client.post(f"/api/v1/plans/{plan['id']}/apply/", {}, content_type="application/json")
            assert carry_out_plan(plan["id"]).state == "done"
    """
    from fabric.execution.services import execute
    from fabric.operations.models import Operation, Plan
    from fabric.plans.jobs import plan_advance

    pk = plan.pk if isinstance(plan, Plan) else plan
    while True:
        first = Operation.objects.open().filter(plan=pk).in_turn().first()
        if first is not None:
            execute(str(first.pk), worker="falconweb.testing")
        else:
            plan_advance(pk)
            row: Plan = Plan.objects.get(pk=pk)
            if not row.is_active:
                return row
