"""Attacks on what is measured, alerts, events and exports: another tenant's people and times, memory, mail, clouds."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from accounts.models import Tenant, User
from core.endpoints import refusal_reason
from core.errors import Unavailable
from fabric.history.models import Attachment
from fabric.history.selectors import owned_since
from fabric.inventory.models import Device
from fabric.leases.grants import device_grant
from telemetry.alerts.messages import build_notification, email_body
from telemetry.alerts.models import Alert
from telemetry.alerts.notifications import notification_line
from telemetry.alerts.services import alerts_acknowledge
from telemetry.history.encoding import MAX_DOWNLOADS, raw_csv
from telemetry.history.rules import TimeRange
from telemetry.history.subjects import visible_subjects
from telemetry.links.models import CounterReset, LinkSpan
from telemetry.links.selectors import counter_resets, link_get, state_spans, visible_since
from tests.access.lab import Lab, lab, made_lab

__all__ = ["lab", "made_lab"]
pytestmark = pytest.mark.django_db
JSON = "application/json"


def ringing(lab: Lab, **more: Any) -> Alert:
    """Return an alert of the owner's device that began an hour ago and rings."""
    then = timezone.now() - timedelta(hours=1)
    return Alert.objects.create(
        **{"chassis": lab.device.chassis, "cause": "rule-1", "series_key": f"device/{lab.device.pk}/x",
           "title": "Too hot", "severity": "Critical", "rank": 2, "state": "firing", "object": "device",
           "device": lab.device, "subject_name": "GPU", "threshold": "above 85 °C", "value": 91.0, "worst_value": 93.0,
           "since": then, "fired_at": then, **more}
    )  # fmt: skip


def handed_over(lab: Lab) -> None:
    """Let the owner's device be the stranger's from now on."""
    administrator = User.objects.get(username="administrator")
    device_grant(person=administrator, device=lab.device, tenant=Tenant.objects.get(name="Three"), take=True)


def test_who_takes_over_a_device_is_not_told_who_acknowledged_its_alert(lab: Lab) -> None:
    row = ringing(lab)
    owner = User.objects.get(username="owner")
    User.objects.filter(pk=owner.pk).update(username="secret-person-of-before")
    owner.refresh_from_db()
    alerts_acknowledge(person=owner, alerts=[row.pk], note="secret-note")
    handed_over(lab)
    client = lab.clients["stranger"]
    tried = [
        client.post(reverse("api:alert_acknowledge"), {"alert_ids": [row.pk]}, content_type=JSON),
        client.post(reverse("alerts:acknowledge"), {"alert": row.pk}, follow=True),
    ]
    assert tried[0].status_code == 409
    for answer in (*tried, client.get(reverse("alerts:alert", args=[row.pk]))):
        assert "secret" not in answer.content.decode()


def test_no_filter_and_no_order_tells_when_an_alert_began_before_ones_time(lab: Lab) -> None:
    """By halving the range the hour would come out to the second."""
    Alert.objects.all().delete()
    row = ringing(lab)
    handed_over(lab)
    later = ringing(lab, since=timezone.now(), fired_at=timezone.now(), cause="rule-2")
    client = lab.clients["stranger"]
    before = (timezone.now() - timedelta(minutes=30)).isoformat()
    assert client.get(reverse("api:alerts"), {"until": before}).json()["count"] == 0
    table = client.get(reverse("alerts:alerts_csv"), {"until": before}).getvalue().decode()
    assert "Too hot" not in table
    now = (timezone.now() + timedelta(minutes=1)).isoformat()
    found = client.get(reverse("api:alerts"), {"until": now, "sort": "oldest"}).json()["results"]
    assert [one["id"] for one in found] == [row.pk, later.pk]


def test_a_port_behind_another_device_tells_nothing_of_the_one_before(lab: Lab) -> None:
    """A device that was granted long ago comes into a slot that was another tenant's until a moment ago."""
    slot, now = lab.device.slot, timezone.now()
    port = slot.port if slot else None
    assert port
    came = now - timedelta(minutes=10)
    theirs = Device.objects.get(name="GPU other")
    Device.objects.filter(pk=lab.device.pk).update(tenant_since=now - timedelta(days=100))
    Attachment.objects.filter(slot=slot).delete()
    named: dict[str, Any] = {"chassis": lab.device.chassis, "slot": slot, "device_name": "x", "origin": "found"}
    Attachment.objects.create(device=theirs, since=now - timedelta(days=99), until=came, **named)
    Attachment.objects.create(device=lab.device, since=came, **named)
    LinkSpan.objects.filter(port=port).delete()
    LinkSpan.objects.create(port=port, since=now - timedelta(days=3), until=now - timedelta(days=2), status="LinkDown")
    LinkSpan.objects.create(port=port, since=now - timedelta(days=2), status="LinkUp")
    CounterReset.objects.create(port=port, at=now - timedelta(days=1), how="bmc")
    owner = User.objects.get(username="owner")
    assert owned_since(lab.device.chassis_id)["port", port.pk] == came
    assert owned_since(lab.device.chassis_id)["device", lab.device.pk] < came
    [subject] = visible_subjects(owner, [f"port/{port.pk}"], TimeRange(0.0, now.timestamp()))
    assert [member.since for member in subject.members] == [came.timestamp()]
    judged, _ = link_get(owner, port.pk)
    assert visible_since(owner, judged) == came
    assert [span.status for span in state_spans(owner, port.pk)] == ["LinkUp"]
    assert counter_resets(owner, judged, most=9) == []


def test_no_name_of_a_bmc_begins_a_line_of_a_letter(lab: Lab) -> None:
    row = ringing(
        lab, subject_name="GPU\r\n\r\nCritical: forged", quantity="x\u2028Critical: forged", title="A\nforged"
    )
    letter = email_body(build_notification([notification_line(row)], site="https://falcon.example", at=timezone.now()))
    assert "forged" in letter
    assert not [line for line in letter.splitlines() if line.strip().startswith(("forged", "Critical: forged"))]


@pytest.mark.parametrize(
    "number",
    ["169.254.169.254", "::ffff:169.254.169.254", "::169.254.169.254", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a9fe:a9fe",
     "::ffff:0:a9fe:a9fe", "2002:a9fe:a9fe::1", "2001:0:a9fe:a9fe::1", "fe80::1%eth0", "fd00:ec2::254", "fd00:ec2::23",
     "fd20:ce::254", "100.100.100.200", "168.63.129.16", "192.0.0.192", "0.0.0.0", "::"],
)  # fmt: skip
def test_no_writing_of_an_address_leads_to_where_clouds_keep_credentials(number: str) -> None:
    assert refusal_reason(number)


def test_nobody_has_readings_made_into_tables_without_end(lab: Lab) -> None:
    owner, other = (User.objects.get(username=name) for name in ("owner", "stranger"))
    asked: dict[str, Any] = {"refs": [], "metrics": [], "span": TimeRange(0.0, 1.0)}
    taken = [raw_csv(owner, **asked) for _ in range(MAX_DOWNLOADS)]
    assert [next(one) for one in taken] == ["time\r\n"] * MAX_DOWNLOADS
    with pytest.raises(Unavailable):
        raw_csv(owner, **asked)
    assert next(raw_csv(other, **asked))
    taken.pop().close()  # type: ignore[attr-defined]  # who goes away in the middle makes room
    assert list(raw_csv(owner, **asked))
    assert [list(one) for one in taken] == [[]] * len(taken)
    assert all(next(raw_csv(owner, **asked)) for _ in range(2 * MAX_DOWNLOADS))
