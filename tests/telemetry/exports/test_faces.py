"""Exports as administrators meet them: pages, API, downloads, the audit log."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from accounts.audit.models import AuditEntry
from accounts.models import User
from telemetry.exports.models import ExportDefinition, ExportRun
from telemetry.exports.services import run_request
from tests.pages import page_text
from tests.telemetry.delivery.sinks import HttpSink
from tests.telemetry.exports.conftest import FORMULA, events_make, turn

pytestmark = pytest.mark.django_db
Define = Callable[..., ExportDefinition]
FORM = {"name": "Nightly", "format": "csv", "destination": "download", "columns": ["id", "text"]}


def file(answer: Any) -> bytes:
    """Return what a streamed answer has."""
    return b"".join(answer.streaming_content)


def page(client: Client, name: str, /, *numbers: int, **asked: str) -> str:
    answer = client.get(reverse(f"exports:{name}", args=numbers), asked)
    assert answer.status_code == 200, answer.content
    return page_text(answer)


def post(client: Client, name: str, /, *numbers: int, **body: Any) -> Any:
    return client.post(reverse(f"exports:{name}", args=numbers), body)


def called(client: Client, method: str, name: str, /, *numbers: int, **body: Any) -> Any:
    where = reverse(f"api:{name}", args=numbers)
    return client.generic(method, where, json.dumps(body) if body else "", content_type="application/json")


def test_an_export_is_defined_run_and_downloaded_by_pages(administrator_client: Client) -> None:
    events_make(30, subject_name=FORMULA)
    assert "No exports yet" in page(administrator_client, "exports")
    answer = post(administrator_client, "export_add", **FORM, severity=["Critical"], q="happened")
    definition = ExportDefinition.objects.get()
    assert answer["Location"] == reverse("exports:export", args=[definition.pk])
    assert definition.filter == {"q": ["happened"], "severity": ["Critical"]}
    text = page(administrator_client, "export", definition.pk)
    assert "10 events match now" in text
    assert "id,text" in text
    answer = post(administrator_client, "export_start", definition.pk)
    run = ExportRun.objects.get()
    assert answer["Location"] == reverse("exports:export_run", args=[run.pk])
    assert "Queued" in page(administrator_client, "export_run", run.pk)
    assert administrator_client.get(reverse("exports:export_run_file", args=[run.pk])).status_code == 404
    run = turn(run)
    assert run.checksum in page(administrator_client, "export_run", run.pk)
    answer = administrator_client.get(reverse("exports:export_run_file", args=[run.pk]))
    body = file(answer)
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    assert answer["Content-Disposition"] == f'attachment; filename="{run.file.rpartition("/")[2]}"'
    assert int(answer["Content-Length"]) == len(body) == run.bytes
    assert len(body.splitlines()) == 11
    done = list(AuditEntry.objects.order_by("sequence").values_list("action", flat=True))
    assert done == ["export.add", "export.run", "export.download"]


def test_a_form_shows_what_it_would_give_and_keeps_nothing(administrator_client: Client) -> None:
    events_make(50)
    answer = post(administrator_client, "export_preview", **{**FORM, "format": "jsonl"})
    text = page_text(answer)
    assert "50 events match now; the first 20:" in text
    assert text.count("&quot;text&quot;:") == 20
    assert not ExportDefinition.objects.exists()
    assert AuditEntry.objects.get().action == "export.preview"
    wrong = post(administrator_client, "export_preview", **{**FORM, "since": "yesterday"})
    assert wrong.status_code == 400
    assert "such as 2026-03-02" in page_text(wrong)


def test_what_is_wrong_is_said_beside_its_field(administrator_client: Client) -> None:
    answer = post(
        administrator_client, "export_add", **{**FORM, "destination": "webhook", "address": "http://a:b@host/"}
    )
    assert answer.status_code == 400
    assert "Leave name and password out" in answer.content.decode()
    assert "http://a:b@host/" in answer.content.decode(), "what was typed is gone"
    assert not ExportDefinition.objects.exists()


def test_a_refused_form_leads_to_its_fields_and_has_the_first_focused(administrator_client: Client) -> None:
    wrong = {"destination": "webhook", "address": "nowhere", "columns": [], "since": "yesterday", "name": "x" * 101}
    text = post(administrator_client, "export_add", **{**FORM, **wrong}).content.decode()
    assert text.count("autofocus") == 1
    assert re.search(r'<input[^>]*name="name"[^>]*autofocus', text)
    assert [one for one in re.findall(r'<a href="#(id_\w+)">', text) if f'id="{one}"' in text] == [
        "id_name",
        "id_columns",
    ]
    text = post(administrator_client, "export_add", **{**FORM, "columns": []}).content.decode()
    assert re.search(r'<fieldset[^>]*id="id_columns"[^>]*autofocus', text)
    assert text.count("autofocus") == 1


def test_a_form_begins_with_a_search_for_events(administrator_client: Client) -> None:
    text = page(administrator_client, "export_add", severity="Critical", device="7", q="link")
    assert '<input type="checkbox" name="severity" value="Critical" id="id_severity_2" checked>' in text
    assert 'name="device" value="7"' in text
    answer = administrator_client.get(reverse("exports:export_add"), {"severity": "Loud"})
    assert answer.status_code == 400


def test_a_change_keeps_what_the_form_does_not_show(administrator_client: Client, define: Define) -> None:
    definition = define(
        "One", target="webhook", format="jsonl", address="https://host/x", secret="s3cret", columns=("text", "id"),
        filter={"chassis": ["77"], "device": ["1", "2"]},
    )  # fmt: skip
    text = page(administrator_client, "export_edit", definition.pk)
    assert "s3cret" not in text
    assert "chassis 77, removed" in text
    body = {
        **FORM, "name": "Two", "format": "jsonl", "destination": "webhook", "address": "https://host/x",
        "chassis": ["77"], "device": "1, 2", "columns": ["id", "text", "at"],
    }  # fmt: skip
    assert post(administrator_client, "export_edit", definition.pk, **body).status_code == 302
    definition.refresh_from_db()
    assert (definition.name, definition.secret(), definition.columns) == ("Two", "s3cret", ["text", "id", "at"])
    assert definition.filter == {"chassis": ["77"], "device": ["1", "2"]}
    assert post(administrator_client, "export_edit", definition.pk, **body, unsigned="on").status_code == 302
    definition.refresh_from_db()
    assert definition.secret() == ""
    assert "s3cret" not in "".join(str(one) for one in AuditEntry.objects.values())


def test_a_target_is_tried_from_the_form_and_from_the_page(
    administrator_client: Client, define: Define, webhook: HttpSink, forget_refusals: Callable[[], None]
) -> None:
    forget_refusals()  # of tests before: of very many, the log keeps some
    body = {**FORM, "format": "jsonl", "destination": "webhook", "address": webhook.url}
    assert (
        "The webhook accepted a test event. Not saved yet."
        in post(administrator_client, "export_test", **body).content.decode()
    )
    webhook.answer = lambda _got: (403, {})
    assert "answered 403 Forbidden" in post(administrator_client, "export_test", **body).content.decode()
    definition = define(target="webhook", format="jsonl", address=webhook.url)
    answer = administrator_client.post(reverse("exports:export_test"), {"definition": definition.pk}, follow=True)
    assert "answered 403 Forbidden" in answer.content.decode()
    assert [one.outcome for one in AuditEntry.objects.filter(action="export.test").order_by("sequence")] == [
        "done", "failed", "failed",
    ]  # fmt: skip


def test_lists_are_sorted_filtered_and_given_as_csv(administrator_client: Client, define: Define) -> None:
    define(FORMULA, format="jsonl")
    define("b", target="webhook", format="jsonl", address="https://host/x")
    run_request(by=None, definition=define("a"))
    names = [
        one.name for one in administrator_client.get(reverse("exports:exports"), {"sort": "-name"}).context["page"]
    ]
    assert names == ["b", "a", FORMULA]
    found = administrator_client.get(reverse("exports:exports"), {"target": "webhook", "q": "B"}).context["page"]
    assert [one.name for one in found] == ["b"]
    assert administrator_client.get(reverse("exports:exports"), {"sort": "secret_encrypted"}).status_code == 400
    assert "No matching exports" in page(administrator_client, "exports", q="zzz")
    text = file(administrator_client.get(reverse("exports:exports_csv"))).decode()
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert {row["name"] for row in rows} == {f"'{FORMULA}", "a", "b"}
    found = administrator_client.get(reverse("exports:export_runs"), {"state": "queued", "q": "a"}).context["page"]
    assert [one.name for one in found] == ["a"]
    assert administrator_client.get(reverse("exports:export_runs"), {"state": "odd"}).status_code == 400
    text = file(administrator_client.get(reverse("exports:export_runs_csv"))).decode()
    assert [row["export"] for row in csv.DictReader(io.StringIO(text, newline=""))] == ["a"]


def test_a_run_is_cancelled_and_resumed_and_an_export_switched_and_removed_by_pages(
    administrator_client: Client, define: Define
) -> None:
    definition = define()
    run = run_request(by=None, definition=definition)
    post(administrator_client, "export_run_cancel", run.pk)
    assert "Resume" in page(administrator_client, "export_run", run.pk)
    post(administrator_client, "export_run_resume", run.pk)
    run.refresh_from_db()
    assert run.state == "queued"
    again = administrator_client.post(reverse("exports:export_start", args=[definition.pk]), follow=True)
    assert "A run of this export is in progress" in again.content.decode()
    turn(run)
    post(administrator_client, "export_switch", definition.pk, off="1")
    assert "■ off" in page(administrator_client, "export", definition.pk)
    post(administrator_client, "export_switch", definition.pk, on="1")
    assert "Its 1 file is deleted" in page(administrator_client, "export_remove", definition.pk)
    post(administrator_client, "export_remove", definition.pk)
    assert not ExportDefinition.objects.exists()
    assert "Everything, deleted" in page(administrator_client, "export_run", run.pk)
    entries = AuditEntry.objects.order_by("sequence").values_list("action", "target_kind", "target_id")
    assert ("export.cancel", "export run", str(run.pk)) in entries


@pytest.mark.django_db(transaction=True)
def test_an_export_is_defined_run_and_downloaded_by_the_api(administrator_client: Client) -> None:
    events_make(3)
    answer = called(
        administrator_client, "POST", "exports", name="One", format="jsonl", target="download",
        filter={"severity": "Critical", "chassis": [1]}, options={"gzip": True},
    )  # fmt: skip
    assert answer.status_code == 201, answer.content
    made = answer.json()
    assert made["filter"] == {"severity": ["Critical"], "chassis": ["1"]}
    assert (made["options"]["gzip"], made["options"]["keep_files"], made["signed"]) == (True, 20, False)
    assert "secret" not in made
    answer = called(administrator_client, "PATCH", "export", made["id"], options={"keep_files": 3}, secret="s")
    changed = answer.json()
    assert (changed["options"]["gzip"], changed["options"]["keep_files"], changed["signed"]) == (True, 3, True)
    answer = called(administrator_client, "POST", "export_start", made["id"])
    assert answer.status_code == 202
    run = answer.json()
    assert answer["Location"].endswith(f"/api/v1/exports/runs/{run['id']}/")
    assert called(administrator_client, "POST", "export_start", made["id"]).status_code == 409
    turn(ExportRun.objects.get())
    run = administrator_client.get(answer["Location"]).json()
    assert (run["state"], run["counted"], run["percent"], run["has_file"]) == ("done", 1, 100, True)
    taken = administrator_client.get(reverse("api:export_run_file", args=[run["id"]]))
    assert taken["Content-Type"] == "application/gzip"
    assert [
        one["id"] for one in administrator_client.get(reverse("api:export_runs"), {"state": "done"}).json()["results"]
    ] == [run["id"]]
    assert administrator_client.get(reverse("api:exports"), {"search": "one"}).json()["count"] == 1
    assert called(administrator_client, "DELETE", "export", made["id"]).status_code == 204
    assert administrator_client.get(reverse("api:export_run_file", args=[run["id"]])).status_code == 404


def test_the_api_previews_tries_and_switches(administrator_client: Client, define: Define, webhook: HttpSink) -> None:
    events_make(2)
    answer = called(
        administrator_client, "POST", "export_preview", name="x", format="csv", target="download", columns=["id"]
    )
    assert (answer.json()["count"], answer.json()["lines"][0], len(answer.json()["lines"])) == (2, "id", 3)
    definition = define(target="webhook", format="jsonl", address=webhook.url)
    assert called(administrator_client, "POST", "export_try", definition.pk).json() == {
        "sentence": "The webhook accepted a test event."
    }
    webhook.answer = lambda _got: (500, {})
    answer = called(administrator_client, "POST", "export_try", definition.pk)
    assert (answer.status_code, answer.json()["code"]) == (502, "delivery_failed")
    assert called(administrator_client, "PATCH", "export", definition.pk, enabled=False).json()["enabled"] is False


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"colour": "red"}, "colour"),
        ({"options": {"adress": "x"}}, "options.adress"),
        ({"filter": {"colour": "red"}}, "filter"),
        ({"filter": {"severity": {"a": 1}}}, "filter"),
        ({"filter": ["severity"]}, "filter"),
        ({"filter": {"severity": True}}, "filter"),
        ({"columns": ["password"]}, "columns.0"),
        ({"target": "webhook", "options": {"address": "http://169.254.169.254/"}}, "address"),
        ({"schedule": "cron", "cron": "never"}, "cron"),
        ({"signed": True}, "signed"),
    ],
)
def test_the_api_says_which_member_is_wrong(administrator_client: Client, body: dict[str, Any], field: str) -> None:
    answer = called(
        administrator_client, "POST", "exports", **{"name": "x", "format": "csv", "target": "download", **body}
    )
    assert answer.status_code == 400, answer.content
    assert field in answer.json()["errors"], answer.json()


def test_nobody_else_sees_that_there_are_exports(
    user_client: Client, viewer_client: Client, define: Define, falconweb_administrator: User
) -> None:
    run = turn(run_request(by=falconweb_administrator, definition=define()))
    for client in (user_client, viewer_client):
        assert client.get(reverse("exports:export_run_file", args=[run.pk])).status_code == 403
        assert client.get(reverse("api:export_run_file", args=[run.pk])).status_code == 403
        assert client.get(reverse("exports:export_run_file", args=[run.pk + 1])).status_code == 403
        assert post(client, "export_test", **FORM).status_code == 403
        assert post(client, "export_preview", **FORM).status_code == 403
