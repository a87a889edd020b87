"""Resets and power of parts: who may, who is told, what is sent once, and what shows that it happened."""

from __future__ import annotations

import asyncio

import pytest
from asgiref.sync import sync_to_async
from django.test import Client

from accounts.audit.models import AuditEntry
from accounts.models import Tenant, User
from core.errors import Conflict, Forbidden, InUse, Invalid
from fabric.bmc.client import BmcClient
from fabric.execution import part_steps
from fabric.execution.claims import OperationClaim
from fabric.execution.services import execute, runnable_operations
from fabric.inventory.models import Chassis, Device, ManagedPart
from fabric.maintenance.selectors import affected_devices
from fabric.maintenance.services import reset_request
from fabric.operations.models import Operation, Proof
from fabric.operations.services import operation_request
from falconweb.testing import mirror
from falconweb.testing.processes import SimulatorProcess
from tests.fabric.conftest import put_back

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask often, and give up soon where nothing happens."""
    monkeypatch.setattr(part_steps, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(part_steps, "SIGN_SECONDS", 2.0)


def part(kind: str, name: str = "") -> ManagedPart:
    found: ManagedPart = ManagedPart.objects.filter(kind=kind, uri__endswith=name).order_by("uri")[0]
    return found


def ask(person: User, one: ManagedPart, reset_type: str) -> Operation:
    """Request a reset by somebody who has read whom it interrupts."""
    return reset_request(
        person=person,
        part=one,
        reset_type=reset_type,
        confirmation=one.label,
        affected=[each.device.pk for each in affected_devices(one)],
    )


def carry_out(operation: Operation) -> Operation:
    execute(str(operation.pk), worker="test")
    operation.refresh_from_db()
    return operation


def sentences(operation: Operation) -> dict[str, tuple[str, str]]:
    return {step["name"]: (step["state"], step["sentence"]) for step in operation.steps}


async def last_reset(chassis: Chassis) -> str:
    async with BmcClient(await sync_to_async(chassis.address)()) as bmc:
        return str((await bmc.get("/redfish/v1/Managers/bmc")).body["LastResetTime"])


def test_a_bmc_restarts_once_and_no_zone_or_link_changed(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    bmc = part("bmc")
    assert (bmc.label, bmc.version, bmc.reset_types) == (
        "falcon-1 Falcon BMC", "2.14.0-falcon", ["GracefulRestart", "ForceRestart"],
    )  # fmt: skip
    zones = simulator.state()["zones"]
    operation = carry_out(ask(administrator, bmc, "GracefulRestart"))
    assert (operation.state, operation.error) == ("done", "")
    assert simulator.state()["boots"] == 2
    assert simulator.state()["zones"] == zones
    proof = Proof.objects.get(operation=operation)
    assert (proof.untouched, proof.differences) == (True, [])
    ended = AuditEntry.objects.filter(action="operation.end").get()
    assert (ended.outcome, ended.target_name) == ("done", "Reset falcon-1 Falcon BMC (GracefulRestart)")


def test_a_drawer_that_is_switched_off_loses_its_links_alone_and_keeps_what_is_attached(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    drawer = part("drawer", "drawer1")
    before = simulator.state()
    operation = carry_out(ask(administrator, drawer, "ForceOff"))
    assert (operation.state, operation.error) == ("done", "")
    after = simulator.state()
    assert after["off"] == ["drawer1"]
    assert after["zones"] == before["zones"]
    lost = {name for name, link in after["links"].items() if link["status"] != before["links"][name]["status"]}
    assert lost
    assert all("drawer1" in name or "hostport1" in name for name in lost)
    assert Proof.objects.get(operation=operation).untouched
    drawer.refresh_from_db()
    assert drawer.power_state == "Off"
    assert carry_out(ask(administrator, drawer, "On")).state == "done"
    drawer.refresh_from_db()
    assert drawer.power_state == "On"


def test_a_host_shuts_down_gracefully_and_a_gpu_resets(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    host = part("host", "node-a")
    assert (host.version, host.is_lit) == ("2.3.5", False)
    assert carry_out(ask(administrator, host, "GracefulShutdown")).state == "done"
    assert simulator.state()["off"] == ["node-a"]
    gpu = part("device", "drawer1/PCIeDevices/slot1")
    assert gpu.reset_types == ["ForceRestart"]
    operation = carry_out(ask(administrator, gpu, "ForceRestart"))
    assert sentences(operation)["Wait for its end"] == (
        "done", "It is on. Whether it restarted, its service does not tell.",
    )  # fmt: skip


def test_only_administrators_who_type_its_name_and_know_whom_it_interrupts(
    chassis: Chassis, administrator: User, tenant: Tenant, member: User
) -> None:
    drawer = part("drawer", "drawer1")
    Device.objects.filter(uri__endswith="drawer1/PCIeDevices/slot1").update(tenant=tenant)
    with pytest.raises(Forbidden):
        ask(member, drawer, "ForceOff")
    with pytest.raises(Invalid, match="not the name"):
        reset_request(person=administrator, part=drawer, reset_type="ForceOff", confirmation="Drawer 1")
    with pytest.raises(Invalid, match="cannot be reset"):
        ask(administrator, drawer, "Nmi")
    with pytest.raises(InUse, match=tenant.name) as caught:
        reset_request(person=administrator, part=drawer, reset_type="ForceOff", confirmation=drawer.label)
    told = [one["device_id"] for one in caught.value.details["affected"]]
    assert told == [one.device.pk for one in affected_devices(drawer)]
    with pytest.raises(InUse):
        reset_request(
            person=administrator, part=drawer, reset_type="ForceOff", confirmation=drawer.label, affected=told[1:]
        )
    refused = AuditEntry.objects.filter(action="part.reset").exclude(outcome="done")
    assert refused.count() == 5
    assert not Operation.objects.exists()


def test_it_runs_alone_in_its_chassis(chassis: Chassis, administrator: User) -> None:
    first = ask(administrator, part("drawer", "drawer1"), "PowerCycle")
    with pytest.raises(Conflict, match="has not ended"):
        ask(administrator, part("bmc"), "ForceRestart")
    gpu = Device.objects.filter(slot__drawer__number=2, host_port__isnull=False).first()
    assert gpu is not None
    later = operation_request(person=administrator, device=gpu, target=None)
    # In the other drawer, which would not wait for an attachment in the first.
    assert OperationClaim.take(str(later.pk), "test") is None
    claim = OperationClaim.take(str(first.pk), "test")
    assert claim is not None
    assert OperationClaim.take(str(later.pk), "test") is None
    Operation.objects.filter(pk=first.pk).update(state="failed", lease_until=None)
    assert OperationClaim.take(str(later.pk), "test") is not None


def test_a_worker_that_takes_over_sends_no_second_reset(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    operation = ask(administrator, part("bmc"), "ForceRestart")
    setting = {**operation.setting, "last_reset": "2026-01-01T00:00:00Z", "sent": True}
    Operation.objects.filter(pk=operation.pk).update(setting=setting, attempts=1, started_at=operation.requested_at)
    assert str(operation.pk) in runnable_operations()
    # It has restarted since: its LastResetTime is another one.
    operation = carry_out(operation)
    assert operation.state == "done"
    assert sentences(operation)["Reset"][1] == "A worker that died may have sent it: it is not sent again."
    assert simulator.state()["boots"] == 1


def test_a_bmc_that_accepts_a_reset_and_does_nothing_has_failed(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    operation = ask(administrator, part("bmc"), "ForceRestart")
    booted = asyncio.run(last_reset(chassis))
    setting = {**operation.setting, "last_reset": booted, "sent": True}
    Operation.objects.filter(pk=operation.pk).update(setting=setting, attempts=1, started_at=operation.requested_at)
    operation = carry_out(operation)
    assert (operation.state, operation.error) == ("failed", part_steps.NO_SIGN)


def test_a_chassis_that_is_monitored_only_is_reset_too(administrator: User) -> None:
    with SimulatorProcess("--dialect", "none", chassis="falcon-1") as process:
        process.set_speed(20)
        put_back(process)
        operation = carry_out(ask(administrator, part("drawer", "drawer2"), "ForceOff"))
        assert (operation.state, operation.error) == ("done", "")
        assert process.state()["off"] == ["drawer2"]


def test_an_offer_that_changed_since_the_walk_is_refused_before_anything_is_sent(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    drawer = part("drawer", "drawer2")
    ManagedPart.objects.filter(pk=drawer.pk).update(reset_types=[])
    drawer.refresh_from_db()
    operation = carry_out(ask(administrator, drawer, "GracefulShutdown"))
    assert (operation.state, operation.error) == (
        "failed", "Its service offers On, ForceOff, PowerCycle, not GracefulShutdown. Nothing was changed.",
    )  # fmt: skip
    assert simulator.state()["off"] == []


def test_the_page_names_whom_it_interrupts_and_requests_it(chassis: Chassis, administrator: User) -> None:
    client = Client()
    client.force_login(administrator)
    session = client.session
    session["proved_at"] = 9e9
    session.save()
    drawer = part("drawer", "drawer1")
    page = client.get(f"/maintenance/{drawer.pk}/").content.decode()
    assert "attached devices may be interrupted" in page
    assert "Type falcon-1 Drawer 1 to confirm" in page
    answer = client.post(f"/maintenance/{drawer.pk}/", {"reset_type": "ForceOff", "confirmation": drawer.label})
    assert "It may interrupt what is attached" in answer.content.decode()
    told = ",".join(str(one.device.pk) for one in affected_devices(drawer))
    answer = client.post(
        f"/maintenance/{drawer.pk}/", {"reset_type": "ForceOff", "confirmation": drawer.label, "affected": told}
    )
    operation = Operation.objects.get()
    assert answer.headers["Location"] == f"/operations/{operation.pk}/"
    assert operation.managed_part == drawer


def test_a_version_that_differs_from_most_like_it_is_marked(chassis: Chassis, administrator: User) -> None:
    client = Client()
    client.force_login(administrator)
    assert "others have" not in client.get("/maintenance/").content.decode()
    odd = part("device", "drawer1/PCIeDevices/slot1")
    ManagedPart.objects.filter(pk=odd.pk).update(version="0.9")
    page = client.get("/maintenance/?differing=1").content.decode()
    assert f"others have {part('device', 'drawer1/PCIeDevices/slot2').version}" in page
    assert "1 part" in page
    lines = b"".join(client.get("/maintenance.csv?differing=1")).decode().splitlines()
    assert len(lines) == 2
    listed = client.get("/api/v1/managed-parts/?differing=true").json()
    assert [one["id"] for one in listed["results"]] == [odd.pk]


def test_every_led_is_switched_and_read_back_by_a_walk(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    client = Client()
    client.force_login(administrator)
    kinds = {"bmc", "chassis", "drawer", "switch", "device", "slot", "host"}
    ones = [part(kind) for kind in sorted(kinds)]
    for one in ones:
        answer = client.post(f"/api/v1/managed-parts/{one.pk}/led/", {"lit": True}, content_type="application/json")
        assert (answer.status_code, answer.json().get("is_lit")) == (200, True), (one.label, answer.json())
    mirror(chassis)
    assert {one.kind for one in ManagedPart.objects.filter(is_lit=True)} == kinds
    off = client.post(f"/maintenance/{ones[0].pk}/locate/", {"off": "1"}, follow=True)
    assert [str(one) for one in off.context["messages"]] == [f"The location LED of {ones[0].label} is off."]
    mirror(chassis)
    assert ManagedPart.objects.filter(is_lit=True).count() == len(kinds) - 1
