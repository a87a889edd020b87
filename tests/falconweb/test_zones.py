"""The zone of a page's times: whose it is, what is typed in it, and what stays in UTC."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest
from django.test import Client
from django.utils import timezone

from accounts.models import Tenant, User
from core.forms import MinuteField
from core.zones import field_text, typed_in, zone_label, zone_named
from fabric.inventory.models import Chassis, Drawer
from fabric.leases.calendar import lease_calendar
from telemetry.events.models import Event
from tests.pages import page_text

pytestmark = pytest.mark.django_db
BERLIN = ZoneInfo("Europe/Berlin")
AT = datetime(2026, 3, 1, 20, 0, tzinfo=UTC)


@pytest.fixture
def ada(client: Client) -> User:
    """An administrator in Tokyo, who has signed in."""
    person = User.objects.create_superuser("ada")
    client.force_login(person)
    User.objects.update(previous_login=AT)
    client.cookies["zone"] = "Asia/Tokyo"
    return person


@pytest.fixture
def berlin() -> Iterator[None]:
    """A request of a person in Berlin."""
    with timezone.override(BERLIN):
        yield


def zone_of(client: Client, address: str = "/account/", **more: str) -> str:
    """Return the zone of a page."""
    page = client.get(address, more)
    assert page.status_code == 200
    return str(page.context["zone"])


def test_a_page_is_in_the_zone_of_the_address_else_of_the_person_else_of_the_browser(client: Client, ada: User) -> None:
    text = client.get("/account/").content.decode()
    assert '<html lang="en" data-zone="Asia/Tokyo">' in text
    assert "Times in Asia/Tokyo (UTC+9)" in text
    assert 'title="2026-03-02 05:00:00 +0900">2026-03-02 05:00:00</time>' in text
    client.post("/account/locale/", {"zone": "Europe/Berlin"})
    assert "2026-03-01 21:00:00" in client.get("/account/").content.decode()
    assert zone_of(client, zone="America/New_York") == "America/New_York"
    client.post("/account/locale/", {"zone": ""})
    assert zone_of(client) == "Asia/Tokyo"
    assert timezone.get_current_timezone_name() == "UTC", "nothing of it is left for the next request"


@pytest.mark.parametrize("zone", ["Nowhere/Town", "../../etc/passwd", "Europe", "\0", "x" * 5000, ""])
def test_a_zone_that_is_none_is_utc_and_is_not_kept(client: Client, ada: User, zone: str) -> None:
    client.cookies["zone"] = zone
    assert zone_of(client, zone=zone) == "UTC"
    client.post("/account/locale/", {"zone": zone})
    assert User.objects.get().zone == ""


def test_strangers_have_the_zone_of_their_browser(client: Client) -> None:
    client.cookies["zone"] = "Asia/Kolkata"
    assert zone_of(client, "/sign-in/") == "Asia/Kolkata"


def test_the_api_and_files_stay_in_utc(client: Client, ada: User) -> None:
    Tenant.objects.create(name="One")
    Tenant.objects.update(created_at=AT)
    assert "2026-03-01T20:00:00Z" in client.get("/api/v1/tenants/").content.decode()
    Event.objects.create(message_id="x", message="x", severity="OK", text="x", source="site", at=AT)
    for address in ("/events/events.csv", "/api/v1/events/"):
        assert "2026-03-01T20:00:00" in page_text(client.get(address))


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-03-29T01:59", "2026-03-29T00:59:00Z"),
        ("2026-03-29T03:00", "2026-03-29T01:00:00Z"),
        ("2026-10-25T01:59:59", "2026-10-24T23:59:59Z"),
        ("2026-10-25T03:00", "2026-10-25T02:00:00Z"),
        ("2026-03-29", "2026-03-28T23:00:00Z"),
        ("2026-03-29T02:30", "2026-03-29T02:30[Europe/Berlin]"),
        ("2026-10-25T02:30", "2026-10-25T02:30[Europe/Berlin]"),
        ("2026-03-29T02:30Z", "2026-03-29T02:30Z"),
        ("0001-01-01T00:00", "0001-01-01T00:00"),
        ("yesterday", "yesterday"),
        ("2026-13-01", "2026-13-01"),
        ("", ""),
    ],
)
def test_a_typed_time_becomes_its_instant(text: str, instant: str) -> None:
    assert typed_in(text, BERLIN) == instant


def test_a_filter_leads_to_an_address_that_means_the_same_for_everybody(client: Client, ada: User) -> None:
    Chassis.objects.create(name="falcon-1", url="https://127.0.0.1:1", enabled=False)
    asked = {"show": "history", "since": "2026-03-02T05:00", "until": "2026-03-02T06:00", "typed_in": "Asia/Tokyo"}
    for address in ("/events/", "/alerts/", "/audit/", "/telemetry/"):
        exact = address + client.get(address, asked)["Location"]
        assert exact == f"{address}?show=history&since=2026-03-01T20:00:00Z&until=2026-03-01T21:00:00Z"
        assert client.get(exact).status_code == 200
        client.cookies["zone"] = "Europe/Berlin"
        assert 'value="2026-03-01T21:00"' in client.get(exact).content.decode()
        client.cookies["zone"] = "Asia/Tokyo"


def test_a_filter_leads_to_no_other_site(client: Client) -> None:
    assert client.get("//evil.example/?typed_in=UTC&since=2026-03-01")["Location"] == "?since=2026-03-01T00:00:00Z"


@pytest.mark.parametrize("text", ["2026-03-29T02:30", "2026-10-25T02:30"])
@pytest.mark.parametrize("address", ["/events/", "/alerts/", "/audit/", "/telemetry/"])
def test_a_filter_refuses_a_time_that_comes_twice_or_not_at_all(
    client: Client, ada: User, address: str, text: str
) -> None:
    page = client.get(address, {"since": text, "typed_in": "Europe/Berlin"}, follow=True)
    assert page.status_code == 400
    assert "comes twice or not at all, as the clocks change." in page_text(page)


def test_a_form_takes_times_of_the_zone_and_gives_them_in_utc(berlin: None) -> None:
    field = MinuteField()
    assert field.clean("2026-07-01T12:00").isoformat() == "2026-07-01T10:00:00+00:00"
    assert field.clean("2026-12-01T12:00").isoformat() == "2026-12-01T11:00:00+00:00"
    assert field_text(AT) == "2026-03-01T21:00"
    for text in ("2026-03-29T02:30", "2026-10-25T02:30"):
        with pytest.raises(Exception, match="comes twice or not at all"):
            field.clean(text)


def test_days_of_the_calendar_are_of_the_zone(berlin: None, ada: User) -> None:
    shown = lease_calendar(ada, first=date(2026, 3, 29), span="week")
    assert shown.columns[0] == date(2026, 3, 23)


@pytest.mark.parametrize(
    ("day", "hours", "query"),
    [
        ("2026-03-28", 24, "since=2026-03-27T23:00:00Z&until=2026-03-28T23:00:00Z"),
        ("2026-03-29", 23, "since=2026-03-28T23:00:00Z&until=2026-03-29T22:00:00Z"),
        ("2026-10-25", 25, "since=2026-10-24T22:00:00Z&until=2026-10-25T23:00:00Z"),
    ],
)
def test_a_heat_map_is_of_a_day_of_the_zone(client: Client, ada: User, day: str, hours: int, query: str) -> None:
    chassis = Chassis.objects.create(name="falcon-1", url="https://127.0.0.1:1", enabled=False)
    Drawer.objects.create(chassis=chassis, uri="/d", name="Drawer 1", number=1)
    page = client.get("/telemetry/heat-map/", {"day": day, "zone": "Europe/Berlin"})
    names = page.context["hour_names"]
    assert (len(names), names[0], names[-1]) == (hours, "00", "23")
    assert query in page.context["day_query"]


@pytest.mark.parametrize(
    ("name", "label"), [("UTC", "UTC"), ("Asia/Kolkata", "Asia/Kolkata (UTC+5:30)"), ("Etc/GMT+5", "Etc/GMT+5 (UTC-5)")]
)
def test_a_zone_is_told_with_its_offset(name: str, label: str) -> None:
    with timezone.override(zone_named(name)):
        assert zone_label() == label
