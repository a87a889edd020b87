"""Who held which slot, when: times that follow each other without a gap, whoever changed it, and whoever writes."""

from __future__ import annotations

import asyncio
import threading
from itertools import pairwise

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.models import Tenant, User
from fabric.history.models import Attachment
from fabric.history.selectors import attachment_rows, attachment_views
from fabric.history.services import attachments_record
from fabric.inventory.labels import FOREIGN_HOST_PORT
from fabric.inventory.models import Chassis, Device, Slot
from fabric.inventory.sync import inventory_apply
from fabric.leases.grants import device_grant, host_port_grant
from fabric.operations.models import Operation
from fabric.operations.services import operation_request
from fabric.plans.refresh import refresh_allocation
from fabric.plans.rules import DesiredState
from falconweb.testing import SimulatorProcess, carry_out, device_in, host_port_of, mirror
from tests.fabric.outside import put
from tests.fabric.walks import found, last_walk
from tests.pages import page_text

Origin = Attachment.Origin


def times(device: Device) -> list[Attachment]:
    """Return the times of a device, oldest first, after checking that they follow each other."""
    rows = list(Attachment.objects.filter(device=device).order_by("since", "pk"))
    assert sum(row.until is None for row in rows) <= 1
    for before, after in pairwise(rows):
        assert before.until is not None
        assert before.since <= before.until <= after.since
    return rows


def story(device: Device) -> list[tuple[str, str, str, str]]:
    """Return where a device was, whose, how that began and how it ended."""
    return [(row.host_port_label or "none", row.tenant_name or "pool", row.origin, row.ending) for row in times(device)]


def test_every_device_has_a_time_from_the_first_sight(chassis: Chassis) -> None:
    for device in Device.objects.all():
        (row,) = times(device)
        assert (row.host_port, row.slot, row.origin, row.until) == (device.host_port, device.slot, Origin.FOUND, None)
    found(chassis)
    assert Attachment.objects.count() == Device.objects.count()


@pytest.mark.usefixtures("simulator")
def test_an_operation_begins_a_time_and_is_named(chassis: Chassis, administrator: User) -> None:
    gpu = device_in(chassis, drawer=1, slot=1)
    asked = [
        operation_request(person=administrator, device=gpu, target=host_port_of(chassis, "H2")),
    ]
    carry_out(asked[0])
    mirror(chassis)
    asked.append(operation_request(person=administrator, device=gpu, target=None))
    carry_out(asked[1])
    mirror(chassis)
    assert story(gpu) == [
        ("H1", "pool", "found", "operation"), ("H2", "pool", "operation", "operation"),
        ("none", "pool", "operation", ""),
    ]  # fmt: skip
    assert [row.begun_by for row in times(gpu)] == [None, *asked]
    assert [row.ended_by for row in times(gpu)] == [*asked, None]
    assert all(row.until == after.since for row, after in pairwise(times(gpu)))


def test_what_others_do_at_the_chassis_is_outside(chassis: Chassis, simulator: SimulatorProcess) -> None:
    gpu = device_in(chassis, drawer=1, slot=1)
    put(chassis, simulator, gpu, to=host_port_of(chassis, "H2"))
    mirror(chassis)
    assert story(gpu) == [("H1", "pool", "found", "outside"), ("H2", "pool", "outside", "")]
    removal = simulator.fault("surprise_removal", "drawer1slot1")
    for _ in range(2):
        mirror(chassis)
    assert story(gpu)[-1] == ("H2", "pool", "outside", "missing")
    simulator.end_fault(removal)
    mirror(chassis)
    assert story(gpu)[-1] == ("none", "pool", "outside", "")


@pytest.mark.parametrize("looks", ["by a walk", "by a plan that goes on"])
def test_what_a_failed_operation_left_is_its_doing(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User, looks: str
) -> None:
    gpu = device_in(chassis, drawer=1, slot=1)
    operation = operation_request(person=administrator, device=gpu, target=host_port_of(chassis, "H2"))
    put(chassis, simulator, gpu, to=None)
    now = timezone.now()
    Operation.objects.filter(pk=operation.pk).update(state="failed", started_at=now, finished_at=now)
    if looks == "by a walk":
        mirror(chassis)
    else:
        asyncio.run(refresh_allocation(chassis, DesiredState()))
    assert story(gpu) == [("H1", "pool", "found", "operation"), ("none", "pool", "operation", "")]
    assert times(gpu)[1].begun_by == operation
    put(chassis, simulator, gpu, to=host_port_of(chassis, "H3"))
    mirror(chassis)
    assert story(gpu)[-1] == ("H3", "pool", "outside", "")


def test_a_grant_splits_a_time_at_its_own_moment(chassis: Chassis, administrator: User, tenant: Tenant) -> None:
    gpu = device_in(chassis, drawer=1, slot=1)
    device_grant(person=administrator, device=gpu, tenant=tenant)
    gpu.refresh_from_db()
    found(chassis)
    assert story(gpu) == [("H1", "pool", "found", "grant"), ("H1", "Vision group", "grant", "")]
    assert times(gpu)[-1].since == gpu.tenant_since
    device_grant(person=administrator, device=gpu, tenant=None)
    assert story(gpu)[-1] == ("H1", "pool", "grant", "")


def test_another_device_in_the_slot_begins_a_time_of_its_own(chassis: Chassis, tenant: Tenant) -> None:
    gpu = device_in(chassis, drawer=1, slot=1)
    found(chassis, devices={gpu: {"serial_number": "ANOTHER"}})
    assert [(row.serial_number, row.origin) for row in times(gpu)] == [
        (gpu.serial_number, "found"), ("ANOTHER", "swap"),
    ]  # fmt: skip
    # One whose serial number is not told for a moment is no other.
    found(chassis, devices={gpu: {"serial_number": ""}})
    assert len(times(gpu)) == 2


@pytest.mark.usefixtures("simulator")
def test_what_an_old_walk_says_of_an_operation_is_not_written(chassis: Chassis, administrator: User) -> None:
    gpu = device_in(chassis, drawer=1, slot=1)
    begun, old = timezone.now(), last_walk(chassis)
    operation = operation_request(person=administrator, device=gpu, target=host_port_of(chassis, "H2"))
    inventory_apply(chassis=chassis, inventory=old, begun_at=begun)
    carry_out(operation)
    inventory_apply(chassis=chassis, inventory=old, begun_at=begun)
    mirror(chassis)
    assert [row[0] for row in story(gpu)] == ["H1", "H2"]


@pytest.mark.usefixtures("transactional_db")
def test_writers_at_once_tell_a_change_once(chassis: Chassis) -> None:
    devices = list(Device.objects.filter(host_port__label="H1"))
    Device.objects.filter(pk__in=[one.pk for one in devices]).update(host_port=host_port_of(chassis, "H2"))
    together, wrong = threading.Barrier(4), []

    def write(order: int) -> None:
        try:
            together.wait()
            attachments_record([one.pk for one in devices][::order])
        except Exception as error:  # noqa: BLE001 - told below
            wrong.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=write, args=(1 if index % 2 else -1,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert all([row[0] for row in story(one)] == ["H1", "H2"] for one in devices)


@pytest.fixture
def past(chassis: Chassis, administrator: User, member: User, tenant: Tenant) -> tuple[Device, Client, Client]:
    """A GPU with a history in several hands, a client of an administrator's, and one of its holder's."""
    gpu = device_in(chassis, drawer=1, slot=1)
    rival = Tenant.objects.create(name="Rival group")
    device_grant(person=administrator, device=gpu, tenant=rival)
    operation = operation_request(person=administrator, device=gpu, target=host_port_of(chassis, "H2"))
    Device.objects.filter(pk=gpu.pk).update(host_port=host_port_of(chassis, "H2"))
    now = timezone.now()
    Operation.objects.filter(pk=operation.pk).update(state="done", started_at=now, finished_at=now)
    attachments_record([gpu.pk], operations={gpu.pk: operation})
    device_grant(person=administrator, device=gpu, tenant=None)
    device_grant(person=administrator, device=gpu, tenant=tenant)
    host_port_grant(person=administrator, host_port=host_port_of(chassis, "H1"), tenant=tenant)
    found(chassis, attached={gpu: host_port_of(chassis, "H1")})
    clients = [Client(), Client()]
    for client, person in zip(clients, (administrator, member), strict=True):
        client.force_login(person)
    return gpu, clients[0], clients[1]


def test_a_tenant_sees_the_time_since_it_holds_a_device_and_no_host_of_others(
    past: tuple[Device, Client, Client], member: User
) -> None:
    gpu, _, client = past
    views = attachment_views(member, attachment_rows(member, device=gpu.pk))
    assert [(view.place, view.tenant_name) for view in views] == [
        ("node-a (H1)", "Vision group"), (FOREIGN_HOST_PORT, "Vision group"),
    ]  # fmt: skip
    for page in (
        reverse("fabric:slot", args=[gpu.slot_id]), reverse("fabric:device", args=[gpu.pk]),
        reverse("fabric:slot_history", args=[gpu.slot_id]), reverse("fabric:device_history", args=[gpu.pk]),
        reverse("fabric:slot_history_csv", args=[gpu.slot_id]), reverse("fabric:device_history_csv", args=[gpu.pk]),
        f"/api/v1/history/?device_id={gpu.pk}", f"/api/v1/history/?slot_id={gpu.slot_id}",
    ):  # fmt: skip
        answer = client.get(page)
        text = page_text(answer)
        assert "Vision group" in text, page
        for secret in ("Rival", "node-b", "requested by ada"):
            assert secret not in text, page


def test_the_history_of_a_slot_is_shown_in_pages_as_csv_and_by_the_api(past: tuple[Device, Client, Client]) -> None:
    gpu, client, _ = past
    text = client.get(reverse("fabric:slot_history", args=[gpu.slot_id])).content.decode()
    for words in ("Rival group", "node-b (H2)", "requested by ada", "outside FalconWeb", "unassigned"):
        assert words in text
    sheet = client.get(reverse("fabric:slot_history_csv", args=[gpu.slot_id])).getvalue().decode().splitlines()
    listed = client.get(f"/api/v1/history/?slot_id={gpu.slot_id}").json()["results"]
    assert len(sheet) - 1 == len(listed) == len(times(gpu))
    assert sheet[0].startswith("since,until,slot,device")
    assert listed[0]["until"] is None
    assert [one["tenant_name"] for one in listed] == [
        "Vision group",
        "Vision group",
        "",
        "Rival group",
        "Rival group",
        "",
    ]


def test_the_history_of_an_empty_slot_is_an_administrators(
    chassis: Chassis, past: tuple[Device, Client, Client]
) -> None:
    empty = Slot.objects.filter(device=None).first()
    assert empty is not None
    _, administrators, members = past
    where = reverse("fabric:slot_history", args=[empty.pk])
    assert "Nothing yet" in administrators.get(where).content.decode()
    assert members.get(where).status_code == 404


def test_a_device_that_moves_to_another_slot_is_in_the_history_of_both(chassis: Chassis) -> None:
    gpu, slot = device_in(chassis, drawer=1, slot=1), Slot.objects.filter(device=None).first()
    assert slot is not None
    before = gpu.slot_id
    Device.objects.filter(pk=gpu.pk).update(slot=slot)
    attachments_record([gpu.pk])
    assert [row.slot_id for row in times(gpu)] == [before, slot.pk]
