"""The newest values of devices and ports, in one read."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest
import redis
from django.conf import settings

from core.errors import Unavailable
from telemetry.live.frames import Frame, encode_key
from telemetry.live.newest import newest_base_watts, newest_values
from tests.redis_keys import delete_keys

ONE, OTHER, SILENT = 910001, 910002, 910003


@pytest.fixture
def client() -> Iterator[redis.Redis]:
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        yield client
    delete_keys("live:*:91000*")


def publish(client: redis.Redis, chassis: int, series: list[tuple[str, int, str, float]], revision: int = 3) -> None:
    entries = [
        {
            "key": f"{kind}/{pk}/{quantity}/{place}",
            "object": kind,
            "id": pk,
            "quantity": quantity,
            "label": "",
            "unit": "",
        }
        for place, (kind, pk, quantity, _) in enumerate(series)
    ]
    client.set(f"live:catalogue:{chassis}", json.dumps({"revision": revision, "series": entries}))
    values = np.array([value for *_, value in series])
    client.set(f"live:frame:{chassis}", encode_key(Frame(3, chassis, 1, 1.5, values)))


def test_the_newest_values_are_the_greatest_of_each_device_and_port(client: redis.Redis) -> None:
    publish(
        client, ONE,
        [("device", 1, "temperature_celsius", 61.5), ("device", 1, "temperature_celsius", 70.0),
         ("device", 2, "temperature_celsius", float("nan")), ("device", 2, "utilisation_percent", 0.0),
         ("port", 7, "rx_bytes_per_second", 2e9), ("port", 7, "tx_bytes_per_second", 5e8),
         ("chassis", 0, "temperature_celsius", 20.0)],
    )  # fmt: skip
    publish(client, OTHER, [("device", 3, "temperature_celsius", 40.0)])
    assert newest_values([ONE, OTHER, SILENT]) == {
        "temp": {1: 70.0, 3: 40.0}, "use": {2: 0.0}, "traffic": {7: 2.0},
    }  # fmt: skip
    assert newest_values([]) == {"temp": {}, "use": {}, "traffic": {}}


def test_the_power_of_a_chassis_without_its_devices_needs_all_of_them(client: redis.Redis) -> None:
    power = "power_watts"
    publish(client, ONE, [("chassis", 0, power, 900.0), ("device", 1, power, 250.0), ("device", 2, power, 300.0)])
    publish(client, OTHER, [("chassis", 0, power, 400.0), ("device", 3, power, 250.0), ("device", 4, power, np.nan)])
    assert newest_base_watts({ONE: [1, 2], OTHER: [3], SILENT: [5]}) == {ONE: 350.0, OTHER: 150.0}
    assert newest_base_watts({ONE: [1, 2, 9], OTHER: [3, 4]}) == {}  # the rest would be that of a device, too
    publish(client, ONE, [("chassis", 0, power, np.nan), ("device", 1, power, 250.0)])
    publish(client, OTHER, [("chassis", 0, power, 100.0), ("device", 3, power, 250.0)])
    assert newest_base_watts({ONE: [1], OTHER: [3]}) == {}


def test_a_frame_of_another_catalogue_has_no_values(client: redis.Redis) -> None:
    publish(client, ONE, [("device", 1, "temperature_celsius", 61.5)], revision=4)
    publish(client, OTHER, [("device", 3, "temperature_celsius", 40.0)])
    client.set(f"live:frame:{OTHER}", b"nonsense")
    assert newest_values([ONE, OTHER])["temp"] == {}


def test_without_redis_it_says_so() -> None:
    there = settings.REDIS_URL
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    try:
        with pytest.raises(Unavailable, match="Redis does not answer"):
            newest_values([ONE])
        assert newest_base_watts({ONE: [1]}) == {}
    finally:
        settings.REDIS_URL = there
