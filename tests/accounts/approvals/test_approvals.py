"""Acts that need two people: asked for on pages and by the API, decided by another administrator, carried out once."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.approvals.models import ApprovalPolicy, ApprovalRequest, Danger
from accounts.approvals.services import approvals_expire
from accounts.audit.context import Origin, bind_origin, unbind_origin
from accounts.audit.models import AuditEntry
from accounts.models import Role, User
from accounts.services import person_add, person_edit
from core.errors import Conflict
from fabric.bmc.types import DrawerMode
from fabric.inventory.models import Chassis, Device, Drawer, HostPort
from fabric.leases.emails import letters_send
from fabric.leases.models import Letter
from fabric.operations.models import Operation
from fabric.plans.rules import DesiredState
from fabric.plans.services import plan_apply, plan_change, plan_create
from tests.access.lab import Lab, lab, made_lab
from tests.pages import page_text

__all__ = ["lab", "made_lab"]
pytestmark = pytest.mark.django_db
State = ApprovalRequest.State


@pytest.fixture
def ben(lab: Lab) -> User:
    """A second administrator, for whom nothing waits yet."""
    ApprovalRequest.objects.all().delete()
    return User.objects.create_superuser("ben", password="x")


def client_of(person: User) -> Client:
    client = Client()
    client.force_login(person)
    return client


def policy(*dangers: Danger) -> None:
    ApprovalPolicy.objects.update_or_create(pk=1, defaults={"dangers": [one.value for one in dangers]})


def detach_by_force(lab: Lab, who: str = "owner", **headers: str) -> Any:
    body = {"device_id": lab.device.pk, "target_host_port_id": None, "force": True, "confirmation": lab.device.name}
    return lab.clients[who].post("/api/v1/operations/", body, content_type="application/json", headers=headers)


def decide(client: Client, approval: ApprovalRequest, word: str, body: dict[str, str] | None = None) -> Any:
    return client.post(f"/api/v1/approvals/{approval.pk}/{word}/", body or {}, content_type="application/json")


def test_without_a_policy_one_person_is_enough(lab: Lab, ben: User) -> None:
    assert detach_by_force(lab).status_code == 202
    assert Operation.objects.open().filter(forced=True).exists()
    assert not ApprovalRequest.objects.exists()


def test_a_forced_detach_waits_and_is_carried_out_in_the_name_of_who_asked(lab: Lab, ben: User) -> None:
    policy(Danger.FORCE)
    answer = detach_by_force(lab)
    assert answer.status_code == 202
    assert answer["Location"].endswith(f"/api/v1/approvals/{answer.json()['id']}/")
    assert answer.json()["state"] == "waiting"
    assert not Operation.objects.open().exists()
    row = ApprovalRequest.objects.get()
    done = decide(client_of(ben), row, "approve").json()
    operation = Operation.objects.open().get()
    assert (done["state"], done["result_kind"], done["result_id"]) == ("done", "operation", str(operation.pk))
    assert (operation.requested_by_name, operation.forced) == ("owner", True)
    asked = AuditEntry.objects.filter(action="operation.request", actor_name="owner").latest("sequence")
    assert asked.after is not None
    assert asked.after["approved by"] == "ben"
    kept = AuditEntry.objects.filter(action__startswith="approval.").order_by("sequence")
    assert list(kept.values_list("action", "actor_name", "outcome")) == [
        ("approval.request", "owner", "done"), ("approval.approve", "ben", "done"),
    ]  # fmt: skip


def test_what_is_forbidden_or_impossible_is_refused_at_once_and_does_not_wait(lab: Lab, ben: User) -> None:
    policy(*Danger)
    assert detach_by_force(lab, "stranger").status_code == 404
    assert detach_by_force(lab, "member").status_code == 403
    wrong = {"device_id": lab.device.pk, "target_host_port_id": None, "force": True, "confirmation": "no"}
    assert lab.clients["owner"].post("/api/v1/operations/", wrong, content_type="application/json").status_code == 400
    assert not ApprovalRequest.objects.exists()


def test_a_trial_leaves_nothing_behind(lab: Lab, ben: User) -> None:
    policy(Danger.CHASSIS_REMOVE)
    Operation.objects.all().delete()
    chassis = Chassis.objects.get()
    entries = AuditEntry.objects.count()
    answer = lab.clients["administrator"].post(
        reverse("fabric:chassis_remove", args=[chassis.pk]), {"name": chassis.name}
    )
    row = ApprovalRequest.objects.get()
    assert answer["Location"] == reverse("accounts:approval", args=[row.pk])
    assert Device.objects.count() == 2
    assert [one.action for one in AuditEntry.objects.filter(sequence__gt=entries)] == ["approval.request"]
    shown = page_text(client_of(ben).get(answer["Location"]))
    assert "Delete falcon with all that the site knows of it." in shown
    assert "held by tenants" in shown
    page = client_of(ben).post(reverse("accounts:approval_decision", args=[row.pk]), {"decision": "approve"})
    assert page.status_code == 302
    assert not Chassis.objects.exists()
    assert AuditEntry.objects.get(action="chassis.remove").actor_name == "administrator"


def test_nobody_approves_for_themselves_by_session_or_token(lab: Lab, ben: User) -> None:
    policy(Danger.CHASSIS_REMOVE)
    lab.clients["administrator"].delete(f"/api/v1/chassis/{Chassis.objects.get().pk}/")
    row = ApprovalRequest.objects.get()
    me = User.objects.get(username="administrator")
    for client in (lab.clients["administrator"], client_of(me)):
        assert decide(client, row, "approve").status_code == 403
        assert decide(client, row, "refuse", {"reason": "no"}).status_code == 403
    from accounts.token_services import token_create

    _, secret = token_create(person=me, name="robot", scope="write", days=1)
    robot = Client(headers={"Authorization": f"Bearer {secret}"})
    assert decide(robot, row, "approve").status_code == 403
    assert "Decision" not in page_text(lab.clients["administrator"].get(reverse("accounts:approval", args=[row.pk])))
    for name in ("owner", "stranger"):
        assert decide(lab.clients[name], row, "approve").status_code == 404
    row.refresh_from_db()
    assert row.state == State.WAITING


def test_an_approval_needs_a_recent_sign_in(lab: Lab, ben: User) -> None:
    """A browser that an administrator left open is no second person."""
    policy(Danger.FORCE)
    detach_by_force(lab)
    row, client = ApprovalRequest.objects.get(), client_of(ben)
    session = client.session
    session["proved_at"] = 0
    session.save()
    assert decide(client, row, "approve").json()["code"] == "sign_in_too_old"
    page = client.post(reverse("accounts:approval_decision", args=[row.pk]), {"decision": "approve"})
    assert page["Location"].startswith("/account/confirmation/")
    assert decide(client, row, "refuse", {"reason": "no"}).json()["state"] == "refused"


def test_another_mode_of_a_drawer_waits(lab: Lab, ben: User) -> None:
    policy(Danger.MODE)
    Device.objects.update(host_port=None)
    drawer = Drawer.objects.get()
    page = lab.clients["administrator"].post(reverse("fabric:drawer", args=[drawer.pk]), {"mode": "StandardOneHost"})
    row = ApprovalRequest.objects.get()
    assert page["Location"] == reverse("accounts:approval", args=[row.pk])
    assert not Operation.objects.open().exists()
    assert decide(client_of(ben), row, "approve").json()["state"] == "done"
    assert Operation.objects.open().get().mode == "StandardOneHost"


def test_a_draft_that_is_changed_while_it_is_applied_is_not_carried_out_unasked(lab: Lab, ben: User) -> None:
    """What needs an approval is read from the draft before it is locked."""
    policy(Danger.MODE)
    Device.objects.exclude(pk=lab.device.pk).update(host_port=None)
    Operation.objects.all().delete()
    me, drawer = User.objects.get(username="administrator"), Drawer.objects.get()
    detach = DesiredState(attachments={lab.device.pk: None})
    harmless = plan_create(person=me, desired=detach, title="Detach", origin="page")
    plan_change(person=me, plan=harmless, desired=replace(detach, modes={drawer.pk: DrawerMode.STANDARD_ONE_HOST}))
    token = bind_origin(Origin(request_id="", via="page"))
    try:
        with pytest.raises(Conflict, match="changed at the same moment"):
            plan_apply(person=me, plan=harmless)
    finally:
        unbind_origin(token)


def test_an_account_that_the_requester_made_is_no_second_person(lab: Lab, ben: User) -> None:
    policy(Danger.CHASSIS_REMOVE)
    me = User.objects.get(username="administrator")
    puppet, _ = person_add(by=me, username="puppet", full_name="", email="", role=Role.ADMINISTRATOR, tenant=None)
    chassis = Chassis.objects.get()
    lab.clients["administrator"].delete(f"/api/v1/chassis/{chassis.pk}/")
    answer = decide(client_of(puppet), ApprovalRequest.objects.get(), "approve")
    assert answer.status_code == 403
    assert "changed your account" in answer.json()["detail"]


def test_a_tenants_device_is_changed_by_an_administrator_with_another_only(lab: Lab, ben: User) -> None:
    policy(Danger.TENANT)
    detach = {"device_id": lab.device.pk, "target_host_port_id": None}
    path = "/api/v1/operations/"
    assert lab.clients["administrator"].post(path, detach, content_type="application/json").json()["state"] == "waiting"
    free = lab.clients["administrator"].put(
        f"/api/v1/devices/{lab.device.pk}/tenant/", {"tenant_id": None, "take": True}, content_type="application/json"
    )
    assert free.json()["dangers"] == ["tenant"]
    assert lab.clients["owner"].post(path, detach, content_type="application/json").json()["state"] == "requested"


def test_what_has_changed_meanwhile_is_not_carried_out(lab: Lab, ben: User) -> None:
    policy(Danger.FORCE)
    detach_by_force(lab)
    Device.objects.filter(pk=lab.device.pk).update(host_port=HostPort.objects.exclude(pk=lab.host_port.pk).first())
    answer = decide(client_of(ben), ApprovalRequest.objects.get(), "approve").json()
    assert (answer["state"], answer["reason"]) == (
        "failed", "What it is about has changed since it was requested. Request it again.",
    )  # fmt: skip
    assert not Operation.objects.open().exists()


def test_a_request_of_another_version_of_the_site_is_not_carried_out(lab: Lab, ben: User) -> None:
    policy(Danger.FORCE)
    detach_by_force(lab)
    ApprovalRequest.objects.update(parameters={})
    answer = decide(client_of(ben), ApprovalRequest.objects.get(), "approve").json()
    assert answer["state"] == "failed"
    assert "This version of the site" in answer["reason"]
    assert not Operation.objects.open().exists()


@pytest.mark.parametrize("away", ["deactivated", "demoted"])
def test_who_may_no_longer_do_it_cannot_have_it_done(lab: Lab, ben: User, away: str) -> None:
    policy(Danger.FORCE)
    detach_by_force(lab)
    values = {"is_active": False} if away == "deactivated" else {"role": Role.VIEWER}
    User.objects.filter(username="owner").update(**values)
    answer = decide(client_of(ben), ApprovalRequest.objects.get(), "approve").json()
    assert answer["state"] == "failed"
    assert not Operation.objects.open().exists()


def test_a_refusal_has_a_reason_and_is_final(lab: Lab, ben: User) -> None:
    policy(Danger.FORCE)
    detach_by_force(lab)
    row = ApprovalRequest.objects.get()
    client = client_of(ben)
    assert decide(client, row, "refuse").status_code == 400
    for _ in range(2):
        assert decide(client, row, "refuse", {"reason": "Not during the demo."}).json()["state"] == "refused"
    assert decide(client, row, "approve").status_code == 409
    assert decide(lab.clients["owner"], row, "withdraw").status_code == 409
    assert "Not during the demo." in page_text(lab.clients["owner"].get(reverse("accounts:approval", args=[row.pk])))


def test_only_who_asked_withdraws(lab: Lab, ben: User) -> None:
    policy(Danger.FORCE)
    detach_by_force(lab)
    row = ApprovalRequest.objects.get()
    assert decide(client_of(ben), row, "withdraw").status_code == 403
    assert decide(lab.clients["owner"], row, "withdraw").json()["state"] == "withdrawn"
    assert decide(client_of(ben), row, "approve").status_code == 409


def test_requests_end_when_their_time_is_over_or_who_asked_is_away(lab: Lab, ben: User) -> None:
    policy(Danger.FORCE)
    detach_by_force(lab)
    row = ApprovalRequest.objects.get()
    assert row.expires_at - row.requested_at == timedelta(hours=24)
    assert approvals_expire() == 0
    ApprovalRequest.objects.update(expires_at=timezone.now())
    assert decide(client_of(ben), row, "approve").status_code == 409
    assert approvals_expire() == 1
    detach_by_force(lab)
    User.objects.filter(username="owner").update(is_active=False)
    assert approvals_expire() == 1
    assert {one.state for one in ApprovalRequest.objects.all()} == {State.EXPIRED}
    assert AuditEntry.objects.filter(action="approval.expire", outcome="done").count() == 2


def test_a_repeated_request_and_a_repeated_approval_are_one(lab: Lab, ben: User) -> None:
    policy(Danger.FORCE)
    first, second = (detach_by_force(lab, **{"Idempotency-Key": "k1"}).json() for _ in range(2))
    assert first["id"] == second["id"]
    other = {"device_id": lab.device.pk, "target_host_port_id": lab.host_port.pk, "force": True}
    reused = lab.clients["owner"].post(
        "/api/v1/operations/", {**other, "confirmation": lab.device.name}, content_type="application/json",
        headers={"Idempotency-Key": "k1"},
    )  # fmt: skip
    assert reused.status_code == 422
    assert detach_by_force(lab).json()["id"] == detach_by_force(lab).json()["id"]  # without a key: while it waits
    row = ApprovalRequest.objects.get(pk=first["id"])
    answers = [decide(client_of(ben), row, "approve").json() for _ in range(2)]
    assert answers[0] == answers[1]
    assert Operation.objects.open().count() == 1
    assert detach_by_force(lab, **{"Idempotency-Key": "k1"}).json()["state"] == "done"


def test_the_policy_is_loosened_by_two_and_needs_two_administrators(lab: Lab) -> None:
    ApprovalRequest.objects.all().delete()
    administrator = lab.clients["administrator"]
    where = "/api/v1/approvals/policy/"
    only = administrator.put(where, {"dangers": ["mode"]}, content_type="application/json")
    assert only.status_code == 409
    ben = User.objects.create_superuser("ben", password="x")
    assert administrator.put(where, {"dangers": ["mode"]}, content_type="application/json").json() == {
        "dangers": ["mode"]
    }
    assert administrator.put(where, {"dangers": ["mode", "force"]}, content_type="application/json").status_code == 200
    loosened = administrator.put(where, {"dangers": ["force"]}, content_type="application/json")
    assert (loosened.status_code, loosened.json()["sentence"]) == (
        202, "Let one person alone: Change the mode of a drawer.",
    )  # fmt: skip
    with pytest.raises(Conflict, match="need two administrators"):
        person_edit(
            by=User.objects.get(username="administrator"), person=ben, username="ben", full_name="", email="",
            role=Role.ADMINISTRATOR, tenant=None, active=False,
        )  # fmt: skip
    assert decide(client_of(ben), ApprovalRequest.objects.get(), "approve").json()["state"] == "done"
    assert administrator.get(where).json() == {"dangers": ["force"]}
    page = administrator.get(reverse("accounts:approval_policy"))
    assert page.content.decode().count(" checked") == 1
    assert administrator.post(reverse("accounts:approval_policy"), {"dangers": ["policy"]}).status_code == 302
    assert administrator.get(where).json() == {"dangers": ["force"]}


def test_administrators_see_how_many_wait_and_others_see_their_own(lab: Lab, ben: User) -> None:
    policy(Danger.FORCE)
    assert "waiting" not in page_text(client_of(ben).get(reverse("accounts:people")))
    detach_by_force(lab)
    assert "1 waiting" in page_text(client_of(ben).get(reverse("accounts:people")))
    assert "Detach GPU owned" in page_text(client_of(ben).get(reverse("accounts:approvals")))
    for name, count in (("administrator", 1), ("owner", 1), ("member", 0), ("stranger", 0)):
        assert lab.clients[name].get("/api/v1/approvals/?state=waiting").json()["count"] == count, name


def test_administrators_get_mail_and_who_asked_hears_the_end(
    lab: Lab, ben: User, settings: Any, mailoutbox: list[Any]
) -> None:
    settings.EMAIL_IS_SENT = True
    User.objects.filter(username="ben").update(email="ben@falcon.example")
    User.objects.filter(username="owner").update(email="owner@falcon.example")
    policy(Danger.FORCE)
    detach_by_force(lab)
    decide(client_of(ben), ApprovalRequest.objects.get(), "refuse", {"reason": "Not now."})
    assert list(Letter.objects.order_by("pk").values_list("address", flat=True)) == [
        "ben@falcon.example", "owner@falcon.example",
    ]  # fmt: skip
    assert letters_send() == 2
    assert "waits for your decision" in mailoutbox[0].subject
    assert "Not now." in mailoutbox[1].body
