"""The list of devices: its order, columns, files and acts, for administrators and tenants."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.models import Role, Tenant, User
from core.errors import Unavailable
from fabric.inventory import device_filter
from fabric.inventory.device_filter import LiveValues
from fabric.inventory.models import Chassis, Device, Host, HostPort, Port, SavedFilter, Slot
from fabric.leases.services import lease_give
from fabric.topology.device_list import COLUMNS
from tests.fabric.fleet import many_devices

pytestmark = pytest.mark.django_db
ADDRESS = "/devices/"


class Lab:
    """A chassis with three GPUs: 10 is leased by One and attached to node-a, 2 belongs to Two, 1 to nobody."""

    def __init__(self) -> None:
        self.ada = User.objects.create_superuser("ada", "", "x")
        self.one, self.two = (Tenant.objects.create(name=name) for name in ("One", "Two"))
        self.bob = User.objects.create_user("bob", "", "x", role=Role.USER, tenant=self.one)
        chassis = Chassis.objects.create(name="falcon-1", url="https://127.0.0.1:1", enabled=False)
        self.host_port = HostPort.objects.create(
            chassis=chassis, uri="/h", name="H1", endpoint_uri="/e", label="H1", tenant=self.one,
            host=Host.objects.create(name="node-a", identity="a"),
        )  # fmt: skip
        self.gpus = {
            number: Device.objects.create(
                chassis=chassis, uri=f"/d{number}", name=f"GPU {number}", kind="gpu", model="=V100",
                lanes_in_use=number,
                slot=Slot.objects.create(
                    chassis=chassis, uri=f"/s{number}", name=f"S{number}", number=20 - number,
                    port=Port.objects.create(chassis=chassis, uri=f"/p{number}", name=f"P{number}"),
                ),
            )
            for number in (1, 2, 10)
        }  # fmt: skip
        Device.objects.filter(pk=self.gpus[2].pk).update(tenant=self.two)
        Device.objects.filter(pk=self.gpus[10].pk).update(host_port=self.host_port)
        self.lease = lease_give(
            person=self.ada, tenant=self.one, things=[self.gpus[10]], starts_at=None,
            ends_at=timezone.now() + timedelta(days=3),
        )  # fmt: skip

    def get(self, person: User, address: str = ADDRESS, **query: Any) -> Any:
        client = Client()
        client.force_login(person)
        return client.get(address, query)

    def listed(self, person: User, **query: Any) -> list[int]:
        """Return the numbers of the GPUs on the page, in its order."""
        return [int(row.device.name[4:]) for row in self.get(person, **query).context["page"]]


@pytest.fixture
def lab() -> Iterator[Lab]:
    lab = Lab()
    temperatures = {lab.gpus[1].pk: 50.0, lab.gpus[10].pk: 80.0}
    traffic = {Port.objects.get(slot__device=lab.gpus[2]).pk: 1.25}

    def read(chassis: Collection[int]) -> LiveValues:
        return {"temp": temperatures, "use": {}, "traffic": traffic} if chassis else {}

    sources, device_filter._live_value_sources = device_filter._live_value_sources, [read]
    yield lab
    device_filter._live_value_sources = sources


@pytest.mark.parametrize(
    ("sort", "numbers"),
    [
        ("", [10, 2, 1]),
        ("slot", [10, 2, 1]),
        ("-slot", [1, 2, 10]),
        ("name", [1, 2, 10]),
        ("-name", [10, 2, 1]),
        ("-link", [10, 2, 1]),
        ("temp", [1, 10, 2]),
        ("-temp", [10, 1, 2]),
        ("traffic", [2, 10, 1]),
        ("tenant", [10, 2, 1]),
        ("host", [10, 2, 1]),
        ("lease_end", [10, 2, 1]),
        ("nonsense", [10, 2, 1]),
        ("--temp", [10, 2, 1]),
    ],
)
def test_the_list_is_sorted_by_any_column_and_what_has_no_value_comes_last(
    lab: Lab, sort: str, numbers: list[int]
) -> None:
    assert lab.listed(lab.ada, sort=sort) == numbers


@pytest.mark.parametrize("name", COLUMNS)
def test_every_column_is_shown_and_sorted_by(lab: Lab, name: str) -> None:
    answer = lab.get(lab.ada, column=name, sort=f"-{name}")
    assert [column for column, _ in answer.context["columns"]] == [name]
    assert sorted(row.device.name for row in answer.context["page"]) == ["GPU 1", "GPU 10", "GPU 2"]
    assert 'aria-sort="descending"' in answer.content.decode()


def test_chosen_columns_are_remembered(lab: Lab) -> None:
    client = Client()
    client.force_login(lab.ada)
    client.get(ADDRESS, {"column": ["temp", "serial", "nonsense"]})
    again = client.get(ADDRESS)
    assert [name for name, _ in again.context["columns"]] == ["serial", "temp"]


def test_a_wrong_word_is_named_beside_the_field_and_everything_shown(lab: Lab) -> None:
    answer = lab.get(lab.ada, q='foo:"<b>')
    assert "Unknown word &quot;foo:&quot;." in answer.content.decode()
    assert len(answer.context["page"]) == 3
    assert lab.listed(lab.ada, q="temp>60") == [10]
    assert lab.get(lab.ada, reverse("fabric:device_list_csv"), q="foo:bar").status_code == 400
    topology = lab.get(lab.ada, reverse("fabric:fabric"), q="foo:bar").content.decode()
    assert "Unknown word &quot;foo:&quot;." in topology


def test_without_readings_the_list_is_there_and_says_so(lab: Lab) -> None:
    def away(chassis: Collection[int]) -> LiveValues:
        raise Unavailable("The newest readings are not available now.")

    device_filter._live_value_sources = [away]
    answer = lab.get(lab.ada, sort="temp")
    assert len(answer.context["page"]) == 3
    assert "readings are not available now" in answer.content.decode()
    assert "The newest readings are not available now." in lab.get(lab.ada, q="temp>1").content.decode()


def test_a_tenant_sees_its_own_and_is_offered_no_acts_of_administrators(lab: Lab) -> None:
    answer = lab.get(lab.bob)
    text = answer.content.decode()
    assert [row.device.name for row in answer.context["page"]] == ["GPU 10"]
    assert f"/leases/{lab.lease.pk}/" in text
    assert "node-a" in text
    assert "Two" not in text
    assert reverse("fabric:lease_give") not in text
    # Attached to a host port of others: it is not named, nor is it sorted by.
    HostPort.objects.update(tenant=lab.two)
    (row,) = lab.get(lab.bob, sort="host").context["page"]
    assert row.host == "a host port that is not granted to you"
    client = Client()
    client.force_login(lab.bob)
    sent = {"devices": [lab.gpus[1].pk], "tenant": lab.one.pk}
    assert client.post(reverse("fabric:devices_assign"), sent).status_code == 403
    assert Device.objects.get(pk=lab.gpus[1].pk).tenant is None
    chosen = lab.get(lab.bob, reverse("fabric:device_list_csv"), devices=[one.pk for one in lab.gpus.values()])
    assert [row["device"] for row in csv.DictReader(io.StringIO(chosen.getvalue().decode()))] == ["GPU 10"]


def test_the_file_has_the_filter_the_order_and_no_formula(lab: Lab) -> None:
    answer = lab.get(lab.ada, reverse("fabric:device_list_csv"), q="kind:nvme")
    assert answer.getvalue().decode().count("\n") == 1
    answer = lab.get(lab.ada, reverse("fabric:device_list_csv"), q="kind:gpu", sort="-temp")
    rows = list(csv.DictReader(io.StringIO(answer.getvalue().decode())))
    assert [(row["device"], row["temperature_celsius"], row["state"]) for row in rows] == [
        ("GPU 10", "80.0", "attached"), ("GPU 1", "50.0", "detached"), ("GPU 2", "", "detached"),
    ]  # fmt: skip
    assert {row["model"] for row in rows} == {"'=V100"}
    assert rows[0]["lease_end_utc"] == f"{lab.lease.ends_at:%Y-%m-%d %H:%M}"


def test_chosen_devices_are_assigned_one_by_one_and_each_that_is_not_says_why(lab: Lab) -> None:
    client = Client()
    client.force_login(lab.ada)
    address = reverse("fabric:devices_assign")
    answer = client.post(
        address, {"devices": [lab.gpus[1].pk, lab.gpus[2].pk], "tenant": lab.one.pk, "next": "/devices/?q=gpu"}
    )
    assert answer["Location"] == "/devices/?q=gpu"
    text = client.get(answer["Location"]).content.decode()
    assert "1 device is assigned to One." in text
    assert "GPU 2 (falcon-1):" in text
    assert [Device.objects.get(pk=lab.gpus[number].pk).tenant for number in (1, 2)] == [lab.one, lab.two]
    client.post(address, {"devices": [lab.gpus[1].pk], "tenant": ""})
    assert Device.objects.get(pk=lab.gpus[1].pk).tenant is None
    nothing = client.post(address, {"devices": ["x"], "next": "https://evil.example/"}, follow=True)
    assert nothing.redirect_chain == [("/devices/", 302)]
    assert "Choose devices first." in nothing.content.decode()
    assert client.post(address, {"tenant": "999"}).status_code == 404
    # A lease of what is chosen is begun on its own page.
    choice = client.get(f"{reverse('fabric:lease_give')}?devices={lab.gpus[1].pk}&tenant={lab.one.pk}")
    assert [one.thing.pk for one in choice.context["choice"].chosen] == [lab.gpus[1].pk]


def test_two_hundred_chassis_are_paged_with_a_constant_number_of_queries(
    lab: Lab, django_assert_max_num_queries: Any
) -> None:
    many_devices(200)
    client = Client()
    client.force_login(lab.ada)
    for query, count in (
        ({}, 3203), ({"sort": "-temp"}, 3203), ({"q": "kind:gpu free", "sort": "users"}, 3201), ({"page": "64"}, 3203),
    ):  # fmt: skip
        with django_assert_max_num_queries(35):
            answer = client.get(ADDRESS, query)
        assert len(answer.content) < 150_000
        assert answer.context["page"].paginator.count == count


def test_filters_are_saved_per_person_and_shared_by_administrators_alone(lab: Lab) -> None:
    ada, bob = Client(), Client()
    ada.force_login(lab.ada)
    bob.force_login(lab.bob)
    save = reverse("fabric:device_filter_save")
    query = "q=kind%3Agpu+free&sort=-temp&column=temp&page=3&next=%2Fx"
    answer = ada.post(save, {"name": " Free  GPUs ", "query": query, "shared": "on"})
    assert answer["Location"] == "/devices/?q=kind%3Agpu+free&sort=-temp&column=temp"
    ada.post(save, {"name": "Mine <b>", "query": ""})
    assert {one.name for one in bob.get(ADDRESS).context["saved"]} == {"Free GPUs"}
    text = ada.get(ADDRESS).content.decode()
    assert "Mine &lt;b&gt;" in text
    assert 'href="/devices/?q=kind%3Agpu+free&amp;sort=-temp&amp;column=temp"' in text
    shared, own = SavedFilter.objects.get(is_shared=True), SavedFilter.objects.get(is_shared=False)
    assert bob.post(save, {"name": "For all", "query": "", "shared": "on"}).status_code == 403
    assert bob.post(reverse("fabric:device_filter_remove", args=[shared.pk])).status_code == 403
    assert bob.post(reverse("fabric:device_filter_remove", args=[own.pk])).status_code == 404
    for sent in ({"name": "Mine <b>"}, {"name": " "}, {"name": "x" * 61}, {"name": "y", "query": "q=foo:bar"},
                 {"name": "z", "query": f"q={'x' * 2000}"}):  # fmt: skip
        refused = ada.post(save, sent, follow=True).content.decode()
        assert 'class="notice error"' in refused or "already" in refused, sent
    assert SavedFilter.objects.count() == 2
    assert ada.post(reverse("fabric:device_filter_remove", args=[shared.pk])).status_code == 302
    assert list(SavedFilter.objects.all()) == [own]
