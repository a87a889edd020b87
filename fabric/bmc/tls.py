"""How a BMC's certificate is checked, decided once for each address and never switched off."""

from __future__ import annotations

import asyncio
import hashlib
import re
import ssl
from weakref import WeakValueDictionary

import aiohttp

from fabric.bmc.errors import WrongAddress
from fabric.bmc.types import Trust

# A context holds all CAs of the system, 1.5 MB: clients that trust the same share one for as long as any of them lives.
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
    """Return a digest as people compare it: upper-case hex pairs with colons."""
    return digest.hex(":").upper()


def client_tls(trust: Trust) -> ssl.SSLContext | aiohttp.Fingerprint:
    """Return what aiohttp's `ssl` argument needs for this trust.

    A pin replaces chain and host name checks: it names one certificate exactly. A CA replaces the system's. The
    environment (REQUESTS_CA_BUNDLE, SSL_CERT_FILE of other tools) has no say where a CA or pin is given.
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


async def read_fingerprint(host: str, port: int, *, timeout: float = 5.0) -> str:
    """Return the SHA-256 fingerprint of the certificate that a server shows, for people to compare.

    Nothing but the handshake is sent, so nothing is trusted by it. Raises OSError or TimeoutError where none is shown.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    async with asyncio.timeout(timeout):
        _reader, writer = await asyncio.open_connection(host, port, ssl=context)
        try:
            connection: ssl.SSLObject = writer.get_extra_info("ssl_object")
            certificate = connection.getpeercert(binary_form=True)
        finally:
            writer.close()
    if certificate is None:
        raise ConnectionError("the server showed no certificate")
    return format_fingerprint(hashlib.sha256(certificate).digest())
