"""The API: its routes as the router knows them, its shapes, its errors, and what it never shows."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.test import Client
from django.urls import URLPattern, reverse
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from accounts.models import Tenant, Token, User
from fabric.inventory.models import Chassis, Device, Drawer, Host, HostPort
from fabric.operations.models import Operation
from falconweb.api.urls import urlpatterns
from tests.access.lab import Lab, address, part
from tests.access.test_matrix import methods_of
from tests.turns import in_turn

JSON = "application/json"
PROBLEM = "application/problem+json"
WRITES = ("post", "put", "patch", "delete")
ABOUT = ("chassis", "drawer", "device", "source_host_port", "target_host_port")
LISTS = ("drawers", "slots", "devices", "ports", "host_ports", "hosts", "switches")


def methods(pattern: URLPattern) -> set[str]:
    """Return the methods that a route answers, without those that all have."""
    return {"get", *WRITES} & {one.lower() for one in methods_of(pattern.callback)}


ROUTES = {str(pattern.name): methods(pattern) for pattern in urlpatterns if pattern.name not in {"docs", "nothing"}}
WRITING = [(name, method) for name, found in ROUTES.items() for method in WRITES if method in found]
READING = [name for name, found in ROUTES.items() if "get" in found]


def bearer(person: User, scope: str = "write", *, days: int = 1) -> dict[str, str]:
    """Make a token; return the header that carries it."""
    secret = f"fw_{person.username}_{scope}_{days}"
    Token.objects.create(
        person=person,
        name=secret,
        digest=Token.digest_of(secret),
        scope=scope,
        expires_at=timezone.now() + timedelta(days=days),
    )
    return {"Authorization": f"Bearer {secret}"}


def call(client: Client, method: str, where: str, body: object = None, **headers: str) -> Any:
    """Ask with a JSON body."""
    return client.generic(
        method.upper(), where, json.dumps({} if body is None else body), content_type=JSON, headers=headers
    )


def problem(answer: Any, status: int) -> dict[str, Any]:
    """Return the problem document of an answer, which is one."""
    request = answer.wsgi_request
    assert answer.status_code == status, (request.method, request.path, answer.content)
    assert answer["Content-Type"] == PROBLEM
    found: dict[str, Any] = answer.json()
    assert found["status"] == status
    assert found["type"] == "about:blank"
    assert found["title"]
    assert found["detail"]
    assert found["code"]
    return found


@pytest.fixture
def administrator(lab: Lab) -> Client:
    return lab.clients["administrator"]


@pytest.fixture
def owner(lab: Lab) -> Client:
    return lab.clients["owner"]


# --- Routes ---------------------------------------------------------------------------------------------------------


def test_a_token_that_reads_is_refused_by_every_writing_route(lab: Lab) -> None:
    header = bearer(User.objects.get(username="administrator"), "read")
    for name, method in WRITING:
        found = problem(call(Client(), method, address(lab, f"api:{name}"), **header), 403)
        assert found["detail"] == "This token may only read."


@pytest.mark.parametrize("name", ["devices", "me", "operations", "people"])
def test_a_token_that_reads_reads(lab: Lab, name: str) -> None:
    header = bearer(User.objects.get(username="administrator"), "read")
    assert Client().get(reverse(f"api:{name}"), headers=header).status_code == 200


def test_a_method_that_a_route_lacks_is_405(lab: Lab) -> None:
    for turn, name in enumerate(name for name in ROUTES if name != "schema"):
        for method in in_turn(sorted({"get", *WRITES} - ROUTES[name]), turn, of=2):
            problem(call(lab.clients["administrator"], method, address(lab, f"api:{name}")), 405)


def test_nobody_gets_401_and_how_to_sign_in(lab: Lab) -> None:
    for name, method in (*((name, "get") for name in READING), *WRITING):
        answer = call(lab.clients["nobody"], method, address(lab, f"api:{name}"))
        problem(answer, 401)
        assert answer["WWW-Authenticate"] == "Bearer"


NO_UUID = "00000000-0000-4000-8000-000000000000"
# Refused before anybody looks whether there is such a thing.
FOR_ADMINISTRATORS = (
    "person", "tenant", "chassis_dialect", "chassis_settings", "audit", "operation_proof", "alert_rule", "alert_route",
    "export", "identity_provider", "managed_part", "part_", "collected_log",
)  # fmt: skip


def test_a_strangers_ids_answer_like_made_up_ones(lab: Lab) -> None:
    """The same words, so that nobody learns from them that there is such a thing."""
    bodies = {
        "drawer_mode": {"mode": "Advanced"},
        "device_tenant": {"tenant_id": None},
        "host_port_tenant": {"tenant_id": None},
    }
    for name, method in (*((name, "get") for name in READING), *WRITING):
        arguments = lab.arguments.get(name)
        if not arguments or name in ("figure", "experiment_figure"):
            continue  # a figure is named for what it shows, and drawn for everybody of what they may see
        made_up = [
            NO_UUID
            if isinstance(one, UUID) or name.startswith(("operation", "plan", "alert_delivery"))
            else 900_000 + index
            for index, one in enumerate(arguments)
        ]
        real, unreal = (
            call(lab.clients["stranger"], method, reverse(f"api:{name}", args=numbers), bodies.get(name))
            for numbers in (arguments, made_up)
        )
        expected = {404} if method == "get" else {403, 404}
        assert real.status_code in expected or name.startswith(FOR_ADMINISTRATORS), (name, method)
        assert problem(real, real.status_code) == problem(unreal, real.status_code)


def test_whatever_is_no_address_is_a_problem_too(administrator: Client) -> None:
    for method in ("get", "post"):
        problem(call(administrator, method, "/api/v1/nothing/of/that/kind/"), 404)
    assert administrator.get("/api/v1/devices").status_code == 301


@pytest.mark.parametrize("number", [0, 2**63, 10**40])
@pytest.mark.parametrize("name", ["device", "chassis", "person", "tenant", "my_token", "series"])
def test_any_number_may_be_asked_for(administrator: Client, name: str, number: int) -> None:
    problem(administrator.get(reverse(f"api:{name}", args=[number])), 404)
    problem(administrator.delete(reverse("api:person_token", args=[number, 1])), 404)


# --- Lists ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LISTS)
def test_lists_are_paged_and_narrowed(lab: Lab, administrator: Client, name: str) -> None:
    where = reverse(f"api:{name}")
    whole = administrator.get(where).json()
    assert whole["count"] == len(whole["results"]) > 0
    first = administrator.get(where, {"limit": 1}).json()
    assert first["results"] == whole["results"][:1]
    if whole["count"] > 1:
        assert administrator.get(first["next"]).json()["results"] == whole["results"][1:2]
    assert administrator.get(where, {"chassis_id": str(lab.arguments["chassis"][0])}).json() == whole
    assert administrator.get(where, {"chassis_id": 10**6}).json()["count"] == 0
    assert administrator.get(where, {"search": "no such text"}).json()["count"] == 0
    assert administrator.get(where, {"offset": 10**17}).json()["results"] == []
    row = administrator.get(reverse(f"api:{name.removesuffix('es' if name == 'switches' else 's')}", args=[
        whole["results"][0]["id"]
    ])).json()  # fmt: skip
    assert whole["results"][0].items() <= row.items()


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=x", "offset=-1", "chassis_id=abc", "chassis_id=1%27", "search=%00"]
)
def test_what_a_list_cannot_be_narrowed_by_is_400(administrator: Client, query: str) -> None:
    found = problem(administrator.get(f"{reverse('api:devices')}?{query}"), 400)
    assert query.split("=", maxsplit=1)[0] in found["errors"]


@pytest.mark.parametrize(
    ("search", "count"), [("gpu OWNED", 1), ("SN-", 2), ("node-other", 1), ("GPU", 2), ("Two", 1), ("%", 0)]
)
def test_devices_are_found_by_what_the_page_shows(administrator: Client, search: str, count: int) -> None:
    assert administrator.get(reverse("api:devices"), {"search": search}).json()["count"] == count


@pytest.mark.parametrize("name", LISTS)
def test_a_list_takes_as_many_queries_for_many_rows(
    lab: Lab, administrator: Client, name: str, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    with CaptureQueriesContext(connection) as few:
        administrator.get(reverse(f"api:{name}"))
    chassis, drawer = Chassis.objects.get(), Drawer.objects.get()
    switch = drawer.switches.get()
    for number in range(3, 9):
        part(chassis, drawer, switch, number, Tenant.objects.get(name="One"), f"more{number}")
    with django_assert_num_queries(len(few)):
        administrator.get(reverse(f"api:{name}"))


def test_shape_of_a_device(lab: Lab, owner: Client) -> None:
    row = owner.get(address(lab, "api:device")).json()
    host = Host.objects.get(name="node-owned")
    assert {key: row[key] for key in ("name", "kind", "host_id", "host_name", "host_port_label", "tenant_name")} == {
        "name": "GPU owned", "kind": "gpu", "host_id": host.pk, "host_name": "node-owned", "host_port_label": "H1",
        "tenant_name": "One",
    }  # fmt: skip
    assert row["operation_id"] is None
    asked = call(owner, "post", reverse("api:operations"), {"device_id": row["id"], "target_host_port_id": None}).json()
    assert owner.get(address(lab, "api:device")).json()["operation_id"] == asked["id"]


def test_shape_of_a_drawer(lab: Lab, owner: Client, administrator: Client) -> None:
    row = owner.get(address(lab, "api:drawer")).json()
    assert [slot["state"] for slot in row["slots"]] == ["occupied", "in_use"]
    assert row["slots"][1] == {"id": None, "number": 2, "state": "in_use", "device": None}
    assert row["host_port_ids"] == [lab.host_port.pk]
    assert row["other_modes"] == []
    others = administrator.get(address(lab, "api:drawer")).json()["other_modes"]
    assert len(others) == 2
    assert all(one["mode"] != "Advanced" and one["about"] for one in others)


# --- Sight ----------------------------------------------------------------------------------------------------------


def test_relations_show_nothing_of_another_tenant(lab: Lab, owner: Client) -> None:
    """A device of ours on a host port of theirs: where it is attached is theirs to know."""
    theirs = HostPort.objects.get(label="H2")
    Device.objects.filter(pk=lab.device.pk).update(host_port=theirs)
    operation = Operation.objects.create(
        kind="move", chassis=theirs.chassis, device=lab.device, source=lab.host_port, target=theirs, summary="Move"
    )
    row = owner.get(address(lab, "api:device")).json()
    assert (row["host_port_id"], row["host_port_label"], row["host_id"], row["host_name"]) == (None, "", None, "")
    assert owner.get(reverse("api:devices"), {"search": "node-other"}).json()["count"] == 0
    shown = owner.get(reverse("api:operation", args=[operation.pk])).json()
    assert (shown["source_host_port_id"], shown["target_host_port_id"]) == (lab.host_port.pk, None)
    drawer = owner.get(reverse("api:drawers")).json()["results"][0]
    assert drawer["host_port_ids"] == [lab.host_port.pk]
    # And a device of theirs on a host port of ours.
    Device.objects.filter(name="GPU other").update(host_port=lab.host_port)
    assert owner.get(reverse("api:host_port", args=[lab.host_port.pk])).json()["device_ids"] == []
    assert owner.get(address(lab, "api:host")).json()["host_ports"][0]["device_ids"] == []


def test_an_operation_on_what_was_granted_away_names_it_no_more(lab: Lab, owner: Client) -> None:
    asked = call(
        owner, "post", reverse("api:operations"), {"device_id": lab.device.pk, "target_host_port_id": None}
    ).json()
    Device.objects.update(tenant=None)
    HostPort.objects.update(tenant=None)
    shown = owner.get(reverse("api:operation", args=[asked["id"]])).json()
    assert [shown[f"{key}_id"] for key in ABOUT] == [None] * 5
    assert owner.get(reverse("api:operations"), {"device_id": str(lab.device.pk)}).json()["count"] == 0


def test_operations_are_narrowed(lab: Lab, owner: Client) -> None:
    where = reverse("api:operations")
    done = Operation.objects.filter(device=lab.device, state="done").count()
    assert done > 0
    assert owner.get(where, {"state": "done", "device_id": str(lab.device.pk)}).json()["count"] == done
    assert owner.get(where, {"state": "failed"}).json()["count"] == 0
    problem(owner.get(where, {"state": "nonsense"}), 400)


# --- Operations -----------------------------------------------------------------------------------------------------


def test_a_key_makes_a_repeat_harmless(lab: Lab, owner: Client) -> None:
    where, body = reverse("api:operations"), {"device_id": lab.device.pk, "target_host_port_id": None}
    first = call(owner, "post", where, body, **{"Idempotency-Key": "k" * 200})
    again = call(owner, "post", where, body, **{"Idempotency-Key": "k" * 200})
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json() == again.json()
    assert first["Location"] == again["Location"]
    other = {"device_id": lab.device.pk, "target_host_port_id": lab.host_port.pk}
    assert problem(call(owner, "post", where, other, **{"Idempotency-Key": "k" * 200}), 422)["code"] == "key_reused"
    expecting = {**body, "expected_host_port_id": lab.host_port.pk}
    problem(call(owner, "post", where, expecting, **{"Idempotency-Key": "k" * 200}), 422)
    problem(call(owner, "post", where, body, **{"Idempotency-Key": "k" * 201}), 400)
    # Without a key, or with another, it is a second request.
    assert problem(call(owner, "post", where, body), 409)["operation_id"] == first.json()["id"]


def test_the_mode_of_a_drawer(lab: Lab, administrator: Client, owner: Client) -> None:
    drawer = Drawer.objects.create(chassis=Chassis.objects.get(), uri="/d2", name="Drawer 2", number=2, mode="Advanced")
    where, body = reverse("api:drawer_mode", args=[drawer.pk]), {"mode": "StandardOneHost"}
    problem(call(owner, "post", reverse("api:drawer_mode", args=lab.arguments["drawer"]), body), 403)
    problem(call(owner, "post", where, body), 404)
    problem(call(administrator, "post", where, {"mode": "Nonsense"}), 400)
    problem(call(administrator, "post", where, {}), 400)
    first = call(administrator, "post", where, body, **{"Idempotency-Key": "mode"})
    assert first.status_code == 202, first.content
    assert first["Location"].endswith(f"/api/v1/operations/{first.json()['id']}/")
    assert (first.json()["kind"], first.json()["mode"], first.json()["drawer_id"]) == ("mode", body["mode"], drawer.pk)
    again = call(administrator, "post", where, body, **{"Idempotency-Key": "mode"})
    assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])
    problem(call(administrator, "post", where, {"mode": "StandardTwoHosts"}, **{"Idempotency-Key": "mode"}), 422)
    problem(call(administrator, "post", where, body), 409)


@pytest.mark.parametrize(
    ("content_type", "body", "status"),
    [
        (JSON, "{", 400), (JSON, "[]", 400), (JSON, "null", 400),
        (JSON, '{"device_id": "x", "target_host_port_id": null}', 400),
        (JSON, '{"device_id": 1}', 400), (JSON, f'{{"device_id": {10**30}, "target_host_port_id": null}}', 400),
        ("text/plain", "hello", 415), ("application/x-www-form-urlencoded", "device_id=1", 415),
    ],
)  # fmt: skip
def test_bodies_that_are_none(owner: Client, content_type: str, body: str, status: int) -> None:
    problem(owner.post(reverse("api:operations"), body, content_type=content_type), status)


def test_expected_says_where_the_device_was_seen(lab: Lab, owner: Client) -> None:
    body = {"device_id": lab.device.pk, "target_host_port_id": None, "expected_host_port_id": None}
    assert problem(call(owner, "post", reverse("api:operations"), body), 409)["code"] == "conflict"


# --- Oneself --------------------------------------------------------------------------------------------------------


def test_me(owner: Client, administrator: Client) -> None:
    me = owner.get(reverse("api:me")).json()
    assert (me["username"], me["role"], me["tenant_name"], me["may_compose"]) == ("owner", "user", "One", True)
    assert {"last_login", "previous_login"} <= me.keys()
    assert administrator.get(reverse("api:me")).json()["tenant_id"] is None


def test_a_token_is_made_used_and_revoked(lab: Lab, owner: Client) -> None:
    where = reverse("api:my_tokens")
    made = call(owner, "post", where, {"name": "job", "scope": "write", "days": 30})
    assert made.status_code == 201
    assert made["Cache-Control"] == "no-store"
    secret = made.json()["secret"]
    header = {"Authorization": f"Bearer {secret}"}
    assert Client().get(reverse("api:me"), headers=header).json()["username"] == "owner"
    listed = owner.get(where)
    assert listed.json()["count"] == 1
    assert secret not in listed.content.decode()
    one = made["Location"].removeprefix("http://testserver")
    assert secret not in owner.get(one).content.decode()
    for other in ("administrator", "member", "stranger"):
        problem(lab.clients[other].get(one), 404)
        problem(call(lab.clients[other], "delete", one), 404)
    assert call(owner, "delete", one).status_code == 204
    problem(Client().get(reverse("api:me"), headers=header), 401)


def test_wrong_tokens_are_refused(owner: Client) -> None:
    where = reverse("api:my_tokens")
    assert "days" in problem(call(owner, "post", where, {"name": "job"}), 400)["errors"]
    assert "scope" in problem(call(owner, "post", where, {"name": "job", "scope": "all", "days": 1}), 400)["errors"]
    assert call(owner, "post", where, {"name": "job", "days": 1}).json()["scope"] == "read"
    assert "name" in problem(call(owner, "post", where, {"name": "JOB", "days": 1}), 400)["errors"]


@pytest.mark.parametrize("header", ["Bearer nonsense", "Bearer", "Bearer \xe9", "bearer  x y"])
def test_unknown_tokens_are_401(lab: Lab, header: str) -> None:
    problem(Client().get(reverse("api:me"), headers={"Authorization": header}), 401)


def test_an_expired_token_and_one_of_an_inactive_person_are_401(lab: Lab) -> None:
    person = User.objects.get(username="owner")
    problem(Client().get(reverse("api:me"), headers=bearer(person, days=-1)), 401)
    live = bearer(person)
    User.objects.filter(pk=person.pk).update(is_active=False)
    problem(Client().get(reverse("api:me"), headers=live), 401)


def test_a_session_needs_the_token_against_forgery_and_a_key_does_not(lab: Lab) -> None:
    person = User.objects.get(username="owner")
    careful = Client(enforce_csrf_checks=True)
    careful.force_login(person)
    body = {"device_id": lab.device.pk, "target_host_port_id": None}
    problem(call(careful, "post", reverse("api:operations"), body), 403)
    by_key = Client(enforce_csrf_checks=True)
    assert call(by_key, "post", reverse("api:operations"), body, **bearer(person)).status_code == 202


# --- The description ------------------------------------------------------------------------------------------------


def test_docs_are_self_contained(administrator: Client) -> None:
    answer = administrator.get(reverse("api:docs"))
    text = answer.content.decode()
    assert "unsafe" not in answer["Content-Security-Policy"]
    assert "http" not in text.replace("http-equiv", "")
    assert "<style" not in text
    assert "<script>" not in text
