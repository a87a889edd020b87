"""The audit log on its way to receivers: as events, in order, each once, where an export asks for it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from accounts.audit import chain
from accounts.audit.models import AuditEntry
from accounts.models import User
from accounts.services import tenant_add
from telemetry.events.filters import EventFilter
from telemetry.events.models import Event
from telemetry.exports import audit_entries
from telemetry.exports.audit_entries import audit_entries_add
from telemetry.exports.execution import exports_begin_due, run_continue
from telemetry.exports.models import AuditPosition, ExportDefinition
from tests.telemetry.delivery.sinks import HttpSink

pytestmark = pytest.mark.django_db(transaction=True)
Define = Callable[..., ExportDefinition]
COLUMNS = ("id", "text", "arguments")


def tend() -> None:
    audit_entries_add()
    for run_id in exports_begin_due():
        while run_continue(run_id, worker="worker"):
            pass


def sequences(sink: HttpSink) -> list[int]:
    lines = [json.loads(line) for body in sink.bodies for line in body.splitlines()]
    return [json.loads(line["arguments"][0])["sequence"] for line in lines]


def test_without_such_an_export_entries_stay_where_they_are(define: Define, falconweb_administrator: User) -> None:
    define(target="download")
    tenant_add(by=falconweb_administrator, name="One")
    assert audit_entries_add() == 0
    assert not Event.objects.filter(source="audit").exists()
    assert not AuditPosition.objects.exists()


def test_entries_arrive_whole_in_order_and_once_though_workers_repeat(
    define: Define, falconweb_administrator: User, webhook: HttpSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_entries, "BATCH_ROWS", 2)
    define(
        target="webhook", format="jsonl", schedule="stream", address=webhook.url, columns=COLUMNS,
        filter={"source": ["audit"]},
    )  # fmt: skip
    tend()
    first = AuditPosition.objects.get().sequence
    for name in ("One", "Two", "Three"):
        tenant_add(by=falconweb_administrator, name=name)
    for _ in range(3):
        tend()
    wanted = list(AuditEntry.objects.filter(sequence__gt=first).order_by("sequence").values_list("sequence", flat=True))
    assert len(wanted) >= 3
    assert sequences(webhook) == wanted
    # A worker that died before its position was stored has stored no event either; none is added twice.
    AuditPosition.objects.update(sequence=first)
    for _ in range(3):
        assert audit_entries_add() == 0
    assert AuditPosition.objects.get().sequence == wanted[-1]
    event = Event.objects.filter(source="audit", text__contains="One").get()
    record = json.loads(event.arguments[0])
    entry = AuditEntry.objects.get(pk=record["sequence"])
    assert event.arguments[0] == chain.canonical(entry.record()).decode()
    assert event.text == f"Add a tenant: One, by {falconweb_administrator.username}: done."


def test_a_search_that_names_no_source_finds_none_and_nobody_but_administrators_does(
    define: Define, falconweb_administrator: User
) -> None:
    define(target="download", filter={"source": ["audit"]})
    audit_entries_add()
    tenant_add(by=falconweb_administrator, name="One")
    assert audit_entries_add() == 1
    assert not EventFilter.of({}).apply(Event.objects.all()).filter(source="audit").exists()
    assert EventFilter.of({"source": "audit"}).apply(Event.objects.visible_to(falconweb_administrator)).exists()
    assert not Event.objects.visible_to(User.objects.create_user("eve")).filter(source="audit").exists()
