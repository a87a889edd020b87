"""Advances runs: starts those that are due, and continues each by short steps that any worker may take.

A step never waits for the end of a run: beat schedules the next one a second later. So no thread is occupied for
hours, however many runs there are, and a dead worker leaves only a claim that expires: another takes the next step.
Steps are idempotent: the agent identifies a run by its id, events and log are read from stored offsets, and a plan is
created and recorded in one transaction.
"""

from __future__ import annotations

import logging
from typing import Final

import msgspec
from django.db import DatabaseError, InterfaceError, OperationalError, transaction
from django.utils import timezone

from benchmarks.runs import execution
from benchmarks.runs.attachment import attach_devices, restore_devices
from benchmarks.runs.claims import RunClaim, RunFailed, holds_acquire, queue_status
from benchmarks.runs.foreign_load import BUSY_KEY, foreign_overlaps
from benchmarks.runs.isolation import run_overlaps
from benchmarks.runs.models import Run, run_changed
from benchmarks.runs.results import summarise, traffic_record
from core.claims import ClaimLost, unclaimed
from core.database import CompiledQuery
from core.errors import FalconWebError
from core.failpoints import failpoint

logger = logging.getLogger(__name__)

SITE_ERROR = "An internal error stopped it; see the log of the worker."
MAX_STEPS = 8  # of one task
State = Run.State
# Asked for each second, and mostly there is none.
OPEN_RUN: Final = CompiledQuery(lambda: Run.objects.open().order_by().values_list("pk")[:1])


def runs_schedule() -> list[str]:
    """Start the queued runs that are due, and return the ids of open runs that no worker has claimed."""
    if not OPEN_RUN.rows(*Run.FINAL):
        return []
    _start_queued()
    due = Run.objects.open().exclude(state=State.QUEUED).filter(unclaimed())
    return [str(pk) for pk in due.order_by("queued_at").values_list("pk", flat=True)]


def run_advance(run_id: str, *, worker: str) -> None:
    """Advance a run by up to MAX_STEPS; does nothing if it has ended, or another worker has claimed it.

    Failures of the run are recorded, not raised. Database errors are raised: the claim expires, and another worker
    continues.
    """
    claim = RunClaim.claim(run_id, worker)
    if claim is None:
        return
    try:
        failpoint("run.claimed")
        for _ in range(MAX_STEPS):
            if not _advance_once(claim):
                break
            claim.refresh_cancellation()
    except ClaimLost:
        logger.warning("run %s: another worker has claimed it", run_id)
    finally:
        claim.release()


def _advance_once(claim: RunClaim) -> bool:
    """Take the next step of a run; return whether another step can follow immediately."""
    try:
        match claim.run.state:
            case State.COMPOSING:
                return attach_devices(claim)
            case State.STARTING:
                return execution.start_on_hosts(claim)
            case State.RUNNING | State.STOPPING:
                return execution.poll_hosts(claim)
            case State.RETURNING:
                _collect_results(claim)
                return restore_devices(claim)
            case _:
                return False
    except RunFailed as error:
        execution.end_on_all_hosts(claim)
        claim.record_outcome(State.FAILED, trouble=error.trouble, sentence=error.sentence)
        return True
    except (ClaimLost, DatabaseError):
        raise
    except FalconWebError as error:
        logger.warning("run %s: %s", claim.run.pk, error.sentence)
        return _fail_run(claim, error.sentence)
    except Exception:
        logger.exception("run %s", claim.run.pk)
        return _fail_run(claim, SITE_ERROR)


def _collect_results(claim: RunClaim) -> None:
    """Record the results of a run that has ended on its host, once, and delete it there."""
    if claim.run.started_at is None or "readings" in claim.run.results:
        return
    try:
        traffic_record(claim.run)
        overlaps = [*run_overlaps(claim.run), *foreign_overlaps(claim.run)]
        claim.write(
            results=msgspec.to_builtins(summarise(claim.run)),
            overlaps=msgspec.to_builtins(overlaps),
            source={name: value for name, value in claim.run.source.items() if name != BUSY_KEY},
        )
        failpoint("run.results.stored")
    except (ClaimLost, OperationalError, InterfaceError):
        raise
    except Exception:
        # An error in the results must not delay the restoring of devices.
        logger.exception("run %s: results", claim.run.pk)
        claim.write(results={**claim.run.results, "readings": {}})
    if claim.run.trouble != "lost":
        execution.delete_from_hosts(claim)


def _fail_run(claim: RunClaim, sentence: str) -> bool:
    """Fail a run on an internal error; one whose devices are being restored is retried."""
    if claim.run.state == State.RETURNING:
        claim.set_sentence(f"Its devices are not back yet: {sentence}")
        return False
    try:
        execution.end_on_all_hosts(claim)
    except (ClaimLost, DatabaseError):
        raise
    except Exception:
        # What remains ends as an orphan.
        logger.exception("run %s: its end on its hosts", claim.run.pk)
    claim.record_outcome(State.FAILED, trouble="lost", sentence=sentence)
    return True


def _start_queued() -> None:
    """Acquire devices for the runs that are due, and record what the others wait for."""
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
            # It was cancelled meanwhile.
            if not mine.update(state=State.COMPOSING, begun_at=now, state_since=now, sentence=""):
                transaction.set_rollback(True)
                continue
            failpoint("run.held.uncommitted")
        failpoint("run.held")
        run.refresh_from_db()
        run_changed.send(Run, run=run)
