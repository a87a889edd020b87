"""Whether held devices are used, as the frames in a real Valkey tell."""

from __future__ import annotations

import asyncio
import math
import time
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
import redis.asyncio
from django.conf import settings

from accounts.models import Tenant
from fabric.inventory.models import Chassis, Device, Port, Slot
from fabric.leases.models import Activity
from telemetry.live.catalogue import SeriesEntry
from telemetry.live.frames import Frame, set_catalogue
from telemetry.live.services import record_device_activity
from tests.telemetry.live.publishing import put_frame

pytestmark = pytest.mark.django_db


def entry(thing: str, pk: int, quantity: str) -> SeriesEntry:
    return SeriesEntry(key=f"{thing}/{pk}/{quantity}", object=thing, id=pk, quantity=quantity, label="", unit="")


@pytest.fixture
def devices(db: None) -> list[Device]:
    """Three held devices with the ports of their slots, and one of nobody."""
    tenant = Tenant.objects.create(name="One")
    chassis = Chassis.objects.create(name="falcon-1", url="https://127.0.0.1:1")
    made = []
    for number in range(4):
        port = Port.objects.create(chassis=chassis, uri=f"/p{number}", name=f"p{number}")
        slot = Slot.objects.create(chassis=chassis, uri=f"/s{number}", name=f"s{number}", port=port)
        made.append(
            Device.objects.create(
                chassis=chassis, uri=f"/g{number}", name=f"g{number}", slot=slot, tenant=tenant if number < 3 else None
            )
        )
    return made


def measured(devices: list[Device], *frames: list[float], at: float | None = None) -> None:
    """Publish frames a second apart, the last at an instant: use of the first two devices, traffic of all four."""
    series = [entry("device", one.pk, "utilisation_percent") for one in devices[:2]]
    series += [entry("port", one.slot.port_id or 0, "rx_bytes_per_second") for one in devices if one.slot]
    chassis, last = devices[0].chassis_id, at or time.time()

    async def send() -> None:
        async with redis.asyncio.Redis.from_url(settings.REDIS_URL) as bus:
            await bus.delete(f"live:recent:{chassis}")
            revision = await set_catalogue(bus, chassis, series)
            for place, values in enumerate(frames):
                moment = last - (len(frames) - 1 - place)
                await put_frame(bus, Frame(revision, chassis, int(moment), moment, np.array(values, dtype=np.float64)))

    asyncio.run(send())


def states() -> list[bool]:
    """Return which devices are noted as used, in order."""
    return [one.quiet_since is None for one in Activity.objects.order_by("device")]


def test_use_or_traffic_at_any_second_of_the_minute_is_activity(devices: list[Device]) -> None:
    measured(devices, [0, 0, 0, 9e9, 0, 9e9], [55, 0, 0, 0, 0, 9e9], [0, 0.5, 1e4, 0, 1e4, 9e9])
    record_device_activity()
    assert states() == [True, True, False]  # and nothing of the one that nobody holds


def test_what_is_not_measured_is_not_noted(devices: list[Device]) -> None:
    measured(devices, [math.nan, 0, math.nan, math.nan, math.nan, 0])
    record_device_activity()
    assert [one.device_id for one in Activity.objects.all()] == [devices[1].pk]


def test_old_frames_tell_nothing_of_now(devices: list[Device]) -> None:
    measured(devices, [0, 0, 0, 0, 0, 0], at=time.time() - 300)
    record_device_activity()
    assert not Activity.objects.exists()


def test_quiet_goes_on_until_it_is_used_and_begins_anew_after_a_gap(devices: list[Device]) -> None:
    still, busy = [0.0] * 6, [90.0] + [0.0] * 5
    measured(devices, still)
    record_device_activity()
    begin = Activity.objects.get(device=devices[0]).quiet_since
    measured(devices, still)
    record_device_activity()
    assert Activity.objects.get(device=devices[0]).quiet_since == begin
    measured(devices, busy)
    record_device_activity()
    noted = Activity.objects.get(device=devices[0])
    assert (noted.quiet_since, noted.active_at is not None) == (None, True)
    Activity.objects.update(measured_at=datetime.now(UTC) - timedelta(hours=1), quiet_since=begin)
    measured(devices, still)
    record_device_activity()
    again = Activity.objects.get(device=devices[1]).quiet_since
    assert again is not None
    assert begin is not None
    assert again > begin


def test_another_catalogue_s_frames_are_left_out(devices: list[Device]) -> None:
    measured(devices, [90, 0, 0, 0, 0, 0])
    series = [entry("device", devices[1].pk, "utilisation_percent")]

    async def renew() -> None:
        async with redis.asyncio.Redis.from_url(settings.REDIS_URL) as bus:
            await set_catalogue(bus, devices[0].chassis_id, series)

    asyncio.run(renew())
    record_device_activity()
    assert not Activity.objects.exists()
