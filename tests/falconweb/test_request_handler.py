"""How requests are handled: each in one thread, whose connection to the database goes back however the request ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils import timezone, translation

from falconweb.request_handler import ThreadHandler

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]
PATIENCE = 60.0
threads: list[threading.Thread] = []
connected: list[Any] = []
readers: list[tuple[str | None, str]] = []  # language and time zone
is_waiting, is_left = threading.Event(), threading.Event()


def note_thread(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    def middleware(request: HttpRequest) -> HttpResponse:
        threads.append(threading.current_thread())
        return get_response(request)

    return middleware


def note_connection(request: HttpRequest) -> HttpResponse:
    threads.append(threading.current_thread())
    connection.ensure_connection()
    connected.append(connection.connection)
    readers.append((translation.get_language(), timezone.get_current_timezone_name()))
    translation.activate(request.GET.get("language", "en"))
    timezone.activate("Asia/Tokyo")
    if "wait" in request.GET:
        is_waiting.set()
        is_left.wait(PATIENCE)
    return HttpResponse("noted")


urlpatterns = [path("", note_connection)]


@pytest.fixture
def handler(settings: Any) -> ThreadHandler:
    settings.MIDDLEWARE = [f"{__name__}.note_thread"]
    threads.clear()
    connected.clear()
    readers.clear()
    is_waiting.clear()
    is_left.clear()
    return ThreadHandler()


async def ask(handler: ThreadHandler, query: str = "", *, leaves: bool = False) -> list[Any]:
    """Send a request, of a browser that leaves while it is handled or not; return what was answered."""
    received: asyncio.Queue[Any] = asyncio.Queue()
    received.put_nowait({"type": "http.request", "body": b"", "more_body": False})
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost")]
    scope = {"type": "http", "method": "GET", "path": "/", "query_string": query.encode(), "headers": headers}
    async with asyncio.timeout(PATIENCE):
        handling = asyncio.create_task(handler(scope, received.get, send))
        if leaves:
            await asyncio.to_thread(is_waiting.wait, PATIENCE)
            received.put_nowait({"type": "http.disconnect"})
            for _ in range(20):  # turns of the loop, in which the handler gives the request up
                await asyncio.sleep(0)
            is_left.set()
        await handling
    return sent


async def test_a_request_leaves_the_loop_once_to_be_handled_and_once_to_end(
    handler: ThreadHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    in_thread, changes = loop.run_in_executor, 0

    def counted(*arguments: Any) -> Any:
        nonlocal changes
        changes += 1
        return in_thread(*arguments)

    monkeypatch.setattr(loop, "run_in_executor", counted)
    start, body = await ask(handler)
    assert (start["status"], body["body"]) == (200, b"noted")
    assert changes == 2
    assert len(set(threads)) == 1
    assert threads[0] is not threading.current_thread()


@pytest.mark.skipif(connection.vendor != "sqlite", reason="another database is set")
async def test_the_connection_of_a_browser_that_left_is_the_next_one_s(handler: ThreadHandler) -> None:
    await ask(handler, "wait", leaves=True)
    await ask(handler)
    left, after = connected
    assert after is left


async def test_requests_at_once_have_a_thread_each_and_later_ones_the_same(handler: ThreadHandler) -> None:
    waiting = asyncio.create_task(ask(handler, "wait"))
    await asyncio.to_thread(is_waiting.wait, PATIENCE)
    await ask(handler)
    is_left.set()
    await waiting
    await ask(handler)
    assert len(set(threads[:-1])) == 2
    assert threads[-1] in threads[:-1]


async def test_a_thread_keeps_no_language_and_no_time_zone_for_the_next_request(handler: ThreadHandler) -> None:
    await ask(handler)
    await ask(handler, "language=de")
    await ask(handler)
    assert len(set(threads)) == 1
    assert len(set(readers)) == 1
