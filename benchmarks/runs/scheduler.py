"""Runs on their way: whose turn it is begins, and each goes on by short steps that any worker may take.

A step never waits for the end of a run: a second later, beat asks for the next one. So no thread is taken for hours,
however many runs there are, and a worker that dies leaves nothing but a lease that runs out: another takes the next
step. All steps may be taken again: the agent knows a run by its id, events and log are read from where they are kept,
and plans are made and noted in one transaction.
"""

from __future__ import annotations

import logging

from django.db import DatabaseError, InterfaceError, OperationalError, transaction
from django.utils import timezone

from benchmarks.runs import execution
from benchmarks.runs.attachment import attach_devices, has_results, record_results, restore_devices
from benchmarks.runs.claims import RunClaim, RunFailed, holds_acquire, queue_status
from benchmarks.runs.models import Run, run_changed
from core.claims import ClaimLost, unclaimed
from core.errors import FalconWebError

logger = logging.getLogger(__name__)

SITE_ERROR = "An error of the site stopped it; the log of the worker says which."
MAX_STEPS = 8  # at a time
State = Run.State


def runs_schedule() -> list[str]:
    """Begin the runs whose turn it is, and return the ids of those that a worker should take a step of."""
    _start_queued()
    now = timezone.now()
    due = Run.objects.open().exclude(state=State.QUEUED).filter(unclaimed(now))
    return [str(pk) for pk in due.order_by("queued_at").values_list("pk", flat=True)]


def run_advance(run_id: str, *, worker: str) -> None:
    """Take a run as far as it goes now; does nothing where it has ended, or another worker is at it.

    Nothing is raised for what goes wrong with the run: it ends as failed. An error of the database is: the claim runs
    out, and another worker goes on.
    """
    turn = RunClaim.claim(run_id, worker)
    if turn is None:
        return
    try:
        for _ in range(MAX_STEPS):
            if not _advance_once(turn):
                break
            turn.look()
    except ClaimLost:
        logger.warning("run %s: another worker has it", run_id)
    finally:
        turn.release()


def _advance_once(turn: RunClaim) -> bool:
    """Take the next step of a run; tell whether there is more to do at once."""
    try:
        match turn.run.state:
            case State.COMPOSING:
                return attach_devices(turn)
            case State.STARTING:
                return execution.start_on_host(turn)
            case State.RUNNING | State.STOPPING:
                return execution.poll_host(turn)
            case State.RETURNING:
                _collect_results(turn)
                return restore_devices(turn)
            case _:
                return False
    except RunFailed as error:
        turn.ends(State.FAILED, trouble=error.trouble, sentence=error.sentence)
        return True
    except (ClaimLost, DatabaseError):
        raise
    except FalconWebError as error:
        logger.warning("run %s: %s", turn.run.pk, error.sentence)
        return _fail_run(turn, error.sentence)
    except Exception:
        logger.exception("run %s", turn.run.pk)
        return _fail_run(turn, SITE_ERROR)


def _collect_results(turn: RunClaim) -> None:
    """Do, once, what is to be done when a run has left its host: its figures, and what the host may forget."""
    if has_results(turn.run):
        return
    try:
        record_results(turn)
    except (ClaimLost, OperationalError, InterfaceError):
        raise
    except Exception:
        # Its devices do not wait for whoever mends its figures.
        logger.exception("run %s: its figures", turn.run.pk)
        turn.write(results={**turn.run.results, "readings": {}})
    if turn.run.trouble != "lost":
        execution.delete_from_host(turn)


def _fail_run(turn: RunClaim, sentence: str) -> bool:
    """End a run that the site itself cannot go on with; one that is on its way back is tried again."""
    if turn.run.state == State.RETURNING:
        turn.say(f"Its devices are not back yet: {sentence}")
        return False
    turn.ends(State.FAILED, trouble="lost", sentence=sentence)
    return True


def _start_queued() -> None:
    """Give those their devices whose turn it is, and say of the others what they wait for."""
    for run, sentence in queue_status():
        mine = Run.objects.filter(pk=run.pk, state=State.QUEUED)
        if sentence:
            if sentence != run.sentence:
                mine.update(sentence=sentence)
            continue
        now = timezone.now()
        with transaction.atomic():
            if not holds_acquire(run):
                continue
            # Who cancelled it meanwhile was faster.
            if not mine.update(state=State.COMPOSING, begun_at=now, state_since=now, sentence=""):
                transaction.set_rollback(True)
                continue
        run.refresh_from_db()
        run_changed.send(Run, run=run)
