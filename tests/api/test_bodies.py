"""Nothing of a request is left out unsaid: members that an address does not know are refused, wherever they stand."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import transaction
from django.test import Client
from django.urls import reverse

from accounts.models import User
from fabric.leases.models import Quota
from fabric.operations.models import Operation, Plan
from fabric.operations.rules import PortSetting
from fabric.plans.rules import DesiredState
from telemetry.history.models import Dashboard
from tests.access.lab import Lab
from tests.access.test_matrix_writes import FILE, ROUTES

pytestmark = pytest.mark.django_db
JSON = "application/json"
UNSAFE = [route for route in ROUTES if route[0].startswith("api:")]
# Files say with their place what they do not know.
FILES = {"api:allocation", "api:deployments", "api:deployment_tuning", "api:records", "api:traces"}


@pytest.fixture
def boss(lab: Lab) -> Client:
    return lab.clients["administrator"]


def refused(answer: Any, status: int = 400) -> dict[str, str]:
    found = answer.json()
    assert (answer.status_code, answer["Content-Type"]) == (status, "application/problem+json"), found
    errors: dict[str, str] = found["errors"]
    return errors


def sent(lab: Lab, method: str, name: str, body: Any) -> Any:
    where = reverse(name, args=lab.arguments.get(name.removeprefix("api:"), []))
    if name == "api:my_token":
        where = reverse(name, args=[User.objects.get(username="administrator").tokens.create(
            name="job", digest="2" * 64, expires_at="2999-01-01T00:00:00Z").pk])  # fmt: skip
    if name == "api:my_dashboard":
        own = Dashboard.objects.create(person=User.objects.get(username="administrator"), name="x")
        where = reverse(name, args=[own.pk])
    return lab.clients["administrator"].generic(method, where, json.dumps(body), content_type=JSON)


def test_every_address_that_changes_something_refuses_a_member_that_it_does_not_know(lab: Lab) -> None:
    pk = int(str(lab.arguments["person_token"][1]))
    User.objects.get(username="owner").tokens.create(
        pk=pk, name="job", digest="0" * 64, expires_at="2999-01-01T00:00:00Z"
    )
    for name, method in (one for one in UNSAFE if one[0] not in FILES):
        with transaction.atomic():
            found = refused(sent(lab, method, name, {"surprise": 1}))
            transaction.set_rollback(True)
        assert "'surprise' is not known here." in found["surprise"], (name, method)


def test_the_nearest_name_is_said_also_inside_of_lists(lab: Lab, boss: Client) -> None:
    where = reverse("api:plans")
    wanted = {"device_id": lab.device.pk, "host_port_id": None}
    found = refused(boss.post(where, {"attachment": [wanted], "modes": []}, content_type=JSON))
    assert found["attachment"] == "'attachment' is not known here. Is 'attachments' meant?"
    found = refused(boss.post(where, {"attachments": [{**wanted, "host_port": 3}]}, content_type=JSON))
    assert found == {"attachments.0.host_port": "'host_port' is not known here. Is 'host_port_id' meant?"}
    port = lab.device.slot.port_id if lab.device.slot else None
    found = refused(boss.post(where, {"port_settings": [{"port_id": port, "lanes": 5}]}, content_type=JSON))
    assert "'lanes' is not known here." in found["port_settings.0.lanes"]
    assert not Plan.objects.filter(origin="api", requested_by__username="administrator").exists()


def test_all_that_is_wrong_is_told_at_once_and_of_nonsense_no_more_than_is_read(boss: Client) -> None:
    nonsense = {f"x{number}{'y' * 1000}": number for number in range(1000)}
    found = refused(boss.post(reverse("api:plans"), {"title": [], **nonsense}, content_type=JSON))
    assert found["title"] == "Not a valid string."
    assert len(found) < 30
    assert len(json.dumps(found)) < 10_000


def test_what_is_only_read_is_not_written(boss: Client, lab: Lab) -> None:
    person = {"username": "new", "role": "administrator", "last_login": None}
    found = refused(boss.post(reverse("api:people"), {**person, "password": "one long word"}, content_type=JSON))
    assert found["last_login"] == "'last_login' is read-only: leave it out."
    assert "'password' is not known here." in found["password"]
    assert not User.objects.filter(username="new").exists()


def test_a_setting_that_sets_nothing_is_refused(lab: Lab, boss: Client) -> None:
    port = lab.host_port.port_id
    found = refused(boss.post(reverse("api:plans"), {"port_settings": [{"port_id": port}]}, content_type=JSON))
    assert list(found.values()) == ["Nothing is set. Give port_type, configured_width or both."]


def test_what_a_plan_says_it_wants_can_be_wanted_again(lab: Lab, boss: Client) -> None:
    port = lab.host_port.port_id
    assert port is not None
    plan = Plan.objects.get(pk=str(lab.arguments["plan_apply"][0]))
    plan.wanted = DesiredState(settings={port: PortSetting(configured_width=8)}).as_json()
    plan.save()
    where = reverse("api:plan", args=[plan.pk])
    shown = boss.get(where).json()["wanted"]
    assert shown["port_settings"] == [{"port_id": port, "configured_width": 8}]
    shown.pop("title", None)
    assert "errors" not in boss.put(where, shown, content_type=JSON).json()


def test_an_import_is_dry_or_not_as_it_is_spelt(lab: Lab, boss: Client) -> None:
    before = Plan.objects.count()
    found = refused(boss.post(f"{reverse('api:allocation')}?dryrun=1", FILE, content_type=JSON))
    assert found == {"dryrun": "'dryrun' is not known here. Is 'dry_run' meant?"}
    assert Plan.objects.count() == before


def test_a_kind_has_one_quota(lab: Lab, boss: Client) -> None:
    where = reverse("api:tenant_quotas", args=lab.arguments["tenant_quotas"])
    before = list(Quota.objects.values())
    twice = [{"kind": "gpu", "most_at_once": 3}, {"kind": "nic"}, {"kind": "gpu", "most_at_once": 5}]
    assert refused(boss.put(where, {"limits": twice}, content_type=JSON)) == {
        "limits": "The kind 'gpu' is named more than once."
    }
    assert list(Quota.objects.values()) == before


def test_a_format_that_there_is_not_is_no_address_that_there_is_not(boss: Client) -> None:
    assert refused(boss.get(f"{reverse('api:audit_export')}?format=csv")) == {"format": "'format' is called 'as'."}
    assert boss.get(f"{reverse('api:audit_export')}?as=csv")["Content-Type"].startswith("text/csv")
    assert refused(boss.get(f"{reverse('api:devices')}?format=csv")) == {"format": "json, or leave it out."}
    assert boss.get(f"{reverse('api:devices')}?format=json").status_code == 200
    assert boss.get(f"{reverse('api:schema')}?format=json").json()["openapi"]


def test_what_a_problem_is_about_is_named_as_everywhere(lab: Lab, boss: Client) -> None:
    plan = Plan.objects.get(pk=str(lab.arguments["plan_apply"][0]))
    step = Operation.objects.create(kind="detach", chassis=lab.device.chassis, device=lab.device, plan=plan, position=9)
    answer = boss.post(reverse("api:operation_cancel", args=[step.pk]), content_type=JSON)
    assert (answer.status_code, answer.json().get("plan_id")) == (409, str(plan.pk)), answer.json()
    assert "plan" not in answer.json()
    answer = boss.post(
        reverse("api:operations"), {"device_id": lab.device.pk, "target_host_port_id": None}, content_type=JSON
    )
    assert (answer.status_code, answer.json()["operation_id"]) == (409, str(step.pk))
