"""The poller against a running simulated chassis: frames each second, whatever the inventory beside them does."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import redis
from django.conf import settings

from fabric.inventory.models import Chassis, Device
from falconweb.testing import add_chassis
from falconweb.testing.processes import SimulatorProcess
from telemetry.instrumentation import metrics
from telemetry.live import frames as live_frames
from telemetry.live.frames import Frame, decode_key
from telemetry.polling.chassis_poller import ChassisPoller
from telemetry.polling.claims import CLAIM_SECONDS
from tests.telemetry.polling.worker import polling
from tests.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)

PATIENCE = 60.0  # s; for the first frame


@pytest.fixture
def simulator() -> Iterator[SimulatorProcess]:
    with SimulatorProcess(chassis="falcon-1") as process:
        yield process


@pytest.fixture
def chassis(simulator: SimulatorProcess) -> Chassis:
    """falcon-1, not yet looked at."""
    return add_chassis(simulator)


def frames(chassis: Chassis, seconds: float) -> Iterator[Frame]:
    """Yield the frames that are published within so many seconds."""
    client = redis.Redis.from_url(settings.REDIS_URL)
    with client.pubsub() as pubsub:  # type: ignore[no-untyped-call]
        pubsub.subscribe(f"live:{chassis.pk}")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            message = pubsub.get_message(ignore_subscribe_messages=True, timeout=0.2)
            if message:
                yield decode_key(message["data"])


def test_a_frame_each_second_while_the_inventory_is_refreshed_beside(
    chassis: Chassis, simulator: SimulatorProcess
) -> None:
    with polling():
        first = next(frames(chassis, PATIENCE))
        simulator.fault("slow", delay=0.3)  # each request: a refresh of some dozen takes longer than is looked on
        simulator.fault("surprise_removal", "drawer1slot1")  # its event asks for a refresh
        got = [frame.sequence for frame in frames(chassis, 8)]
    assert len(first.values) > 300
    # A late start of the counting and some skipped beats of a busy machine are no defect; a refresh that stops the
    # readings is.
    assert len(got) >= 5, got
    assert all(later - earlier <= 3 for earlier, later in itertools.pairwise(got)), got


def test_an_event_brings_the_mirror_up_to_date_at_once(
    chassis: Chassis, simulator: SimulatorProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "CONFIG", replace(settings.CONFIG, inventory_period=3600.0))
    with polling():
        wait_for(lambda: Device.objects.filter(chassis=chassis, missing_since=None).count() > 10)
        wait_for(lambda: simulator.state()["streams"] > 0)
        simulator.fault("surprise_removal", "drawer1slot1")
        wait_for(lambda: Device.objects.filter(chassis=chassis, missing_since__isnull=False).exists())


def test_the_client_never_takes_more_than_its_places(chassis: Chassis, simulator: SimulatorProcess) -> None:
    with polling():
        next(frames(chassis, PATIENCE))
        assert max(simulator.state()["max_in_flight"].values()) <= 2


def test_another_worker_takes_over_within_the_lease_and_nobody_polls_twice(chassis: Chassis) -> None:
    client = redis.Redis.from_url(settings.REDIS_URL)
    client.set(f"polling:{chassis.pk}", "dead-worker:1", px=round(CLAIM_SECONDS * 1000))  # it died a moment ago
    with polling("first"):
        began = time.monotonic()
        next(frames(chassis, PATIENCE))
        assert time.monotonic() - began > CLAIM_SECONDS / 2
        with polling("second"):
            sequences = [frame.sequence for frame in frames(chassis, 4)]
            assert client.get(f"polling:{chassis.pk}") == b"first"
        assert len(sequences) == len(set(sequences))
    # One that ends gives the lease back, so that another need not wait for it.
    assert client.get(f"polling:{chassis.pk}") is None


class DeafOnce(ChassisPoller):
    """A chassis that is followed on after its first cancellation, as where a request takes that for its time-out."""

    async def run(self) -> None:
        try:
            await super().run()
        except asyncio.CancelledError:
            await super().run()


def test_a_share_is_handed_over_bit_by_bit_and_warns_nobody(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("telemetry.polling.poller.CANCEL_SECONDS", 0.5)
    monkeypatch.setattr("telemetry.polling.poller.ChassisPoller", DeafOnce)
    client = redis.Redis.from_url(settings.REDIS_URL)
    monkeypatch.setattr("telemetry.polling.poller.MAX_HANDOVERS", 1)
    caplog.set_level(logging.INFO)

    def holders() -> Counter[Any]:
        return Counter(client.get(f"polling:{pk}") for pk in Chassis.objects.values_list("pk", flat=True))

    with SimulatorProcess("--chassis-count", "4") as several:
        for number, url in enumerate(several.addresses):
            row = Chassis(name=f"falcon-{number}", url=url, username="administrator", fingerprint=several.fingerprint)
            row.set_password(several.password)
            row.save()
        with polling("first"):
            wait_for(lambda: holders() == {b"first": 4})
            with polling("second"):
                wait_for(lambda: holders() == {b"first": 2, b"second": 2})
                moved = [one for one in Chassis.objects.all() if client.get(f"polling:{one.pk}") == b"second"]
                next(frames(moved[0], PATIENCE))
    told = [record for record in caplog.records if record.name.startswith("telemetry")]
    assert [record.getMessage() for record in told if record.levelno > logging.INFO] == []
    released = [record.getMessage() for record in told if "releasing" in record.getMessage()]
    assert released == ["releasing 1 chassis: 2 workers share them"] * 2


def test_who_takes_over_reads_at_once_what_was_found_a_moment_ago(
    chassis: Chassis, simulator: SimulatorProcess
) -> None:
    with polling():
        before = next(frames(chassis, PATIENCE))
        wait_for(lambda: Chassis.objects.get(pk=chassis.pk).inventory_at)
    # A walk takes a minute from here on, the report does not.
    simulator.fault("slow", path="/redfish/v1/Chassis", delay=1.0)
    with polling():
        began = time.monotonic()
        after = next(frames(chassis, PATIENCE))
        assert time.monotonic() - began < 10 * CLAIM_SECONDS
    assert len(after.values) == len(before.values)
    assert after.revision == before.revision
    assert after.sequence > before.sequence


@pytest.mark.nightly
def test_one_chassis_that_hangs_leaves_the_others_live(chassis: Chassis, simulator: SimulatorProcess) -> None:
    with SimulatorProcess(chassis="falcon-2") as ill:
        ill.fault("hang")
        other = add_chassis(ill, name="falcon-2")
        with polling():
            next(frames(chassis, PATIENCE))
            assert len(list(frames(chassis, 5))) >= 4
            wait_for(lambda: Chassis.objects.get(pk=other.pk).last_error)
            ill.clear_faults()
            next(frames(other, PATIENCE))
            wait_for(lambda: Chassis.objects.get(pk=other.pk).last_error == "")


def test_a_sensor_that_measures_in_another_unit_is_left_out_until_that_is_known_and_converted_then(
    chassis: Chassis, simulator: SimulatorProcess
) -> None:
    with polling():
        next(frames(chassis, PATIENCE))
        series = live_frames.current_catalogue(chassis.pk)
        place = next(
            place
            for place, entry in enumerate(series)
            if entry["object"] == "device" and entry["quantity"] == "temperature_celsius"
        )
        wait_for(lambda: simulator.state()["streams"] > 0)
        # Each change comes just after a frame: a reading answered before the event of it came would go out as it was.
        stream, values = frames(chassis, PATIENCE), []
        next(stream)
        before = metrics.counter_values()
        # A look at the sensor takes longer than a reading, so that there is one in between.
        simulator.fault("slow", path="/Sensors/slot1_temp", delay=2.0)
        other = simulator.fault("other_unit", "drawer1_slot1_temp")

        def counted(name: str) -> float:
            return metrics.counter_values().get((name, chassis.pk), 0) - before.get((name, chassis.pk), 0)

        for changed in (1, 2):
            for frame in stream:
                values.append(frame.values[place])
                if counted("units_changed") == changed and not math.isnan(values[-1]):
                    break
            simulator.end_fault(other)
        assert all(math.isnan(value) or 20 < value < 90 for value in values), values
        assert not math.isnan(values[-1]), values
        assert counted("units_changed") == 2
        assert counted("readings_in_doubt") == sum(map(math.isnan, values)) >= 2
        assert live_frames.current_catalogue(chassis.pk) == series
