"""Exports to receivers: in order, each event at least once, through outages, deaths and changes."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from accounts.models import User
from core.endpoints import DeliveryFailed
from core.errors import Conflict, Invalid
from simulator.certificates import ServerCertificate
from telemetry.events.models import Event
from telemetry.exports import execution
from telemetry.exports.execution import exports_begin_due, retry_delay
from telemetry.exports.models import ExportDefinition, ExportRun
from telemetry.exports.options import ExportOptions, ExportSpec
from telemetry.exports.services import export_edit, export_switch, run_cancel, run_request, run_resume, target_check
from tests.telemetry.delivery.readers import read_cef, read_syslog
from tests.telemetry.delivery.sinks import Got, HttpSink, SyslogSink, closed_port
from tests.telemetry.exports.conftest import events_make, turn
from tests.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)
Define = Callable[..., ExportDefinition]


def tend() -> None:
    """Do what beat and the workers do, once."""
    for run_id in exports_begin_due():
        while execution.run_continue(run_id, worker="worker"):
            pass


def arrived(sink: HttpSink) -> list[int]:
    """Return the numbers of the events that came, in order."""
    return [json.loads(line)["id"] for body in sink.bodies for line in body.splitlines()]


def numbers(events: list[Event]) -> list[int]:
    return [event.pk for event in events]


def test_a_stream_takes_what_there_is_and_then_what_comes(define: Define, webhook: HttpSink) -> None:
    made = events_make(1200)
    definition = define(target="webhook", format="jsonl", schedule="stream", address=webhook.url, secret="s3cret")
    tend()
    assert arrived(webhook) == numbers(made)
    assert (
        next(one.headers["webhook-id"] for one in webhook.got) == f"export-{definition.pk}-{made[0].pk}-{made[499].pk}"
    )
    assert all("webhook-signature" in one.headers for one in webhook.got)
    assert exports_begin_due() == [], "a stream without anything new is not looked at"
    made += events_make(3, first=1201)
    tend()
    assert arrived(webhook) == numbers(made)
    (run,) = definition.runs.all()
    assert (run.state, run.trigger, run.counted) == ("running", "stream", 1203)
    definition.refresh_from_db()
    assert definition.cursor == made[-1].pk


def test_what_a_stream_does_not_want_does_not_keep_it_awake(define: Define, webhook: HttpSink) -> None:
    define(target="webhook", format="jsonl", schedule="stream", address=webhook.url, filter={"source": "alert"})
    events_make(5)
    tend()
    assert webhook.got == []
    assert exports_begin_due() == []


def test_a_webhook_that_was_down_gets_everything_after_in_order(define: Define, webhook: HttpSink) -> None:
    made = events_make(1200)
    definition = define(target="webhook", format="jsonl", schedule="stream", address=webhook.url, batch=100)
    webhook.answer = lambda got: (503, {}) if webhook.asked % 3 else (200, {})
    tend()
    (run,) = definition.runs.all()
    assert run.state == "running"
    assert "answered 503" in run.error
    assert run.retry_at is not None
    webhook.mood = "hangs up"
    made += events_make(50, first=1201)
    for _ in range(3):
        ExportRun.objects.update(retry_at=None)
        tend()
    run.refresh_from_db()
    assert run.attempts >= 3
    webhook.mood = "well"

    def all_there() -> bool:
        tend()
        return len(arrived(webhook)) >= len(made)

    wait_for(all_there)
    assert arrived(webhook) == numbers(made), "lost, doubled or out of order"
    run.refresh_from_db()
    assert (run.attempts, run.error, run.failing_since) == (0, "", None)


def test_pauses_grow_to_five_minutes_and_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    pauses = [retry_delay(attempts) for attempts in range(40)]
    assert 1.5 <= pauses[0] <= 2
    assert all(225 <= one <= 300 for one in pauses[8:])


def test_a_receiver_that_asks_for_a_pause_gets_it(define: Define, webhook: HttpSink) -> None:
    events_make(1)
    definition = define(target="webhook", format="jsonl", schedule="stream", address=webhook.url)
    webhook.answer = lambda _got: (429, {"Retry-After": "120"})
    tend()
    run = definition.runs.get()
    assert run.retry_at is not None
    assert timedelta(seconds=100) < run.retry_at - timezone.now() < timedelta(seconds=121)
    assert exports_begin_due() == []


def test_what_nobody_knows_the_end_of_is_sent_again_under_the_same_id(define: Define, webhook: HttpSink) -> None:
    """A worker died between the answer and its note of it; meanwhile there is more to send."""
    made = events_make(10)
    definition = define(target="webhook", format="jsonl", schedule="stream", address=webhook.url)
    tend()
    ExportRun.objects.update(cursor=made[0].pk - 1, pending=made[9].pk, counted=0)
    made += events_make(5, first=11)
    tend()
    assert arrived(webhook) == [*numbers(made[:10]), *numbers(made)]
    first, again, _rest = webhook.got
    assert first.headers["webhook-id"] == again.headers["webhook-id"]
    assert definition.runs.get().counted == 15


def test_a_receiver_that_will_never_take_it_ends_the_run_and_nothing_is_lost(
    define: Define, webhook: HttpSink, falconweb_administrator: User
) -> None:
    made = events_make(10)
    definition = define(target="webhook", format="jsonl", schedule="stream", address=webhook.url)
    webhook.answer = lambda _got: (401, {})
    tend()
    run = definition.runs.get()
    assert run.state == "failed"
    assert "answered 401 Unauthorized. Fix that, then resume" in run.error
    event = Event.objects.get(message="FalconWeb.ExportFailed")
    assert (event.severity, event.link) == ("Warning", f"/exports/runs/{run.pk}/")
    assert exports_begin_due() == [], "it is tried again although nobody mended anything"
    webhook.answer = lambda _got: (200, {})
    run_resume(by=falconweb_administrator, run=run)
    tend()
    assert arrived(webhook) == [*numbers(made), event.pk]


def test_a_run_with_an_end_gives_up_after_a_day(
    define: Define, webhook: HttpSink, falconweb_administrator: User
) -> None:
    events_make(1)
    definition = define(target="webhook", format="jsonl", address=f"http://127.0.0.1:{closed_port()}")
    run = turn(run_request(by=falconweb_administrator, definition=definition))
    assert (run.state, run.attempts) == ("running", 1)
    ExportRun.objects.update(failing_since=timezone.now() - timedelta(hours=25), retry_at=None)
    run = turn(run)
    assert (run.state, "Nothing listens" in run.error) == ("failed", True)


def test_a_stream_never_gives_up(define: Define) -> None:
    events_make(1)
    define(target="webhook", format="jsonl", schedule="stream", address=f"http://127.0.0.1:{closed_port()}")
    tend()
    ExportRun.objects.update(failing_since=timezone.now() - timedelta(days=25), retry_at=None)
    tend()
    assert ExportRun.objects.get().state == "running"


def test_another_worker_goes_on_where_one_died(define: Define, webhook: HttpSink) -> None:
    made = events_make(300)
    define(target="webhook", format="jsonl", schedule="stream", address=webhook.url, batch=100)
    (run_id,) = exports_begin_due()
    # It died with the claim in its hands, after it had delivered the first batch.
    now = timezone.now()
    ExportRun.objects.filter(pk=run_id).update(
        state="running", worker="dead", lease_until=now + timedelta(seconds=20), cursor=made[99].pk, counted=100
    )
    tend()
    assert webhook.got == []
    ExportRun.objects.filter(pk=run_id).update(lease_until=None)
    tend()
    assert arrived(webhook) == numbers(made[100:])


def test_a_stream_that_is_changed_goes_on_as_it_is_now(
    define: Define, webhook: HttpSink, falconweb_administrator: User
) -> None:
    made = events_make(5)
    definition = define(
        target="webhook", format="jsonl", schedule="stream", address=f"http://127.0.0.1:{closed_port()}", secret="old"
    )
    tend()
    wanted = ExportSpec(
        "Everything", format="jsonl", target="webhook", schedule="stream", columns=("id", "text"),
        options=ExportOptions(address=webhook.url),
    )  # fmt: skip
    definition = export_edit(by=falconweb_administrator, definition=definition, spec=wanted)
    assert definition.secret() == "", "the secret went along to another address"
    tend()
    tend()
    assert arrived(webhook) == numbers(made)
    assert list(json.loads(webhook.bodies[0].splitlines()[0])) == ["id", "text"]
    assert [run.state for run in definition.runs.order_by("pk")] == ["done", "running"]


def test_a_stream_that_is_off_does_nothing_and_goes_on_when_it_is_on(
    define: Define, webhook: HttpSink, falconweb_administrator: User
) -> None:
    made = events_make(2)
    definition = define(target="webhook", format="jsonl", schedule="stream", address=webhook.url)
    tend()
    definition = export_switch(by=falconweb_administrator, definition=definition, enabled=False)
    made += events_make(2, first=3)
    tend()
    tend()
    assert len(arrived(webhook)) == 2
    assert definition.runs.get().state == "done"
    with pytest.raises(Conflict, match="switched off"):
        run_request(by=falconweb_administrator, definition=definition)
    export_switch(by=falconweb_administrator, definition=definition, enabled=True)
    tend()
    assert arrived(webhook) == numbers(made)


def test_a_stream_that_somebody_cancels_waits_until_it_is_resumed(
    define: Define, webhook: HttpSink, falconweb_administrator: User
) -> None:
    made = events_make(2)
    definition = define(target="webhook", format="jsonl", schedule="stream", address=webhook.url)
    tend()
    run = run_cancel(by=falconweb_administrator, run=definition.runs.get())
    made += events_make(2, first=3)
    tend()
    assert len(arrived(webhook)) == 2
    run_resume(by=falconweb_administrator, run=run)
    tend()
    assert arrived(webhook) == numbers(made)


@pytest.mark.parametrize("format_", ["syslog", "cef", "jsonl"])
def test_a_syslog_server_gets_a_message_for_each_event(define: Define, syslog: SyslogSink, format_: str) -> None:
    made = events_make(600)
    define(target="syslog", format=format_, schedule="stream", address=syslog.address, columns=("id", "text"))
    tend()
    messages = [read_syslog(one) for one in syslog.got]
    if format_ == "syslog":
        found = [dict(one.data["falconweb@32473"])["id"] for one in messages]
    elif format_ == "cef":
        found = [read_cef(one.text)[1]["externalId"] for one in messages]
    else:
        found = [str(json.loads(one.text)["id"]) for one in messages]
    assert found == [str(one.pk) for one in made]
    assert {one.marked for one in messages} == {format_ == "syslog"}


def test_a_syslog_server_over_tls_and_one_over_udp_get_everything(
    define: Define, certificate: ServerCertificate
) -> None:
    made = events_make(120)
    with SyslogSink("tls", certificate) as tls, SyslogSink("udp") as udp:
        define("tls", target="syslog", format="syslog", schedule="stream", address=tls.address, ca=certificate.pem)
        define("udp", target="syslog", format="syslog", schedule="stream", address=udp.address)
        tend()
        wait_for(lambda: len(udp.got) == len(made))
        assert udp.got == tls.got


def test_a_batch_is_as_large_as_one_is_told_and_a_megabyte_at_most(define: Define, webhook: HttpSink) -> None:
    made = events_make(3, subject_name="x" * 300)
    Event.objects.filter(pk=made[1].pk).update(text="y" * 4000, subject_name="z" * 300)
    events_make(700, first=4)
    Event.objects.filter(pk__gt=made[2].pk).update(text="é" * 2000)
    define(target="webhook", format="jsonl", schedule="stream", address=webhook.url, gzip=True)
    tend()
    bodies = [gzip.decompress(body) for body in webhook.bodies]
    assert {one.headers["content-encoding"] for one in webhook.got} == {"gzip"}
    assert max(len(body) for body in bodies) <= 2**20
    assert sum(body.count(b"\n") for body in bodies) == 703


def test_csv_to_a_webhook_has_a_heading_in_each_request(define: Define, webhook: HttpSink) -> None:
    events_make(30)
    define(target="webhook", format="csv", schedule="stream", address=webhook.url, batch=20)
    tend()
    assert [body.split(b"\r\n")[0] for body in webhook.bodies] == [b"id,at,severity,text"] * 2
    assert {one.headers["content-type"] for one in webhook.got} == {"text/csv; charset=utf-8"}


def test_a_schedule_begins_a_run_when_it_is_due_and_once(define: Define, webhook: HttpSink) -> None:
    events_make(4)
    definition = define(target="webhook", format="jsonl", schedule="cron", cron="0 3 * * *", address=webhook.url)
    assert definition.next_at is not None
    assert (definition.next_at.hour, definition.next_at.minute) == (3, 0)
    assert exports_begin_due() == []
    ExportDefinition.objects.update(next_at=timezone.now() - timedelta(hours=30))
    tend()
    tend()
    assert definition.runs.count() == 1, "what was missed is made up for once"
    assert len(arrived(webhook)) == 4
    definition.refresh_from_db()
    assert definition.next_at > timezone.now()
    assert definition.runs.get().trigger == "schedule"


def test_a_schedule_whose_last_run_still_goes_on_says_so(define: Define, falconweb_administrator: User) -> None:
    definition = define(schedule="cron", cron="* * * * *")
    run_request(by=falconweb_administrator, definition=definition)
    ExportDefinition.objects.update(next_at=timezone.now())
    exports_begin_due()
    definition.refresh_from_db()
    assert "A run of this export is in progress" in definition.note
    assert definition.runs.count() == 1


def test_what_is_off_is_not_begun_by_its_schedule(define: Define, falconweb_administrator: User) -> None:
    definition = define(schedule="cron", cron="* * * * *")
    export_switch(by=falconweb_administrator, definition=definition, enabled=False)
    definition.refresh_from_db()
    assert definition.next_at is None
    assert exports_begin_due() == []


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"schedule": "cron", "cron": "0 0 31 2 *"}, "cron"),
        ({"schedule": "cron", "cron": "* * * * * *"}, "cron"),
        ({"schedule": "cron", "cron": "61 * * * *"}, "cron"),
        ({"schedule": "cron", "cron": ""}, "cron"),
        ({"schedule": "stream"}, "schedule"),
        ({"target": "webhook", "address": "file:///etc/passwd"}, "address"),
        ({"target": "webhook", "address": "http://ada:pw@host/"}, "address"),
        ({"target": "webhook", "address": "http://169.254.169.254/"}, "address"),
        ({"target": "webhook", "address": "https://host/", "ca": "no certificate"}, "ca"),
        ({"target": "syslog", "format": "syslog", "address": "https://host/"}, "address"),
        ({"target": "syslog", "format": "csv", "address": "tcp://host"}, "format"),
        ({"target": "pigeon"}, "target"),
        ({"format": "xml"}, "format"),
        ({"columns": ()}, "columns"),
        ({"columns": ("id", "password")}, "columns"),
        ({"filter": {"severity": "Loud"}}, "severity"),
        ({"filter": {"colour": "red"}}, "filter"),
        ({"name": "  "}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"keep_files": -1}, "keep_files"),
        ({"minutes": 0}, "minutes"),
        ({"batch": 1001}, "batch"),
        ({"cef_version": 2}, "cef_version"),
        ({"facility": "loud"}, "facility"),
        ({"secret": "x" * 201}, "secret"),
    ],
)
def test_what_cannot_be_is_refused_by_its_field(define: Define, wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as raised:
        define(**wrong)
    assert field in raised.value.details["errors"]
    assert not ExportDefinition.objects.exists()


def test_a_name_is_given_once(define: Define) -> None:
    define("One")
    with pytest.raises(Invalid, match="has this name"):
        define("One")


def test_a_secret_is_kept_encrypted_and_told_to_nobody(define: Define, webhook: HttpSink) -> None:
    definition = define(target="webhook", format="jsonl", address=webhook.url, secret="whsec_Zm9v")
    row = ExportDefinition.objects.values().get()
    assert "whsec_Zm9v" not in json.dumps(row, default=str)
    assert definition.secret() == "whsec_Zm9v"
    run = run_request(by=None, definition=definition)
    assert run.snapshot["signed"] is True
    assert "Zm9v" not in json.dumps(run.snapshot)


def test_a_target_is_tried_with_an_event_that_is_in_no_log(webhook: HttpSink, falconweb_administrator: User) -> None:
    wanted = ExportSpec("x", format="jsonl", target="webhook", options=ExportOptions(address=webhook.url), secret="s")
    assert target_check(by=falconweb_administrator, spec=wanted) == "The webhook accepted a test event."
    (got,) = webhook.got
    assert json.loads(got.body)["message_id"] == "FalconWeb.1.0.ExportTest"
    assert not Event.objects.exists()
    webhook.answer = lambda _got: (500, {})
    with pytest.raises(DeliveryFailed, match="answered 500"):
        target_check(by=falconweb_administrator, spec=wanted)


def test_a_try_signs_with_the_kept_secret_for_the_same_address_alone(
    define: Define, webhook: HttpSink, falconweb_administrator: User
) -> None:
    definition = define(target="webhook", format="jsonl", address=webhook.url, secret="kept")
    for address in (webhook.url, f"{webhook.url}/elsewhere"):
        wanted = ExportSpec("x", format="jsonl", target="webhook", options=ExportOptions(address=address))
        target_check(by=falconweb_administrator, spec=wanted, definition=definition)
    assert ["webhook-signature" in one.headers for one in webhook.got] == [True, False]


def test_a_turn_ends_so_that_others_have_theirs(
    define: Define, webhook: HttpSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = events_make(500)
    monkeypatch.setattr(execution, "SLICE_SECONDS", 0.0)
    define(target="webhook", format="jsonl", schedule="stream", address=webhook.url)
    (run_id,) = exports_begin_due()
    assert execution.run_continue(run_id, worker="worker"), "it does not say that there is more"
    assert ExportRun.objects.get().lease_until is None
    monkeypatch.setattr(execution, "SLICE_SECONDS", 20.0)
    assert not execution.run_continue(run_id, worker="worker")
    assert arrived(webhook) == numbers(made)


def test_the_order_is_kept_where_one_request_is_slow(define: Define, webhook: HttpSink) -> None:
    made = events_make(40)
    slow: list[Got] = []

    def answer(got: Got) -> tuple[int, dict[str, str]]:
        slow.append(got)
        return (500, {}) if len(slow) % 2 else (200, {})

    webhook.answer = answer
    define(target="webhook", format="jsonl", schedule="stream", address=webhook.url, batch=7)

    def all_there() -> bool:
        tend()
        return len(arrived(webhook)) >= 40

    wait_for(all_there)
    assert arrived(webhook) == numbers(made)
