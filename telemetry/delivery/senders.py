"""Senders of webhooks (HTTP POST, signed) and of syslog over UDP, TCP and TLS. Blocking; each call has one time limit.

A call returns when the receiver has confirmed the data, as far as its protocol does, and raises DeliveryFailed
otherwise. Nothing is retried here, no proxies are used, and no redirects are followed.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import hmac
import socket
import ssl
import struct
import time
import uuid
from collections.abc import Sequence
from fcntl import ioctl
from http.client import HTTPException, HTTPResponse

from core.connections import DeadlineReader, delivery_errors, header_value, open_connection, seconds_left
from core.endpoints import (
    DeliveryEndpoint,
    DeliveryFailed,
    resolve_peers,
    retry_after_seconds,
    syslog_endpoint,
    webhook_endpoint,
)

TIMEOUT_SECONDS = 15.0
MAX_DATAGRAM_BYTES = 65_507  # bytes (RFC 5426)
# HTTP statuses of 4xx after which the same request may succeed: too slow, too early, too often.
RETRYABLE_STATUSES = frozenset({408, 425, 429})
SIOCOUTQ = 0x5411  # Linux: bytes that the peer's kernel has not acknowledged yet


def send_webhook(
    *,
    url: str,
    body: bytes,
    content_type: str,
    secret: str = "",
    message_id: str = "",
    ca: str = "",
    encoding: str = "",
    timeout: float = TIMEOUT_SECONDS,
) -> None:
    """POST `body` to a URL; returns after a 2xx response within `timeout` s.

    `message_id` distinguishes a repeat from a new message (generated where missing); with `secret` the request is
    signed according to Standard Webhooks 1.0 (see `webhook_signature`). `ca` (PEM) replaces the system's trust.
    `encoding` is the Content-Encoding of `body`. Raises Invalid for a wrong URL or CA, DeliveryFailed for everything
    else: permanent for 3xx and for 4xx except 408, 425 and 429.
    """
    endpoint = webhook_endpoint(url)
    identity, stamp = message_id or f"msg_{uuid.uuid4().hex}", int(time.time())
    headers = {
        "Host": endpoint.authority,
        "User-Agent": "FalconWeb",
        "Content-Type": content_type,
        "Content-Length": str(len(body)),
        "Connection": "close",
        "webhook-id": identity,
        "webhook-timestamp": str(stamp),
    }
    if encoding:
        headers["Content-Encoding"] = encoding
    if secret:
        headers["webhook-signature"] = webhook_signature(secret, message_id=identity, timestamp=stamp, body=body)
    head = "".join(f"{name}: {header_value(value)}\r\n" for name, value in headers.items())
    request = f"POST {endpoint.path} HTTP/1.1\r\n{head}\r\n".encode("ascii") + body
    deadline = time.monotonic() + timeout
    with open_connection(endpoint, deadline, ca, tls=endpoint.scheme == "https") as connection:
        try:
            connection.settimeout(seconds_left(deadline))
            connection.sendall(request)
        except (BrokenPipeError, ConnectionResetError):
            pass  # a receiver that refuses a large body responds before it has read all of it
        status, reason, retry_after = _read_response(connection, deadline)
    if 200 <= status < 300:
        return
    words = f"{endpoint.name} answered {status}{f' {reason}' if reason else ''}."
    if 300 <= status < 400:
        raise DeliveryFailed(f"{words} It redirects to another address: enter that one.", permanent=True)
    permanent = 400 <= status < 500 and status not in RETRYABLE_STATUSES
    raise DeliveryFailed(words, permanent=permanent, retry_after=None if permanent else retry_after)


def webhook_signature(secret: str, *, message_id: str, timestamp: int, body: bytes) -> str:
    """Return 'v1,' and the base64 HMAC-SHA256 of 'id.timestamp.body'; the key is the secret's text.

    For a secret such as 'whsec_MfKQ...' the key is the base64-decoded rest, according to Standard Webhooks 1.0.
    """
    key = secret.encode()
    if secret.startswith("whsec_"):
        with contextlib.suppress(binascii.Error, ValueError):
            key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    signed = f"{message_id}.{timestamp}.".encode() + body
    return f"v1,{base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()}"


def send_syslog(*, address: str, messages: Sequence[bytes], ca: str = "", timeout: float = TIMEOUT_SECONDS) -> None:
    """Send messages of RFC 5424, in order; `address` is udp://, tcp:// or tls:// with host and port.

    Streams are framed by octet counting (RFC 6587, RFC 5425); TLS trusts `ca` (PEM) or the system. On streams it
    returns when the receiver has closed the connection, or its kernel has acknowledged every byte. Datagrams are not
    confirmed: only a closed port is detected, if its host reports it. Raises Invalid and DeliveryFailed.
    """
    endpoint = syslog_endpoint(address)
    deadline = time.monotonic() + timeout
    if endpoint.scheme == "udp":
        _send_datagrams(endpoint, messages, deadline)
        return
    framed = b"".join(b"%d %s" % (len(one), one) for one in messages)
    with open_connection(endpoint, deadline, ca, tls=endpoint.scheme == "tls") as connection:
        connection.settimeout(seconds_left(deadline))
        connection.sendall(framed)
        _finish_stream(endpoint, connection, deadline)


def _send_datagrams(endpoint: DeliveryEndpoint, messages: Sequence[bytes], deadline: float) -> None:
    peer = resolve_peers(endpoint)[0]
    with delivery_errors(endpoint), socket.socket(peer.family, socket.SOCK_DGRAM) as connection:
        connection.settimeout(seconds_left(deadline))
        connection.connect(peer.address)
        for one in messages:
            connection.send(one[:MAX_DATAGRAM_BYTES])
        # A closed port is reported at the next call on the socket.
        connection.settimeout(0.02)
        with contextlib.suppress(TimeoutError):
            connection.recv(1)


def _finish_stream(endpoint: DeliveryEndpoint, connection: socket.socket, deadline: float) -> None:
    """Close the sending side, and wait until everything is acknowledged."""
    if isinstance(connection, ssl.SSLSocket):
        # The receiver answers close_notify with its own (RFC 5425, 4.4), after all data; some just close.
        connection.settimeout(seconds_left(deadline))
        with contextlib.suppress(ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError):
            connection.unwrap()
        return
    connection.shutdown(socket.SHUT_WR)
    # Most receivers close after reading everything; for others, the kernel has acknowledged the data at least.
    connection.settimeout(min(2.0, seconds_left(deadline)))
    with contextlib.suppress(TimeoutError):
        while connection.recv(4096):
            pass
        return
    while _unacknowledged_bytes(connection):
        if time.monotonic() > deadline:
            raise DeliveryFailed(f"{endpoint.name} did not accept everything in time.")
        time.sleep(0.05)


def _unacknowledged_bytes(connection: socket.socket) -> int:
    try:
        (size,) = struct.unpack("i", ioctl(connection.fileno(), SIOCOUTQ, b"\0\0\0\0"))
    except OSError:  # not supported by the system
        return 0
    return int(size)


def _read_response(connection: socket.socket, deadline: float) -> tuple[int, str, float | None]:
    """Return status, reason and the seconds of Retry-After; the rest of the response is read and discarded."""
    reader = DeadlineReader(connection, deadline)
    response = HTTPResponse(reader, method="POST")  # type: ignore[arg-type]  # needs `makefile` alone
    try:
        response.begin()
        reason = "".join(letter for letter in response.reason[:60] if letter.isprintable())
        # Closing before the end of the response would look like an error to the receiver.
        reader.shorten_deadline(1.0)
        with contextlib.suppress(OSError, HTTPException):
            response.read()
        return response.status, reason, retry_after_seconds(response.getheader("Retry-After"), time.time())
    finally:
        response.close()
