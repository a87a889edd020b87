"""Receivers on ports of their own that keep what they get: HTTP, and syslog over UDP, TCP and TLS."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal, Self

from simulator.certificates import ServerCertificate

Mood = Literal["well", "silent", "hangs up", "drips"]


@dataclass(frozen=True)
class Got:
    """One request that came."""

    path: str
    headers: dict[str, str]
    body: bytes


class _Running:
    """A server in a thread, for as long as its context."""

    def __init__(self, server: socketserver.BaseServer) -> None:
        self._server = server
        self._server.sink = self  # type: ignore[attr-defined]  # how its handlers find this
        self._thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.over = threading.Event()
        self.port: int = server.server_address[1]  # type: ignore[index,assignment]  # of an address of the Internet

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()


class _Request(BaseHTTPRequestHandler):
    server: Any
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        sink: HttpSink = self.server.sink
        if sink.mood == "hangs up":
            self.close_connection = True
            return
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if sink.mood == "silent":
            sink.over.wait(10)
            return
        if sink.mood == "drips":
            self._drip(sink.over)
            return
        got = Got(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
        status, headers = sink.answer(got)
        if status < 300:
            sink.got.append(got)
        sink.asked += 1
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"ok\n")

    def _drip(self, over: threading.Event) -> None:
        """Answer a byte at a time, never to the end."""
        self.close_connection = True
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
        while not over.wait(0.05):
            try:
                self.wfile.write(b"x")
                self.wfile.flush()
            except OSError:
                return

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""


class HttpSink(_Running):
    """`got` has what was answered with 2xx, `asked` counts all; `answer` returns status and headers for a request."""

    def __init__(self, certificate: ServerCertificate | None = None) -> None:
        self.got: list[Got] = []
        self.asked = 0
        self.mood: Mood = "well"
        self.answer: Callable[[Got], tuple[int, dict[str, str]]] = lambda _got: (200, {})
        server = ThreadingHTTPServer(("127.0.0.1", 0), _Request)
        server.daemon_threads = True
        if certificate is not None:
            server.socket = certificate.context().wrap_socket(server.socket, server_side=True)
        super().__init__(server)
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{self.port}"

    @property
    def bodies(self) -> list[bytes]:
        """What came, in order."""
        return [one.body for one in self.got]


class _Stream(socketserver.StreamRequestHandler):
    server: Any

    def handle(self) -> None:
        sink: SyslogSink = self.server.sink
        if sink.certificate is not None:
            try:
                self.request = sink.certificate.context().wrap_socket(self.request, server_side=True)
            except (ssl.SSLError, OSError):
                return
            self.rfile = self.request.makefile("rb")
        if sink.mood == "hangs up":
            self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            self.request.close()
            return
        if sink.mood == "silent":
            sink.over.wait(10)
            return
        while (size := self._size()) is not None:
            sink.got.append(self.rfile.read(size))
        if isinstance(self.request, ssl.SSLSocket):
            with contextlib.suppress(OSError), self.request.unwrap():
                pass

    def _size(self) -> int | None:
        """Read MSG-LEN and its space (RFC 6587, 3.4.1)."""
        digits = b""
        while (one := self.rfile.read(1)) not in {b" ", b""}:
            assert one.isdigit(), f"no length: {digits + one!r}"
            digits += one
        return int(digits) if one else None


class _Datagram(socketserver.BaseRequestHandler):
    server: Any

    def handle(self) -> None:
        self.server.sink.got.append(self.request[0])


class _Udp(socketserver.UDPServer):
    max_packet_size = 65_535


class _Tcp(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


class SyslogSink(_Running):
    """A syslog server; `got` has each message without its frame."""

    def __init__(self, kind: Literal["udp", "tcp", "tls"], certificate: ServerCertificate | None = None) -> None:
        self.got: list[bytes] = []
        self.mood: Mood = "well"
        self.certificate = certificate if kind == "tls" else None
        server: socketserver.BaseServer
        server = _Udp(("127.0.0.1", 0), _Datagram) if kind == "udp" else _Tcp(("127.0.0.1", 0), _Stream)
        super().__init__(server)
        self.address = f"{kind}://127.0.0.1:{self.port}"


def closed_port() -> int:
    """Return a port of this machine at which nothing listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
