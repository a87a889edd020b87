"""Who is told, when, and how often: one notification for a storm, in order, to receivers that come and go."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import F, Value
from django.db.models.functions import Concat
from django.utils import timezone

from accounts.models import User
from core.errors import Conflict, Invalid
from fabric.inventory.models import Device
from fabric.leases.models import Tenure
from telemetry.alerts.messages import MAX_LISTED, iso_utc
from telemetry.alerts.models import Alert, AlertNotification, Delivery, Route, Silence
from telemetry.alerts.notifications import (
    GIVE_UP,
    GIVE_UP_REFUSED,
    deliveries_send,
    gather_wait,
    notification_line,
    notifications_gather,
    retry_delay,
)
from telemetry.alerts.route_services import (
    RouteValues,
    SilenceValues,
    delivery_retry,
    route_add,
    route_edit,
    route_test,
    silence_add,
    silence_end,
)
from telemetry.alerts.services import alerts_acknowledge
from telemetry.alerts.tasks import notify
from telemetry.delivery.senders import webhook_signature
from tests.pages import page_text
from tests.processes import ROOT
from tests.smtp_sink import SmtpSink
from tests.telemetry.alerts.conftest import Lab, check_of, fire, record, resolve, turn
from tests.telemetry.delivery.sinks import HttpSink, SyslogSink
from tests.turns import at_night

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def hook() -> Iterator[HttpSink]:
    """A receiver of webhooks."""
    with HttpSink() as sink:
        yield sink


@pytest.fixture
def mail(settings: Any) -> Iterator[SmtpSink]:
    """A mail server, and a site that knows it."""
    with SmtpSink() as sink:
        settings.EMAIL_IS_SENT = True
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", sink.port
        yield sink


def route(lab: Lab, kind: str, address: str, **more: Any) -> Route:
    """Add a route that was there before anything fired."""
    row = route_add(
        person=lab.administrator, values=RouteValues(name=f"to {address}", kind=kind, address=address, **more)
    )
    Route.objects.filter(pk=row.pk).update(enabled_at=timezone.now() - timedelta(days=30))
    return row


def pass_time(seconds: float) -> None:
    """Let everything be so long ago."""
    back = timedelta(seconds=seconds)
    Alert.objects.update(since=F("since") - back, fired_at=F("fired_at") - back)
    Alert.objects.filter(resolved_at__isnull=False).update(resolved_at=F("resolved_at") - back)
    Tenure.objects.update(began_at=F("began_at") - back, ended_at=F("ended_at") - back)
    Delivery.objects.update(made_at=F("made_at") - back, next_try_at=F("next_try_at") - back)
    Delivery.objects.filter(claimed_until__isnull=False).update(claimed_until=None)


def summaries(sink: HttpSink) -> list[tuple[str, int, int]]:
    """Return summary, firing and resolved of each webhook that came."""
    bodies = [json.loads(one) for one in sink.bodies]
    return [(one["summary"], one["firing"], one["resolved"]) for one in bodies]


def test_an_alert_is_told_once_by_every_kind_of_route_and_that_it_is_over(
    lab: Lab, hook: HttpSink, mail: SmtpSink
) -> None:
    with SyslogSink("tcp") as tcp, SyslogSink("udp") as udp:
        route(lab, "webhook", f"{hook.url}/in", secret="s3cret")
        route(lab, "email", "ops@example.org, night@example.org")
        route(lab, "syslog", tcp.address)
        route(lab, "syslog", udp.address)
        route(lab, "page", "")
        alert = fire(lab.device)
        notify()
        assert hook.asked == 0  # others of the same moment are waited for
        pass_time(11)
        for _ in range(3):
            notify()
        resolve(alert)
        pass_time(11)
        for _ in range(3):
            notify()
    first, second = (json.loads(one) for one in hook.bodies)
    assert (first["summary"], second["summary"]) == (
        "Critical: Too hot, GPU 1 of falcon",
        "Resolved: Too hot, GPU 1 of falcon",
    )
    (line,) = first["alerts"]
    assert (line["state"], line["value"], line["threshold"], line["unit"]) == (
        "firing",
        92.5,
        "above 85 °C for 3 s",
        "°C",
    )
    assert line["url"].endswith(f"/alerts/{alert.pk}/")
    got = hook.got[0]
    identity = got.headers["webhook-id"]
    assert identity == first["id"]
    stamp = int(got.headers["webhook-timestamp"])
    assert got.headers["webhook-signature"] == webhook_signature(
        "s3cret", message_id=identity, timestamp=stamp, body=got.body
    )
    assert [recipients for recipients, _ in mail.got] == [("ops@example.org", "night@example.org")] * 2
    assert mail.subjects[0][1] == "[FalconWeb] Critical: Too hot, GPU 1 of falcon"
    assert "92.5 °C, above 85 °C for 3 s" in mail.body(0)
    for sink in (tcp, udp):
        firing, over = sink.got
        assert firing.startswith(b"<130>1 ")  # local0, critical
        assert b"[falconweb@32473 " in firing
        assert f'alert="{alert.pk}" state="firing"'.encode() in firing
        assert over.startswith(b"<134>1 ")
        assert b"Resolved: Too hot, GPU 1 of falcon." in over
    assert not Delivery.objects.exclude(state="delivered").exists()
    assert AlertNotification.objects.filter(resolved_in=None).count() == 0


@pytest.mark.nightly
def test_a_storm_is_few_notifications(lab: Lab, hook: HttpSink) -> None:
    many = 200
    route(lab, "webhook", hook.url)
    checks = [check_of(lab.device, key=f"device/{lab.device.pk}/x{number}") for number in range(many)]
    for begin in range(0, many, 20):  # a wave each two seconds
        record([turn(check, "firing") for check in checks[begin : begin + 20]], lab.chassis)
        notify()
        pass_time(2)
    for _ in range(12):
        notify()
        pass_time(20)
    record([turn(check, "resolved", value=20.0) for check in checks], lab.chassis)
    for _ in range(20):
        notify()
        pass_time(20)
    assert len(hook.got) <= 4
    assert sum(one[1] for one in summaries(hook)) == many
    assert sum(one[2] for one in summaries(hook)) == many
    first = json.loads(hook.bodies[0])
    assert first["firing"] == len(first["alerts"]) + first["more"]
    assert len(first["alerts"]) <= MAX_LISTED


def test_the_more_was_told_lately_the_longer_the_next_message_waits() -> None:
    waits = [gather_wait(number) for number in range(6)]
    assert waits == sorted(waits)
    assert waits[0] == 10
    assert waits[-1] == 180


def test_what_is_critical_does_not_wait_behind_letters_of_lesser_ones(lab: Lab, hook: HttpSink) -> None:
    route(lab, "webhook", hook.url)
    for number in range(4):
        fire(lab.device, severity="Warning", key=f"device/{lab.device.pk}/x{number}")
        for _ in range(4):
            notify()
            pass_time(50)
    told_before = len(hook.got)
    assert told_before >= 3
    pass_time(-45)  # the last letter was a moment ago
    lesser = fire(lab.device, severity="Warning", key=f"device/{lab.device.pk}/lesser")
    pass_time(11)
    notify()
    assert len(hook.got) == told_before  # it waits for others
    critical = fire(lab.device)
    pass_time(9)
    notify()
    assert len(hook.got) == told_before
    pass_time(2)
    notify()
    assert len(hook.got) == told_before + 1
    # What waits besides goes along: in one letter, the worst first.
    told_now = [one["id"] for one in json.loads(hook.bodies[-1])["alerts"]]
    assert told_now[0] == critical.pk
    assert lesser.pk in told_now
    resolve(critical)
    again = fire(lab.device)
    pass_time(11)
    notify()
    states = [(one["id"], one["state"]) for body in hook.bodies for one in json.loads(body)["alerts"]]
    assert states.index((critical.pk, "firing")) < states.index((critical.pk, "resolved"))
    assert (again.pk, "firing") in states


def test_of_many_critical_letters_the_next_waits_a_minute_at_most() -> None:
    waits = [gather_wait(number, urgent=True) for number in range(6)]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (10, 60)


def test_a_tenants_route_tells_nothing_of_the_time_when_another_held_it(lab: Lab, hook: HttpSink) -> None:
    route(lab, "webhook", hook.url, scope="tenant", scope_id=lab.others.pk)
    over = fire(lab.device, key=f"device/{lab.device.pk}/over")
    resolve(over)
    lasting = fire(lab.device)
    handed = timezone.now()
    Device.objects.filter(pk=lab.device.pk).update(tenant=lab.others, tenant_since=handed)
    pass_time(11)
    notify()
    ((line,),) = (json.loads(body)["alerts"] for body in hook.bodies)
    assert (line["id"], line["value"], line["worst_value"]) == (lasting.pk, None, None)
    assert line["since"] == iso_utc(handed)
    # It goes on to somebody else: that it is over there is told, and nothing of what was measured.
    own = fire(lab.other)
    pass_time(20)
    notify()
    handed = timezone.now()
    Device.objects.filter(pk=lab.other.pk).update(tenant=lab.tenant, tenant_since=handed)
    tenure = Tenure.objects.create(device=lab.other, tenant=lab.others, tenant_name="Two", kind="gpu", name="x",
                                   began_at=handed - timedelta(days=9), ended_at=handed)  # fmt: skip
    pass_time(60)
    resolve(own)
    lines: list[dict[str, Any]] = []
    while len(lines) < 2:
        assert len(hook.bodies) < 9
        pass_time(20)
        notify()
        lines = [one for body in hook.bodies for one in json.loads(body)["alerts"] if one["id"] == own.pk]
    assert [(one["state"], one["worst_value"]) for one in lines] == [("firing", 92.5), ("resolved", None)]
    own.refresh_from_db()
    tenure.refresh_from_db()
    assert own.fired_at is not None
    assert tenure.ended_at is not None
    times = [lines[1][name] for name in ("since", "fired_at", "resolved_at")]
    # Nor when the next one got it, by which it was over: a minute after it was lost.
    assert times == [iso_utc(own.since), iso_utc(own.fired_at), iso_utc(tenure.ended_at)]
    # Where no history tells of it, it is as it was.
    tenure.delete()
    told_then = notification_line(own, tenant=lab.others.pk)
    assert own.resolved_at is not None
    assert (told_then["since"], told_then["resolved_at"]) == (iso_utc(own.since), iso_utc(own.resolved_at))


def test_a_dead_chassis_is_one_notification_and_the_rest_is_told_if_it_lasts_afterwards(
    lab: Lab, hook: HttpSink
) -> None:
    route(lab, "webhook", hook.url)
    silent = check_of(lab.device, cause="not_answering", key="")
    hot, gone = check_of(lab.device), check_of(lab.other)
    record([turn(silent, "firing"), turn(hot, "firing"), turn(gone, "firing")], lab.chassis)
    for _ in range(10):
        notify()
        pass_time(20)
    assert [(one[1], one[2]) for one in summaries(hook)] == [(1, 0)]
    # One resolves while nobody listens; the other still fires once the chassis is back.
    record([turn(gone, "resolved"), turn(silent, "resolved")], lab.chassis)
    for _ in range(20):
        notify()
        pass_time(20)
    assert sum(one[1] for one in summaries(hook)) == 2
    assert sum(one[2] for one in summaries(hook)) == 1
    assert not AlertNotification.objects.filter(alert__series_key=gone.key).exists()


def test_a_caution_says_nothing_while_the_same_sensor_is_critical(lab: Lab, hook: HttpSink) -> None:
    route(lab, "webhook", hook.url)
    record(
        [turn(check_of(lab.device, cause="sensor_caution:upper", severity="Warning"), "firing"),
         turn(check_of(lab.device), "firing")],
        lab.chassis,
    )  # fmt: skip
    pass_time(11)
    notify()
    assert [(one[0], one[1]) for one in summaries(hook)] == [("Critical: Too hot, GPU 1 of falcon", 1)]


@pytest.mark.nightly
def test_a_webhook_that_is_down_for_an_hour_gets_everything_afterwards_in_order(lab: Lab, hook: HttpSink) -> None:
    route(lab, "webhook", hook.url)
    hook.answer = lambda _got: (503, {})
    alerts = []
    for number in range(12):
        alerts.append(fire(lab.device, key=f"device/{lab.device.pk}/x{number}"))
        for _ in range(6):
            notify()
            pass_time(60)
    waiting = Delivery.objects.filter(state="waiting")
    assert waiting.count() > 3
    head = waiting.order_by("number")[0]
    assert "answered 503" in head.last_error
    assert head.attempts > 10
    # Those behind it wait for it, untried.
    assert set(waiting.exclude(pk=head.pk).values_list("attempts", flat=True)) == {0}
    hook.answer = lambda _got: (200, {})
    pass_time(retry_delay(head.attempts))
    notify()
    ids = [line["id"] for body in hook.bodies for line in json.loads(body)["alerts"]]
    assert ids == [one.pk for one in alerts]
    assert [json.loads(body)["id"] for body in hook.bodies] == [
        str(pk) for pk in Delivery.objects.order_by("number").values_list("pk", flat=True)
    ]
    assert not waiting.exists()


def test_a_receiver_that_refuses_for_good_or_is_away_for_a_week_is_given_up_and_can_be_asked_again(
    lab: Lab, hook: HttpSink
) -> None:
    route(lab, "webhook", hook.url)
    fire(lab.device)
    pass_time(11)
    hook.answer = lambda _got: (410, {})
    notify()
    row = Delivery.objects.get()
    assert row.state == "waiting"
    pass_time(GIVE_UP_REFUSED.total_seconds())
    notify()
    row.refresh_from_db()
    assert (row.state, row.attempts) == ("failed", 2)
    delivery_retry(person=lab.administrator, delivery=row)
    hook.answer = lambda _got: (500, {})
    notify()
    pass_time(GIVE_UP.total_seconds())
    notify()
    row.refresh_from_db()
    assert row.state == "failed"
    hook.answer = lambda _got: (200, {})
    delivery_retry(person=lab.administrator, delivery=row)
    notify()
    row.refresh_from_db()
    assert row.state == "delivered"
    with pytest.raises(Conflict):
        delivery_retry(person=lab.administrator, delivery=row)


def test_a_slow_receiver_does_not_stand_before_the_others(lab: Lab, hook: HttpSink) -> None:
    with HttpSink() as stuck:
        stuck.answer = lambda _got: (503, {})
        route(lab, "webhook", stuck.url)
        route(lab, "webhook", hook.url)
        fire(lab.device)
        pass_time(11)
        notify()
    assert len(hook.got) == 1


def test_a_mail_server_that_refuses_or_is_full_is_asked_again(lab: Lab, mail: SmtpSink) -> None:
    route(lab, "email", "ops@example.org")
    fire(lab.device)
    pass_time(11)
    for mood in ("full", "hangs up", "refuses"):
        mail.mood = mood
        notify()
        pass_time(600)
    row = Delivery.objects.get()
    assert (row.state, row.attempts) == ("waiting", 3)
    assert "550" in row.last_error
    mail.mood = "well"
    notify()
    row.refresh_from_db()
    assert row.state == "delivered"
    (message,) = [message for _, message in mail.got]
    assert message["Message-ID"].startswith(f"<{row.pk}@")


def test_without_a_mail_server_the_log_says_so(lab: Lab) -> None:
    route(lab, "email", "ops@example.org")
    fire(lab.device)
    pass_time(11)
    notify()
    assert "FALCONWEB_EMAIL_URL" in Delivery.objects.get().last_error


MORTAL = """
    import os, signal, sys
    import django
    django.setup()
    from telemetry.alerts import notifications

    transmit = notifications._transmit

    def die(row):
        if sys.argv[1] == "after":
            transmit(row)
        os.kill(os.getpid(), signal.SIGKILL)

    notifications._transmit = die
    notifications.deliveries_send()
"""


@pytest.mark.process
@pytest.mark.skipif("connection.vendor != 'sqlite'", reason="another process finds the test's database by its file")
@pytest.mark.parametrize(("killed", "copies"), [("after", 2), *at_night(("before", 1))])
def test_a_worker_that_is_killed_over_a_delivery_loses_nothing_and_a_repeat_has_the_same_id(
    lab: Lab, hook: HttpSink, killed: str, copies: int
) -> None:
    route(lab, "webhook", hook.url)
    fire(lab.device)
    pass_time(11)
    notifications_gather()
    patch = f"""
    from django.conf import settings
    settings.DATABASES["default"]["NAME"] = {connection.settings_dict["NAME"]!r}
    """
    script = textwrap.dedent(patch) + textwrap.dedent(MORTAL)
    ran = subprocess.run(
        [sys.executable, "-c", script, killed], cwd=ROOT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "falconweb.settings"},
        check=False, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    row = Delivery.objects.get()
    assert (row.state, row.attempts) == ("waiting", 1)
    deliveries_send()
    assert len(hook.got) == copies - 1  # it is held still
    pass_time(121)
    deliveries_send()
    assert [json.loads(body)["id"] for body in hook.bodies] == [str(row.pk)] * copies
    row.refresh_from_db()
    assert row.state == "delivered"


def test_what_is_silenced_notifies_nobody_until_the_silence_ends(lab: Lab, hook: HttpSink) -> None:
    route(lab, "webhook", hook.url)
    silence = silence_add(
        person=lab.administrator,
        values=SilenceValues(
            scope="drawer", scope_id=lab.drawer.pk, ends_at=timezone.now() + timedelta(hours=2), why="New fans"
        ),
    )
    lasting, short = fire(lab.device), fire(lab.other)
    for _ in range(5):
        notify()
        pass_time(30)
    resolve(short)
    notify()
    silence_end(person=lab.administrator, silence=silence)
    for _ in range(5):
        notify()
        pass_time(30)
    assert [line["id"] for body in hook.bodies for line in json.loads(body)["alerts"]] == [lasting.pk]


@pytest.mark.parametrize(
    ("values", "taken"),
    [
        ({}, {"GPU 1", "GPU 2"}),
        ({"severity": "Critical"}, {"GPU 1"}),
        ({"scope": "device"}, {"GPU 1"}),
        ({"scope": "tenant"}, {"GPU 1"}),
        ({"scope": "drawer"}, {"GPU 1", "GPU 2"}),
        ({"scope": "chassis"}, {"GPU 1", "GPU 2"}),
        ({"scope": "device_kind", "device_kind": "gpu"}, {"GPU 1", "GPU 2"}),
        ({"scope": "device_kind", "device_kind": "nic"}, set()),
        ({"scope": "port"}, set()),
    ],
)
def test_a_route_tells_of_what_is_in_its_scope_and_bad_enough(
    lab: Lab, hook: HttpSink, values: dict[str, Any], taken: set[str]
) -> None:
    ids = {"device": lab.device.pk, "tenant": lab.tenant.pk, "drawer": lab.drawer.pk, "chassis": lab.chassis.pk,
           "port": lab.device.slot.port_id if lab.device.slot else None}  # fmt: skip
    route(lab, "webhook", hook.url, **values, scope_id=ids.get(values.get("scope", "")))
    fire(lab.device)
    fire(lab.other, severity="Warning")
    pass_time(11)
    notify()
    assert {line["subject"] for body in hook.bodies for line in json.loads(body)["alerts"]} == taken


def test_what_was_acknowledged_in_time_or_fired_before_the_route_was_there_is_not_told(
    lab: Lab, hook: HttpSink
) -> None:
    before = fire(lab.device)
    row = route(lab, "webhook", hook.url)
    Route.objects.filter(pk=row.pk).update(enabled_at=timezone.now())
    quick = fire(lab.other)
    alerts_acknowledge(person=lab.administrator, alerts=[quick.pk])
    pass_time(11)
    Route.objects.filter(pk=row.pk).update(enabled_at=timezone.now() - timedelta(seconds=11))
    Alert.objects.filter(pk=before.pk).update(fired_at=timezone.now() - timedelta(hours=1))
    notify()
    assert hook.asked == 0


def test_what_fires_and_ends_while_one_waits_for_others_is_told_in_one_message(lab: Lab, hook: HttpSink) -> None:
    route(lab, "webhook", hook.url)
    resolve(fire(lab.device))
    pass_time(11)
    for _ in range(3):
        notify()
        pass_time(60)
    assert [(one[1], one[2]) for one in summaries(hook)] == [(0, 1)]


def test_a_test_arrives_past_what_waits_and_by_a_route_that_is_off(lab: Lab, hook: HttpSink) -> None:
    hook.answer = lambda _got: (503, {})
    row = route(lab, "webhook", hook.url)
    fire(lab.device)
    pass_time(11)
    notify()
    hook.answer = lambda _got: (200, {})
    delivery = route_test(person=lab.administrator, route=row)
    notify()
    assert [json.loads(body)["kind"] for body in hook.bodies] == ["test"]
    delivery.refresh_from_db()
    assert delivery.state == "delivered"
    values = RouteValues(name="off", kind="webhook", address=hook.url, enabled=False)
    off = route_add(person=lab.administrator, values=values)
    route_test(person=lab.administrator, route=off)
    notify()
    assert len(hook.got) == 2


def test_a_route_that_was_put_right_is_tried_at_once(lab: Lab, hook: HttpSink) -> None:
    row = route(lab, "webhook", "http://127.0.0.1:9/nobody")
    fire(lab.device)
    pass_time(11)
    notify()
    assert Delivery.objects.get().state == "waiting"
    route_edit(person=lab.administrator, route=row, values=RouteValues(name="right", kind="webhook", address=hook.url))
    notify()
    assert len(hook.got) == 1


def test_secrets_are_kept_encrypted_and_go_to_no_other_address(lab: Lab, hook: HttpSink) -> None:
    row = route(lab, "webhook", hook.url, secret="s3cret")
    assert "s3cret" not in row.secret_encrypted
    assert row.secret() == "s3cret"
    values = RouteValues(name="moved", kind="webhook", address="https://elsewhere.example/")
    with pytest.raises(Invalid) as refused:
        route_edit(person=lab.administrator, route=row, values=values)
    assert "secret" in refused.value.details["errors"]


@pytest.mark.parametrize(
    ("kind", "address"),
    [
        ("webhook", "ftp://host/"), ("webhook", "https://me:secret@host/"), ("webhook", ""),
        ("webhook", "http://169.254.169.254/latest"), ("syslog", "https://host/"), ("syslog", "tcp://"),
        ("email", "nobody"), ("email", ""), ("email", "a@b.example,<x>"), ("page", "somewhere"), ("pigeon", "loft"),
    ],
)  # fmt: skip
def test_an_address_that_is_none_is_refused(lab: Lab, kind: str, address: str) -> None:
    with pytest.raises(Invalid):
        route_add(person=lab.administrator, values=RouteValues(name="x", kind=kind, address=address))
    assert not Route.objects.exists()


@pytest.mark.parametrize(
    "wrong",
    [
        {"ends_at": None},
        {"ends_at": timezone.now() - timedelta(hours=1)},
        {"ends_at": timezone.now() + timedelta(days=4000)},
        {"starts_at": timezone.now() + timedelta(days=3)},
        {"why": ""},
        {"severity": "Bad"},
        {"built_in": "nothing"},
        {"rule_id": 10**6},
        {"scope": "tenant"},
    ],
)
def test_a_silence_has_an_end_and_a_reason(lab: Lab, wrong: dict[str, Any]) -> None:
    good: dict[str, Any] = {"ends_at": timezone.now() + timedelta(hours=1), "why": "Maintenance"}
    with pytest.raises(Invalid):
        silence_add(person=lab.administrator, values=SilenceValues(**{**good, **wrong}))
    assert not Silence.objects.exists()


def choose_mails(lab: Lab, who: User, severity: str) -> str:
    """Choose by the page of which alerts somebody is told by e-mail, and return what the page says."""
    return page_text(lab.client(who).post("/alerts/e-mail/", {"severity": severity}, follow=True))


def mailed(sink: SmtpSink) -> list[tuple[str, str]]:
    """Return to whom each message that arrived was, and its subject."""
    return [(str(message["To"]), str(message["Subject"])) for _, message in sink.got]


def test_a_person_who_asks_for_it_is_mailed_of_the_own_tenants_devices_alone(lab: Lab, mail: SmtpSink) -> None:
    assert "no e-mail address" in choose_mails(lab, lab.user, "Warning")
    User.objects.update(email=Concat("username", Value("@example.org")))
    assert "E-mail of all alerts goes to bob@example.org." in choose_mails(lab, lab.user, "Warning")
    assert "E-mail of critical alerts goes to eve@example.org." in choose_mails(lab, lab.viewer, "Critical")
    assert "One of Warning, Critical." in choose_mails(lab, lab.viewer, "Loud")
    Route.objects.update(enabled_at=timezone.now() - timedelta(days=30))
    fire(lab.device, cause="sensor_caution:upper", severity="Warning", key="a")
    fire(lab.other, key="b")
    pass_time(11)
    notify()
    assert mailed(mail) == [("bob@example.org", "[FalconWeb] Warning: Too hot, GPU 1 of falcon")]
    alert = fire(lab.device, key="c")
    pass_time(11)
    notify()
    assert {to for to, subject in mailed(mail)[1:] if "Critical: Too hot, GPU 1" in subject} == {
        "bob@example.org", "eve@example.org",
    }  # fmt: skip
    assert "E-mail me" in page_text(lab.client(lab.stranger).get("/alerts/"))
    # Whoever leaves the tenant hears no more of its devices, nor of what waited.
    User.objects.filter(pk=lab.user.pk).update(tenant=lab.others)
    assert "No more e-mail of alerts." in choose_mails(lab, lab.viewer, "")
    resolve(alert)
    fire(lab.device, key="d")
    pass_time(11)
    notify()
    assert len(mail.got) == 3
    lab.user.refresh_from_db()
    choose_mails(lab, lab.user, "Warning")
    Route.objects.update(enabled_at=timezone.now() - timedelta(days=30))
    pass_time(11)
    notify()
    assert [to for to, _ in mailed(mail)[3:]] == ["bob@example.org"]
    assert "GPU 2" in mailed(mail)[3][1]


def test_a_site_without_a_mail_server_takes_no_request_for_mails(lab: Lab) -> None:
    User.objects.filter(pk=lab.user.pk).update(email="bob@example.org")
    assert "This site sends no e-mail" in choose_mails(lab, lab.user, "Critical")
    assert not Route.objects.exists()


def test_mails_to_an_account_that_was_disabled_or_demoted_or_has_no_address_stop(lab: Lab, mail: SmtpSink) -> None:
    User.objects.filter(pk=lab.administrator.pk).update(email="ada@example.org")
    assert "ada@example.org" in choose_mails(lab, lab.administrator, "Critical")
    assert Route.objects.in_use().count() == 1
    for change in ({"is_active": False}, {"role": "user", "tenant": lab.tenant}, {"email": ""}):
        with transaction.atomic():
            User.objects.filter(pk=lab.administrator.pk).update(**change)
            assert not Route.objects.in_use().exists()
            transaction.set_rollback(True)
