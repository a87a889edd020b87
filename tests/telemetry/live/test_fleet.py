"""The newest readings of the fleet, as the overview shows them: whose, from which frames, and how hot is too hot."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
import redis
from django.conf import settings
from django.urls import reverse
from django.utils import timezone

from accounts.models import User
from fabric.inventory.models import Device
from telemetry.live.catalogue import SeriesEntry
from telemetry.live.fleet import LINE_POINTS, fleet_readings
from telemetry.live.frames import Frame, encode_key, pack_recent
from tests.access.lab import Lab, lab, made_lab
from tests.pages import page_text

__all__ = ["lab", "made_lab"]
pytestmark = pytest.mark.django_db


@pytest.fixture
def bus() -> Iterator[Any]:
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        client.flushdb()
        yield client
        client.flushdb()


def others_device(lab: Lab) -> Device:
    device: Device = Device.objects.select_related("slot").exclude(pk=lab.device.pk).exclude(slot__port=None).get()
    return device


def publish(
    bus: Any, chassis: int, readings: dict[tuple[str, int, str], float], *, ages: tuple[float, ...] = ()
) -> None:
    """Put a catalogue and a frame with these values, and recent frames of these ages (s)."""
    series = [
        SeriesEntry(key=f"{kind}/{pk}/{quantity}", object=kind, id=pk, quantity=quantity, label="Total", unit="")
        for kind, pk, quantity in readings
    ]
    bus.set(f"live:catalogue:{chassis}", json.dumps({"revision": 3, "series": series}))
    values = np.array([*readings.values()])
    bus.set(f"live:frame:{chassis}", encode_key(Frame(3, chassis, 1, time.time(), values)))
    for age in ages:
        bus.rpush(f"live:recent:{chassis}", pack_recent(Frame(3, chassis, 1, time.time() - age, values)))


def readings_of(lab: Lab) -> dict[tuple[str, int, str], float]:
    other = others_device(lab)
    assert lab.device.slot is not None
    assert other.slot is not None
    return {
        ("device", lab.device.pk, "temperature_celsius"): 60.0, ("device", other.pk, "temperature_celsius"): 80.0,
        ("device", lab.device.pk, "power_watts"): 100.0, ("device", other.pk, "power_watts"): 200.0,
        ("port", lab.device.slot.port_id or 0, "rx_bytes_per_second"): 1e9,
        ("port", other.slot.port_id or 0, "tx_bytes_per_second"): 4e9,
        ("chassis", 0, "power_watts"): 1500.0,
        ("device", lab.device.pk, "utilisation_percent"): 40.0, ("device", other.pk, "utilisation_percent"): 90.0,
    }  # fmt: skip


def test_a_tenant_is_told_the_readings_of_its_own_devices_and_no_sum_with_those_of_others(lab: Lab, bus: Any) -> None:
    publish(bus, lab.device.chassis_id, readings_of(lab))
    whole = fleet_readings(User.objects.get(username="administrator"))
    own = fleet_readings(User.objects.get(username="owner"))
    of_whole, of_own = whole.of[lab.device.chassis_id], own.of[lab.device.chassis_id]
    assert (of_whole.celsius, of_whole.utilisation, of_whole.bytes_per_second, of_whole.watts) == (80, 65, 5e9, 1500)
    assert (of_own.celsius, of_own.utilisation, of_own.bytes_per_second, of_own.watts) == (60, 40, 1e9, 100)
    assert [one.device_id for one in own.hottest] == [lab.device.pk]
    assert [one.celsius for one in whole.hottest] == [80, 60]
    assert not fleet_readings(User.objects.get(username="stranger")).of
    shown = page_text(lab.clients["owner"].get(reverse("fabric:overview"), {"by": "temperature"}))
    assert "60 °C" in shown
    assert "80 °C" not in shown


def test_the_line_has_a_tenants_traffic_since_its_lease(lab: Lab, bus: Any) -> None:
    Device.objects.filter(pk=lab.device.pk).update(tenant_since=timezone.now() - timedelta(seconds=200))
    publish(bus, lab.device.chassis_id, readings_of(lab), ages=tuple(range(590, 0, -1)))
    line = fleet_readings(User.objects.get(username="administrator")).traffic
    assert len(line) == LINE_POINTS
    assert set(line[1:]) == {5e9}
    own = fleet_readings(User.objects.get(username="owner")).traffic
    assert set(own[: LINE_POINTS // 2]) == {None}
    assert set(own[-5:]) == {1e9}


def test_a_changed_catalogue_is_read_again_and_what_is_no_frame_is_left_out(lab: Lab, bus: Any) -> None:
    boss, chassis = User.objects.get(username="administrator"), lab.device.chassis_id
    publish(bus, chassis, readings_of(lab))
    assert fleet_readings(boss).of
    publish(bus, chassis, {("chassis", 0, "power_watts"): 900.0})
    assert fleet_readings(boss).of[chassis].watts == 900
    assert not fleet_readings(boss).hottest
    for key, value in ((f"live:catalogue:{chassis}", b"\xff"), (f"live:frame:{chassis}", b"no frame")):
        bus.set(key, value)
        assert not fleet_readings(boss).of
        assert lab.clients["administrator"].get(reverse("fabric:overview")).status_code == 200
