"""What an administrator may try so that no second person is needed: other accounts, other ways to the same act."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from accounts.approvals.models import ApprovalPolicy, ApprovalRequest, Danger
from accounts.identity_providers.models import ExternalIdentity, IdentityProvider, MappingRule
from accounts.identity_providers.rules import ExternalPerson
from accounts.identity_providers.services import identity_link, identity_sign_in, provider_edit
from accounts.models import Role, Tenant, User
from accounts.services import person_add, person_password_reset
from fabric.inventory.models import Chassis, Device, HostPort, Slot
from fabric.leases.quotas import QuotaLimits, quotas_set
from fabric.operations.models import Operation, Plan
from tests.access.lab import Lab, lab, made_lab
from tests.accounts.approvals.test_approvals import client_of, decide, policy

__all__ = ["lab", "made_lab"]
pytestmark = pytest.mark.django_db


@pytest.fixture
def ben(lab: Lab) -> User:
    """A second administrator, for whom nothing waits yet."""
    ApprovalRequest.objects.all().delete()
    return User.objects.create_superuser("ben", password="x")


@pytest.fixture
def me(lab: Lab) -> User:
    return User.objects.get(username="administrator")


def sent(client: Client, method: str, path: str, body: Any = None) -> Any:
    return getattr(client, method)(f"/api/v1/{path}", body or {}, content_type="application/json")


def planned(client: Client, **desired: Any) -> str:
    """Make a draft, and return its id."""
    made = sent(client, "post", "plans/", {"title": "Change", **desired})
    assert made.status_code == 201, made.json()
    return str(made.json()["id"])


def foreign(lab: Lab) -> Device:
    """Return the device of the other tenant."""
    found: Device = Device.objects.exclude(pk=lab.device.pk).get()
    return found


def added(by: User, name: str, role: str, tenant: Tenant | None = None) -> User:
    return person_add(by=by, username=name, full_name="", email="", role=role, tenant=tenant)[0]


def by_chain(lab: Lab, me: User, ben: User) -> User:
    return added(added(me, "first", Role.ADMINISTRATOR), "second", Role.ADMINISTRATOR)


def by_provider(lab: Lab, me: User, ben: User) -> User:
    provider = IdentityProvider.objects.get()
    MappingRule.objects.create(provider=provider, position=1, group="all", role=Role.ADMINISTRATOR)
    return identity_sign_in(provider=provider, external=ExternalPerson(subject="2", username="second", groups=("all",)))


def by_link(lab: Lab, me: User, ben: User) -> User:
    identity_link(by=me, provider=IdentityProvider.objects.get(), username="ben", subject="3")
    return User.objects.get(username="ben")


def by_edit(lab: Lab, me: User, ben: User) -> User:
    provider = IdentityProvider.objects.get()
    ExternalIdentity.objects.create(provider=provider, subject="3", person=ben)
    provider_edit(by=me, provider=provider, client_id="mine")
    return ben


@pytest.mark.parametrize("way", [by_chain, by_provider, by_link, by_edit])
def test_an_account_that_came_about_just_now_is_no_second_person(lab: Lab, me: User, ben: User, way: Any) -> None:
    policy(Danger.CHASSIS_REMOVE)
    second = way(lab, me, ben)
    sent(lab.clients["administrator"], "delete", f"chassis/{Chassis.objects.get().pk}/")
    answer = decide(client_of(second), ApprovalRequest.objects.get(), "approve")
    assert answer.status_code == 403
    assert "changed your account" in answer.json()["detail"]
    assert Chassis.objects.exists()


@pytest.mark.parametrize("way", ["added", "taken"])
def test_nobody_asks_by_another_account_and_approves_that(lab: Lab, me: User, ben: User, way: str) -> None:
    policy(Danger.FORCE)
    name = "puppet" if way == "added" else "owner"
    if way == "added":
        added(me, name, Role.USER, lab.device.tenant)
    else:
        person_password_reset(by=me, person=User.objects.get(username=name))
    who = User.objects.get(username=name)
    body = {"device_id": lab.device.pk, "target_host_port_id": None, "force": True, "confirmation": lab.device.name}
    assert sent(client_of(who), "post", "operations/", body).json()["state"] == "waiting"
    answer = decide(lab.clients["administrator"], ApprovalRequest.objects.get(), "approve")
    assert answer.status_code == 403
    assert f"changed the account of {who.username}" in answer.json()["detail"]
    assert not Operation.objects.open().exists()


def to_a_tenants_host(lab: Lab) -> dict[str, Any]:
    Device.objects.filter(pk=foreign(lab).pk).update(tenant=None, host_port=None)
    return {"attachments": [{"device_id": foreign(lab).pk, "host_port_id": lab.host_port.pk}]}


def of_its_slot(lab: Lab) -> dict[str, Any]:
    assert lab.device.slot is not None
    return {"port_settings": [{"port_id": lab.device.slot.port_id, "configured_width": 8}]}


def of_its_host_port(lab: Lab) -> dict[str, Any]:
    return {"port_settings": [{"port_id": lab.host_port.port_id, "configured_width": 8}]}


def of_its_cable(lab: Lab) -> dict[str, Any]:
    port = foreign(lab).host_port
    assert port is not None
    return {"cables": [{"host_port_id": lab.host_port.pk, "host_id": port.host_id}]}


@pytest.mark.parametrize("change", [to_a_tenants_host, of_its_slot, of_its_host_port, of_its_cable])
def test_a_plan_changes_nothing_of_a_tenant_alone(lab: Lab, ben: User, change: Any) -> None:
    policy(Danger.TENANT)
    administrator = lab.clients["administrator"]
    plan = planned(administrator, **change(lab))
    answer = sent(administrator, "post", f"plans/{plan}/apply/")
    assert (answer.status_code, answer.json().get("dangers")) == (202, ["tenant"])
    assert not Operation.objects.open().exists()


def test_a_plan_of_a_tenant_is_resumed_and_rolled_back_by_two(lab: Lab, ben: User) -> None:
    policy(Danger.TENANT)
    administrator, owner = lab.clients["administrator"], lab.clients["owner"]
    plan = str(lab.arguments["plan_resume"][0])
    for command, body in (("resume", {}), ("cancel", {"roll_back": True})):
        answer = sent(administrator, "post", f"plans/{plan}/{command}/", body)
        assert (answer.status_code, answer.json().get("dangers")) == (202, ["tenant"]), command
        assert Plan.objects.get(pk=plan).state == "stopped"
    assert sent(administrator, "post", f"plans/{plan}/cancel/").json()["state"] == "left"
    plan = planned(owner, attachments=[{"device_id": lab.device.pk, "host_port_id": None}])
    Plan.objects.filter(pk=plan).update(state="stopped")
    assert sent(owner, "post", f"plans/{plan}/resume/").json()["state"] == "resuming"


def test_a_plan_that_became_another_with_the_same_words_is_not_carried_out(lab: Lab, ben: User) -> None:
    policy(Danger.TENANT)
    Device.objects.update(name="GPU")
    Slot.objects.update(name="slot 1")
    HostPort.objects.update(label="H1", host=lab.host_port.host)
    administrator = lab.clients["administrator"]
    plan = planned(administrator, attachments=[{"device_id": lab.device.pk, "host_port_id": None}])
    assert sent(administrator, "post", f"plans/{plan}/apply/").json()["state"] == "waiting"
    body = {"title": "Change", "attachments": [{"device_id": foreign(lab).pk, "host_port_id": None}]}
    assert sent(administrator, "put", f"plans/{plan}/", body).status_code == 200
    assert decide(client_of(ben), ApprovalRequest.objects.get(), "approve").json()["state"] == "failed"
    assert not Operation.objects.open().exists()


def test_what_became_more_dangerous_is_not_carried_out(lab: Lab, ben: User) -> None:
    policy(Danger.FORCE, Danger.TENANT)
    Device.objects.filter(pk=lab.device.pk).update(tenant=None)
    administrator = lab.clients["administrator"]
    plan = planned(administrator, attachments=[{"device_id": lab.device.pk, "host_port_id": None}])
    body = {"force_device_ids": [lab.device.pk], "confirmation": "Change"}
    assert sent(administrator, "post", f"plans/{plan}/apply/", body).json()["dangers"] == ["force"]
    Device.objects.filter(pk=lab.device.pk).update(tenant=lab.host_port.tenant)
    assert decide(client_of(ben), ApprovalRequest.objects.get(), "approve").json()["state"] == "failed"
    assert not Operation.objects.open().exists()


def test_a_request_names_no_device_of_others(lab: Lab, ben: User) -> None:
    policy(Danger.FORCE)
    owner = lab.clients["owner"]
    plan = planned(owner, attachments=[{"device_id": lab.device.pk, "host_port_id": None}])
    body = {"force_device_ids": [lab.device.pk, foreign(lab).pk], "confirmation": "Change"}
    answer = sent(owner, "post", f"plans/{plan}/apply/", body)
    assert answer.json()["facts"]["by force"] == ["GPU owned"]
    assert "GPU other" not in answer.content.decode()


def test_a_plan_that_rules_forbid_is_refused_with_a_policy_as_without(lab: Lab, ben: User) -> None:
    policy(Danger.MODE)
    administrator = lab.clients["administrator"]
    plan = planned(administrator, cables=[{"host_port_id": lab.host_port.pk, "host_id": None}])
    assert sent(administrator, "get", f"plans/{plan}/").json()["objections"]
    answer = sent(administrator, "post", f"plans/{plan}/apply/")
    assert (answer.status_code, answer.json()["code"]) == (409, "rule")


def test_more_than_a_quota_is_given_by_two_whichever_way(lab: Lab, ben: User, me: User) -> None:
    tenant = lab.host_port.tenant
    assert tenant is not None
    quotas_set(person=me, tenant=tenant, limits={"gpu": QuotaLimits(most_at_once=1)})
    policy(Danger.OVER_QUOTA)
    device = foreign(lab)
    Device.objects.filter(pk=device.pk).update(tenant=None)
    device.lease_items.all().delete()
    administrator = lab.clients["administrator"]
    ways: list[tuple[str, dict[str, Any]]] = [
        (f"devices/{device.pk}/tenant/", {"tenant_id": tenant.pk}),
        (
            f"tenants/{tenant.pk}/grants/",
            {"device_ids": [lab.device.pk, device.pk], "host_port_ids": [lab.host_port.pk]},
        ),
        (f"tenants/{tenant.pk}/quotas/", {"limits": [{"kind": "gpu", "most_at_once": 2, "most_hours_a_month": None}]}),
        (f"tenants/{tenant.pk}/quotas/", {"limits": []}),
    ]
    for path, body in ways:
        answer = sent(administrator, "put", path, body)
        assert (answer.status_code, answer.json().get("dangers")) == (202, ["over_quota"]), path
    assert not Device.objects.filter(pk=device.pk, tenant=tenant).exists()
    lower = {"limits": [{"kind": "gpu", "most_at_once": 1, "most_hours_a_month": 100}]}
    assert sent(administrator, "put", f"tenants/{tenant.pk}/quotas/", lower).status_code == 200
    ApprovalRequest.objects.all().delete()
    sent(administrator, "put", ways[2][0], ways[2][1])
    assert decide(client_of(ben), ApprovalRequest.objects.get(), "approve").json()["state"] == "done"
    assert tenant.quotas.get(kind="gpu").most_at_once == 2


def test_a_run_attaches_nothing_that_needs_two(lab: Lab, ben: User) -> None:
    policy(Danger.TENANT)
    change = to_a_tenants_host(lab)["attachments"]
    body = {
        "workload": "mnist_cnn", "preset": "tiny", "executor": "simulated", "keep_composed": True,
        "composition": {"host_id": lab.host_port.host_id, "devices": change},
    }  # fmt: skip
    answer = sent(lab.clients["administrator"], "post", "benchmarks/runs/", body)
    assert answer.status_code == 403
    assert "needs two people" in answer.json()["detail"]
    ApprovalPolicy.objects.all().delete()
    assert sent(lab.clients["administrator"], "post", "benchmarks/runs/", body).status_code == 202
