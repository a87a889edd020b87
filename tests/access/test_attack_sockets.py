"""Attacks on the live socket: other pages of the same host, sessions that ran out, floods, addresses that are none."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.utils import timezone

from accounts.models import BrowserSession, Role, Tenant, User
from fabric.signals import access_changed
from falconweb.asgi import application
from telemetry.live.consumers import CLOSE_TOO_MANY, MAX_SOCKETS_PER_PERSON
from tests.telemetry.live.test_sockets import ALL, Socket, make_lab, put

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(
    "origin",
    ["http://localhost:9000", "https://localhost:8443", "http://127.0.0.1", "null", "", "http://localhost.evil.example",
     "http://evil.example/localhost", "http://localhost@evil.example", "file://", "http://"],
)  # fmt: skip
async def test_a_page_of_another_server_on_this_host_opens_no_socket(origin: str) -> None:
    lab = await sync_to_async(make_lab)()
    async with Socket(lab.clients["owner"], origin=origin) as socket:
        assert not socket.accepted


async def test_a_session_that_runs_out_takes_its_socket_with_it() -> None:
    lab = await sync_to_async(make_lab)()
    async with Socket(lab.clients["owner"]) as socket:
        await socket.ask({"subscribe": [lab.chassis.pk]})
        await socket.next_of(dict)
        await BrowserSession.objects.aupdate(expire_date=timezone.now() - timedelta(seconds=1))
        await sync_to_async(access_changed.send)(User)
        assert await socket.next_of(int) == 4401


@pytest.mark.parametrize("change", ["demoted", "moved", "tenant freed"])
async def test_who_sees_less_is_sent_less(change: str) -> None:
    lab = await sync_to_async(make_lab)()
    await put(lab, 1, *ALL)
    who = "administrator" if change == "demoted" else "owner"
    async with Socket(lab.clients[who]) as socket:
        await socket.ask({"subscribe": [lab.chassis.pk]})
        await socket.next_of(bytes)
        person = await User.objects.aget(username=who)
        person.tenant = await Tenant.objects.aget(name="Three")
        person.role = Role.VIEWER if change != "tenant freed" else person.role
        await person.asave()
        message = await socket.next_of(dict)
        while "sentence" not in message:
            message = await socket.next_of(dict)
        assert message["sentence"] == "There is no such chassis."
        await put(lab, 2, *ALL)
        assert await socket.wire.receive_nothing(timeout=0.5)


async def test_one_person_does_not_open_sockets_without_end() -> None:
    lab = await sync_to_async(make_lab)()
    sockets = [Socket(lab.clients["owner"]) for _ in range(MAX_SOCKETS_PER_PERSON)]
    for socket in sockets:
        await socket.__aenter__()
    async with Socket(lab.clients["owner"]) as one_more, Socket(lab.clients["member"]) as other:
        assert await one_more.next() == CLOSE_TOO_MANY
        await other.ask({"subscribe": [lab.chassis.pk]})
        assert (await other.next_of(dict))["type"] == "catalogue"
    for socket in sockets:
        await socket.__aexit__()
    async with Socket(lab.clients["owner"]) as again:
        await again.ask({"subscribe": [lab.chassis.pk]})
        assert (await again.next_of(dict))["type"] == "catalogue"


async def test_a_flood_of_questions_holds_nobody_else_up() -> None:
    lab = await sync_to_async(make_lab)()
    made_up = list(range(500_000, 500_200))
    async with Socket(lab.clients["stranger"]) as flood, Socket(lab.clients["owner"]) as other:
        for _ in range(200):
            await flood.ask({"subscribe": made_up})
        async with asyncio.timeout(3):
            await other.ask({"subscribe": [lab.chassis.pk]})
            assert (await other.next_of(dict))["type"] == "catalogue"
        answered = 0
        while not await flood.wire.receive_nothing(timeout=0.01):
            await flood.next()
            answered += 1
        assert answered < 40 * len(made_up)


@pytest.mark.parametrize("path", ["/ws/", "/ws/live", "/ws/live/../x", "/", "/api/v1/me/", "/ws/live/%00"])
async def test_an_address_that_is_none_is_closed_without_an_error(path: str) -> None:
    scope = {
        "type": "websocket", "path": path, "query_string": b"", "subprotocols": [],
        "headers": [(b"host", b"localhost"), (b"origin", b"http://localhost")],
    }  # fmt: skip
    wire: Any = ApplicationCommunicator(application, scope)  # type: ignore[no-untyped-call]
    await wire.send_input({"type": "websocket.connect"})
    assert (await wire.receive_output(timeout=60))["type"] == "websocket.close"
    await wire.wait(timeout=60)


async def test_what_is_said_before_signing_in_is_not_heard() -> None:
    lab = await sync_to_async(make_lab)()
    async with Socket(lab.clients["nobody"]) as socket:
        assert await socket.next() == 4401
        for message in ({"subscribe": [lab.chassis.pk]}, "{", {"subscribe": [1]}):
            await socket.ask(message)
        assert await socket.wire.receive_nothing(timeout=0.3)
