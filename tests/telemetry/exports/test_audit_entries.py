"""The audit log on its way to receivers: as events, in order, each once, where an export asks for it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from accounts.audit import chain
from accounts.audit.actions import Action
from accounts.audit.models import AuditEntry
from accounts.models import User
from accounts.services import tenant_add
from core.errors import Forbidden
from telemetry.events.filters import EventFilter
from telemetry.events.models import Event
from telemetry.exports import audit_entries
from telemetry.exports.audit_entries import audit_entries_add
from telemetry.exports.execution import exports_begin_due, run_continue
from telemetry.exports.models import AuditPosition, ExportDefinition
from telemetry.exports.options import ExportSpec
from telemetry.exports.services import export_add
from tests.telemetry.delivery.sinks import HttpSink
from tests.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)
Define = Callable[..., ExportDefinition]
COLUMNS = ("id", "text", "arguments")


def tend() -> int:
    """Do what beat and the workers do, once; return how many entries became events."""
    for run_id in exports_begin_due():
        while run_continue(run_id, worker="worker"):
            pass
    return audit_entries_add()


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
    tenant_add(by=falconweb_administrator, name="Before")
    define(
        target="webhook", format="jsonl", schedule="stream", address=webhook.url, columns=COLUMNS,
        filter={"source": ["audit"]},
    )  # fmt: skip
    for name in ("One", "Two", "Three"):  # the worker was away when the export was defined
        tenant_add(by=falconweb_administrator, name=name)
    webhook.answer = lambda got: (503, {}) if webhook.asked == 2 else (200, {})
    wait_for(lambda: tend() == 0 and not exports_begin_due() and len(sequences(webhook)) >= 5)
    entries = AuditEntry.objects.order_by("sequence")
    (begin,) = entries.filter(action=Action.EXPORT_ADD).values_list("sequence", flat=True)
    # Its definition, the tenants, and the begin of its one run, which feeds it nothing more.
    wanted = list(entries.filter(sequence__gte=begin))
    assert sorted(one.action for one in wanted) == ["export.add", "export.run", *["tenant.add"] * 3]
    assert sequences(webhook) == [one.sequence for one in wanted]
    # A worker that died before its position was stored has stored no event either; none is added twice.
    AuditPosition.objects.update(sequence=begin - 1)
    for _ in range(3):
        assert audit_entries_add() == 0
    assert AuditPosition.objects.get().sequence == wanted[-1].sequence
    event = Event.objects.filter(source="audit", text__contains=": One,").get()
    entry = entries.get(pk=json.loads(event.arguments[0])["sequence"])
    assert event.arguments == [chain.canonical(entry.record()).decode()]
    assert event.text == f"Add a tenant: One, by {falconweb_administrator.username}: done."


def test_a_search_that_names_no_source_finds_none_and_nobody_but_administrators_does(
    define: Define, falconweb_administrator: User
) -> None:
    define(target="download", filter={"source": ["audit"]})
    tenant = tenant_add(by=falconweb_administrator, name="One")
    member = User.objects.create_user("eve", tenant=tenant)
    with pytest.raises(Forbidden):
        export_add(by=member, spec=ExportSpec("mine", format="csv", target="download", filter={"source": ["audit"]}))
    assert audit_entries_add() == 3
    assert not EventFilter.of({}).apply(Event.objects.all()).filter(source="audit").exists()
    named = EventFilter.of({"source": "audit"})
    assert named.apply(Event.objects.visible_to(falconweb_administrator)).count() == 3
    assert not named.apply(Event.objects.visible_to(member)).exists()
