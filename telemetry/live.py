"""What Redis holds of the live path: the newest frame, the catalogue it fits, and the last ten minutes.

    live:catalogue:<chassis>             JSON {"revision", "series"}: the catalogue in force
    live:catalogue:<chassis>:<revision>  earlier ones, for as long as recent frames need them
    live:frame:<chassis>                 the newest frame, for those who join
    live:counted:<chassis>               RECENT_HEADER, then the byte counters of that frame, which has their rates (f8)
    live:recent:<chassis>                list of frames, oldest first: RECENT_HEADER, then f32 values, zstd
    live:<chassis>                       channel: each frame as it comes

Recent values are f32, half the memory: charts show no more, and counters keep their exact value in the live frame.
Most of a frame are counters that stand still, so that zstd leaves a quarter of it: some 0.3 MB a chassis.
"""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import redis
import redis.asyncio
import zstandard
from django.conf import settings
from numpy.typing import NDArray

from telemetry.catalogue import Entry
from telemetry.frames import Frame, Values, encode_key

FRAME_SECONDS = 30  # a newcomer gets no older frame than this, or than three periods
RECENT_FRAMES = 600
RECENT_SECONDS = 600.0
CATALOGUES_AT_ONCE = 20  # that are held at a time; each is up to 1 MB
REFRESH_CHANNEL = "refresh"  # a chassis' number: its inventory may have changed
RECENT_HEADER = struct.Struct("<Hd")  # catalogue revision, Unix time

Kept = tuple[int, list[Entry]]


async def keep_catalogue(bus: redis.asyncio.Redis, chassis: int, series: list[Entry], *, lost: int = 1) -> int:
    """Make a catalogue the one in force; returns its revision: the same for the same series, else the next (u16).

    Where Redis has none it is `lost`: what it had before it lost its memory. Two workers that do so at once, as while a
    chassis goes from one to the other, get different revisions.
    """
    key = f"live:catalogue:{chassis}"

    async def keep(pipe: Any) -> int:
        raw = await pipe.get(key)
        kept: dict[str, Any] = json.loads(raw) if raw else {"revision": (lost - 1) & 0xFFFF, "series": None}
        pipe.multi()
        if kept["series"] == series:
            return int(kept["revision"])
        if raw:
            pipe.set(f"{key}:{kept['revision']}", raw, ex=int(RECENT_SECONDS))
        revision = (int(kept["revision"]) + 1) & 0xFFFF
        pipe.set(key, f'{_head(revision)}"series": {json.dumps(series)}}}')
        return revision

    return int(await bus.transaction(keep, key, value_from_callable=True))


def _head(revision: int) -> str:
    """Return how the JSON of a catalogue begins: Redis tells by it whether a frame fits."""
    return f'{{"revision": {revision}, '


class _Codec(threading.local):
    """What compresses: of each thread its own, since none may be used by two at a time."""

    def __init__(self) -> None:
        self.compress = zstandard.ZstdCompressor(level=1, write_checksum=False).compress
        self.decompress = zstandard.ZstdDecompressor().decompress


_codec = _Codec()


def pack_recent(frame: Frame) -> bytes:
    """Return a frame as the list of recent ones keeps it."""
    packed: bytes = _codec.compress(frame.values.astype("<f4").tobytes())
    return RECENT_HEADER.pack(frame.revision, frame.at) + packed


def unpack_recent(raw: bytes) -> tuple[int, float, NDArray[np.float32]]:
    """Return revision, Unix time and values of a recent frame."""
    revision, at = RECENT_HEADER.unpack_from(raw)
    return revision, at, np.frombuffer(_codec.decompress(raw[RECENT_HEADER.size :]), "<f4")


@dataclass(frozen=True)
class News:
    """A frame to be published; `counters` are its byte counters as the BMC counts them, where they are kept.

    `period` is when the next one is due, s.
    """

    frame: Frame
    counters: Values | None = None
    period: float = 1.0

    def packed(self) -> tuple[int, bytes, bytes, bytes, int, str]:
        """Return chassis, key frame, recent frame, counters ('' for none), and for how many s it is the newest.

        Last comes the head of its catalogue.
        """
        frame = self.frame
        counted = b""
        if self.counters is not None:
            counted = RECENT_HEADER.pack(frame.revision, frame.at) + self.counters.astype("<f8").tobytes()
        lasting = max(FRAME_SECONDS, round(3 * self.period))
        return frame.chassis, encode_key(frame), pack_recent(frame), counted, lasting, _head(frame.revision)


PUBLISH_HELD = f"""
local published, unknown = 0, {{}}
for place = 2, #ARGV, 6 do
  local chassis, raw, recent, counted, lasting, head = unpack(ARGV, place, place + 5)
  local newest = redis.call('GETRANGE', 'live:frame:' .. chassis, 8, 11)
  if redis.call('GET', 'polling:' .. chassis) == ARGV[1] and newest ~= string.sub(raw, 9, 12) then
    redis.call('SET', 'live:frame:' .. chassis, raw, 'EX', lasting)
    if counted ~= '' then redis.call('SET', 'live:counted:' .. chassis, counted, 'EX', lasting) end
    redis.call('RPUSH', 'live:recent:' .. chassis, recent)
    redis.call('LTRIM', 'live:recent:' .. chassis, -{RECENT_FRAMES}, -1)
    redis.call('EXPIRE', 'live:recent:' .. chassis, math.max({int(RECENT_SECONDS)}, tonumber(lasting)))
    redis.call('PUBLISH', 'live:' .. chassis, raw)
    if redis.call('GETRANGE', 'live:catalogue:' .. chassis, 0, #head - 1) ~= head then
      unknown[#unknown + 1] = chassis
    end
    published = published + 1
  end
end
return {{published, unknown}}
"""


class HeldFrames:
    """Publishes frames of chassis whose lease `holder` has (telemetry.polling.leases), as Redis itself knows it."""

    def __init__(self, bus: redis.asyncio.Redis, holder: str) -> None:
        self._script: Any = bus.register_script(PUBLISH_HELD)
        self._holder = holder

    async def publish(self, news: Sequence[News]) -> tuple[int, frozenset[int]]:
        """Hand frames to every listener, and keep them for those who come later, all in one round trip.

        Returns how many were published, and the chassis whose catalogue in force is another, or gone. The rest is
        somebody else's by now, or has the number (bytes 8 to 11) of the newest frame: another worker, which the chassis
        was taken over from, has published that second.
        """
        arguments: list[Any] = [self._holder]
        for one in news:
            arguments += one.packed()
        published, unknown = await self._script(args=arguments)
        return int(published), frozenset(map(int, unknown))


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
            if RECENT_HEADER.unpack_from(raw)[1] < since:
                continue
            revision, at, values = unpack_recent(raw)
            if revision not in indexes:
                indexes[revision] = _places(client, chassis, revision, keys)
            times.append(at)
            for key, index in zip(keys, indexes[revision], strict=True):
                value = float(values[index]) if index is not None and index < len(values) else float("nan")
                columns[key].append(None if np.isnan(value) else round(value, 4))
        return times, columns
    finally:
        client.close()


def catalogue(chassis: int) -> list[Entry]:
    """Return the series of the catalogue in force; none where the chassis has not been read yet."""
    return list(catalogues([chassis]))


def catalogues(chassis: Sequence[int]) -> Iterator[Entry]:
    """Yield the series of the catalogues in force of several chassis, of which a few are held at a time."""
    client = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2.0)
    try:
        for place in range(0, len(chassis), CATALOGUES_AT_ONCE):
            keys = [f"live:catalogue:{pk}" for pk in chassis[place : place + CATALOGUES_AT_ONCE]]
            for raw in cast("list[bytes | None]", client.mget(keys)):
                yield from json.loads(raw)["series"] if raw else ()
    finally:
        client.close()


def _places(client: Any, chassis: int, revision: int, keys: Sequence[str]) -> list[int | None]:
    raw = client.get(f"live:catalogue:{chassis}")
    if raw is None or json.loads(raw)["revision"] != revision:
        raw = client.get(f"live:catalogue:{chassis}:{revision}")
    series = json.loads(raw)["series"] if raw else []
    place = {entry["key"]: index for index, entry in enumerate(series)}
    return [place.get(key) for key in keys]
