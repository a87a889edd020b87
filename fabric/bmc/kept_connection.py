"""A connection that is kept for the GETs of a walk and those that a poller repeats, without the objects of a session.

aiohttp makes and owns it, so that trust, allowed addresses, the limit of connections and errors are those of every
request. Headers are made once, and httptools takes the answers apart.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import aiohttp
import httptools
from multidict import CIMultiDict
from yarl import URL

if TYPE_CHECKING:
    from aiohttp.connector import Connection

KEPT_SECONDS = 15.0  # without a request, as aiohttp: what is between may have forgotten it, which would cost a time-out
MAX_HEADERS = 128  # as aiohttp
MAX_UNFIT = 64  # URLs of one BMC


@dataclass(slots=True)
class RawResponse:
    """Status, headers and body of one response."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class KeptConnection:
    """GETs on one connection of a session, one at a time, with answers of up to `most` bytes."""

    def __init__(self, session: aiohttp.ClientSession, most: int) -> None:
        self._session = session
        self._most = most
        self._connection: Connection | None = None
        self._answers = AnswerParser(most, None)  # on that connection
        self._lines: tuple[Mapping[str, str], bytes] | None = None  # headers of the last request, and what was sent
        self._answered_at = 0.0  # monotonic s
        self._is_busy = False
        self._is_fit = True  # for the answers of this BMC
        self._unfit: set[URL] = set()  # whose answers are for the usual way

    async def get(self, url: URL, headers: Mapping[str, str], limit: aiohttp.ClientTimeout) -> RawResponse | None:
        """Return an answer; None where it is to be asked for in the usual way. Raises as a session does.

        That is while another request is under way, where the connection was closed meanwhile, for what was answered
        with more bytes or a redirect, and from the first answer on that is encoded, no HTTP, or without an end of its
        own.
        """
        if self._is_busy or not self._is_fit or url in self._unfit:
            return None
        self._is_busy = True
        answer: RawResponse | None = None
        try:
            async with asyncio.timeout(limit.total):
                connection = self._connection
                is_old = time.monotonic() - self._answered_at > KEPT_SECONDS
                if connection is None or is_old or connection.closed or not self._answers.goes_on:
                    connection = await self._connect(url, limit)
                if connection.transport is not None and not connection.closed:
                    connection.transport.write(self._message(url, headers))
                    answer = await self._answers.answer()
                    self._answered_at = time.monotonic()
        finally:
            self._is_busy = False
            if answer is None or not self._answers.goes_on:
                self.close()
        if answer is None and self._answers.is_large:
            self._leave(url)
        elif answer is None:
            self._is_fit = not self._answers.is_odd
        elif "Content-Encoding" in answer.headers:
            self._is_fit = False
            self.close()
            return None
        elif 300 <= answer.status < 400:
            self._leave(url)
            return None
        return answer

    def _leave(self, url: URL) -> None:
        """Leave a URL to the usual way from now on, and a BMC of many such URLs."""
        self._unfit.add(url)
        self._is_fit = len(self._unfit) < MAX_UNFIT

    def close(self) -> None:
        """Close the connection; the next GET makes another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    async def _connect(self, url: URL, limit: aiohttp.ClientTimeout) -> Connection:
        self.close()
        request = aiohttp.ClientRequest("GET", url, loop=asyncio.get_running_loop(), session=self._session)
        connector = cast("aiohttp.BaseConnector", self._session.connector)
        connection = self._connection = await connector.connect(request, traces=[], timeout=limit)
        self._answers = AnswerParser(self._most, connection)
        if connection.protocol is not None:
            connection.protocol.set_parser(self._answers, None)
        return connection

    def _message(self, url: URL, headers: Mapping[str, str]) -> bytes:
        """Return the bytes of a request; its headers are made anew only for others."""
        if self._lines is None or self._lines[0] != headers:
            lines = {"Host": url.host_port_subcomponent or "", **self._session.headers, **headers}
            if any(set("\r\n\0") & set(value) for value in lines.values()):
                raise ValueError("a header with a line break")
            text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
            self._lines = headers, f" HTTP/1.1\r\n{text}\r\n".encode()
        return b"GET " + url.raw_path_qs.encode() + self._lines[1]


class AnswerParser:
    """Takes the answers on one connection apart: httptools' callbacks, and those of an upgraded connection of aiohttp.

    `goes_on` says whether another request may follow, `is_odd` that there is no answer although bytes came. What nobody
    asked for, or is too much, ends the connection.
    """

    def __init__(self, most: int, connection: Connection | None) -> None:
        self._most = most
        self._connection = connection
        self._parser = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[RawResponse | None] | None = None
        self.goes_on = True
        self._clear()

    def _clear(self) -> None:
        self._size = 0
        self._headers: list[tuple[str, str]] = []
        self._parts: list[bytes] = []

    @property
    def is_odd(self) -> bool:
        return self._size > 0

    @property
    def is_large(self) -> bool:
        return self._size > self._most

    async def answer(self) -> RawResponse | None:
        """Return the next answer, None where there is none; it is kept no longer."""
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            return await self._waiter
        finally:
            self._waiter = None

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Take bytes of the connection."""
        self._size += len(data)
        try:
            if self._is_expecting and self._size <= self._most:
                self._parser.feed_data(data)
            else:
                self._fail()
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._fail()
        return False, b""

    def feed_eof(self) -> None:
        """Take note of the end of the connection."""
        self._fail()

    def _fail(self) -> None:
        self.goes_on = False
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        if self._connection is not None:
            self._connection.close()

    @property
    def _is_expecting(self) -> bool:
        return self.goes_on and self._waiter is not None and not self._waiter.done()

    def on_message_begin(self) -> None:
        if not self._is_expecting:
            self.goes_on = False  # even a part of a second answer would become one of the next

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self._headers) == MAX_HEADERS:
            raise ValueError("too many headers")
        self._headers.append((name.decode("latin-1"), value.decode("latin-1")))

    def on_body(self, part: bytes) -> None:
        self._parts.append(part)

    def on_message_complete(self) -> None:
        status, parts = self._parser.get_status_code(), self._parts
        if status >= 200 and self._is_expecting and self._waiter is not None:
            self.goes_on = self._parser.should_keep_alive()
            body = parts[0] if len(parts) == 1 else b"".join(parts)
            self._waiter.set_result(RawResponse(status, CIMultiDict(self._headers), body))
        self._clear()
