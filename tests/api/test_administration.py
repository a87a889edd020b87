"""People, tenants and grants by the API."""

from __future__ import annotations

from django.test import Client
from django.urls import reverse

from accounts.models import Role, Tenant, User
from fabric.inventory.models import Device
from tests.access.lab import Lab
from tests.api.test_api import administrator, call, owner, problem

__all__ = ["administrator", "owner"]


def test_people_are_added_changed_and_given_passwords(lab: Lab, administrator: Client) -> None:
    tenant = Tenant.objects.get(name="Three")
    made = call(
        administrator, "post", reverse("api:people"),
        {"username": "new", "full_name": "New Person", "role": "user", "tenant_id": tenant.pk},
    )  # fmt: skip
    assert made.status_code == 201, made.content
    assert made["Cache-Control"] == "no-store"
    password, where = made.json()["password"], made["Location"].removeprefix("http://testserver")
    assert User.objects.get(username="new").check_password(password)
    row = administrator.get(where).json()
    assert "password" not in row
    assert (row["full_name"], row["tenant_name"], row["active"]) == ("New Person", "Three", True)
    changed = call(administrator, "patch", where, {"role": "administrator", "tenant_id": None}).json()
    assert (changed["role"], changed["tenant_id"], changed["full_name"]) == ("administrator", None, "New Person")
    assert "tenant_id" in problem(call(administrator, "patch", where, {"role": "viewer"}), 400)["errors"]
    again = call(administrator, "post", f"{where}password/")
    assert again.status_code == 200
    assert User.objects.get(username="new").check_password(again.json()["password"])
    assert call(administrator, "patch", where, {"active": False}).json()["active"] is False
    assert "username" in problem(call(administrator, "patch", where, {"username": ""}), 400)["errors"]
    problem(call(administrator, "patch", where, {"role": "user", "tenant_id": 10**6}), 404)
    assert administrator.get(reverse("api:people"), {"search": "new per"}).json()["count"] == 1


def test_the_last_administrator_stays(lab: Lab, administrator: Client) -> None:
    me = administrator.get(reverse("api:me")).json()
    problem(call(administrator, "patch", reverse("api:person", args=[me["id"]]), {"active": False}), 409)


def test_others_tokens_are_seen_and_revoked(lab: Lab, administrator: Client, owner: Client) -> None:
    made = call(owner, "post", reverse("api:my_tokens"), {"name": "job", "days": 1}).json()
    person = User.objects.get(username="owner")
    listed = administrator.get(reverse("api:person_tokens", args=[person.pk]))
    assert [row["id"] for row in listed.json()["results"]] == [made["id"]]
    assert made["secret"] not in listed.content.decode()
    one = reverse("api:person_token", args=[person.pk, made["id"]])
    wrong = reverse("api:person_token", args=[User.objects.get(username="member").pk, made["id"]])
    problem(call(administrator, "delete", wrong), 404)
    assert call(administrator, "delete", one).status_code == 204


def test_tenants_are_added_renamed_and_removed(lab: Lab, administrator: Client) -> None:
    made = call(administrator, "post", reverse("api:tenants"), {"name": "Four"})
    assert made.status_code == 201
    assert made.json()["holds"] == []
    where = made["Location"].removeprefix("http://testserver")
    assert call(administrator, "patch", where, {"name": "Five"}).json()["name"] == "Five"
    problem(call(administrator, "patch", where, {"name": "one"}), 400)
    assert administrator.get(reverse("api:tenants"), {"limit": 1}).json()["count"] == 4
    assert call(administrator, "delete", where).status_code == 204
    problem(administrator.get(where), 404)
    busy = reverse("api:tenant", args=lab.arguments["tenant"])
    assert administrator.get(busy).json()["holds"] == ["1 device", "1 host port", "1 lease to come"]
    problem(call(administrator, "delete", busy), 409)


def test_grants(lab: Lab, administrator: Client, owner: Client) -> None:
    where = reverse("api:tenant_grants", args=lab.arguments["tenant"])
    before = administrator.get(where).json()
    assert (before["device_ids"], before["host_port_ids"]) == ([lab.device.pk], [lab.host_port.pk])
    theirs = Device.objects.get(name="GPU other")
    wanted = {"device_ids": [lab.device.pk, theirs.pk], "host_port_ids": []}
    problem(call(administrator, "put", where, wanted), 409)
    assert administrator.get(where).json() == before
    problem(call(administrator, "put", where, {"device_ids": [10**6], "host_port_ids": []}), 404)
    problem(call(administrator, "put", where, {"device_ids": [10**30], "host_port_ids": []}), 400)
    problem(call(administrator, "put", where, {"device_ids": []}), 400)
    problem(call(administrator, "put", where, {**wanted, "revision": "old"}), 409)
    after = call(
        administrator, "put", where, {**wanted, "take_device_ids": [theirs.pk], "revision": before["revision"]}
    )
    assert (after.status_code, after.json()["device_ids"], after.json()["host_port_ids"]) == (
        200,
        wanted["device_ids"],
        [],
    )
    assert owner.get(reverse("api:devices")).json()["count"] == 2


def test_one_thing_is_granted_and_freed(lab: Lab, administrator: Client, owner: Client) -> None:
    tenant = Tenant.objects.get(name="Three")
    for name, thing in (("device", lab.device), ("host_port", lab.host_port)):
        where = reverse(f"api:{name}_tenant", args=[thing.pk])
        problem(call(owner, "put", where, {"tenant_id": None}), 403)
        problem(call(administrator, "put", where, {"tenant_id": tenant.pk}), 409)
        problem(call(administrator, "put", where, {"tenant_id": 10**6}), 404)
        problem(call(administrator, "put", where, {}), 400)
        taken = call(administrator, "put", where, {"tenant_id": tenant.pk, "take": True})
        assert (taken.status_code, taken.json()["tenant_id"]) == (200, tenant.pk)
        problem(call(owner, "put", where, {"tenant_id": None}), 404)
        assert call(administrator, "put", where, {"tenant_id": None}).json()["tenant_id"] is None


def test_a_viewer_may_not_write(lab: Lab) -> None:
    assert User.objects.get(username="member").role == Role.VIEWER
    answer = call(
        lab.clients["member"],
        "post",
        reverse("api:operations"),
        {"device_id": lab.device.pk, "target_host_port_id": None},
    )
    problem(answer, 403)
