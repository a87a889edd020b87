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
from fabric.inventory.models import Chassis, Device
from telemetry.events.models import Event, SavedView
from telemetry.events.rules import MESSAGE_CATALOGUE, event_severity, find_message
from telemetry.events.selectors import list_position
from telemetry.events.services import event_record
from tests.pages import page_text

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
    return page_text(answer)


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
    assert "Give a day and a time, such as" in answer.content.decode()


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
    known = find_message("Fabric.1.0.PortDown")
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
    assert "Of nobody." not in page(user_client, "?tenant=1000000")


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
    assert f'data-source="{part}"' in shown
    assert "No events yet" in administrator_client.get(part).content.decode()
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


def test_a_view_that_finds_nothing_by_its_range_is_shown_and_can_be_removed(administrator_client: Client) -> None:
    administrator_client.post(reverse("events:saved"), {"name": "Old", "query": "severity=OK", "default": "1"})
    view = SavedView.objects.get()
    asked = "since=2026-03-02T00%3A00%3A00%2B00%3A00&until=2026-03-01T00%3A00%3A00%2B00%3A00"
    for query, errors in ((asked, 0), (f"{asked}&severity=nonsense", 1)):
        SavedView.objects.update(query=query)
        answer = administrator_client.get(reverse("events:events"), follow=True)
        text = answer.content.decode()
        assert (answer.status_code, text.count("errorlist")) == (400 if errors else 200, errors)
        assert "This is your view ‘Old’" in text
        assert reverse("events:saved_remove", args=[view.pk]) in text
        assert administrator_client.get(f"/events/events.csv?{query}").status_code == (400 if errors else 200)
    SavedView.objects.all().delete()
    answer = administrator_client.get(f"/events/?{asked}")
    assert (answer.status_code, "event-keep" in answer.content.decode()) == (400, False)


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


def messages(client: Client, query: str = "") -> list[str]:
    """Return the names of the messages on a page of the catalogue."""
    answer = client.get(reverse("events:catalogue") + query)
    assert answer.status_code == 200
    return [one.name for one in answer.context["page"]]


def test_the_catalogue_explains_each_message_a_page_at_a_time(administrator_client: Client) -> None:
    first = administrator_client.get(reverse("events:catalogue"))
    assert f"{len(MESSAGE_CATALOGUE)} messages." in first.content.decode()
    names = [
        name
        for number in range(1, first.context["page"].paginator.num_pages + 1)
        for name in messages(administrator_client, f"?page={number}")
    ]
    assert names == list(MESSAGE_CATALOGUE)
    assert len(first.context["page"]) == 50
    for message in MESSAGE_CATALOGUE.values():
        assert message.explanation.endswith("."), message.name
        assert message.severity in {"OK", "Warning", "Critical"}


def test_the_catalogue_is_searched_filtered_and_sorted_in_the_address(administrator_client: Client) -> None:
    assert "Fabric.UpstreamLinkFlapDisabled" in messages(administrator_client, "?q=flap+switched")
    critical = messages(administrator_client, "?registry=Fabric&severity=Critical&sort=name")
    assert critical == sorted(critical)
    assert critical
    assert {MESSAGE_CATALOGUE[name].severity for name in critical} == {"Critical"}
    assert {MESSAGE_CATALOGUE[name].registry for name in critical} == {"Fabric"}
    worst = [MESSAGE_CATALOGUE[name].severity for name in messages(administrator_client, "?q=fan&sort=worst")]
    assert worst == sorted(worst, key=["Critical", "Warning", "OK"].index)
    text = administrator_client.get(reverse("events:catalogue") + "?q=link&registry=Fabric&page=1").content.decode()
    assert "catalogue/messages.csv?q=link&amp;registry=Fabric" in text
    assert "page=2" not in text or "q=link&amp;registry=Fabric&amp;page=2" in text
    assert not messages(administrator_client, "?q=nothing+is+called+so")
    sheet = administrator_client.get(reverse("events:catalogue_csv") + "?registry=Fabric&severity=Critical")
    rows = list(csv.DictReader(io.StringIO(sheet.getvalue().decode())))
    assert sorted(row["message"] for row in rows) == critical
    for query in ("?severity=Bad", "?registry=Nobody", "?sort=sideways", f"?q={'x' * 201}"):
        answer = administrator_client.get(reverse("events:catalogue") + query)
        assert answer.status_code == 400
        assert query[1:].partition("=")[0].title() in answer.content.decode()


def test_the_catalogue_by_the_api_is_whole_unless_filtered(administrator_client: Client) -> None:
    address = reverse("api:events_catalogue")
    assert [one["name"] for one in administrator_client.get(address).json()] == list(MESSAGE_CATALOGUE)
    found = administrator_client.get(f"{address}?search=flap&severity=Critical&sort=name").json()
    assert found
    assert {one["severity"] for one in found} == {"Critical"}
    assert administrator_client.get(f"{address}?severity=Bad").json()["errors"].keys() == {"severity"}


@pytest.mark.parametrize(
    ("address", "query", "wrong"),
    [
        ("api:events", "chasis=1", "chasis"), ("api:events", "after=1", "after"), ("api:events", "offset=5", "offset"),
        ("api:events_pull", "before=1", "before"), ("api:events_catalogue", "q=x", "q"),
        ("api:my_event_views", "search=x", "search"),
        ("api:events", "since=2026-03-02&until=2026-03-01", "until"),
        ("api:events", "since=2026-03-02&until=2026-03-02", "until"),
        ("api:events_pull", "since=2026-03-02&until=2026-03-01", "until"),
        ("api:alerts", "chassis=1", "chassis"), ("api:alerts", "until=2026-03-01&since=2026-03-02", "until"),
        ("api:alert_silences", "search=x", "search"), ("api:alert_rules", "name=x", "name"),
        ("api:alert_built_ins", "x=1", "x"), ("api:alert_routes", "kind=email", "kind"),
        ("api:alert_deliveries", "route=1", "route"), ("api:exports", "format=csv", "format"),
        ("api:exports", "kind=x", "kind"), ("api:export_runs", "export=1", "export"),
        ("api:telemetry", "subject=device/1", "subject"), ("api:telemetry_table", "stat=band", "stat"),
        ("api:telemetry_raw", "points=1", "points"), ("api:telemetry_catalogue", "q=x", "q"),
        ("api:telemetry_heat_map", "drawer=1", "drawer"), ("api:telemetry_throughput", "chassis=1", "chassis"),
        ("api:links", "state=down", "state"),
    ],
)  # fmt: skip
def test_what_a_list_cannot_be_asked_for_is_refused_with_its_name(
    administrator_client: Client, address: str, query: str, wrong: str
) -> None:
    answer = administrator_client.get(f"{reverse(address)}?{query}")
    assert (answer.status_code, answer["Content-Type"]) == (400, "application/problem+json")
    assert list(answer.json()["errors"]) == [wrong]


def test_a_parameter_that_is_misspelt_is_told_what_is_near(administrator_client: Client) -> None:
    answer = administrator_client.get(reverse("api:events") + "?chasis=1&severty=OK&since=2026-03-01").json()
    assert answer["errors"] == {
        "chasis": "'chasis' is not known here. Is 'chassis' meant?",
        "severty": "'severty' is not known here. Is 'severity' meant?",
    }
    assert administrator_client.get(reverse("api:alerts") + "?limit=1&offset=0&format=json").status_code == 200


def test_all_before_an_event_is_all_of_it_to_the_microsecond(administrator_client: Client) -> None:
    chassis = Chassis.objects.create(name="falcon-9", url="https://127.0.0.1:9")
    Event.objects.all().delete()
    second = timezone.now().replace(microsecond=0) - timedelta(hours=1)
    times = (0, 1, 500_000, 500_000, 500_001, 999_999)
    rows = [record(str(at), chassis_id=chassis.pk, at=second + timedelta(microseconds=at)) for at in times]
    for place, row in enumerate(rows):
        text = administrator_client.get(reverse("events:event", args=[row.pk])).content.decode()
        assert ("Earlier events" in text) is bool(place)
        if not place:
            continue
        link = next(part for part in text.split('"') if part.endswith(f"before={list_position(row)}"))
        found = administrator_client.get(link.replace("&amp;", "&")).context["page"].rows
        assert [one.pk for one in found] == [one.pk for one in reversed(rows[:place])]


def test_the_form_keeps_a_moment_as_exactly_as_its_fields_can(administrator_client: Client) -> None:
    text = page(administrator_client, "?since=2026-03-01T10:00:00.250Z&until=2026-03-01T11:00")
    assert 'value="2026-03-01T10:00:00.250"' in text
    assert 'value="2026-03-01T11:00"' in text
    answer = administrator_client.get(reverse("events:events") + "?since=2026-03-02&until=2026-03-01")
    assert answer.status_code == 400
    assert "later than the begin" in answer.content.decode()


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
    assert event_severity(told, message) == severity


def test_every_message_of_the_simulator_is_in_the_catalogue() -> None:
    messages = (
        "Fabric.1.0.UpstreamLinkEstablished", "Fabric.1.0.DegradedDownstreamLinkEstablished",
        "Fabric.1.0.DownstreamLinkDropped", "Fabric.1.0.PortManuallyDisabled", "Fabric.1.0.CableRemoved",
        "Fabric.1.0.ZoneModified", "SensorEvent.1.0.ReadingAboveUpperCautionThreshold", "TaskEvent.1.0.TaskAborted",
        "H3Falcon.1.0.ManagerRestarted", "H3Falcon.1.0.DrawerModeChanged", "Environmental.1.0.FanRestored",
        "ResourceEvent.1.3.ResourceRemoved",
    )  # fmt: skip
    assert [one for one in messages if find_message(one) is None] == []


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
