"""Plans by the API, against a real simulated chassis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from accounts.models import User
from fabric.inventory.models import Chassis, Drawer, HostPort
from fabric.operations.models import Plan
from falconweb.testing import carry_out_plan, device_in, host_port_of

PLANS = "/api/v1/plans/"


def post(client: Client, path: str, body: dict[str, Any] | None = None, **headers: str) -> Any:
    return client.post(path, body or {}, content_type="application/json", headers=headers)


def attach(chassis: Chassis, label: str | None = "H2") -> dict[str, Any]:
    port = host_port_of(chassis, label).pk if label else None
    return {"attachments": [{"device_id": device_in(chassis, drawer=1, slot=7).pk, "host_port_id": port}]}


def test_a_wanted_allocation_is_drafted_applied_and_undone(
    falcon_chassis: Chassis, administrator_client: Client
) -> None:
    answer = post(administrator_client, PLANS, {"title": "NIC to b", **attach(falcon_chassis)})
    assert answer.status_code == 201
    draft = answer.json()
    assert answer["Location"].endswith(f"{PLANS}{draft['id']}/")
    assert (draft["state"], [step["kind"] for step in draft["steps"]]) == ("draft", ["attach"])
    assert draft["steps"][0]["sentence"].endswith("to node-b (H2)")
    applied = post(administrator_client, f"{PLANS}{draft['id']}/apply/", {"on_failure": "roll_back"})
    assert (applied.status_code, applied.json()["state"]) == (202, "running")
    carry_out_plan(draft["id"])
    ended = administrator_client.get(f"{PLANS}{draft['id']}/").json()
    assert (ended["state"], [one["state"] for one in ended["operations"]]) == ("done", ["done"])
    undo = post(administrator_client, f"{PLANS}{draft['id']}/undo/")
    assert (undo.status_code, [step["kind"] for step in undo.json()["steps"]]) == (201, ["detach"])
    assert administrator_client.delete(f"{PLANS}{undo.json()['id']}/").status_code == 204
    assert administrator_client.get(f"{PLANS}{undo.json()['id']}/").status_code == 404


def test_a_draft_tells_what_has_changed_since_and_is_planned_anew(
    falcon_chassis: Chassis, administrator_client: Client
) -> None:
    draft = post(administrator_client, PLANS, attach(falcon_chassis)).json()
    assert draft["differences"] == []
    other = post(administrator_client, PLANS, attach(falcon_chassis, "H1")).json()
    post(administrator_client, f"{PLANS}{other['id']}/apply/")
    carry_out_plan(other["id"])
    [difference] = administrator_client.get(f"{PLANS}{draft['id']}/").json()["differences"]
    assert difference.endswith("was at no host and is at node-a (H1) now.")
    refused = post(administrator_client, f"{PLANS}{draft['id']}/apply/")
    assert (refused.status_code, refused.json()["differences"]) == (409, [difference])
    changed = administrator_client.put(
        f"{PLANS}{draft['id']}/", attach(falcon_chassis), content_type="application/json"
    )
    assert [step["kind"] for step in changed.json()["steps"]] == ["move"]


def test_rules_are_told_as_objections(falcon_chassis: Chassis, administrator_client: Client) -> None:
    wanted = {"modes": [{"drawer_id": Drawer.objects.get(number=1).pk, "mode": "StandardOneHost"}]}
    draft = post(administrator_client, PLANS, wanted).json()
    assert draft["steps"] == []
    refused = post(administrator_client, f"{PLANS}{draft['id']}/apply/")
    assert (refused.status_code, refused.json()["code"]) == (409, "rule")
    assert refused.json()["objections"] == draft["objections"] != []


def test_a_plan_is_cancelled_and_its_way_back_is_planned(falcon_chassis: Chassis, administrator_client: Client) -> None:
    draft = post(administrator_client, PLANS, attach(falcon_chassis)).json()
    post(administrator_client, f"{PLANS}{draft['id']}/apply/")
    cancelled = post(administrator_client, f"{PLANS}{draft['id']}/cancel/", {"roll_back": True})
    assert (cancelled.status_code, cancelled.json()["state"]) == (202, "cancelling")
    assert carry_out_plan(draft["id"]).state == "rolled_back"
    assert post(administrator_client, f"{PLANS}{draft['id']}/resume/").status_code == 409
    assert post(administrator_client, f"{PLANS}{draft['id']}/cancel/").status_code == 409


def test_the_same_key_makes_one_plan(falcon_chassis: Chassis, administrator_client: Client) -> None:
    first, again = (
        post(administrator_client, PLANS, attach(falcon_chassis), **{"Idempotency-Key": "one"}).json()["id"]
        for _ in range(2)
    )
    assert first == again
    other = post(administrator_client, PLANS, attach(falcon_chassis, "H1"), **{"Idempotency-Key": "one"})
    assert (other.status_code, other.json()["code"]) == (422, "key_reused")


@pytest.mark.parametrize(
    "body",
    [
        {"attachments": "all"},
        {"attachments": [{"device_id": 1}]},
        {"attachments": [{"device_id": -1, "host_port_id": None}]},
        {"attachments": [{"device_id": 2**70, "host_port_id": None}]},
        {"modes": [{"drawer_id": 1, "mode": "Turbo"}]},
        {"port_settings": [{"port_id": 1, "configured_width": 3}]},
        {"cables": [{"host_port_id": 1, "host_id": "x"}]},
        {"title": "x" * 201},
    ],
)
def test_nonsense_is_refused_by_its_field(
    falcon_chassis: Chassis, administrator_client: Client, body: dict[str, Any]
) -> None:
    answer = post(administrator_client, PLANS, body)
    assert answer.status_code == 400
    assert next(iter(answer.json()["errors"])).startswith(next(iter(body)))
    assert not Plan.objects.exists()


def test_a_device_that_is_named_twice_is_refused(falcon_chassis: Chassis, administrator_client: Client) -> None:
    twice = attach(falcon_chassis)["attachments"] * 2
    answer = post(administrator_client, PLANS, {"attachments": twice})
    assert (answer.status_code, "named more than once" in str(answer.json()["errors"])) == (400, True)


def test_unknown_things_and_those_of_others_are_the_same(
    falcon_chassis: Chassis, user_client: Client, administrator_client: Client
) -> None:
    for client, status in ((administrator_client, 201), (user_client, 404)):
        assert post(client, PLANS, attach(falcon_chassis)).status_code == status
    unknown = {"attachments": [{"device_id": 10**6, "host_port_id": None}]}
    assert post(administrator_client, PLANS, unknown).status_code == 404
    for action in ("apply", "cancel", "resume", "undo"):
        assert post(administrator_client, f"{PLANS}{uuid4()}/{action}/").status_code == 404


def test_a_tenant_sees_its_own_plans_only(  # noqa: PLR0917 - four people
    falcon_chassis: Chassis,
    administrator_client: Client,
    user_client: Client,
    viewer_client: Client,
    falconweb_user: User,
    grant_to_tenant: Callable[..., None],
) -> None:
    grant_to_tenant(device_in(falcon_chassis, drawer=1, slot=7), host_port_of(falcon_chassis, "H2"))
    post(administrator_client, PLANS, {"title": "of the site", **attach(falcon_chassis, "H1")})
    own = post(user_client, PLANS, {"title": "of the tenant", **attach(falcon_chassis)}).json()
    for client, titles in (
        (administrator_client, ["of the tenant", "of the site"]),
        (user_client, ["of the tenant"]),
        (viewer_client, ["of the tenant"]),
    ):
        assert [plan["title"] for plan in client.get(PLANS).json()["results"]] == titles
    assert post(viewer_client, f"{PLANS}{own['id']}/apply/").status_code == 403
    assert HostPort.objects.filter(label="H2", devices__isnull=False).exists()
