"""Pages of plans: the preview, the job as it goes, and what each person is shown of it."""

from __future__ import annotations

from typing import Any

import pytest
from django.http import HttpResponse
from django.urls import reverse

from accounts.models import Tenant, User
from fabric.inventory.models import Chassis, Device
from fabric.operations.models import Plan
from fabric.operations.rules import PortSetting
from fabric.operations.services import operation_request
from fabric.plans.drafts import draft_add
from fabric.plans.preview import plan_preview, predecessors_label
from fabric.plans.progress import plan_job
from fabric.plans.rules import DesiredState
from fabric.plans.selectors import plan_progress, plan_summaries
from fabric.plans.services import plan_apply, plan_create
from fabric.plans.strips import drawer_strips
from falconweb.testing import SimulatorProcess, carry_out, carry_out_plan
from tests.fabric.hosts import MARIA, TellingHost
from tests.fabric.plans.pages import browser, device_in, done_before, granted, page_of, port, post, words


def test_a_preview_says_who_leaves_and_joins_what_and_what_is_touched(chassis: Chassis, administrator: User) -> None:
    wanted = DesiredState(attachments={device_in(1, 1).pk: port("H2").pk, device_in(2, 1).pk: None})
    plan = plan_create(person=administrator, desired=wanted, title="Two moves", origin="api")
    preview = plan_preview(administrator, plan)
    assert [(one.before, one.after) for one in preview.entries] == [
        ("node-a (H1)", "node-b (H2)"),
        ("node-a (H4)", "no host"),
    ]
    assert preview.hosts == ("node-a (H1)", "node-a (H4)", "node-b (H2)")
    assert [lane.name for lane in preview.lanes] == ["falcon-1 Drawer 1", "falcon-1 Drawer 2"]
    assert preview.usually == "no history yet"
    text = page_of(administrator, plan)
    assert "Drawers are processed in parallel." in text
    assert "Apply plan" in text
    assert "made by the API by ada" in text


@pytest.mark.usefixtures("simulator")
def test_a_preview_says_what_has_changed_since_and_is_planned_anew(chassis: Chassis, administrator: User) -> None:
    plan = draft_add(person=administrator, desired=DesiredState(attachments={device_in(1, 7).pk: port("H2").pk}))
    carry_out(operation_request(person=administrator, device=device_in(1, 1), target=None))
    text = page_of(administrator, plan)
    assert "The state has changed since this was planned." in text
    assert "is at no host now." in text
    refused = words(post(administrator, "plan_apply", plan.pk))
    assert "The plan was made on a state that has changed since." in refused
    assert Plan.objects.get().state == "draft"
    assert "has changed since" not in words(post(administrator, "plan_anew", plan.pk))
    assert "Running" in words(post(administrator, "plan_apply", plan.pk))


def test_a_preview_says_which_chassis_do_not_answer(chassis: Chassis, administrator: User) -> None:
    wanted = DesiredState(attachments={device_in(1, 1).pk: port("H2").pk})
    plan = plan_create(person=administrator, desired=wanted, title="One move", origin="api")
    assert "not answer now" not in page_of(administrator, plan)
    Chassis.objects.update(last_error="It refused the connection.")
    text = page_of(administrator, plan)
    assert "falcon-1 does not answer now. The data shown for it may be old." in text
    assert "refused the connection" not in text
    Chassis.objects.update(last_error="")
    assert "not answer now" not in page_of(administrator, plan)


def test_a_preview_says_what_a_drawer_is_busy_with(
    chassis: Chassis, administrator: User, tenant: Tenant, member: User
) -> None:
    granted(tenant, 7, ports=("H2",))
    plan = draft_add(person=member, desired=DesiredState(attachments={device_in(1, 7).pk: port("H2").pk}))
    running = plan_create(
        person=administrator,
        desired=DesiredState(attachments={device_in(1, 1).pk: None}),
        title="Secret work",
        origin="api",
    )
    plan_apply(person=administrator, plan=running)
    assert "falcon-1 Drawer 1 is busy with Secret work by ada : it waits behind that." in page_of(administrator, plan)
    theirs = page_of(member, plan)
    assert "falcon-1 Drawer 1 is busy with another operation: it waits behind that." in theirs.replace(" :", ":")
    assert not [word for word in ("Secret", "node-a", "by ada") if word in theirs]


def test_a_plan_that_would_take_out_a_device_of_others_is_objected_to_and_names_nothing(
    chassis: Chassis, tenant: Tenant, member: User
) -> None:
    granted(tenant, 1, 2, 3, 4, ports=("H1",))
    wanted = DesiredState(settings={port("H1").port_id or 0: PortSetting(configured_width=8)})
    plan = draft_add(person=member, desired=wanted)
    assert plan_preview(member, plan).why_not == ""
    Device.objects.filter(slot__number__lte=4).update(tenant=Tenant.objects.create(name="Others"))
    preview = plan_preview(member, plan)
    assert preview.why_not
    assert any("a device that is not yours" in sentence for sentence, _ in preview.objections)
    text = page_of(member, Plan.objects.get())
    assert "Changes a device of others" in text
    assert "Tesla" not in text


def test_a_plan_that_takes_what_is_in_use_says_from_whom_and_wants_its_name_typed(
    chassis: Chassis, administrator: User
) -> None:
    gpu = device_in(1, 1)
    TellingHost("node-a").tell({gpu: MARIA})
    plan = draft_add(person=administrator, desired=DesiredState(attachments={gpu.pk: None}))
    text = page_of(administrator, plan)
    assert "In use now." in text
    assert f"train (process {MARIA.pid} of maria)" in text
    for typed, told in (("", "is in use: train"), ("yes", "to confirm that")):
        assert told in words(post(administrator, "plan_apply", plan.pk, confirmation=typed))
        assert Plan.objects.get().state == "draft"
    post(administrator, "plan_apply", plan.pk, confirmation=plan.title)
    assert Plan.objects.get().operations.get().forced


def test_steps_say_what_they_come_after() -> None:
    assert [predecessors_label(numbers) for numbers in ([], [1], [1, 2], [1, 2, 3], [5, 1, 2, 3, 9])] == [
        "", "after 1", "after 1, 2", "after 1 to 3", "after 1 to 3, 5, 9",
    ]  # fmt: skip


@pytest.mark.usefixtures("simulator")
def test_a_job_tells_how_far_it_is_and_ends_with_its_proof(chassis: Chassis, administrator: User) -> None:
    done_before(chassis, "attach", *[5.0] * 5)
    wanted = DesiredState(attachments={device_in(1, 7).pk: port("H2").pk, device_in(2, 1).pk: None})
    plan = plan_create(person=administrator, desired=wanted, title="", origin="api")
    post(administrator, "plan_apply", plan.pk, on_failure="roll_back")
    plan.refresh_from_db()
    assert plan.on_failure == "roll_back"
    text = page_of(administrator, plan)
    assert "Running · 0 of 2 steps" in text
    assert "2 steps have not started and never will." in text
    first = plan.operations.in_turn().first()
    assert first is not None
    carry_out(first)
    assert "1 of 2 steps" in page_of(administrator, plan)
    ended = carry_out_plan(plan)
    job = plan_job(administrator, ended)
    assert (job.progress.done, job.progress.total, job.running, job.waiting) == (2, 2, (), 0)
    assert [line.at for line in job.log] == sorted(line.at for line in job.log)
    assert {line.number for line in job.log} == {1, 2}
    assert job.proofs == job.proven
    text = page_of(administrator, ended)
    assert "Done · 2 of 2 steps · took" in text
    assert "Undo" in text
    assert "Stop it" not in text


def test_a_cancelled_plan_goes_back_and_says_so(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    before = {zone: sorted(held) for zone, held in simulator.state()["zones"].items()}
    wanted = DesiredState(attachments={device_in(1, slot).pk: port("H3").pk for slot in (1, 2)})
    plan = plan_apply(
        person=administrator, plan=plan_create(person=administrator, desired=wanted, title="", origin="api")
    )
    first = plan.operations.in_turn().first()
    assert first is not None
    carry_out(first)
    text = words(post(administrator, "plan_cancel", plan.pk, then="roll_back"))
    assert "Then everything that was changed is rolled back." in text
    assert "Not started" in text
    assert "Cancel and roll back" not in text
    ended = carry_out_plan(plan)
    assert {zone: sorted(held) for zone, held in simulator.state()["zones"].items()} == before
    text = page_of(administrator, ended)
    assert "Rolled back · 1 of 1 steps of the rollback" in text
    assert "Rollback" in text
    assert "Undo" not in text, "it is undone"


def test_a_plan_that_stopped_says_why_and_what_can_be_done(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User, short_retraining: None
) -> None:
    nic = device_in(1, 7)
    fault = simulator.fault("link_downgrade", "drawer1slot7", lanes=4)
    plan = draft_add(person=administrator, desired=DesiredState(attachments={nic.pk: port("H2").pk}))
    post(administrator, "plan_apply", plan.pk)
    stopped = carry_out_plan(plan)
    text = page_of(administrator, stopped)
    for button in ("Retry from here", "Roll back", "Leave as it is"):
        assert button in text
    assert "below what device and slot can do" in text
    assert "waits for a decision" in words(browser(administrator).get("/"))
    simulator.end_fault(fault)
    post(administrator, "plan_cancel", plan.pk)
    left = Plan.objects.get(pk=plan.pk)
    assert left.state == "left"
    undo = post(administrator, "plan_undo", plan.pk)
    assert "What changes" in words(undo)
    way_back = Plan.objects.get(origin="undo")
    assert carry_out_plan(plan_apply(person=administrator, plan=way_back)).state == "done"
    assert device_in(1, 7).host_port is None


def test_a_plan_that_stopped_goes_on(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User, short_retraining: None
) -> None:
    fault = simulator.fault("link_downgrade", "drawer1slot7", lanes=4)
    wanted = DesiredState(attachments={device_in(1, 7).pk: port("H2").pk, device_in(2, 1).pk: None})
    plan = plan_create(person=administrator, desired=wanted, title="", origin="api")
    assert carry_out_plan(plan_apply(person=administrator, plan=plan)).state == "stopped"
    simulator.end_fault(fault)
    # Trained anew: it is detached and attached by the steps that are planned then.
    carry_out(operation_request(person=administrator, device=device_in(1, 7), target=None))
    assert "The hardware is read, and the remaining steps are replanned" in words(
        post(administrator, "plan_resume", plan.pk)
    )
    ended = carry_out_plan(plan)
    assert ended.state == "done"
    job = plan_job(administrator, ended)
    assert job.progress.done == job.progress.total
    assert [title for title, _ in job.rounds] == ["Steps", "Replanned steps"]


@pytest.mark.usefixtures("simulator")
def test_what_has_ended_cannot_be_decided_again(chassis: Chassis, administrator: User) -> None:
    plan = plan_create(
        person=administrator, desired=DesiredState(attachments={device_in(1, 1).pk: None}), title="", origin="api"
    )
    assert "cannot" not in words(post(administrator, "plan_apply", plan.pk))
    assert "was applied by ada already" in words(post(administrator, "plan_apply", plan.pk))
    carry_out_plan(plan)
    for name in ("plan_cancel", "plan_resume", "plan_apply", "plan_title", "plan_anew", "plan_discard"):
        answer: HttpResponse = post(administrator, name, plan.pk, title="Other")
        assert 'class="notice error" role="alert"' in answer.content.decode(), name
    plan.refresh_from_db()
    assert (plan.state, plan.title) == ("done", "1 step")


@pytest.mark.parametrize(
    ("state", "round_", "counts", "told"),
    [
        ("running", 0, {(False, 0, "done"): 3, (False, 0, "requested"): 5}, (3, 8, False)),
        ("stopped", 0, {(False, 0, "done"): 3, (False, 0, "failed"): 1, (False, 0, "cancelled"): 4}, (3, 8, False)),
        ("resuming", 1, {(False, 0, "done"): 3, (False, 0, "failed"): 1, (False, 0, "cancelled"): 4}, (3, 8, False)),
        ("running", 1, {(False, 0, "done"): 3, (False, 0, "failed"): 1, (False, 1, "done"): 1,
                        (False, 1, "running"): 4}, (4, 8, False)),
        ("rolling_back", 1, {(False, 0, "done"): 3, (True, 1, "done"): 1, (True, 1, "running"): 2}, (1, 3, True)),
        ("rolling_back", 1, {(False, 0, "done"): 3, (False, 0, "cancelled"): 2}, (3, 5, False)),
        ("done", 0, {}, (0, 0, False)),
    ],
)  # fmt: skip
def test_progress_counts_what_was_planned_anew_once(
    state: str, round_: int, counts: dict[tuple[bool, int, str], int], told: tuple[int, int, bool]
) -> None:
    progress = plan_progress(Plan(state=state, round=round_), counts)
    assert (progress.done, progress.total, progress.back) == told


@pytest.mark.usefixtures("simulator")
def test_whoever_may_only_look_finds_no_button_and_is_refused(
    chassis: Chassis, tenant: Tenant, member: User, viewer: User
) -> None:
    granted(tenant, 7, ports=("H2",))
    plan = draft_add(person=member, desired=DesiredState(attachments={device_in(1, 7).pk: port("H2").pk}))
    text = page_of(viewer, plan)
    assert "You may view this draft, but not apply it." in text
    assert "Apply plan" not in text
    for name in ("plan_apply", "plan_title", "plan_anew", "plan_discard", "plan_cancel", "plan_resume", "plan_undo"):
        assert post(viewer, name, plan.pk).status_code in {403, 409}, name
    assert post(viewer, "draft", device=device_in(1, 7).pk, target="").status_code == 403
    carry_out_plan(plan_apply(person=member, plan=plan))
    assert "Undo" not in page_of(viewer, plan)


@pytest.mark.usefixtures("simulator")
def test_a_tenant_finds_its_own_plans_and_no_others(
    chassis: Chassis, administrator: User, tenant: Tenant, member: User
) -> None:
    granted(tenant, 7, ports=("H2",))
    own = draft_add(person=member, desired=DesiredState(attachments={device_in(1, 7).pk: port("H2").pk}))
    secret = plan_create(
        person=administrator,
        desired=DesiredState(attachments={device_in(1, 7).pk: port("H2").pk}),
        title="Secret",
        origin="api",
    )
    carry_out_plan(plan_apply(person=administrator, plan=secret))
    client = browser(member)
    assert client.get(reverse("fabric:plan", args=[secret.pk])).status_code == 404
    listed = words(client.get("/plans/"))
    assert own.title in listed
    assert "Secret" not in listed
    # They see that something was done to their device, but nothing of the plan that it was part of.
    operations = client.get("/operations/")
    assert "Attach ConnectX" in words(operations)
    for answer in (
        operations,
        client.get("/"),
        client.get(reverse("fabric:operation", args=[secret.operations.get().pk])),
    ):
        assert "Secret" not in words(answer)


def test_the_list_keeps_what_is_asked_for(chassis: Chassis, administrator: User) -> None:
    draft_add(person=administrator, desired=DesiredState(attachments={device_in(1, 7).pk: port("H2").pk}))
    other = plan_create(
        person=administrator,
        desired=DesiredState(attachments={device_in(2, 1).pk: None}),
        title="Free one",
        origin="api",
    )
    plan_apply(person=administrator, plan=other)
    client = browser(administrator)

    def listed(query: str) -> list[bool]:
        text = words(client.get(f"/plans/{query}"))
        return ["ConnectX" in text, "Free one" in text]

    queries = ("", "?state=draft", "?state=active", "?state=ended", "?q=free", "?state=x")
    assert [listed(query) for query in queries] == [
        [True, True], [True, False], [False, True], [False, False], [False, True], [True, True],
    ]  # fmt: skip
    assert "No plan fits." in words(client.get("/plans/?q=nothing"))
    assert "0 of 1" in words(client.get("/plans/?state=active"))


@pytest.mark.usefixtures("simulator")
def test_operations_and_the_overview_tell_steps_with_their_plan(chassis: Chassis, administrator: User) -> None:
    wanted = DesiredState(attachments={device_in(1, 1).pk: None, device_in(1, 2).pk: None})
    plan = plan_create(person=administrator, desired=wanted, title="Empty two", origin="api")
    client = browser(administrator)
    carry_out(operation_request(person=administrator, device=device_in(2, 1), target=None))
    plan_apply(person=administrator, plan=plan)
    listed = words(client.get("/operations/"))
    assert listed.count("Plan ‘Empty two’") == 1
    overview = words(client.get("/"))
    assert "Plans under way Empty two Running, 0 of 2 steps · ada" in overview
    assert "slot 1) from node-a (H1)" not in overview, "its steps are not told one by one"
    carry_out_plan(plan)
    assert "Newest plans Empty two Done" in words(client.get("/"))
    operation = plan.operations.get(position=2)
    assert "It is step 2 of the plan Empty two" in words(client.get(reverse("fabric:operation", args=[operation.pk])))


def test_lines_of_many_plans_take_two_queries(
    chassis: Chassis, administrator: User, django_assert_num_queries: Any
) -> None:
    for _ in range(3):
        plan = plan_create(
            person=administrator,
            desired=DesiredState(attachments={device_in(1, 7).pk: port("H2").pk}),
            title="x",
            origin="api",
        )
        Plan.objects.filter(pk=plan.pk).update(state="done")
    with django_assert_num_queries(2):
        assert len(plan_summaries(Plan.objects.all())) == 3


def test_a_plan_draws_the_slots_of_its_drawers_before_and_after(
    chassis: Chassis, administrator: User, tenant: Tenant, member: User
) -> None:
    granted(tenant, 1, 2, 7, ports=("H1", "H2"))
    wanted = DesiredState(attachments={device_in(1, 1).pk: port("H2").pk, device_in(1, 7).pk: port("H1").pk})
    plan = plan_create(person=member, desired=wanted, title="Two moves", origin="api")
    (strip,) = drawer_strips(administrator, plan)
    assert strip.name == "falcon-1 Drawer 1"
    assert strip.legend == (("A", "node-a (H1)"), ("B", "node-b (H2)"), ("–", "no host"))
    assert "".join(one.before for one in strip.cells) == "AAAABB–"
    assert "".join(one.after for one in strip.cells) == "BAAABBA"
    assert [one.number for one in strip.cells if one.is_changed] == [1, 7]
    # What others have in the drawer is theirs, and no more.
    (theirs,) = drawer_strips(member, plan)
    assert [one.before_words for one in theirs.cells][2:6] == ["others’"] * 4
    assert "Before A A × × × × – After →B A × × × × →A A node-a (H1) · B node-b (H2)" in page_of(member, plan)
