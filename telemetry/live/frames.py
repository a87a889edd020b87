"""Live frames: their binary form, their keys in Redis, and their publication by a worker.

    u8 kind (1 key, 2 delta) · u8 version · u16 catalogue revision · u32 chassis · u32 sequence · f64 Unix time · u16 n
    key: n f64 values; delta: a bitmap of ceil(n/8) bytes (bit i%8 of byte i//8: value i changed), then those f64 values

NaN is a missing value. Values are f64 because error counters exceed the 24 bits of an f32.

    live:catalogue:<chassis>             JSON {"revision", "series"}: the catalogue in force
    live:catalogue:<chassis>:<revision>  earlier ones, for as long as recent frames need them
    live:frame:<chassis>                 the newest frame, for new subscribers
    live:counted:<chassis>               RECENT_HEADER, then the byte counters of that frame, which has their rates (f8)
    live:recent:<chassis>                list of frames, oldest first: RECENT_HEADER, then f32 values, zstd
    live:<chassis>                       channel: each new frame

Recent values are f32, half the memory: charts need no more, and the live frame has the exact values of counters.
Most values of a frame are constant counters, so that zstd reduces it to a quarter: about 0.3 MB a chassis.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import struct
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np
import redis
import redis.asyncio
import zstandard
from django.conf import settings
from numpy.typing import NDArray

from telemetry.instrumentation import metrics

if TYPE_CHECKING:  # models come with the catalogue, and who reads frames apart from the site has none
    from telemetry.live.catalogue import SeriesEntry, StoredCatalogue, Values

logger = logging.getLogger(__name__)

HEADER = struct.Struct("<BBHIIdH")
KEY, DELTA, VERSION = 1, 2, 1
FRAME_SECONDS = 30  # maximum age of the frame for a new subscriber, at least three periods
RECENT_FRAMES = 600
RECENT_SECONDS = 600.0
CATALOGUES_PER_BATCH = 20  # in memory at a time; each is up to 1 MB
MAX_FRAMES_PER_WRITE = 64
GATHER_SECONDS = 0.005  # after a write: frames of a busy worker go several at a time
REFRESH_CHANNEL = "refresh"  # id of a chassis whose inventory may have changed
ACCESS_CHANNEL = "access"  # the reading scopes of persons may have changed
MAX_TIME = 1e11  # Unix s
MAX_RECENT_BYTES = 4 * 0xFFFF  # of the values of a frame
RECENT_HEADER = struct.Struct("<Hd")  # catalogue revision, Unix time


@dataclass(frozen=True)
class Frame:
    """A decoded key frame; `values` has one entry a series of the catalogue with that revision."""

    revision: int
    chassis: int
    sequence: int
    at: float
    values: Values


def encode_key(frame: Frame) -> bytes:
    """Return the frame with all values."""
    values: bytes = frame.values.astype("<f8", copy=False).tobytes()
    return _header(KEY, frame) + values


def encode_delta(before: Values, frame: Frame) -> bytes:
    """Return the frame with the values that differ from `before` (same length, same catalogue)."""
    # Bit patterns, so that NaN equals NaN.
    changed = before.view(np.uint64) != frame.values.view(np.uint64)
    bitmap: bytes = np.packbits(changed, bitorder="little").tobytes()
    values: bytes = frame.values[changed].astype("<f8").tobytes()
    return _header(DELTA, frame) + bitmap + values


def websocket_message(raw: bytes) -> bytes:
    """Return bytes as one unmasked binary message of a websocket, as sent by a server (RFC 6455, 5.2)."""
    size = len(raw)
    if size < 126:
        return bytes((0x82, size)) + raw
    return (struct.pack("!BBH", 0x82, 126, size) if size < 2**16 else struct.pack("!BBQ", 0x82, 127, size)) + raw


def decode_key(raw: bytes) -> Frame:
    """Return a key frame; raises ValueError for anything else."""
    if len(raw) < HEADER.size:
        raise ValueError("shorter than a header")
    kind, version, revision, chassis, sequence, at, count = HEADER.unpack_from(raw)
    if (kind, version) != (KEY, VERSION) or len(raw) != HEADER.size + 8 * count or not 0 <= at < MAX_TIME:
        raise ValueError("no key frame of this version")
    return Frame(revision, chassis, sequence, at, np.frombuffer(raw, "<f8", count, HEADER.size))


def stored_frame(raw: bytes | None) -> Frame | None:
    """Return a key frame that Redis had; None where it had none, or something else."""
    try:
        return decode_key(raw) if isinstance(raw, bytes) and raw else None
    except ValueError as error:
        logger.warning("a frame of Redis is refused: %s", error)
        return None


def stored_counters(raw: bytes | None, revision: int) -> list[float]:
    """Return the byte counters of a frame with this revision that Redis had; none where it had something else."""
    if raw is None or len(raw) < RECENT_HEADER.size or (len(raw) - RECENT_HEADER.size) % 8:
        return []
    same = RECENT_HEADER.unpack_from(raw)[0] == revision
    return cast("list[float]", np.frombuffer(raw, "<f8", offset=RECENT_HEADER.size).tolist()) if same else []


def _header(kind: int, frame: Frame) -> bytes:
    return HEADER.pack(
        kind, VERSION, frame.revision, frame.chassis, frame.sequence & 0xFFFFFFFF, frame.at, len(frame.values)
    )


async def set_catalogue(bus: redis.asyncio.Redis, chassis: int, series: list[SeriesEntry], *, lost: int = 1) -> int:
    """Set the current catalogue; returns its revision: the same for the same series, else the next (u16).

    Where Redis has none, it is `lost`: the revision before Redis lost its data. Two workers that do so concurrently,
    while a chassis moves from one to the other, get different revisions.
    """
    key = f"live:catalogue:{chassis}"

    async def replace(pipe: Any) -> int:
        raw = None
        with contextlib.suppress(redis.ResponseError):  # it is of another type: replaced
            raw = await pipe.get(key)
        known = stored_catalogue(raw)
        pipe.multi()
        if known is not None and known.series == series:
            return known.revision
        if known is not None:
            pipe.set(f"{key}:{known.revision}", raw, ex=int(RECENT_SECONDS))
        revision = (lost if known is None else known.revision + 1) & 0xFFFF
        pipe.set(key, f'{_catalogue_prefix(revision)}"series": {json.dumps(series)}}}')
        return revision

    return int(await bus.transaction(replace, key, value_from_callable=True))


def stored_catalogue(raw: bytes | None) -> StoredCatalogue | None:
    """Return a catalogue that Redis had; None where it had none, or something else."""
    from telemetry.live.catalogue import STORED_CATALOGUE

    try:
        return STORED_CATALOGUE.decode(raw) if isinstance(raw, bytes) else None
    except (msgspec.DecodeError, RecursionError) as error:
        logger.warning("a catalogue of Redis is refused: %s", error)
        return None


def _catalogue_prefix(revision: int | str) -> str:
    """Return the start of a catalogue's JSON, by which the Redis script compares its revision with that of a frame."""
    return f'{{"revision": {revision}, '


class _Codec(threading.local):
    """Compressor and decompressor, one a thread, since they are not thread-safe."""

    def __init__(self) -> None:
        # Level 1 makes as few bytes of a frame, in twice the time.
        self.compress = zstandard.ZstdCompressor(level=-1, write_checksum=False).compress
        self.decompress = zstandard.ZstdDecompressor().decompress


_codec = _Codec()


def pack_recent(frame: Frame) -> bytes:
    """Return a frame in the form of the list of recent ones."""
    packed: bytes = _codec.compress(frame.values.astype("<f4").data)
    return RECENT_HEADER.pack(frame.revision, frame.at) + packed


def unpack_recent(raw: bytes) -> tuple[int, float, NDArray[np.float32]]:
    """Return revision, Unix time and values of a recent frame; raises ValueError for anything else."""
    revision, at = recent_header(raw)
    packed = raw[RECENT_HEADER.size :]
    try:
        if not 0 <= zstandard.frame_content_size(packed) <= MAX_RECENT_BYTES:
            raise ValueError("no recent frame: its size is not that of values")
        return revision, at, np.frombuffer(_codec.decompress(packed), "<f4")
    except zstandard.ZstdError as error:
        raise ValueError(f"no recent frame: {error}") from error


def recent_header(raw: bytes) -> tuple[int, float]:
    """Return revision and Unix time of a recent frame; raises ValueError for anything else."""
    if len(raw) < RECENT_HEADER.size:
        raise ValueError("no recent frame: shorter than its header")
    revision, at = RECENT_HEADER.unpack_from(raw)
    if not 0 <= at < MAX_TIME:
        raise ValueError("no recent frame: it has no time")
    return revision, at


def recent_frames(
    raws: Iterable[bytes], *, since: float = 0.0, until: float = MAX_TIME
) -> Iterator[tuple[int, float, NDArray[np.float32]]]:
    """Yield the recent frames of [`since`, `until`) (Unix s), without those that are none."""
    for raw in raws:
        try:
            if since <= recent_header(raw)[1] < until:
                yield unpack_recent(raw)
        except ValueError as error:
            logger.warning("a frame of Redis is refused: %s", error)


@dataclass(frozen=True)
class FrameUpdate:
    """A frame to be published, the raw byte counters of the BMC, and the time until the next frame, s."""

    frame: Frame
    counters: Values | None = None
    period: float = 1.0

    def packed(self) -> bytes:
        """Return what PUBLISH_SCRIPT takes: PUBLICATION, the key frame, the recent frame, and the counters."""
        frame = self.frame
        counted = b""
        if self.counters is not None:
            counted = RECENT_HEADER.pack(frame.revision, frame.at) + self.counters.astype("<f8", copy=False).tobytes()
        expiry = max(FRAME_SECONDS, round(3 * self.period))
        raw, recent = encode_key(frame), pack_recent(frame)
        return PUBLICATION.pack(expiry, len(raw), len(recent)) + raw + recent + counted


PUBLICATION = struct.Struct("<III")  # expiry in s, size of the key frame, size of the recent frame
# One argument a frame: packing each takes the worker longer than taking it apart takes Redis.
PUBLISH_SCRIPT = f"""
local published, unknown = 0, {{}}
local function own(key, kind)
  local found = redis.call('TYPE', key).ok
  if found ~= kind and found ~= 'none' then redis.call('DEL', key) end
end
for place = 2, #ARGV do
  local expiry, size, recent_size, begin = struct.unpack('<I4I4I4', ARGV[place])
  local raw = string.sub(ARGV[place], begin, begin + size - 1)
  local recent = string.sub(ARGV[place], begin + size, begin + size + recent_size - 1)
  local counted = string.sub(ARGV[place], begin + size + recent_size)
  local revision, chassis = struct.unpack('<I2I4', raw, 3)
  local head = string.format('{_catalogue_prefix("%d")}', revision)
  own('live:frame:' .. chassis, 'string')
  own('live:recent:' .. chassis, 'list')
  own('live:catalogue:' .. chassis, 'string')
  local newest = redis.call('GETRANGE', 'live:frame:' .. chassis, 8, 11)
  if redis.pcall('GET', 'polling:' .. chassis) == ARGV[1] and newest ~= string.sub(raw, 9, 12) then
    redis.call('SET', 'live:frame:' .. chassis, raw, 'EX', expiry)
    if counted ~= '' then redis.call('SET', 'live:counted:' .. chassis, counted, 'EX', expiry) end
    redis.call('RPUSH', 'live:recent:' .. chassis, recent)
    redis.call('LTRIM', 'live:recent:' .. chassis, -{RECENT_FRAMES}, -1)
    redis.call('EXPIRE', 'live:recent:' .. chassis, math.max({int(RECENT_SECONDS)}, expiry))
    redis.call('PUBLISH', 'live:' .. chassis, raw)
    if redis.call('GETRANGE', 'live:catalogue:' .. chassis, 0, #head - 1) ~= head then
      unknown[#unknown + 1] = chassis
    end
    published = published + 1
  end
end
return {{published, unknown}}
"""


def recent_values(
    chassis: int, keys: Sequence[str], *, since: float
) -> tuple[list[float], dict[str, list[float | None]]]:
    """Return Unix times and, for each key, the values at those times; None for missing ones.

    Each frame is decoded with its own catalogue, so that a key refers to the same object throughout.
    """
    times: list[float] = []
    columns: dict[str, list[float | None]] = {key: [] for key in keys}
    indexes: dict[int, list[int | None]] = {}
    with redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2.0) as client:
        raws = cast("list[bytes]", client.lrange(f"live:recent:{chassis}", 0, -1))
        for revision, at, values in recent_frames(raws, since=since):
            if revision not in indexes:
                indexes[revision] = series_indexes(client, chassis, revision, keys)
            times.append(at)
            for key, index in zip(keys, indexes[revision], strict=True):
                value = float(values[index]) if index is not None and index < len(values) else float("nan")
                columns[key].append(None if np.isnan(value) else round(value, 4))
    return times, columns


def current_catalogue(chassis: int) -> list[SeriesEntry]:
    """Return the series of the current catalogue; none where the chassis has not been read yet."""
    return list(current_catalogues([chassis]))


def has_catalogue(chassis: int) -> bool:
    """Return whether Redis has a catalogue of a chassis, which may have no series."""
    with redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2.0) as client:
        return bool(client.exists(f"live:catalogue:{chassis}"))


def current_catalogues(chassis: Sequence[int]) -> Iterator[SeriesEntry]:
    """Yield the series of the current catalogues of several chassis, loaded in batches."""
    with redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2.0) as client:
        for place in range(0, len(chassis), CATALOGUES_PER_BATCH):
            keys = [f"live:catalogue:{pk}" for pk in chassis[place : place + CATALOGUES_PER_BATCH]]
            for raw in cast("list[bytes | None]", client.mget(keys)):
                known = stored_catalogue(raw)
                yield from known.series if known is not None else ()


def series_indexes(client: Any, chassis: int, revision: int, keys: Sequence[str]) -> list[int | None]:
    """Return the places of series in the frames of a revision; None for those that it has not."""
    known = stored_catalogue(client.get(f"live:catalogue:{chassis}"))
    if known is None or known.revision != revision:
        known = stored_catalogue(client.get(f"live:catalogue:{chassis}:{revision}"))
    place = {entry["key"]: index for index, entry in enumerate(known.series if known is not None else ())}
    return [place.get(key) for key in keys]


class FrameOutbox:
    """Publishes frames of chassis that `worker` has claimed (telemetry.polling.claims) as they arrive.

    Those that arrive during a write, or soon after it, are batched into the next: a round trip takes as long as the
    packing of a dozen frames. Redis itself checks the claim: frames of a worker that lost its claim without noticing
    are not published.
    """

    def __init__(self, bus: redis.asyncio.Redis, worker: str) -> None:
        self._script: Any = bus.register_script(PUBLISH_SCRIPT)
        self._worker = worker
        self._waiting: list[tuple[FrameUpdate, asyncio.Future[bool]]] = []
        self._writing: asyncio.Task[None] | None = None
        self._is_unreachable = False
        self._unpackable: set[int] = set()  # chassis of whose frames the log tells already

    async def publish(self, update: FrameUpdate) -> bool:
        """Publish a frame, if Redis is reachable; returns, when done or dropped, whether its catalogue is outdated.

        Then the current catalogue is not that of the frame: Redis has lost its data, or a worker that no longer polls
        the chassis has set another one.
        """
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((update, done))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        return await done

    async def publish_batch(self, updates: Sequence[FrameUpdate]) -> tuple[int, frozenset[int]]:
        """Publish frames to all subscribers, and store them for later ones, in one round trip; raises RedisError.

        Returns the number of published frames, and the chassis whose current catalogue is another, or missing. Frames
        are rejected where another worker has claimed the chassis, or where the newest frame has the same sequence
        number (bytes 8 to 11): the previous worker has published that second.
        """
        arguments: list[Any] = [self._worker]
        for one in updates:
            try:
                arguments.append(one.packed())
            except (ValueError, struct.error):
                # That of one chassis does not cost the others theirs.
                metrics.increment("publish_failures", chassis=one.frame.chassis)
                if one.frame.chassis not in self._unpackable:
                    logger.exception("frames of chassis %s cannot be published", one.frame.chassis)
                self._unpackable.add(one.frame.chassis)
        published, unknown = await self._script(args=arguments)
        return int(published), frozenset(map(int, unknown))

    async def close(self) -> None:
        """Stop; waiting frames are dropped."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)

    async def _write(self) -> None:
        batch: list[tuple[FrameUpdate, asyncio.Future[bool]]] = []
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:MAX_FRAMES_PER_WRITE], self._waiting[MAX_FRAMES_PER_WRITE:]
                _complete(batch, await self._send([update for update, _ in batch]))
                if not self._waiting[MAX_FRAMES_PER_WRITE - 1 :]:
                    await asyncio.sleep(GATHER_SECONDS)
        finally:
            self._writing = None
            _complete(batch + self._waiting, frozenset())
            self._waiting = []

    async def _send(self, updates: list[FrameUpdate]) -> frozenset[int]:
        try:
            published, unknown = await self.publish_batch(updates)
        except (redis.RedisError, OSError) as error:
            for one in updates:
                metrics.increment("publish_failures", chassis=one.frame.chassis)
            if not self._is_unreachable:
                logger.warning("readings are not published: %s", error)
            self._is_unreachable = True
            return frozenset()
        else:
            metrics.increment("frames_refused", len(updates) - published)
            if self._is_unreachable:
                logger.info("readings are published again")
            self._is_unreachable = False
            return unknown


def _complete(batch: list[tuple[FrameUpdate, asyncio.Future[bool]]], unknown: frozenset[int]) -> None:
    for update, done in batch:
        if not done.done():
            done.set_result(update.frame.chassis in unknown)
