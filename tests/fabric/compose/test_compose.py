"""Several devices at once: what would become of each, one request for all, and the tasks that a person has."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from accounts.approvals.models import ApprovalPolicy, ApprovalRequest
from accounts.models import Tenant, User
from fabric.compose.selectors import attachment_changes, own_tasks
from fabric.compose.services import changes_check, changes_request
from fabric.inventory.models import Chassis, Device, Drawer
from fabric.leases.models import Lease, LeaseItem
from fabric.operations.models import Operation, Plan
from fabric.operations.services import operation_request
from falconweb.testing import carry_out, carry_out_plan
from tests.fabric.hosts import MARIA, TellingHost
from tests.fabric.plans.pages import browser, device_in, done_before, granted, port, words


def change(slot: int, target: str, drawer: int = 1) -> str:
    """Return a change of the device in a slot, as a form sends it; no label: no host."""
    device = device_in(drawer, slot)
    return f"{device.pk}:{port(target).pk if target else ''}:{device.host_port_id or ''}"


def asked(person: User, *values: str) -> Any:
    """Return what the dialog shows."""
    return browser(person).get(reverse("fabric:compose"), {"change": values})


def sent(person: User, *values: str, **others: str) -> Any:
    """Return the answer to a request of the dialog's script."""
    return browser(person).post(
        reverse("fabric:compose"), {"change": values, **others}, headers={"X-Requested-With": "compose"}
    )


@pytest.mark.usefixtures("simulator")
def test_several_devices_are_moved_by_one_plan_and_their_undoing_is_offered(
    chassis: Chassis, administrator: User
) -> None:
    values = change(3, "H2"), change(4, "H2")
    answer = sent(administrator, *values)
    # Sent twice, it is requested once.
    assert sent(administrator, *values).status_code == 409
    plan = Plan.objects.get()
    assert answer.json() == {"sentence": "", "page": f"/plans/{plan.pk}/"}
    assert plan.title == "Move 2 devices to node-b (H2)"
    (task,) = own_tasks(administrator)
    assert (task.is_open, task.cancel, task.done, task.total) == (True, "fabric:plan_cancel", 0, 2)
    carry_out_plan(plan)
    (task,) = own_tasks(administrator)
    assert (task.state, task.cancel) == ("done", "")
    assert task.undo == (change(3, "H1"), change(4, "H1"))
    sent(administrator, *task.undo, title="Undo: Move 2 devices to node-b (H2)")
    undone = Plan.objects.get(origin="undo")
    carry_out_plan(undone)
    assert device_in(1, 3).host_port == device_in(1, 4).host_port == port("H1")


@pytest.mark.usefixtures("simulator")
def test_one_device_is_one_operation_which_is_undone_until_somebody_moves_it(
    chassis: Chassis, administrator: User
) -> None:
    answer = browser(administrator).post(reverse("fabric:compose"), {"change": change(1, "H2")})
    operation = Operation.objects.get()
    assert answer["Location"] == f"/operations/{operation.pk}/"
    (task,) = own_tasks(administrator)
    assert (task.is_open, task.cancel, task.undo) == (True, "fabric:operation_cancel", ())
    carry_out(operation)
    (task,) = own_tasks(administrator)
    assert task.undo == (change(1, "H1"),)
    carry_out(operation_request(person=administrator, device=device_in(1, 1), target=None))
    assert {one.undo for one in own_tasks(administrator)} == {(change(1, "H2"),), ()}


def test_the_dialog_copies_the_command_of_one_device(chassis: Chassis, administrator: User) -> None:
    for target in ("H2", ""):
        shown = asked(administrator, change(1, target)).content.decode()
        (body,) = re.findall(r'data-body="([^"]*)"', shown)
        values = [device_in(1, 1).pk, port(target).pk if target else None, port("H1").pk]
        fields = ["device_id", "target_host_port_id", "expected_host_port_id"]
        assert json.loads(unescape(body)) == dict(zip(fields, values, strict=True))
    assert "data-curl" not in asked(administrator, change(1, "H2"), change(2, "H2")).content.decode()


def test_what_is_refused_is_named_for_each_device_and_the_others_go(chassis: Chassis, administrator: User) -> None:
    Device.objects.filter(pk=device_in(1, 7).pk).update(missing_since=timezone.now())
    values = [change(3, "H2"), change(6, "H2"), change(7, "H2")]
    values[1] = f"{device_in(1, 6).pk}:{port('H2').pk}:{port('H1').pk}"
    shown = words(asked(administrator, *values))
    assert "is not where you saw it" in shown
    assert "is missing" in shown
    check = changes_check(administrator, attachment_changes(administrator, values))
    assert set(check.obstacles) == {device_in(1, 6).pk, device_in(1, 7).pk}
    answer = sent(administrator, *values)
    operation = Operation.objects.get()
    assert operation.device == device_in(1, 3)
    name = device_in(1, 7).name
    assert f"{name} is left out: {name} is missing" in answer.json()["sentence"]
    # Nothing is left of what was refused as a whole.
    refused = sent(administrator, *values[1:])
    assert refused.status_code == 409
    assert not Plan.objects.exists()


def test_devices_are_tried_together_by_the_rules_of_their_drawer(chassis: Chassis, administrator: User) -> None:
    Drawer.objects.filter(number=1).update(mode="StandardTwoHosts")
    changes = attachment_changes(administrator, [change(3, "H2"), change(7, "H2")])
    obstacles = changes_check(administrator, changes).obstacles
    assert list(obstacles) == [device_in(1, 3).pk]
    assert "H2 reaches slots 5 to 8, not slot 3" in obstacles[device_in(1, 3).pk]
    Drawer.objects.filter(number=1).update(mode="StandardOneHost")
    Device.objects.filter(slot__drawer__number=1).exclude(slot__number__in=[1, 2]).update(host_port=None)
    # One alone would leave the other at another port, which this mode does not permit.
    alone = attachment_changes(administrator, [change(1, "H2")])
    assert changes_check(administrator, alone).obstacles
    together = attachment_changes(administrator, [change(1, "H2"), change(2, "H2")])
    assert not changes_check(administrator, together).obstacles
    work, refused = changes_request(person=administrator, changes=together)
    assert isinstance(work, Plan)
    assert not refused


def test_the_dialog_says_whose_a_device_is_and_how_long_it_takes(
    chassis: Chassis, administrator: User, tenant: Tenant
) -> None:
    gpu = device_in(1, 1)
    granted(tenant, 1)
    ends = timezone.now() + timedelta(days=3)
    lease = Lease.objects.create(
        tenant=tenant, tenant_name=tenant.name, state=Lease.State.ACTIVE, starts_at=timezone.now(), ends_at=ends
    )
    LeaseItem.objects.create(lease=lease, device=gpu, kind="gpu", name=gpu.name, taken_at=timezone.now())
    done_before(chassis, "move", *[40.0] * 5, *[55.0] * 5)
    answer = asked(administrator, change(1, "H2"))
    shown = words(answer)
    assert f"{tenant.name}, leased until {ends:%Y-%m-%d %H:%M} UTC" in shown
    assert "No agent runs on node-a: not known" in shown
    assert "Usually 40 to 55 s." in shown
    assert "all other links are verified to be unchanged" in shown
    assert f'data-reading="{gpu.pk}"' in answer.content.decode()


def test_the_dialog_asks_the_database_no_more_for_more_devices_than_for_their_rules(
    chassis: Chassis, administrator: User
) -> None:
    counts = []
    for slots in ((3,), (3, 4)):
        client = browser(administrator)
        with CaptureQueriesContext(connection) as queries:
            client.get(reverse("fabric:compose"), {"change": [change(slot, "H2") for slot in slots]})
        counts.append(len(queries))
    assert counts[1] < counts[0] + 20


def test_a_stranger_learns_nothing_and_changes_nothing(
    chassis: Chassis, administrator: User, tenant: Tenant, member: User, viewer: User
) -> None:
    granted(tenant, 3, ports=("H2",))
    Device.objects.filter(pk=device_in(1, 3).pk).update(host_port=None)
    for value in (change(4, "H2"), change(3, "H3"), f"{device_in(1, 3).pk}:{port('H2').pk}:{port('H1').pk}"):
        assert asked(member, value).status_code == 404
        assert sent(member, value).status_code == 404
    assert asked(viewer, change(3, "H2")).status_code == 403
    for wrong in ([], ["1"], ["a:b:c"], [change(3, "H2")] * 2, [f"{one}::" for one in range(1, 18)]):
        assert sent(administrator, *wrong).status_code in {400, 404}
    assert not Operation.objects.exists()
    assert not Plan.objects.exists()
    # What one of a tenant began is a task of theirs, and of nobody else.
    operation_request(person=member, device=device_in(1, 3), target=port("H2"))
    assert len(own_tasks(member)) == 1
    assert own_tasks(administrator) == []
    # A host port that is no longer theirs is not named in what would undo it.
    Operation.objects.update(state="done", finished_at=timezone.now(), source=port("H1"))
    Device.objects.filter(pk=device_in(1, 3).pk).update(host_port=port("H2"))
    assert own_tasks(member)[0].undo == ()


def test_who_uses_a_device_is_said_and_holds_it(chassis: Chassis, administrator: User) -> None:
    host = TellingHost("node-a")
    host.tell({device_in(1, 1): MARIA})
    shown = words(asked(administrator, change(1, "H2"), change(2, "H2")))
    assert f"▲ In use: train (process {MARIA.pid} of maria)" in shown
    assert "No process found" in shown
    assert "Left out." in shown
    assert "is in use: train" in sent(administrator, change(1, "H2"), change(2, "H2")).json()["sentence"]
    assert Operation.objects.get().device == device_in(1, 2)


def test_what_needs_a_second_person_waits_as_one_draft(chassis: Chassis, administrator: User, tenant: Tenant) -> None:
    granted(tenant, 3, 4)
    Device.objects.filter(slot__drawer__number=1, slot__number__in=[3, 4]).update(host_port=None)
    ApprovalPolicy.objects.create(pk=1, dangers=["tenant"])
    User.objects.create_user("ben", role="administrator")
    answer = sent(administrator, change(3, "H2"), change(4, "H2"))
    assert answer.status_code == 202
    assert "another administrator has to approve it" in answer.json()["sentence"]
    assert Plan.objects.get().state == "draft"
    assert ApprovalRequest.objects.get().state == "waiting"
    assert not Operation.objects.exists()


def test_the_task_drawer_asks_no_more_of_the_database_for_more_tasks(chassis: Chassis, administrator: User) -> None:
    client = browser(administrator)

    def queries() -> int:
        with CaptureQueriesContext(connection) as asked_for:
            assert client.get(reverse("fabric:tasks")).status_code == 200
        return len(asked_for)

    sent(administrator, change(1, "H2"))
    sent(administrator, change(2, "H2"), change(3, "H2"))
    few = queries()
    sent(administrator, change(4, "H2"))
    sent(administrator, change(5, "H1"), change(6, "H1"))
    assert queries() == few
