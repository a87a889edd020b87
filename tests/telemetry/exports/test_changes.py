"""Changes of exports: a stream begins anew where what it sends or where to is another, and goes on where it is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from simulator.certificates import ServerCertificate
from telemetry.exports.execution import exports_begin_due, run_continue
from telemetry.exports.models import ExportDefinition, ExportRun
from tests.telemetry.delivery.sinks import HttpSink
from tests.telemetry.exports.conftest import events_make

pytestmark = pytest.mark.django_db
Define = Callable[..., ExportDefinition]


def patch(client: Client, pk: int, **body: Any) -> None:
    """Change an export by the API."""
    answer = client.patch(reverse("api:export", args=[pk]), json.dumps(body), content_type="application/json")
    assert answer.status_code == 200, answer.content


def tend() -> None:
    """Do what beat and the workers do, once."""
    for run_id in exports_begin_due():
        while run_continue(run_id, worker="worker"):
            pass


@pytest.fixture
def stream(define: Define, webhook: HttpSink, certificate: ServerCertificate) -> ExportDefinition:
    """A stream that has delivered what there was."""
    events_make(2)
    made = define(
        "Stream", target="webhook", format="jsonl", schedule="stream", address=webhook.url, secret="s3cret",
        filter={"severity": ["Warning", "OK"]}, ca=certificate.pem,
    )  # fmt: skip
    tend()
    return made


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": "Another name"},
        {"enabled": True, "name": "Another name"},
        {"secret": "s3cret"},
        {"filter": {"severity": ["Warning", "OK"]}, "format": "jsonl", "schedule": "stream", "span": "new"},
        {"options": {"batch": 500, "gzip": False}},
        {"options": {"keep_files": 3, "keep_days": 4, "minutes": 5, "folder": "elsewhere"}},
    ],
)
def test_a_stream_goes_on_where_a_change_is_none_of_what_it_sends(
    administrator_client: Client, stream: ExportDefinition, webhook: HttpSink, body: dict[str, Any]
) -> None:
    run = stream.runs.get()
    patch(administrator_client, stream.pk, **body)
    assert exports_begin_due() == [], "the run is looked at although nothing is new"
    events_make(1, first=4)
    tend()
    assert stream.runs.get() == run
    assert len(webhook.got) == 2


@pytest.mark.parametrize(
    "body",
    [
        {"filter": {"severity": ["Warning"]}},
        {"columns": ["text"]},
        {"format": "cef"},
        {"options": {"gzip": True}},
        {"options": {"batch": 7}},
        {"secret": "another"},
        {"secret": ""},
    ],
)
def test_a_stream_begins_anew_where_it_sends_something_else(
    administrator_client: Client, stream: ExportDefinition, body: dict[str, Any]
) -> None:
    patch(administrator_client, stream.pk, **body)
    tend()
    tend()
    assert [run.state for run in stream.runs.order_by("pk")] == ["done", "running"]


def test_saving_the_form_as_it_is_leaves_the_run_alone(administrator_client: Client, stream: ExportDefinition) -> None:
    page = administrator_client.get(reverse("exports:export_edit", args=[stream.pk]))
    form = page.context["form"]
    typed = {field.name: field.value() for field in form if field.value()}
    typed["ca"] = typed["ca"].replace("\n", "\r\n")  # as browsers do
    answer = administrator_client.post(reverse("exports:export_edit", args=[stream.pk]), typed)
    assert answer.status_code == 302, answer.context["form"].errors
    tend()
    assert stream.runs.get().state == "running"


def test_nothing_changed_is_no_change_of_its_date_and_does_not_hasten_a_try(
    administrator_client: Client, stream: ExportDefinition
) -> None:
    later = timezone.now() + timedelta(minutes=5)
    ExportRun.objects.update(retry_at=later)
    patch(administrator_client, stream.pk)
    run, before = stream.runs.get(), stream.changed_at
    stream.refresh_from_db()
    assert (run.retry_at, stream.changed_at) == (later, before)
    patch(administrator_client, stream.pk, name="Another name")
    stream.refresh_from_db()
    assert stream.changed_at > before
    assert stream.runs.get().retry_at == later
    patch(administrator_client, stream.pk, enabled=False, name="Off")
    assert stream.runs.get().retry_at is None, "it does not notice that it is off"


def test_a_new_name_does_not_move_what_is_due(administrator_client: Client, define: Define) -> None:
    nightly = define("Nightly", schedule="cron", cron="15 3 * * *")
    due = timezone.now() - timedelta(seconds=1)
    ExportDefinition.objects.update(next_at=due)
    patch(administrator_client, nightly.pk, name="Each night")
    patch(administrator_client, nightly.pk, enabled=True)
    nightly.refresh_from_db()
    assert nightly.next_at == due
    patch(administrator_client, nightly.pk, cron="16 3 * * *")
    nightly.refresh_from_db()
    assert nightly.next_at is not None
    assert nightly.next_at > timezone.now()
