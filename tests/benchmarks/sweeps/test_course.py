"""The course of sweeps on a simulated chassis with a real agent: whatever happens, nothing stays attached."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from accounts.audit.actions import Action
from accounts.audit.models import AuditEntry
from accounts.models import Role, Tenant, User
from benchmarks.runs.models import Run
from benchmarks.runs.services import run_cancel, run_retry
from benchmarks.sweeps import services
from benchmarks.sweeps.models import Point, Sweep
from benchmarks.sweeps.scheduler import sweep_advance, sweeps_due
from benchmarks.sweeps.selectors import point_list, progress_of_sweeps
from benchmarks.sweeps.services import (
    sweep_create,
    sweep_delete,
    sweep_halt,
    sweep_pause,
    sweep_resume,
    sweep_retry,
)
from core.errors import Conflict, Forbidden, Invalid, KeyReused, NotFound
from fabric.inventory.models import Drawer
from fabric.operations.models import Plan
from tests.benchmarks.runs.lab import RunningLab, attached, work
from tests.benchmarks.sweeps.world import ask, freed, grid_of, points, running, settled, states, tend, until

pytestmark = [pytest.mark.process, pytest.mark.with_agent]
FIRST = 1


def test_a_sweep_composes_once_is_halted_loses_its_worker_is_resumed_and_gives_everything_back(lab: RunningLab) -> None:
    before = freed(lab, 1, 2, 3, 4)
    assert {1, 2, 3, 4} & set(before) == set()
    drawer = Drawer.objects.get(chassis=lab.chassis, number=FIRST)
    sweep = ask(lab, placement=[f"drawer:{drawer.pk}"], count=[1, 2], batch=[8, 16])
    assert (sweep.compositions, sweep.moves, len(points(sweep))) == (1, 2, 4)
    # The larger composition comes first: the smaller one finds its devices in place.
    assert [one.values["count"] for one in points(sweep)] == [2, 2, 1, 1]
    until(sweep, lambda one: "completed" in states(one))
    assert len({1, 2, 3, 4} & set(attached(lab.chassis))) == 2
    assert not Sweep.objects.get(pk=sweep.pk).settled

    sweep_halt(person=lab.person, sweep=sweep)
    with pytest.raises(Conflict, match="nothing to halt"):
        sweep_halt(person=lab.person, sweep=sweep)
    # The worker that was to see to the rest has died in the middle of it: its claim has to be released first.
    dead = Sweep.objects.filter(pk=sweep.pk)
    dead.update(worker="dead", lease_until=timezone.now() + timedelta(minutes=1))
    assert str(sweep.pk) not in sweeps_due()
    sweep_advance(str(sweep.pk), worker="tests")
    assert not Sweep.objects.get(pk=sweep.pk).settled
    dead.update(lease_until=None)
    halted = settled(sweep)
    assert halted.state == "halted"
    assert attached(lab.chassis) == before
    done = states(sweep).count("completed")
    assert 1 <= done < 4

    sweep_resume(person=lab.person, sweep=sweep)
    completed = settled(sweep)
    assert (completed.state, completed.sentence) == ("completed", "4 completed.")
    assert attached(lab.chassis) == before
    assert progress_of_sweeps([completed])[sweep.pk].counts["completed"] == 4
    assert all(one.figures is not None and one.figures.samples_per_second for one in point_list(completed))
    # Of each composition one plan there and one back, before the halt and after it.
    titles = list(Plan.objects.order_by("applied_at").values_list("title", flat=True))
    assert sum(title.startswith("Return devices") for title in titles) == 2
    entries = set(AuditEntry.objects.filter(outcome="done").values_list("action", flat=True))
    assert {Action.SWEEP_CREATE, Action.SWEEP_HALT, Action.SWEEP_RESUME} <= entries


def test_pausing_retrying_early_stops_and_two_at_once(lab: RunningLab) -> None:
    sweep = ask(lab, batch=[8, 16, 32], repeats=2)
    until(sweep, running)
    sweep_pause(person=lab.person, sweep=sweep)
    # On a busy machine one has completed already by the time that another is seen to run.
    begun = len(states(sweep))
    assert begun < 6
    paused = settled(sweep)
    assert (paused.state, states(sweep)) == ("paused", ["completed"] * begun)
    with pytest.raises(Conflict, match="Only a running sweep"):
        sweep_pause(person=lab.person, sweep=sweep)
    with pytest.raises(Conflict, match="No run of it has failed"):
        sweep_retry(person=lab.person, sweep=sweep)
    # Nobody would begin it, or it would be ended at once.
    with pytest.raises(Conflict, match="Its sweep is paused"):
        run_retry(person=lab.person, run=Run.objects.filter(sweep=sweep, state="completed")[0])
    sweep_resume(person=lab.person, sweep=sweep)

    # Somebody cancels one of its runs: the sweep goes on without it, and takes it up again when asked to.
    sweep_advance(str(sweep.pk), worker="tests")
    (victim,) = running(sweep)
    run_cancel(person=lab.person, run=victim)
    # Two workers at once begin no run twice.
    tend()
    sweep_advance(str(sweep.pk), worker="another")
    assert settled(sweep).sentence == "1 cancelled, 5 completed."
    assert len(states(sweep)) == 6
    sweep_retry(person=lab.person, sweep=sweep)
    assert settled(sweep).sentence == "6 completed."
    assert Run.objects.get(sweep=sweep, position=victim.position, state="completed").repeat_of == victim
    # One of its runs once more, when it has completed: that waits for no sweep.
    again = run_retry(person=lab.person, run=Run.objects.get(pk=victim.pk))
    until(sweep, lambda one: not running(one))
    assert Run.objects.get(pk=again.pk).state == "completed"
    # Somebody deletes the sweep while another asks for a run of it once more: that gives back what it brings.
    seen = Run.objects.select_related("sweep").get(pk=again.pk)
    assert (seen.sweep, seen.keep_composed) == (sweep, True)
    settled(sweep)
    sweep_delete(person=lab.person, sweep=sweep)
    alone = run_retry(person=lab.person, run=seen)
    assert (alone.sweep, alone.keep_composed, alone.point) == (None, False, seen.point)
    run_cancel(person=lab.person, run=alone)

    # The smaller batches are clearly slower a sample, as the first has shown.
    early = {"objectives": ["time"], "predicted": True}
    skipping = settled(ask(lab, batch=[512, 1], early=early, same={"steps": 20, "warmup": 1}))
    skipped = points(skipping)[1]
    assert (skipped.state, skipping.sentence) == (Point.State.SKIPPED, "1 completed, 1 skipped.")
    assert skipped.sentence.startswith("Skipped: worse than point 1 (count 1, batch 512) in time a sample.")
    assert "simulated" in skipped.sentence


@pytest.mark.nightly
def test_what_failed_waits_again_in_a_paused_sweep_and_a_halted_one_goes_on_with_it(lab: RunningLab) -> None:
    def cancelled() -> Run:
        """Let the next run of the sweep be cancelled before it is at it."""
        sweep_advance(str(sweep.pk), worker="tests")
        (run,) = running(sweep)
        return run_cancel(person=lab.person, run=run)

    sweep = ask(lab, batch=[8, 16])
    victim = cancelled()
    sweep_pause(person=lab.person, sweep=sweep)
    settled(sweep)
    (point,) = (one for one in point_list(sweep) if one.position == victim.position)
    assert point.state == "cancelled"
    waits = sweep_retry(person=lab.person, sweep=sweep)
    assert (waits.state, waits.sentence) == ("paused", "ada paused it. Running runs complete.")
    assert [one.state for one in point_list(sweep)].count("waiting") == 2
    for _ in range(5):
        tend()
    assert not running(sweep)

    sweep_resume(person=lab.person, sweep=sweep)
    victim = cancelled()
    sweep_halt(person=lab.person, sweep=sweep)
    settled(sweep)
    assert [one.state for one in point_list(sweep)].count("cancelled") == 1
    goes_on = sweep_retry(person=lab.person, sweep=sweep)
    assert (goes_on.state, goes_on.sentence, goes_on.finished_at) == ("running", "", None)
    assert settled(sweep).sentence == "2 completed."


def test_who_may_ask_and_what_is_refused(lab: RunningLab, monkeypatch: pytest.MonkeyPatch) -> None:
    tenant = Tenant.objects.create(name="Vision group")
    viewer = User.objects.create_user("eve", password="a-long-password-1", role=Role.VIEWER, tenant=tenant)
    stranger = User.objects.create_user("mallory", password="a-long-password-1", role=Role.USER, tenant=tenant)
    sweep = sweep_create(person=lab.person, grid=grid_of(lab), title="Mine", idempotency_key="k")
    assert sweep_create(person=lab.person, grid=grid_of(lab), title="Mine", idempotency_key="k") == sweep
    with pytest.raises(KeyReused):
        sweep_create(person=lab.person, grid=grid_of(lab, batch=[4]), title="Mine", idempotency_key="k")
    for person, error in ((viewer, NotFound), (stranger, NotFound)):
        for act in (sweep_pause, sweep_resume, sweep_halt, sweep_retry, sweep_delete):
            with pytest.raises(error):
                act(person=person, sweep=sweep)
    with pytest.raises(Forbidden):
        sweep_create(person=viewer, grid=grid_of(lab))
    with pytest.raises(Invalid, match="You cannot compose with host"):
        sweep_create(person=stranger, grid=grid_of(lab))
    with pytest.raises(Invalid) as caught:
        sweep_create(person=lab.person, grid=grid_of(lab, workload=["bert_large"], batch=[512]))
    assert "GB" in caught.value.details["left_out"][0]["why"]
    monkeypatch.setattr(services, "MAX_OPEN_SWEEPS", 1)
    with pytest.raises(Conflict, match="1 sweeps"):
        sweep_create(person=lab.person, grid=grid_of(lab))
    # Who asked may not run anything any more: the sweep waits, and says why.
    User.objects.filter(pk=lab.person.pk).update(is_active=False)
    until(sweep, lambda one: one.state == "paused")
    assert "may no longer run anything" in Sweep.objects.get(pk=sweep.pk).sentence
    work()
