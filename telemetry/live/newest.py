"""The newest readings: of devices and their links in one read, for lists and filters by value, and of single series."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import cast

import redis
from django.conf import settings

from core.errors import Unavailable
from core.language import _
from telemetry.live.fleet import REDIS_TIMEOUT_SECONDS, PlacedOwners, SeriesPlaces, catalogue_places
from telemetry.live.frames import CATALOGUES_PER_BATCH, series_indexes, stored_frame


def newest_values(chassis: Collection[int]) -> dict[str, dict[int, float]]:
    """Return the temperature (°C) and use (%) of devices, and the busier direction (GB/s) of ports, by their ids.

    Of several sensors of a device, it is the greatest. Raises Unavailable without Redis.
    """
    found: dict[str, dict[int, float]] = {"temp": {}, "use": {}, "traffic": {}}
    if not chassis:
        return found
    for _pk, own, values in _placed_values(list(chassis)):
        _add_greatest(found["temp"], own.devices["temperature_celsius"], values)
        _add_greatest(found["use"], own.devices["utilisation_percent"], values)
        _add_greatest(found["traffic"], own.traffic, values, factor=1e-9)
    return found


def _placed_values(ids: list[int]) -> Iterator[tuple[int, SeriesPlaces, list[float]]]:
    """Return the newest values of chassis with the places of series in them; raises Unavailable without Redis."""
    try:
        with redis.Redis.from_url(settings.REDIS_URL, socket_timeout=REDIS_TIMEOUT_SECONDS) as client:
            raws = client.mget([f"live:frame:{pk}" for pk in ids])
            frames = {pk: frame for pk, raw in zip(ids, raws, strict=True) if (frame := stored_frame(raw)) is not None}
            places = catalogue_places(client, {pk: frame.revision for pk, frame in frames.items()})
    except (redis.RedisError, OSError) as error:
        raise Unavailable(_("The newest readings are not available now: Redis does not answer.")) from error
    newest = ((pk, own, frames[pk].values.tolist()) for pk, own in places.items())
    return ((pk, own, values) for pk, own, values in newest if len(values) == own.count)


def newest_base_watts(devices: Mapping[int, Collection[int]]) -> dict[int, float]:
    """Return the power of each chassis less that of its devices, W; `devices` are the ids of those in it.

    Chassis that do not report their own power and that of each of these devices are left out; so are all without Redis.
    """
    found: dict[int, float] = {}
    try:
        newest = _placed_values(list(devices))
    except Unavailable:
        return found
    for pk, own, values in newest:
        power: dict[int, float] = {}
        if own.watts is None:
            continue
        _add_greatest(power, own.devices["power_watts"], values)
        base = values[own.watts] - sum(power.values())
        if set(devices[pk]) <= power.keys() and base > 0:  # False for NaN
            found[pk] = base
    return found


def newest_series_values(wanted: Mapping[int, Collection[str]]) -> dict[tuple[int, str], float]:
    """Return the newest values of series (their keys, by chassis), of at most CATALOGUES_PER_BATCH chassis.

    Those of chassis that are not read now, and missing ones, are left out.
    """
    found: dict[tuple[int, str], float] = {}
    chassis = sorted(wanted)[:CATALOGUES_PER_BATCH]
    if not chassis:
        return found
    with redis.Redis.from_url(settings.REDIS_URL, socket_timeout=REDIS_TIMEOUT_SECONDS) as client:
        raws = cast("list[bytes | None]", client.mget([f"live:frame:{pk}" for pk in chassis]))
        for pk, frame in zip(chassis, map(stored_frame, raws), strict=True):
            keys = list(wanted[pk]) if frame is not None else []
            places = series_indexes(client, pk, frame.revision, keys) if frame is not None else []
            for key, place in zip(keys, places, strict=True):
                if frame is not None and place is not None and place < len(frame.values):
                    value = float(frame.values[place])
                    found |= {} if math.isnan(value) else {(pk, key): value}
    return found


def _add_greatest(found: dict[int, float], placed: PlacedOwners, values: list[float], *, factor: float = 1.0) -> None:
    for owner, place in zip(placed[0], placed[1].tolist(), strict=True):
        if math.isfinite(values[place]):
            found[owner] = max(factor * values[place], found.get(owner, -math.inf))
