"""The live socket as each person has it: over the site's ASGI application, the real Valkey and the real sessions."""

from __future__ import annotations

import asyncio
import json
import struct
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import pytest
import redis.asyncio
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.conf import settings
from django.contrib.auth import get_user_model
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from accounts.models import BrowserSession, Role, Tenant, User
from accounts.sign_in.services import sessions_end
from fabric.inventory.models import Chassis, Device, Drawer, HostPort, Port, Slot, Switch
from fabric.inventory.selectors import ReadingScope
from fabric.signals import access_changed
from falconweb.asgi import application
from telemetry.links.models import LinkVerdict
from telemetry.live import access
from telemetry.live.access import ShownChassis, current_scopes
from telemetry.live.catalogue import SeriesEntry
from telemetry.live.frames import HEADER, KEY, Frame, set_catalogue
from telemetry.live.hub import SocketSubscriber, hub
from tests.telemetry.live.publishing import put_frame
from tests.waiting import eventually_in_loop

pytestmark = pytest.mark.django_db(transaction=True)
PATIENCE = 10.0


@dataclass
class Lab:
    """One chassis whose series belong to two tenants and to nobody, and a session a person."""

    chassis: Chassis
    owned: Device
    other: Device
    entries: list[SeriesEntry]
    clients: dict[str, Client] = field(default_factory=dict)


def entry(kind: str, number: int, quantity: str) -> SeriesEntry:
    return SeriesEntry(
        key=f"{kind}/{number}/{quantity}", object=kind, id=number, quantity=quantity, label=quantity, unit=""
    )


def make_lab() -> Lab:
    one, two, three = (Tenant.objects.create(name=name) for name in ("One", "Two", "Three"))
    chassis = Chassis.objects.create(name="falcon", url="https://127.0.0.1:1")
    drawer = Drawer.objects.create(chassis=chassis, uri="/d", name="Drawer 1", number=1)
    switch = Switch.objects.create(chassis=chassis, uri="/s", name="Switch", drawer=drawer)
    devices, entries = [], []
    for number, tenant in ((1, one), (2, two)):
        ports = [
            Port.objects.create(chassis=chassis, uri=f"/p{kind}{number}", name=f"{kind}{number}", switch=switch)
            for kind in "SH"
        ]
        slot = Slot.objects.create(
            chassis=chassis, uri=f"/slot{number}", name=f"{number}", drawer=drawer, port=ports[0], number=number
        )
        HostPort.objects.create(
            chassis=chassis, uri=f"/z{number}", name=f"H{number}", endpoint_uri=f"/e{number}", drawer=drawer,
            port=ports[1], tenant=tenant, label=f"H{number}", number=number,
        )  # fmt: skip
        device = Device.objects.create(chassis=chassis, uri=f"/v{number}", name="GPU", slot=slot, tenant=tenant)
        devices.append(device)
        entries += [
            entry("device", device.pk, "temperature_celsius"),
            entry("port", ports[0].pk, "rx_bytes_per_second"),
        ]
        entries += [entry("port", ports[1].pk, "rx_bytes_per_second")]
    entries.append(entry("chassis", 0, "power_watts"))
    lab = Lab(chassis, devices[0], devices[1], entries)
    people = {
        "administrator": User.objects.create_superuser("administrator", password="x"),
        "owner": User.objects.create_user("owner", password="x", role=Role.USER, tenant=one),
        "member": User.objects.create_user("member", password="x", role=Role.VIEWER, tenant=one),
        "stranger": User.objects.create_user("stranger", password="x", role=Role.USER, tenant=three),
    }
    for name, person in people.items():
        lab.clients[name] = Client()
        lab.clients[name].force_login(person)
    lab.clients["nobody"] = Client()
    return lab


@pytest.fixture
def lab() -> Lab:
    return make_lab()


class Socket:
    """One browser's socket to the site."""

    def __init__(self, client: Client, *, origin: str = "http://localhost") -> None:
        cookies = "; ".join(f"{name}={morsel.value}" for name, morsel in client.cookies.items())
        scope = {
            "type": "websocket", "path": "/ws/live/", "query_string": b"", "subprotocols": [],
            "headers": [(b"host", b"localhost"), (b"cookie", cookies.encode()), (b"origin", origin.encode())],
        }  # fmt: skip
        self.wire: Any = ApplicationCommunicator(application, scope)  # type: ignore[no-untyped-call]

    async def __aenter__(self) -> Self:
        await self.wire.send_input({"type": "websocket.connect"})
        answer = await self.wire.receive_output(timeout=PATIENCE)
        self.accepted = answer["type"] == "websocket.accept"
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.wire.send_input({"type": "websocket.disconnect", "code": 1000})
        await self.wire.wait(timeout=PATIENCE)

    async def ask(self, message: Any) -> None:
        text = message if isinstance(message, str) else json.dumps(message)
        await self.wire.send_input({"type": "websocket.receive", "text": text})

    async def next(self) -> Any:
        """Return the next message: decoded JSON, the bytes of a frame, or the code of a close."""
        output = await self.wire.receive_output(timeout=PATIENCE)
        if output["type"] == "websocket.close":
            return output["code"]
        text = output.get("text")
        return output["bytes"] if text is None else json.loads(text)

    async def next_of(self, kind: type) -> Any:
        while True:
            found = await self.next()
            if isinstance(found, kind):
                return found


async def put(lab: Lab, sequence: int, *values: float) -> None:
    """Publish a frame as the poller does."""
    bus = redis.asyncio.Redis.from_url(settings.REDIS_URL)
    try:
        revision = await set_catalogue(bus, lab.chassis.pk, lab.entries)
        await put_frame(bus, Frame(revision, lab.chassis.pk, sequence, float(sequence), np.array(values)))
    finally:
        await bus.aclose()


def values_of(raw: bytes) -> list[float]:
    kind, _, _, _, _, _, count = HEADER.unpack_from(raw)
    assert kind == KEY
    return list(struct.unpack_from(f"<{count}d", raw, HEADER.size))


ALL = (10.0, 11.0, 12.0, 20.0, 21.0, 22.0, 30.0)


@pytest.mark.parametrize(
    ("person", "expected"),
    [("administrator", ALL), ("owner", ALL[:3]), ("member", ALL[:3])],
)
async def test_each_person_gets_exactly_what_they_may_see(person: str, expected: tuple[float, ...]) -> None:
    lab = await sync_to_async(make_lab)()
    await put(lab, 1, *ALL)
    async with Socket(lab.clients[person]) as socket:
        await socket.ask({"subscribe": [lab.chassis.pk]})
        catalogue = await socket.next_of(dict)
        assert [one["key"] for one in catalogue["series"]] == [one["key"] for one in lab.entries[: len(expected)]]
        assert values_of(await socket.next_of(bytes)) == list(expected)
        await put(lab, 2, *(value + 1 for value in ALL))
        # The next frame is a delta; every value changed, so that it holds exactly the seen ones.
        delta = await socket.next_of(bytes)
        assert len(delta) == HEADER.size + 1 + 8 * len(expected)


async def test_an_error_counter_is_live_from_ones_own_time_on() -> None:
    lab = await sync_to_async(make_lab)()
    port = (lab.owned.slot.port_id if lab.owned.slot else None) or 0
    lab.entries = [entry("port", port, "errors/ReplayCount"), entry("port", port, "errors/BadTLPCount")]
    held = timezone.now()
    await Device.objects.filter(pk=lab.owned.pk).aupdate(tenant_since=held)
    await LinkVerdict.objects.acreate(
        port_id=port, tenant_id=lab.owned.tenant_id, held_since=held, before={"ReplayCount": 70}, level="healthy",
        rank=0, since=held, judged_at=held,
    )  # fmt: skip
    await put(lab, 1, 75.0, 4.0)
    async with Socket(lab.clients["owner"]) as socket, Socket(lab.clients["administrator"]) as everything:
        for one, expected in ((socket, [5.0, 4.0]), (everything, [75.0, 4.0])):
            await one.ask({"subscribe": [lab.chassis.pk]})
            await one.next_of(dict)
            assert values_of(await one.next_of(bytes)) == expected
        # The chassis counts from zero: what stands there is theirs, also before anybody has noted it.
        await put(lab, 2, 3.0, 4.0)
        delta = await socket.next_of(bytes)
        assert struct.unpack_from("<d", delta, HEADER.size + 1) == (3.0,)


async def test_a_stranger_gets_no_chassis_and_nobody_gets_no_socket() -> None:
    lab = await sync_to_async(make_lab)()
    await put(lab, 1, *ALL)
    async with Socket(lab.clients["stranger"]) as socket:
        await socket.ask({"subscribe": [lab.chassis.pk, 999_999]})
        for _ in range(2):
            assert (await socket.next())["sentence"] == "There is no such chassis."
        await put(lab, 2, *ALL)
        assert await socket.wire.receive_nothing(timeout=0.5)
    async with Socket(lab.clients["nobody"]) as socket:
        assert await socket.next() == 4401


async def test_another_site_opens_no_socket(lab: Lab) -> None:
    async with Socket(lab.clients["owner"], origin="https://evil.example") as socket:
        assert not socket.accepted


@pytest.mark.parametrize(
    "message",
    ["", "{", "[]", '{"subscribe": 5}', '{"subscribe": ["1"]}', '{"subscribe": [true]}', '{"subscribe": [-1]}',
     '{"subscribe": [1e99]}', json.dumps({"subscribe": list(range(1, 202))}), "[" * 9000, " " * 20_000],
)  # fmt: skip
async def test_nonsense_is_answered_with_a_sentence(message: str) -> None:
    lab = await sync_to_async(make_lab)()
    async with Socket(lab.clients["owner"]) as socket:
        await socket.ask(message)
        assert (await socket.next())["type"] == "error"


async def test_signing_out_closes_the_socket_with_4401() -> None:
    lab = await sync_to_async(make_lab)()
    async with Socket(lab.clients["owner"]) as socket, Socket(lab.clients["member"]) as other:
        await socket.ask({"subscribe": [lab.chassis.pk]})
        await socket.next_of(dict)
        await sync_to_async(lab.clients["owner"].post)("/sign-out/")
        assert await socket.next_of(int) == 4401
        assert await other.wire.receive_nothing(timeout=0.3)


@pytest.mark.parametrize("change", ["deactivated", "password", "session", "removed"])
async def test_a_person_who_is_shut_out_loses_the_socket(change: str) -> None:
    lab = await sync_to_async(make_lab)()
    people = get_user_model().objects
    async with Socket(lab.clients["owner"]) as socket:
        await socket.ask({"subscribe": [lab.chassis.pk]})
        await socket.next_of(dict)
        person = await people.aget(username="owner")
        if change == "removed":
            await person.adelete()
        elif change == "session":
            await sync_to_async(sessions_end)(person=person)
        else:
            if change == "password":
                person.set_password("another")
            else:
                person.is_active = False
            await person.asave()
        assert await socket.next_of(int) == 4401


async def test_what_nobody_announced_is_found_by_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "SWEEP_SECONDS", 0.5)
    lab = await sync_to_async(make_lab)()
    await put(lab, 1, *ALL)
    async with Socket(lab.clients["owner"]) as socket, Socket(lab.clients["member"]) as other:
        for one in (socket, other):
            await one.ask({"subscribe": [lab.chassis.pk]})
            await one.next_of(dict)
        # As where the announcement is lost with its connection to Redis.
        await Device.objects.filter(pk=lab.owned.pk).aupdate(tenant=None)
        await BrowserSession.objects.filter(person__username="owner").adelete()
        assert await socket.next_of(int) == 4401
        catalogue = await other.next_of(dict)
        assert [one["key"] for one in catalogue["series"]] == [lab.entries[2]["key"]]


def test_a_look_at_many_sockets_takes_no_more_queries_than_one(
    lab: Lab, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    sockets = [
        ShownChassis(lab.clients[name].session.session_key or "", person, frozenset({lab.chassis.pk, 999_999}))
        for name in ("administrator", "owner", "member", "stranger")
        for person in User.objects.filter(username=name).values_list("pk", flat=True)
    ]
    sockets.append(ShownChassis("0" * 32, sockets[0].person, frozenset({lab.chassis.pk})))
    with django_assert_max_num_queries(7) as few:
        current_scopes(sockets[1:2])
    with django_assert_max_num_queries(len(few.captured_queries) + 2):  # those of the other two tenants
        found = current_scopes(sockets * 20)
    assert found[:5] * 20 == found
    everything, owner, member, stranger, nobody = found[:5]
    assert everything == {lab.chassis.pk: ReadingScope(everything=True)}
    assert owner == member
    assert owner is not None
    assert owner[lab.chassis.pk].devices == {lab.owned.pk}
    assert (stranger, nobody) == ({}, None)


async def test_a_grant_that_moves_takes_the_readings_with_it() -> None:
    lab = await sync_to_async(make_lab)()
    await put(lab, 1, *ALL)
    async with Socket(lab.clients["owner"]) as socket:
        await socket.ask({"subscribe": [lab.chassis.pk]})
        assert values_of(await socket.next_of(bytes)) == list(ALL[:3])
        tenant = await Tenant.objects.aget(name="Two")
        await Device.objects.filter(pk=lab.owned.pk).aupdate(tenant=tenant)
        await sync_to_async(access_changed.send)(Device)
        catalogue = await socket.next_of(dict)
        # The device and its slot's port are gone, the host port is still theirs.
        assert [one["key"] for one in catalogue["series"]] == [lab.entries[2]["key"]]
        await put(lab, 2, *ALL)
        assert values_of(await socket.next_of(bytes)) == [ALL[2]]


async def test_another_catalogue_never_lends_its_places() -> None:
    lab = await sync_to_async(make_lab)()
    await put(lab, 1, *ALL)
    async with Socket(lab.clients["owner"]) as socket:
        await socket.ask({"subscribe": [lab.chassis.pk]})
        assert values_of(await socket.next_of(bytes)) == list(ALL[:3])
        lab.entries.reverse()
        await put(lab, 2, *ALL)
        catalogue = await socket.next_of(dict)
        assert [one["key"] for one in catalogue["series"]] == [one["key"] for one in lab.entries[-3:]]
        assert values_of(await socket.next_of(bytes)) == list(ALL[-3:])


async def test_a_browser_that_stops_reading_skips_frames_and_gets_a_key_frame_next() -> None:
    lab = await sync_to_async(make_lab)()
    await put(lab, 1, *ALL)
    gate = asyncio.Event()
    got: asyncio.Queue[bytes] = asyncio.Queue()

    async def send(message: dict[str, Any]) -> None:
        if "bytes" in message:
            got.put_nowait(message["bytes"])
            await gate.wait()

    stalled = SocketSubscriber(send, lambda: None)
    await hub().subscribe(stalled, lab.chassis.pk, ReadingScope(everything=True))
    async with Socket(lab.clients["administrator"]) as socket:
        await socket.ask({"subscribe": [lab.chassis.pk]})
        await socket.next_of(bytes)
        for sequence in range(2, 7):
            await put(lab, sequence, *(value + sequence for value in ALL))
            await socket.next_of(bytes)  # the other browser gets each one
    assert values_of(got.get_nowait()) == list(ALL)
    assert got.empty()
    gate.set()
    async with asyncio.timeout(PATIENCE):
        assert values_of(await got.get()) == [value + 6 for value in ALL]
    stalled.end()


async def test_a_socket_that_takes_nothing_more_ends_nothing_but_itself() -> None:
    lab = await sync_to_async(make_lab)()
    await put(lab, 1, *ALL)
    tries: list[str] = []

    async def send(message: dict[str, Any]) -> None:
        tries.append(message["type"])
        raise ConnectionResetError

    told: list[bool] = []
    broken = SocketSubscriber(send, lambda: told.append(True))
    async with Socket(lab.clients["administrator"]) as socket:
        await hub().subscribe(broken, lab.chassis.pk, ReadingScope(everything=True))
        await socket.ask({"subscribe": [lab.chassis.pk]})
        await socket.next_of(bytes)
        await put(lab, 2, *ALL)
        await socket.next_of(bytes)
    assert len(tries) == len(told) == 1


async def test_what_a_waiting_socket_ends_with_is_heard() -> None:
    """A send that waits, and then fails or is cancelled, ends as it would in a task of its own."""
    lab = await sync_to_async(make_lab)()
    await put(lab, 1, *ALL)
    for fails in (True, False):
        told: list[str] = []
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def send(message: dict[str, Any], told: list[str] = told, gate: Any = gate) -> None:
            try:
                await gate
            except (ConnectionResetError, asyncio.CancelledError) as error:
                told.append(type(error).__name__)
                raise

        def broken(told: list[str] = told) -> None:
            told.append("broken")

        waiting = SocketSubscriber(send, broken)
        await hub().subscribe(waiting, lab.chassis.pk, ReadingScope(everything=True))
        if fails:
            gate.set_exception(ConnectionResetError())
        else:
            waiting.end()

        async def heard(told: list[str] = told) -> list[str]:
            return told

        await eventually_in_loop(heard, (["ConnectionResetError", "broken"] if fails else ["CancelledError"]).__eq__)
        hub().unsubscribe(waiting, lab.chassis.pk)


async def test_the_hub_goes_on_after_a_message_it_cannot_handle() -> None:
    lab = await sync_to_async(make_lab)()
    await put(lab, 1, *ALL)
    bus = redis.asyncio.Redis.from_url(settings.REDIS_URL)
    async with Socket(lab.clients["administrator"]) as socket:
        await socket.ask({"subscribe": [lab.chassis.pk]})
        await socket.next_of(bytes)
        for channel, data in (
            (f"live:{lab.chassis.pk}", b""), (f"live:{lab.chassis.pk}", b"\x01\x01" + bytes(30)),
            ("live:0x", b"?"), (f"live:{lab.chassis.pk}:1", b"?"), ("changed:9" + "9" * 30, b""),
        ):  # fmt: skip
            await bus.publish(channel, data)
        await put(lab, 2, *(value + 1 for value in ALL))
        assert len(await socket.next_of(bytes)) == HEADER.size + 1 + 8 * len(ALL)
    await bus.aclose()
