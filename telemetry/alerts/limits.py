"""The limits of the rules that are on, as engines evaluate them: workers publish them to Redis, charts draw them.

alerts:limits:<chassis>  hash: the key of a series to the JSON of its limits, a list of AlertLimit
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Final, cast

import msgspec
import redis
from django.conf import settings

from accounts.models import User
from core.errors import NotFound
from core.language import _
from fabric.inventory.selectors import reading_scope
from fabric.topology.readings import FleetReadings, HotDevice
from telemetry.alerts.rules import Check, Condition
from telemetry.live.catalogue import SeriesEntry
from telemetry.live.fleet import fleet_readings
from telemetry.live.selectors import is_visible_series

logger = logging.getLogger(__name__)
# Workers publish more often; those of a chassis that nobody polls any more expire.
EXPIRY_SECONDS: Final = 900


class AlertLimit(msgspec.Struct, frozen=True, kw_only=True):
    """A limit on a series, in its unit: an alert of `severity` fires above (`is_upper`) or below `value`.

    It resolves at `ends_at`; `title` is that of the rule.
    """

    value: float
    ends_at: float
    is_upper: bool
    severity: str
    title: str


_decoder: Final = msgspec.json.Decoder(list[AlertLimit])


@cache
def _publishing_client(url: str) -> redis.Redis:
    """Return the client of this process: a worker publishes the limits of one chassis after the other."""
    return redis.Redis.from_url(url, **settings.REDIS_TIMEOUTS)


def limits_publish(chassis_id: int, checks: Iterable[Check]) -> None:
    """Publish the limits of a chassis' checks, in place of the earlier ones; without Redis, nothing."""
    found: dict[str, list[AlertLimit]] = {}
    for check in checks:
        if check.terms.condition in {Condition.ABOVE, Condition.BELOW} and check.unit != "health":
            limit = AlertLimit(
                value=check.terms.value, ends_at=check.terms.ends_at, severity=check.severity, title=check.title,
                is_upper=check.terms.condition is Condition.ABOVE,
            )  # fmt: skip
            found.setdefault(check.key, []).append(limit)
    name = f"alerts:limits:{chassis_id}"
    try:
        with _publishing_client(settings.REDIS_URL).pipeline() as pipe:
            pipe.delete(name)
            if found:
                pipe.hset(name, mapping={key: msgspec.json.encode(limits) for key, limits in found.items()})
                pipe.expire(name, EXPIRY_SECONDS)
            pipe.execute()
    except (redis.RedisError, OSError) as error:
        logger.info("the limits of chassis %s are not published: %s", chassis_id, error)


def alert_limits(person: User, series: Mapping[int, Sequence[str]]) -> dict[tuple[int, str], list[AlertLimit]]:
    """Return the limits on series (their keys, by chassis) that the person may see, by chassis and key.

    Those are of sensors' own thresholds and of administrators' rules, whatever their scope; none without Redis.
    """
    found: dict[tuple[int, str], list[AlertLimit]] = {}
    try:
        with redis.Redis.from_url(settings.REDIS_URL, **settings.REDIS_TIMEOUTS) as client:
            for chassis_id, keys in series.items():
                scope = reading_scope(person, chassis_id)
                visible = [key for key in keys if scope is not None and is_visible_series(scope, _entry_of(key))]
                raws = client.hmget(f"alerts:limits:{chassis_id}", visible) if visible else []
                for key, raw in zip(visible, cast("list[bytes | None]", raws), strict=True):
                    if limits := _stored_limits(raw):
                        found[chassis_id, key] = limits
    except (redis.RedisError, OSError) as error:
        logger.info("limits are not available: %s", error)
    return found


def chassis_limits(person: User, chassis_id: int) -> dict[str, list[AlertLimit]]:
    """Return the limits on the series of a chassis that the person may see, by key; none without Redis.

    Raises NotFound for a chassis that the person may not see.
    """
    scope = reading_scope(person, chassis_id)
    if scope is None:
        raise NotFound(_("There is no such chassis."))
    try:
        with redis.Redis.from_url(settings.REDIS_URL, **settings.REDIS_TIMEOUTS) as client:
            stored = cast("dict[bytes, bytes]", client.hgetall(f"alerts:limits:{chassis_id}"))
    except (redis.RedisError, OSError) as error:
        logger.info("limits are not available: %s", error)
        return {}
    limits = {key.decode(errors="replace"): _stored_limits(raw) for key, raw in stored.items()}
    return {key: found for key, found in limits.items() if found and is_visible_series(scope, _entry_of(key))}


def limited_fleet_readings(person: User) -> FleetReadings:
    """Return the newest readings of all that a person may see, the hottest devices with their limits."""
    found = fleet_readings(person)
    keys: defaultdict[int, list[str]] = defaultdict(list)
    for one in found.hottest:
        keys[one.chassis_id].append(one.key)
    limits = alert_limits(person, keys)
    hottest = tuple(limited(one, limits.get((one.chassis_id, one.key), [])) for one in found.hottest)
    return replace(found, hottest=hottest)


def limited(device: HotDevice, limits: Iterable[AlertLimit]) -> HotDevice:
    """Return a hot device with the limit that it is beyond, or would be first."""
    uppers = sorted((one for one in limits if one.is_upper), key=lambda one: one.value)
    beyond = [one for one in uppers if device.celsius > one.value]
    if beyond:
        return replace(device, limit=beyond[-1].value, level=beyond[-1].severity.lower())
    return replace(device, limit=uppers[0].value) if uppers else device


def _entry_of(key: str) -> SeriesEntry:
    kind, _, rest = key.partition("/")
    pk, _, quantity = rest.partition("/")
    return SeriesEntry(key=key, object=kind, id=int(pk) if pk.isdecimal() else 0, quantity=quantity, label="", unit="")


def _stored_limits(raw: bytes | None) -> list[AlertLimit]:
    """Return limits that Redis had; none where it had none, or something else."""
    try:
        return _decoder.decode(raw) if raw else []
    except (msgspec.DecodeError, RecursionError) as error:
        logger.warning("limits of Redis are refused: %s", error)
        return []
