"""The live socket as the site's web server serves it: frames are written past ASGI, see falconweb.sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
import uvicorn
from asgiref.sync import sync_to_async
from django.test import Client
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from falconweb.asgi import application
from falconweb.launch.commands import bind_listener
from telemetry.instrumentation import metrics
from telemetry.live.frames import DELTA, HEADER, KEY
from telemetry.live.hub import fanout
from tests.telemetry.live.test_sockets import ALL, Lab, entry, make_lab, put

pytestmark = pytest.mark.django_db(transaction=True)
SMALL_BUFFER = 4096
SERIES = 20_000  # 160 KB a frame, which soon fill the buffers of the kernel
MOST_FRAMES = 200
PATIENCE = 10.0


@asynccontextmanager
async def served(**more: Any) -> AsyncIterator[int]:
    """Serve the site in this loop; the port."""
    listener = bind_listener("127.0.0.1", 0)
    listener.listen()  # connections wait until it serves
    server = uvicorn.Server(
        uvicorn.Config(
            application,
            ws="falconweb.sockets:Protocol",
            ws_per_message_deflate=False,
            lifespan="off",
            log_config=None,
            **more,
        )
    )
    serving = asyncio.create_task(server.serve([listener]))
    yield listener.getsockname()[1]
    server.should_exit = True
    async with asyncio.timeout(PATIENCE):
        await serving


@asynccontextmanager
async def browser(port: int, client: Client, lab: Lab, **more: Any) -> AsyncIterator[ClientConnection]:
    """Open a socket that shows the chassis of the lab."""
    cookies = "; ".join(f"{name}={morsel.value}" for name, morsel in client.cookies.items())
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
    made.connect(("127.0.0.1", port))
    headers = {"Cookie": cookies, "Origin": "http://localhost"}
    async with connect(
        "ws://localhost/ws/live/", sock=made, additional_headers=headers, max_size=None, **more
    ) as opened:
        await opened.send(f'{{"subscribe": [{lab.chassis.pk}]}}')
        yield opened


async def next_frame(opened: ClientConnection) -> tuple[int, int]:
    """Return kind and number of the next frame."""
    async with asyncio.timeout(PATIENCE):
        while isinstance(message := await opened.recv(), str):
            pass
    kind, _, _, _, sequence, *_ = HEADER.unpack_from(message)
    return kind, sequence


async def last_message(opened: ClientConnection) -> None:
    """Read all messages; raises ConnectionClosed after the last."""
    async with asyncio.timeout(PATIENCE):
        while True:
            await opened.recv()


async def test_each_frame_comes_once_as_a_delta_until_the_series_are_others() -> None:
    lab = await sync_to_async(make_lab)()
    await put(lab, 1, *ALL)
    async with served() as port, browser(port, lab.clients["owner"], lab) as opened:
        assert await next_frame(opened) == (KEY, 1)
        for sequence in range(2, 6):
            await put(lab, sequence, *(value + sequence for value in ALL))
            assert await next_frame(opened) == (DELTA, sequence)
            # As where a subscription finds the newest frame before its announcement.
            await put(lab, sequence, *(value + sequence for value in ALL))
        lab.entries.reverse()
        await put(lab, 6, *ALL)
        assert await next_frame(opened) == (KEY, 6)
        await put(lab, 7, *(value + 1 for value in ALL))
        assert await next_frame(opened) == (DELTA, 7)
        await sync_to_async(lab.clients["owner"].post)("/sign-out/")
        with pytest.raises(ConnectionClosed) as closed:
            await next_frame(opened)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4401


async def test_a_browser_that_stops_reading_goes_on_with_a_key_frame() -> None:
    lab = await sync_to_async(make_lab)()
    lab.entries = [entry("chassis", 0, f"{number}") for number in range(SERIES)]
    values = np.zeros(SERIES)
    async with (
        served() as port,
        browser(port, lab.clients["administrator"], lab) as other,
        browser(port, lab.clients["administrator"], lab, max_queue=1) as stalled,
    ):
        sequence, before = 0, fanout.skipped
        # One that is announced again while its browser subscribes counts, too.
        while fanout.skipped < before + 4 and sequence < MOST_FRAMES:
            sequence += 1
            await put(lab, sequence, *(values + sequence))
            assert await next_frame(other) == (KEY if sequence == 1 else DELTA, sequence)
        last, skipped = 0, 0
        while last < sequence:
            kind, number = await next_frame(stalled)
            assert (kind == DELTA) == (number == last + 1 > 1)
            skipped += number - last - 1
            last = number
        assert skipped > 0


async def test_a_browser_that_answers_no_ping_is_closed_and_the_others_stay() -> None:
    lab = await sync_to_async(make_lab)()
    client = lab.clients["owner"]

    def count() -> float:
        return metrics.gauge_values()["sockets_open", None]

    before = count()
    async with (
        served(ws_ping_interval=0.2) as port,
        browser(port, client, lab) as other,
        browser(port, client, lab, max_queue=1) as stalled,
    ):
        async with asyncio.timeout(PATIENCE):
            sequence = 0
            while count() < before + 2 or not sequence:
                sequence += 1
                await put(lab, sequence, *(value + sequence for value in ALL))
                await next_frame(other)
            # It reads no further while its queue is full, and so answers nothing.
            while count() > before + 1:
                sequence += 1
                await put(lab, sequence, *(value + sequence for value in ALL))
                assert (await next_frame(other))[1] == sequence
        with pytest.raises(ConnectionClosed) as closed:
            await last_message(stalled)
        # Its late answer to a ping may meet a closed connection: what it had not read by then, it never gets.
        assert closed.value.rcvd is None or closed.value.rcvd.code == 1011
