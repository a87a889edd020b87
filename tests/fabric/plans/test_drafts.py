"""The draft that a person makes on the pages: entry by entry, seen on the topology, modes with what they break."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connections
from django.urls import reverse
from django.utils import translation

from accounts.models import Tenant, User
from core.errors import Conflict, NotFound
from fabric.bmc.types import DrawerMode
from fabric.inventory.models import Chassis, Device, Host, Port
from fabric.operations.models import Operation, Plan
from fabric.operations.projected_state import projected_drawer
from fabric.operations.rules import PortSetting
from fabric.plans.drafts import draft_add, draft_remove
from fabric.plans.preview import plan_preview
from fabric.plans.rules import DesiredState
from fabric.plans.selectors import attachments_broken_by_mode, draft_view
from fabric.plans.services import plan_apply
from fabric.topology.layout import layout_chassis, planned_locations
from fabric.topology.selectors import draft_marks, fabric_view
from falconweb.testing import SimulatorProcess, carry_out_plan
from tests.fabric.plans.pages import browser, device_in, drawer, granted, page_of, port, post, words
from tests.pages import page_text


def test_a_draft_grows_entry_by_entry_and_is_one_a_person(chassis: Chassis, administrator: User) -> None:
    first = draft_add(person=administrator, desired=DesiredState(attachments={device_in(1, 7).pk: port("H2").pk}))
    again = draft_add(person=administrator, desired=DesiredState(attachments={device_in(1, 1).pk: None}))
    assert again.pk == first.pk
    draft = draft_view(administrator)
    assert draft is not None
    assert [(one.before, one.after) for one in draft.entries] == [
        ("node-a (H1)", "no host"),
        ("no host", "node-b (H2)"),
    ]
    assert again.title.endswith("to no host and 1 more change")
    assert not Operation.objects.exists(), "a draft changes nothing"


def test_what_is_so_already_is_no_entry_and_putting_it_back_takes_it_out(chassis: Chassis, administrator: User) -> None:
    gpu = device_in(1, 1)
    draft_add(person=administrator, desired=DesiredState(attachments={gpu.pk: port("H3").pk}))
    back = draft_add(person=administrator, desired=DesiredState(attachments={gpu.pk: gpu.host_port_id}))
    assert (back.wanted["attachments"], back.title) == ({}, "Nothing to change")


def test_a_draft_is_kept_in_english_whatever_its_maker_reads(chassis: Chassis, administrator: User) -> None:
    with translation.override("de"):
        plan = draft_add(person=administrator, desired=DesiredState(attachments={device_in(1, 1).pk: None}))
    assert plan.title.endswith(" to no host")
    assert plan.preview[0]["sentence"].startswith("Detach ")


def test_an_entry_that_is_taken_out_leaves_the_draft_as_it_was_before(chassis: Chassis, administrator: User) -> None:
    gpu, nic = device_in(1, 1), device_in(1, 7)
    before = draft_add(person=administrator, desired=DesiredState(attachments={nic.pk: port("H2").pk}))
    draft_add(
        person=administrator,
        desired=DesiredState(attachments={gpu.pk: None}, modes={drawer(2).pk: DrawerMode.ADVANCED}),
    )
    draft_remove(person=administrator, key=f"device-{gpu.pk}")
    after = draft_remove(person=administrator, key=f"drawer-{drawer(2).pk}")
    assert (after.wanted, after.base, after.preview, after.title) == (
        before.wanted, before.base, before.preview, before.title,
    )  # fmt: skip
    for key in (f"device-{gpu.pk}", "device-", "nothing-1", "device-x", ""):
        with pytest.raises(NotFound):
            draft_remove(person=administrator, key=key)


def test_a_name_that_somebody_gave_stays_as_the_draft_grows(chassis: Chassis, administrator: User) -> None:
    plan = draft_add(person=administrator, desired=DesiredState(attachments={device_in(1, 7).pk: port("H2").pk}))
    assert "Friday  " not in words(post(administrator, "plan_title", plan.pk, title="  For   Friday "))
    assert (
        draft_add(person=administrator, desired=DesiredState(attachments={device_in(1, 1).pk: None})).title
        == "For Friday"
    )
    assert "keeps its current one" in words(post(administrator, "plan_title", plan.pk, title="  "))
    assert Plan.objects.get().title == "For Friday"


@pytest.mark.usefixtures("transactional_db")
def test_two_windows_of_one_person_add_to_one_draft(chassis: Chassis, administrator: User) -> None:
    devices = [device_in(1, slot).pk for slot in (1, 2, 3, 4)]

    def add(device: int) -> None:
        try:
            draft_add(person=administrator, desired=DesiredState(attachments={device: None}))
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(add, devices))
    assert set(Plan.objects.get().wanted["attachments"]) == {str(pk) for pk in devices}


def test_a_draft_forgets_what_is_its_persons_no_more(
    chassis: Chassis, administrator: User, tenant: Tenant, member: User
) -> None:
    granted(tenant, 6, 7, ports=("H2",))
    draft_add(person=member, desired=DesiredState(attachments={device_in(1, 7).pk: port("H2").pk}))
    Device.objects.filter(pk=device_in(1, 7).pk).update(tenant=None)
    left = draft_add(person=member, desired=DesiredState(attachments={device_in(1, 6).pk: None}))
    assert list(left.wanted["attachments"]) == [str(device_in(1, 6).pk)]


def test_a_draft_is_nobody_elses(chassis: Chassis, administrator: User, member: User, viewer: User) -> None:
    draft_add(person=administrator, desired=DesiredState(attachments={device_in(1, 7).pk: port("H2").pk}))
    assert draft_view(member) is None
    assert draft_marks(member).targets == {}
    assert draft_view(viewer) is None
    assert "Your draft" not in words(browser(viewer).get("/fabric/"))


def test_the_topology_shows_what_a_draft_would_change(chassis: Chassis, administrator: User) -> None:
    nic, gpu, host = device_in(1, 7), device_in(1, 1), Host.objects.get(name="node-b")
    draft_add(
        person=administrator,
        desired=DesiredState(
            attachments={nic.pk: port("H2").pk, gpu.pk: None},
            modes={drawer(2).pk: DrawerMode.ADVANCED},
            cables={port("H3").pk: host.pk},
        ),
    )
    [view] = fabric_view(administrator)
    marks = draft_marks(administrator)
    assert planned_locations(view, marks) == {nic.pk: "node-b · H2", gpu.pk: "no host"}
    first, second = layout_chassis(view, marks).drawers
    boxes = {box.slot.number: box for box in first.boxes}
    assert (boxes[7].planned, boxes[1].planned, boxes[2].planned) == ("node-b · H2", "no host", "")
    assert boxes[7].label.endswith("in your draft: to node-b · H2")
    heads = {head.port.label: head for head in first.heads}
    assert ("4 → 3" in heads["H1"].line, "2 → 3" in heads["H2"].line) == (True, True)
    assert (heads["H3"].planned, heads["H3"].is_marked) == ("node-b", True)
    assert (first.planned_mode, second.planned_mode) == ("", "Advanced")
    assert layout_chassis(view).drawers[0].boxes[6].planned == "", "without a draft it is what it was"
    text = page_text(browser(administrator).get("/fabric/"))
    assert "→ node-b · H2" in text
    assert text.count(" planned") >= 4
    assert "→ in your draft: to node-b · H2" in words(browser(administrator).get("/fabric/?view=list"))


def test_a_search_does_not_change_what_a_host_port_would_have(chassis: Chassis, administrator: User) -> None:
    draft_add(person=administrator, desired=DesiredState(attachments={device_in(1, 7).pk: port("H2").pk}))
    [view] = fabric_view(administrator, search="ConnectX")
    heads = {head.port.label: head for head in layout_chassis(view, draft_marks(administrator)).drawers[0].heads}
    assert (heads["H1"].is_marked, "2 → 3" in heads["H2"].line) == (False, True)


def test_the_forms_add_and_take_out_and_lead_back(chassis: Chassis, administrator: User) -> None:
    client, nic = browser(administrator), device_in(1, 7)
    here = reverse("fabric:device", args=[nic.pk])
    answer = client.post("/draft/", {"device": nic.pk, "target": port("H2").pk, "next": here})
    assert answer["Location"] == here
    assert "Added to the draft." in words(client.get(here))
    answer = client.post("/draft/", {"remove": f"device-{nic.pk}", "next": "https://elsewhere.example/"})
    assert answer["Location"] == "/fabric/", "no other site is followed to"
    assert "It is empty. Pick a device up" in words(client.get("/fabric/"))
    fetched = client.post(
        "/draft/", {"device": nic.pk, "target": port("H2").pk}, headers={"X-Requested-With": "draft"}
    )  # fmt: skip
    assert fetched.json()["sentence"] == "Added to the draft."
    assert client.get("/draft/")["Location"] == reverse("fabric:plan", args=[Plan.objects.get().pk])
    client.post(reverse("fabric:plan_discard", args=[Plan.objects.get().pk]), {"next": "/fabric/"})
    assert not Plan.objects.exists()
    assert "It is empty" in words(client.get("/draft/"))


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({}, 400),
        ({"device": "x", "target": ""}, 404),
        ({"device": "999999", "target": ""}, 404),
        ({"device": "1", "target": "999999"}, 404),
        ({"drawer": "1", "mode": "Sideways"}, 400),
        ({"drawer": "999999", "mode": "Advanced"}, 404),
        ({"port": "1", "configured_width": "3"}, 400),
        ({"port": "1", "port_type": "Other"}, 400),
        ({"port": "0"}, 404),
        ({"cable": "0", "host": "1"}, 404),
        ({"cable": "1", "host": "999999"}, 404),
        ({"remove": "device-1"}, 404),
    ],
)
def test_nonsense_is_no_entry(chassis: Chassis, administrator: User, asked: dict[str, str], status: int) -> None:
    first = {"drawer": drawer(1).pk, "device": device_in(1, 1).pk, "port": port("H1").port_id, "cable": port("H1").pk}
    asked = {name: str(first[name]) if value == "1" and name in first else value for name, value in asked.items()}
    assert browser(administrator).post("/draft/", asked).status_code == status
    assert not Plan.objects.exists()


def test_a_port_that_nothing_is_behind_is_refused_with_a_sentence(chassis: Chassis, administrator: User) -> None:
    bare = Port.objects.get(slot__drawer__number=1, slot__number=8)
    with pytest.raises(Conflict, match="connects neither a device nor a host port"):
        draft_add(person=administrator, desired=DesiredState(settings={bare.pk: PortSetting(configured_width=8)}))
    assert "Configure" not in words(browser(administrator).get(reverse("fabric:port", args=[bare.pk])))
    assert not Plan.objects.exists()


def test_a_port_and_a_cable_are_drafted_on_their_pages(chassis: Chassis, administrator: User, member: User) -> None:
    h1, other = port("H1"), Host.objects.get(name="node-b")
    page = words(browser(administrator).get(reverse("fabric:port", args=[h1.port_id])))
    assert "H1 shall lead to" in page
    post(administrator, "draft", port=h1.port_id, configured_width="8")
    post(administrator, "draft", cable=h1.pk, host=other.pk)
    plan = Plan.objects.get()
    text = page_of(administrator, plan)
    assert "Cable of host port H1" in text
    assert "upstream, towards a host, x8" in text
    assert "are detached, and reattached" in text, "what is behind the port is interrupted"
    assert "Cable another host port to it" in words(browser(administrator).get(reverse("fabric:host", args=[other.pk])))


def test_a_mode_breaks_as_few_attachments_as_it_can(chassis: Chassis, administrator: User) -> None:
    # H1 has four devices and H2 two: with one host, the two go.
    broken = attachments_broken_by_mode(projected_drawer(drawer(1)), DrawerMode.STANDARD_ONE_HOST)
    assert [device.slot for device, _ in broken] == [5, 6]
    assert attachments_broken_by_mode(projected_drawer(drawer(1)), DrawerMode.ADVANCED) == []
    shown = words(browser(administrator).get(reverse("fabric:drawer", args=[drawer(1).pk])))
    assert "It breaks 2 attachments" in shown


def test_a_mode_that_breaks_something_is_drafted_with_its_detaches(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    post(administrator, "draft", drawer=drawer(1).pk, mode="StandardOneHost")
    plan = Plan.objects.get()
    assert not plan_preview(administrator, plan).steps
    text = page_of(administrator, plan)
    assert "A rule blocks it" in text
    assert re.search(r"falcon-1 Drawer 1 :", text), "the drawer that it is about"
    post(administrator, "draft", drawer=drawer(1).pk, mode="StandardOneHost", detach="on")
    plan.refresh_from_db()
    preview = plan_preview(administrator, plan)
    assert (preview.objections, preview.why_not, len(preview.entries)) == ((), "", 3)
    assert carry_out_plan(plan_apply(person=administrator, plan=plan)).state == "done"
    assert simulator.state()["modes"]["drawer1"] == "StandardOneHost"
    assert simulator.state()["zones"]["hostport1_H2"] == []
