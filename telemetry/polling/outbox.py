"""Frames of one worker on their way to Redis."""

from __future__ import annotations

import asyncio
import logging

import redis
import redis.asyncio

from telemetry.live import HeldFrames, News
from telemetry.pipeline import tally

logger = logging.getLogger(__name__)

MOST_AT_ONCE = 64


class Outbox:
    """Writes frames as they come; those that come while a write is under way go together with the next.

    Redis itself looks whose the chassis is: a frame of a worker that lost it, and does not know yet, is not published.
    """

    def __init__(self, bus: redis.asyncio.Redis, holder: str) -> None:
        self._frames = HeldFrames(bus, holder)
        self._waiting: list[tuple[News, asyncio.Future[bool]]] = []
        self._writing: asyncio.Task[None] | None = None
        self._is_away = False

    async def publish(self, news: News) -> bool:
        """Publish a frame, as far as Redis is there; tells once it is done, or given up, whether nobody understands it.

        Then the catalogue in force is not that of the frame: Redis has lost its memory, or somebody who follows the
        chassis no more has put another one there.
        """
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((news, done))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        return await done

    async def close(self) -> None:
        """End; what waits is dropped."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)

    async def _write(self) -> None:
        batch: list[tuple[News, asyncio.Future[bool]]] = []
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:MOST_AT_ONCE], self._waiting[MOST_AT_ONCE:]
                _let_go(batch, await self._send([news for news, _ in batch]))
        finally:
            self._writing = None
            _let_go(batch + self._waiting, frozenset())
            self._waiting = []

    async def _send(self, news: list[News]) -> frozenset[int]:
        try:
            published, unknown = await self._frames.publish(news)
        except (redis.RedisError, OSError) as error:
            for one in news:
                tally.add("publish_failures", chassis=one.frame.chassis)
            if not self._is_away:
                logger.warning("readings are not published: %s", error)
            self._is_away = True
            return frozenset()
        else:
            tally.add("frames_refused", len(news) - published)
            if self._is_away:
                logger.info("readings are published again")
            self._is_away = False
            return unknown


def _let_go(batch: list[tuple[News, asyncio.Future[bool]]], unknown: frozenset[int]) -> None:
    for news, done in batch:
        if not done.done():
            done.set_result(news.frame.chassis in unknown)
