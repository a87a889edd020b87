"""One worker at a time has a row; one that lost it notices that before it writes."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest
from django.db.models import F
from django.utils import timezone

from benchmarks.runs.models import Run
from benchmarks.sweeps.models import Sweep
from core import claims
from core.claims import ClaimLost, ClaimWatcher, RowClaim, unclaimed, wait_is_over
from falconweb.celery import application

pytestmark = pytest.mark.django_db


class WorkerClaim(RowClaim[Sweep]):
    """A claim on a row that keeps its worker."""

    duration = timedelta(seconds=30)
    related = ("tenant",)


class AnonymousClaim(RowClaim[Sweep]):
    """A claim on a row that keeps no worker."""

    duration = timedelta(seconds=30)
    until_column = "again_at"
    worker_column = ""


@pytest.fixture
def sweep() -> Sweep:
    return Sweep.objects.create(title="Grid", moves=1)


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic clock, to be set."""
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    return clock


@pytest.fixture
def watcher(seconds: list[float], monkeypatch: pytest.MonkeyPatch) -> ClaimWatcher:
    """A watcher of the claims of these tests alone."""
    monkeypatch.setattr(claims, "WATCHED", [])
    WorkerClaim.watch(Sweep.objects.all)
    return ClaimWatcher()


def expire(sweep: Sweep) -> None:
    """Leave a dead worker's claim as a watcher does that has seen it for long enough."""
    Sweep.objects.filter(pk=sweep.pk).update(lease_until=None, again_at=None)


def take(sweep: Sweep, worker: str) -> WorkerClaim | None:
    return WorkerClaim.take(Sweep.objects.all(), sweep.pk, worker)


def test_of_two_workers_one_has_the_row(sweep: Sweep) -> None:
    first = take(sweep, "first")
    assert first is not None
    assert (first.row.worker, first.row.pk) == ("first", sweep.pk)
    assert take(sweep, "second") is None
    assert take(sweep, "first") is None
    assert not Sweep.objects.filter(unclaimed()).exists()


def test_a_claim_sets_values_with_it_and_takes_no_row_that_is_not_among_those_to_take(sweep: Sweep) -> None:
    assert WorkerClaim.take(Sweep.objects.filter(state="halted"), sweep.pk, "worker", moves=7) is None
    claim = WorkerClaim.take(Sweep.objects.all(), sweep.pk, "worker", moves=F("moves") + 1)
    assert claim is not None
    assert claim.row.moves == 2


def test_a_write_renews_the_claim_and_keeps_the_row_in_step(sweep: Sweep) -> None:
    claim = take(sweep, "worker")
    assert claim is not None
    expire(sweep)
    claim.write(note="half of it")
    assert claim.row.note == "half of it"
    assert take(sweep, "other") is None
    expire(sweep)
    assert claim.renew()
    assert take(sweep, "other") is None


def test_a_worker_whose_claim_another_one_took_writes_nothing_more(sweep: Sweep) -> None:
    claim = take(sweep, "dead")
    assert claim is not None
    expire(sweep)
    assert take(sweep, "next") is not None
    with pytest.raises(ClaimLost):
        claim.write(note="too late")
    assert not claim.renew()
    assert not claim.release(note="too late")
    assert claim.row.note == ""
    sweep.refresh_from_db()
    assert (sweep.worker, sweep.note) == ("next", "")
    sweep.delete()
    assert take(sweep, "other") is None


def test_a_released_row_can_be_claimed_at_once(sweep: Sweep) -> None:
    claim = take(sweep, "worker")
    assert claim is not None
    assert claim.release(note="done")
    sweep.refresh_from_db()
    assert (sweep.worker, sweep.lease_until, sweep.note) == ("", None, "done")
    assert take(sweep, "other") is not None


def test_a_row_that_keeps_no_worker_is_claimed_by_the_moment_alone(sweep: Sweep) -> None:
    rows = Sweep.objects.all()
    claim = AnonymousClaim.take(rows, sweep.pk)
    assert claim is not None
    assert AnonymousClaim.take(rows, sweep.pk) is None
    expire(sweep)
    assert AnonymousClaim.take(rows, sweep.pk) is not None
    assert claim.release()
    assert AnonymousClaim.take(rows, sweep.pk) is not None


def watch(watcher: ClaimWatcher, clock: list[float], until: float) -> int:
    """Let the watcher look each second until a moment; returns how many claims it has released."""
    released = 0
    while clock[0] < until:
        clock[0] += 1.0
        released += watcher.look()
    return released


@pytest.mark.parametrize("jump", [timedelta(hours=-1), timedelta(), timedelta(hours=1)])
def test_the_claim_of_a_dead_worker_is_released_whatever_the_clock_says(
    watcher: ClaimWatcher, seconds: list[float], sweep: Sweep, monkeypatch: pytest.MonkeyPatch, jump: timedelta
) -> None:
    claim = take(sweep, "dead")
    assert claim is not None
    real = timezone.now
    monkeypatch.setattr(timezone, "now", lambda: real() + jump)
    assert watch(watcher, seconds, 1030.0) == 0
    assert take(sweep, "next") is None
    assert watch(watcher, seconds, 1032.0) == 1
    with pytest.raises(ClaimLost):
        claim.write(note="too late")
    assert take(sweep, "next") is not None


@pytest.mark.parametrize("jump", [timedelta(hours=-1), timedelta(hours=1)])
def test_a_worker_that_renews_its_claim_keeps_it_whatever_the_clock_says(
    watcher: ClaimWatcher, seconds: list[float], sweep: Sweep, monkeypatch: pytest.MonkeyPatch, jump: timedelta
) -> None:
    claim = take(sweep, "slow")
    assert claim is not None
    real = timezone.now
    for until in range(1020, 1200, 20):
        assert watch(watcher, seconds, until) == 0
        monkeypatch.setattr(timezone, "now", lambda: real() + jump)
        assert claim.renew()
        assert take(sweep, "other") is None


def test_a_watcher_that_was_suspended_gives_the_others_their_time(
    watcher: ClaimWatcher, seconds: list[float], sweep: Sweep
) -> None:
    claim = take(sweep, "suspended with it")
    assert claim is not None
    assert watch(watcher, seconds, 1010.0) == 0
    seconds[0] += 3600.0
    assert watcher.look() == 0
    assert claim.renew()


def test_every_kind_of_claim_is_watched_in_a_worker() -> None:
    application.loader.import_default_modules()
    assert {(one.rows().model.__name__, one.until_column) for one in claims.WATCHED} == {
        ("Operation", "lease_until"), ("HostAgent", "turn_until"), ("Plan", "planning_until"), ("Letter", "claimed_at"),
        ("Run", "lease_until"), ("Sweep", "lease_until"), ("ExportRun", "lease_until"), ("Route", "gathering_until"),
        ("Delivery", "claimed_until"),
    }  # fmt: skip


@pytest.mark.parametrize(("until", "over"), [(None, True), (-1, True), (5, False), (10, False), (3600, True)])
def test_a_wait_that_is_longer_than_any_is_over(sweep: Sweep, until: int | None, over: bool) -> None:
    now = datetime(2026, 1, 1, 12, tzinfo=UTC)
    Sweep.objects.update(again_at=None if until is None else now + timedelta(seconds=until))
    assert Sweep.objects.filter(wait_is_over("again_at", now, timedelta(seconds=10))).exists() is over


def test_a_claim_of_any_kind_is_found_by_one_statement(sweep: Sweep) -> None:
    application.loader.import_default_modules()
    assert {Sweep, Run} <= {one.rows().model for one in claims.WATCHED}
    watcher = ClaimWatcher()
    assert not watcher._is_any_claimed()
    claim = take(sweep, "first")
    assert claim is not None
    assert watcher._is_any_claimed()
    claim.release()
    assert not watcher._is_any_claimed()
