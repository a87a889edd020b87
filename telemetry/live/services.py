"""Records which leased devices were in use during the last minute."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, cast

import numpy as np
import redis
from django.conf import settings
from django.db import DatabaseError

from fabric.inventory.models import Chassis
from fabric.leases.usage import activity_record, owned_devices
from telemetry.live.catalogue import SeriesEntry, Values
from telemetry.live.frames import recent_frames, stored_catalogue

logger = logging.getLogger(__name__)
ACTIVITY_SECONDS = 70.0  # a minute, and the delay of the scheduler
ACTIVITY_FRAMES = 80
# A device is in use above these: links and idle drivers cause some traffic, too.
BUSY_THRESHOLDS = {"utilisation_percent": 1.0, "rx_bytes_per_second": 1e6, "tx_bytes_per_second": 1e6}


def record_device_activity() -> None:
    """Record the activity of the last minute of every chassis; chassis without recent readings are skipped."""
    with redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2.0) as client:
        for pk in Chassis.objects.filter(enabled=True).order_by("pk").values_list("pk", flat=True):
            if devices := owned_devices(pk):
                try:
                    _record_chassis(client, pk, devices)
                except (redis.ConnectionError, DatabaseError):
                    raise
                except Exception:
                    # That of one chassis does not cost the others theirs.
                    logger.exception("the activity of chassis %s is not recorded", pk)


def _record_chassis(client: Any, chassis: int, devices: dict[int, int | None]) -> None:
    try:
        catalogue = stored_catalogue(client.get(f"live:catalogue:{chassis}"))
        frames = cast("list[bytes]", client.lrange(f"live:recent:{chassis}", -ACTIVITY_FRAMES, -1))
    except redis.ResponseError as error:
        logger.warning("the activity of chassis %s is not recorded: %s", chassis, error)
        return
    if catalogue is None:
        return
    at, most = _peak_values(frames, catalogue.revision, len(catalogue.series))
    if most is not None:
        active = active_devices(catalogue.series, most, devices)
        activity_record(at=datetime.fromtimestamp(at, UTC), active=active)


def _peak_values(frames: Sequence[bytes], revision: int, count: int) -> tuple[float, Values | None]:
    """Return the time of the newest frame and the largest value of each series in the minute before it."""
    rows, newest = [], 0.0
    since = time.time() - ACTIVITY_SECONDS
    for of, at, values in recent_frames(frames, since=since):
        if of == revision and len(values) == count:
            rows.append(values)
            newest = max(newest, at)
    if not rows:
        return 0.0, None
    return newest, np.fmax.reduce(np.array(rows, dtype=np.float64), axis=0)


def active_devices(series: Sequence[SeriesEntry], most: Values, devices: dict[int, int | None]) -> dict[int, bool]:
    """Return whether each measured device was in use; `most` is aligned with `series`."""
    by_port = {port: device for device, port in devices.items() if port is not None}
    active: dict[int, bool] = {}
    for entry, value in zip(series, most, strict=True):
        limit = BUSY_THRESHOLDS.get(entry["quantity"])
        owner = entry["id"] if entry["object"] == "device" else by_port.get(entry["id"])
        if limit is None or owner not in devices or entry["object"] not in {"device", "port"}:
            continue
        if not np.isnan(value):
            active[owner] = active.get(owner, False) or bool(value > limit)
    return active
