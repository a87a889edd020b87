"""Chassis of which nobody reads anything: what no engine can tell, because none is played."""

from __future__ import annotations

import logging
import time
from datetime import datetime, timedelta
from typing import Any, cast

import redis
from django.conf import settings
from django.utils import timezone

from fabric.models import Chassis
from telemetry.alerts.checks import Facts, silent_check
from telemetry.alerts.engine import Change, Turn
from telemetry.alerts.facts import built_ins_on
from telemetry.alerts.models import Alert
from telemetry.alerts.services.recording import NOT_POLLED, alerts_end, changes_record
from telemetry.alerts.terms import NOT_ANSWERING
from telemetry.frames import HEADER

logger = logging.getLogger(__name__)

NEW_SECONDS = 90.0  # a chassis that was just added is read soon
# It has to go on for so long while somebody looks: who starts a site that was down finds all of them unread.
HOLD_SECONDS = 40.0
FORGET_SECONDS = 45  # who has not looked for so long knows nothing of before
STALE_SECONDS = 60.0  # a walk each period, and what it may take
NOBODY = "No worker reads this chassis: see that the site's workers run."


def chassis_watch() -> None:
    """Raise what is to be raised of chassis that nobody reads, and end it of those that are read or not to be.

    A Redis that is away tells nothing, and nothing is concluded from it.
    """
    rows = list(
        Chassis.objects.order_by("pk").values("pk", "name", "enabled", "last_error", "inventory_at", "created_at")
    )
    try:
        fresh, lasting = _fresh([row["pk"] for row in rows])
    except (redis.RedisError, OSError) as error:
        logger.warning("whether chassis are read cannot be told: %s", error)
        return
    silent = Alert.objects.ringing().filter(cause=NOT_ANSWERING)
    ringing: dict[int, datetime] = dict(silent.values_list("chassis", "fired_at"))
    is_on = NOT_ANSWERING in built_ins_on()
    for row in rows:
        pk = row["pk"]
        if not row["enabled"]:
            if Alert.objects.filter(chassis=pk, state__in=Alert.OPEN).exists():
                alerts_end(chassis_id=pk, identities=None, because=NOT_POLLED)
        elif pk in ringing:
            # A frame of before stays for a while: only a newer one tells that it answers again.
            if fresh.get(pk, 0.0) > ringing[pk].timestamp() or _answered_lately(row, since=ringing[pk]):
                _turn(row, "resolved", "")
        elif is_on and pk in lasting and not _answered_lately(row) and not _is_new(row):
            _turn(row, "firing", row["last_error"] or NOBODY)


def _fresh(pks: list[int]) -> tuple[dict[int, float], set[int]]:
    """Return the chassis that have a frame with its Unix time, and those that have had none for HOLD_SECONDS.

    Redis lets frames go that are older than they may be, and keeps since when they are missed.
    """
    if not pks:
        return {}, set()
    now = time.time()
    client = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=3.0, socket_connect_timeout=3.0)
    try:
        pipe = client.pipeline(transaction=False)
        for pk in pks:
            pipe.getrange(f"live:frame:{pk}", 0, HEADER.size - 1)
        heads = cast("list[bytes]", pipe.execute())
        fresh = {pk: HEADER.unpack(head)[5] for pk, head in zip(pks, heads, strict=True) if len(head) == HEADER.size}
        missed = [pk for pk in pks if pk not in fresh]
        for pk in fresh:
            pipe.delete(f"alerts:unread:{pk}")
        for pk in missed:
            pipe.set(f"alerts:unread:{pk}", now, nx=True)
            pipe.expire(f"alerts:unread:{pk}", FORGET_SECONDS)
            pipe.get(f"alerts:unread:{pk}")
        since = cast("list[bytes | None]", pipe.execute()[len(fresh) :][2::3])
    finally:
        client.close()
    return fresh, {pk for pk, at in zip(missed, since, strict=True) if at and now - float(at) >= HOLD_SECONDS}


def _answered_lately(row: dict[str, Any], since: datetime | None = None) -> bool:
    """Tell whether a chassis, of which perhaps nothing is measured, was walked a moment ago, and after `since`."""
    within = timezone.now() - timedelta(seconds=STALE_SECONDS + 3 * settings.CONFIG.inventory_period)
    walked = row["inventory_at"]
    return not row["last_error"] and walked is not None and bool(walked > max(within, since or within))


def _is_new(row: dict[str, Any]) -> bool:
    return bool(row["created_at"] > timezone.now() - timedelta(seconds=NEW_SECONDS))


def _turn(row: dict[str, Any], turn: Turn, note: str) -> None:
    check = silent_check(Facts(chassis=row["pk"], name=row["name"]))
    now = time.time()
    change = Change(check=check, turn=turn, at=now, since=now, value=float("nan"), worst=float("nan"), note=note)
    changes_record(chassis_id=row["pk"], changes=[change])
