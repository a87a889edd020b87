"""An applied plan: its progress, its steps, its log, and the actions that are available."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any, Final
from uuid import UUID

from django.utils import timezone
from django.utils.dateparse import parse_datetime

from accounts.models import User
from core.language import _, gettext_noop
from fabric.operations.models import Operation, Plan
from fabric.operations.projected_state import DrawerKey
from fabric.operations.selectors import (
    PROOF_UNREAD,
    DurationKey,
    DurationRange,
    longest_drawer_duration,
    usual_durations,
)
from fabric.plans.preview import DrawerQueue, drawer_names, drawer_queues, duration_label, predecessors_label
from fabric.plans.selectors import PlanEntry, PlanProgress, plan_entries, plan_progress


@dataclass(frozen=True, kw_only=True)
class JobStep:
    """A step of an applied plan; its parts, its error and its state in words say nothing of one that never began."""

    operation: Operation
    state_words: str
    seconds: float | None
    usually: str
    after: str
    error: str
    parts: tuple[Mapping[str, Any], ...]  # as the operation stores them, with their duration so far in `seconds`


# The states of an operation's own steps.
STEP_STATES: Final = {
    "waiting": gettext_noop("waiting"),
    "running": gettext_noop("running"),
    "done": gettext_noop("done"),
    "failed": gettext_noop("failed"),
    "skipped": gettext_noop("skipped"),
}
JobLane = tuple[str, tuple[JobStep, ...]]  # the name of a drawer, and the steps there
# Steps that were planned together, the first ones, those of a resume or those of the rollback: a title, and by drawer.
PlanRound = tuple[str, tuple[JobLane, ...]]


@dataclass(frozen=True)
class JobLogLine:
    at: datetime
    number: int
    what: str
    state: str
    sentence: str
    seconds: float | None


@dataclass(frozen=True, kw_only=True)
class PlanJob:
    progress: PlanProgress
    is_back: bool  # whether it is being rolled back, or stopped during the rollback
    may_undo: bool  # whether it has changed something that is still changed
    seconds: float | None  # from apply to end or stop
    usually: str
    rounds: tuple[PlanRound, ...]
    log: tuple[JobLogLine, ...]
    entries: tuple[PlanEntry, ...]
    running: tuple[str, ...]  # the steps that a worker has claimed
    waiting: int  # steps that are not started
    ahead: tuple[tuple[str, DrawerQueue], ...]  # the queues of its drawers ahead of this plan
    proofs: int
    proven: int  # steps verified to have changed no other link
    doubts: tuple[tuple[int, UUID, str], ...]  # number of a step, its operation, and the finding of its verification
    chassis: tuple[int, ...]

    @property
    def progress_label(self) -> str:
        """Return the progress in a few words, as the page announces it."""
        done, total = self.progress.done, self.progress.total
        if self.progress.back:
            return _("{done} of {total} steps of the rollback", done=done, total=total)
        return _("{done} of {total} steps", done=done, total=total)


def plan_job(person: User, plan: Plan) -> PlanJob:
    """Return an applied plan with its progress."""
    rows = list(plan.operations.select_related("proof").order_by("position"))
    kinds = {(row.kind, row.chassis_id) for row in rows}
    usual = usual_durations(kinds)
    places = list(dict.fromkeys((row.chassis_id, row.drawer_id) for row in rows))
    names = drawer_names(places)
    busy = drawer_queues(person, places, plan)
    proofs = [(row, row.proof) for row in rows if getattr(row, "proof", None) and not row.is_open]
    planned = [row for row in rows if (row.is_rollback, row.round) == (rows[-1].is_rollback, rows[-1].round)]
    progress = plan_progress(plan, Counter((row.is_rollback, row.round, row.state) for row in rows))
    return PlanJob(
        progress=progress,
        may_undo=plan.is_final and plan.state != Plan.State.ROLLED_BACK and any(row.attempts for row in rows),
        # A rollback that could not be planned has no step that shows it.
        is_back=progress.back or plan.sentence.startswith("The rollback"),
        seconds=_elapsed(plan, rows),
        usually=duration_label(
            longest_drawer_duration([((row.chassis_id, row.drawer_id), row.kind) for row in planned], usual)
        ),
        rounds=tuple(
            (
                _("Rollback") if rollback else _("Replanned steps") if number else _("Steps"),
                _lanes(group, names, usual),
            )
            for number, ((_round, rollback), group) in enumerate(
                groupby(rows, key=lambda row: (row.round, row.is_rollback))
            )
        ),
        log=_log(rows),
        entries=plan_entries(person, plan),
        running=tuple(row.summary for row in rows if row.is_open and row.state != Operation.State.REQUESTED),
        waiting=len([row for row in rows if row.state == Operation.State.REQUESTED]),
        ahead=tuple((names[place], ahead) for place, ahead in busy.items()),
        proofs=len(proofs),
        proven=len([1 for _row, proof in proofs if proof.untouched]),
        doubts=tuple(
            (row.position, row.pk, _(proof.sentence or PROOF_UNREAD)) for row, proof in proofs if not proof.untouched
        ),
        chassis=tuple(sorted({row.chassis_id for row in rows})),
    )


def _lanes(
    rows: Iterable[Operation], names: Mapping[DrawerKey, str], usual: Mapping[DurationKey, DurationRange]
) -> tuple[JobLane, ...]:
    lanes: dict[DrawerKey, list[JobStep]] = defaultdict(list)
    for row in rows:
        lanes[row.chassis_id, row.drawer_id].append(_step(row, usual.get((row.kind, row.chassis_id))))
    return tuple((names[place], tuple(steps)) for place, steps in lanes.items())


def _step(row: Operation, usually: DurationRange | None) -> JobStep:
    begun = row.started_at is not None
    return JobStep(
        operation=row,
        state_words=_("Not started")
        if row.state == Operation.State.CANCELLED and not begun
        else row.get_state_display(),
        seconds=_seconds(row.started_at, row.finished_at),
        usually=usually.words if usually is not None else "",
        after=predecessors_label(row.after),
        # The reason why the rest was not started is shown once, where the plan stopped.
        error=row.error if begun else "",
        parts=tuple(_step_part(step, row) for step in row.steps) if begun else (),
    )


def _step_part(part: Mapping[str, Any], row: Operation) -> Mapping[str, Any]:
    seconds = _seconds(parse_datetime(part["started_at"] or ""), parse_datetime(part["finished_at"] or ""))
    return {
        **part,
        "state_words": _(STEP_STATES.get(part["state"], part["state"])),
        "seconds": seconds,
        "sentence": part["sentence"] if part["sentence"] != row.error else "",
    }


def _log(rows: Sequence[Operation]) -> tuple[JobLogLine, ...]:
    """Return all parts of all started steps, in the order of time."""
    lines = []
    for row in rows:
        for step in row.steps:
            begun, ended = (parse_datetime(step[name] or "") for name in ("started_at", "finished_at"))
            if begun is None:
                continue
            seconds = _seconds(begun, ended) if ended else None
            lines.append(JobLogLine(begun, row.position, _(step["name"]), step["state"], _(step["sentence"]), seconds))
        if row.finished_at is not None and row.started_at is not None:
            words = f"{row.get_state_display()}: {row.summary}"
            seconds = _seconds(row.started_at, row.finished_at)
            lines.append(JobLogLine(row.finished_at, row.position, words, row.state, "", seconds))
    return tuple(sorted(lines, key=lambda line: line.at))


def _elapsed(plan: Plan, rows: Sequence[Operation]) -> float | None:
    if plan.applied_at is None:
        return None
    end = plan.finished_at
    if plan.state == Plan.State.STOPPED:
        end = max((row.finished_at for row in rows if row.finished_at is not None), default=plan.applied_at)
    return max(0.0, ((end or timezone.now()) - plan.applied_at).total_seconds())


def _seconds(begin: datetime | None, end: datetime | None) -> float | None:
    return None if begin is None else max(0.0, ((end or timezone.now()) - begin).total_seconds())
