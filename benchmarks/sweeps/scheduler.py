"""A sweep's next step: start points, skip, complete, restore devices.

A step is taken by the worker that has claimed the sweep. All state is in the database, and the devices to restore
follow from the plans of its runs, so that any worker can continue after another has died.
"""

from __future__ import annotations

import itertools
import logging
from collections import Counter
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
from core.claims import RowClaim, unclaimed, wait_is_over
from core.errors import Conflict, FalconWebError, Forbidden, NotFound
from fabric.inventory.models import Device
from fabric.operations.models import Operation, Plan
from fabric.plans.jobs import plan_resume
from fabric.plans.rules import DesiredState
from fabric.plans.services import plan_apply, plan_create, rollback_state

logger = logging.getLogger(__name__)
POINT_RETRY_INTERVAL: Final = timedelta(seconds=5)  # until a point that could not start is retried
RESTORE_RETRY_INTERVAL: Final = timedelta(seconds=10)  # until restoring is retried
MAX_ATTEMPTS: Final = 5
MAX_CONSECUTIVE_FAILURES: Final = 5  # in a row: the next run would fail for the same reason
State = Sweep.State


def sweeps_due() -> list[str]:
    """Return the unclaimed sweeps (ids) with pending work."""
    now = timezone.now()
    has_open = Exists(Run.objects.filter(sweep=OuterRef("pk")).exclude(state__in=Run.FINAL))
    rows = Sweep.objects.filter(Q(state=State.RUNNING) | Q(settled=False) | has_open)
    rows = rows.filter(unclaimed(), wait_is_over("again_at", now, RESTORE_RETRY_INTERVAL))
    return [str(pk) for pk in rows.order_by("created_at").values_list("pk", flat=True)]


class SweepClaim(RowClaim[Sweep]):
    """A worker's claim on a sweep, for one step."""

    duration = timedelta(seconds=60)
    related = ("requested_by", "requested_by__tenant")


SweepClaim.watch(Sweep.objects.all)


def sweep_advance(pk: str, *, worker: str) -> None:
    """Advance a sweep by one step, unless another worker has claimed it."""
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
        # A point of an ended sweep was run again: its devices are restored, too.
        Sweep.objects.filter(pk=sweep.pk).update(settled=False)
        sweep.settled = False
    if sweep.state == State.HALTED:
        _cancel_remaining(sweep, running)
    if sweep.state == State.RUNNING:
        _continue_sweep(sweep, running)
    elif not running and not sweep.settled:
        restore_devices(sweep)


def _is_waiting(sweep: Sweep) -> bool:
    """Return whether the next try is later; never where it would be so because the clock was set back."""
    left = sweep.again_at - timezone.now() if sweep.again_at is not None else timedelta()
    return timedelta() < left <= RESTORE_RETRY_INTERVAL


def _continue_sweep(sweep: Sweep, running: list[Run]) -> None:
    person = sweep.requested_by
    if person is None or not person.is_active or not person.may_compose:
        _pause(sweep, f"{sweep.requested_by_name} may no longer run anything. Another user can create a sweep like it.")
        return
    if sweep.tenant_id is not None and person.tenant_id != sweep.tenant_id:
        # Resuming it would run in the name of, and be visible to, another tenant.
        _pause(sweep, f"{sweep.requested_by_name} left the tenant. Another user can create a sweep like it.")
        return
    if failures := _consecutive_failures(sweep):
        _pause(
            sweep, f"The last {failures} runs failed, the newest with: {_last_error(sweep)} Fix the cause, then resume."
        )
        return
    if _is_waiting(sweep):
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
    """Start a point on each host without a run of the sweep."""
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
    """Return whether two runs share a host or a device."""
    return one.host == other.host or bool(set(one.devices) & set(other.devices))


def _may_attach(sweep: Sweep, composition: Composition, busy: Iterable[Composition]) -> bool:
    """Return whether a drawer's rules allow a composition once the devices of earlier runs are detached."""
    if not composition.devices or not composition_objection(composition):
        return True
    used = {device for other in busy for device in other.devices} | set(composition.devices)
    stale = set(moved_devices(sweep)) - used
    # Without a conflict within the sweep the run is queued, and reports itself what it waits for.
    return not stale or restore_devices(sweep, stale)


def _start_point(sweep: Sweep, person: User, grid: SweepGrid, point: Point, composition: Composition) -> bool:
    """Create the run of a point; False if it was refused."""
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
                request=RunRequest(
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
    """Record that a point could not start: a temporary failure is retried, otherwise the point is skipped."""
    attempts = point.attempts + 1
    passes = error.retry_helps or isinstance(error, Conflict)
    if passes and attempts < MAX_ATTEMPTS:
        Point.objects.filter(pk=point.pk).update(attempts=attempts, sentence=f"Retrying: {error.sentence}")
        sweep.again_at = timezone.now() + POINT_RETRY_INTERVAL
        Sweep.objects.filter(pk=sweep.pk).update(again_at=sweep.again_at)
        return
    Point.objects.filter(pk=point.pk).update(
        state=Point.State.SKIPPED, attempts=attempts, sentence=f"It could not start: {error.sentence}"
    )


def _mark_completed_points(sweep: Sweep) -> None:
    """Mark points as begun whose run completed before it could be stopped."""
    points = with_newest_run(Point.objects.filter(sweep=sweep, state=Point.State.WAITING))
    done = list(points.filter(run_state=Run.State.COMPLETED).values_list("pk", flat=True))
    Point.objects.filter(pk__in=done).update(state=Point.State.BEGUN)


def _complete(sweep: Sweep) -> None:
    """Complete a sweep without remaining points; its devices are restored after that."""
    points = with_newest_run(Point.objects.filter(sweep=sweep))
    counts = Counter(
        "skipped" if state == Point.State.SKIPPED else str(run_state)
        for state, run_state in points.values_list("state", "run_state")
    )
    sentence = ", ".join(f"{count} {word}" for word, count in sorted(counts.items())) + "."
    Sweep.objects.filter(pk=sweep.pk, state=State.RUNNING).update(
        state=State.COMPLETED, finished_at=timezone.now(), sentence=sentence
    )


def _pause(sweep: Sweep, sentence: str) -> None:
    Sweep.objects.filter(pk=sweep.pk, state=State.RUNNING).update(state=State.PAUSED, sentence=sentence)


def _cancel_remaining(sweep: Sweep, running: list[Run]) -> None:
    """Stop remaining runs of a halted sweep, in case the halting process died halfway."""
    person = sweep.requested_by
    for run in running:
        if person is not None and run.cancel_requested_at is None and run.state != Run.State.RETURNING:
            try:
                run_cancel(person=person, run=run)
            except FalconWebError as error:
                logger.info("sweep %s: %s", sweep.pk, error.sentence)


def _consecutive_failures(sweep: Sweep) -> int:
    """Return the number of consecutive failures since the sweep was last resumed, 0 below the limit."""
    newest = Run.objects.filter(sweep=sweep, state__in=Run.FINAL, finished_at__gt=sweep.going_since)
    states = list(newest.exclude(state=Run.State.CANCELLED).order_by("-finished_at").values_list("state", flat=True))
    failures = list(itertools.takewhile(lambda state: state == Run.State.FAILED, states))
    return len(failures) if len(failures) >= MAX_CONSECUTIVE_FAILURES else 0


def _last_error(sweep: Sweep) -> str:
    last = Run.objects.filter(sweep=sweep, state=Run.State.FAILED).order_by("-finished_at").first()
    return (last.error if last is not None else "") or "no reason was given."


@dataclass(frozen=True)
class MovedDevice:
    """The attachment of a device before the first run of a sweep, and that requested by the newest run."""

    origin: int | None
    wanted: int | None
    is_done: bool  # whether the request was carried out


def moved_devices(sweep: Sweep) -> dict[int, MovedDevice]:
    """Return the devices that runs of a sweep moved since it last restored all."""
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
    """Return the devices that are still where runs of a sweep attached them, with their original host ports.

    Devices that were moved by others meanwhile are left out. Of `only` these, unless None.
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
    """Take the next step of restoring the devices of a sweep, or `only` some; True once all is done.

    To be called again until then.
    """
    if _is_waiting(sweep):
        return False
    plan = Plan.objects.filter(pk=sweep.plan_back).first() if sweep.plan_back else None
    if plan is not None and not plan.is_final:
        _resume_stopped(sweep, plan)
        return False
    left = devices_to_restore(sweep, only)
    if plan is not None and plan.state in {Plan.State.LEFT, Plan.State.CANCELLED} and only is None and left:
        # A person decided that, so it is not retried.
        _mark_settled(sweep, f"{len(left)} devices were left attached by a user's decision.")
        return True
    if not left:
        if only is None:
            _mark_settled(sweep, "")
        return True
    held = Hold.objects.filter(key__in=[f"device/{pk}" for pk in left]).select_related("run").first()
    if held is not None:
        _postpone(sweep, f"Its devices are returned as soon as ‘{held.run.title}’ has ended.")
        return False
    _start_restore_plan(sweep, left)
    return False


def _start_restore_plan(sweep: Sweep, left: dict[int, int | None]) -> None:
    """Start the plan that restores devices, as the requester, or as the site if they are no longer permitted."""
    person = sweep.requested_by
    for by in ([person] if person is not None and person.may_compose else []) + [None]:
        try:
            with audit_batch():
                row = lock_sweep(sweep)
                plan = plan_create(
                    person=by,
                    desired=DesiredState(attachments=left),
                    title=f"Return devices: {sweep.title}"[:200],
                    origin="sweep",
                )
                plan = plan_apply(person=by, plan=plan)
                row.plan_back = plan.pk
                row.save(update_fields=["plan_back"])
        except (Forbidden, NotFound) as error:
            if by is not None:
                continue
            _postpone(sweep, f"Its devices cannot be returned yet: {error.sentence}")
        except FalconWebError as error:
            _postpone(sweep, f"Its devices cannot be returned yet: {error.sentence}")
        return


def _resume_stopped(sweep: Sweep, plan: Plan) -> None:
    """Resume a stopped plan, because the conflict may be resolved."""
    if plan.state != Plan.State.STOPPED:
        return
    _postpone(sweep, f"Returning its devices has stopped. Retrying: {plan.sentence}")
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
