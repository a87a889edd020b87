"""One worker at a time has a row; one that lost it notices that before it writes."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db.models import F
from django.utils import timezone

from benchmarks.sweeps.models import Sweep
from core.claims import ClaimLost, RowClaim, unclaimed

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


def expire(sweep: Sweep) -> None:
    past = timezone.now() - timedelta(seconds=1)
    Sweep.objects.filter(pk=sweep.pk).update(lease_until=past, again_at=past)


def take(sweep: Sweep, worker: str) -> WorkerClaim | None:
    return WorkerClaim.take(Sweep.objects.all(), sweep.pk, worker)


def test_of_two_workers_one_has_the_row(sweep: Sweep) -> None:
    first = take(sweep, "first")
    assert first is not None
    assert (first.row.worker, first.row.pk) == ("first", sweep.pk)
    assert take(sweep, "second") is None
    assert take(sweep, "first") is None
    assert not Sweep.objects.filter(unclaimed(timezone.now())).exists()


def test_a_claim_sets_values_with_it_and_takes_no_row_that_is_not_among_those_to_take(sweep: Sweep) -> None:
    assert WorkerClaim.take(Sweep.objects.filter(state="halted"), sweep.pk, "worker", moves=7) is None
    claim = WorkerClaim.take(Sweep.objects.all(), sweep.pk, "worker", moves=F("moves") + 1)
    assert claim is not None
    assert claim.row.moves == 2


def test_a_write_extends_the_claim_and_keeps_the_row_in_step(sweep: Sweep) -> None:
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
