"""What sweeps do by themselves: begin the next runs, skip what is not worth running, end, give devices back.

A step is taken by whoever holds the sweep's lease; all that it needs is in the database, so that any worker goes on
where one died.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from accounts.audit.services import together
from accounts.models import User
from benchmarks.runs.composition import Composition
from benchmarks.runs.models import Run
from benchmarks.runs.services import run_cancel, run_create
from benchmarks.sweeps.giving_back import brought_by, give_back
from benchmarks.sweeps.grid import Grid
from benchmarks.sweeps.models import Point, Sweep
from benchmarks.sweeps.seen import objection_to
from benchmarks.sweeps.services import lock_sweep, open_runs, with_newest_run
from benchmarks.sweeps.skipping import skip_beaten
from falconweb.errors import Conflict, FalconWebError

logger = logging.getLogger(__name__)
LEASE: Final = timedelta(seconds=60)
AGAIN: Final = timedelta(seconds=5)  # until a point that could not begin is tried again
MOST_ATTEMPTS: Final = 5
MOST_FAILURES: Final = 5  # in a row: whatever it is, the next run would fail of it too
State = Sweep.State


def sweeps_due() -> list[str]:
    """Return the sweeps (ids) with something to do that nobody tends."""
    now = timezone.now()
    has_open = Exists(Run.objects.filter(sweep=OuterRef("pk")).exclude(state__in=Run.FINAL))
    rows = Sweep.objects.filter(Q(state=State.RUNNING) | Q(settled=False) | has_open)
    rows = rows.filter(Q(lease_until=None) | Q(lease_until__lt=now)).filter(Q(again_at=None) | Q(again_at__lte=now))
    return [str(pk) for pk in rows.order_by("created_at").values_list("pk", flat=True)]


def sweep_advance(pk: str, *, worker: str) -> None:
    """Take a sweep one step further, unless somebody else does."""
    now = timezone.now()
    free = Sweep.objects.filter(pk=pk).filter(Q(lease_until=None) | Q(lease_until__lt=now))
    if not free.update(worker=worker, lease_until=now + LEASE):
        return
    try:
        sweep = Sweep.objects.select_related("requested_by", "requested_by__tenant").filter(pk=pk).first()
        if sweep is not None:  # nobody has deleted it meanwhile
            _advance(sweep)
    finally:
        Sweep.objects.filter(pk=pk, worker=worker).update(worker="", lease_until=None)


def _advance(sweep: Sweep) -> None:
    running = list(open_runs(sweep))
    if running and sweep.settled:
        # Somebody ran a point of an ended sweep once more: what it brings is given back too.
        Sweep.objects.filter(pk=sweep.pk).update(settled=False)
        sweep.settled = False
    if sweep.state == State.HALTED:
        _end_rest(sweep, running)
    if sweep.state == State.RUNNING:
        _go_on(sweep, running)
    elif not running and not sweep.settled:
        give_back(sweep)


def _go_on(sweep: Sweep, running: list[Run]) -> None:
    person = sweep.requested_by
    if person is None or not person.is_active or not person.may_compose:
        _pause(sweep, f"{sweep.requested_by_name} may not run anything any more: somebody else makes a sweep like it.")
        return
    if sweep.tenant_id is not None and person.tenant_id != sweep.tenant_id:
        # Whoever resumes it would have things run in the name, and before the eyes, of another tenant.
        _pause(sweep, f"{sweep.requested_by_name} left the tenant: somebody else makes a sweep like it.")
        return
    if failures := _failures_in_a_row(sweep):
        _pause(sweep, f"The last {failures} runs failed, the newest with: {_last_error(sweep)} Mend that, then resume.")
        return
    if sweep.again_at is not None and sweep.again_at > timezone.now():
        return
    _note_ended(sweep)
    grid = Grid.from_json(sweep.grid)
    if grid.early is not None:
        skip_beaten(sweep, grid.early)
    waiting = list(Point.objects.filter(sweep=sweep, state=Point.State.WAITING))
    if not waiting and not running:
        _complete(sweep)
        return
    _begin_next(sweep, person, grid, waiting, running)


def _begin_next(sweep: Sweep, person: User, grid: Grid, waiting: list[Point], running: list[Run]) -> None:
    """Begin as many points as there are hosts that none of the sweep's runs is on."""
    busy = [Composition.from_json(run.composition) for run in running]
    at_work = {run.position for run in running}
    for point in waiting:
        if len(busy) >= grid.at_once:
            return
        composition = Composition.from_json(point.composition)
        if point.position in at_work or any(_meet(composition, other) for other in busy):
            continue
        if not _may_attach(sweep, composition, busy):
            return
        if _begin(sweep, person, grid, point, composition):
            busy.append(composition)


def _meet(one: Composition, other: Composition) -> bool:
    """Tell whether two runs are on one host, or take one device."""
    return one.host == other.host or bool(set(one.devices) & set(other.devices))


def _may_attach(sweep: Sweep, composition: Composition, busy: Iterable[Composition]) -> bool:
    """Tell whether a drawer's rules let a composition be, after what earlier runs left there is out of its way."""
    if not composition.devices or not objection_to(composition):
        return True
    used = {device for other in busy for device in other.devices} | set(composition.devices)
    stale = set(brought_by(sweep)) - used
    # With nothing of its own in the way the run is asked for, and says itself what it waits for.
    return not stale or give_back(sweep, stale)


def _begin(sweep: Sweep, person: User, grid: Grid, point: Point, composition: Composition) -> bool:
    """Ask for the run of a point; False where it could not be."""
    earlier = Run.objects.filter(sweep=sweep, position=point.position).order_by("-queued_at").first()
    try:
        with together():
            row = lock_sweep(sweep)
            if row.state != State.RUNNING:
                return False
            if not Point.objects.filter(pk=point.pk, state=Point.State.WAITING).update(
                state=Point.State.BEGUN, sentence="", attempts=0
            ):
                return False
            run_create(
                person=person,
                spec=point.specification(),
                composition=composition,
                executor=grid.executor,
                preset=grid.preset,
                title=f"{sweep.title}, {point.position + 1}",
                limit_seconds=grid.limit_seconds,
                keep_composed=True,
                sweep=row,
                position=point.position,
                point=point.values,
                repeat_of=earlier,
            )
            if composition.devices and row.settled:
                row.settled = False
                row.save(update_fields=["settled"])
    except FalconWebError as error:
        _could_not(sweep, point, error)
        return False
    return True


def _could_not(sweep: Sweep, point: Point, error: FalconWebError) -> None:
    """Note that a point could not begin: what may pass is tried again, the rest is skipped."""
    attempts = point.attempts + 1
    passes = error.retry_helps or isinstance(error, Conflict)
    if passes and attempts < MOST_ATTEMPTS:
        Point.objects.filter(pk=point.pk).update(attempts=attempts, sentence=f"Tried again: {error.sentence}")
        sweep.again_at = timezone.now() + AGAIN
        Sweep.objects.filter(pk=sweep.pk).update(again_at=sweep.again_at)
        return
    Point.objects.filter(pk=point.pk).update(
        state=Point.State.SKIPPED, attempts=attempts, sentence=f"It could not begin: {error.sentence}"
    )


def _note_ended(sweep: Sweep) -> None:
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


def _end_rest(sweep: Sweep, running: list[Run]) -> None:
    """End runs of a halted sweep that nobody has ended: who halted it may have died half-way."""
    person = sweep.requested_by
    for run in running:
        if person is not None and run.cancel_requested_at is None and run.state != Run.State.RETURNING:
            try:
                run_cancel(person=person, run=run)
            except FalconWebError as error:
                logger.info("sweep %s: %s", sweep.pk, error.sentence)


def _failures_in_a_row(sweep: Sweep) -> int:
    """Return how many of the newest runs failed one after the other since the sweep was last resumed, if too many."""
    newest = Run.objects.filter(sweep=sweep, state__in=Run.FINAL, finished_at__gt=sweep.going_since)
    states = list(newest.exclude(state=Run.State.CANCELLED).order_by("-finished_at").values_list("state", flat=True))
    failures = list(itertools.takewhile(lambda state: state == Run.State.FAILED, states))
    return len(failures) if len(failures) >= MOST_FAILURES else 0


def _last_error(sweep: Sweep) -> str:
    last = Run.objects.filter(sweep=sweep, state=Run.State.FAILED).order_by("-finished_at").first()
    return (last.error if last is not None else "") or "no reason was told."
