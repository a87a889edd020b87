"""Attach, detach and move against a real simulated chassis."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.audit.models import AuditEntry
from accounts.models import Tenant, User
from core.errors import Conflict, FalconWebError, Forbidden, Invalid, NotFound, RuleViolation
from fabric.bmc import client as bmc_client
from fabric.bmc.client import BmcClient
from fabric.bmc.composition import detach, read_zone
from fabric.bmc.types import Dialect
from fabric.execution import claims, link_steps, services
from fabric.execution.services import execute, runnable_operations
from fabric.inventory.models import Chassis, Device, Drawer, HostPort, Port
from fabric.operations.models import Operation
from fabric.operations.services import mode_request, operation_request
from fabric.tasks import run_operation
from falconweb.testing.chassis import mirror
from falconweb.testing.processes import SimulatorProcess
from tests.turns import at_night
from tests.waiting import wait_for


def device_in(slot: str) -> Device:
    return Device.objects.get(uri__endswith=slot)


def port(label: str) -> HostPort:
    return HostPort.objects.get(label=label)


def zones_with(simulator: SimulatorProcess, member: str) -> list[str]:
    return [zone for zone, members in simulator.state()["zones"].items() if member in members]


def step_of(operation: Operation, name: str) -> dict[str, Any]:
    steps = Operation.objects.get(pk=operation.pk).steps
    return next(step for step in steps if step["name"] == name)


def detach_outside(chassis: Chassis, device: Device) -> None:
    """Detach by the BMC alone, as another program does."""
    address, zone = chassis.address(), device.host_port

    async def work() -> None:
        async with BmcClient(address) as bmc:
            assert zone is not None
            found = await read_zone(bmc, zone.uri)
            await detach(bmc, Dialect(chassis.dialect), zone=found, endpoint_uri=device.endpoint_uri)

    asyncio.run(work())


def request_and_run(person: User, device: Device, target: HostPort | None) -> Operation:
    before = set(Operation.objects.values_list("pk", flat=True))
    operation = operation_request(person=person, device=device, target=target)
    assert operation.pk not in before
    execute(str(operation.pk), worker="test")
    operation.refresh_from_db()
    return operation


def test_a_gpu_moves_from_one_host_to_another_and_back_to_none(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    gpu = device_in("drawer1/PCIeDevices/slot1")
    assert gpu.host_port == port("H1")
    moved = request_and_run(administrator, gpu, port("H2"))
    assert (moved.state, moved.error) == ("done", "")
    told = {step["name"]: (step["state"], step["sentence"]) for step in moved.steps}
    assert told["Wait for the link"] == ("done", "Link up, x16 at 128 Gb/s.")
    assert told["Release on the host"] == (
        "skipped",
        "No agent runs on node-a. Whether the device is in use is unknown.",
    )
    assert told["Seen by the host"] == ("skipped", "No agent runs on node-b. The device is verified up to its link.")
    gpu.refresh_from_db()
    assert gpu.host_port == port("H2")
    assert zones_with(simulator, "drawer1slot1") == ["hostport1_H2"]
    detached = request_and_run(administrator, gpu, None)
    assert detached.state == "done"
    assert zones_with(simulator, "drawer1slot1") == []


def test_the_rules_say_no_in_a_sentence(chassis: Chassis, administrator: User) -> None:
    with pytest.raises(RuleViolation, match="not cabled to Drawer 1"):
        operation_request(person=administrator, device=device_in("drawer1/PCIeDevices/slot1"), target=port("H4"))
    with pytest.raises(Conflict, match="already attached to node-a"):
        operation_request(person=administrator, device=device_in("drawer1/PCIeDevices/slot1"), target=port("H1"))


@pytest.mark.usefixtures("simulator")
def test_people_move_only_what_is_granted_to_them(chassis: Chassis, tenant: Tenant, member: User, viewer: User) -> None:
    gpu = device_in("drawer1/PCIeDevices/slot1")
    with pytest.raises(NotFound):
        operation_request(person=member, device=gpu, target=None)
    Device.objects.filter(pk=gpu.pk).update(tenant=tenant)
    with pytest.raises(NotFound):
        operation_request(person=member, device=gpu, target=port("H2"))
    with pytest.raises(Forbidden, match="not granted to your tenant"):
        operation_request(person=member, device=gpu, target=None)
    HostPort.objects.filter(label__in=["H1", "H2"]).update(tenant=tenant)
    with pytest.raises(Forbidden):
        operation_request(person=viewer, device=gpu, target=None)
    assert request_and_run(member, gpu, port("H2")).state == "done"


@pytest.mark.usefixtures("transactional_db")
def test_two_people_take_one_device_and_one_is_told_who_has_it(chassis: Chassis, administrator: User) -> None:
    gpu = device_in("drawer1/PCIeDevices/slot1")
    answers: list[Operation | FalconWebError] = []
    start = threading.Barrier(2)

    def take(label: str) -> None:
        start.wait()
        try:
            answers.append(operation_request(person=administrator, device=gpu, target=port(label)))
        except FalconWebError as error:
            answers.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=take, args=(label,)) for label in ("H2", "H3")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    refused = [answer for answer in answers if isinstance(answer, Conflict)]
    assert len(refused) == 1
    assert "ada asked at" in refused[0].sentence
    assert Operation.objects.count() == 1


@pytest.mark.usefixtures("simulator")
def test_a_device_that_is_not_where_it_was_seen_is_a_conflict(chassis: Chassis, administrator: User) -> None:
    gpu = device_in("drawer1/PCIeDevices/slot1")
    request_and_run(administrator, gpu, port("H2"))
    with pytest.raises(Conflict, match=r"ada changed it at .* attached to node-b \(H2\) now"):
        operation_request(person=administrator, device=gpu, target=port("H3"), expected=port("H1"))


def test_the_same_key_answers_the_same_operation(chassis: Chassis, administrator: User) -> None:
    gpu = device_in("drawer1/PCIeDevices/slot1")
    first = operation_request(person=administrator, device=gpu, target=port("H2"), idempotency_key="k1")
    again = operation_request(person=administrator, device=gpu, target=port("H2"), idempotency_key="k1")
    assert first == again == Operation.objects.get()
    with pytest.raises(Invalid):
        operation_request(person=administrator, device=gpu, target=port("H3"), idempotency_key="k1")


def test_an_operation_whose_worker_died_after_the_detach_is_carried_to_its_end(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    gpu = device_in("drawer1/PCIeDevices/slot1")
    operation = operation_request(person=administrator, device=gpu, target=port("H2"))
    # What a killed worker leaves, once its claim is released: a device in no zone.
    detach_outside(chassis, gpu)
    Operation.objects.filter(pk=operation.pk).update(state="running", worker="", lease_until=None, attempts=1)
    assert zones_with(simulator, "drawer1slot1") == []
    assert runnable_operations() == [str(operation.pk)]
    execute(str(operation.pk), worker="second")
    operation.refresh_from_db()
    assert operation.state == "done"
    assert zones_with(simulator, "drawer1slot1") == ["hostport1_H2"]


@pytest.mark.usefixtures("simulator")
def test_an_operation_is_carried_out_by_one_worker_only(chassis: Chassis, administrator: User) -> None:
    operation = operation_request(
        person=administrator, device=device_in("drawer1/PCIeDevices/slot1"), target=port("H2")
    )
    threads = [threading.Thread(target=execute, args=(str(operation.pk),), kwargs={"worker": str(n)}) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    operation.refresh_from_db()
    assert (operation.state, operation.attempts) == ("done", 1)


def test_a_bmc_that_reboots_meanwhile_is_waited_for(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    simulator.fault("bmc_reboot", seconds=2)
    operation = request_and_run(administrator, device_in("drawer1/PCIeDevices/slot1"), port("H2"))
    assert (operation.state, operation.error) == ("done", "")


@pytest.mark.usefixtures("short_settling")
@pytest.mark.parametrize(("answer", "state"), [("partial", "failed"), *at_night(("error", "done"))])
def test_a_half_applied_bind_ends_with_the_truth_read_back(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User, answer: str, state: str
) -> None:
    gpu = device_in("drawer1/PCIeDevices/slot7")
    simulator.fault("half_applied_bind", answer=answer)
    operation = request_and_run(administrator, gpu, port("H2"))
    gpu.refresh_from_db()
    assert operation.state == state
    assert zones_with(simulator, "drawer1slot7") == (["hostport1_H2"] if state == "done" else [])
    assert gpu.host_port == (port("H2") if state == "done" else None)


def test_a_link_below_what_it_can_be_is_not_done(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User, short_retraining: None
) -> None:
    simulator.fault("link_downgrade", "drawer1slot7")
    operation = request_and_run(administrator, device_in("drawer1/PCIeDevices/slot7"), port("H2"))
    assert operation.state == "failed"
    assert "below what device and slot can do. Link up, x" in operation.error
    # It is attached nevertheless, and shown so.
    assert device_in("drawer1/PCIeDevices/slot7").host_port == port("H2")
    simulator.clear_faults()


def test_a_device_whose_port_tells_no_link_is_judged_by_its_zone_and_endpoint(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    simulator.fault("no_link_status")
    operation = request_and_run(administrator, device_in("drawer1/PCIeDevices/slot7"), port("H2"))
    assert (operation.state, operation.error) == ("done", "")
    said = step_of(operation, "Wait for the link")["sentence"]
    assert said.startswith("Attached, link unknown: Slot 7 does not tell whether its link is up.")
    assert said.endswith("its endpoint is 'Enabled'.")
    assert step_of(operation, "Seen by the host")["sentence"].endswith("verified up to its zone.")
    device = device_in("drawer1/PCIeDevices/slot7")
    assert (device.host_port, device.slot and device.slot.port and device.slot.port.link_status) == (port("H2"), "")


def test_how_long_a_chassis_takes_to_show_a_change_is_learned_and_kept_with_it(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    simulator.fault("late_bind", delay=0.8)
    operation = request_and_run(administrator, device_in("drawer1/PCIeDevices/slot7"), port("H2"))
    assert (operation.state, operation.error) == ("done", "")
    chassis.refresh_from_db()
    assert chassis.settle_seconds is not None
    assert 0.4 < chassis.settle_seconds < 30.0


def test_what_a_bmc_wipes_at_a_refusal_is_put_back_said_and_audited(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    before = simulator.state()["zones"]
    # As if another program had taken it out of the fabric meanwhile.
    Device.objects.filter(pk=device_in("drawer1/PCIeDevices/slot7").pk).update(
        endpoint_uri="/redfish/v1/Fabrics/PCIe/Endpoints/none"
    )
    simulator.fault("wiping_refusal", count=1)
    operation = request_and_run(administrator, device_in("drawer1/PCIeDevices/slot7"), port("H2"))
    assert operation.state == "failed"
    assert "were dropped: they were put back." in operation.error
    assert simulator.state()["zones"] == before
    entry = AuditEntry.objects.get(action="chassis.restore")
    assert (entry.outcome, entry.after) == ("done", {"not put back": []})
    assert entry.before is not None
    assert len(entry.before["dropped by the BMC"]) == len(before["hostport1_H2"])


@pytest.mark.parametrize("renewed_each", [0.2, 3.0])
def test_a_worker_that_lost_its_lease_writes_no_more(
    chassis: Chassis,
    simulator: SimulatorProcess,
    administrator: User,
    monkeypatch: pytest.MonkeyPatch,
    renewed_each: float,
) -> None:
    monkeypatch.setattr(claims, "CLAIM_RENEW_SECONDS", renewed_each)
    gpu = device_in("drawer1/PCIeDevices/slot1")
    operation = operation_request(person=administrator, device=gpu, target=port("H2"))
    simulator.fault("slow", method="PATCH", delay=1.5)
    ended: list[str] = []

    def work() -> None:
        execute(str(operation.pk), worker="first")
        ended.append("first")

    thread = threading.Thread(target=work)
    thread.start()
    wait_for(lambda: step_of(operation, "Attach")["state"] == "running")
    until = timezone.now() + timedelta(seconds=60)
    Operation.objects.filter(pk=operation.pk).update(worker="second", lease_until=until)
    operation.refresh_from_db()
    seen = operation.steps
    thread.join(60)
    assert ended == ["first"]  # without an exception that would end the worker's loop
    operation.refresh_from_db()
    # The BMC may have carried out what was under way by then: the next worker finds it.
    assert (operation.state, operation.worker, operation.lease_until) == ("running", "second", until)
    assert operation.steps == seen
    simulator.clear_faults()
    Operation.objects.filter(pk=operation.pk).update(lease_until=None)
    execute(str(operation.pk), worker="third")
    operation.refresh_from_db()
    assert operation.state == "done"
    assert zones_with(simulator, "drawer1slot1") == ["hostport1_H2"]


def test_another_device_in_the_slot_is_not_attached(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    Device.objects.filter(pk=device_in("drawer1/PCIeDevices/slot7").pk).update(serial_number="WHAT-WAS-ASKED-FOR")
    operation = request_and_run(administrator, device_in("drawer1/PCIeDevices/slot7"), port("H2"))
    assert operation.state == "failed"
    assert "another device in the slot now" in operation.error
    assert zones_with(simulator, "drawer1slot7") == []


def test_an_operation_ends_even_if_the_chassis_cannot_be_read_back(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bmc_client, "OUTAGE_SECONDS", 1.0)
    monkeypatch.setattr(services, "REQUEST_SECONDS", 1.0)
    monkeypatch.setattr(services, "READ_BACK_SECONDS", 1.0)
    for fault in ("hang", "server_error", "reset_connections"):
        simulator.fault(fault)
        operation = request_and_run(administrator, device_in("drawer1/PCIeDevices/slot7"), port("H2"))
        assert operation.state == "failed"
        assert operation.error
        simulator.clear_faults()
    assert Device.objects.filter(missing_since=None).count() == len(simulator.state()["present"])


@pytest.mark.usefixtures("simulator")
def test_two_people_ask_by_the_api_and_one_is_told_who_has_it(
    chassis: Chassis, tenant: Tenant, member: User, administrator: User
) -> None:
    gpu, ports = device_in("drawer1/PCIeDevices/slot7"), [port("H1"), port("H2")]
    Device.objects.filter(pk=gpu.pk).update(tenant=tenant)
    HostPort.objects.update(tenant=tenant)
    start = threading.Barrier(2)
    answers: list[Any] = []

    def ask(person: User, target: HostPort) -> None:
        client = Client()
        client.force_login(person)
        body = {"device_id": gpu.pk, "target_host_port_id": target.pk, "expected_host_port_id": None}
        start.wait()
        try:
            answers.append(client.post("/api/v1/operations/", body, content_type="application/json"))
        finally:
            connection.close()

    threads = [threading.Thread(target=ask, args=pair) for pair in zip((member, administrator), ports, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken, refused = sorted(answers, key=lambda answer: int(answer.status_code))
    assert (taken.status_code, refused.status_code) == (202, 409)
    assert refused["Content-Type"] == "application/problem+json"
    problem = refused.json()
    operation = Operation.objects.get()
    when = timezone.localtime(operation.requested_at).strftime("%H:%M:%S")
    assert (problem["status"], problem["code"], problem["operation_id"]) == (409, "conflict", str(operation.pk))
    assert f"{operation.requested_by_name} asked at {when}" in problem["detail"]
    assert taken.json()["id"] == str(operation.pk)
    execute(str(operation.pk), worker="test")
    gpu.refresh_from_db()
    assert gpu.host_port == operation.target
    # Later, who saw it free is told who has changed it.
    again = Client()
    again.force_login(administrator)
    body = {"device_id": gpu.pk, "target_host_port_id": port("H3").pk, "expected_host_port_id": None}
    late = again.post("/api/v1/operations/", body, content_type="application/json")
    assert late.status_code == 409
    assert f"{operation.requested_by_name} changed it at" in late.json()["detail"]


@pytest.mark.usefixtures("simulator")
def test_one_operation_at_a_time_in_a_drawer_and_in_the_order_of_asking(chassis: Chassis, administrator: User) -> None:
    first = operation_request(person=administrator, device=device_in("drawer1/PCIeDevices/slot1"), target=port("H2"))
    second = operation_request(person=administrator, device=device_in("drawer1/PCIeDevices/slot7"), target=port("H2"))
    other = operation_request(person=administrator, device=device_in("drawer2/PCIeDevices/slot1"), target=None)
    for waits in (second, other):
        execute(str(waits.pk), worker="early")
    assert [Operation.objects.get(pk=one.pk).state for one in (first, second, other)] == [
        "requested", "requested", "done",
    ]  # fmt: skip
    run_operation(str(first.pk))
    for one in (first, second):
        one.refresh_from_db()
        assert (one.state, one.error) == ("done", "")
    assert first.finished_at is not None
    assert second.started_at is not None
    assert second.started_at >= first.finished_at


def test_the_rules_count_what_was_asked_for_already(chassis: Chassis, administrator: User) -> None:
    Device.objects.update(host_port=None)
    Drawer.objects.update(mode="StandardOneHost")
    operation_request(person=administrator, device=device_in("drawer1/PCIeDevices/slot1"), target=port("H1"))
    with pytest.raises(RuleViolation):
        operation_request(person=administrator, device=device_in("drawer1/PCIeDevices/slot2"), target=port("H2"))


def test_nothing_is_attached_while_the_mode_of_its_drawer_changes(chassis: Chassis, administrator: User) -> None:
    Device.objects.update(host_port=None)
    mode_request(person=administrator, drawer=Drawer.objects.get(number=1), mode="StandardOneHost")
    with pytest.raises(Conflict, match="Drawer 1 is taken: ada asked at"):
        operation_request(person=administrator, device=device_in("drawer1/PCIeDevices/slot1"), target=port("H1"))


@pytest.mark.usefixtures("simulator")
def test_what_an_operation_says_names_no_host_of_others(
    chassis: Chassis, tenant: Tenant, member: User, administrator: User
) -> None:
    gpu = device_in("drawer1/PCIeDevices/slot1")
    Device.objects.filter(pk=gpu.pk).update(tenant=tenant)
    HostPort.objects.filter(label="H2").update(tenant=tenant)
    # Where their device is now is another's host: neither a conflict nor an operation tells them which.
    with pytest.raises(Forbidden) as refused:
        operation_request(person=member, device=gpu, target=port("H2"), expected=None)
    moved = request_and_run(administrator, gpu, port("H2"))
    assert Operation.objects.visible_to(member).get() == moved
    for sentence in (refused.value.sentence, moved.summary):
        assert "node-a" not in sentence
    assert "from H1 to node-b (H2)" in moved.summary


def test_a_device_on_a_host_port_of_others_is_shown_so_and_offers_nothing(
    chassis: Chassis, tenant: Tenant, member: User
) -> None:
    gpu = device_in("drawer1/PCIeDevices/slot1")
    Device.objects.filter(pk=gpu.pk).update(tenant=tenant)
    HostPort.objects.filter(label="H2").update(tenant=tenant)
    client = Client()
    client.force_login(member)
    for address, words in (
        ("/fabric/", "others&#x27; host"),
        ("/fabric/?view=list", "a host port of others"),
        (f"/devices/{gpu.pk}/", "only an administrator can move it"),
    ):
        page = client.get(address).content.decode()
        assert words in page
        assert "node-a" not in page
        assert "data-handle" not in page
        assert "data-compose " not in page


def test_a_device_that_vanishes_while_its_link_trains_is_told_as_that(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_steps, "PRESENCE_SECONDS", 0.2)
    simulator.set_speed(0.2)  # links train for long
    gpu = device_in("drawer1/PCIeDevices/slot7")
    operation = operation_request(person=administrator, device=gpu, target=port("H2"))
    thread = threading.Thread(target=lambda: execute(str(operation.pk), worker="test"))
    thread.start()
    wait_for(lambda: step_of(operation, "Wait for the link")["state"] == "running")
    simulator.fault("surprise_removal", "drawer1slot7")
    thread.join(60)
    operation.refresh_from_db()
    assert operation.state == "failed"
    assert "was removed, or detached by somebody else, while its link trained" in operation.error
    last = operation.steps[-1]
    assert (last["name"], last["state"], last["sentence"]) == ("Read back", "done", "It is attached to no host.")
    assert zones_with(simulator, "drawer1slot7") == []


def test_a_fan_that_fails_is_named_among_what_is_wrong(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    client = Client()
    client.force_login(administrator)
    simulator.fault("fan_failure", "fan1")
    wait_for(lambda: mirror(chassis) and Chassis.objects.get().health == "Critical")
    assert "falcon-1 reports its health as Critical: Fan 1 (Critical)" in client.get("/").content.decode()
    simulator.clear_faults()
    wait_for(lambda: mirror(chassis) and Chassis.objects.get().health == "OK")
    assert "Fan 1" not in client.get("/").content.decode()


def test_a_host_link_below_its_capability_is_said_wherever_it_is_shown(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    simulator.fault("link_downgrade", "H1", lanes=8)
    simulator.fault("link_downgrade", "drawer1slot1", lanes=8)
    # They train anew first.
    wait_for(lambda: mirror(chassis) and Port.objects.filter(active_width=8, link_status="LinkUp").count() == 2)
    client = Client()
    client.force_login(administrator)
    assert "The link of host port H1 of falcon-1 to node-a runs below its maximum width or speed: x8 of x16." in (
        overview := client.get("/").content.decode()
    )
    assert "Drawer 1 slot 1 runs below its maximum width or speed: x8 of x16" in overview
    assert "△ x8 of x16" in client.get("/fabric/").content.decode()
    assert "below its maximum width or speed: x8 of x16" in client.get(f"/ports/{port('H1').port_id}/").content.decode()
    simulator.clear_faults()


@pytest.mark.usefixtures("simulator")
def test_operations_stay_with_the_tenant_they_were_asked_in(
    chassis: Chassis, tenant: Tenant, member: User, administrator: User
) -> None:
    gpu = device_in("drawer1/PCIeDevices/slot1")
    before = request_and_run(administrator, gpu, None)
    Device.objects.filter(pk=gpu.pk).update(tenant=tenant, tenant_since=timezone.now())
    HostPort.objects.update(tenant=tenant)
    own = request_and_run(member, Device.objects.get(pk=gpu.pk), port("H2"))
    assert list(Operation.objects.visible_to(member)) == [own]
    Device.objects.update(tenant=None)
    assert before not in Operation.objects.visible_to(member)
    member.tenant = Tenant.objects.create(name="Another")
    member.save()
    assert not Operation.objects.visible_to(member).exists()


def test_an_operation_that_fails_does_not_tell_the_address_of_the_bmc(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bmc_client, "OUTAGE_SECONDS", 0.5)
    simulator.fault("reset_connections")
    failed = request_and_run(administrator, device_in("drawer1/PCIeDevices/slot7"), port("H2"))
    assert failed.state == "failed"
    assert failed.error.startswith("falcon-1 ")
    assert "127.0.0.1" not in failed.error


@pytest.mark.parametrize("lost", ["sign-in", "device", "target", "role"])
def test_what_somebody_may_no_longer_do_is_not_carried_out(
    chassis: Chassis, simulator: SimulatorProcess, tenant: Tenant, member: User, lost: str
) -> None:
    gpu = device_in("drawer1/PCIeDevices/slot7")
    Device.objects.filter(pk=gpu.pk).update(tenant=tenant)
    HostPort.objects.update(tenant=tenant)
    before = simulator.state()["zones"]
    operation = operation_request(person=member, device=gpu, target=port("H2"))
    if lost == "device":
        Device.objects.update(tenant=None)
    elif lost == "target":
        HostPort.objects.update(tenant=None)
    elif lost == "role":
        User.objects.filter(pk=member.pk).update(role="viewer")
    else:
        User.objects.filter(pk=member.pk).update(is_active=False)
    execute(str(operation.pk), worker="test")
    operation.refresh_from_db()
    assert (operation.state, "may no longer do this" in operation.error) == ("failed", True)
    assert simulator.state()["zones"] == before


def test_a_mode_is_not_changed_for_who_is_no_longer_an_administrator(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    before = simulator.state()["modes"]
    operation = mode_request(person=administrator, drawer=Drawer.objects.get(number=2), mode="Advanced")
    User.objects.filter(pk=administrator.pk).update(role="user", is_superuser=False)
    execute(str(operation.pk), worker="test")
    operation.refresh_from_db()
    assert (operation.state, "may no longer do this" in operation.error) == ("failed", True)
    assert simulator.state()["modes"] == before


def test_what_nobody_could_begin_for_long_is_not_carried_out(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    operation = operation_request(
        person=administrator, device=device_in("drawer1/PCIeDevices/slot7"), target=port("H2")
    )
    Operation.objects.update(requested_at=timezone.now() - timedelta(hours=20))
    execute(str(operation.pk), worker="test")
    operation.refresh_from_db()
    assert (operation.state, operation.error) == ("failed", "It could not start within 10 minutes. Request it again.")
    assert zones_with(simulator, "drawer1slot7") == []


def together(work: Callable[[], Any], times: int) -> list[Any]:
    """Do the same at the same moment so many times, each in a thread of its own; return results and errors."""
    start, answers = threading.Barrier(times), []

    def one() -> None:
        start.wait()
        try:
            answers.append(work())
        except FalconWebError as error:
            answers.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=one) for _ in range(times)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


@pytest.mark.usefixtures("transactional_db")
def test_a_key_that_comes_twice_at_once_answers_the_same_operation(chassis: Chassis, administrator: User) -> None:
    gpu, target = device_in("drawer1/PCIeDevices/slot7"), port("H2")
    answers = together(
        lambda: operation_request(person=administrator, device=gpu, target=target, idempotency_key="twice"), 4
    )
    assert [answer for answer in answers if isinstance(answer, FalconWebError)] == []
    assert {operation.pk for operation in answers} == {Operation.objects.get().pk}


@pytest.mark.usefixtures("simulator")
def test_workers_that_come_at_once_carry_an_operation_out_once(chassis: Chassis, administrator: User) -> None:
    operation = operation_request(
        person=administrator, device=device_in("drawer1/PCIeDevices/slot7"), target=port("H2")
    )
    numbers = iter(range(6))
    together(lambda: execute(str(operation.pk), worker=f"worker {next(numbers)}"), 6)
    operation.refresh_from_db()
    assert (operation.state, operation.attempts) == ("done", 1)


@pytest.mark.django_db
def test_whose_turn_it_is_is_found_by_one_question_that_reads_no_steps() -> None:
    chassis = Chassis.objects.create(name="falcon-1", url="https://127.0.0.1:1", enabled=False)
    long_ago = timezone.now() - timedelta(minutes=1)
    first, *_ = (
        Operation.objects.create(kind="mode", chassis=chassis, requested_at=long_ago + timedelta(seconds=number))
        for number in range(3)
    )
    with CaptureQueriesContext(connection) as asked:
        assert runnable_operations() == [str(first.pk)]
    assert len(asked) == 1
    assert '"steps"' not in asked[0]["sql"]


@pytest.mark.django_db
def test_logs_are_collected_beside_all_that_does_not_run_alone() -> None:
    chassis = Chassis.objects.create(name="falcon-1", url="https://127.0.0.1:1", enabled=False)
    long_ago = timezone.now() - timedelta(minutes=1)

    def asked(kind: str, seconds: int) -> Operation:
        at = long_ago + timedelta(seconds=seconds)
        return Operation.objects.create(kind=kind, chassis=chassis, requested_at=at)

    logs, detached, more_logs = asked("logs", 0), asked("detach", 1), asked("logs", 2)
    assert runnable_operations() == [str(logs.pk), str(detached.pk)]
    claimed = claims.OperationClaim.take(str(logs.pk), "one")
    assert claimed is not None
    assert claims.OperationClaim.take(str(more_logs.pk), "two") is None
    assert runnable_operations() == [str(detached.pk)]
    Operation.objects.filter(pk=detached.pk).update(state="done")
    reset = asked("reset", 3)
    assert claims.OperationClaim.take(str(reset.pk), "two") is None
