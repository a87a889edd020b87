"""What is written of links: states with gaps and without end, counts in any order, a database away, old rows."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from fabric.inventory.models import Chassis, Device, Drawer, HostPort, Port, Slot
from fabric.operations.models import Operation
from telemetry.links.counters import LinkState, PortChange
from telemetry.links.models import CounterReset, LinkCount, LinkMinute, LinkSpan, LinkVerdict, Watched
from telemetry.links.recorder import LinkRecorder
from telemetry.links.rules import RETRAININGS
from telemetry.links.services import MAX_SPANS_PER_HOUR as MOST
from telemetry.links.services import (
    PendingPortChanges,
    links_delete_old,
    links_judge,
    links_load,
    links_record_changes,
    links_record_read_times,
)
from tests.waiting import wait_for

BEGIN = datetime(2026, 5, 1, 12, 0, tzinfo=UTC).timestamp()
UP, NARROW, LOST = LinkState("LinkUp", 16, 256.0), LinkState("LinkUp", 8, 128.0), LinkState("LinkDown", 0, 0.0)


@pytest.fixture
def port(db: None) -> Port:
    """The port of a slot with an attached device."""
    chassis = Chassis.objects.create(name="falcon-1", url="https://127.0.0.1:1")
    drawer = Drawer.objects.create(chassis=chassis, uri="/d", name="Drawer 1", number=1)
    port = Port.objects.create(chassis=chassis, uri="/p", name="Slot 1", width=16, max_speed_gbps=256.0)
    slot = Slot.objects.create(chassis=chassis, uri="/s", name="Slot 1", port=port, drawer=drawer)
    host_port = HostPort.objects.create(chassis=chassis, uri="/z", name="H1", label="H1", endpoint_uri="/e")
    Device.objects.create(chassis=chassis, uri="/g", name="GPU 1", slot=slot, host_port=host_port, max_lanes=16)
    return port


def note(port: Port, *changes: PortChange) -> None:
    pending = PendingPortChanges()
    for change in changes:
        pending.add(change)
    links_record_changes({port.pk: pending})


def spans(port: Port) -> list[tuple[str, float, float | None]]:
    rows = LinkSpan.objects.filter(port=port).order_by("since", "pk")
    return [
        (f"{one.status} {one.width}", one.since.timestamp() - BEGIN, one.until and one.until.timestamp() - BEGIN)
        for one in rows
    ]


def test_states_follow_each_other_and_a_time_that_nobody_saw_is_a_gap(port: Port) -> None:
    at = BEGIN
    note(port, PortChange(port=port.pk, at=at, state=UP))
    note(port, PortChange(port=port.pk, at=at + 10, seen_until=at + 9, state=NARROW))
    note(port, PortChange(port=port.pk, at=at + 500, seen_until=at + 20, state=NARROW))
    assert spans(port) == [("LinkUp 16", 0, 10), ("LinkUp 8", 10, 20), ("LinkUp 8", 500, None)]


def test_a_link_that_flaps_without_end_is_one_row_until_it_rests(port: Port) -> None:
    at = BEGIN
    for place in range(4 * MOST):
        at = BEGIN + 2 * place
        note(port, PortChange(port=port.pk, at=at, seen_until=at - 1, state=LOST if place % 2 else UP))
    found = spans(port)
    assert len(found) == MOST
    assert found[-1][0] == "Flapping None"
    last = LinkSpan.objects.get(port=port, until=None)
    assert last.drops == (4 * MOST - MOST) // 2
    judged = LinkCount.objects.get(port=port).state_since
    links_judge(chassis_id=port.chassis_id, now=judged + timedelta(seconds=60))
    verdict = LinkVerdict.objects.get(port=port, tenant=None)
    assert verdict.flaps == 2 * MOST - 1  # the last drop has not come back
    links_judge(chassis_id=port.chassis_id, now=judged + timedelta(minutes=6))
    assert spans(port)[-1] == ("LinkDown 0", at - BEGIN, None)


def test_counts_and_resets_are_put_together(port: Port) -> None:
    at = BEGIN
    gained = {"ReplayCount": 5}
    note(
        port,
        PortChange(port=port.pk, at=at, raw={"ReplayCount": 100, "RXBytes": 9}),
        PortChange(port=port.pk, at=at + 1, seen_until=at, gained=gained, raw={"ReplayCount": 105}),
    )
    note(port, PortChange(port=port.pk, at=at + 3, seen_until=at + 1, gained=gained, raw={"ReplayCount": 5},
                      reset={"ReplayCount": 105}, how="bmc"))  # fmt: skip
    note(port, PortChange(port=port.pk, at=at + 900, seen_until=at + 3, gained=gained, raw={"ReplayCount": 10}))
    count = LinkCount.objects.get(port=port)
    assert (count.totals, count.raw) == ({"ReplayCount": 15}, {"ReplayCount": 10})
    # What came while nobody looked is of no minute.
    assert [one.counts for one in LinkMinute.objects.filter(port=port)] == [{"ReplayCount": 10}]
    reset = CounterReset.objects.get(port=port)
    assert (reset.how, reset.counted) == ("bmc", {"ReplayCount": 105})
    known = links_load(chassis_id=port.chassis_id)
    assert known.values[port.pk, "ReplayCount"] == 10


def test_what_an_operation_moves_is_marked(port: Port) -> None:
    note(port, PortChange(port=port.pk, at=BEGIN, state=UP))
    device = Device.objects.get(slot__port=port)
    Operation.objects.create(kind="detach", state="running", chassis=port.chassis, device=device, requested_by_name="x")
    note(port, PortChange(port=port.pk, at=BEGIN + 5, seen_until=BEGIN + 4, state=LOST))
    assert list(LinkSpan.objects.filter(port=port).order_by("since").values_list("asked", flat=True)) == [False, True]


@pytest.mark.parametrize(
    ("operation", "counted"),
    [
        (None, 3),
        ({"state": "running"}, 0),
        ({"state": "done", "finished_at": 14.0}, 0),
        ({"state": "done", "finished_at": -30.0}, 3),
        ({"state": "requested"}, 3),
    ],
)
def test_a_retraining_is_a_fault_unless_an_operation_explains_it(
    port: Port, operation: dict[str, Any] | None, counted: int
) -> None:
    note(port, PortChange(port=port.pk, at=BEGIN, state=UP, raw={RETRAININGS: 0}))
    if operation is not None:
        device = Device.objects.get(slot__port=port)
        if "finished_at" in operation:
            operation["finished_at"] = datetime.fromtimestamp(BEGIN + operation["finished_at"], UTC)
        Operation.objects.create(kind="detach", chassis=port.chassis, device=device, requested_by_name="x", **operation)
    gained = {RETRAININGS: 3, "ReplayCount": 1}
    note(port, PortChange(port=port.pk, at=BEGIN + 25, seen_until=BEGIN + 20, gained=gained, raw=gained))
    links_judge(chassis_id=port.chassis_id, now=datetime.fromtimestamp(BEGIN + 26, UTC))
    verdict = LinkVerdict.objects.get(port=port, tenant=None)
    assert (verdict.recoveries, "recoveries" in {one["code"] for one in verdict.reasons}) == (counted, counted > 0)
    # The counters themselves are whole.
    assert LinkCount.objects.get(port=port).totals == gained
    assert LinkMinute.objects.get(port=port).counts["ReplayCount"] == 1


def test_an_operation_excuses_the_link_that_it_changes_and_no_other(port: Port) -> None:
    other = Port.objects.create(chassis=port.chassis, uri="/q", name="Slot 2", width=16)
    Slot.objects.create(chassis=port.chassis, uri="/t", name="Slot 2", port=other, drawer=Drawer.objects.get())
    device = Device.objects.get(slot__port=port)
    Operation.objects.create(kind="detach", state="running", chassis=port.chassis, device=device, requested_by_name="x")
    pending = {one.pk: PendingPortChanges() for one in (port, other)}
    for pk, waiting in pending.items():
        waiting.add(PortChange(port=pk, at=BEGIN + 1, seen_until=BEGIN, gained={RETRAININGS: 1}))
    links_record_changes(pending)
    assert [(one.port_id, one.counts) for one in LinkMinute.objects.all()] == [(other.pk, {RETRAININGS: 1})]


def test_a_port_that_is_gone_takes_nothing_along(port: Port) -> None:
    pending = {port.pk: PendingPortChanges(), port.pk + 99: PendingPortChanges()}
    for pk, waiting in pending.items():
        waiting.add(PortChange(port=pk, at=BEGIN, state=UP, raw={"ReplayCount": 1}))
    links_record_changes(pending)
    links_record_read_times({port.chassis_id: BEGIN, port.chassis_id + 99: BEGIN})
    assert LinkCount.objects.count() == 1
    assert links_load(chassis_id=port.chassis_id).seen_at == BEGIN


def test_what_waits_of_one_port_is_bounded() -> None:
    pending = PendingPortChanges()
    for second in range(20_000):
        pending.add(
            PortChange(
                port=1,
                at=BEGIN + second,
                seen_until=BEGIN + second - 1,
                state=UP,
                gained={"ReplayCount": 1},
                reset={},
                raw={"ReplayCount": second},
            )
        )
    assert (len(pending.states), len(pending.resets), len(pending.minutes)) == (200, 50, 90)
    assert pending.gained == {"ReplayCount": 20_000}


def test_old_history_goes_and_what_lasts_stays(port: Port) -> None:
    now = timezone.now()
    old = now - timedelta(days=800)
    LinkSpan.objects.create(port=port, since=old, until=old, status="LinkUp")
    LinkSpan.objects.create(port=port, since=old, status="LinkUp")
    LinkMinute.objects.create(port=port, minute=now - timedelta(days=2), counts={})
    LinkMinute.objects.create(port=port, minute=now, counts={})
    CounterReset.objects.create(port=port, at=old, how="bmc")
    assert links_delete_old(now=now) == 3
    assert (LinkSpan.objects.count(), LinkMinute.objects.count(), CounterReset.objects.count()) == (1, 1, 0)


@pytest.fixture
def recording(transactional_db: None) -> LinkRecorder:
    """A recorder of the test's own."""
    return LinkRecorder()


@pytest.mark.django_db(transaction=True)
def test_a_database_that_is_away_loses_nothing(
    recording: LinkRecorder, port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("telemetry.links.recorder.RETRY_SECONDS", 0.2)
    monkeypatch.setattr("telemetry.links.recorder.COUNT_SECONDS", 0.2)
    recording.start_watch(port.chassis_id).result(timeout=60)
    table = LinkCount._meta.db_table
    with connection.schema_editor() as editor:
        editor.alter_db_table(LinkCount, table, f"{table}_away")
    try:
        for second in range(3):
            recording.add_change(
                port.chassis_id,
                PortChange(port=port.pk, at=BEGIN + second, seen_until=BEGIN + second - 1, gained={"ReplayCount": 2}),
            )
        recording.add_change(port.chassis_id, PortChange(port=port.pk, at=BEGIN + 3, state=UP))
        wait_for(lambda: recording._failing)
    finally:
        with connection.schema_editor() as editor:
            editor.alter_db_table(LinkCount, f"{table}_away", table)
    wait_for(lambda: LinkCount.objects.filter(port=port, totals={"ReplayCount": 6}, status="LinkUp").exists())
    assert spans(port) == [("LinkUp 16", 3, None)]

    asyncio.run(recording.stop_watch(port.chassis_id))


@pytest.mark.django_db(transaction=True)
def test_what_cannot_be_written_of_one_chassis_holds_up_no_other(
    recording: LinkRecorder, port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("telemetry.links.recorder.RETRY_SECONDS", 0.1)
    other = Chassis.objects.create(name="falcon-2", url="https://127.0.0.1:2")
    good = Port.objects.create(chassis=other, uri="/p", name="Slot 1")
    for chassis in (port.chassis_id, other.pk):
        recording.start_watch(chassis).result(timeout=60)
    no_number: Any = object()
    recording.add_change(port.chassis_id, PortChange(port=port.pk, at=BEGIN, state=UP, raw={"ReplayCount": no_number}))
    recording.add_change(other.pk, PortChange(port=good.pk, at=BEGIN, state=UP))
    wait_for(lambda: LinkSpan.objects.filter(port=good).exists())
    for chassis in (port.chassis_id, other.pk):
        asyncio.run(recording.stop_watch(chassis))
    port.delete()  # there is nothing any more to write of it
    wait_for(lambda: recording._thread is None)


def test_more_errors_than_a_row_holds_are_kept_as_the_most_it_does(port: Port) -> None:
    most = 2**64 - 1
    note(port, PortChange(port=port.pk, at=BEGIN, state=UP, gained={"ReplayCount": most}, raw={"ReplayCount": most}))
    links_judge(chassis_id=port.chassis_id)
    verdict = LinkVerdict.objects.get(port=port, tenant=None)
    verdict.refresh_from_db()
    assert verdict.errors == 2**63 - 1


@pytest.mark.django_db(transaction=True)
def test_a_chassis_that_cannot_be_judged_holds_up_no_other_and_its_verdicts_grow_old(
    recording: LinkRecorder, port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("telemetry.links.recorder.COUNT_SECONDS", 0.1)
    monkeypatch.setattr("telemetry.links.recorder.SEEN_SECONDS", 0.1)
    monkeypatch.setattr("telemetry.links.recorder.WRITE_SECONDS", 0.1)
    other = Chassis.objects.create(name="falcon-2", url="https://127.0.0.1:2")
    good = Port.objects.create(chassis=other, uri="/p", name="Slot 1")
    ids = (port.chassis_id, other.pk)
    LinkCount.objects.create(
        port=port, watched_since=timezone.now(), state_since=timezone.now(), totals={"ReplayCount": "no number"}
    )
    for chassis in ids:
        recording.start_watch(chassis).result(timeout=60)
        recording.record_reading(chassis, BEGIN)
    recording.add_change(other.pk, PortChange(port=good.pk, at=BEGIN, state=UP))
    wait_for(lambda: LinkVerdict.objects.filter(port=good).exists())
    for chassis in ids:
        recording.record_reading(chassis, BEGIN + 60)
    recording.add_change(other.pk, PortChange(port=good.pk, at=BEGIN + 1, gained={"ReplayCount": 3}))
    wait_for(lambda: LinkVerdict.objects.filter(port=good, errors=3).exists())
    wait_for(lambda: noted(other.pk))
    assert Watched.objects.get(chassis=port.chassis_id).judged_at is None
    # Mended, it is judged with the others.
    LinkCount.objects.filter(port=port).update(totals={"ReplayCount": 1})
    recording.request_judging(port.chassis_id)
    wait_for(lambda: noted(port.chassis_id))
    assert LinkVerdict.objects.filter(port=port).exists()
    for chassis in ids:
        asyncio.run(recording.stop_watch(chassis))


def noted(chassis: int) -> bool:
    """Tell whether a chassis is noted as judged up to the second reading."""
    row = Watched.objects.filter(pk=chassis).first()
    return row is not None and row.judged_at is not None and row.judged_at.timestamp() == BEGIN + 60


@pytest.mark.django_db(transaction=True)
def test_what_is_new_of_several_chassis_is_judged_though_one_cannot_be(recording: LinkRecorder, port: Port) -> None:
    other = Chassis.objects.create(name="falcon-2", url="https://127.0.0.1:2")
    good = Port.objects.create(chassis=other, uri="/p", name="Slot 1")
    note(port, PortChange(port=port.pk, at=BEGIN, state=UP))
    note(good, PortChange(port=good.pk, at=BEGIN, state=UP))
    LinkCount.objects.filter(port=port).update(totals={"ReplayCount": "no number"})
    recording._judge_batch({port.chassis_id: frozenset({port.pk}), other.pk: frozenset({good.pk})}, now=0.0)
    assert LinkVerdict.objects.filter(port=good).exists()
    assert recording._postponed == {port.chassis_id}
