"""Dashboards: panels of views, kept in order, private or shared, and no way to keep nonsense."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from accounts.audit.models import AuditEntry
from accounts.models import User
from core.errors import Conflict, Invalid
from fabric.inventory.models import Chassis, Drawer, Port, Slot
from telemetry.history import services
from telemetry.history.models import Dashboard, DashboardPanel
from telemetry.history.rules import TelemetryView
from telemetry.history.services import dashboard_add, dashboard_change, panel_add, panel_change
from telemetry.history.views import MAX_PANEL_CHARTS
from tests.pages import page_text
from tests.telemetry.history.conftest import Lab, make_lab

JSON = "application/json"
VIEW = "of=device/1&of=drawer/2&metric=power_watts&range=6h&charts=apart"


def names(person: User) -> list[str]:
    return [one.name for one in Dashboard.objects.visible_to(person)]


def test_dashboards_keep_their_order_and_are_moved_within_it(falconweb_user: User) -> None:
    made = [dashboard_add(person=falconweb_user, name=name, query=VIEW) for name in ("a", "b", "c")]
    assert names(falconweb_user) == ["a", "b", "c"]
    dashboard_change(person=falconweb_user, pk=made[2].pk, position=1)
    assert names(falconweb_user) == ["c", "a", "b"]
    dashboard_change(person=falconweb_user, pk=made[2].pk, position=99)
    assert names(falconweb_user) == ["a", "b", "c"]
    dashboard_add(person=falconweb_user, name="d", query="", position=2)
    assert names(falconweb_user) == ["a", "d", "b", "c"]
    assert [one.position for one in Dashboard.objects.visible_to(falconweb_user)] == [1, 2, 3, 4]


@pytest.mark.parametrize("name", ["", "  ", "x" * 81, "a\nb\0", "\u202e"])
def test_a_name_that_cannot_be_read_is_refused(falconweb_user: User, name: str) -> None:
    with pytest.raises(Invalid):
        dashboard_add(person=falconweb_user, name=name, query=VIEW)


@pytest.mark.parametrize(
    "query",
    ["of=planet/3", "metric=charm", "range=2h", "since=yesterday", "since=now&until=-1h", "of=device/" + "9" * 30,
     "&".join(f"of=device/{n}" for n in range(1, 30)), "&".join(["x=1"] * 2000), "of=series/1/" + "x" * 500],
)  # fmt: skip
def test_only_what_the_page_can_show_is_kept(falconweb_user: User, query: str) -> None:
    with pytest.raises(Invalid) as refused:
        dashboard_add(person=falconweb_user, name="x", query=query)
    assert set(refused.value.details["errors"]) == {"query"}


def test_a_view_is_kept_in_the_form_that_the_page_makes(falconweb_user: User) -> None:
    made = dashboard_add(person=falconweb_user, name="x", query=f"?evil=1&{VIEW}&q=<script>")
    assert made.query == VIEW
    assert TelemetryView.from_query(made.query).query() == made.query
    fixed = "since=2026-03-01T12%3A00%3A00%2B02%3A00&until=2026-03-02"
    assert TelemetryView.from_query(fixed).query() == "since=2026-03-01T10:00:00Z&until=2026-03-02T00:00:00Z"
    assert TelemetryView.from_query("since=-2d&until=-1d").query() == "since=-2d&until=-1d"


def test_names_are_a_persons_own_and_not_given_twice(
    falconweb_user: User, falconweb_viewer: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = dashboard_add(person=falconweb_user, name="Mine", query=VIEW)
    dashboard_add(person=falconweb_viewer, name="Mine", query=VIEW)
    with pytest.raises(Conflict):
        dashboard_add(person=falconweb_user, name=" Mine ", query=VIEW)
    other = dashboard_add(person=falconweb_user, name="Other", query=VIEW)
    with pytest.raises(Conflict):
        dashboard_change(person=falconweb_user, pk=other.pk, name="Mine")
    dashboard_change(person=falconweb_user, pk=first.pk, name="Mine")
    monkeypatch.setattr(services, "MAX_DASHBOARDS", 2)
    with pytest.raises(Conflict):
        dashboard_add(person=falconweb_user, name="Third", query=VIEW)
    assert AuditEntry.objects.filter(action="dashboard.add", outcome="refused").count() == 2


def send(client: Client, method: str, where: str, body: Any) -> Any:
    return client.generic(method, where, json.dumps(body), content_type=JSON)


def test_nobody_else_sees_or_changes_a_dashboard_administrators_included(
    user_client: Client, viewer_client: Client, administrator_client: Client, stranger_client: Client
) -> None:
    answer = send(user_client, "POST", reverse("api:my_dashboards"), {"name": "Mine", "query": VIEW})
    assert answer.status_code == 201
    own = answer["Location"].removeprefix("http://testserver")
    assert user_client.get(own).json() == answer.json()
    for client in (viewer_client, administrator_client, stranger_client):
        assert client.get(reverse("api:my_dashboards")).json()["results"] == []
        assert "Mine" not in client.get(reverse("history:dashboards")).content.decode()
        assert client.get(own).status_code == 404
        assert send(client, "PATCH", own, {"name": "Yours"}).status_code == 404
        assert send(client, "DELETE", own, {}).status_code == 404
        for name, of in (
            ("dashboard", []),
            ("dashboard_remove", []),
            ("dashboard_panel", [answer.json()["panels"][0]["id"]]),
        ):
            where = reverse(f"history:{name}", args=[answer.json()["id"], *of])
            assert client.post(where, {"name": "Yours", "title": "Yours"}).status_code == 404
    changed = send(user_client, "PATCH", own, {"name": "Ours", "query": "of=host/1"}).json()
    assert (changed["name"], changed["query"]) == ("Ours", "of=host/1&range=1h")
    assert [one["query"] for one in changed["panels"]] == ["of=host/1&range=1h"]
    assert send(user_client, "PATCH", own, {"person": 1}).status_code == 400
    assert send(user_client, "PATCH", own, {"position": 0}).status_code == 400
    assert send(user_client, "DELETE", own, {}).status_code == 204
    assert user_client.get(own).status_code == 404


def test_a_dashboard_goes_with_its_person(falconweb_user: User) -> None:
    dashboard_add(person=falconweb_user, name="x", query="")
    falconweb_user.delete()
    assert not Dashboard.objects.exists()


# --- Panels and who sees them -----------------------------------------------------------------------------------------


@pytest.fixture
def rows(db: None) -> Lab:
    """The lab without readings."""
    return make_lab(time.time())


def titles(dashboard: Dashboard) -> list[str]:
    return [one.title for one in dashboard.panels.all()]


def test_views_are_pinned_to_a_dashboard_renamed_moved_and_removed(
    falconweb_user: User, user_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = dashboard_add(person=falconweb_user, name="Rack", query=VIEW)
    pins = reverse("history:dashboards")
    monkeypatch.setattr(services, "MAX_PANELS", 3)
    answers = [
        user_client.post(pins, {"name": title, "query": "of=host/1", "dashboard": made.pk}) for title in ("b", "c", "d")
    ]
    assert titles(made) == ["Rack", "b", "c"]
    assert "has 3 panels already" in page_text(user_client.get(answers[-1]["Location"]))
    assert user_client.post(pins, {"name": "x", "query": "", "dashboard": 999_999}).status_code == 404
    *_, last = made.panels.all()
    change = reverse("history:dashboard_panel", args=[made.pk, last.pk])
    assert user_client.post(change, {"position": "1"})["Location"].endswith(f"#panel-{last.pk}")
    assert titles(made) == ["c", "Rack", "b"]
    user_client.post(change, {"title": "Morning", "follows": "on"})
    last.refresh_from_db()
    assert (last.title, last.follows) == ("Morning", True)
    for bad in ({"title": "x" * 81}, {"position": "0"}, {"position": "many"}, {}):
        assert user_client.post(change, bad).status_code == 302
    assert titles(made) == ["Morning", "Rack", "b"]
    with pytest.raises(Invalid):  # it shows two things, none of which is a chassis or a host
        panel_change(person=falconweb_user, dashboard=made.pk, pk=made.panels.all()[1].pk, follows=True)
    other = dashboard_add(person=falconweb_user, name="Other", query="")
    assert (
        user_client.post(reverse("history:dashboard_panel", args=[other.pk, last.pk]), {"remove": ""}).status_code
        == 404
    )
    user_client.post(change, {"remove": ""})
    assert titles(made) == ["Rack", "b"]


def test_a_shared_dashboard_shows_everybody_what_they_may_see_and_is_changed_by_its_owner_and_administrators(
    rows: Lab,
) -> None:
    refs = "&".join(f"of=device/{one.pk}" for one in rows.devices[:2])
    made = dashboard_add(person=rows.people["administrator"], name="All", query=f"{refs}&metric=power_watts")
    panel = made.panels.get()
    page = reverse("history:dashboard", args=[made.pk])
    change = reverse("history:dashboard_panel", args=[made.pk, panel.pk])
    assert rows.clients["owner"].get(page).status_code == 404
    rows.clients["administrator"].post(page, {"shared": "yes"})
    text = page_text(rows.clients["administrator"].get(page))
    assert "with everybody" in text
    assert "left out" not in text
    seen = rows.clients["owner"].get(page)
    assert f"device/{rows.devices[0].pk}" in seen.content.decode()
    assert f"device/{rows.devices[1].pk}" not in seen.content.decode()
    assert "1 subject does not exist, or is not visible to you" in page_text(seen)
    assert "Make private" not in page_text(seen)
    assert "GPU" not in page_text(rows.clients["stranger"].get(page))
    # Who it belongs to is no other tenant's business.
    listed = page_text(rows.clients["owner"].get(reverse("history:dashboards")))
    assert ">All</a>" in listed
    assert "1 panel<" in listed
    assert "administrator" not in listed.casefold()
    for where, body in ((page, {"name": "Mine"}), (page, {"shared": "no"}), (change, {"remove": ""}),
                        (reverse("history:dashboard_remove", args=[made.pk]), {}),
                        (reverse("history:dashboards"), {"dashboard": made.pk, "name": "x", "query": ""})):  # fmt: skip
        assert rows.clients["owner"].post(where, body).status_code == 403
    assert rows.clients["owner"].get(reverse("api:my_dashboard", args=[made.pk])).status_code == 404
    made.refresh_from_db()
    assert (made.name, made.shared, made.panels.count()) == ("All", True, 1)


def test_what_a_member_shares_stays_within_the_tenant_and_administrators_change_it(rows: Lab) -> None:
    made = dashboard_add(person=rows.people["owner"], name="Ours", query="", shared=True)
    mate = User.objects.create_user("mate", password="x", tenant=rows.tenants[0])
    page = reverse("history:dashboard", args=[made.pk])
    assert made in Dashboard.objects.visible_to(mate)
    assert [rows.clients[who].get(page).status_code for who in ("administrator", "other", "stranger")] == [
        200,
        404,
        404,
    ]
    rows.clients["administrator"].post(page, {"name": "Theirs"})
    made.refresh_from_db()
    assert (made.name, made.person) == ("Theirs", rows.people["owner"])
    nobody = User.objects.create_user("nobody", password="x")
    dashboard_add(person=nobody, name="Alone", query="", shared=True)
    assert not Dashboard.objects.visible_to(User.objects.create_user("other one", password="x")).exists()
    mate.is_active = False
    assert not Dashboard.objects.visible_to(mate).exists()


def test_panels_that_follow_show_what_is_chosen_as_far_as_the_person_may_see_it(rows: Lab) -> None:
    owner = rows.people["owner"]
    made = dashboard_add(person=owner, name="One", query=f"of=chassis/{rows.chassis.pk}&metric=power_watts")
    fixed = panel_add(person=owner, dashboard=made.pk, title="b", query=f"of=host/{rows.host.pk}&metric=power_watts")
    panel_change(person=owner, dashboard=made.pk, pk=made.panels.all()[0].pk, follows=True)
    page, client = reverse("history:dashboard", args=[made.pk]), rows.clients["owner"]
    other = Chassis.objects.create(name="secret-1", url="https://127.0.0.1:2")
    assert 'name="host"' not in client.get(page).content.decode()
    text = page_text(client.get(page, {"chassis": other.pk, "host": 999}))
    assert "1 subject does not exist" in text
    assert "secret-1" not in text
    for given in ("", "x", "-1", "9" * 40):
        shown = client.get(page, {"chassis": given}).context["panels"]
        assert [one["query"] for one in shown] == [
            f"of=chassis/{rows.chassis.pk}&metric=power_watts&range=1h", fixed.query,
        ]  # fmt: skip
    seen = rows.people["administrator"]
    Dashboard.objects.filter(pk=made.pk).update(person=seen)
    shown = rows.clients["administrator"].get(page, {"chassis": other.pk}).context["panels"]
    assert shown[0]["query"] == f"of=chassis/{other.pk}&metric=power_watts&range=1h"
    assert shown[1]["query"] == fixed.query


def test_a_full_dashboard_takes_as_many_queries_as_one_panel_and_little_room(
    rows: Lab, django_assert_max_num_queries: Any
) -> None:
    owner = rows.people["administrator"]
    made = dashboard_add(person=owner, name="One", query=f"of=chassis/{rows.chassis.pk}")
    page, client = reverse("history:dashboard", args=[made.pk]), rows.clients["administrator"]
    with CaptureQueriesContext(connection) as few:
        client.get(page)
    for number in range(1, services.MAX_PANELS):
        refs = "&".join(f"of=device/{one.pk}" for one in rows.devices)
        query = f"of=chassis/{rows.chassis.pk}" if number % 2 else f"{refs}&charts=apart&range=7d"
        panel_add(person=owner, dashboard=made.pk, title=f"{number}", query=query)
    with django_assert_max_num_queries(len(few) + 4):  # devices have three more of their own
        found = client.get(page)
    assert len(found.content) < 150_000
    assert found.content.decode().count("data-panel") == sum(len(one["charts"]) for one in found.context["panels"])
    assert max(len(one["charts"]) for one in found.context["panels"]) == MAX_PANEL_CHARTS


def test_pins_of_before_become_dashboards_of_one_panel(transactional_db: None) -> None:
    def migrated(name: str) -> Any:
        executor = MigrationExecutor(connection)
        executor.migrate([("history", name)])
        return executor.loader.project_state([("history", name)]).apps

    person = User.objects.create_user("somebody", password="x")
    try:
        pins = migrated("0001_dashboards").get_model("history", "Dashboard")
        pins.objects.create(person_id=person.pk, name="Mornings", query=VIEW, position=3)
    finally:
        migrated("0003_dashboard_query")
    made = Dashboard.objects.visible_to(person).get()
    assert (made.name, made.shared, made.position, made.query) == ("Mornings", False, 3, VIEW)
    assert list(DashboardPanel.objects.values_list("dashboard", "title", "follows")) == [(made.pk, "Mornings", False)]


# --- The page -------------------------------------------------------------------------------------------------------


def test_the_page_draws_a_chart_a_kind_of_measurement_or_one_each(lab: Lab) -> None:
    administrator = lab.clients["administrator"]
    refs = [f"device/{one.pk}" for one in lab.devices]
    where = reverse("history:telemetry")
    page = administrator.get(where, {"of": refs, "metric": ["power_watts", "rx_bytes_per_second"]}).content.decode()
    assert page.count("data-panel") == 2
    page = administrator.get(where, {"of": refs, "metric": ["power_watts"], "charts": "apart"}).content.decode()
    assert page.count("data-panel") == 3
    assert page.count('data-group="Power"') == 3
    assert "style=" not in page
    # Nothing asked for: the chassis that there are.
    assert f'value="chassis/{lab.chassis.pk}"' in administrator.get(where).content.decode()
    assert "Your tenant has no devices yet" in lab.clients["stranger"].get(where).content.decode()


def test_a_dashboard_of_things_that_went_shows_the_rest(lab: Lab) -> None:
    where = reverse("history:telemetry")
    own, others = (f"device/{one.pk}" for one in lab.devices[:2])
    page = lab.clients["owner"].get(where, {"of": [own, others, "device/999999"]})
    assert page.status_code == 200
    text = page_text(page)
    assert "2 subjects of this view do not exist, or are not visible to you" in text
    assert "GPU 2" not in text


@pytest.mark.parametrize(
    "given",
    [{"of": "planet/3"}, {"of": [f"device/{n}" for n in range(1, 30)]}, {"metric": "charm"}, {"range": "2h"},
     {"since": "x"}, {"since": "now", "until": "-1h"}],
)  # fmt: skip
def test_an_address_that_means_nothing_says_so(administrator_client: Client, given: dict[str, Any]) -> None:
    assert administrator_client.get(reverse("history:telemetry"), given).status_code == 400


def test_ports_of_one_name_are_told_apart_by_their_drawers(lab: Lab) -> None:
    for drawer in (Drawer.objects.create(chassis=lab.chassis, uri=f"/d{n}", name=f"Drawer {n}") for n in (8, 9)):
        port = Port.objects.create(chassis=lab.chassis, uri=f"{drawer.uri}/p", name="Slot 7", port_id="7")
        Slot.objects.create(chassis=lab.chassis, uri=f"{drawer.uri}/s", name="Slot 7", drawer=drawer, port=port)
    client = lab.clients["administrator"]
    found = client.get(reverse("api:telemetry_catalogue"), {"search": "Slot 7"}).json()["subjects"]
    ports = {one["ref"]: one["place"] for one in found if one["kind"] == "port"}
    assert sorted(ports.values()) == [f"{lab.chassis.name}, Drawer 8", f"{lab.chassis.name}, Drawer 9"]
    shown = client.get(reverse("history:telemetry"), {"of": list(ports)}).context["subjects"]
    assert [one.place for one, _ in shown] == list(ports.values())


def test_things_are_found_by_name_and_place_as_the_person_sees_them(lab: Lab) -> None:
    where = reverse("history:telemetry")
    page = lab.clients["administrator"].get(where, {"q": "gpu 2"}).content.decode()
    assert f"device/{lab.devices[1].pk}" in page
    # It takes the place of the chassis that are shown where nothing is chosen, and joins what is.
    chosen = f"chassis/{lab.chassis.pk}"
    assert f'href="?of=device/{lab.devices[1].pk}' in page
    page = lab.clients["administrator"].get(where, {"q": "gpu 2", "of": chosen}).content.decode()
    assert f"of={chosen}&amp;of=device/{lab.devices[1].pk}" in page
    page = lab.clients["owner"].get(where, {"q": "gpu 2"}).content.decode()
    assert f"device/{lab.devices[1].pk}" not in page
    found = lab.clients["owner"].get(reverse("api:telemetry_catalogue"), {"search": ""}).json()["subjects"]
    assert {one["ref"] for one in found} >= {f"device/{lab.devices[0].pk}", f"tenant/{lab.tenants[0].pk}"}
    assert not {f"device/{lab.devices[1].pk}", f"tenant/{lab.tenants[1].pk}"} & {one["ref"] for one in found}
    for text in ("\0", "%", "'", "x" * 5000):
        assert lab.clients["owner"].get(where, {"q": text}).status_code == 200
