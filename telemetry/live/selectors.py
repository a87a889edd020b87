"""Recent readings, as far as a person may see them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import redis

from accounts.models import User
from core.errors import Invalid, NotFound, Unavailable
from core.language import _, gettext_noop
from fabric.history.selectors import owned_since
from fabric.inventory.models import Chassis
from fabric.inventory.rules import CounterBaseline
from fabric.inventory.selectors import ReadingScope, counter_baselines, reading_scope
from telemetry.live import frames
from telemetry.live.catalogue import SeriesEntry, Values

MAX_KEYS = 64
READINGS_UNAVAILABLE = gettext_noop("The recent readings are not available now.")


@dataclass(frozen=True)
class RecentSeries:
    """Series of one chassis over the last minutes: `at` in Unix s, `values[key]` aligned with it, None for no value."""

    at: list[float]
    series: list[SeriesEntry]
    values: dict[str, list[float | None]]


def is_visible_series(scope: ReadingScope, entry: SeriesEntry) -> bool:
    if scope.everything:
        return True
    return entry["id"] in {"device": scope.devices, "port": scope.ports}.get(entry["object"], frozenset())


def series_baselines(scope: ReadingScope, entries: Sequence[SeriesEntry]) -> list[float]:
    """Return the baseline of each series: its count before the lease; 0 for series other than error counters."""
    counted = {f"port/{port}/errors/{name}": float(count) for port, name, count in scope.counted}
    return [counted.get(entry["key"], 0.0) for entry in entries]


def subtract_baselines(values: Values, before: Values) -> Values:
    """Return counters less their baselines; a counter below its baseline was reset meanwhile and is unchanged."""
    with np.errstate(invalid="ignore"):
        rest: Values = np.where(values >= before, values - before, values)
    return rest


def recent_readings(
    person: User, chassis_id: int, keys: Sequence[str], *, seconds: float = frames.RECENT_SECONDS
) -> RecentSeries:
    """Return the readings of the last `seconds` (at most 600) of the series `keys` that the person may see.

    Raises NotFound for a chassis or series that does not exist or is not visible, Invalid for too many keys,
    Unavailable without Redis.
    """
    scope = _scope_or_404(person, chassis_id)
    if len(keys) > MAX_KEYS:
        raise Invalid(_("Request at most {most} series at a time.", most=MAX_KEYS))
    with _redis_required():
        entries = {entry["key"]: entry for entry in _visible_entries(scope, chassis_id)}
        if unknown := [key for key in keys if key not in entries]:
            raise NotFound(_("There is no series '{key}' of this chassis.", key=unknown[0][:100]))
        at, values = frames.recent_values(chassis_id, keys, since=time.time() - seconds)
    if not scope.everything:
        # Readings from before the lease belong to the previous tenant.
        since = owned_since(chassis_id)
        for key in keys:
            begin = since.get((entries[key]["object"], entries[key]["id"]))
            if begin is not None:
                values[key] = [
                    value if moment >= begin.timestamp() else None
                    for moment, value in zip(at, values[key], strict=True)
                ]
        errors = [key for key in keys if entries[key]["object"] == "port" and "/errors/" in key]
        counted = counter_baselines(person, [chassis_id]) if errors else {}
        for key in errors:
            name = key.partition("/errors/")[2]
            if (before := counted.get(entries[key]["id"])) is not None:
                values[key] = [
                    value if value is None else _own_count(value, moment, name, before)
                    for moment, value in zip(at, values[key], strict=True)
                ]
    return RecentSeries(at=at, series=[entries[key] for key in keys], values=values)


def visible_series(person: User, chassis_id: int) -> list[SeriesEntry]:
    """Return the series of a chassis that the person may see; raises NotFound and Unavailable as `recent_readings`."""
    scope = _scope_or_404(person, chassis_id)
    with _redis_required():
        return _visible_entries(scope, chassis_id)


def _scope_or_404(person: User, chassis_id: int) -> ReadingScope:
    scope = reading_scope(person, chassis_id)
    if scope is None:
        raise NotFound(_("There is no such chassis."))
    return scope


def _visible_entries(scope: ReadingScope, chassis_id: int) -> list[SeriesEntry]:
    entries = frames.current_catalogue(chassis_id)
    if not entries and not frames.has_catalogue(chassis_id):
        # Redis came back empty: a chassis that answers is published again with its next reading.
        read = Chassis.objects.filter(pk=chassis_id, enabled=True, last_error="", inventory_at__isnull=False)
        if read.exists():
            raise Unavailable(_(READINGS_UNAVAILABLE))
    return [entry for entry in entries if is_visible_series(scope, entry)]


def _own_count(value: float, at: float, name: str, before: CounterBaseline) -> float:
    """Return a stored value of a counter less its baseline.

    A counter below its baseline was reset since or, where there was no reset, is a late old value: 0 then.
    """
    counts = before.counts if at < before.until else before.now
    count = counts.get(name, 0)
    # Compared in f32 as stored: a rounded value may be slightly lower.
    if value >= float(np.float32(count)):
        return max(0.0, value - count)
    return value if before.now.get(name, 0) < before.counts.get(name, 0) else 0.0


@contextmanager
def _redis_required() -> Iterator[None]:
    try:
        yield
    except (redis.RedisError, OSError) as error:
        raise Unavailable(_(READINGS_UNAVAILABLE)) from error
