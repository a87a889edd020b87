"""What is refused before anything is changed, and who sees a run, by the API and the pages."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from accounts.models import Role, Tenant, User
from benchmarks.runs.models import Run
from benchmarks.runs.services import run_delete
from benchmarks.workloads.catalogue import CATALOGUE
from core.errors import Conflict, Forbidden, NotFound
from core.idempotency import request_digest
from fabric.agents.models import HostAgent
from falconweb.testing import host_port_of
from tests.benchmarks.runs.lab import Lab
from tests.pages import page_text
from tests.without import needs_torch

pytestmark = pytest.mark.process

RUNS = "/api/v1/benchmarks/runs/"


def client_of(person: User) -> Client:
    client = Client()
    client.force_login(person)
    return client


def body_of(lab: Lab, *slots: int, **more: Any) -> dict[str, Any]:
    """Return what asks for a simulated run on devices of the first drawer."""
    port = host_port_of(lab.chassis, "H1").pk
    devices = [{"device_id": lab.device(slot).pk, "host_port_id": port} for slot in slots]
    place = {"host_id": lab.host.pk, "devices": devices, **more.pop("place", {})}
    return {"workload": "resnet50", "composition": place, "executor": "simulated", "spec": {"batch": 16}, **more}


def post(client: Client, path: str, body: dict[str, Any], key: str = "") -> Any:
    headers = {"Idempotency-Key": key} if key else {}
    return client.post(path, json.dumps(body), content_type="application/json", headers=headers)


@needs_torch
def test_a_command_is_refused_where_there_is_no_account_for_it(lab: Lab) -> None:
    body = body_of(lab, 1, workload="command", spec={"command": "id"}, executor="torch")
    assert "no account" in post(client_of(lab.person), RUNS, body).json()["errors"]["host"]


def test_what_cannot_run_is_refused_with_its_field_and_its_number(lab: Lab) -> None:
    client = client_of(lab.person)

    def errors(**more: Any) -> dict[str, str]:
        answer = post(client, RUNS, body_of(lab, 1, **more))
        assert answer.status_code == 400, answer.content
        found: dict[str, str] = answer.json()["errors"]
        return found

    assert "GB a device" in errors(workload="bert_large", spec={"batch": 64})["batch"]
    assert "no option" in errors(spec={"options": {"sequence": 3}})["options.sequence"]
    assert "for 3 devices, and 1 are chosen" in errors(spec={"devices": 3})["devices"]
    assert errors(workload="nonsense").keys() == {"workload"}
    assert errors(executor="slurm").keys() == {"executor"}
    assert "unprivileged" in CATALOGUE["command"].about
    assert "cannot be simulated" in errors(workload="command", spec={"command": "id"})["host"]
    assert "has 8 GPUs of its own" in errors(place={"local_gpus": 9}, spec={"devices": 10})["local_gpus"]
    assert "computes nothing" in post(client, RUNS, body_of(lab, 1, 7)).json()["errors"]["devices"]
    assert errors(limit_seconds=0).keys() == {"limit_seconds"}
    assert errors(wrong=1).keys() == {"wrong"}
    port = host_port_of(lab.chassis, "H2").pk
    twisted = body_of(lab, 1)
    twisted["composition"]["devices"][0]["host_port_id"] = port
    assert "does not lead to node-a" in post(client, RUNS, twisted).json()["detail"]
    assert client.get(f"{RUNS}?stat=open").status_code == 400
    assert client.get(f"{RUNS}?state=nowhere").status_code == 400
    assert not Run.objects.exists()
    HostAgent.objects.all().delete()
    assert post(client, RUNS, body_of(lab, 1)).status_code == 409


def test_a_run_is_its_tenants_and_a_repeat_with_the_same_key_is_the_same_run(lab: Lab, grant_to_tenant: Any) -> None:
    grant_to_tenant(lab.device(1), host_port_of(lab.chassis, "H1"))
    tenant = lab.device(1).tenant
    people = {
        name: User.objects.create_user(name, password="a-long-password-1", role=role, tenant=of)
        for name, role, of in (
            ("bob", Role.USER, tenant), ("eve", Role.VIEWER, tenant),
            ("mallory", Role.USER, Tenant.objects.create(name="Others")),
        )
    }  # fmt: skip
    bob, eve, mallory = (client_of(person) for person in people.values())
    answer = post(bob, RUNS, body_of(lab, 1), key="once")
    assert answer.status_code == 202
    address = answer["Location"].partition("testserver")[2]
    assert post(bob, RUNS, body_of(lab, 1), key="once").json()["id"] == answer.json()["id"]
    assert post(bob, RUNS, body_of(lab, 1, title="Another"), key="once").status_code == 422
    assert Run.objects.count() == 1
    # What is not theirs is not there, what they may only look at is forbidden.
    assert post(bob, RUNS, body_of(lab, 2)).status_code == 404
    assert post(mallory, RUNS, body_of(lab, 1)).status_code == 404
    assert post(eve, RUNS, body_of(lab, 1)).status_code == 403
    assert [client.get(address).status_code for client in (bob, eve, mallory)] == [200, 200, 404]
    assert [post(client, f"{address}cancel/", {}).status_code for client in (eve, mallory)] == [403, 404]
    page = f"/benchmarks/runs/{answer.json()['id']}/"
    assert [client.get(page).status_code for client in (bob, eve, mallory)] == [200, 200, 404]
    assert "Cancel the run" in bob.get(page).content.decode()
    assert "Cancel the run" not in eve.get(page).content.decode()
    assert mallory.get(RUNS).json()["results"] == []
    run = Run.objects.get()
    with pytest.raises(Conflict, match="has not ended"):
        run_delete(person=people["bob"], run=run)
    assert post(bob, f"{address}cancel/", {}).json()["state"] == "cancelled"
    assert post(bob, f"{address}cancel/", {}).status_code == 409
    with pytest.raises(NotFound):
        run_delete(person=people["mallory"], run=run)
    with pytest.raises(Forbidden):
        run_delete(person=people["eve"], run=run)
    assert bob.delete(address).status_code == 204
    assert not Run.objects.exists()


def test_a_request_without_an_exercise_has_the_digest_that_earlier_versions_recorded(lab: Lab) -> None:
    place = lab.place(1)
    run = lab.ask(place, may_share=None)
    asked = ("run", run.spec_hash, place.as_json(), "simulated", "", 3600.0, False, None)
    assert run.request_digest == request_digest(*asked)


def test_the_form_and_a_file_ask_for_the_same_run(lab: Lab) -> None:
    client = client_of(lab.person)
    port, device = host_port_of(lab.chassis, "H1").pk, lab.device(1).pk
    typed = {
        "workload": "resnet50", "preset": "custom", "host": lab.host.pk, "where": "gpu", "executor": "simulated",
        f"local-{lab.host.pk}": "1", f"device-{lab.host.pk}-{device}": port, "batch": "16", "steps": "7", "limit": "5",
    }  # fmt: skip
    wrong = client.post("/benchmarks/runs/new/", {**typed, "batch": "many", "steps": "0"})
    assert wrong.status_code == 400
    assert wrong.content.decode().count('aria-invalid="true"') == 2
    assert 'value="many"' in wrong.content.decode()
    assert client.post("/benchmarks/runs/new/", typed).status_code == 302
    by_form = Run.objects.get()
    assert (by_form.spec["devices"], by_form.spec["steps"], by_form.limit_seconds) == (2, 7, 300.0)
    text = client.get(f"/benchmarks/runs/new/file/?again={by_form.pk}").context["text"]
    assert client.post("/benchmarks/runs/new/file/", {"text": text}).status_code == 302
    by_file = Run.objects.exclude(pk=by_form.pk).get()
    assert (by_file.spec_hash, by_file.composition) == (by_form.spec_hash, by_form.composition)
    for wrong_text, field in (
        ('{"workload":', "character 13"),
        (json.dumps({**json.loads(text), "extra": 1}), "extra"),
        (text.replace('"local_gpus": 1', '"local_gpus": "x"'), "composition.local_gpus"),
        (text.replace('"local_gpus": 1', '"local_gpus": 1, "local_gpus": 1'), "local_gpus"),
    ):
        answer = client.post("/benchmarks/runs/new/file/", {"text": wrong_text})
        assert answer.status_code == 400
        assert field in answer.content.decode()
    again = page_text(client.get(f"/benchmarks/runs/new/?again={by_form.pk}"))
    assert f'name="device-{lab.host.pk}-{device}" value="{port}" checked' in again
    several = client.post("/benchmarks/runs/cancel/", {"run": [by_form.pk, by_file.pk], "next": "//elsewhere.example"})
    assert several["Location"] == "/benchmarks/runs/"
    assert set(Run.objects.values_list("state", flat=True)) == {"cancelled"}
    table = client.get("/benchmarks/runs/csv/?state=cancelled").getvalue().decode()
    assert table.count("resnet50") == 2


def test_a_rule_that_stands_against_it_is_told_at_once(lab: Lab) -> None:
    # The second drawer serves one host port alone, which has devices.
    other = lab.person
    place = lab.place(1)
    crossed = type(place)(host=place.host, devices={lab.device(1, drawer=2).pk: next(iter(place.devices.values()))})
    with pytest.raises(Conflict, match="not in the same drawer"):
        lab.ask(crossed, person=other)
    assert not Run.objects.exists()


def test_the_form_tells_all_that_is_wrong_at_once_and_where(lab: Lab) -> None:
    client = client_of(lab.person)
    given = {"workload": "mnist_cnn", "preset": "tiny", "host": lab.host.pk, "where": "cpu", "executor": "simulated"}
    answer = client.post("/benchmarks/runs/new/", {**given, "batch": "many", "limit": "soon"})
    page = answer.content.decode()
    assert answer.status_code == 400
    assert '<a href="#limit">Time limit: Enter a number of minutes.</a>' in page
    assert '<a href="#f-batch">Batch a device is a whole number' in page
    assert not Run.objects.exists()
