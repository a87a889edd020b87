"""Create, pause, resume, halt, retry and delete sweeps; their steps are in benchmarks.sweeps.scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final
from uuid import UUID

import msgspec
from django.db import IntegrityError, transaction
from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.utils import timezone

from accounts.access import require_composer
from accounts.audit.actions import Action
from accounts.audit.context import request_id
from accounts.audit.services import AuditedAction, Target, attempt, audited, target_of
from accounts.models import User
from benchmarks.runs.models import Run, run_changed
from benchmarks.runs.services import run_cancel, run_delete
from benchmarks.sweeps.expansion import ExpandedSweep, expand_sweep
from benchmarks.sweeps.grid import AXIS_LABELS, GridExpansion, SweepGrid, validated_grid, varied_axes
from benchmarks.sweeps.manifest import MAX_MANIFEST_LENGTH
from benchmarks.sweeps.models import Point, Sweep
from benchmarks.sweeps.placement import SweepPool
from benchmarks.workloads.catalogue import CATALOGUE
from core.enqueue import enqueue
from core.errors import Conflict, Forbidden, Invalid, NotFound
from core.idempotency import find_replayed, request_digest
from core.language import _, english, joined

MAX_TITLE_LENGTH: Final = 200
MAX_OPEN_SWEEPS: Final = 20  # sweeps of one person
State = Sweep.State


def sweep_create(
    *,
    person: User,
    grid: SweepGrid,
    title: str = "",
    manifest: str = "",
    idempotency_key: str = "",
    pool: SweepPool | None = None,
) -> Sweep:
    """Create a sweep; its first runs start within seconds. `manifest` is its source, without secrets.

    `pool` is what it may use of all that the person may compose, None for all of it.

    Raises Invalid with a sentence for each wrong field, and with the reasons if no point is left; Forbidden for
    read-only users, Conflict for too many open sweeps. The same person and key return the same sweep.
    """
    named = _clean_title(title)
    with attempt(Action.SWEEP_CREATE, actor=person, target=Target("sweep", name=named)) as act:
        require_composer(person, "run anything")
        digest = request_digest("sweep", grid.as_json(), title, manifest)
        if known := find_replayed(Sweep, person, idempotency_key, digest):
            return known
        if (
            Sweep.objects.filter(requested_by=person, state__in=[State.RUNNING, State.PAUSED]).count()
            >= MAX_OPEN_SWEEPS
        ):
            raise Conflict(
                _("You have {most} sweeps that have not ended. Halt some of them first.", most=MAX_OPEN_SWEEPS)
            )
        if len(manifest) > MAX_MANIFEST_LENGTH:
            raise Invalid(_("A manifest has at most {most:,} characters.", most=MAX_MANIFEST_LENGTH))
        grid = validated_grid(grid)
        expanded = expand_sweep(person, grid, pool)
        _refuse_empty(expanded.expansion)
        try:
            with act.change():
                sweep = _save_sweep(
                    person, grid, expanded, title=named or default_title(grid), manifest=manifest,
                    idempotency_key=idempotency_key, request_digest=digest,
                )  # fmt: skip
                act.target = target_of(sweep, sweep.title)
                act.after = {
                    "runs": len(expanded.points), "left out": expanded.expansion.left_out_count,
                    "workloads": list(grid.workload), "executor": grid.executor,
                }  # fmt: skip
                transaction.on_commit(partial(enqueue_advance, sweep.pk), robust=True)
        except IntegrityError:
            if known := find_replayed(Sweep, person, idempotency_key, digest):
                return known
            raise
    return sweep


def sweep_pause(*, person: User, sweep: Sweep) -> Sweep:
    """Pause a sweep: it starts no further run; running ones complete, then all devices are restored.

    Raises NotFound, Forbidden, and Conflict if it is not running.
    """
    with _changed_sweep(Action.SWEEP_PAUSE, person, sweep) as (act, row):
        if row.state != State.RUNNING:
            raise Conflict(_("Only a running sweep can be paused: it is '{state}'.", state=_state_word(row)))
        _set_state(row, State.PAUSED, f"{person.username} paused it. Running runs complete.")
        # Queued runs are cancelled and wait as points again: they would prevent the restoring of devices.
        waiting = list(open_runs(row).filter(state=Run.State.QUEUED))
        _cancel_runs(person, row, waiting)
        act.after = {"state": row.state, "cancelled": len(waiting)}
    return row


def sweep_resume(*, person: User, sweep: Sweep) -> Sweep:
    """Resume a paused or halted sweep; runs that were stopped by a halt are run again.

    Raises NotFound, Forbidden, and Conflict if it is neither.
    """
    with _changed_sweep(Action.SWEEP_RESUME, person, sweep) as (act, row):
        if row.state not in {State.PAUSED, State.HALTED}:
            raise Conflict(_("Only a paused or halted sweep can be resumed: it is '{state}'.", state=_state_word(row)))
        _set_state(row, State.RUNNING, "")
        act.after = {"state": row.state}
    return row


def sweep_halt(*, person: User, sweep: Sweep) -> Sweep:
    """Halt a sweep: all its runs are stopped, no further one starts, then all devices are restored. It can be resumed.

    Raises NotFound, Forbidden, and Conflict if it has ended.
    """
    with _changed_sweep(Action.SWEEP_HALT, person, sweep) as (act, row):
        if row.state not in {State.RUNNING, State.PAUSED}:
            raise Conflict(_("There is nothing to halt: the sweep is '{state}'.", state=_state_word(row)))
        _set_state(row, State.HALTED, f"{person.username} halted it.")
        ended = list(open_runs(row))
        _cancel_runs(person, row, ended)
        act.after = {"state": row.state, "cancelled": len(ended)}
    return row


def sweep_retry(*, person: User, sweep: Sweep) -> Sweep:
    """Set points that failed, were cancelled or could not start to waiting again, and continue the sweep.

    A paused sweep stays paused: they run when it is resumed. Raises NotFound, Forbidden, and Conflict without such
    points.
    """
    with _changed_sweep(Action.SWEEP_RETRY, person, sweep) as (act, row):
        points = failed_points(row)
        if not (number := points.update(state=Point.State.WAITING, sentence="", attempts=0)):
            raise Conflict(_("No run of it has failed."))
        if row.state != State.PAUSED:
            _set_state(row, State.RUNNING, "")
        act.after = {"state": row.state, "runs": number}
    return row


def sweep_delete(*, person: User, sweep: Sweep, runs: bool = False) -> None:
    """Delete a sweep with its points; its runs stay as separate runs, or with `runs` are deleted too: all, or nothing.

    Raises NotFound, Forbidden (with `runs` also for runs of others), and Conflict if it has not ended.
    """
    with _locked_sweep(Action.SWEEP_DELETE, person, sweep) as (act, row):
        if reason := why_not_delete(row):
            raise Conflict(reason)
        if runs and (others := runs_of_others(person, row)):
            raise Forbidden(
                _(
                    "Others requested {count} of its runs: only they, or an administrator, may delete those. "
                    "Delete the sweep without its runs.",
                    count=others,
                )
            )
        of_it = list(Run.objects.filter(sweep=row))
        if runs:
            for run in of_it:
                run_delete(person=person, run=run)
        act.before = {**(act.before or {}), "runs": len(of_it), "deleted": len(of_it) if runs else 0}
        row.delete()


def why_not_delete(sweep: Sweep) -> str:
    """Return the reason why a sweep cannot be deleted, '' if it can."""
    if sweep.state in {State.RUNNING, State.PAUSED}:
        return _("It has not ended. Halt it first.")
    if open_runs(sweep).exists():
        return _("Not all of its runs have ended. Cancel them, or wait for their end.")
    return "" if sweep.settled else _("Its devices are not back yet. Wait until they are.")


def runs_of_others(person: User, sweep: Sweep) -> int:
    """Return the number of a sweep's runs that the person may not delete."""
    if person.is_administrator:
        return 0
    return Run.objects.filter(sweep=sweep).exclude(requested_by=person).count()


def open_runs(sweep: Sweep) -> QuerySet[Run]:
    """Return the runs of a sweep that have not ended."""
    return Run.objects.filter(sweep=sweep).open().order_by("position", "queued_at")


def with_newest_run(points: QuerySet[Point]) -> QuerySet[Any]:
    """Return points with the state of their newest run as `run_state`; None without one."""
    newest = Run.objects.filter(sweep=OuterRef("sweep"), position=OuterRef("position")).order_by("-queued_at", "-pk")
    return points.annotate(run_state=Subquery(newest.values("state")[:1]))


def failed_points(sweep: Sweep) -> QuerySet[Point]:
    """Return the points of a sweep whose newest run failed or was cancelled, or that could not start."""
    ended = Q(state=Point.State.BEGUN, run_state__in=[Run.State.FAILED, Run.State.CANCELLED])
    refused = Q(state=Point.State.SKIPPED, attempts__gt=0)
    points = with_newest_run(Point.objects.filter(sweep=sweep)).filter(ended | refused)
    return Point.objects.filter(pk__in=list(points.values_list("pk", flat=True)))


def enqueue_advance(sweep_id: UUID) -> None:
    """Enqueue a step of a sweep; to be called after commit."""
    # An unreachable broker loses nothing: beat enqueues it again.
    enqueue("sweeps.advance", str(sweep_id))


def lock_sweep(sweep: Sweep) -> Sweep:
    """Lock a sweep and return it; raises NotFound."""
    row = sweep.locked()
    if row is None:
        raise NotFound(_("There is no such sweep."))
    return row


@contextmanager
def _changed_sweep(action: Action, person: User, sweep: Sweep) -> Iterator[tuple[AuditedAction, Sweep]]:
    """Change a locked sweep in a person's name, as `_locked_sweep`, and enqueue its next step."""
    with _locked_sweep(action, person, sweep) as (act, row):
        yield act, row
        transaction.on_commit(partial(enqueue_advance, row.pk), robust=True)


@contextmanager
def _locked_sweep(action: Action, person: User, sweep: Sweep) -> Iterator[tuple[AuditedAction, Sweep]]:
    """Lock a sweep in a person's name, with an entry in the audit log. Raises NotFound, Forbidden."""
    with audited(action, actor=person, target=target_of(sweep, sweep.title)) as act:
        if not Sweep.objects.visible_to(person).filter(pk=sweep.pk).exists():
            raise NotFound(_("There is no such sweep."))
        require_composer(person)
        row = lock_sweep(sweep)
        act.before = {"state": row.state}
        yield act, row


def _state_word(row: Sweep) -> str:
    """Return its state within a sentence."""
    words = {
        State.RUNNING: _("running"),
        State.PAUSED: _("paused"),
        State.HALTED: _("halted"),
        State.COMPLETED: _("completed"),
    }
    return words[State(row.state)]


def _set_state(row: Sweep, state: Sweep.State, sentence: str) -> None:
    row.state, row.sentence, row.again_at = state, sentence, None
    row.finished_at = timezone.now() if state == State.HALTED else None
    if state == State.RUNNING:
        row.going_since = timezone.now()
    row.save(update_fields=["state", "sentence", "again_at", "finished_at", "going_since"])


def _cancel_runs(person: User, row: Sweep, runs: list[Run]) -> None:
    """Cancel runs; their points wait again until the sweep is resumed."""
    for run in runs:
        try:
            run_cancel(person=person, run=run)
        except Conflict:
            continue  # it has just ended, or is being cancelled already
    Point.objects.filter(sweep=row, position__in=[run.position for run in runs]).update(
        state=Point.State.WAITING, sentence=""
    )


def _save_sweep(person: User, grid: SweepGrid, expanded: ExpandedSweep, **more: str) -> Sweep:
    sweep = Sweep.objects.create(
        grid=grid.as_json(),
        requested_by=person,
        requested_by_name=person.username,
        tenant=person.tenant,
        request_id=request_id(),
        left_out=[{"values": one.values, "why": english(one.why)} for one in expanded.expansion.left_out],
        left_out_count=expanded.expansion.left_out_count,
        moves=expanded.cost.moves,
        compositions=expanded.cost.compositions,
        **more,
    )
    Point.objects.bulk_create(
        Point(
            sweep=sweep,
            position=position,
            values=one.point.values,
            spec=msgspec.to_builtins(one.point.spec),
            composition=one.point.composition.as_stored(),
            predicted=one.stored_prediction(),
        )
        for position, one in enumerate(expanded.points)
    )
    return sweep


def default_title(grid: SweepGrid) -> str:
    """Return the title of a sweep without a title of its own: 'ResNet-50 by batch and devices'."""
    titles = [CATALOGUE[name].title for name in grid.workload]
    what = titles[0] if len(titles) == 1 else f"{len(titles)} workloads"
    axes = [AXIS_LABELS[axis].lower() for axis in varied_axes(grid) if axis != "workload"]
    by = f" by {', '.join(axes[:-1])}{' and ' if len(axes) > 1 else ''}{axes[-1]}" if axes else ""
    return f"{what}{by}"[:MAX_TITLE_LENGTH]


def _refuse_empty(expansion: GridExpansion) -> None:
    if not expansion.points:
        reasons: list[dict[str, Any]] = [{"why": why, "count": count} for why, count in expansion.reasons[:10]]
        sentence = joined(
            [
                _(
                    "Nothing is left to run: each of {count} combinations is left out.",
                    count=expansion.left_out_count,
                ),
                *(one["why"] for one in reasons[:1]),
            ]
        )
        raise Invalid(sentence, errors={"grid": sentence}, left_out=reasons)


def _clean_title(title: str) -> str:
    """Return a title as stored: one line, without unprintable characters."""
    shown = " ".join("".join(one if one.isprintable() else " " for one in title).split())
    return shown[:MAX_TITLE_LENGTH]


def on_run_changed(sender: Any, run: Run, **_: Any) -> None:
    """Enqueue a step of the sweep of an ended run."""
    if run.sweep_id is not None and not run.is_open:
        enqueue_advance(run.sweep_id)


run_changed.connect(on_run_changed, dispatch_uid="benchmarks.sweeps")
