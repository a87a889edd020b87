"""The GET that is repeated each second: over one connection of its own, and as any other where that does not do."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator

import pytest

from fabric.bmc import kept_connection
from fabric.bmc.addresses import BmcAddress, CertificateTrust
from fabric.bmc.client import BmcClient
from fabric.bmc.errors import RequestRefused, TimedOut, Unreachable
from fabric.bmc.transport import LARGE_RESPONSE_BYTES

REPORT = "/redfish/v1/TelemetryService/MetricReports/All"
BODY = b'{"Id": "All"}'
OTHER = f"{REPORT}/other"


def answer(body: bytes = BODY, *, status: str = "200 OK", more: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode() + body


class Service:
    """Answers the requests in turn, in these bytes: each is a path's, or what is sent; None: the connection ends."""

    def __init__(self, *answers: bytes | None) -> None:
        self._answers = iter(answers)
        self.heads: list[bytes] = []
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.heads.append(head)
                found = next(self._answers, answer())
                if found is None:
                    break
                writer.write(found)
                await writer.drain()
                if found.startswith(b"HTTP/1.0"):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def client_of(service: Service, *, timeout: float = 10.0) -> AsyncIterator[BmcClient]:
    server = await asyncio.start_server(service.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    address = BmcAddress(url=f"http://127.0.0.1:{port}", username="", password="", trust=CertificateTrust())
    try:
        async with BmcClient(address, timeout=timeout) as bmc:
            yield bmc
    finally:
        server.close()


async def test_reports_come_over_one_connection() -> None:
    parts = answer(b"", more="").replace(b"Content-Length: 0\r\n", b"Transfer-Encoding: chunked\r\n")
    service = Service(
        answer(), parts + b'4\r\n{"Id\r\n9\r\n": "All"}\r\n0\r\n\r\n', b"HTTP/1.1 100 Continue\r\n\r\n" + answer()
    )
    async with client_of(service) as bmc:
        assert [await bmc.get_bytes(REPORT, is_repeated=True) for _ in range(3)] == [BODY] * 3
    assert service.connections == 1
    assert len(service.heads) == 3
    first = service.heads[0].decode().splitlines()
    assert first[0] == f"GET {REPORT} HTTP/1.1"
    assert {"User-Agent: FalconWeb", "OData-Version: 4.0", "Accept: application/json"} <= set(first)


async def test_two_at_a_time_are_not_mixed_up() -> None:
    service = Service(answer(b"1"), answer(b"2"))
    async with client_of(service) as bmc:
        assert {
            *await asyncio.gather(bmc.get_bytes(REPORT, is_repeated=True), bmc.get_bytes(OTHER, is_repeated=True))
        } == {b"1", b"2"}
    assert service.connections == 2


@pytest.mark.parametrize(
    ("first", "found", "connections"),
    [
        pytest.param(None, BODY, 2, id="closed"),
        pytest.param(answer(more="Connection: close\r\n"), BODY, 2, id="closed afterwards"),
        pytest.param(b"HTTP/1.0 200 OK\r\n\r\n" + BODY, BODY, 2, id="no end of its own"),
        pytest.param(b"nonsense\r\n\r\n", BODY, 2, id="no HTTP"),
        pytest.param(answer() + answer(b"more"), BODY, 2, id="two answers"),
        pytest.param(answer() + answer(b"more")[:-2], BODY, 2, id="a part of a second answer"),
        pytest.param(answer(more="X: y\r\n" * 128), BODY, 2, id="too many headers"),
        pytest.param(answer(status="302 Found", more=f"Location: {OTHER}\r\n"), BODY, 2, id="redirect"),
        pytest.param(answer(gzip.compress(BODY), more="Content-Encoding: gzip\r\n"), BODY, 2, id="compressed"),
        pytest.param(answer(b"0" * (LARGE_RESPONSE_BYTES + 1)), BODY, 2, id="large"),
    ],
)
async def test_what_that_connection_is_not_for_is_asked_for_as_usual(
    first: bytes | None, found: bytes, connections: int
) -> None:
    service = Service(first)
    async with client_of(service) as bmc:
        for _ in range(3):
            assert await bmc.get_bytes(REPORT, is_repeated=True) == found
    assert service.connections == connections


async def test_a_redirect_is_that_of_one_url() -> None:
    service = Service(answer(status="302 Found", more=f"Location: {OTHER}\r\n"))
    async with client_of(service) as bmc:
        for uri in (REPORT, OTHER, REPORT):
            assert (await bmc.get(uri, is_repeated=True)).body == {"Id": "All"}
    usual = [b"Accept-Encoding" in head for head in service.heads]
    assert usual == [False, True, False, True]  # the redirect and that again, the other one, the redirected one


async def test_an_idle_connection_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_connection, "KEPT_SECONDS", 0.0)
    service = Service()
    async with client_of(service) as bmc:
        for _ in range(3):
            assert await bmc.get_bytes(REPORT, is_repeated=True) == BODY
    assert service.connections == 3


class Talker(Service):
    """Answers once, and then talks on."""

    def __init__(self) -> None:
        super().__init__()
        self.may_talk, self.is_ended = asyncio.Event(), asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer())
        await self.may_talk.wait()
        writer.write(b"more")
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()
        self.is_ended.set()


async def test_what_nobody_asked_for_ends_it_at_once() -> None:
    service = Talker()
    async with client_of(service) as bmc, asyncio.timeout(60):
        assert await bmc.get_bytes(REPORT, is_repeated=True) == BODY
        service.may_talk.set()
        await service.is_ended.wait()
        assert await bmc.get_bytes(REPORT, is_repeated=True) == BODY


async def test_its_errors_are_those_of_any_request() -> None:
    service = Service(answer(b"{}", status="404 Not Found"), answer(), answer(b"{}", status="503 Busy"))
    async with client_of(service) as bmc:
        with pytest.raises(RequestRefused, match="answered 404"):
            await bmc.get_bytes(REPORT, is_repeated=True)
        assert await bmc.get_bytes(REPORT, is_repeated=True) == BODY
    async with client_of(Service(b""), timeout=0.05) as bmc:
        with pytest.raises(TimedOut):
            await bmc.get_bytes(REPORT, is_repeated=True)
        assert await bmc.get_bytes(REPORT, is_repeated=True) == BODY  # the late answer is nobody's
    nobody = BmcAddress(url="http://127.0.0.1:9", username="", password="", trust=CertificateTrust())
    async with BmcClient(nobody) as bmc:
        with pytest.raises(Unreachable, match="does not answer at port 9"):
            await bmc.get_bytes(REPORT, is_repeated=True)
