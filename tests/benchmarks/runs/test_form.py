"""The form of a run: GPUs by number, all of a drawer or one by one, the drive to read from, and what cannot be had."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from accounts.models import Role, User
from benchmarks import model
from benchmarks.runs.choices import host_choices
from benchmarks.runs.models import Hold, Run
from benchmarks.runs.requests import spec_for_composition
from benchmarks.runs.rules import Composition, stored_key
from benchmarks.runs.topology import composition_topology
from fabric.inventory.models import Chassis, Device, Host, HostPort
from fabric.leases.models import Lease, LeaseItem
from falconweb.testing import host_port_of
from tests.benchmarks.runs.lab import Lab
from tests.benchmarks.runs.test_asking import client_of
from tests.pages import page_text

pytestmark = pytest.mark.process

NEW = "/benchmarks/runs/new/"
FILE = "/benchmarks/runs/new/file/"


def typed(lab: Lab, **more: Any) -> dict[str, Any]:
    """Return what is in the form for a short simulated run on GPUs of node-a."""
    return {
        "workload": "resnet50", "preset": "custom", "host": lab.host.pk, "where": "gpu", "executor": "simulated",
        "batch": "16", "steps": "7", "limit": "5", **more,
    }  # fmt: skip


def count_of(lab: Lab, label: str = "H1") -> str:
    return f"count-{lab.host.pk}-{host_port_of(lab.chassis, label).pk}"


def box_of(lab: Lab, slot: int, drawer: int = 1) -> str:
    return f"device-{lab.host.pk}-{lab.device(slot, drawer).pk}"


def all_of(lab: Lab, slot: int, drawer: int) -> str:
    device = lab.device(slot, drawer)
    assert device.slot is not None
    return f"all-{lab.host.pk}-{device.chassis_id}-{device.slot.drawer_id}"


def composition_of_run(client: Client, given: dict[str, Any]) -> Composition:
    """Ask for a run, and return where it shall run."""
    answer = client.post(NEW, given)
    assert answer.status_code == 302, answer.context["form"].errors
    run = Run.objects.order_by("-queued_at").first()
    assert run is not None
    return Composition.from_json(run.composition)


def refused(client: Client, given: dict[str, Any]) -> str:
    """Ask for a run that is refused, and return the page."""
    before = Run.objects.count()
    answer = client.post(NEW, given)
    assert answer.status_code in {400, 409}
    assert Run.objects.count() == before
    return page_text(answer)


def slots_of(composition: Composition) -> set[tuple[int, int]]:
    rows = Device.objects.filter(pk__in=composition.devices).select_related("slot__drawer")
    return {(row.slot.drawer.number, row.slot.number) for row in rows if row.slot and row.slot.drawer}


def test_a_number_of_gpus_takes_those_at_the_host_first_and_then_free_ones(lab: Lab) -> None:
    client = client_of(lab.person)
    h1 = host_port_of(lab.chassis, "H1").pk
    Device.objects.filter(pk__in=[lab.device(1).pk, lab.device(6).pk]).update(host_port=None)
    at_host = {(1, slot) for slot in (2, 3, 4)}
    three = composition_of_run(client, typed(lab, **{count_of(lab): "3"}))
    assert (slots_of(three), set(three.devices.values()), three.local_gpus) == (at_host, {h1}, 0)
    # Slot 5 is at another host: free ones come before it.
    assert slots_of(composition_of_run(client, typed(lab, **{count_of(lab): "5"}))) == at_host | {(1, 1), (1, 6)}
    # What is ticked counts, and is kept.
    both = composition_of_run(client, typed(lab, **{count_of(lab): "2", box_of(lab, 5): h1}))
    assert slots_of(both) == {(1, 5), (1, 2)}
    every = composition_of_run(client, typed(lab, **{all_of(lab, 1, 1): "on", count_of(lab, "H4"): "1"}))
    assert slots_of(every) == {(1, slot) for slot in range(1, 7)} | {(2, 1)}
    # What a run has comes last.
    Hold.objects.create(key=f"device/{lab.device(2).pk}", run=Run.objects.filter(spec__steps=7).latest("queued_at"))
    assert slots_of(composition_of_run(client, typed(lab, **{count_of(lab): "2"}))) == {(1, 3), (1, 4)}


def test_a_number_that_cannot_be_is_marked_and_what_was_typed_is_kept(lab: Lab) -> None:
    client, name = client_of(lab.person), count_of(lab)
    h1 = host_port_of(lab.chassis, "H1").pk
    page = refused(client, typed(lab, **{name: "7", "limit": "soon"}))
    assert f'<a href="#{name}">falcon-1 H1 can have 6 GPUs, not 7.</a>' in page
    assert f'max="6" value="7" data-count="{h1}" aria-invalid="true" aria-describedby="{name}-error"' in page
    assert '<a href="#limit">Time limit: Enter a number of minutes.</a>' in page
    ticked = {box_of(lab, slot): h1 for slot in (1, 2, 3)}
    page = refused(client, typed(lab, **ticked, **{name: "2"}))
    assert "3 are ticked for falcon-1 H1, and 2 requested" in page
    assert len(re.findall(rf'name="device-\d+-\d+" value="{h1}" checked', page)) == 3
    assert "Enter a whole number of GPUs for falcon-1 H1." in refused(client, typed(lab, **{name: "²"}))
    page = refused(client, typed(lab))
    assert f'<a href="#{box_of(lab, 1)}">No GPU is chosen' in page
    page = refused(client, typed(lab, executor="torch", **{name: "1"}))
    assert '<a href="#executor-torch">Executor: PyTorch' in page or '<a href="#executor-torch">Executor: node-a' in page


def test_a_host_port_is_chosen_where_two_lead_to_the_host(lab: Lab) -> None:
    client = client_of(lab.person)
    h1, h2 = (host_port_of(lab.chassis, label) for label in ("H1", "H2"))
    HostPort.objects.filter(pk=h2.pk).update(host=lab.host)
    page = page_text(client.get(NEW))
    assert f'name="port-{lab.host.pk}-{lab.device(1).pk}"' in page
    assert f'name="port-{lab.host.pk}-{lab.device(1, 2).pk}"' not in page
    # Slots 5 and 6 are at H2 now, 1 to 4 at H1.
    split = composition_of_run(client, typed(lab, **{count_of(lab, "H1"): "1", count_of(lab, "H2"): "3"}))
    assert list(split.devices.values()).count(h1.pk) == 1
    assert {(1, 5), (1, 6)} < slots_of(split)
    by_hand = {box_of(lab, 1): h1.pk, f"port-{lab.host.pk}-{lab.device(1).pk}": h2.pk}
    assert composition_of_run(client, typed(lab, **by_hand)).devices == {lab.device(1).pk: h2.pk}
    # A choice of port for what is not ticked takes nothing.
    assert "No GPU is chosen" in refused(client, typed(lab, **{f"port-{lab.host.pk}-{lab.device(1).pk}": h2.pk}))


def test_data_is_read_from_one_drive_also_by_the_cpu_and_again(lab: Lab) -> None:
    client, storage = client_of(lab.person), f"storage-{lab.host.pk}"
    drive, h4 = lab.device(5, 2), host_port_of(lab.chassis, "H4").pk
    page = page_text(client.get(NEW))
    assert "the host’s own NVMe drive" in page
    own = composition_of_run(client, typed(lab, **{count_of(lab): "1", storage: "own"}))
    assert (own.own_drive, own.storage, len(own.devices)) == (True, None, 1)
    again = page_text(client.get(f"{NEW}?again={Run.objects.get().pk}"))
    assert f'name="{storage}" value="own" checked' in again
    run = Run.objects.get()
    run.delete()
    cpu = {"workload": "mnist_cnn", "preset": "tiny", "where": "cpu", count_of(lab): "4", "batch": "2"}
    given = {**typed(lab), **cpu, storage: drive.pk}
    chosen = composition_of_run(client, given)
    assert chosen == Composition(host=lab.host.pk, devices={drive.pk: h4}, storage=drive.pk, cpu=True)
    again = page_text(client.get(f"{NEW}?again={Run.objects.get().pk}"))
    assert f'name="{storage}" value="{drive.pk}" checked' in again
    assert composition_of_run(client, {**given, storage: ""}) == Composition(host=lab.host.pk, cpu=True)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"last_error": "Nobody answers at 192.0.2.7."}, "falcon-1 does not answer now."),
        ({"dialect": "none"}, "falcon-1 offers no way to attach or detach: it is monitored only."),
        ({"enabled": False}, "falcon-1 is not polled"),
    ],
)
def test_devices_of_a_chassis_that_takes_no_change_are_not_to_be_had(
    lab: Lab, change: dict[str, Any], reason: str
) -> None:
    client, storage = client_of(lab.person), f"storage-{lab.host.pk}"
    h1 = host_port_of(lab.chassis, "H1").pk
    lab.ask(lab.place(1, 2))
    Chassis.objects.filter(pk=lab.chassis.pk).update(**change)
    page = page_text(client.get(NEW, {"workload": "resnet50", "preset": "custom"}))
    assert f'name="{box_of(lab, 1)}" value="{h1}" disabled' in page
    assert f"slot 1 · {reason}" in page
    assert count_of(lab) not in page  # none can be taken
    # A page that was open before does not run on fewer devices than were chosen.
    page = refused(client, typed(lab, **{box_of(lab, 1): h1, f"local-{lab.host.pk}": "1"}))
    assert f"V100-PCIE-16GB in falcon-1 · Drawer 1 slot 1 cannot be taken: {reason}" in page
    page = refused(client, typed(lab, **{storage: lab.device(5, 2).pk, f"local-{lab.host.pk}": "1"}))
    assert f'<a href="#{storage}">SSDPEDKX040T7' in page
    again = page_text(client.get(f"{NEW}?again={Run.objects.get().pk}"))
    assert again.count("cannot be taken:") == 2


def test_a_host_is_named_to_those_who_see_it(lab: Lab, grant_to_tenant: Any) -> None:
    administrators = page_text(client_of(lab.person).get(NEW))
    assert "slot 5 · at node-b (H2)" in administrators
    grant_to_tenant(lab.device(1), lab.device(5), host_port_of(lab.chassis, "H1"))
    tenant = lab.device(1).tenant
    bob = User.objects.create_user("bob", password="a-long-password-1", role=Role.USER, tenant=tenant)
    page = page_text(client_of(bob).get(NEW, {"preset": "custom"}))
    assert "node-b" not in page
    assert f'name="{box_of(lab, 5)}" value="{host_port_of(lab.chassis, "H1").pk}" disabled' in page
    assert "it is at a host port that is not granted to your tenant" in page
    # What a lease that is over held is on its way back.
    now = timezone.now()
    lease = Lease.objects.create(state=Lease.State.ENDING, tenant=tenant, starts_at=now, ends_at=now)
    LeaseItem.objects.create(lease=lease, device=lab.device(1), name="slot 1")
    page = page_text(client_of(bob).get(NEW, {"preset": "custom"}))
    assert "slot 1 · slot 1 is returning" in page


def test_a_form_without_a_free_gpu_names_the_run_that_has_them(lab: Lab) -> None:
    client = client_of(lab.person)
    run = lab.ask(lab.place(1), title="The long one")
    said = "All GPUs available to node-a are used by ‘The long one’."
    devices = Device.objects.filter(kind=Device.Kind.GPU)
    Hold.objects.bulk_create(Hold(key=f"device/{one.pk}", run=run) for one in devices)
    page = page_text(client.get(NEW))
    assert "at node-a (H1), used by ‘The long one’" in page
    assert said not in page  # eight of its own are free
    Hold.objects.bulk_create(Hold(key=f"host/{lab.host.pk}/gpu/{number}", run=run) for number in range(8))
    Hold.objects.create(key=f"host/{lab.host.pk}/cpu", run=run)
    page = page_text(client.get(NEW))
    assert said in page
    assert "8 used by ‘The long one’" in page
    assert "Its CPU is used by ‘The long one’" in page


@pytest.mark.parametrize("shared", [False, True])
def test_a_form_names_who_has_a_host_and_asks_to_share_it(lab: Lab, shared: bool) -> None:
    client = client_of(lab.person)
    run = lab.ask(lab.place(1), title="The long one")
    says = 'node-a <small class="faint"> used by ‘The long one’'
    assert says not in page_text(client.get(NEW))
    key = f"host/{lab.host.pk}"
    Hold.objects.create(key=stored_key(f"{key}/shared", run.pk) if shared else key, run=run)
    assert says in page_text(client.get(NEW))
    # A command shares its host unless it is told otherwise; an earlier run is opened as it was.
    chosen = '<option value="on" selected>'
    assert chosen not in client.get(NEW).content.decode()
    assert chosen in client.get(f"{NEW}?workload=command").content.decode()
    assert chosen not in client.get(f"{NEW}?workload=command&may_share=off").content.decode()
    assert chosen in client.get(f"{NEW}?again={run.pk}").content.decode()


def test_a_command_is_kept_as_it_was_quoted_and_is_not_simulated(lab: Lab) -> None:
    client = client_of(lab.person)
    page = page_text(client.get(NEW, {"workload": "command"}))
    assert 'name="executor" value="torch" checked' in page
    run = lab.ask(lab.place(1))
    Run.objects.filter(pk=run.pk).update(
        workload="command", preset="custom", spec={"workload": "command", "command": ["sh", "-c", "echo 'a b'"]}
    )
    form = client.get(f"{NEW}?again={run.pk}").context["form"]
    assert shlex.split(form.given["command"]) == ["sh", "-c", "echo 'a b'"]


def test_a_changed_run_keeps_a_title_of_its_own_but_not_the_one_that_says_what_it_was(lab: Lab) -> None:
    run, client = lab.ask(lab.place(1, 2), title=""), client_of(lab.person)
    assert "Falcon GPUs" in run.title
    assert client.get(f"{NEW}?again={run.pk}").context["form"].given["title"] == ""
    Run.objects.update(title="For the paper")
    assert client.get(f"{NEW}?again={run.pk}").context["form"].given["title"] == "For the paper"


def test_no_other_host_runs_what_was_asked_for_one_that_is_gone(lab: Lab) -> None:
    page = refused(client_of(lab.person), typed(lab, host=987654, **{count_of(lab): "1"}))
    assert "You cannot run anything on the selected host, or it was removed." in page


def test_the_file_page_shows_a_file_that_works(lab: Lab) -> None:
    client = client_of(lab.person)
    text = client.get(FILE, {"sample": "yes"}).context["text"]
    assert client.post(FILE, {"text": text}).status_code == 302
    composition = Composition.from_json(Run.objects.get().composition)
    assert slots_of(composition) == {(1, 1)}
    Chassis.objects.update(dialect="none")
    Run.objects.all().delete()
    text = client.get(FILE, {"sample": "yes"}).context["text"]
    assert client.post(FILE, {"text": text}).status_code == 302
    assert Run.objects.get().composition["local_gpus"] == 1
    assert "Paste JSON, or choose a file." in page_text(client.post(FILE, {"text": " "}))
    Host.objects.get(pk=lab.host.pk).agent.delete()
    assert "No run can be started now" in page_text(client.get(FILE))
    assert "A run started now is refused." in page_text(client.get(NEW))


def test_what_is_offered_is_read_in_as_many_queries_however_much_there_is(
    lab: Lab, django_assert_max_num_queries: Any
) -> None:
    with django_assert_max_num_queries(17):
        found = host_choices(lab.person)
    host = next(one for one in found if one.id == lab.host.pk)
    assert next(one for one in host.devices if one.id == lab.device(1).pk).at == "node-a (H1)"
    assert sum(host.own_memory) == 8 * 16 * 2**30


def test_a_tiny_training_opens_on_attached_gpus_and_long_enough_to_be_watched(lab: Lab) -> None:
    client = client_of(lab.person)
    form = client.get(NEW, {"workload": "resnet50", "executor": "simulated"}).context["form"]
    wanted = form.run_request()
    assert set(wanted.composition.devices.values()) == {host_port_of(lab.chassis, "H1").pk}
    assert len(wanted.composition.devices) == 2
    step = model.predict(wanted.spec, composition_topology(wanted.composition)).step_seconds
    given = {"steps": form.given["steps"]}
    assert 20 < int(given["steps"]) * step < 30
    # What is chosen stays, and a file, the API and other presets have the steps of the preset.
    on_cpu = client.get(NEW, {"workload": "resnet50", "executor": "simulated", "where": "cpu"}).context["form"]
    assert on_cpu.on_cpu
    assert client.get(NEW, {"workload": "resnet50", "steps": "3"}).context["form"].given["steps"] == "3"
    assert "steps" not in client.get(NEW, {"workload": "resnet50", "preset": "paper"}).context["form"].given
    assert spec_for_composition("resnet50", "tiny", {}, wanted.composition).steps == 10


def test_a_run_without_a_name_says_where_its_gpus_are_and_what_it_trains(lab: Lab) -> None:
    client = client_of(lab.person)
    for more in (
        {f"local-{lab.host.pk}": "2"},
        {count_of(lab): "2"},
        {f"local-{lab.host.pk}": "1", count_of(lab): "1"},
    ):
        composition_of_run(client, typed(lab, **more))
    titles = Run.objects.order_by("queued_at").values_list("title", flat=True)
    assert [title.removeprefix("ResNet-50, ") for title in titles] == [
        "2 local GPUs (V100), batch 16, node-a",
        "2 Falcon GPUs (V100), batch 16, node-a",
        "1 local GPU (V100), 1 Falcon GPU (V100), batch 16, node-a",
    ]


def test_the_page_of_a_run_that_goes_on_charts_the_links_to_its_devices(lab: Lab) -> None:
    run = lab.ask(lab.place(1, 2))
    client = client_of(lab.person)
    ports = [lab.device(slot).slot.port_id for slot in (1, 2)]  # type: ignore[union-attr]
    page = client.get(f"/benchmarks/runs/{run.pk}/")
    assert f'data-chart-objects="port/{ports[0]} port/{ports[1]}"' in page.content.decode()
    assert f'data-chassis="{lab.chassis.pk}"' in page.content.decode()
    Run.objects.update(state=Run.State.COMPLETED)
    assert "data-chart-objects" not in client.get(f"/benchmarks/runs/{run.pk}/").content.decode()


def test_the_page_of_a_completed_run_leads_to_a_comparison_and_a_recommendation(lab: Lab) -> None:
    first, second = lab.ask(lab.place(1, 2)), lab.ask(lab.place(3))
    client = client_of(lab.person)
    comparison = f"/benchmarks/figures/compare/?run={second.pk}&amp;run={first.pk}"
    Run.objects.filter(pk=first.pk).update(state=Run.State.COMPLETED)
    assert "figures/compare" not in client.get(f"/benchmarks/runs/{first.pk}/").content.decode()
    Run.objects.update(state=Run.State.COMPLETED)
    page = client.get(f"/benchmarks/runs/{second.pk}/").content.decode()
    assert comparison in page
    assert client.get(comparison.replace("&amp;", "&")).status_code == 200
    assert "/benchmarks/recommend/?workload=resnet50&amp;preset=paper" in page
