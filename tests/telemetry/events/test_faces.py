"""Pages, API and command show the same events, all of them, and to each person only what is for them."""

from __future__ import annotations

import csv
import io
import json
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.models import Tenant, User
from fabric.models import Chassis, Device
from telemetry.events.messages import CATALOGUE, message_known, severity_of
from telemetry.events.models import Event, SavedView
from telemetry.events.services import event_record

pytestmark = pytest.mark.django_db
JSON = "application/json"
# A cursor passes nothing that is still being written, such as all that a test does in one transaction.
COMMITTED = pytest.mark.django_db(transaction=True)


def record(text: str, **more: Any) -> Event:
    usual = {"source": "bmc", "message_id": "Fabric.1.0.PortDown", "severity": "Critical", "at": timezone.now()}
    event = event_record(text=text, **{**usual, **more})
    assert event is not None
    return event


@pytest.fixture
def many() -> list[Event]:
    """A hundred and twenty events, the oldest first."""
    begin = timezone.now() - timedelta(hours=3)
    return [record(f"Event {number}.", at=begin + timedelta(minutes=number)) for number in range(120)]


def page(client: Client, query: str = "") -> str:
    answer = client.get(reverse("events:events") + query)
    assert answer.status_code == 200
    return answer.content.decode()


def test_the_page_goes_through_all_of_them_and_says_how_many(administrator_client: Client, many: list[Event]) -> None:
    seen: list[int] = []
    query = ""
    while True:
        answer = administrator_client.get(reverse("events:events") + query)
        seen += [one.pk for one in answer.context["page"].rows]
        if not answer.context["page"].older:
            break
        query = f"?before={answer.context['page'].older}"
    assert seen == [one.pk for one in reversed(many)]
    assert "120 events, newest first" in page(administrator_client)
    assert "1 event found" in page(administrator_client, "?until=" + (many[1].at.isoformat().replace("+", "%2B")))


def test_what_is_asked_for_stays_in_the_address_and_nonsense_is_named(administrator_client: Client) -> None:
    record("A link is down.", severity="Warning")
    text = page(administrator_client, "?q=link&severity=Warning&last=24h")
    assert "q=link&amp;last=24h&amp;severity=Warning" in text
    assert "A link is down." in text
    answer = administrator_client.get(reverse("events:events") + "?since=yesterday&before=x")
    assert answer.status_code == 400
    assert "Give a day and a time of UTC" in answer.content.decode()


def test_an_event_says_what_it_means_and_leads_to_its_thing_its_charts_and_what_was_around(
    administrator_client: Client,
) -> None:
    chassis = Chassis.objects.create(name="falcon-9", url="https://127.0.0.1:9")
    device = Device.objects.create(chassis=chassis, uri="/d", name="GPU 1")
    event = record("A port is down <b>.", chassis_id=chassis.pk, device_id=device.pk)
    near = record("A minute later.", chassis_id=chassis.pk, at=event.at + timedelta(minutes=1))
    record("On another day.", chassis_id=chassis.pk, at=event.at - timedelta(days=1))
    record("Elsewhere.")
    text = administrator_client.get(reverse("events:event", args=[event.pk])).content.decode()
    known = message_known("Fabric.1.0.PortDown")
    assert known is not None
    assert known.explanation in text
    assert "A port is down &lt;b&gt;." in text
    assert f"/devices/{device.pk}/" in text
    assert f"?of=device/{device.pk}&amp;since=" in text
    assert reverse("events:event", args=[near.pk]) in text
    assert "On another day." not in text
    assert "Elsewhere." not in text


def test_tenants_see_their_own_and_nothing_of_the_account_on_the_bmc(
    user_client: Client, stranger_client: Client, falconweb_tenant: Tenant
) -> None:
    own = record("Of the tenant.", tenant_id=falconweb_tenant.pk)
    Event.objects.filter(pk=own.pk).update(originator="root", origin_address="10.9.8.7", entry_uri="/redfish/v1/x/1")
    record("Of nobody.")
    text = page(user_client)
    assert "Of the tenant." in text
    assert "Of nobody." not in text
    shown = user_client.get(reverse("events:event", args=[own.pk])).content.decode()
    assert "10.9.8.7" not in shown
    assert "root" not in shown
    assert "originator" not in user_client.get(reverse("api:event", args=[own.pk])).json()
    for address in (reverse("events:event", args=[own.pk]), reverse("api:event", args=[own.pk])):
        assert stranger_client.get(address).status_code == 404
    assert "Of the tenant." not in page(stranger_client)
    assert stranger_client.get(reverse("events:news")).json() == {"count": 0}
    # A tenant that asks for another's events by number gets its own only.
    assert "Of nobody." not in page(user_client, "?tenant=999")


def test_the_table_is_all_of_them_and_no_formula(administrator_client: Client, many: list[Event]) -> None:
    record("=HYPERLINK(1)")
    answer = administrator_client.get(reverse("events:events_csv"))
    rows = list(csv.DictReader(io.StringIO(answer.getvalue().decode())))
    assert len(rows) == 121
    assert rows[0]["text"] == "'=HYPERLINK(1)"
    assert rows[-1]["text"] == "Event 0."
    filtered = administrator_client.get(reverse("events:events_csv") + "?q=hyperlink")
    assert len(filtered.getvalue().decode().splitlines()) == 2


@COMMITTED
def test_news_are_counted_behind_what_is_shown(administrator_client: Client) -> None:
    first = record("First.")
    address = administrator_client.get(reverse("events:events") + "?severity=Critical")
    assert address.context["newest"] == first.pk
    record("Second.")
    record("Calm.", severity="OK")
    news = reverse("events:news")
    assert administrator_client.get(f"{news}?known={first.pk}&severity=Critical").json() == {"count": 1}
    assert administrator_client.get(f"{news}?known={first.pk}").json() == {"count": 2}
    assert administrator_client.get(f"{news}?known=x").status_code == 400


def test_newest_events_of_a_thing_are_a_part_of_its_page(administrator_client: Client) -> None:
    chassis = Chassis.objects.create(name="falcon-9", url="https://127.0.0.1:9")
    device = Device.objects.create(chassis=chassis, uri="/d", name="GPU 1")
    shown = administrator_client.get(reverse("fabric:device", args=[device.pk])).content.decode()
    part = f"{reverse('events:newest')}?device={device.pk}"
    assert f'hx-get="{part}"' in shown
    assert "Nothing yet" in administrator_client.get(part).content.decode()
    for number in range(9):
        record(f"Number {number}.", device_id=device.pk)
    text = administrator_client.get(part).content.decode()
    assert "Number 8." in text
    assert "Number 2." not in text


def test_a_view_is_kept_opened_by_default_and_removed(administrator_client: Client, user_client: Client) -> None:
    administrator_client.post(
        reverse("events:saved"), {"name": "Bad ones", "query": "severity=Critical&q=link&nonsense=1", "default": "1"}
    )
    view = SavedView.objects.get()
    assert (view.query, view.is_default) == ("q=link&severity=Critical", True)
    answer = administrator_client.get(reverse("events:events"))
    assert answer["Location"] == f"/events/?q=link&severity=Critical&view={view.pk}"
    assert "Bad ones" in page(administrator_client, "?view=0")
    administrator_client.post(reverse("events:saved"), {"name": "All", "query": "", "default": "1"})
    assert [one.name for one in SavedView.objects.filter(is_default=True)] == ["All"]
    for address in ("saved_remove", "saved_change"):
        assert user_client.post(reverse(f"events:{address}", args=[view.pk])).status_code == 404
    twice = administrator_client.post(reverse("events:saved"), {"name": "All", "query": "q=%22x"}, follow=True)
    assert "You have a view ‘All’ already" in twice.content.decode()
    bad = administrator_client.post(reverse("events:saved"), {"name": "New", "query": "last=ever"})
    assert bad.status_code == 302
    administrator_client.post(reverse("events:saved_remove", args=[view.pk]))
    assert [one.name for one in SavedView.objects.all()] == ["All"]


def test_views_by_the_api(administrator_client: Client, user_client: Client) -> None:
    address = reverse("api:my_event_views")
    made = administrator_client.post(address, {"name": "Bad", "query": "severity=Critical"}, content_type=JSON)
    assert made.status_code == 201
    own = made["Location"]
    assert administrator_client.patch(own, {"is_default": True}, content_type=JSON).json()["is_default"] is True
    assert user_client.get(own).status_code == 404
    assert administrator_client.post(address, {"name": "Bad", "query": ""}, content_type=JSON).status_code == 409
    assert administrator_client.post(address, {"name": "B", "query": "last=x"}, content_type=JSON).status_code == 400
    assert administrator_client.post(address, {"name": "B", "q": ""}, content_type=JSON).status_code == 400
    assert administrator_client.delete(own).status_code == 204
    assert administrator_client.get(address).json()["results"] == []


def test_the_api_lists_all_of_them_by_following_next(administrator_client: Client, many: list[Event]) -> None:
    address: str | None = reverse("api:events") + "?limit=50&severity=Critical,Warning"
    seen: list[int] = []
    while address:
        answer = administrator_client.get(address).json()
        seen += [one["id"] for one in answer["results"]]
        address = answer["next"]
        assert address is None or parse_qs(urlsplit(address).query)["severity"] == ["Critical,Warning"]
    assert seen == [one.pk for one in reversed(many)]
    for wrong in ("limit=0", "limit=x", "severity=bad", "before=1"):
        assert administrator_client.get(f"{reverse('api:events')}?{wrong}").status_code == 400


@COMMITTED
def test_whoever_pulls_gets_each_event_once_in_the_order_in_which_they_came(
    administrator_client: Client, many: list[Event]
) -> None:
    seen: list[int] = []
    cursor, complete = 0, False
    while not complete:
        answer = administrator_client.get(f"{reverse('api:events_pull')}?after={cursor}&limit=50").json()
        seen += [one["id"] for one in answer["results"]]
        cursor, complete = answer["cursor"], answer["complete"]
    assert seen == [one.pk for one in many]
    late = record("Of long ago, known only now.", at=timezone.now() - timedelta(days=30))
    answer = administrator_client.get(f"{reverse('api:events_pull')}?after={cursor}").json()
    assert [one["id"] for one in answer["results"]] == [late.pk]
    # Where nothing fits, the cursor goes on all the same: what is left out is not looked at again.
    answer = administrator_client.get(f"{reverse('api:events_pull')}?after={cursor}&source=alert").json()
    assert (answer["cursor"], answer["complete"], answer["results"]) == (late.pk, True, [])


def test_the_catalogue_explains_each_message_and_is_found_in(administrator_client: Client) -> None:
    text = administrator_client.get(reverse("events:catalogue")).content.decode()
    assert f"{len(CATALOGUE)} messages." in text
    shown = text.replace("<wbr>", "")
    assert not [name for name in CATALOGUE if f">{name}</a>" not in shown]
    found = administrator_client.get(reverse("events:catalogue") + "?q=flap+switched").context["found"]
    assert {one.name for one in found} >= {"Fabric.UpstreamLinkFlapDisabled"}
    assert len(administrator_client.get(reverse("api:events_catalogue")).json()) == len(CATALOGUE)
    for message in CATALOGUE.values():
        assert message.explanation.endswith("."), message.name
        assert message.severity in {"OK", "Warning", "Critical"}


@pytest.mark.parametrize(
    ("told", "message", "severity"),
    [
        ("Critical", "Fabric.1.0.CableInserted", "Critical"), ("warning", "", "Warning"),
        ("", "Fabric.1.0.CableRemoved", "Warning"), ("Purple", "Environmental.1.1.FanFailed", "Critical"),
        ("", "Nobody.1.0.Knows", "OK"), ("Informational", "Environmental.FanFailed", "OK"),
        ("", "fabric.1.2.portdown", "Critical"), ("Non-Recoverable", "", "OK"),
    ],
)  # fmt: skip
def test_severity_is_as_told_else_by_message(told: str, message: str, severity: str) -> None:
    assert severity_of(told, message) == severity


def test_every_message_of_the_simulator_is_in_the_catalogue() -> None:
    messages = (
        "Fabric.1.0.UpstreamLinkEstablished", "Fabric.1.0.DegradedDownstreamLinkEstablished",
        "Fabric.1.0.DownstreamLinkDropped", "Fabric.1.0.PortManuallyDisabled", "Fabric.1.0.CableRemoved",
        "Fabric.1.0.ZoneModified", "SensorEvent.1.0.ReadingAboveUpperCautionThreshold", "TaskEvent.1.0.TaskAborted",
        "H3Falcon.1.0.ManagerRestarted", "H3Falcon.1.0.DrawerModeChanged", "Environmental.1.0.FanRestored",
        "ResourceEvent.1.3.ResourceRemoved",
    )  # fmt: skip
    assert [one for one in messages if message_known(one) is None] == []


@COMMITTED
def test_the_command_prints_what_fits_behind_a_cursor(many: list[Event], capsys: pytest.CaptureFixture[str]) -> None:
    call_command("events", after=many[-3].pk)
    assert [line.rsplit(": ", 1)[1] for line in capsys.readouterr().out.splitlines()] == ["Event 118.", "Event 119."]
    call_command("events", json=True, q="119")
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["text"] == "Event 119."
    with pytest.raises(SystemExit) as caught:
        call_command("events", last="ever")
    assert caught.value.code == 2


def test_a_name_that_is_none_keeps_no_view(administrator_client: Client, falconweb_administrator: User) -> None:
    for name in ("\0", "   ", "x" * 61):
        administrator_client.post(reverse("events:saved"), {"name": name, "query": ""})
    assert not SavedView.objects.filter(person=falconweb_administrator).exists()
