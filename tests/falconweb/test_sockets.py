"""The pings of websockets, without a server."""

from __future__ import annotations

import asyncio
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from falconweb.asgi import application
from falconweb.sockets import PingWheel, Protocol


async def test_the_error_of_one_socket_ends_no_pings_of_others() -> None:
    loop = asyncio.get_running_loop()
    errors: list[Any] = []
    second = asyncio.Event()

    def note(_loop: asyncio.AbstractEventLoop, context: Any) -> None:
        errors.append(context)
        if len(errors) == 2:
            second.set()

    loop.set_exception_handler(note)
    unconnected = Protocol(uvicorn.Config(application, log_config=None), ServerState(), {})
    turn = PingWheel(loop).add(unconnected, 0.02)
    async with asyncio.timeout(10):
        await second.wait()
    turn.discard(unconnected)
