"""Updates of firmware: drained first, by URI or pushed, followed, cancelled, proven, put back by the plan's undo."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from accounts.approvals.models import ApprovalPolicy, Danger
from accounts.audit.models import AuditEntry
from accounts.models import Tenant, User
from core.errors import Conflict, Forbidden, InUse, Invalid
from fabric.execution import firmware_steps
from fabric.execution.services import execute
from fabric.inventory.models import Chassis, Device, ManagedPart
from fabric.leases.models import Lease
from fabric.maintenance.files import image_path
from fabric.maintenance.models import FirmwareImage
from fabric.maintenance.selectors import affected_devices, update_service
from fabric.maintenance.services import (
    firmware_drain,
    firmware_image_add,
    firmware_image_remove,
    firmware_request,
)
from fabric.operations.models import Operation, Plan, Proof
from fabric.operations.services import DEVICE_HOLD_SOURCES, operation_cancel
from fabric.plans.services import plan_apply, plan_undo
from fabric.tasks import run_operation
from falconweb.testing import SimulatorProcess, mirror
from tests.fabric.conftest import put_back

pytestmark = pytest.mark.django_db(transaction=True)
URI = "https://images.example/falcon-5.0.0.bin"


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask often, and give up soon where nothing happens."""
    monkeypatch.setattr(firmware_steps, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(firmware_steps, "VERSION_SECONDS", 4.0)
    monkeypatch.setattr(firmware_steps, "STALL_SECONDS", 1.5)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep images in a folder of the test."""
    monkeypatch.setattr("fabric.maintenance.files._folder", lambda: tmp_path)
    return tmp_path


def part(name: str) -> ManagedPart:
    found: ManagedPart = ManagedPart.objects.select_related("chassis", "device__slot").get(uri__endswith=name)
    return found


def free_gpu() -> ManagedPart:
    """Return a device that is attached to no host."""
    found = ManagedPart.objects.filter(kind="device", device__host_port=None).order_by("uri")
    return part(found[0].uri)


def ask(person: User, one: ManagedPart, **values: object) -> Operation:
    told = [each.device.pk for each in affected_devices(one, by_update=True)]
    return firmware_request(person=person, part=one, confirmation=one.label, affected=told, **values)  # type: ignore[arg-type]


def carry_out(operation: Operation) -> Operation:
    execute(str(operation.pk), worker="test")
    operation.refresh_from_db()
    return operation


def image_of(person: User, version: str) -> FirmwareImage:
    return firmware_image_add(
        person=person, name="falcon.bin", chunks=[f"FALCON-FIRMWARE {version} ".encode(), b"x" * 99]
    )


def finish(plan: Plan) -> Plan:
    """Carry out all steps of a plan."""
    for _ in range(40):
        first = plan.operations.open().in_turn().first()
        if first is None:
            break
        run_operation(str(first.pk))
    plan.refresh_from_db()
    return plan


def test_a_switch_is_drained_updated_by_uri_proven_and_put_back_by_the_undo_of_the_plan(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    switch = part("drawer1_switch")
    assert (switch.version, switch.is_updateable) == ("4.2.1.186", True)
    zones = simulator.state()["zones"]
    with pytest.raises(InUse, match="Drain it first"):
        ask(administrator, switch, image_uri=URI)
    drain = firmware_drain(person=administrator, part=switch)
    assert drain.title == "Drain falcon-1 PCIe switch of drawer 1 for an update"
    assert finish(plan_apply(person=administrator, plan=drain)).state == "done"
    operation = carry_out(ask(administrator, switch, image_uri=URI, version="5.0.0"))
    assert (operation.state, operation.error) == ("done", "")
    assert [step["sentence"] for step in operation.steps[2:4]] == ["Its task is done.", "It has version 5.0.0."]
    switch.refresh_from_db()
    assert switch.version == "5.0.0"
    assert Proof.objects.get(operation=operation).untouched
    drain.refresh_from_db()
    undo = plan_undo(person=administrator, plan=drain)
    assert finish(plan_apply(person=administrator, plan=undo)).state == "done"
    assert {zone: sorted(members) for zone, members in simulator.state()["zones"].items()} == {
        zone: sorted(members) for zone, members in zones.items()
    }
    mirror(chassis)
    switch.refresh_from_db()
    assert switch.version == "5.0.0"


def test_an_image_is_pushed_to_a_bmc_which_restarts_with_it_while_devices_stay(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    bmc, image = part("Managers/bmc"), image_of(administrator, "3.0.0")
    with pytest.raises(InUse, match="may interrupt"):
        firmware_request(person=administrator, part=bmc, image=image, confirmation=bmc.label)
    zones = simulator.state()["zones"]
    operation = carry_out(ask(administrator, bmc, image=image))
    assert (operation.state, operation.error) == ("done", "")
    assert simulator.state()["boots"] == 2
    assert simulator.state()["zones"] == zones
    assert Proof.objects.get(operation=operation).untouched
    bmc.refresh_from_db()
    assert bmc.version == "3.0.0"
    done = AuditEntry.objects.get(action="firmware.update", outcome="done")
    assert done.after is not None
    assert done.after["image_name"] == "falcon.bin"


def test_an_older_service_takes_an_image_without_a_form(administrator: User) -> None:
    with SimulatorProcess("--plain-push", chassis="falcon-1") as process:
        process.set_speed(20)
        put_back(process)
        gpu = free_gpu()
        operation = carry_out(ask(administrator, gpu, image=image_of(administrator, "96.1")))
        assert (operation.state, operation.error) == ("done", "")
        gpu.refresh_from_db()
        assert gpu.version == "96.1"


@pytest.mark.usefixtures("simulator")
def test_a_bad_image_a_task_that_hangs_and_an_old_version_afterwards_are_failures_that_say_so(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    gpu = free_gpu()
    before = gpu.version
    bad = carry_out(ask(administrator, gpu, image_uri="https://images.example/nonsense.bin"))
    assert bad.state == "failed"
    assert bad.error.startswith("The update failed: The image is not for this chassis")
    simulator.fault("firmware_keeps_version")
    kept = carry_out(ask(administrator, gpu, image_uri=URI))
    assert (kept.state, kept.error) == ("failed", f"It has version {before}, as before the update.")
    simulator.clear_faults()
    simulator.fault("firmware_hangs")
    hung = carry_out(ask(administrator, gpu, image_uri=URI))
    assert hung.state == "failed"
    assert "Its task stands at" in hung.error
    assert kept.steps[-1]["sentence"] == f"It has version {before}."


def test_an_update_is_cancelled_where_its_task_can_be(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(firmware_steps, "STALL_SECONDS", 60.0)
    simulator.fault("firmware_hangs")
    gpu = free_gpu()
    operation = ask(administrator, gpu, image_uri=URI)
    real = firmware_steps._Update.follow

    async def follow(self: firmware_steps._Update, step: dict[str, object]) -> str:
        await asyncio.to_thread(operation_cancel, person=administrator, operation=operation)
        return await real(self, step)

    monkeypatch.setattr(firmware_steps._Update, "follow", follow)
    operation = carry_out(operation)
    assert (operation.state, operation.error) == ("cancelled", "Cancelled while it was carried out.")
    simulator.clear_faults()
    monkeypatch.setattr(firmware_steps._Update, "follow", real)
    assert carry_out(ask(administrator, gpu, image_uri=URI)).state == "done"  # its service is free again


def test_a_worker_that_takes_over_sends_no_second_image(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    gpu = free_gpu()
    operation = ask(administrator, gpu, image_uri=URI)
    setting = {**operation.setting, "before": "0.1", "sent": True}
    Operation.objects.filter(pk=operation.pk).update(setting=setting, attempts=1, started_at=operation.requested_at)
    operation = carry_out(operation)
    assert operation.state == "done"  # another version than before is there already
    gpu.refresh_from_db()
    assert gpu.version != "5.0.0"


def test_what_a_run_or_a_lease_holds_is_not_drained(
    chassis: Chassis, administrator: User, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch = part("drawer1_switch")
    gpu = Device.objects.get(uri__endswith="drawer1/PCIeDevices/slot1")
    lease = Lease.objects.create(tenant=tenant, tenant_name=tenant.name, state="active", starts_at=chassis.created_at)
    item = lease.items.create(device=gpu, taken_at=chassis.created_at)
    with pytest.raises(Conflict, match=f"in lease {lease.pk} of {tenant.name}. Ask them to return it"):
        firmware_drain(person=administrator, part=switch)
    item.delete()
    monkeypatch.setitem(globals(), "HOLDS", [lambda pks, _who: {gpu.pk: "the run 7 of ada"}])
    monkeypatch.setattr("fabric.operations.services.DEVICE_HOLD_SOURCES", HOLDS)
    with pytest.raises(InUse, match="the run 7 of ada"):
        firmware_drain(person=administrator, part=switch)


HOLDS = DEVICE_HOLD_SOURCES


def test_wrong_requests_are_refused_in_a_sentence(chassis: Chassis, administrator: User, member: User) -> None:
    gpu, image = free_gpu(), image_of(administrator, "2")
    with pytest.raises(Forbidden):
        ask(member, gpu, image_uri=URI)
    with pytest.raises(Invalid, match="not the name"):
        firmware_request(person=administrator, part=gpu, image_uri=URI, confirmation="gpu")
    for uri in (
        "ftp://a/b-1.0.bin",
        "https://user:secret@a/b.bin",
        "file:///etc/passwd",
        "https://[",
        "https://a b",
        "a",
    ):
        with pytest.raises(Invalid):
            ask(administrator, gpu, image_uri=uri)
    for sources in ({}, {"image_uri": URI, "image": image}):
        with pytest.raises(Invalid, match="either"):
            ask(administrator, gpu, **sources)
    host = part("Systems/node-a")
    assert update_service(host) is None
    with pytest.raises(Conflict, match="offers no update"):
        ask(administrator, host, image_uri=URI)
    FirmwareImage.objects.filter(pk=image.pk).update(size=65 * 2**20)
    image.refresh_from_db()
    with pytest.raises(Conflict, match="at most 64 MB"):
        ask(administrator, gpu, image=image)
    assert not Operation.objects.exists()


def test_images_are_stored_whole_or_not_at_all_and_deleted_with_their_files(
    administrator: User, member: User, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client()
    client.force_login(administrator)
    answer = client.post(
        "/maintenance/images/", {"file": SimpleUploadedFile("../a/b.bin", b"FALCON-FIRMWARE 1 ")}, follow=True
    )
    image = FirmwareImage.objects.get()
    assert f"{image.name} was uploaded." in answer.content.decode()
    assert (image.name, image.size) == ("b.bin", 18)
    assert image_path(image.pk).read_bytes() == b"FALCON-FIRMWARE 1 "
    assert [one["sha256"] for one in client.get("/api/v1/firmware-images/").json()["results"]] == [image.sha256]
    assert "The file is empty." in client.post("/maintenance/images/").content.decode()
    monkeypatch.setattr("fabric.maintenance.services.MAX_IMAGE_BYTES", 10)
    with pytest.raises(Invalid, match="at most"):
        firmware_image_add(person=administrator, name="large", chunks=iter([b"12345678", b"901"]))
    with pytest.raises(Forbidden):
        firmware_image_add(person=member, name="x", chunks=[b"1"])
    assert [file.name for file in folder.rglob("*.*")] == [f"{image.pk}.bin"]
    client.post(f"/maintenance/images/{image.pk}/removal/")
    assert not list(folder.rglob("*.*"))


def test_the_page_drains_and_requests_it(chassis: Chassis, administrator: User) -> None:
    client = Client()
    client.force_login(administrator)
    session = client.session
    session["proved_at"] = 9e9
    session.save()
    switch, gpu = part("drawer1_switch"), free_gpu()
    page = client.get(f"/maintenance/{switch.pk}/").content.decode()
    assert "have to be detached first" in page
    answer = client.post(f"/maintenance/{switch.pk}/drain/")
    assert answer.headers["Location"] == f"/plans/{Plan.objects.get().pk}/"
    image = image_of(administrator, "7.7")
    posted = {"update": "1", "image": image.pk, "version": "7.7", "confirmation": gpu.label}
    answer = client.post(f"/maintenance/{gpu.pk}/", posted)
    operation = Operation.objects.get()
    assert answer.headers["Location"] == f"/operations/{operation.pk}/"
    assert (operation.setting["image"], operation.setting["wanted"]) == (image.pk, "7.7")
    with pytest.raises(Conflict, match="An update that has not ended needs"):
        firmware_image_remove(person=administrator, image=image)
    again = client.post(f"/maintenance/{gpu.pk}/", {**posted, "image": "", "image_uri": "nonsense"})
    assert "Give an http or https URI" in again.content.decode()


def test_a_second_administrator_approves_an_update_and_a_reset_where_the_policy_asks_for_one(
    chassis: Chassis, administrator: User
) -> None:
    ben = User.objects.create_superuser("ben", password="a-long-password-2")
    ApprovalPolicy.objects.create(pk=1, dangers=[Danger.FIRMWARE, Danger.POWER])
    clients = {person: Client() for person in (administrator, ben)}
    for person, client in clients.items():
        client.force_login(person)
        session = client.session
        session["proved_at"] = 9e9
        session.save()
    gpu, image = free_gpu(), image_of(administrator, "7.7")
    posted = {"image_id": image.pk, "confirmation": gpu.label}
    where = f"/api/v1/managed-parts/{gpu.pk}/firmware/"
    answer = clients[administrator].post(where, posted, content_type="application/json")
    assert answer.json()["state"] == "waiting"
    assert not Operation.objects.exists()
    done = clients[ben].post(f"/api/v1/approvals/{answer.json()['id']}/approve/", {}, content_type="application/json")
    assert done.json().get("state") == "done", done.json()
    operation = Operation.objects.get()
    assert (operation.kind, operation.setting["image"]) == ("firmware", image.pk)
    Operation.objects.update(state="done")
    bmc = part("Managers/bmc")
    posted = {"reset_type": "ForceRestart", "confirmation": bmc.label}
    where = f"/api/v1/managed-parts/{bmc.pk}/reset/"
    assert clients[administrator].post(where, posted, content_type="application/json").json()["state"] == "waiting"
