"""How walks proceed is told on pages, in one statement for all that proceed alike."""

from __future__ import annotations

import itertools
from datetime import timedelta

import pytest
from asgiref.sync import sync_to_async
from django.utils import timezone

from fabric.bmc.walk_turns import WalkPace
from fabric.inventory.models import Chassis
from fabric.inventory.progress import WalkState, walk_progress_label, walk_progress_record
from telemetry.polling import progress
from telemetry.polling.progress import WalkProgress

WAITS = WalkState(read=0, known=0, waits=True)
READS = WalkState(read=20, known=3000, waits=False)


def labels() -> list[str]:
    return [walk_progress_label(row) for row in Chassis.objects.order_by("pk")]


def new_chassis(count: int) -> list[int]:
    rows = [Chassis(name=f"c{number}", url=f"https://127.0.0.1:{number}") for number in range(1, count + 1)]
    return [row.pk for row in Chassis.objects.bulk_create(rows)]


@pytest.mark.django_db
def test_a_hundred_that_wait_are_one_statement(django_assert_num_queries: object) -> None:
    waiting = new_chassis(100)
    with django_assert_num_queries(3):  # type: ignore[operator]
        walk_progress_record({WAITS: waiting}, seconds=4.0)  # with the savepoint
    assert labels() == ["Reading its inventory waits for others."] * 100


@pytest.mark.django_db
def test_a_walk_that_has_just_ended_is_not_told_to_go_on() -> None:
    ended, later, never = new_chassis(3)
    Chassis.objects.filter(pk=ended).update(inventory_at=timezone.now())
    Chassis.objects.filter(pk=later).update(inventory_at=timezone.now() - timedelta(minutes=10))
    walk_progress_record({READS: [ended, later], WAITS: [never]}, seconds=4.0)
    reads = "Reading its inventory: 20 of about 3,000 resources."
    assert labels() == ["", reads, "Reading its inventory waits for others."]


@pytest.mark.django_db(transaction=True)
async def test_what_has_not_changed_is_told_again_only_before_it_is_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LOOK_SECONDS", 0.0)
    (chassis,) = await sync_to_async(new_chassis)(1)
    walks, pace, told = WalkProgress(), WalkPace(read=1, known=2), []
    with walks.of(chassis, pace):
        for read, stale in ((1, 60.0), (1, 60.0), (2, 60.0), (2, 0.0)):
            monkeypatch.setattr(progress, "STALE_SECONDS", stale)
            pace.read = read
            await walks.tell()
            row = await Chassis.objects.aget(pk=chassis)
            assert row.walk_progress is not None
            assert row.walk_progress["read"] == read
            told.append(row.walk_progress["at"])
    assert [one == before for before, one in itertools.pairwise(told)] == [True, False, False]
    await Chassis.objects.aupdate(walk_progress=None)
    await walks.tell()
    assert (await Chassis.objects.aget(pk=chassis)).walk_progress is None
