"""Disks that fill up, databases that go away, workers that are killed: live goes on, and what is lost is told."""

from __future__ import annotations

import json
import logging
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from falconweb.testing.processes import OwnProcess
from telemetry.instrumentation import metrics
from telemetry.store.batches import WORKER_DIED
from telemetry.store.models import Chunk, Gap
from telemetry.store.writer import StoreWriter
from tests.telemetry.store.feeding import Feed, hours_ago, moments
from tests.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")
NewFeed = Callable[..., Feed]


@contextmanager
def held_by_another() -> Iterator[None]:
    """Let another process write into the file of readings all the time."""
    other = sqlite3.connect(connections["readings"].settings_dict["NAME"], isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


@contextmanager
def full_disk() -> Iterator[None]:
    """Let the file of readings grow no further, as SQLite itself has it: 'database or disk is full'.

    Its limit is one of each connection, so that each one that is made anew gets it.
    """
    options = connections.settings["readings"]["OPTIONS"]
    before = options["init_command"]
    with connections["readings"].cursor() as cursor:
        cursor.execute("VACUUM")  # pages that other tests left would be taken first
        cursor.execute("PRAGMA page_count")
        (pages,) = cursor.fetchone()
    options["init_command"] = before + f" PRAGMA max_page_count={pages + 1};"
    connections["readings"].close()
    try:
        yield
    finally:
        options["init_command"] = before
        connections["readings"].close()


def spans(chassis: int) -> list[tuple[float, float]]:
    """Return what is told to be missing and over."""
    rows = Gap.objects.filter(chassis=chassis).values_list("since", "until")
    return [(since, until) for since, until in rows if until is not None]


def test_taking_readings_waits_for_no_database(feed: NewFeed) -> None:
    some = feed()
    with held_by_another():
        some.run(range(1800))
        assert not Chunk.objects.filter(chassis=some.chassis).exists()
    some.flush()
    assert len(moments(some.chassis)) == 1800
    assert not Gap.objects.filter(chassis=some.chassis).exists()


def test_a_full_disk_costs_the_oldest_of_what_no_memory_is_left_for_and_it_goes_on_by_itself(
    feed: NewFeed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="telemetry.store.writer")
    some = feed()
    some.writer = writer = StoreWriter(gather=0.0, backlog=20_000)
    some.begin()
    some.run(range(130))
    some.stored()
    stored_before = moments(some.chassis)
    with full_disk():
        some.run(range(130, 130 + 60 * 40))
        wait_for(lambda: metrics.counter_values().get(("readings_dropped_store_full", some.chassis)))
        failures = metrics.counter_values().get(("store_write_failures", None), 0)
        # What was dropped is not forgotten when it cannot be told yet.
        wait_for(lambda: metrics.counter_values().get(("store_write_failures", None), 0) > failures)
        assert "cannot be stored" in caplog.text
    wait_for(lambda: moments(some.chassis)[-1:] > stored_before[-1:])
    some.flush()
    kept = moments(some.chassis)
    (gap,) = Gap.objects.filter(chassis=some.chassis)
    assert "The store could not write: database or disk is full." in gap.reason
    # Each second was either stored, or lies in the gap that is told.
    wanted = {some.since + number for number in range(130 + 60 * 40)}
    missing = sorted(wanted - set(kept))
    assert missing
    assert gap.since == missing[0]
    assert gap.until == missing[-1]
    assert metrics.counter_values()["readings_dropped_store_full", some.chassis] == len(missing) * 5
    # Told once when it began and once when it was over.
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "readings are kept in memory, since they cannot be stored", "readings are stored again",
    ]  # fmt: skip
    writer.stop()


def test_a_writer_that_cannot_keep_up_drops_the_oldest(feed: NewFeed) -> None:
    some = feed()
    some.writer = writer = StoreWriter(gather=0.0, inbox=60_000)
    some.begin()
    with held_by_another():
        some.run(range(3600))
    some.flush()
    kept = set(moments(some.chassis))
    missing = {some.since + number for number in range(3600)} - kept
    assert 60 < len(missing) < 3600
    found = spans(some.chassis)
    assert {at for at in missing | kept if any(begin <= at <= end for begin, end in found)} == missing
    writer.stop()


def test_readings_that_no_database_takes_do_not_hold_up_the_others(feed: NewFeed) -> None:
    good, bad = feed(), feed()
    bad.chassis = 2**70  # no whole number that a database has
    bad.begin()
    for some in (good, bad):
        some.run(range(70))
        some.recorder._submit_rows()
    good.stored()
    assert len(moments(good.chassis)) == 70


class FeederProcess(OwnProcess):
    """A worker of a test's own: a process that hands made-up readings to a recorder, far faster than once a second."""

    def __init__(self, chassis: int, since: float, name: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.telemetry.store.feeder", str(chassis), str(since), name],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.lines: list[dict[str, Any]] = []

    def until(self, true: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """Read what it says until something is so."""
        for line in self.process.stdout or ():
            said: dict[str, Any] = json.loads(line)
            if true(said):
                return said
        raise AssertionError("the feeder ended")


@pytest.fixture
def file() -> str:
    return str(connections["readings"].settings_dict["NAME"])


@pytest.mark.process
def test_a_killed_worker_loses_less_than_a_minute_and_the_next_one_says_which(file: str) -> None:
    since = hours_ago(5)
    with FeederProcess(77, since, file) as first:
        taken = first.until(lambda said: said["taken"] > 600 and moments(77))["taken"]
        first.kill()
    stored = moments(77)
    assert stored == [since + number for number in range(len(stored))]
    again = since + taken + 100
    with FeederProcess(77, again, file) as second:
        second.until(lambda said: said["taken"] > 300 and moments(77)[-1] > again)
        second.process.send_signal(signal.SIGTERM)
        second.process.wait(60)
    gap = Gap.objects.get(chassis=77, reason=WORKER_DIED)
    assert (gap.since, gap.until) == (stored[-1], again)
    assert again - gap.since < 100 + 60 + 600  # what was read on until it was killed, too


@pytest.mark.process
def test_live_goes_on_in_a_worker_whose_disk_is_full(file: str) -> None:
    """Its files may grow no further, by the system's own limit, and then may again."""
    since = hours_ago(12)
    with connections["readings"].cursor() as cursor:
        # What earlier tests wrote leaves room in it, which a feeder takes minutes to fill.
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with FeederProcess(78, since, file) as feeder:
        feeder.until(lambda said: said["taken"] > 300 and moments(78))
        grown = max(Path(file + end).stat().st_size for end in ("", "-wal"))
        limit(feeder.process.pid, grown + 20_000)
        said = feeder.until(lambda said: said["failures"] > 0)
        full_at = said["taken"]
        later = feeder.until(lambda said: said["taken"] > full_at + 1200)
        assert later["failures"] > 0
        stuck = len(moments(78))
        limit(feeder.process.pid, None)
        feeder.until(lambda said: len(moments(78)) > stuck + 120 and not said["failing"])
        feeder.process.send_signal(signal.SIGTERM)
        feeder.process.wait(60)
    kept = moments(78)
    missing = {since + number for number in range(len(kept))} - set(kept)
    found = spans(78)
    assert all(any(begin <= at <= end for begin, end in found) for at in missing)


def limit(pid: int, size: int | None) -> None:
    """Let the files of a process grow to a size at most."""
    import resource

    most = resource.RLIM_INFINITY
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (most if size is None else size, most))
