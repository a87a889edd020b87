"""The way back: what a run's plan brought to its host goes back to where it was, whatever became of the run."""

from __future__ import annotations

import logging
from typing import Final

import msgspec
from django.utils import timezone

from accounts.audit.actions import Action, Outcome
from accounts.audit.services import audit_record, target_of, together
from accounts.models import User
from benchmarks.runs.holds import holds_release
from benchmarks.runs.models import Run
from benchmarks.runs.summary import summarise
from benchmarks.runs.traffic import traffic_record
from benchmarks.runs.turn import Turn
from fabric.models import Device, Plan
from fabric.planning import Wanted
from fabric.services.plans import plan_apply, plan_create, way_back
from falconweb.errors import FalconWebError, Forbidden, NotFound
from telemetry.events.services import event_record

logger = logging.getLogger(__name__)

# A device that somebody still uses, or an operation on it, is waited for so long.
PATIENCE: Final = 90.0  # s
State = Run.State


def owed(run: Run) -> Wanted:
    """Return where devices of a run go back to: those that are still where its plan brought them, and whose it was.

    Whatever became of the others since is the work of somebody else. Nothing, where they are to stay, or went back:
    a later run may have them at the same place.
    """
    plan, back = run.plan, run.plan_back
    if plan is None or run.keep_composed or plan.state == Plan.State.DRAFT:
        return Wanted()
    if back is not None and back.state == Plan.State.DONE:
        return Wanted()
    brought = Wanted.from_json(plan.wanted).attachments
    places = way_back(plan).attachments
    rows = Device.objects.filter(pk__in=places, missing_since=None)
    if run.tenant_id is not None:
        rows = rows.filter(tenant=run.tenant_id)
    there = dict(rows.values_list("pk", "host_port"))
    return Wanted(
        attachments={
            pk: to for pk, to in places.items() if pk in there and there[pk] == brought.get(pk) and to != there[pk]
        }
    )


def give_back(turn: Turn) -> bool:
    """Give a run's devices back as far as that goes now; tell whether there is more to do at once."""
    run = turn.run
    if run.plan is not None and run.plan.is_active:
        turn.say("Waits for the plan that attaches its devices.")
        return False
    back = run.plan_back
    if back is not None and back.is_active:
        turn.say("Its devices are being given back.")
        return False
    wanted = owed(run)
    if not wanted.attachments:
        return _ended(turn, "")
    if back is not None and back.state in {Plan.State.STOPPED, *Plan.FINAL}:
        return _ended(turn, back.sentence or "the plan that gives them back has ended without that.")
    try:
        with together():
            plan = _plan(run, wanted)
            turn.write(plan_back=plan, sentence="Its devices are being given back.")
    except FalconWebError as error:
        if turn.waits > PATIENCE:
            return _ended(turn, error.sentence)
        turn.say(f"Its devices are not back yet: {error.sentence}")
        return False
    return plan.state == Plan.State.DONE


def is_measured(run: Run) -> bool:
    """Tell whether the figures of a run are made, or there is nothing to make them of."""
    return run.started_at is None or "readings" in run.results


def measured(turn: Turn) -> None:
    """Make the figures of a run of what was recorded, once, when it has ended on its host."""
    traffic_record(turn.run)
    turn.write(results=msgspec.to_builtins(summarise(turn.run)))


def _plan(run: Run, wanted: Wanted) -> Plan:
    """Return the plan of the way back, on its way: in the name of who asked, or of the site where they may no more."""
    title = f"After {run.title}"
    person: User | None = run.requested_by
    if person is not None:
        try:
            with together():
                plan = plan_create(person=person, wanted=wanted, title=title, origin="undo")
                return plan_apply(person=person, plan=plan, claimant=str(run.pk))
        except (Forbidden, NotFound) as error:
            logger.info("run %s: the site gives its devices back: %s", run.pk, error)
    plan = plan_create(person=None, wanted=wanted, title=title, origin="undo")
    return plan_apply(person=None, plan=plan)


def _ended(turn: Turn, why_not_back: str) -> bool:
    """End a run; `why_not_back` says what kept its devices from going back, '' where they are."""
    run = turn.run
    kept = run.keep_composed and run.plan is not None
    sentence = ""
    if kept:
        sentence = (
            "Its devices stay with its sweep." if run.sweep_id else "Its devices stay attached, as was asked for."
        )
    if why_not_back:
        sentence = f"Its devices were not given back: {why_not_back}"
    with together():
        holds_release(run)
        turn.turn_to(
            State(run.outcome or State.FAILED),
            finished_at=timezone.now(),
            sentence=sentence,
            lease_until=None,
            worker="",
        )
        audit_record(
            action=Action.RUN_END,
            actor=run.requested_by,
            target=target_of(run, run.title),
            after={"state": run.state},
            outcome=Outcome.FAILED if run.state == State.FAILED else Outcome.DONE,
            sentence=" ".join(one for one in (run.error, sentence) if one),
            request_id=run.request_id,
        )
        _announce(run, sentence, went_well=run.state != State.FAILED and not why_not_back)
    return False


def _announce(run: Run, sentence: str, *, went_well: bool) -> None:
    state = run.get_state_display()
    event_record(
        source="site",
        message_id=f"FalconWeb.1.0.Run{state if went_well else 'Failed'}",
        severity="OK" if went_well else "Warning",
        text=" ".join(one for one in (f"{run.title}: {state.lower()}.", run.error, sentence) if one),
        at=timezone.now(),
        key=f"run/{run.pk}/{run.state_since.timestamp()}",
        host_id=run.host_id,
        tenant_id=run.tenant_id,
        subject_name=run.title,
        link=f"/benchmarks/runs/{run.pk}/",
        person_id=run.requested_by_id,
        person_name=run.requested_by_name,
    )
