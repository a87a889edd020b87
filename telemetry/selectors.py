"""Reading what was measured, on somebody's behalf."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import redis

from accounts.models import User
from fabric.counted import Before, counted_before
from fabric.sights import Sight, held_since, sight_of
from falconweb.errors import Invalid, NotFound, Unavailable
from telemetry import live
from telemetry.catalogue import Entry
from telemetry.frames import Values

MOST_KEYS = 64


@dataclass(frozen=True)
class Recent:
    """Series of one chassis over the last minutes: `at` in Unix s, `values[key]` aligned with it, None for no value."""

    at: list[float]
    series: list[Entry]
    values: dict[str, list[float | None]]


def is_seen(sight: Sight, entry: Entry) -> bool:
    """Tell whether a sight takes in a series."""
    if sight.everything:
        return True
    return entry["id"] in {"device": sight.devices, "port": sight.ports}.get(entry["object"], frozenset())


def counts_before(sight: Sight, entries: Sequence[Entry]) -> list[float]:
    """Return what each of some series has that was counted before it was theirs; 0 for what is no error counter."""
    counted = {f"port/{port}/errors/{name}": float(count) for port, name, count in sight.counted}
    return [counted.get(entry["key"], 0.0) for entry in entries]


def without(values: Values, before: Values) -> Values:
    """Return counters without what was before; one that stands lower began anew meanwhile, and is theirs as it is."""
    with np.errstate(invalid="ignore"):
        rest: Values = np.where(values >= before, values - before, values)
    return rest


def recent_readings(
    person: User, chassis_id: int, keys: Sequence[str], *, seconds: float = live.RECENT_SECONDS
) -> Recent:
    """Return what the person may see of the last `seconds` (at most 600) of the series `keys`.

    Raises NotFound for a chassis or series that is not there or not theirs, Invalid for too many, Unavailable without
    Redis.
    """
    sight = sight_of(person, chassis_id)
    if sight is None:
        raise NotFound("There is no such chassis.")
    if len(keys) > MOST_KEYS:
        raise Invalid(f"Ask for at most {MOST_KEYS} series at a time.")
    with _redis_at_hand():
        entries = {entry["key"]: entry for entry in live.catalogue(chassis_id) if is_seen(sight, entry)}
        if unknown := [key for key in keys if key not in entries]:
            raise NotFound(f"There is no series '{unknown[0][:100]}' of this chassis.")
        at, values = live.recent(chassis_id, keys, since=time.time() - seconds)
    if not sight.everything:
        # What a device did for the tenant before is not this one's to see.
        since = held_since(chassis_id)
        for key in keys:
            begin = since.get((entries[key]["object"], entries[key]["id"]))
            if begin is not None:
                values[key] = [
                    value if moment >= begin.timestamp() else None
                    for moment, value in zip(at, values[key], strict=True)
                ]
        errors = [key for key in keys if entries[key]["object"] == "port" and "/errors/" in key]
        counted = counted_before(person, [chassis_id]) if errors else {}
        for key in errors:
            name = key.partition("/errors/")[2]
            if (before := counted.get(entries[key]["id"])) is not None:
                values[key] = [
                    value if value is None else _own(value, moment, name, before)
                    for moment, value in zip(at, values[key], strict=True)
                ]
    return Recent(at=at, series=[entries[key] for key in keys], values=values)


def readable_series(person: User, chassis_id: int) -> list[Entry]:
    """Return the series of a chassis that the person may see; raises NotFound and Unavailable as `recent_readings`."""
    sight = sight_of(person, chassis_id)
    if sight is None:
        raise NotFound("There is no such chassis.")
    with _redis_at_hand():
        return [entry for entry in live.catalogue(chassis_id) if is_seen(sight, entry)]


def _own(value: float, at: float, name: str, before: Before) -> float:
    """Return what a kept value of a counter has that is somebody's own.

    One that stands lower than it did before began anew, or is an old one that came late; nobody's, then.
    """
    counts = before.counts if at < before.until else before.now
    count = counts.get(name, 0)
    # As it is kept: rounded, it may stand a little lower.
    if value >= float(np.float32(count)):
        return max(0.0, value - count)
    return value if before.now.get(name, 0) < before.counts.get(name, 0) else 0.0


@contextmanager
def _redis_at_hand() -> Iterator[None]:
    try:
        yield
    except (redis.RedisError, OSError) as error:
        raise Unavailable("The recent readings cannot be reached just now.") from error
