"""A sweep's next step: start points, skip, complete, restore devices.

A step is taken by the worker that has claimed the sweep; all that it needs is in the database, so that any worker goes
on where one died.

All is read from the plans of its runs: nothing is kept in a process, so that one that dies takes nothing with it.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from accounts.audit.services import audit_batch
from accounts.models import User
from benchmarks.runs.models import Hold, Run
from benchmarks.runs.requests import RunRequest
from benchmarks.runs.rules import Composition
from benchmarks.runs.services import run_cancel, run_create
from benchmarks.sweeps.early_stopping import skip_dominated
from benchmarks.sweeps.expansion import composition_objection
from benchmarks.sweeps.grid import SweepGrid
from benchmarks.sweeps.models import Point, Sweep
from benchmarks.sweeps.services import lock_sweep, open_runs, with_newest_run
from core.claims import RowClaim, unclaimed
from core.errors import Conflict, FalconWebError, Forbidden, NotFound
from fabric.inventory.models import Device
from fabric.operations.models import Operation, Plan
from fabric.plans.jobs import plan_resume
from fabric.plans.rules import DesiredState
from fabric.plans.services import plan_apply, plan_create, rollback_state

logger = logging.getLogger(__name__)
POINT_RETRY_INTERVAL: Final = timedelta(seconds=5)  # until a point that could not begin is tried again
MAX_ATTEMPTS: Final = 5
MAX_CONSECUTIVE_FAILURES: Final = 5  # in a row: whatever it is, the next run would fail of it too
State = Sweep.State


def sweeps_due() -> list[str]:
    """Return the sweeps (ids) with something to do that nobody tends."""
    now = timezone.now()
    has_open = Exists(Run.objects.filter(sweep=OuterRef("pk")).exclude(state__in=Run.FINAL))
    rows = Sweep.objects.filter(Q(state=State.RUNNING) | Q(settled=False) | has_open)
    rows = rows.filter(unclaimed(now)).filter(Q(again_at=None) | Q(again_at__lte=now))
    return [str(pk) for pk in rows.order_by("created_at").values_list("pk", flat=True)]


class SweepClaim(RowClaim[Sweep]):
    """A worker's claim on a sweep, for one step."""

    duration = timedelta(seconds=60)
    related = ("requested_by", "requested_by__tenant")


def sweep_advance(pk: str, *, worker: str) -> None:
    """Take a sweep one step further, unless somebody else does."""
    claim = SweepClaim.take(Sweep.objects.all(), pk, worker)
    if claim is None:
        return
    try:
        _advance(claim.row)
    finally:
        claim.release()


def _advance(sweep: Sweep) -> None:
    running = list(open_runs(sweep))
    if running and sweep.settled:
        # Somebody ran a point of an ended sweep once more: what it brings is given back too.
        Sweep.objects.filter(pk=sweep.pk).update(settled=False)
        sweep.settled = False
    if sweep.state == State.HALTED:
        _cancel_remaining(sweep, running)
    if sweep.state == State.RUNNING:
        _continue_sweep(sweep, running)
    elif not running and not sweep.settled:
        restore_devices(sweep)


def _continue_sweep(sweep: Sweep, running: list[Run]) -> None:
    person = sweep.requested_by
    if person is None or not person.is_active or not person.may_compose:
        _pause(sweep, f"{sweep.requested_by_name} may not run anything any more: somebody else makes a sweep like it.")
        return
    if sweep.tenant_id is not None and person.tenant_id != sweep.tenant_id:
        # Whoever resumes it would have things run in the name, and before the eyes, of another tenant.
        _pause(sweep, f"{sweep.requested_by_name} left the tenant: somebody else makes a sweep like it.")
        return
    if failures := _consecutive_failures(sweep):
        _pause(sweep, f"The last {failures} runs failed, the newest with: {_last_error(sweep)} Mend that, then resume.")
        return
    if sweep.again_at is not None and sweep.again_at > timezone.now():
        return
    _mark_completed_points(sweep)
    grid = SweepGrid.from_json(sweep.grid)
    if grid.early is not None:
        skip_dominated(sweep, grid.early)
    waiting = list(Point.objects.filter(sweep=sweep, state=Point.State.WAITING))
    if not waiting and not running:
        _complete(sweep)
        return
    _start_points(sweep, person, grid, waiting, running)


def _start_points(sweep: Sweep, person: User, grid: SweepGrid, waiting: list[Point], running: list[Run]) -> None:
    """Begin as many points as there are hosts that none of the sweep's runs is on."""
    busy = [Composition.from_json(run.composition) for run in running]
    at_work = {run.position for run in running}
    for point in waiting:
        if len(busy) >= grid.at_once:
            return
        composition = Composition.from_json(point.composition)
        if point.position in at_work or any(_overlap(composition, other) for other in busy):
            continue
        if not _may_attach(sweep, composition, busy):
            return
        if _start_point(sweep, person, grid, point, composition):
            busy.append(composition)


def _overlap(one: Composition, other: Composition) -> bool:
    """Tell whether two runs are on one host, or take one device."""
    return one.host == other.host or bool(set(one.devices) & set(other.devices))


def _may_attach(sweep: Sweep, composition: Composition, busy: Iterable[Composition]) -> bool:
    """Tell whether a drawer's rules let a composition be, after what earlier runs left there is out of its way."""
    if not composition.devices or not composition_objection(composition):
        return True
    used = {device for other in busy for device in other.devices} | set(composition.devices)
    stale = set(moved_devices(sweep)) - used
    # With nothing of its own in the way the run is asked for, and says itself what it waits for.
    return not stale or restore_devices(sweep, stale)


def _start_point(sweep: Sweep, person: User, grid: SweepGrid, point: Point, composition: Composition) -> bool:
    """Ask for the run of a point; False where it could not be."""
    earlier = Run.objects.filter(sweep=sweep, position=point.position).order_by("-queued_at").first()
    try:
        with audit_batch():
            row = lock_sweep(sweep)
            if row.state != State.RUNNING:
                return False
            if not Point.objects.filter(pk=point.pk, state=Point.State.WAITING).update(
                state=Point.State.BEGUN, sentence="", attempts=0
            ):
                return False
            run_create(
                person=person,
                wanted=RunRequest(
                    spec=point.specification(),
                    composition=composition,
                    executor=grid.executor,
                    preset=grid.preset,
                    title=f"{sweep.title}, {point.position + 1}",
                    limit_seconds=grid.limit_seconds,
                    keep_composed=True,
                ),
                sweep_id=row.pk,
                position=point.position,
                point=point.values,
                repeat_of=earlier,
            )
            if composition.devices and row.settled:
                row.settled = False
                row.save(update_fields=["settled"])
    except FalconWebError as error:
        _record_start_failure(sweep, point, error)
        return False
    return True


def _record_start_failure(sweep: Sweep, point: Point, error: FalconWebError) -> None:
    """Note that a point could not begin: what may pass is tried again, the rest is skipped."""
    attempts = point.attempts + 1
    passes = error.retry_helps or isinstance(error, Conflict)
    if passes and attempts < MAX_ATTEMPTS:
        Point.objects.filter(pk=point.pk).update(attempts=attempts, sentence=f"Tried again: {error.sentence}")
        sweep.again_at = timezone.now() + POINT_RETRY_INTERVAL
        Sweep.objects.filter(pk=sweep.pk).update(again_at=sweep.again_at)
        return
    Point.objects.filter(pk=point.pk).update(
        state=Point.State.SKIPPED, attempts=attempts, sentence=f"It could not begin: {error.sentence}"
    )


def _mark_completed_points(sweep: Sweep) -> None:
    """Count points as begun whose run has completed although it was to be ended: it was quicker."""
    points = with_newest_run(Point.objects.filter(sweep=sweep, state=Point.State.WAITING))
    done = list(points.filter(run_state=Run.State.COMPLETED).values_list("pk", flat=True))
    Point.objects.filter(pk__in=done).update(state=Point.State.BEGUN)


def _complete(sweep: Sweep) -> None:
    """End a sweep of which nothing is left to run; its devices go back after that."""
    points = with_newest_run(Point.objects.filter(sweep=sweep))
    counts: dict[str, int] = {}
    for state, run_state in points.values_list("state", "run_state"):
        word = "skipped" if state == Point.State.SKIPPED else str(run_state)
        counts[word] = counts.get(word, 0) + 1
    sentence = ", ".join(f"{count} {word}" for word, count in sorted(counts.items())) + "."
    Sweep.objects.filter(pk=sweep.pk, state=State.RUNNING).update(
        state=State.COMPLETED, finished_at=timezone.now(), sentence=sentence
    )


def _pause(sweep: Sweep, sentence: str) -> None:
    Sweep.objects.filter(pk=sweep.pk, state=State.RUNNING).update(state=State.PAUSED, sentence=sentence)


def _cancel_remaining(sweep: Sweep, running: list[Run]) -> None:
    """End runs of a halted sweep that nobody has ended: who halted it may have died half-way."""
    person = sweep.requested_by
    for run in running:
        if person is not None and run.cancel_requested_at is None and run.state != Run.State.RETURNING:
            try:
                run_cancel(person=person, run=run)
            except FalconWebError as error:
                logger.info("sweep %s: %s", sweep.pk, error.sentence)


def _consecutive_failures(sweep: Sweep) -> int:
    """Return how many of the newest runs failed one after the other since the sweep was last resumed, if too many."""
    newest = Run.objects.filter(sweep=sweep, state__in=Run.FINAL, finished_at__gt=sweep.going_since)
    states = list(newest.exclude(state=Run.State.CANCELLED).order_by("-finished_at").values_list("state", flat=True))
    failures = list(itertools.takewhile(lambda state: state == Run.State.FAILED, states))
    return len(failures) if len(failures) >= MAX_CONSECUTIVE_FAILURES else 0


def _last_error(sweep: Sweep) -> str:
    last = Run.objects.filter(sweep=sweep, state=Run.State.FAILED).order_by("-finished_at").first()
    return (last.error if last is not None else "") or "no reason was told."


RESTORE_RETRY_INTERVAL: Final = timedelta(seconds=10)  # until giving back is tried again


@dataclass(frozen=True)
class MovedDevice:
    """Where a device was before the first run of a sweep took it, and where the newest of them wanted it."""

    origin: int | None
    wanted: int | None
    is_done: bool  # whether it came there


def moved_devices(sweep: Sweep) -> dict[int, MovedDevice]:
    """Return the devices that runs of a sweep moved since it last had given all back."""
    plans = Plan.objects.filter(pk__in=Run.objects.filter(sweep=sweep).values("plan")).exclude(applied_at=None)
    if sweep.settled_at is not None:
        plans = plans.filter(applied_at__gt=sweep.settled_at)
    found: dict[int, MovedDevice] = {}
    for plan in plans.order_by("applied_at"):
        wanted = DesiredState.from_json(plan.wanted).attachments
        done = set(
            plan.operations.filter(state=Operation.State.DONE, is_rollback=False).values_list("device", flat=True)
        )
        for device, origin in rollback_state(plan).attachments.items():
            before = found.get(device)
            found[device] = MovedDevice(origin if before is None else before.origin, wanted[device], device in done)
    return found


def devices_to_restore(sweep: Sweep, only: Collection[int] | None = None) -> dict[int, int | None]:
    """Return the devices that are still where runs of a sweep brought them, and the host ports that they came from.

    What somebody else has moved meanwhile is theirs. Of `only` these, unless None.
    """
    brought = moved_devices(sweep)
    if only is not None:
        brought = {pk: one for pk, one in brought.items() if pk in only}
    now = dict(Device.objects.filter(pk__in=brought, missing_since=None).values_list("pk", "host_port"))
    return {
        pk: one.origin
        for pk, one in brought.items()
        if pk in now and now[pk] != one.origin and (now[pk] == one.wanted or (now[pk] is None and not one.is_done))
    }


def restore_devices(sweep: Sweep, only: Collection[int] | None = None) -> bool:
    """Take the way back of a sweep, or of some of its devices, one step further; True once nothing is left to do.

    To be called again until then.
    """
    if sweep.again_at is not None and sweep.again_at > timezone.now():
        return False
    plan = Plan.objects.filter(pk=sweep.plan_back).first() if sweep.plan_back else None
    if plan is not None and not plan.is_final:
        _resume_stopped(sweep, plan)
        return False
    left = devices_to_restore(sweep, only)
    if plan is not None and plan.state in {Plan.State.LEFT, Plan.State.CANCELLED} and only is None and left:
        # A person decided that: it is not asked of the hardware again.
        _mark_settled(sweep, f"Somebody left {len(left)} devices where they are.")
        return True
    if not left:
        if only is None:
            _mark_settled(sweep, "")
        return True
    held = Hold.objects.filter(key__in=[f"device/{pk}" for pk in left]).select_related("run").first()
    if held is not None:
        _postpone(sweep, f"Gives its devices back as soon as ‘{held.run.title}’ has ended.")
        return False
    _start_restore_plan(sweep, left)
    return False


def _start_restore_plan(sweep: Sweep, left: dict[int, int | None]) -> None:
    """Begin the plan that brings devices back, in the name of who asked, else of the site: they may have left."""
    person = sweep.requested_by
    for by in ([person] if person is not None and person.may_compose else []) + [None]:
        try:
            with audit_batch():
                row = lock_sweep(sweep)
                plan = plan_create(
                    person=by,
                    wanted=DesiredState(attachments=left),
                    title=f"Give back: {sweep.title}"[:200],
                    origin="sweep",
                )
                plan = plan_apply(person=by, plan=plan)
                row.plan_back = plan.pk
                row.save(update_fields=["plan_back"])
        except (Forbidden, NotFound) as error:
            if by is not None:
                continue
            _postpone(sweep, f"Its devices cannot be given back yet: {error.sentence}")
        except FalconWebError as error:
            _postpone(sweep, f"Its devices cannot be given back yet: {error.sentence}")
        return


def _resume_stopped(sweep: Sweep, plan: Plan) -> None:
    """Have a plan go on that has stopped: whatever stood against it may be gone."""
    if plan.state != Plan.State.STOPPED:
        return
    _postpone(sweep, f"Giving its devices back has stopped, and is tried again: {plan.sentence}")
    try:
        plan_resume(person=None, plan=plan)
    except Conflict:
        return


def _postpone(sweep: Sweep, sentence: str) -> None:
    sweep.again_at = timezone.now() + RESTORE_RETRY_INTERVAL
    Sweep.objects.filter(pk=sweep.pk).update(again_at=sweep.again_at, note=sentence)


def _mark_settled(sweep: Sweep, sentence: str) -> None:
    now = timezone.now()
    Sweep.objects.filter(pk=sweep.pk).update(settled=True, settled_at=now, plan_back=None, again_at=None, note=sentence)
