"""What the site does is an event, once, and tells nothing that is not for whoever sees it."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from django.db import transaction
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.models import Role, Tenant, User
from fabric.drift.models import Drift
from fabric.inventory.models import Chassis, Device, HostPort
from fabric.leases.grants import device_grant, host_port_grant
from fabric.leases.models import Lease, LeaseEvent, LeaseItem
from fabric.operations.models import Operation, Plan
from fabric.operations.services import operation_request
from fabric.signals import inventory_changed, operation_changed, plan_changed
from falconweb.testing import carry_out, device_in, host_port_of
from telemetry.events.models import Event, EventQuerySet, Position
from telemetry.events.receivers import events_catch_up
from telemetry.events.services import event_record, events_delete_old

pytestmark = pytest.mark.django_db(transaction=True)
PASSWORD = "a-long-password-1"


def recorded(*messages: str) -> list[str]:
    """Return which of these messages there are, in their order."""
    names = [f"FalconWeb.{one}" for one in messages]
    return [row.message.partition(".")[2] for row in Event.objects.filter(message__in=names).order_by("pk")]


@pytest.fixture
def ada() -> User:
    return User.objects.create_superuser("ada", password=PASSWORD)


def sign_in(client: Client, name: str, password: str) -> None:
    client.post(reverse("accounts:sign_in"), {"username": name, "password": password})


def test_sign_ins_and_sign_outs_are_events_of_the_person(ada: User) -> None:
    browser = Client()
    sign_in(browser, "ada", PASSWORD)
    browser.post(reverse("accounts:sign_out"))
    rows = list(Event.objects.order_by("pk"))
    assert [(row.message, row.person_id, row.source) for row in rows] == [
        ("FalconWeb.SignedIn", ada.pk, "sign_in"),
        ("FalconWeb.SignedOut", ada.pk, "sign_in"),
    ]
    assert rows[0].text == "ada signed in from 127.0.0.1."


def test_refused_sign_ins_are_one_event_a_minute_and_never_tell_what_was_typed(ada: User) -> None:
    browser = Client()
    for _ in range(3):
        sign_in(browser, "ada", "wrong")
        sign_in(browser, "my-secret-password", "wrong")
    rows = Event.objects.filter(message="FalconWeb.SignInRefused")
    assert 2 <= rows.count() <= 4  # the minute may end meanwhile
    assert {row.person_id for row in rows} == {ada.pk, None}
    assert not [row.text for row in Event.objects.all() if "secret" in f"{row.text} {row.arguments} {row.key}"]
    assert not Event.objects.filter(message="FalconWeb.SignedIn").exists()


def test_a_chassis_that_comes_and_goes_leaves_its_events_with_its_name() -> None:
    chassis = Chassis.objects.create(name="falcon-9", url="https://127.0.0.1:9")
    Position.objects.create(chassis_id=chassis.pk, uri="/log")
    chassis.delete()
    assert recorded("ChassisAdded", "ChassisRemoved") == ["ChassisAdded", "ChassisRemoved"]
    assert set(Event.objects.values_list("chassis_name", flat=True)) == {"falcon-9"}
    assert not Position.objects.exists()


def test_an_operation_is_told_from_its_begin_to_its_end_and_once(
    falcon_chassis: Chassis, falconweb_administrator: User
) -> None:
    device, target = device_in(falcon_chassis, drawer=1, slot=7), host_port_of(falcon_chassis, "H2")
    operation = operation_request(person=falconweb_administrator, device=device, target=target)
    ended = carry_out(operation)
    assert ended.state == "done"
    operation_changed.send(Operation, operation=ended)  # whoever tells it again
    assert events_catch_up() == 0
    assert recorded("OperationBegun", "OperationDone") == ["OperationBegun", "OperationDone"]
    done = Event.objects.get(message="FalconWeb.OperationDone")
    assert (done.device_id, done.person_name) == (device.pk, falconweb_administrator.username)
    assert done.link == f"/operations/{operation.pk}/"
    assert device.slot is not None
    assert done.drawer_id == device.slot.drawer_id


def test_what_no_signal_told_of_is_found_by_looking(db: None) -> None:
    now = timezone.now()
    tenant = Tenant.objects.create(name="One")
    chassis = Chassis.objects.create(name="falcon-9", url="https://127.0.0.1:9")
    device = Device.objects.create(chassis=chassis, uri="/d", name="GPU 1", tenant=tenant)
    common = {"chassis": chassis, "device": device, "summary": "Attach GPU 1", "requested_by_name": "ada"}
    Operation.objects.create(kind="attach", state="failed", started_at=now, finished_at=now, error="No.", **common)
    Operation.objects.create(kind="detach", state="done", started_at=now, finished_at=now, is_rollback=True, **common)
    Plan.objects.create(title="Move", state="stopped", applied_at=now, requested_by_name="ada", sentence="Why.")
    Plan.objects.create(title="Draft", state="draft", requested_by_name="ada")
    Drift.objects.create(chassis=chassis, kind="attachment", uri="/d", device=device, what="GPU 1", noticed_at=now)
    lease = Lease.objects.create(tenant=tenant, tenant_name="One", state="ended", starts_at=now, ended_at=now)
    LeaseItem.objects.create(lease=lease, device=device, kind="gpu", name="GPU 1", taken_at=now, released_at=now)
    LeaseEvent.objects.bulk_create([LeaseEvent(lease=lease, by_name="ada", sentence="Ended.")])
    assert events_catch_up() == 9
    assert events_catch_up() == 0
    assert sorted(recorded("OperationFailed", "OperationRolledBack", "PlanBegun", "PlanStopped", "DriftNoticed")) == [
        "DriftNoticed", "OperationFailed", "OperationRolledBack", "PlanBegun", "PlanStopped",
    ]  # fmt: skip
    assert recorded("LeaseGiven", "LeaseEnded") == ["LeaseGiven", "LeaseEnded"]
    assert set(Event.objects.filter(device_id=device.pk).values_list("tenant_name", flat=True)) == {"One"}


def test_signals_tell_of_plans_drift_and_leases_at_once() -> None:
    now = timezone.now()
    tenant = Tenant.objects.create(name="One")
    chassis = Chassis.objects.create(name="falcon-9", url="https://127.0.0.1:9")
    plan = Plan.objects.create(title="Move", state="running", applied_at=now, requested_by_name="ada")
    plan_changed.send(Plan, plan=plan)
    plan.state, plan.finished_at = "done", now
    plan_changed.send(Plan, plan=plan)
    Drift.objects.create(chassis=chassis, kind="mode", uri="/d", what="Drawer 1", noticed_at=now)
    inventory_changed.send(Chassis, chassis_id=chassis.pk)
    lease = Lease.objects.create(tenant=tenant, tenant_name="One", state="active", starts_at=now)
    LeaseItem.objects.create(lease=lease, kind="gpu", name="GPU 1", taken_at=now)
    LeaseEvent.objects.create(lease=lease, by_name="ada", sentence="Given.")
    wanted = ("PlanBegun", "PlanDone", "DriftNoticed", "LeaseGiven")
    assert recorded(*wanted) == list(wanted)


def test_what_is_undone_is_no_event_and_two_at_once_are_one() -> None:
    with transaction.atomic():
        record("undone")
        transaction.set_rollback(True)
    assert not Event.objects.exists()
    barrier = threading.Barrier(4)

    def tell() -> None:
        barrier.wait()
        try:
            record("the same")
        finally:
            from django.db import connections

            connections.close_all()

    threads = [threading.Thread(target=tell) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Event.objects.count() == 1


def record(key: str = "", **more: object) -> Event | None:
    """Record something."""
    arguments = {"message_id": "Fabric.1.0.PortDown", "severity": "Critical", "at": timezone.now(), "text": "Down."}
    return event_record(source="bmc", key=key, **{**arguments, **more})  # type: ignore[arg-type]


def seen(rows: EventQuerySet) -> set[str]:
    return set(rows.values_list("text", flat=True))


def test_a_tenant_sees_what_was_its_own_then_and_its_own_sign_ins(ada: User) -> None:
    one, two = (Tenant.objects.create(name=name) for name in ("One", "Two"))
    bob = User.objects.create_user("bob", password=PASSWORD, role=Role.USER, tenant=one)
    eve = User.objects.create_user("eve", password=PASSWORD, role=Role.VIEWER, tenant=two)
    chassis = Chassis.objects.create(name="falcon-9", url="https://127.0.0.1:9")
    device = Device.objects.create(chassis=chassis, uri="/d", name="GPU 1")
    host_port = HostPort.objects.create(chassis=chassis, uri="/z", name="H1", label="H1", endpoint_uri="/e")
    before = timezone.now()
    device_grant(person=ada, device=device, tenant=one)
    host_port_grant(person=ada, host_port=host_port, tenant=two)
    between = timezone.now()
    device_grant(person=ada, device=device, tenant=two, take=True)
    Event.objects.all().delete()
    record(text="before anybody held it", device_id=device.pk, chassis_id=chassis.pk, at=before)
    record(text="while One held it", device_id=device.pk, chassis_id=chassis.pk, at=between)
    record(text="now that Two holds it", device_id=device.pk, chassis_id=chassis.pk)
    record(text="of the chassis", chassis_id=chassis.pk)
    event_record(
        source="sign_in", message_id="FalconWeb.SignedIn", severity="OK", text="bob", at=before, person_id=bob.pk
    )
    # What somebody did for a former tenant is not the person's.
    event_record(
        source="operation", message_id="FalconWeb.OperationDone", severity="OK", text="done for Two", at=before,
        person_id=bob.pk, tenant_id=two.pk,
    )  # fmt: skip
    assert seen(Event.objects.visible_to(bob)) == {"while One held it", "bob"}
    assert seen(Event.objects.visible_to(eve)) == {"now that Two holds it", "done for Two"}
    assert Event.objects.visible_to(ada).count() == 6
    User.objects.filter(pk=bob.pk).update(is_active=False)
    assert not Event.objects.visible_to(User.objects.get(pk=bob.pk)).exists()


def test_events_of_long_ago_are_deleted_in_parts(settings: object) -> None:
    now = timezone.now()
    record(text="young", at=now - timedelta(days=730))
    for number in range(1203):
        record(text=f"old {number}", at=now - timedelta(days=732))
    assert events_delete_old(most=600) == 1000
    assert events_delete_old() == 203
    assert seen(Event.objects.all()) == {"young"}
