"""One HTTP exchange with a BMC: origin, TLS trust, timeouts, size, redirects, and error messages."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import aiohttp
import msgspec
from aiohttp.connector import AddrInfoType
from cryptography import x509
from yarl import URL

from core.addresses import refusal_reason
from fabric.bmc.addresses import CertificateTrust
from fabric.bmc.errors import (
    BmcError,
    CertificateRejected,
    ForeignLink,
    Malformed,
    NotRedfish,
    TimedOut,
    Unreachable,
    WrongAddress,
)
from fabric.bmc.json_bounds import count_values
from fabric.bmc.kept_connection import KeptConnection, RawResponse

MAX_CONNECTIONS = 4
MAX_RESPONSE_BYTES = 32 * 2**20
# Of larger responses, so many are received at a time by all clients of an event loop: the others wait.
LARGE_RESPONSE_BYTES = 2**20
MAX_LARGE_RESPONSES = 4
MAX_REDIRECTS = 5
CONNECT_SECONDS = 5.0
LINKS_REMEMBERED = 16
USER_AGENT = "FalconWeb"


def parse_origin(url: str) -> URL:
    """Return scheme, host and port of a typed address; a path is dropped. Raises WrongAddress."""
    try:
        parsed = URL(url.strip())
        good = parsed.scheme in {"http", "https"} and bool(parsed.host) and parsed.port is not None
    except ValueError:
        good, parsed = False, URL()
    if not good:
        raise WrongAddress("The address is not a URL such as https://10.0.0.5 or https://bmc.example:8443.")
    if parsed.user or parsed.password:
        raise WrongAddress("The address carries a user or password; these are given apart from it.")
    return parsed.origin()


class Transport:
    """A pool of at most four connections to one origin, over which at most four requests run concurrently.

    A redirect is followed only within the origin, proxies and cookies of the environment are ignored, and a response
    larger than `MAX_RESPONSE_BYTES` bytes (after decompression) is refused.
    """

    def __init__(self, url: str, trust: CertificateTrust, *, timeout: float) -> None:
        self.origin = parse_origin(url)
        self.host = self.origin.host or ""
        self._trust = trust
        self._tls = client_tls(trust) if self.origin.scheme == "https" else True
        self._timeout = timeout
        # The same few links are requested each second.
        self.locate = lru_cache(LINKS_REMEMBERED)(self._locate)
        self._session: aiohttp.ClientSession | None = None
        self._kept: KeptConnection | None = None
        self._refusal = ""  # why the last connection was not tried

    def open(self) -> None:
        """Create the pool; to be called on the loop that will use it."""
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=MAX_CONNECTIONS, ssl=self._tls, ttl_dns_cache=60, socket_factory=self._allowed_socket
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": USER_AGENT, "OData-Version": "4.0", "Accept": "application/json"},
                trust_env=False,
                raise_for_status=False,
            )
            self._kept = KeptConnection(self._session, LARGE_RESPONSE_BYTES)

    async def close(self) -> None:
        """Close every connection."""
        if self._kept is not None:
            self._kept.close()
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _locate(self, uri: str, base: URL | None = None) -> URL:
        """Return the absolute URL of a link; raises ForeignLink if it leaves the origin, Malformed if it is invalid."""
        try:
            target = (base or self.origin / "").join(URL(uri.split("#", 1)[0]))
            inside = target.origin() == self.origin
        except ValueError as error:
            raise Malformed(f"{self.host} has a link that is not a URI.") from error
        if not inside:
            raise ForeignLink(f"{self.host} has a link to another address ({target.host}); it was not followed.")
        return target

    async def send(
        self,
        method: str,
        uri: str,
        *,
        headers: Mapping[str, str],
        content: bytes | aiohttp.Payload | None = None,
        timeout: float | None = None,
    ) -> RawResponse:
        """Send one request and return the whole response, whatever its status. Raises the transport errors of BmcError.

        A GET is sent once more if a kept-alive connection turns out to be closed; a write is never repeated.
        """
        url = self.locate(uri)
        attempts = 2 if method in {"GET", "HEAD"} else 1
        limit = _timeout(timeout or self._timeout)
        for attempt in range(1, attempts + 1):
            try:
                return await self._follow(method, url, headers, content, limit)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
                if attempt == attempts or isinstance(error, aiohttp.ClientConnectorError):
                    raise await self._explain(error) from error
            except (aiohttp.ClientError, TimeoutError, ssl.SSLError, ValueError) as error:
                raise await self._explain(error) from error
        raise AssertionError("every attempt returns or raises")

    async def send_again(self, uri: str, *, headers: Mapping[str, str]) -> RawResponse:
        """Return the response to one of many GETs, as `send` does: they have a connection of their own."""
        try:
            answer = await self._kept.get(self.locate(uri), headers, _timeout(self._timeout)) if self._kept else None
        except (aiohttp.ClientError, TimeoutError, ssl.SSLError, ValueError) as error:
            raise await self._explain(error) from error
        return answer or await self.send("GET", uri, headers=headers)

    async def _follow(
        self,
        method: str,
        url: URL,
        headers: Mapping[str, str],
        content: bytes | aiohttp.Payload | None,
        limit: aiohttp.ClientTimeout,
    ) -> RawResponse:
        for _hop in range(MAX_REDIRECTS + 1):
            async with self._pool.request(
                method, url, headers=headers, data=content, timeout=limit, allow_redirects=False
            ) as response:
                where = response.headers.get("Location")
                if response.status in {301, 302, 303, 307, 308} and where and method in {"GET", "HEAD"}:
                    url = self.locate(where, url)
                    continue
                return RawResponse(response.status, response.headers, await self._read(response))
        raise Malformed(f"{self.host} redirects in a circle.")

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        chunks: list[bytes] = []
        size = 0
        async for chunk in response.content.iter_any():
            size += len(chunk)
            chunks.append(chunk)
            if size > LARGE_RESPONSE_BYTES:
                async with _large_responses():
                    await self._read_rest(response, chunks, size)
                break
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def _read_rest(self, response: aiohttp.ClientResponse, chunks: list[bytes], size: int) -> None:
        while size <= MAX_RESPONSE_BYTES:
            chunk = await response.content.readany()
            if not chunk:
                return
            size += len(chunk)
            chunks.append(chunk)
        raise Malformed(f"{self.host} sent an answer larger than {MAX_RESPONSE_BYTES >> 20} MB; reading was aborted.")

    @asynccontextmanager
    async def stream(
        self, uri: str, *, headers: Mapping[str, str], silence: float
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Open a response that does not end; raises TimedOut after `silence` seconds (s) without a byte."""
        limit = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=silence)
        try:
            async with self._pool.get(
                self.locate(uri), headers=headers, timeout=limit, allow_redirects=False
            ) as response:
                yield response
        except (aiohttp.ClientError, TimeoutError, ssl.SSLError) as error:
            raise await self._explain(error) from error

    def _allowed_socket(self, address: AddrInfoType) -> socket.socket:
        """Return a socket for a resolved address; raises OSError for one that the site never connects to."""
        family, kind, protocol, _, place = address
        if reason := refusal_reason(str(place[0])):
            self._refusal = reason
            raise OSError(reason)
        return socket.socket(family, kind, protocol)

    @property
    def _pool(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("the client is not started")
        return self._session

    async def _explain(self, error: Exception) -> BmcError:
        """Return the error for an exception, with one sentence on its cause."""
        if isinstance(error, aiohttp.ServerFingerprintMismatch):
            expected, found = format_fingerprint(error.expected), format_fingerprint(error.got)
            return CertificateRejected(
                f"{self.host} showed another certificate than the pinned one: expected {expected}, found {found}.",
                expected=expected,
                found=found,
            )
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            return await self._untrusted(error.certificate_error)
        if isinstance(error, aiohttp.ClientSSLError):
            return Unreachable(f"{self.host} does not answer with TLS at port {self.origin.port}.")
        if isinstance(error, TimeoutError):
            return TimedOut(f"{self.host} did not answer in time.")
        if isinstance(error, aiohttp.ClientConnectorDNSError):
            return Unreachable(f"The name {self.host} is not known.")
        if isinstance(error, aiohttp.ClientConnectorError):
            # The event loop's message repeats the address.
            reason = os.strerror(error.os_error.errno) if error.os_error.errno else "no connection"
            refusal, self._refusal = self._refusal, ""
            return Unreachable(refusal or f"{self.host} does not answer at port {self.origin.port}: {reason}.")
        if isinstance(error, aiohttp.ClientResponseError):
            return NotRedfish(f"{self.host} answers at port {self.origin.port} with something that is not HTTP.")
        tls = " If it uses TLS, use https://." if self.origin.scheme == "http" else ""
        return Unreachable(f"{self.host} broke the connection before its answer was complete.{tls}")

    async def _untrusted(self, reason: Exception) -> CertificateRejected:
        try:
            shown = await read_certificate(self.host, self.origin.port or 443, timeout=CONNECT_SECONDS)
        except (OSError, TimeoutError):
            shown = b""
        found = fingerprint_of(shown) if shown else ""
        its = f" Its SHA-256 fingerprint is {found}." if found else ""
        # Whatever else is wrong with it: a new certificate is needed first.
        if end := expiry_of(shown):
            sentence = f"The certificate of {self.host} expired on {end:%Y-%m-%d}.{its}"
            return CertificateRejected(sentence, found=found, expired_on=end.date().isoformat())
        whose = "the given CA" if self._trust.ca_pem else "this system's CAs"
        detail = getattr(reason, "verify_message", "") or "it cannot be verified"
        return CertificateRejected(
            f"The certificate of {self.host} is not trusted by {whose}: {detail}.{its}", found=found
        )


@lru_cache(16)
def _timeout(seconds: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=seconds, sock_connect=min(CONNECT_SECONDS, seconds))


_places: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


def _large_responses() -> asyncio.Semaphore:
    """Return the places for large responses of this event loop."""
    return _places.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(MAX_LARGE_RESPONSES))


# A context holds all CAs of the system, 1.5 MB: clients with the same trust share one while any of them exists.
_contexts: WeakValueDictionary[str, ssl.SSLContext] = WeakValueDictionary()


def parse_fingerprint(text: str) -> bytes:
    """Return the 32 bytes of a SHA-256 fingerprint in hex, colons, spaces and a 'sha256:' prefix allowed.

    Raises WrongAddress for anything else, so that a typing mistake never weakens the check.
    """
    digits = re.sub(r"[\s:-]", "", re.sub(r"^\s*sha-?256\s*[:=/]?", "", text, flags=re.IGNORECASE))
    if not re.fullmatch(r"[0-9A-Fa-f]{64}", digits):
        raise WrongAddress("The fingerprint is not a SHA-256 fingerprint: 64 hexadecimal digits are needed.")
    return bytes.fromhex(digits)


def format_fingerprint(digest: bytes) -> str:
    """Return a digest in the form for comparison: upper-case hex pairs with colons."""
    return digest.hex(":").upper()


def client_tls(trust: CertificateTrust) -> ssl.SSLContext | aiohttp.Fingerprint:
    """Return aiohttp's `ssl` argument for this trust.

    A pin replaces chain and host name checks: it names one certificate exactly. A CA replaces the system's. The
    environment (REQUESTS_CA_BUNDLE, SSL_CERT_FILE of other tools) is ignored where a CA or pin is given.
    """
    if trust.fingerprint:
        return aiohttp.Fingerprint(parse_fingerprint(trust.fingerprint))
    context = _contexts.get(trust.ca_pem)
    if context is None:
        try:
            context = ssl.create_default_context(cadata=trust.ca_pem or None)
        except (ssl.SSLError, ValueError) as error:
            raise WrongAddress("The CA file holds no certificate in PEM form.") from error
        _contexts[trust.ca_pem] = context
    return context


async def read_certificate(host: str, port: int, *, timeout: float = 5.0) -> bytes:
    """Return a server's certificate (DER), for users to compare its fingerprint.

    Only the handshake takes place, so nothing depends on its trust. Raises OSError or TimeoutError where there is none.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    async with asyncio.timeout(timeout):
        _reader, writer = await asyncio.open_connection(host, port, ssl=context)
        try:
            if reason := refusal_reason(str(writer.get_extra_info("peername")[0])):
                raise ConnectionError(reason)
            connection: ssl.SSLObject = writer.get_extra_info("ssl_object")
            certificate = connection.getpeercert(binary_form=True)
        finally:
            writer.close()
    if certificate is None:
        raise ConnectionError("the server showed no certificate")
    return certificate


def fingerprint_of(certificate: bytes) -> str:
    """Return the SHA-256 fingerprint of a certificate (DER)."""
    return format_fingerprint(hashlib.sha256(certificate).digest())


def expiry_of(certificate: bytes) -> datetime | None:
    """Return when a certificate (DER) expired; None where it has not, or cannot be read."""
    try:
        end = x509.load_der_x509_certificate(certificate).not_valid_after_utc
    except ValueError:
        return None
    return end if end < datetime.now(UTC) else None


MAX_SENTENCE_LENGTH = 500


class BmcResponse(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP response with a JSON object as its body ({} where it had none).

    `digest` is that of the body's bytes, the same in this process for the same bytes; `size` is their number, and
    `values` that of the values and names in them.
    """

    status: int
    headers: Mapping[str, str]
    body: dict[str, Any]
    etag: str = ""
    digest: int = 0
    size: int = 0
    values: int = 0


def parse_json_object(raw: bytes, *, where: str) -> dict[str, Any]:
    """Return the JSON object in `raw`, {} for an empty body; raises Malformed, which names `where`."""
    return parse_counted(raw, where=where)[0]


def parse_counted(raw: bytes, *, where: str) -> tuple[dict[str, Any], int]:
    """Return the JSON object in `raw`, {} for an empty body, and how many values it has; raises Malformed."""
    if not raw.strip():
        return {}, 0
    values = count_values(raw, where=where)
    try:
        decoded = msgspec.json.decode(raw.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"{where} answered with something that is not JSON.") from error
    if not isinstance(decoded, dict):
        raise Malformed(f"{where} answered with JSON that is not an object.")
    return decoded, values


def etag_of(headers: Mapping[str, str], body: Mapping[str, Any]) -> str:
    """Return the ETag of the header, else the one inside the body, else ''."""
    header = headers.get("ETag", "")
    inside = body.get("@odata.etag")
    return header or (inside if isinstance(inside, str) else "")


def error_sentence(body: Mapping[str, Any]) -> str:
    """Return the message of an error body (Base extended error), on one line and of bounded length."""
    error = body.get("error")
    source = error if isinstance(error, dict) else body
    entries = source.get("@Message.ExtendedInfo")
    messages = (
        [entry.get("Message") for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    )
    texts = [message for message in messages if isinstance(message, str) and message.strip()]
    if not texts and isinstance(source.get("message"), str):
        texts = [source["message"]]
    return one_line(" ".join(dict.fromkeys(texts)))


def one_line(text: str) -> str:
    """Return text of a BMC without control characters and cut to a readable length."""
    flat = re.sub(r"[\x00-\x20\x7f-\x9f]+", " ", text).strip()
    return flat if len(flat) <= MAX_SENTENCE_LENGTH else flat[: MAX_SENTENCE_LENGTH - 1] + "…"
