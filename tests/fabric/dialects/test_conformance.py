"""Each dialect against a simulated service that has it alone, over HTTPS: what any dialect must do, as a table.

A row is a dialect of the simulator, a column a case; the end of a run prints the table. One row is tried by day.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
from django.test import Client

from accounts.models import User
from core.errors import Conflict
from core.failpoints import Failpoint, set_failpoint_handler
from fabric.allocation.services import allocation_check, allocation_export, allocation_plan
from fabric.bmc.addresses import BmcAddress, CertificateTrust
from fabric.bmc.client import BmcClient
from fabric.bmc.composition import attach, detach, read_zone
from fabric.bmc.dialects import HeldZone
from fabric.bmc.errors import CompositionRefused, ZoneChanged
from fabric.bmc.types import Dialect, DrawerMode
from fabric.drift.models import Drift
from fabric.inventory.models import Chassis, Device, Drawer, HostPort
from fabric.operations.models import Operation
from fabric.operations.services import operation_cancel, operation_request
from fabric.plans.jobs import plan_cancel
from fabric.plans.rules import DesiredState
from fabric.plans.services import plan_apply, plan_create
from falconweb.testing import (
    SimulatorProcess,
    add_mirrored,
    carry_out,
    carry_out_plan,
    device_in,
    host_port_of,
    mirror,
)
from tests.fabric.conftest import put_back
from tests.turns import at_night

Found = TypeVar("Found")

# What the site finds of each service.
ROWS = {
    "patch": Dialect.ZONE_PATCH,
    "psme-old": Dialect.ZONE_PATCH,
    "pnc": Dialect.ZONE_PATCH,
    "actions": Dialect.ZONE_ACTIONS,
    "zones": Dialect.ZONE_POST,
    "zones-pools": Dialect.ZONE_POST,
    "connections": Dialect.CONNECTIONS,
    "connection-patch": Dialect.CONNECTION_PATCH,
    "blocks": Dialect.RESOURCE_BLOCKS,
    "block-patch": Dialect.BLOCK_PATCH,
    "systems": Dialect.SYSTEM_POST,
    "compose": Dialect.COMPOSE,
    "cxl": Dialect.PORT_LINKS,
}
# Zones that are patched are those of all other tests.
BY_DAY = "connections"


@dataclass
class Bench:
    """A simulated chassis of one dialect, mirrored, and who composes it."""

    process: SimulatorProcess
    chassis: Chassis
    person: User

    @property
    def dialect(self) -> Dialect:
        return Dialect(self.chassis.dialect)

    def device(self, slot: int, drawer: int = 1) -> Device:
        return device_in(self.chassis, drawer=drawer, slot=slot)

    def port(self, label: str) -> HostPort:
        return host_port_of(self.chassis, label)

    def truth(self) -> dict[str, list[str]]:
        """Return the devices of each host port by its label, as they are."""
        zones = self.process.state()["zones"].items()
        return {name.rpartition("_")[2]: sorted(members) for name, members in zones}

    def shown(self) -> dict[str, list[str]]:
        """Return the same as the site shows it."""
        found: dict[str, list[str]] = {port.label: [] for port in self.chassis.hostports.filter(missing_since=None)}
        for device in Device.objects.filter(missing_since=None).exclude(host_port=None).select_related("slot__drawer"):
            assert device.slot is not None
            assert device.slot.drawer is not None
            assert device.host_port is not None
            found[device.host_port.label].append(f"drawer{device.slot.drawer.number}slot{device.slot.number}")
        return {label: sorted(names) for label, names in found.items()}

    def move(self, slot: int, label: str | None) -> Operation:
        """Request the attachment of a device of drawer 1, or its detachment, and carry it out."""
        return carry_out(self.request(slot, label))

    def request(self, slot: int, label: str | None) -> Operation:
        target = None if label is None else self.port(label)
        return operation_request(person=self.person, device=self.device(slot), target=target)

    def at_the_bmc(self, work: Callable[[BmcClient], Awaitable[Found]]) -> Found:
        """Do something at the BMC beside the site, as its account 'operator'."""
        trust = CertificateTrust(fingerprint=self.process.fingerprint)
        password = self.process.password
        address = BmcAddress(url=self.chassis.url, username="operator", password=password, trust=trust)

        async def done() -> Found:
            async with BmcClient(address) as bmc:
                return await work(bmc)

        return asyncio.run(done())

    def foreign(self, slot: int, label: str, *, present: bool) -> None:
        """Let somebody else attach or detach a device of drawer 1."""
        uri, member, dialect = self.port(label).uri, self.device(slot).endpoint_uri, self.dialect

        async def change(bmc: BmcClient) -> None:
            zone = await read_zone(bmc, uri, dialect)
            await (attach if present else detach)(bmc, dialect, zone=zone, endpoint_uri=member)

        self.at_the_bmc(change)

    def write(self, slot: int, label: str, zone: HeldZone, *, present: bool = True, drawer: int = 1) -> HeldZone:
        """Attach or detach at the BMC what somebody decided on who had read a zone."""
        member, dialect = self.device(slot, drawer).endpoint_uri, self.dialect
        change = attach if present else detach
        return self.at_the_bmc(lambda bmc: change(bmc, dialect, zone=zone, endpoint_uri=member))

    def read(self, label: str) -> HeldZone:
        """Read a host port at the BMC."""
        uri, dialect = self.port(label).uri, self.dialect
        return self.at_the_bmc(lambda bmc: read_zone(bmc, uri, dialect))


def meanwhile(name: Failpoint, happen: Callable[[], Any]) -> None:
    """Let something happen at a failpoint, once; it has a thread of its own, as the loop there goes on."""
    left, failed = [happen], []

    def run(work: Callable[[], Any]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - raised where the thread was started
            failed.append(error)

    def reached(reached_name: Failpoint, about: object = None) -> None:
        if reached_name != name or not left:
            return
        thread = threading.Thread(target=run, args=(left.pop(),))
        thread.start()
        thread.join()
        if failed:
            raise failed[0]

    set_failpoint_handler(reached)


# --- the cases ----------------------------------------------------------------------------------------------------


def attached(bench: Bench) -> None:
    assert bench.move(7, "H3").state == "done"
    assert bench.truth()["H3"] == ["drawer1slot7"]


def moved(bench: Bench) -> None:
    assert bench.move(1, "H2").state == "done"
    assert "drawer1slot1" not in bench.truth()["H1"]
    assert bench.truth()["H2"] == ["drawer1slot1", "drawer1slot5", "drawer1slot6"]


def detached(bench: Bench) -> None:
    assert bench.move(1, None).state == "done"
    assert bench.truth()["H1"] == ["drawer1slot2", "drawer1slot3", "drawer1slot4"]


def etag_lost_between_read_and_write(bench: Bench) -> None:
    zone = bench.read("H2")
    meanwhile("bmc.attach.request", lambda: bench.foreign(6, "H2", present=False))
    try:
        bench.write(7, "H2", zone)
        written = True
    except ZoneChanged:
        written = False
    # Where devices are added one by one, nothing of the other's is written; else nothing at all.
    assert bench.truth()["H2"] == ["drawer1slot5", *(["drawer1slot7"] if written else [])]
    meanwhile("bmc.detach.request", lambda: bench.foreign(5, "H2", present=False))
    with pytest.raises(ZoneChanged):
        bench.write(5, "H2", bench.read("H2"), present=False)
    assert "drawer1slot5" not in bench.truth()["H2"]


def answered_by_a_task(bench: Bench) -> None:
    assert bench.move(7, "H3").state == "done"
    assert bench.move(7, "H2").state == "done"
    assert bench.truth()["H2"] == ["drawer1slot5", "drawer1slot6", "drawer1slot7"]


def shown_later_without_a_task(bench: Bench) -> None:
    bench.process.fault("late_bind", delay=0.5)
    assert bench.move(7, "H3").state == "done"
    assert bench.truth()["H3"] == ["drawer1slot7"]


def refused_with_a_sentence(bench: Bench) -> None:
    # The card is free, and the host port is cabled to another drawer.
    carry_out(operation_request(person=bench.person, device=bench.device(1, drawer=2), target=None))
    before = bench.truth()
    with pytest.raises(CompositionRefused, match="drawer") as refusal:
        bench.write(1, "H3", bench.read("H3"), drawer=2)
    assert refusal.value.answered == 409
    assert bench.truth() == before
    # What somebody else takes away at the same moment is not put back.
    meanwhile("bmc.attach.request", lambda: bench.foreign(6, "H2", present=False))
    with pytest.raises((CompositionRefused, ZoneChanged)):
        bench.write(1, "H2", bench.read("H2"), drawer=2)
    assert bench.truth()["H2"] == ["drawer1slot5"]


def half_applied(bench: Bench) -> None:
    bench.process.fault("half_applied_bind")
    failed = bench.move(7, "H3")
    assert failed.state == "failed"
    assert failed.error
    assert bench.shown() == bench.truth()
    assert bench.move(7, "H3").state == "done"
    bench.process.fault("half_applied_bind", answer="error")
    assert bench.move(2, None).state == "done"
    assert "drawer1slot2" not in bench.truth()["H1"]


def changed_by_somebody_else(bench: Bench) -> None:
    looked_at = bench.read("H2")
    bench.foreign(7, "H2", present=True)
    with pytest.raises(ZoneChanged):
        bench.write(5, "H2", looked_at, present=False)
    assert bench.truth()["H2"] == ["drawer1slot5", "drawer1slot6", "drawer1slot7"]


def wanted(bench: Bench) -> DesiredState:
    """A device of drawer 1 detached, another one attached, and drawer 2 in another mode."""
    return DesiredState(
        attachments={bench.device(1).pk: None, bench.device(7).pk: bench.port("H3").pk},
        modes={Drawer.objects.get(number=2).pk: DrawerMode.ADVANCED},
    )


def plan_rolled_back(bench: Bench) -> None:
    before, modes = bench.truth(), bench.process.state()["modes"]
    bench.process.fault("half_applied_bind", path="H3")
    plan = plan_create(person=bench.person, desired=wanted(bench), title="", origin="api")
    stopped = carry_out_plan(plan_apply(person=bench.person, plan=plan))
    assert stopped.state == "stopped"
    assert "drawer1slot1" not in bench.truth()["H1"]
    assert carry_out_plan(plan_cancel(person=bench.person, plan=stopped, roll_back=True)).state == "rolled_back"
    assert (bench.truth(), bench.process.state()["modes"]) == (before, modes)
    plan = plan_create(person=bench.person, desired=wanted(bench), title="", origin="api")
    ended = carry_out_plan(plan_apply(person=bench.person, plan=plan))
    assert (ended.state, ended.sentence) == ("done", "")
    assert (bench.truth()["H3"], bench.process.state()["modes"]["drawer2"]) == (["drawer1slot7"], "Advanced")
    assert set(ended.operations.values_list("proof__untouched", flat=True)) == {True}


def allocation_exported_and_imported(bench: Bench) -> None:
    before = allocation_export(person=bench.person).text("json")
    plan = plan_create(person=bench.person, desired=wanted(bench), title="", origin="api")
    assert carry_out_plan(plan_apply(person=bench.person, plan=plan)).state == "done"
    mirror(bench.chassis)
    assert allocation_export(person=bench.person).text("json") != before
    back = allocation_plan(person=bench.person, checked=allocation_check(person=bench.person, raw=before.encode()))
    assert back is not None
    assert carry_out_plan(plan_apply(person=bench.person, plan=back)).state == "done"
    mirror(bench.chassis)
    assert allocation_export(person=bench.person).text("json") == before


def drift_seen(bench: Bench) -> None:
    bench.foreign(1, "H1", present=False)
    mirror(bench.chassis)
    drift = Drift.objects.get(ended_at=None)
    assert (drift.kind, drift.device) == (Drift.Kind.ATTACHMENT, bench.device(1))
    bench.foreign(1, "H1", present=True)
    mirror(bench.chassis)
    assert not Drift.objects.filter(ended_at=None).exists()


def cancelled_in_the_middle(bench: Bench) -> None:
    operation = bench.request(1, "H2")
    meanwhile("bmc.detach.answered", lambda: operation_cancel(person=bench.person, operation=operation))
    assert carry_out(operation).state == "cancelled"
    assert not any("drawer1slot1" in members for members in bench.truth().values())


def rebooted_in_the_middle(bench: Bench) -> None:
    operation = bench.request(1, "H2")
    meanwhile("bmc.attach.request", lambda: bench.process.fault("bmc_reboot", seconds=1.0))
    ended = carry_out(operation)
    assert (ended.state, ended.error) == ("done", "")
    assert "drawer1slot1" in bench.truth()["H2"]


# The columns, and what the simulator is started with for them.
CASES: dict[Callable[[Bench], None], tuple[str, ...]] = {
    attached: (),
    moved: (),
    detached: (),
    etag_lost_between_read_and_write: (),
    answered_by_a_task: ("--bind-by-task", "--slow-bind", "4"),
    shown_later_without_a_task: (),
    refused_with_a_sentence: (),
    half_applied: (),
    changed_by_somebody_else: (),
    plan_rolled_back: (),
    allocation_exported_and_imported: (),
    drift_seen: (),
    cancelled_in_the_middle: (),
    rebooted_in_the_middle: (),
}


@pytest.fixture(autouse=True)
def no_failpoint_left() -> Iterator[None]:
    yield
    set_failpoint_handler(None)


@pytest.mark.usefixtures("transactional_db", "short_retraining", "short_waits")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize("row", [BY_DAY, *at_night(*(row for row in ROWS if row != BY_DAY))])
def test_conformance(row: str, case: Callable[[Bench], None], administrator: User) -> None:
    with SimulatorProcess("--dialect", row, "--speed", "20", *CASES[case], chassis="falcon-1") as process:
        bench = Bench(process, put_back(process), administrator)
        assert bench.dialect is ROWS[row]
        case(bench)
        mirror(bench.chassis)
        assert bench.shown() == bench.truth()


def test_each_dialect_has_a_row() -> None:
    assert set(ROWS.values()) == set(Dialect) - {Dialect.NONE}


def test_a_service_without_any_of_them_is_monitored_only_and_says_so(
    db: None, administrator: User, client: Client
) -> None:
    with SimulatorProcess("--dialect", "none", chassis="falcon-1") as process:
        row = add_mirrored(process)
    device = Device.objects.filter(chassis=row, host_port=None, missing_since=None).first()
    assert device is not None
    with pytest.raises(Conflict, match="monitored only"):
        plan_create(person=administrator, desired=DesiredState(attachments={device.pk: None}), title="", origin="api")
    client.force_login(administrator)
    page = client.get(f"/chassis/{row.pk}/").content.decode()
    assert "Monitored only" in page
    assert "and no system offers" in page
