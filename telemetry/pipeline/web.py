"""A web process' part in the pipeline's own health."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from telemetry.pipeline.publishing import keep_publishing, watch


class Published:
    """Publishes what a web process counts, from its first request on: a loop to measure is there only then."""

    def __init__(self, application: Callable[[Any, Any, Any], Awaitable[Any]]) -> None:
        self.application = application
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass everything on."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop = loop
            keep_publishing("web")
            watch(loop)
        await self.application(scope, receive, send)
