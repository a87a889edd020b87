"""Every event of a BMC is kept, and none twice, whatever becomes of streams, logs, workers and the database."""

from __future__ import annotations

import dataclasses
import re
import sqlite3
import time
from contextlib import closing
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.db import connection
from django.utils import timezone

from fabric.bmc.types import Inventory
from fabric.inventory.models import Chassis, Device
from falconweb.testing.processes import SimulatorProcess
from telemetry.events import ingestion
from telemetry.events.models import Event, Position
from telemetry.polling import event_listener
from tests.telemetry.events.conftest import (
    kept,
    listening_process,
    listening_to,
    truth,
    wait_for_stream,
    wait_until_same,
)
from tests.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait as long as in earnest."""
    monkeypatch.setattr(event_listener, "RECONNECT_DELAYS", (0.1,))
    monkeypatch.setattr(event_listener, "DATABASE_RETRY_DELAYS", (0.1,))


@pytest.fixture
def begin(simulator: SimulatorProcess) -> int:
    """How many events there were before the test."""
    return len(simulator.events())


def test_events_of_a_stream_are_kept_with_what_they_are_about(
    chassis: Chassis, inventory: Inventory, simulator: SimulatorProcess, begin: int
) -> None:
    with listening_to(chassis, inventory):
        wait_for_stream(simulator)
        simulator.fault("surprise_removal", "drawer1slot1")
        simulator.fault("fan_failure", "fan2")
        wait_for(lambda: Event.objects.filter(message="Environmental.FanFailed").exists())
        wait_until_same(chassis, simulator, begin)
        # The log may be read first: the stream has it, too.
        wait_for(Event.objects.filter(message="ResourceEvent.ResourceRemoved", streamed=True).exists)
    gone = Event.objects.get(message="ResourceEvent.ResourceRemoved")
    device = Device.objects.get(chassis=chassis, slot__drawer__number=1, slot__number=1)
    assert device.slot is not None
    assert (gone.device_id, gone.drawer_id, gone.port_id) == (device.pk, device.slot.drawer_id, device.slot.port_id)
    assert (gone.link, gone.chassis_name) == (f"/devices/{device.pk}/", "falcon-1")
    assert gone.severity == "Critical"
    assert abs(gone.at - timezone.now()) < timedelta(seconds=20)
    fan = Event.objects.get(message="Environmental.FanFailed")
    assert (fan.severity, fan.arguments, fan.subject_name) == ("Critical", ["fan2"], "falcon-1")


def test_an_event_of_a_slots_sensor_is_of_the_device_in_the_slot(
    chassis: Chassis, inventory: Inventory, simulator: SimulatorProcess
) -> None:
    with listening_to(chassis, inventory):
        wait_for_stream(simulator)
        simulator.add_events(message="Hot.", origin="/redfish/v1/Chassis/drawer1/Sensors/slot1_temp")
        wait_for(lambda: Event.objects.filter(text="Hot.").exists())
    event = Event.objects.get(text="Hot.")
    device = Device.objects.get(chassis=chassis, slot__drawer__number=1, slot__number=1)
    assert device.slot is not None
    assert (event.device_id, event.drawer_id) == (device.pk, device.slot.drawer_id)
    assert event.subject_name.startswith(f"{device.name}: ")


def test_what_happened_before_and_between_two_workers_is_read_from_the_log(
    chassis: Chassis, inventory: Inventory, simulator: SimulatorProcess, begin: int
) -> None:
    simulator.add_events(20, message="Before {n}.")
    with listening_to(chassis, inventory):
        wait_until_same(chassis, simulator, begin)
    simulator.add_events(30, message="Between {n}.")
    with listening_to(chassis, inventory):
        wait_until_same(chassis, simulator, begin)
        wait_for_stream(simulator)
        simulator.add_events(10, message="After {n}.")
        wait_until_same(chassis, simulator, begin)
    assert not Event.objects.filter(message__startswith="FalconWeb.Events").exists()


@pytest.mark.process
def test_a_worker_that_is_killed_is_taken_over_from(
    chassis: Chassis, inventory: Inventory, simulator: SimulatorProcess, begin: int
) -> None:
    with listening_process(chassis) as worker:
        wait_for_stream(simulator)
        simulator.add_events(700, message="First {n}.")
        wait_for(lambda: sum(kept(chassis).values()) > 100)
        worker.kill()  # in the middle of writing them
        worker.wait()
    simulator.add_events(50, message="Meanwhile {n}.")
    with listening_to(chassis, inventory):
        wait_until_same(chassis, simulator, begin)


def test_two_workers_at_once_keep_each_event_once(
    chassis: Chassis, inventory: Inventory, simulator: SimulatorProcess, begin: int
) -> None:
    with listening_to(chassis, inventory), listening_to(chassis, inventory):
        wait_for(lambda: simulator.state()["streams"] > 1)
        for round_ in range(5):
            simulator.add_events(40, message=f"Round {round_}: {{n}}.")
        wait_until_same(chassis, simulator, begin)
        time.sleep(0.5)  # the slower one may still be at it
    assert kept(chassis) == truth(simulator, begin)


def test_a_bmc_that_reboots_loses_nothing(
    chassis: Chassis, inventory: Inventory, simulator: SimulatorProcess, begin: int
) -> None:
    with listening_to(chassis, inventory):
        wait_for_stream(simulator)
        simulator.fault("bmc_reboot", seconds=0.5)
        simulator.add_events(25, message="While it restarts: {n}.")
        wait_for(lambda: Event.objects.filter(message="H3Falcon.ManagerRestarted").exists())
        wait_until_same(chassis, simulator, begin)


def test_a_log_that_is_emptied_while_somebody_listens_loses_nothing(
    chassis: Chassis, inventory: Inventory, simulator: SimulatorProcess, begin: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_listener, "CHECK_SECONDS", 0.3)
    with listening_to(chassis, inventory):
        wait_for_stream(simulator)
        simulator.add_events(12)
        wait_until_same(chassis, simulator, begin)
        simulator.change_log(clear=True)
        wait_for(lambda: Position.objects.filter(uri__endswith="/Entries", entry_uri="").exists())
        simulator.add_events(3, message="After that {n}.")
        wait_until_same(chassis, simulator, begin)
    assert not Event.objects.filter(message__startswith="FalconWeb.Events").exists()


def test_numbers_that_begin_anew_are_other_events(
    chassis: Chassis, inventory: Inventory, simulator: SimulatorProcess, begin: int
) -> None:
    simulator.change_log(begin_anew=True)
    simulator.add_events(5, message="The first life {n}.")
    with listening_to(chassis, inventory):
        wait_until_same(chassis, simulator, begin)
    simulator.change_log(begin_anew=True)
    simulator.set_clock(60)  # a restart takes its time
    simulator.add_events(8, message="The second life {n}.")
    with listening_to(chassis, inventory):
        wait_until_same(chassis, simulator, begin)
        told = Event.objects.filter(message="FalconWeb.EventsMayBeLost")
        wait_for(told.exists)
    assert "The numbering of the BMC's log restarted" in told.get().text


def test_a_log_that_was_overwritten_meanwhile_is_told_of_as_a_gap(
    chassis: Chassis, inventory: Inventory, simulator: SimulatorProcess, begin: int
) -> None:
    def die(**_: object) -> None:
        raise RuntimeError("It ends before the position is stored apart from the events.")

    simulator.add_events(10, message="Read {n}.")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ingestion, "log_position_move", die)
        with listening_to(chassis, inventory):
            wait_until_same(chassis, simulator, begin)
    simulator.change_log(limit=40)
    simulator.add_events(100, message="Missed {n}.")
    with listening_to(chassis, inventory):
        wait_for(lambda: sum(kept(chassis).values()) == 50)
        lost = Event.objects.filter(message="FalconWeb.EventsLost")
        wait_for(lost.exists)
        assert re.match(r"60 events between entry \d+ of \S+ and entry \d+ of \S+ are lost: ", lost.get().text)
    with listening_to(chassis, inventory):
        wait_for_stream(simulator)
        simulator.add_events(1)
        wait_for(lambda: sum(kept(chassis).values()) == 51)
    assert lost.count() == 1


def test_a_log_that_was_emptied_meanwhile_is_told_of_as_a_doubt(
    chassis: Chassis, inventory: Inventory, simulator: SimulatorProcess, begin: int
) -> None:
    simulator.add_events(4)
    with listening_to(chassis, inventory):
        wait_until_same(chassis, simulator, begin)
    simulator.change_log(clear=True)
    with listening_to(chassis, inventory):
        wait_for(lambda: Event.objects.filter(message="FalconWeb.EventsMayBeLost").exists())


@pytest.mark.nightly
def test_a_burst_is_kept_although_the_stream_drops_most_of_it(
    chassis: Chassis, inventory: Inventory, simulator: SimulatorProcess, begin: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_listener, "HURRY_SECONDS", 0.5)
    with listening_to(chassis, inventory):
        wait_for_stream(simulator)
        simulator.add_events(3000, message="Burst {n}.")
        simulator.add_events(1, message="The last.")
        wait_until_same(chassis, simulator, begin)
    # What a BMC says of nothing in particular is about its chassis.
    last = Event.objects.get(text="The last.")
    assert (last.subject_name, last.link) == (chassis.name, f"/chassis/{chassis.pk}/")


@pytest.mark.nightly
def test_the_end_of_a_burst_is_not_waited_for_until_something_else_happens(
    chassis: Chassis, inventory: Inventory, simulator: SimulatorProcess, begin: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_listener, "HURRY_SECONDS", 0.5)
    with listening_to(chassis, inventory):
        wait_for_stream(simulator)
        simulator.add_events(1500, message="Burst {n}.")
        wait_until_same(chassis, simulator, begin)


def test_a_stream_cut_in_the_middle_of_an_event_tells_it_once(
    chassis: Chassis, inventory: Inventory, simulator: SimulatorProcess, begin: int
) -> None:
    with listening_to(chassis, inventory):
        wait_for_stream(simulator)
        simulator.fault("event_stream_cut", count=1)
        simulator.add_events(5)
        wait_until_same(chassis, simulator, begin)
        wait_for_stream(simulator)
        simulator.add_events(2, message="After the cut {n}.")
        wait_until_same(chassis, simulator, begin)


def test_records_without_ids_are_known_by_what_they_say(
    chassis: Chassis, inventory: Inventory, simulator: SimulatorProcess, begin: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_listener, "CHECK_SECONDS", 0.3)
    simulator.fault("events_without_id")
    with listening_to(chassis, inventory):
        wait_for_stream(simulator)
        simulator.add_events(30, message="Nameless.")
        simulator.add_events(30, message="Nameless.")
        wait_until_same(chassis, simulator, begin)
        wait_for(lambda: not Event.objects.filter(source="bmc", entry_uri="").exists())
    with listening_to(chassis, inventory):
        wait_for_stream(simulator)
        simulator.add_events(1, message="One more.")
        wait_until_same(chassis, simulator, begin)


@pytest.fixture
def often(settings: Any) -> None:
    """Look at chassis time and again."""
    settings.CONFIG = dataclasses.replace(settings.CONFIG, inventory_period=0.3)


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("offered", [True, False])
def test_without_a_stream_the_log_is_read_time_and_again(
    chassis: Chassis, inventory: Inventory, simulator: SimulatorProcess, begin: int, *, offered: bool
) -> None:
    simulator.fault("event_stream_missing")
    if not offered:
        service = msgspec.structs.replace(inventory.service, event_stream_uri="")
        inventory = msgspec.structs.replace(inventory, service=service)
    with listening_to(chassis, inventory):
        for round_ in range(3):
            simulator.add_events(7, message=f"Round {round_}: {{n}}.")
            wait_until_same(chassis, simulator, begin)
    assert not Event.objects.filter(streamed=True).exists()


@pytest.mark.usefixtures("often")
def test_a_stream_that_is_offered_only_later_is_listened_to(
    chassis: Chassis, inventory: Inventory, simulator: SimulatorProcess, begin: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_listener, "CHECK_SECONDS", 0.5)
    service = msgspec.structs.replace(inventory.service, event_stream_uri="")
    with listening_to(chassis, msgspec.structs.replace(inventory, service=service)):
        wait_for_stream(simulator)
        simulator.add_events(3)
        wait_until_same(chassis, simulator, begin)
    assert Event.objects.filter(streamed=True).exists()


def test_while_the_database_is_away_events_wait_for_it(
    chassis: Chassis, inventory: Inventory, simulator: SimulatorProcess, begin: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("a file is locked")
    monkeypatch.setattr(event_listener, "MAX_WAITING_EVENTS", 60)
    monkeypatch.setattr(event_listener, "HURRY_SECONDS", 0.5)
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "timeout", 0.2)
    with listening_to(chassis, inventory):
        wait_for_stream(simulator)
        simulator.add_events(5, message="Before {n}.")
        wait_until_same(chassis, simulator, begin)
        with closing(sqlite3.connect(str(connection.settings_dict["NAME"]), isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            for round_ in range(4):
                simulator.add_events(50, message=f"Meanwhile {round_}: {{n}}.")
                time.sleep(0.2)
            assert sum(kept(chassis).values()) == 5
            other.execute("ROLLBACK")
        wait_until_same(chassis, simulator, begin)


def test_times_are_ours_where_the_clock_of_a_bmc_is_wrong(
    chassis: Chassis, inventory: Inventory, simulator: SimulatorProcess, begin: int
) -> None:
    simulator.set_clock(-3 * 86400)
    try:
        simulator.add_events(1, message="From the log.")
        with listening_to(chassis, inventory):
            wait_until_same(chassis, simulator, begin)
            wait_for_stream(simulator)
            simulator.add_events(1, message="From the stream.")
            wait_until_same(chassis, simulator, begin)
    finally:
        simulator.set_clock(3 * 86400)
    now = timezone.now()
    for row in Event.objects.filter(source="bmc"):
        assert abs(row.at - now) < timedelta(seconds=30), row.text
        assert row.told_at is not None
        assert timedelta(days=2, hours=23) < now - row.told_at < timedelta(days=3, hours=1)
