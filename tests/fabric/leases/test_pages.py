"""Pages and API of leases: what each person is shown, what the forms do, the calendar, hours and quotas."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone, translation

from accounts.audit.actions import Outcome
from accounts.audit.models import AuditEntry
from accounts.models import Role, Tenant, User
from core.errors import Conflict
from fabric.inventory.models import Chassis, Device, Drawer, Host, HostPort, LeasablePart, Slot
from fabric.leases.calendar import lease_calendar
from fabric.leases.grants import device_grant, host_port_grant
from fabric.leases.lifecycle import leases_process
from fabric.leases.models import Lease, Quota, Tenure
from fabric.leases.quotas import QuotaLimits, quotas_set
from fabric.leases.rules import RequestedParts, TimeSpan, month_after, month_begin, month_of
from fabric.leases.selectors import lease_candidates, lease_notices, shortages
from fabric.leases.services import lease_give, lease_request, lease_withdraw
from fabric.leases.usage import usage_of
from tests.fabric.fleet import many_devices
from tests.fabric.leases.leasing import fresh, pass_time
from tests.pages import page_text

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)
MAX_BYTES = 150_000  # of a page's HTML


class Lab:
    """A chassis with two drawers of three GPUs and one NVMe drive each, host ports H1 and H2; two tenants."""

    def __init__(self) -> None:
        self.ada = User.objects.create_superuser("ada", "ada@x.example", "x")
        self.one, self.two = (Tenant.objects.create(name=name) for name in ("One", "Two"))
        self.bob, self.mallory = (
            User.objects.create_user(name, "", "x", role=Role.USER, tenant=tenant)
            for name, tenant in (("bob", self.one), ("mallory", self.two))
        )
        self.eve = User.objects.create_user("eve", "", "x", role=Role.VIEWER, tenant=self.one)
        # Switched off: nobody asks it, and it is as its rows say.
        self.chassis = Chassis.objects.create(
            name="falcon-1", url="https://127.0.0.1:1", dialect="zone_patch", enabled=False
        )
        self.gpus: list[Device] = []
        self.drives: list[Device] = []
        self.ports: list[HostPort] = []
        for number in (1, 2):
            drawer = Drawer.objects.create(
                chassis=self.chassis, uri=f"/d{number}", name=f"Drawer {number}", number=number
            )
            host = Host.objects.create(name=f"node-{number}", identity=str(number))
            self.ports.append(
                HostPort.objects.create(
                    chassis=self.chassis, uri=f"/h{number}", name=f"H{number}", endpoint_uri=f"/e{number}",
                    drawer=drawer, label=f"H{number}", number=number, host=host,
                )
            )  # fmt: skip
            for place in range(1, 5):
                slot = Slot.objects.create(
                    chassis=self.chassis, uri=f"/s{number}{place}", name=f"Slot {place}", drawer=drawer, number=place
                )
                kind = "gpu" if place < 4 else "nvme"
                device = Device.objects.create(
                    chassis=self.chassis, uri=f"/g{number}{place}", name=f"{kind.upper()} {number}{place}", kind=kind,
                    slot=slot, serial_number=f"SN{number}{place}",
                )  # fmt: skip
                (self.gpus if kind == "gpu" else self.drives).append(device)

    def client(self, person: User) -> Client:
        client = Client()
        client.force_login(person)
        return client

    def text(self, person: User, name: str, *args: object, **query: str) -> str:
        answer = self.client(person).get(reverse(name, args=args), query)
        assert answer.status_code == 200
        return page_text(answer)

    def give(self, tenant: Tenant, *things: LeasablePart, start: float = 0, days: float | None = 3) -> Lease:
        begin = timezone.now() + start * DAY if start else None
        end = None if days is None else timezone.now() + (start + days) * DAY
        return lease_give(person=self.ada, tenant=tenant, things=things, starts_at=begin, ends_at=end)


@pytest.fixture
def lab(db: None) -> Lab:
    return Lab()


def local(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M}"


def test_a_request_goes_by_the_form_to_an_administrator_who_approves_what_is_proposed(lab: Lab) -> None:
    bob, ada = lab.client(lab.bob), lab.client(lab.ada)
    end = timezone.now() + 3 * DAY
    typed = {"count_gpu": "2", "count_host_port": "1", "ends_at": local(end), "note": "<b>For</b> the paper"}
    asked = bob.post(reverse("fabric:lease_request"), typed, follow=True).content.decode()
    lease = Lease.objects.get()
    assert "2 GPUs, 1 host port" in asked
    assert "&lt;b&gt;For&lt;/b&gt;" in asked
    listed = ada.get(reverse("fabric:leases")).content.decode()
    assert "Waiting for your decision" in listed
    page = ada.get(reverse("fabric:lease_decision", args=[lease.pk]))
    proposed = page.context["choice"].chosen
    assert [one.kind for one in proposed] == ["gpu", "gpu", "host_port"]
    assert len({one.thing.drawer_id if one.kind == "host_port" else one.thing.slot.drawer_id for one in proposed}) == 1
    decided = ada.post(
        reverse("fabric:lease_decision", args=[lease.pk]),
        {
            "devices": [one.thing.pk for one in proposed if one.field == "devices"],
            "host_ports": [one.thing.pk for one in proposed if one.field == "host_ports"],
            "ends_at": local(end), "approve": "1",
        },
    )  # fmt: skip
    assert decided.status_code == 302
    assert fresh(lease).state == "active"
    assert Device.objects.filter(tenant=lab.one).count() == 2
    assert "GPU 11 (falcon-1 Drawer 1 Slot 1)" in lab.text(lab.bob, "fabric:lease", lease.pk)


def test_two_requests_of_one_person_are_told_apart_on_the_overview(lab: Lab) -> None:
    bob = lab.client(lab.bob)
    for count, note in (("2", ""), ("1", "<b>For</b>\nthe paper " + "x" * 100)):
        typed = {"count_gpu": count, "ends_at": local(timezone.now() + 3 * DAY), "note": note}
        assert bob.post(reverse("fabric:lease_request"), typed).status_code == 302
    second, first = Lease.objects.order_by("-pk")
    page = lab.text(lab.ada, "fabric:overview")
    assert f"Lease {first.pk}: {lab.bob} of {lab.one} asks for 2 GPUs.</a>" in page
    assert f"Lease {second.pk}: {lab.bob} of {lab.one} asks for 1 GPU: ‘&lt;b&gt;For&lt;/b&gt; the paper xxx" in page
    assert "x" * 60 not in page
    assert "asks for" not in lab.text(lab.bob, "fabric:overview")


def test_a_decision_that_is_refused_keeps_what_was_ticked(lab: Lab) -> None:
    taken = lab.give(lab.two, lab.gpus[0])
    lease = lease_request(
        person=lab.bob, wishes=[RequestedParts("gpu", 1)], starts_at=None, ends_at=timezone.now() + DAY
    )
    page = lab.client(lab.ada).post(
        reverse("fabric:lease_decision", args=[lease.pk]),
        {"devices": [lab.gpus[0].pk], "ends_at": local(timezone.now() + DAY), "approve": "1"},
    )
    assert page.status_code == 400
    assert f"held by Two from {taken.starts_at:%Y-%m-%d %H:%M} UTC" in page.content.decode()
    assert [one.ticked_as for one in page.context["choice"].chosen] == [f"devices/{lab.gpus[0].pk}"]
    declined = lab.client(lab.ada).post(
        reverse("fabric:lease_decision", args=[lease.pk]), {"decline": "1", "reason": "Too many"}
    )
    assert declined.status_code == 302
    assert "Too many" in lab.text(lab.bob, "fabric:lease", lease.pk)


def test_nonsense_in_a_form_is_said_beside_its_field(lab: Lab) -> None:
    bob = lab.client(lab.bob)
    for typed in (
        {},
        {"count_gpu": "-1"},
        {"count_gpu": "x"},
        {"count_gpu": "1", "chassis_gpu": "1000000"},
        {"count_gpu": "1", "ends_at": "tomorrow"},
        {"count_gpu": "1", "ends_at": "2020-01-01T00:00"},
        {"count_gpu": "1", "starts_at": "9999-12-31T00:00"},
    ):
        assert bob.post(reverse("fabric:lease_request"), typed).status_code == 400
    assert not Lease.objects.exists()
    assert lab.client(lab.eve).post(reverse("fabric:lease_request"), {"count_gpu": "1"}).status_code == 403


def test_a_lease_is_given_extended_and_returned_by_its_page(lab: Lab) -> None:
    ada, bob = lab.client(lab.ada), lab.client(lab.bob)
    end = timezone.now() + 3 * DAY
    given = ada.post(
        reverse("fabric:lease_give"), {"tenant": lab.one.pk, "devices": [lab.gpus[0].pk, lab.gpus[1].pk],
                                       "ends_at": local(end)},
    )  # fmt: skip
    lease = Lease.objects.get()
    assert given["Location"] == reverse("fabric:lease", args=[lease.pk])
    bob.post(reverse("fabric:lease_extension", args=[lease.pk]), {"ends_at": local(end + DAY), "note": "One more"})
    assert "bob requested an extension until" in lab.text(lab.ada, "fabric:lease", lease.pk)
    assert [one.lease_id for one in lease_notices(lab.ada)] == [lease.pk, lease.pk]
    ada.post(reverse("fabric:lease_extension_decline", args=[lease.pk]), {"reason": "No"})
    ada.post(reverse("fabric:lease_extension", args=[lease.pk]), {"ends_at": ""})
    assert fresh(lease).ends_at is None
    bob.post(reverse("fabric:lease_extension", args=[lease.pk]), {"ends_at": "soon"})
    nothing = bob.post(reverse("fabric:lease_return", args=[lease.pk]), {}, follow=True)
    assert "Choose what to return" in nothing.content.decode()
    item = lease.items.get(device=lab.gpus[1])
    bob.post(reverse("fabric:lease_return", args=[lease.pk]), {"items": [item.pk]})
    leases_process()
    assert list(Device.objects.filter(tenant=lab.one)) == [lab.gpus[0]]
    bob.post(reverse("fabric:lease_return", args=[lease.pk]), {"all": "1"})
    leases_process()
    assert not Device.objects.filter(tenant=lab.one).exists()


def test_parts_of_a_lease_are_found_among_thousands(lab: Lab, django_assert_max_num_queries: object) -> None:
    """What is typed and ticked stays while others are searched; a number of matching free parts is added at once."""
    many = many_devices(40)
    lab.give(lab.two, many[16])
    client, address = lab.client(lab.ada), reverse("fabric:lease_give")
    with django_assert_max_num_queries(20):  # type: ignore[operator]
        page = client.get(address)
    assert len(page.content) < MAX_BYTES
    assert (len(page.context["choice"].found), page.context["choice"].count) == (25, 650)
    searched: dict[str, Any] = {
        "tenant": lab.one.pk, "note": "For the paper", "devices": [lab.gpus[0].pk], "q": "BIG-2 slot", "kind": "gpu",
        "model": "V100", "count": "3",
    }  # fmt: skip
    found = client.get(address, searched)
    choice = found.context["choice"]
    assert "For the paper" in found.content.decode()
    assert [one.name for one in choice.chosen] == ["GPU 11 (falcon-1 Drawer 1 Slot 1)"]
    # 'big-20' to 'big-29' have the words too, after 'big-2'; what another tenant holds comes last.
    assert [one.name for one in choice.found[:2]] == ["GPU 2 (big-2 Slot 2)", "GPU 3 (big-2 Slot 3)"]
    assert choice.count == 11 * 16
    added = client.get(address, {**searched, "add": "1"}).context["choice"]
    assert [one.name for one in added.chosen[1:]] == [
        "GPU 2 (big-2 Slot 2)", "GPU 3 (big-2 Slot 3)", "GPU 4 (big-2 Slot 4)",
    ]  # fmt: skip
    assert added.count == 11 * 16 - 3
    everything = client.get(address, {"q": "Two", "count": "9" * 30, "add": "1"}).context["choice"]
    assert not everything.chosen
    assert client.get(address, {"q": "nothing of the kind", "tenant": "x", "starts_at": "x"}).status_code == 200


def test_the_page_says_why_a_lease_cannot_be_returned(lab: Lab) -> None:
    lease = lab.give(lab.one, lab.gpus[0])
    Chassis.objects.update(last_error="No route to 10.0.0.5", enabled=True)
    pass_time(lease, days=9)
    leases_process()
    for person in (lab.ada, lab.bob):
        assert "falcon-1 is not answering." in lab.text(person, "fabric:lease", lease.pk)
        assert f"Lease {lease.pk}" in lab.text(person, "fabric:overview")
        assert "cannot be returned yet" in lab.text(person, "fabric:overview")
    assert "10.0.0.5" not in lab.text(lab.bob, "fabric:lease", lease.pk)


def test_the_calendar_shows_others_as_in_use_without_a_name(lab: Lab) -> None:
    lab.give(lab.one, lab.gpus[0], days=2)
    lab.give(lab.two, lab.gpus[1], lab.ports[1], days=None)
    lab.give(lab.two, lab.gpus[0], start=2, days=2)
    text = lab.text(lab.bob, "fabric:lease_calendar")
    assert "in use" in text
    assert "Two" not in text
    assert "GPU 12" not in text
    assert "SN" not in text
    assert "node-2" not in text
    assert "Two" in lab.text(lab.ada, "fabric:lease_calendar")
    shown = lease_calendar(lab.bob, first=timezone.now().date(), span="days")
    rows = [row for row in shown.rows if row.place == "falcon-1 Drawer 1"]
    first = rows[0]
    assert [block.text for block in first.blocks] == [f"Lease {Lease.objects.order_by('pk')[0].pk}", "in use"]
    assert [(cell.columns, len(cell.blocks)) for cell in shown.cells(rows[1])] == [(14, 1)]
    assert [(cell.columns, len(cell.blocks)) for cell in shown.cells(rows[2])] == [(14, 0)]
    assert sum(cell.columns for cell in shown.cells(first)) == 14


def test_the_calendar_names_no_host_before_and_after_the_own_lease(lab: Lab) -> None:
    lab.give(lab.one, lab.gpus[0])
    later = lab.give(lab.one, lab.ports[1], start=2, days=2)
    assert f"Lease {later.pk}" in lab.text(lab.bob, "fabric:lease_calendar")
    assert "node-2" not in lab.text(lab.bob, "fabric:lease_calendar")
    lease = lab.give(lab.one, lab.ports[0], days=2)
    assert "node-1" in lab.text(lab.bob, "fabric:lease_calendar")
    pass_time(lease, days=3)
    leases_process()
    assert f"Lease {lease.pk}" in lab.text(lab.bob, "fabric:lease_calendar")
    assert "node-1" not in lab.text(lab.bob, "fabric:lease_calendar")


def test_the_calendar_takes_any_day_and_weeks_begin_on_mondays(lab: Lab) -> None:
    for query in ({"from": "nonsense"}, {"from": "0001-01-01"}, {"from": "9999-12-31"}, {"from": "2026-02-31"}):
        assert lab.client(lab.ada).get(reverse("fabric:lease_calendar"), query).status_code == 200
    weeks = lease_calendar(lab.ada, first=datetime(2026, 11, 21, tzinfo=UTC).date(), span="weeks")
    assert (weeks.first.isoformat(), weeks.last.isoformat()) == ("2026-11-16", "2027-02-07")
    assert weeks.earlier.isoformat() == "2026-08-24"


def test_the_calendar_asks_as_much_of_the_database_for_many_as_for_few(
    lab: Lab, django_assert_max_num_queries: object
) -> None:
    for device in lab.gpus:
        lab.give(lab.one, device)
    with django_assert_max_num_queries(12):  # type: ignore[operator]
        lease_calendar(lab.ada, first=timezone.now().date(), span="days")


def test_the_calendar_of_many_chassis_opens_those_with_leases_and_is_paged(lab: Lab) -> None:
    many_devices(30)
    lab.give(lab.one, lab.gpus[0])
    client, address = lab.client(lab.ada), reverse("fabric:lease_calendar")
    answer = client.get(address)
    first, second, *_ = answer.context["page"].object_list
    assert (first.label, len(first.rows), first.count) == ("falcon-1", 1, 10)
    assert (second.label, second.rows, second.count) == ("big-1", (), 16)
    assert len(answer.content) < MAX_BYTES
    labels = [group.label for group in answer.context["page"].object_list]
    assert labels.index("big-2") < labels.index("big-10")
    opened = client.get(address, {"open": "big-2", "span": "week"})
    assert [(group.label, len(group.rows)) for group in opened.context["page"].object_list[:2]] == [
        ("big-2", 16), ("falcon-1", 1),
    ]  # fmt: skip
    (tenant,) = client.get(address, {"group": "tenant"}).context["page"].object_list
    assert (tenant.label, len(tenant.rows)) == ("One", 1)
    # Grouped by tenant it would show a member who else leases: it stays by chassis.
    assert [group.label for group in lab.client(lab.bob).get(address, {"group": "tenant"}).context["page"]] == [
        "falcon-1"
    ]


def test_hours_are_exact_and_never_more_than_there_are(lab: Lab) -> None:
    """Two devices change hands several times: what is summed up is the time between."""
    month = month_after(month_of(timezone.now()), -2)
    begin, end = month_begin(month), month_begin(month_after(month))
    edges = [begin - 5 * DAY, begin + timedelta(seconds=1), begin + 3 * DAY, end + DAY]
    for device in lab.gpus[:2]:
        for (start, stop), tenant in zip(pairwise(edges), (lab.one, lab.two, lab.one), strict=True):
            Tenure.objects.create(
                tenant=tenant, tenant_name=tenant.name, device=device, kind="gpu", name="g", began_at=start,
                ended_at=stop,
            )  # fmt: skip
    found = {one.tenant: one for one in usage_of(lab.ada, month, month)}
    assert found["Two"].seconds == 2 * (3 * 86400 - 1)
    assert found["One"].seconds + found["Two"].seconds == 2 * (end - begin).total_seconds()
    assert found["One"].things == 2
    assert [one.tenant for one in usage_of(lab.bob, month, month)] == ["One"]
    assert usage_of(lab.ada, (2090, 1), (2090, 2)) == []


def test_hours_go_out_as_a_sheet_without_formulas(lab: Lab) -> None:
    Tenant.objects.filter(pk=lab.one.pk).update(name="=HYPERLINK(1)")
    device_grant(person=lab.ada, device=lab.gpus[0], tenant=lab.one)
    Tenure.objects.update(began_at=timezone.now() - timedelta(hours=2))
    answer = lab.client(lab.ada).get(reverse("fabric:lease_usage_csv"))
    rows = list(csv.DictReader(io.StringIO(b"".join(answer).decode())))
    assert {row["tenant"] for row in rows} == {"'=HYPERLINK(1)"}
    assert sum(float(row["hours"]) for row in rows) == pytest.approx(2, abs=0.01)
    assert "'=HYPER" not in lab.text(lab.ada, "fabric:lease_usage")
    assert "data-usage-chart" in lab.text(lab.bob, "fabric:lease_usage")


@pytest.mark.parametrize("query", [{"since": "x"}, {"since": "2026-13"}, {"since": "9999-12"}, {"tenant": "x"}])
def test_months_that_are_none_show_the_last_six(lab: Lab, query: dict[str, str]) -> None:
    assert lab.client(lab.ada).get(reverse("fabric:lease_usage"), query).status_code == 200


def test_what_leases_and_quotas_keep_is_english_whatever_people_read(lab: Lab) -> None:
    with translation.override("de"), timezone.override(ZoneInfo("Asia/Kathmandu")):
        parts = [RequestedParts("host_port", 2)]
        lease = lease_request(person=lab.bob, wishes=parts, starts_at=None, ends_at=None)
        lease_withdraw(person=lab.bob, lease=lease)
        with pytest.raises(Conflict) as refusal:
            lease_withdraw(person=lab.bob, lease=lease)
        assert "‚Zurückgezogen‘" in refusal.value.sentence
        quotas_set(person=lab.ada, tenant=lab.one, limits={"host_port": QuotaLimits(most_at_once=1)})
    sentence = lease.events.earliest("pk").sentence
    assert sentence.startswith("Requested 2 host ports, from ")
    assert sentence.endswith(" UTC until further notice.")
    assert "'Withdrawn'" in AuditEntry.objects.get(action="lease.withdraw", outcome=Outcome.REFUSED).sentence
    kept = AuditEntry.objects.get(action="quota.set").after
    assert kept == {"Host port": {"at once": 1, "hours a month": None}}


def test_quotas_are_set_by_the_page_and_the_api_and_shown_to_their_tenant(lab: Lab) -> None:
    ada = lab.client(lab.ada)
    ada.post(reverse("fabric:quotas", args=[lab.one.pk]), {"once_gpu": "2", "hours_nvme": "100"})
    assert set(Quota.objects.values_list("kind", "most_at_once", "most_hours_a_month")) == {
        ("gpu", 2, None), ("nvme", None, 100),
    }  # fmt: skip
    assert "> 100 <" in lab.text(lab.bob, "fabric:lease_usage")
    assert "> 100 <" not in lab.text(lab.mallory, "fabric:lease_usage")
    where = reverse("api:tenant_quotas", args=[lab.one.pk])
    answer = ada.put(where, {"limits": [{"kind": "nic", "most_at_once": 0}]}, content_type="application/json")
    assert answer.json() == {"limits": [{"kind": "nic", "most_at_once": 0, "most_hours_a_month": None}]}
    assert Quota.objects.count() == 1
    assert ada.post(reverse("fabric:quotas", args=[lab.one.pk]), {"once_gpu": "-2"}).status_code == 400
    wrong = ada.put(where, {"limits": [{"kind": "cat"}]}, content_type="application/json")
    assert wrong.status_code == 400


def test_by_the_api_a_lease_is_asked_for_approved_extended_and_returned(lab: Lab) -> None:
    bob, ada = lab.client(lab.bob), lab.client(lab.ada)

    def post(client: Client, name: str, body: dict[str, object], *args: object) -> dict[str, object]:
        answer = client.post(reverse(f"api:{name}", args=args), body, content_type="application/json")
        assert answer.status_code in {200, 201, 202}, answer.content
        return dict(answer.json())

    Quota.objects.create(tenant=lab.one, kind="gpu", most_at_once=0)
    end = timezone.now() + DAY
    asked = post(bob, "leases", {"wishes": [{"kind": "gpu", "count": 1}], "ends_at": end.isoformat()})
    assert (asked["state"], asked["quota"]) == ("requested", ["One would hold 1 GPU at once; its quota is 0."])
    body: dict[str, object] = {"device_ids": [lab.gpus[0].pk], "ends_at": end.isoformat()}
    refused = ada.post(reverse("api:lease_approval", args=[asked["id"]]), body, content_type="application/json")
    assert (refused.status_code, refused.json()["quota"]) == (409, asked["quota"])
    approved = post(ada, "lease_approval", {**body, "override": True}, asked["id"])
    assert approved["state"] == "active"
    longer: dict[str, object] = {"ends_at": (end + DAY).isoformat()}
    assert post(bob, "lease_extension", longer, asked["id"])["extension_to"] is not None
    post(ada, "lease_extension_decline", {"reason": "No"}, asked["id"])
    assert post(bob, "lease_return", {}, asked["id"])["state"] == "ending"
    leases_process()
    detail = bob.get(reverse("api:lease", args=[asked["id"]])).json()
    assert detail["state"] == "ended"
    assert detail["events"][-1]["sentence"] == "Everything that it included is returned: the lease has ended."
    assert lab.client(lab.mallory).get(reverse("api:lease", args=[asked["id"]])).status_code == 404
    assert [one["id"] for one in bob.get(reverse("api:leases")).json()["results"]] == [asked["id"]]


def test_the_api_shows_calendar_and_hours_as_the_pages_do(lab: Lab) -> None:
    lab.give(lab.one, lab.gpus[0])
    lab.give(lab.two, lab.gpus[1])
    rows = lab.client(lab.bob).get(reverse("api:lease_calendar")).json()
    assert [block["text"] for row in rows for block in row["blocks"]] == [
        f"Lease {Lease.objects.order_by('pk')[0].pk}",
        "in use",
    ]
    assert {one["tenant_name"] for one in lab.client(lab.bob).get(reverse("api:usage")).json()} == {"One"}
    assert {one["tenant_name"] for one in lab.client(lab.ada).get(reverse("api:usage")).json()} == {"One", "Two"}
    for name, query in (("usage", {"since": "2026-13"}), ("lease_calendar", {"from": "x"}), ("leases", {"state": "x"})):
        assert lab.client(lab.ada).get(reverse(f"api:{name}"), query).status_code == 400


def test_what_is_proposed_lies_where_the_tenant_has_a_host_port(lab: Lab) -> None:
    host_port_grant(person=lab.ada, host_port=lab.ports[1], tenant=lab.one)
    lease = lease_request(
        person=lab.bob, wishes=[RequestedParts("gpu", 2), RequestedParts("nvme", 9)], starts_at=None, ends_at=None
    )
    found = lease_candidates(lease, TimeSpan(timezone.now(), None))
    assert [one.name for one in found if one.proposed and one.kind == "gpu"] == [
        "GPU 21 (falcon-1 Drawer 2 Slot 1)", "GPU 22 (falcon-1 Drawer 2 Slot 2)",
    ]  # fmt: skip
    assert shortages(lease, found) == ["9 NVMe drives requested, 2 unassigned then."]


def test_a_tenant_with_a_lease_to_come_is_not_removed(lab: Lab) -> None:
    User.objects.filter(tenant=lab.two).delete()
    lab.give(lab.two, lab.gpus[0], start=1)
    answer = lab.client(lab.ada).post(reverse("fabric:tenant_removal", args=[lab.two.pk]), follow=True)
    assert "1 lease to come" in answer.content.decode()
    assert Tenant.objects.filter(pk=lab.two.pk).exists()
