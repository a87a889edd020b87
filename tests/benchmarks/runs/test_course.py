"""The course of runs on a simulated chassis and a real agent: composed, run, recorded, given back, whatever dies."""

from __future__ import annotations

import json
from datetime import timedelta

import numpy as np
import pytest
from django.test import Client
from django.utils import timezone
from msgspec.structs import replace

from accounts.audit.models import AuditEntry
from benchmarks.runs import execution
from benchmarks.runs.documents import run_file
from benchmarks.runs.execution import orphaned_runs_end
from benchmarks.runs.models import Hold, Run
from benchmarks.runs.recording import log_tail, series_of, series_values
from benchmarks.runs.requests import RunRequest
from benchmarks.runs.results import observations, observations_of, summary_of
from benchmarks.runs.rules import Composition, HoldOwner
from benchmarks.runs.scheduler import run_advance
from benchmarks.runs.services import run_cancel, run_create, run_retry, run_return
from benchmarks.runs.topology import own_drive
from benchmarks.workloads.catalogue import spec_of
from core.errors import Conflict, InUse, Invalid
from fabric.agents import services
from fabric.agents.models import HostAgent
from fabric.agents.selectors import latest_report
from fabric.inventory.models import Device
from fabric.operations.models import Plan
from fabric.operations.services import operation_request
from fabric.plans.rules import DesiredState
from fabric.plans.services import plan_apply, plan_create
from telemetry.events.models import Event
from tests.benchmarks.runs.lab import RunningLab, attached, ended, in_state, until
from tests.without import needs_torch

pytestmark = [pytest.mark.process, pytest.mark.with_agent]

ENDLESS = {"steps": 1_000_000}  # however slow the machine is


def test_a_run_composes_runs_and_gives_its_devices_back_which_a_later_one_has_until_it_is_cancelled(
    lab: RunningLab,
) -> None:
    before = attached(lab.chassis)
    assert before[5] == "H2"
    run = ended(lab.ask(lab.place(1, 5)))
    assert (run.state, run.trouble, run.error) == ("completed", "", "")
    assert run.provenance == "simulated"
    summary = summary_of(run)
    assert summary.step_seconds is not None
    assert summary.step_seconds.count == 12
    assert summary.step_seconds.low <= summary.step_seconds.value <= summary.step_seconds.high
    at, seconds = series_values(run, ["steps/timed/seconds"])["steps/timed/seconds"]
    assert np.all(np.diff(at) > 0)
    assert summary.step_seconds.value == float(np.median(seconds))
    assert {one.key: one.unit for one in series_of(run)}["steps/timed/seconds"] == "s"
    assert "timed" in log_tail(run).text
    assert [one["place"] for one in run.topology["accelerators"]] == ["falcon-1/drawer 1/H1"] * 2
    # Its host has an NVMe drive of its own, and nobody said that the data lies there.
    assert run.topology["storage"]["model"] == "local storage"
    assert run.plan is not None
    assert run.plan_back is not None
    assert (run.plan.state, run.plan_back.state) == (Plan.State.DONE, Plan.State.DONE)
    assert attached(lab.chassis) == before
    assert not Hold.objects.exists()
    assert AuditEntry.objects.filter(action="run.end", outcome="done", target_id=str(run.pk)).count() == 1
    # What goes as the model says teaches the model nothing.
    assert observations(lab.person) == []
    assert [one.run for one in observations_of([run])] == [str(run.pk)]
    for provenance, source, learnt in (
        ("measured", {}, 1), ("imported", {"provenance": "measured"}, 1), ("imported", {"provenance": "simulated"}, 0),
    ):  # fmt: skip
        Run.objects.filter(pk=run.pk).update(provenance=provenance, source=source)
        assert len(observations(lab.person)) == learnt

    # What went back is not offered again while a later run has it.
    later = until(lab.ask(lab.place(5), given=ENDLESS), lambda one: one.steps_done > 0)
    assert attached(lab.chassis)[5] == "H1"
    with pytest.raises(Conflict, match="back where they were"):
        run_return(person=lab.person, run=run)
    run_cancel(person=lab.person, run=later)
    with pytest.raises(Conflict, match="being cancelled"):
        run_cancel(person=lab.person, run=later)
    later = ended(later)
    assert (later.state, later.trouble, later.error) == ("cancelled", "", "ada cancelled it.")
    assert attached(lab.chassis) == before


@pytest.mark.nightly
def test_a_crash_and_no_way_to_attach_give_everything_back_and_no_way_back_is_offered_again(lab: RunningLab) -> None:
    before = attached(lab.chassis)
    crashed = ended(lab.ask(lab.place(5), exercise={"fails": "crash", "after": 4}))
    assert (crashed.state, crashed.trouble, crashed.exit_code) == ("failed", "crash", 1)
    assert "crashed after 4 steps" in crashed.error
    assert attached(lab.chassis) == before

    fault = lab.simulator.fault("server_error", method="PATCH", status=400)
    refused = ended(lab.ask(lab.place(5)))
    assert (refused.state, refused.trouble, refused.started_at) == ("failed", "compose", None)
    assert refused.error.startswith("Its devices were not attached")
    lab.simulator.end_fault(fault)
    assert attached(lab.chassis) == before
    assert not Hold.objects.exists()

    run = until(lab.ask(lab.place(5), given=ENDLESS), in_state("running"))
    lab.simulator.fault("server_error", method="PATCH", status=400)
    run_cancel(person=lab.person, run=run)
    run = ended(run)
    assert run.state == "cancelled"
    assert run.sentence.startswith("Its devices were not returned")
    assert attached(lab.chassis)[5] == "H1"
    assert not Hold.objects.exists()
    lab.simulator.clear_faults()
    run = ended(run_return(person=lab.person, run=run))
    assert (run.state, run.sentence) == ("cancelled", "")
    assert attached(lab.chassis) == before
    with pytest.raises(Conflict, match="back where they were"):
        run_return(person=lab.person, run=run)


def test_one_run_has_a_device_and_the_others_wait_in_their_order(lab: RunningLab) -> None:
    first = lab.ask(lab.place(1), title="first", given=ENDLESS)
    second = lab.ask(lab.place(1, 2), title="second")
    third = lab.ask(lab.place(2), title="third")
    other = lab.ask(lab.place(3), title="other")
    first = until(first, in_state("running"))
    other = ended(other)
    assert other.state == "completed"
    second.refresh_from_db()
    third.refresh_from_db()
    assert "which ‘first’ uses" in second.sentence
    # The device is free: but the second came before.
    assert "behind ‘second’" in third.sentence
    # To the people of other tenants who share the host, somebody's run is somebody's.
    assert HoldOwner("first", 1).label_for(HoldOwner("second", 2)) == "somebody else's run"
    # What a run has is nobody's to take without saying so.
    with pytest.raises(InUse, match="a run of a benchmark has it"):
        operation_request(person=lab.person, device=lab.device(1), target=None)
    taking = plan_create(
        person=lab.person, desired=DesiredState(attachments={lab.device(1).pk: None}), title="", origin="api"
    )
    with pytest.raises(InUse, match="a run of a benchmark has it"):
        plan_apply(person=lab.person, plan=taking)
    assert run_cancel(person=lab.person, run=second).state == "cancelled"
    third = ended(third)
    assert third.state == "completed"
    assert Run.objects.get(pk=first.pk).state == "running"
    run_cancel(person=lab.person, run=first)
    assert ended(first).state == "cancelled"
    again = run_retry(person=lab.person, run=second)
    assert (again.repeat_of_id, again.spec_hash) == (second.pk, second.spec_hash)
    assert ended(again).state == "completed"


def test_runs_follow_each_other_on_a_host_or_note_that_they_did_not(lab: RunningLab) -> None:
    first, second = (lab.ask(lab.place(slot), title=f"run {slot}", may_share=False) for slot in (1, 2))
    until(first, in_state("running"))
    assert Run.objects.get(pk=second.pk).sentence == f"Waiting for {lab.host.name}, which ‘run 1’ has to itself."
    first, second = ended(first), ended(second)
    assert first.ended_at is not None
    assert second.started_at is not None
    assert first.ended_at <= second.started_at
    assert [first.overlaps, second.overlaps] == [[], []]

    long = until(lab.ask(lab.place(1), title="long", given=ENDLESS), in_state("running"))
    short = ended(lab.ask(lab.place(2), title="short", given={"steps": 400}))  # some seconds
    client = Client()
    client.force_login(lab.person)
    page = client.get(f"/benchmarks/runs/{short.pk}/").content.decode()
    assert "used the same host, the same uplink and the same switch for" in " ".join(page.split())
    run_cancel(person=lab.person, run=long)
    noted = {run.title: run.overlaps for run in (short, ended(long))}
    assert [one["run"] for one in noted["short"]] == [str(long.pk)]
    assert [one["run"] for one in noted["long"]] == [str(short.pk)]
    assert noted["short"][0]["seconds"] == pytest.approx(noted["long"][0]["seconds"], abs=0.2)


def test_a_worker_that_dies_is_followed_by_another_and_nothing_is_told_twice(lab: RunningLab) -> None:
    run = until(lab.ask(lab.place(1), given={"steps": 60}), lambda one: one.steps_done > 2)
    soon = timezone.now() + timedelta(seconds=20)
    Run.objects.filter(pk=run.pk).update(worker="gone", lease_until=soon)
    kept = Run.objects.get(pk=run.pk)
    run_advance(str(run.pk), worker="other")
    assert Run.objects.get(pk=run.pk).next_event == kept.next_event
    # Its claim is released.
    Run.objects.filter(pk=run.pk).update(lease_until=None)
    run = ended(run)
    assert run.state == "completed"
    assert len(series_values(run, ["steps/timed/seconds"])["steps/timed/seconds"][1]) == 60
    assert log_tail(run).text.count("timed: 60 of 60") == 1


def test_a_run_outlives_its_agent_and_is_lost_only_after_a_while(lab: RunningLab) -> None:
    before = attached(lab.chassis)
    # Of the host's own GPUs none is given back: what it runs on them goes on, whatever this site knows.
    stray = until(lab.ask(lab.place(local=1), given=ENDLESS), in_state("running"))
    run = until(lab.ask(lab.place(5), given=ENDLESS), lambda one: one.steps_done > 0)
    lab.agent.kill()
    lab.agent.start()
    done = run.steps_done
    run = until(run, lambda one: one.steps_done > done)
    lab.agent.kill()
    HostAgent.objects.update(reported_at=timezone.now() - timedelta(minutes=2))
    run = until(run, lambda one: "does not report" in one.sentence)
    assert run.state == "running"
    long_ago = timezone.now() - timedelta(minutes=10)
    HostAgent.objects.update(reported_at=long_ago)
    Run.objects.open().update(state_since=long_ago)
    run = ended(run)
    assert (run.state, run.trouble) == ("failed", "lost")
    assert Event.objects.filter(message_id="FalconWeb.1.0.RunFailed", link__contains=str(run.pk)).count() == 1
    assert attached(lab.chassis) == before
    # Its agent is back, and says that it goes on there.
    lab.agent.start()
    assert ended(stray).trouble == "lost"
    until(stray, lambda _: str(stray.pk) in orphaned_runs_end())
    agent = HostAgent.objects.get(host=lab.host)
    until(stray, lambda _: (found := latest_report(HostAgent.objects.get(pk=agent.pk))) and not found.trainer.running)
    assert orphaned_runs_end() == []


@pytest.mark.nightly
def test_whatever_ends_a_run_its_log_stays_and_its_devices_go_back(lab: RunningLab) -> None:
    before = attached(lab.chassis)
    lab.agent.kill()
    lab.agent.environment["AGENT_HANG_SECONDS"] = "1.5"
    lab.agent.start()
    limited = lab.ask(lab.place(5), given=ENDLESS, limit_seconds=1.0)
    hung = lab.ask(lab.place(local=1), title="Look what follows", exercise={"fails": "hang", "after": 2})
    full = lab.ask(lab.place(local=1), exercise={"fails": "out_of_memory", "after": 2})
    for asked, trouble, says in (
        (limited, "limit", "time limit of 1 s"), (hung, "hang", "nothing happened for 1.5 s"),
        (full, "out_of_memory", "memory was full after 2 steps (an exercise)"),
    ):  # fmt: skip
        run = ended(asked)
        assert (run.state, run.trouble) == ("failed", trouble)
        assert says in run.error
        assert "Simulated run of resnet50" in log_tail(run).text
    assert attached(lab.chassis) == before
    assert not Hold.objects.exists()
    # Who sees it anywhere sees that it failed on purpose, and so once more.
    assert hung.title == "Look what follows (exercise)"
    again = run_retry(person=lab.person, run=Run.objects.get(pk=hung.pk))
    assert (again.title, again.exercise) == (hung.title, {"fails": "hang", "after": 2})
    assert json.loads(run_file(again))["exercise"] == again.exercise
    assert not limited.exercise


@pytest.mark.nightly
def test_a_host_that_reports_and_answers_nothing_keeps_no_device_for_ever(
    lab: RunningLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = attached(lab.chassis)
    monkeypatch.setattr(execution, "STOP_TIMEOUT", 0.1)
    monkeypatch.setattr(services, "ANSWER_SECONDS", 0.3)
    run = until(lab.ask(lab.place(5), given=ENDLESS), in_state("running"))
    lab.agent.kill()
    # It reported just now, and somebody cancelled the run long ago.
    HostAgent.objects.update(reported_at=timezone.now())
    long_ago = timezone.now() - timedelta(minutes=6)
    Run.objects.filter(pk=run.pk).update(cancel_requested_at=long_ago, cancelled_by_name="ada")
    run = until(run, in_state("returning"))
    HostAgent.objects.update(reported_at=long_ago)
    run = ended(run)
    assert (run.state, run.trouble, run.error) == (
        "failed", "lost", "The agent of node-a has not answered for 5 minutes.",
    )  # fmt: skip
    assert attached(lab.chassis) == before


def drive_of_chassis(lab: RunningLab) -> tuple[Device, Composition]:
    """Return a drive of the chassis, and a place of a run that reads it."""
    drive = lab.device(5, drawer=2)
    assert drive.host_port_id is not None
    return drive, Composition(host=lab.host.pk, cpu=True, devices={drive.pk: drive.host_port_id}, storage=drive.pk)


@pytest.mark.nightly
def test_data_is_read_from_the_hosts_own_drive_or_one_of_a_chassis_where_that_was_chosen(lab: RunningLab) -> None:
    own = replace(lab.place(1), own_drive=True)
    first = lab.ask(own, title="first", given=ENDLESS)
    assert first.topology["storage"] == {
        "model": "SSDPEDKX040T7", "place": "local", "link": {"lanes": 4, "generation": 3},
    }  # fmt: skip
    until(first, in_state("running"))
    second = lab.ask(replace(lab.place(2), own_drive=True), title="second")
    until(second, lambda run: run.sentence == "Waiting for the NVMe drive of node-a, which ‘first’ uses.")
    run_cancel(person=lab.person, run=first)
    second = ended(second)
    assert (second.state, second.error) == ("completed", "")
    # What a chassis had is not the host's own, though the host shows it, and the site does not say that it is there.
    report = latest_report(HostAgent.objects.get(host=lab.host))
    assert report is not None
    drive, of_chassis = drive_of_chassis(lab)
    Device.objects.filter(pk=drive.pk).update(host_port=None, missing_since=timezone.now())
    found = own_drive(report, [])
    assert found is not None
    assert found.serial != drive.serial_number
    Device.objects.filter(pk=lab.device(2).pk).update(serial_number=found.serial)
    assert own_drive(report, []) is None
    Device.objects.filter(pk=lab.device(2).pk).update(serial_number="")
    Device.objects.filter(pk=drive.pk).update(host_port=drive.host_port, missing_since=None)
    with pytest.raises(Invalid, match="Data is read from one drive"):
        lab.ask(replace(of_chassis, own_drive=True), given={"backend": "cpu"})


@needs_torch
@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_pytorch_measures_on_the_cpu_and_is_not_said_to_have_read_a_drive(lab: RunningLab, ranks: int) -> None:
    spec = spec_of("mnist_cnn", "tiny", {"devices": ranks})
    place = Composition(host=lab.host.pk, cpu=True)
    wanted = RunRequest(spec=spec, composition=place, executor="torch", preset="tiny")
    # The drives of a simulated host are none.
    for with_drive in (replace(place, own_drive=True), drive_of_chassis(lab)[1]):
        with pytest.raises(Invalid, match="PyTorch of node-a reads no drive that is chosen"):
            run_create(person=lab.person, request=replace(wanted, composition=with_drive))
    run = ended(run_create(person=lab.person, request=wanted), seconds=120.0)
    assert (run.state, run.error, run.exit_code) == ("completed", "", 0)
    assert (run.provenance, spec.devices) == ("measured", ranks)
    assert run.software["framework"].startswith("torch ")
    summary = summary_of(run)
    assert summary.step_seconds is not None
    assert summary.step_seconds.count == spec.steps
    assert (summary.exposed_seconds is not None) == (ranks > 1)
    assert summary.last_loss is not None
