"""What Redis holds of the live path: the newest frame, the catalogue it fits, and the last ten minutes.

    live:catalogue:<chassis>             JSON {"revision", "series"}: the catalogue in force
    live:catalogue:<chassis>:<revision>  earlier ones, for as long as recent frames need them
    live:frame:<chassis>                 the newest frame, for those who join
    live:recent:<chassis>                list of frames, oldest first: RECENT_HEADER, then f32 values
    live:<chassis>                       channel: each frame as it comes

Recent values are f32, half the memory: charts show no more, and counters keep their exact value in the live frame.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import redis
import redis.asyncio
from django.conf import settings

from telemetry.catalogue import Entry
from telemetry.frames import Frame, encode_key

FRAME_SECONDS = 30  # a newcomer gets no older frame than this
RECENT_FRAMES = 600
RECENT_SECONDS = 600.0
REFRESH_CHANNEL = "refresh"  # a chassis' number: its inventory may have changed
RECENT_HEADER = struct.Struct("<Hd")  # catalogue revision, Unix time

Kept = tuple[int, list[Entry]]


async def keep_catalogue(bus: redis.asyncio.Redis, chassis: int, series: list[Entry]) -> int:
    """Make a catalogue the one in force; returns its revision: the same for the same series, else the next (u16)."""
    raw = await bus.get(f"live:catalogue:{chassis}")
    kept = json.loads(raw) if raw else None
    if kept is not None and kept["series"] == series:
        return int(kept["revision"])
    revision = (kept["revision"] + 1) & 0xFFFF if kept is not None else 1
    if kept is not None:
        await bus.set(f"live:catalogue:{chassis}:{kept['revision']}", raw, ex=int(RECENT_SECONDS))
    await bus.set(f"live:catalogue:{chassis}", json.dumps({"revision": revision, "series": series}))
    return revision


async def publish(bus: redis.asyncio.Redis, frame: Frame) -> None:
    """Hand a frame to every listener, and keep it for those who come later: one round trip."""
    raw = encode_key(frame)
    pipe = bus.pipeline(transaction=False)
    pipe.publish(f"live:{frame.chassis}", raw)
    pipe.set(f"live:frame:{frame.chassis}", raw, ex=FRAME_SECONDS)
    recent = f"live:recent:{frame.chassis}"
    pipe.rpush(recent, RECENT_HEADER.pack(frame.revision, frame.at) + frame.values.astype("<f4").tobytes())
    pipe.ltrim(recent, -RECENT_FRAMES, -1)
    pipe.expire(recent, int(RECENT_SECONDS))
    await pipe.execute()


def recent(chassis: int, keys: Sequence[str], *, since: float) -> tuple[list[float], dict[str, list[float | None]]]:
    """Return Unix times and, for each key, the values at those times; None where there was none.

    Each frame is read with the catalogue it was made with, so that a key means the same object throughout.
    """
    client = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2.0)
    try:
        raws = cast("list[bytes]", client.lrange(f"live:recent:{chassis}", 0, -1))
        indexes: dict[int, list[int | None]] = {}
        times: list[float] = []
        columns: dict[str, list[float | None]] = {key: [] for key in keys}
        for raw in raws:
            revision, at = RECENT_HEADER.unpack_from(raw)
            if at < since:
                continue
            if revision not in indexes:
                indexes[revision] = _places(client, chassis, revision, keys)
            values = np.frombuffer(raw, "<f4", offset=RECENT_HEADER.size)
            times.append(at)
            for key, index in zip(keys, indexes[revision], strict=True):
                value = float(values[index]) if index is not None and index < len(values) else float("nan")
                columns[key].append(None if np.isnan(value) else round(value, 4))
        return times, columns
    finally:
        client.close()


def catalogue(chassis: int) -> list[Entry]:
    """Return the series of the catalogue in force; none where the chassis has not been read yet."""
    client = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2.0)
    try:
        raw = cast("bytes | None", client.get(f"live:catalogue:{chassis}"))
    finally:
        client.close()
    series: list[Entry] = json.loads(raw)["series"] if raw else []
    return series


def _places(client: Any, chassis: int, revision: int, keys: Sequence[str]) -> list[int | None]:
    raw = client.get(f"live:catalogue:{chassis}")
    if raw is None or json.loads(raw)["revision"] != revision:
        raw = client.get(f"live:catalogue:{chassis}:{revision}")
    series = json.loads(raw)["series"] if raw else []
    place = {entry["key"]: index for index, entry in enumerate(series)}
    return [place.get(key) for key in keys]
