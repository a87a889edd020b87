"""What a BMC tells again is known by its time, message and arguments, and never gets today's time.

What it tells without end is bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from django.db.models import F
from django.utils import timezone

from fabric.bmc.events import RedfishEvent
from fabric.bmc.types import Inventory
from fabric.inventory.models import Chassis
from falconweb.testing.processes import SimulatorProcess
from telemetry.events import ingestion
from telemetry.events.ingestion import TOO_MANY
from telemetry.events.models import Event, Position
from telemetry.polling import event_listener
from tests.telemetry.events.conftest import kept, listening_to, truth, wait_for_stream, wait_until_same
from tests.waiting import wait_for

STREAM = "/redfish/v1/EventService/SSE"
ENTRIES = "/redfish/v1/Systems/system/LogServices/EventLog/Entries"


@pytest.mark.django_db(transaction=True)
def test_a_log_that_is_sent_again_with_other_ids_adds_nothing(
    chassis: Chassis, inventory: Inventory, simulator: SimulatorProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_listener, "RECONNECT_DELAYS", (0.1,))
    begin = len(simulator.events())
    with listening_to(chassis, inventory):
        wait_for_stream(simulator)
        simulator.add_events(17, message="Before the restart.")
        wait_until_same(chassis, simulator, begin)
        simulator.fault("bmc_reboot", seconds=0.3, repeats_log=True, keeps_sessions=True)
        wait_for(lambda: Event.objects.filter(message="H3Falcon.ManagerRestarted").exists())
        wait_for_stream(simulator)
        simulator.add_events(1, message="After the restart.")
        wait_for(Event.objects.filter(text="After the restart.", streamed=True).exists)
        wait_until_same(chassis, simulator, begin)
    assert kept(chassis) == truth(simulator, begin)


def record(number: int, at: datetime, *, words: str = "eth0", entry: str = "") -> RedfishEvent:
    """An event of a stream, or an entry of a log where `entry` is its number there."""
    return RedfishEvent(
        event_id=str(number),
        message_id="OpenBMC.0.1.LinkDown",
        message=f"Link of {words} is down.",
        arguments=(words,),
        severity="Warning",
        timestamp=at.isoformat(timespec="seconds"),
        origin_uri="",
        entry_uri=f"{ENTRIES}/{entry}" if entry else "",
    )


def stream(chassis: Chassis, records: Sequence[RedfishEvent], connection: set[str], *, live: bool = False) -> int:
    """Store what a connection told; returns how many events of it are new."""
    return ingestion.stream_records_ingest(
        chassis_id=chassis.pk, stream_uri=STREAM, records=records, owners={}, ahead=timedelta(), live=live,
        reported=connection,
    ).new  # fmt: skip


@pytest.fixture
def openbmc(db: None) -> Chassis:
    """A chassis that is not there."""
    return Chassis.objects.create(name="openbmc", url="https://127.0.0.1:1")


def test_two_events_of_one_second_are_two_and_told_again_are_still_two(openbmc: Chassis) -> None:
    at = timezone.now() - timedelta(hours=3)
    first: set[str] = set()
    assert stream(openbmc, [record(5, at), record(6, at)], first) == 2
    # In batches of their own, and with ids that are those of other events.
    again: set[str] = set()
    assert [stream(openbmc, [record(number, at)], again) for number in (6, 7)] == [0, 0]
    # A third one in the connection that has told both is another event.
    assert stream(openbmc, [record(8, at)], again) == 1
    assert stream(openbmc, [record(9, at, words="eth1")], again) == 1


def test_what_was_missed_and_is_told_again_late_has_its_own_time(openbmc: Chassis) -> None:
    now = timezone.now()
    missed, newest = now - timedelta(days=2), now - timedelta(hours=1)
    connection: set[str] = set()
    stream(openbmc, [record(9, newest)], connection)
    assert stream(openbmc, [record(3, missed, words="eth1")], connection, live=True) == 1
    assert abs(Event.objects.get(arguments=["eth1"]).at - missed) < timedelta(seconds=2)


def test_what_is_older_than_events_are_kept_is_not_told_again(openbmc: Chassis, settings: Any) -> None:
    settings.KEEP_EVENTS_SECONDS = 86400.0
    stream(openbmc, [record(9, timezone.now())], set())
    assert stream(openbmc, [record(3, timezone.now() - timedelta(days=2), words="eth1")], set()) == 0


def test_a_clock_that_begins_in_1970_repeats_no_event(openbmc: Chassis) -> None:
    at = datetime(1970, 1, 1, 0, 0, 12, tzinfo=UTC)
    assert stream(openbmc, [record(1, at)], set()) == 1
    assert stream(openbmc, [record(2, at)], set()) == 1


def read(chassis: Chassis, records: Sequence[RedfishEvent], reading: set[str] | None) -> int:
    """Store what a log has; returns how many events of it are new."""
    return ingestion.log_records_ingest(
        chassis_id=chassis.pk, records=records, owners={}, ahead=timedelta(), reported=reading
    ).new


def test_a_log_that_was_numbered_anew_has_the_same_events(openbmc: Chassis) -> None:
    at = timezone.now() - timedelta(hours=3)
    assert read(openbmc, [record(n, at, entry=str(n)) for n in (5, 6, 7)], set()) == 3
    assert read(openbmc, [record(n, at, entry=str(n)) for n in (1, 2, 3)], set()) == 0
    # One that is read on has other events of the same second; one that is read whole has as many as it has.
    assert read(openbmc, [record(8, at, entry="8")], None) == 1
    assert read(openbmc, [record(n, at, entry=str(n)) for n in range(11, 16)], set()) == 1
    assert Event.objects.count() == 5


def test_of_events_without_end_so_many_a_day_are_kept_and_the_page_says_so(
    openbmc: Chassis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingestion, "MAX_STORED_AT_ONCE", 5)
    monkeypatch.setattr(ingestion, "MAX_STORED_A_DAY", 2)

    def kept_of(count: int, *, days_later: int = 0) -> tuple[int, str]:
        """Return how many of so many new events are kept, and what the page of the chassis says then."""
        Position.objects.update(moved_at=F("moved_at") - timedelta(days=days_later))
        begin = Event.objects.count()
        at = timezone.now() - timedelta(hours=1)
        new = stream(openbmc, [record(n, at, words=f"eth{begin}.{n}") for n in range(count)], set())
        openbmc.refresh_from_db()
        return new, openbmc.event_limit

    assert kept_of(4) == (4, "")
    assert [kept_of(4), kept_of(4)] == [(1, TOO_MANY), (0, TOO_MANY)]
    assert Event.objects.filter(message="FalconWeb.EventsDropped").count() == 1
    assert kept_of(4, days_later=1) == (2, TOO_MANY)
    assert kept_of(1, days_later=2) == (1, "")
    Position.objects.update(moved_at=timezone.now() + timedelta(days=9))  # a clock that was set back
    assert kept_of(3) == (3, "")


def test_of_one_event_that_is_repeated_without_end_so_many_are_kept(
    openbmc: Chassis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingestion, "MAX_ALIKE", 3)
    at, connection = timezone.now() - timedelta(hours=1), set[str]()
    assert [stream(openbmc, [record(n, at), record(n + 1, at)], connection) for n in (1, 3, 5)] == [2, 1, 0]
    assert stream(openbmc, [record(2, at), record(7, at, words="eth1")], connection) == 1
    assert Event.objects.filter(message="FalconWeb.EventsDropped").count() == 1
    timeless = [msgspec.structs.replace(record(n, at), timestamp="") for n in range(10, 15)]
    assert stream(openbmc, timeless[:4], connection) == 3
    Event.objects.update(received_at=timezone.now() - timedelta(days=2))
    assert stream(openbmc, timeless[4:], connection) == 1
