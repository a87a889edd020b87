"""The search of the site finds all that has a page, and nothing that a person may not open."""

from __future__ import annotations

import pytest
from django.urls import reverse
from django.utils import translation
from pytest_django import DjangoAssertNumQueries

from accounts.models import Role, Tenant, User
from fabric.inventory.models import Chassis, Device, Host, Slot
from falconweb.search import MAX_HITS, SearchHit, search
from tests.access.lab import Lab, lab, made_lab
from tests.pages import page_text

__all__ = ["lab", "made_lab"]
pytestmark = pytest.mark.django_db


def found(person: User, words: str) -> dict[str, list[SearchHit]]:
    """Return what a person finds, by the label of its kind."""
    return {group.label: list(group.hits) for group in search(person, words)}


def names(person: User, words: str, label: str) -> list[str]:
    """Return the names of the hits of one kind."""
    return [hit.name for hit in found(person, words).get(label, [])]


@pytest.mark.parametrize(
    ("words", "label", "name"),
    [
        ("gpu owned", "Devices", "GPU owned"),
        ("sn-OWN", "Devices", "GPU owned"),
        ("10de:20b5", "Devices", "GPU owned"),
        ("falcon slot", "Slots", "slot 1"),
        ("node-owned", "Hosts", "node-owned"),
        ("node-owned h1", "Host ports", "H1"),
        ("run on node-owned", "Runs", "A run on node-owned"),
        ("one", "Tenants", "One"),
        ("stranger", "People", "stranger"),
        ("audit", "Pages", "Audit"),
        ("add ch", "Actions", "Add chassis"),
        ("attach gpu to node-owned", "Actions", "Attach GPU to node-owned"),
    ],
)
def test_everything_is_found_by_its_words(lab: Lab, words: str, label: str, name: str) -> None:
    Device.objects.filter(pk=lab.device.pk).update(vendor_id="0x10DE", device_id="0x20B5")
    Chassis.objects.update(name="falcon-1")
    assert name in names(User.objects.get(username="administrator"), words, label)


def test_an_attachment_leads_to_its_form_with_the_host_chosen(lab: Lab) -> None:
    host = Host.objects.get(name="node-owned")
    (hit,) = found(User.objects.get(username="owner"), "attach node-owned")["Actions"]
    assert hit.url == f"{reverse('fabric:give')}?host={host.pk}"


def test_what_begins_with_the_words_comes_first_and_numbers_are_sorted_as_numbers() -> None:
    person = User.objects.create_user("ada", role=Role.ADMINISTRATOR)
    for name in ("old rack-2", "rack-10", "rack-9", "rack-1", *(f"rack-{number}" for number in range(100, 180))):
        Chassis.objects.create(name=name, url=f"https://{name.replace(' ', '')}.example")
    shown = names(person, "rack-", "Chassis")
    assert shown[:4] == ["rack-1", "rack-9", "rack-10", "rack-100"]
    assert len(shown) == MAX_HITS
    assert names(person, "rack-2", "Chassis") == ["old rack-2"]


def test_a_number_is_that_of_a_slot_before_it_is_a_part_of_another() -> None:
    person = User.objects.create_user("ada", role=Role.ADMINISTRATOR)
    for rack in ("rack-2", "rack-3", "rack-23"):
        chassis = Chassis.objects.create(name=rack, url=f"https://{rack}.example")
        for number in (1, 2, 3, 13):
            Slot.objects.create(chassis=chassis, uri=f"/{number}", name=f"slot {number}", number=number)
    hits = found(person, "rack-2 slot 3")["Slots"]
    assert (hits[0].name, hits[0].detail) == ("slot 3", "rack-2")


def test_the_kind_with_the_best_hit_comes_first() -> None:
    person = User.objects.create_user("ada", role=Role.ADMINISTRATOR)
    Tenant.objects.create(name="Host people")
    Host.objects.create(name="host", identity="1")
    assert next(iter(found(person, "host"))) == "Hosts"


@pytest.mark.parametrize("person", ["owner", "member", "stranger"])
def test_nobody_finds_what_is_not_theirs_nor_pages_of_administrators(lab: Lab, person: str) -> None:
    own = "owned" if person != "stranger" else "nothing"
    for words in ("o", "other", "SN-OTHER", "node", "secret", "audit", "people", "two", "administrator", "add", ""):
        text = page_text(lab.clients[person].get(reverse("search"), {"q": words}))
        text = text.replace(own, "").replace(own.upper(), "")
        hidden = ("GPU o", "SN-OTHER", "node-o", "secret", ">Audit<", ">People<", ">Two<", "Tenants", "Add chassis")
        assert not [word for word in hidden if word in text], words


def test_a_viewer_is_offered_no_action_that_viewers_are_refused(lab: Lab) -> None:
    viewer = User.objects.get(username="member")
    assert names(viewer, "attach", "Actions") == []
    assert "Start run" not in names(viewer, "start", "Actions")
    assert "Start run" in names(User.objects.get(username="owner"), "start", "Actions")


def test_a_search_takes_as_many_queries_however_much_there_is(
    lab: Lab, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    owner = User.objects.get(username="owner")
    chassis = Chassis.objects.get()
    for number in range(10, 40):
        slot = Slot.objects.create(chassis=chassis, uri=f"/slot/{number}", name=f"slot {number}", number=number)
        Device.objects.create(chassis=chassis, uri=f"/d/{number}", name=f"GPU {number}", slot=slot, tenant=owner.tenant)
    for words in ("gpu", "\0 no such thing anywhere"):
        with django_assert_num_queries(9):
            search(owner, words)


@pytest.mark.parametrize("words", ["a" * 100_000, "a b " * 1000, "%' OR 1=1 --", "_", "\\", "<script>", "\ud83d", "²"])
def test_no_text_is_an_error_or_finds_what_it_is_not_in(lab: Lab, words: str) -> None:
    answer = lab.clients["owner"].get(reverse("search"), {"q": words.encode(errors="replace").decode()})
    assert answer.status_code == 200
    assert "GPU owned" not in page_text(answer)
    assert "<script" not in page_text(answer)


def test_without_words_there_are_the_actions(lab: Lab) -> None:
    text = page_text(lab.clients["administrator"].get(reverse("search")))
    assert 'role="option"' in text
    assert "Add chassis" in text


@pytest.mark.parametrize(
    ("words", "label", "page"), [("add ch", "Actions", "fabric:chassis_add"), ("audit", "Pages", "accounts:audit")]
)
def test_what_an_entry_is_called_in_english_finds_it_in_any_language(words: str, label: str, page: str) -> None:
    person = User.objects.create_user("ada", role=Role.ADMINISTRATOR)
    with translation.override("de"):
        assert reverse(page) in [hit.url for hit in found(person, words)[label]]
