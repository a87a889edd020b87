"""The newest readings of all chassis that a person may see, from the frames that Redis has: a few reads for all."""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import numpy as np
import redis
from django.conf import settings
from numpy.typing import NDArray

from accounts.models import User
from fabric.history.selectors import owned_since
from fabric.inventory.models import Chassis, Device
from fabric.topology.readings import ChassisReadings, FleetReadings, HotDevice
from telemetry.live.catalogue import SeriesEntry, Values
from telemetry.live.frames import RECENT_SECONDS, recent_frames, stored_catalogue, stored_frame

logger = logging.getLogger(__name__)

REDIS_TIMEOUT_SECONDS: Final = 1.0  # then the overview is shown without readings rather than late
HOTTEST_SHOWN: Final = 5
LINE_POINTS: Final = 20
POINT_SECONDS: Final = RECENT_SECONDS / LINE_POINTS
DEVICE_QUANTITIES: Final = ("temperature_celsius", "utilisation_percent", "power_watts")
TRAFFIC: Final = frozenset({"rx_bytes_per_second", "tx_bytes_per_second"})

# Of the list of each key every `ARGV[1]`th frame, newest first, and an empty one: a line needs few of them.
SAMPLE_SCRIPT: Final = f"""
local found, step = {{}}, tonumber(ARGV[1])
for _, key in ipairs(KEYS) do
  local length = redis.call('TYPE', key).ok == 'list' and redis.call('LLEN', key) or 0
  for place = length - 1, math.max(0, length - step * {LINE_POINTS}), -step do
    found[#found + 1] = redis.call('LINDEX', key, place)
  end
  found[#found + 1] = ''
end
return found
"""


PlacedOwners = tuple[list[int], NDArray[np.intp]]


@dataclass(frozen=True)
class SeriesPlaces:
    """Where a catalogue has what the overview shows: owners (row ids) and places of values by quantity.

    `traffic` is by port, `watts` the place of the power of the chassis as a whole, None where it has no such reading.
    """

    count: int
    devices: Mapping[str, PlacedOwners]
    traffic: PlacedOwners
    watts: int | None


@dataclass(frozen=True)
class VisibleParts:
    """The devices of a chassis that a person may see, and since when (Unix s) the ports behind their slots."""

    devices: set[int] = field(default_factory=set)
    ports: dict[int, float] = field(default_factory=dict)


NOTHING: Final = VisibleParts()


def fleet_readings(person: User) -> FleetReadings:
    """Return the newest readings of all that a person may see; none where Redis does not answer."""
    parts = _visible_parts(person)
    chassis = list(Chassis.objects.visible_to(person).values_list("pk", flat=True))
    try:
        with redis.Redis.from_url(settings.REDIS_URL, socket_timeout=REDIS_TIMEOUT_SECONDS) as client:
            return _read(client, person, chassis, parts)
    except (redis.RedisError, OSError) as error:
        logger.warning("the newest readings cannot be read: %s", error)
        return FleetReadings()


def _visible_parts(person: User) -> dict[int, VisibleParts]:
    visible = Device.objects.visible_to(person).filter(missing_since=None)
    rows = list(visible.values_list("pk", "chassis", "slot__port"))
    parts: dict[int, VisibleParts] = defaultdict(VisibleParts)
    since = {} if person.is_administrator else owned_since(*{chassis for _, chassis, _ in rows})
    for pk, chassis, port in rows:
        parts[chassis].devices.add(pk)
        if port is not None:
            parts[chassis].ports[port] = at.timestamp() if (at := since.get(("port", port))) else -math.inf
    return parts


def _read(client: Any, person: User, chassis: Sequence[int], parts: Mapping[int, VisibleParts]) -> FleetReadings:
    if not chassis:
        return FleetReadings()
    raws = client.mget([f"live:frame:{pk}" for pk in chassis])
    frames = {pk: frame for pk, raw in zip(chassis, raws, strict=True) if (frame := stored_frame(raw)) is not None}
    places = catalogue_places(client, {pk: frame.revision for pk, frame in frames.items()})
    found: dict[int, ChassisReadings] = {}
    hot: list[tuple[float, int, int]] = []
    for pk, frame in frames.items():
        own, seen = places.get(pk), parts.get(pk, NOTHING)
        if own is None or len(frame.values) != own.count:
            continue
        found[pk] = _readings(frame.values, own, seen, is_whole=person.is_administrator)
        hot += [(heat, device, pk) for heat, device in _device_values(frame.values, own, "temperature_celsius", seen)]
    hot.sort(key=lambda one: (-one[0], one[1]))
    return FleetReadings(
        of=found,
        hottest=tuple(
            HotDevice(chassis_id=pk, device_id=device, celsius=heat) for heat, device, pk in hot[:HOTTEST_SHOWN]
        ),
        traffic=_traffic_line(client, places, parts),
    )


_known_places: dict[int, tuple[tuple[int, int], SeriesPlaces]] = {}


def catalogue_places(client: Any, revisions: Mapping[int, int]) -> dict[int, SeriesPlaces]:
    """Return the places of chassis; the catalogues, up to 1 MB each, are read where they have changed."""
    with client.pipeline(transaction=False) as pipe:
        for pk in revisions:
            pipe.strlen(f"live:catalogue:{pk}")
        sizes = cast("list[int]", pipe.execute(raise_on_error=False))
    found: dict[int, SeriesPlaces] = {}
    for (pk, revision), size in zip(revisions.items(), sizes, strict=True):
        version = (revision, size)
        if pk not in _known_places or _known_places[pk][0] != version:
            catalogue = stored_catalogue(client.mget([f"live:catalogue:{pk}"])[0])
            if catalogue is None or catalogue.revision != revision:
                continue
            _known_places[pk] = version, series_places(catalogue.series)
        found[pk] = _known_places[pk][1]
    return found


def series_places(entries: Sequence[SeriesEntry]) -> SeriesPlaces:
    """Return the places of the values that the overview shows."""
    owners: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for place, entry in enumerate(entries):
        kind = "traffic" if entry["object"] == "port" and entry["quantity"] in TRAFFIC else ""
        if entry["object"] == "device" and entry["quantity"] in DEVICE_QUANTITIES:
            kind = entry["quantity"]
        if kind:
            owners[kind].append((entry["id"], place))
    whole = [
        (place, entry["label"].lower())
        for place, entry in enumerate(entries)
        if entry["object"] == "chassis" and entry["quantity"] == "power_watts"
    ]
    # Beside the total there are those of power supplies: what a chassis has one of is its total, too.
    total = [place for place, label in whole if "total" in label or len(whole) == 1]
    return SeriesPlaces(
        count=len(entries),
        devices={quantity: _columns(owners[quantity]) for quantity in DEVICE_QUANTITIES},
        traffic=_columns(owners["traffic"]),
        watts=total[0] if total else None,
    )


def _columns(pairs: Sequence[tuple[int, int]]) -> PlacedOwners:
    return [owner for owner, _ in pairs], np.array([place for _, place in pairs], dtype=np.intp)


def _readings(values: Values, places: SeriesPlaces, seen: VisibleParts, *, is_whole: bool) -> ChassisReadings:
    heat, use, power = (
        [value for value, _ in _device_values(values, places, quantity, seen)] for quantity in DEVICE_QUANTITIES
    )
    watts = _known(values[places.watts]) if places.watts is not None else None
    return ChassisReadings(
        celsius=max(heat, default=None),
        utilisation=sum(use) / len(use) if use else None,
        bytes_per_second=_traffic(values, _traffic_places(places, seen)[0]),
        watts=watts if is_whole else sum(power) if power else None,
    )


def _device_values(values: Values, places: SeriesPlaces, quantity: str, seen: VisibleParts) -> list[tuple[float, int]]:
    """Return the values of visible devices, each with its device; of several sensors of one device the highest."""
    owners, own = places.devices[quantity]
    highest: dict[int, float] = {}
    for owner, value in zip(owners, values[own].tolist(), strict=True):
        if owner in seen.devices and math.isfinite(value):
            highest[owner] = max(value, highest.get(owner, value))
    return [(value, owner) for owner, value in highest.items()]


def _traffic_places(places: SeriesPlaces, seen: VisibleParts) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Return the places of the rates of visible ports, and since when (Unix s) each counts."""
    owners, own = places.traffic
    begins = np.array([seen.ports.get(owner, math.inf) for owner in owners])
    return own[begins < math.inf], begins[begins < math.inf]


def _traffic(values: NDArray[np.floating[Any]], places: NDArray[np.intp]) -> float | None:
    rates = values[places]
    known = rates[np.isfinite(rates)]
    return float(known.sum(dtype=np.float64)) if len(known) else None


def _traffic_line(
    client: Any, places: Mapping[int, SeriesPlaces], parts: Mapping[int, VisibleParts]
) -> tuple[float | None, ...]:
    """Return the traffic at LINE_POINTS moments of the last RECENT_SECONDS, oldest first."""
    step = max(1, round(POINT_SECONDS / settings.CONFIG.reading_period))
    raws = iter(client.eval(SAMPLE_SCRIPT, len(places), *(f"live:recent:{pk}" for pk in places), step))
    now = time.time()
    sums: list[float | None] = [None] * LINE_POINTS
    for pk, own in places.items():
        (ports, since), newest = _traffic_places(own, parts.get(pk, NOTHING)), 0.0
        revision = _known_places[pk][0][0]
        for of, at, values in recent_frames(iter(raws.__next__, b""), since=now - RECENT_SECONDS):
            newest = newest or at
            # Counted from the newest: then each moment has one frame of each chassis.
            back = int((now - newest) / POINT_SECONDS) + round((newest - at) / POINT_SECONDS)
            if of != revision or len(values) != own.count or not 0 <= back < LINE_POINTS:
                continue
            rate = _traffic(values, ports[since <= at])
            if rate is not None:
                sums[-1 - back] = rate + (sums[-1 - back] or 0.0)
    return tuple(sums)


def _known(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None
