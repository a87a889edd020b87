"""Connections to servers that people name: to checked addresses, over TLS, and with one time limit for all of a call.

Blocking. No proxies are used and no redirects are followed.
"""

from __future__ import annotations

import contextlib
import io
import socket
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from http.client import HTTPException, HTTPResponse
from typing import Any

from core.endpoints import DeliveryEndpoint, DeliveryFailed, Peer, resolve_peers, webhook_endpoint
from core.errors import Invalid
from core.language import _

MAX_RESPONSE_BYTES = 64 * 1024  # bytes; more is not read


def http_request(
    method: str, url: str, *, headers: Mapping[str, str], body: bytes = b"", ca: str = "", timeout: float
) -> tuple[int, bytes]:
    """Send a request and return status and body (64 KiB at most); raises Invalid for a wrong URL, DeliveryFailed."""
    endpoint = webhook_endpoint(url)
    deadline = time.monotonic() + timeout
    sent = {"Host": endpoint.authority, "User-Agent": "FalconWeb", "Connection": "close", **headers}
    if body:
        sent["Content-Length"] = str(len(body))
    head = "".join(f"{name}: {header_value(value)}\r\n" for name, value in sent.items())
    request = f"{method} {endpoint.path} HTTP/1.1\r\n{head}\r\n".encode("ascii") + body
    with open_connection(endpoint, deadline, ca, tls=endpoint.scheme == "https") as connection:
        connection.settimeout(seconds_left(deadline))
        connection.sendall(request)
        response = HTTPResponse(DeadlineReader(connection, deadline), method=method)  # type: ignore[arg-type]
        with contextlib.closing(response):
            response.begin()
            return response.status, response.read()


@contextlib.contextmanager
def open_connection(endpoint: DeliveryEndpoint, deadline: float, ca: str, *, tls: bool) -> Iterator[socket.socket]:
    """Connect to the first of a host's addresses that answers; errors inside become a DeliveryFailed."""
    context = tls_context(ca) if tls else None
    peers = resolve_peers(endpoint)
    with delivery_errors(endpoint), _connect_first(peers, deadline) as connection:
        if context is None:
            yield connection
            return
        connection.settimeout(seconds_left(deadline))
        with context.wrap_socket(connection, server_hostname=endpoint.host) as secured:
            yield secured


def _connect_first(peers: Sequence[Peer], deadline: float) -> socket.socket:
    for number, peer in enumerate(peers, 1):
        connection: socket.socket | None = None
        try:
            connection = socket.socket(peer.family, socket.SOCK_STREAM)  # of a family that this machine may not have
            # Each address has its share of the time, so that a silent one does not use all of it.
            connection.settimeout(seconds_left(deadline) / (len(peers) + 1 - number))
            connection.connect(peer.address)
        except OSError:
            if connection is not None:
                connection.close()
            if number == len(peers):
                raise
        else:
            return connection
    raise ConnectionError


def tls_context(ca: str) -> ssl.SSLContext:
    """Return a TLS context that trusts `ca` (PEM), for '' the system's CAs; raises Invalid."""
    try:
        context = ssl.create_default_context(cadata=ca or None)
    except (ssl.SSLError, ValueError) as error:
        sentence = _("The CA has no certificate in PEM form.")
        raise Invalid(sentence, errors={"ca": sentence}) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


@contextlib.contextmanager
def delivery_errors(endpoint: DeliveryEndpoint) -> Iterator[None]:
    """Convert errors of the connection into a DeliveryFailed with a sentence."""
    try:
        yield
    except TimeoutError as error:
        raise DeliveryFailed(_("{host} did not answer in time.", host=endpoint.name)) from error
    except ssl.SSLCertVerificationError as error:
        # The certificate may be renewed any time: not permanent.
        raise DeliveryFailed(
            _(
                "The certificate of {host} is not trusted: {why}. Give the CA that signed it.",
                host=endpoint.name,
                why=error.verify_message,
            )
        ) from error
    except ssl.SSLError as error:
        why = error.reason.lower() if error.reason else _("it broke off")
        raise DeliveryFailed(_("TLS with {host} failed: {why}.", host=endpoint.name, why=why)) from error
    except ConnectionRefusedError as error:
        raise DeliveryFailed(_("Nothing listens at {host}.", host=endpoint.name)) from error
    except (OSError, HTTPException) as error:
        why = getattr(error, "strerror", None) or _("the connection broke off")
        raise DeliveryFailed(
            _("{host} cannot be reached, or broke off: {why}.", host=endpoint.name, why=why)
        ) from error


class DeadlineReader(io.RawIOBase):
    """Reads from a connection until a deadline, however slowly the data arrives, and up to MAX_RESPONSE_BYTES."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection, self._deadline, self._room = connection, deadline, MAX_RESPONSE_BYTES

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return this as a file, as HTTPResponse requires of a socket."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def shorten_deadline(self, seconds: float) -> None:
        self._deadline = min(self._deadline, time.monotonic() + seconds)

    def readinto(self, buffer: Any) -> int:
        if self._room <= 0:
            return 0
        self._connection.settimeout(seconds_left(self._deadline))
        size = self._connection.recv_into(buffer)
        self._room -= size
        return size


def seconds_left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def header_value(value: str) -> str:
    """Return a header's value; raises Invalid for characters that could inject another header."""
    if not value.isascii() or not value.isprintable():
        raise Invalid("A header of the request has invalid characters.")
    return value
