"""Addresses of receivers: parsed, resolved, and refused where they are link-local or of metadata services.

The sender itself resolves a name and connects to the checked address, so that a second lookup with another result (DNS
rebinding) cannot redirect it.
"""

from __future__ import annotations

import email.utils
import ipaddress
import math
import socket
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import SplitResult, quote, urlsplit

from core.addresses import refusal
from core.errors import FalconWebError, Invalid
from core.language import _, gettext_noop

MAX_ADDRESS_LENGTH = 2000
SYSLOG_PORTS = {"udp": 514, "tcp": 601, "tls": 6514}  # RFC 5426, RFC 6587, RFC 5425
HTTP_PORTS = {"http": 80, "https": 443}
LDAP_PORTS = {"ldap": 389, "ldaps": 636}
LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})


class DeliveryFailed(FalconWebError):
    """A delivery was not confirmed.

    `permanent` is whether the same request would fail again; `retry_after` (s) is the wait requested by the receiver.
    """

    status: ClassVar[int] = 502
    code: ClassVar[str] = "delivery_failed"
    retry_helps: ClassVar[bool] = True

    def __init__(self, sentence: str, *, permanent: bool = False, retry_after: float | None = None) -> None:
        super().__init__(sentence)
        self.permanent = permanent
        self.retry_after = retry_after


@dataclass(frozen=True)
class DeliveryEndpoint:
    """A checked address: `path` is that of the HTTP request, '' for syslog."""

    scheme: str
    host: str
    port: int
    path: str = ""

    @property
    def name(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether nothing that is sent there leaves this machine."""
        return self.host in LOOPBACK_HOSTS

    @property
    def authority(self) -> str:
        """The value of the Host header: without the default port."""
        return self.name.rpartition(":")[0] if self.port == HTTP_PORTS.get(self.scheme) else self.name


@dataclass(frozen=True)
class Peer:
    """One resolved address, in the form of `socket`."""

    family: socket.AddressFamily
    address: Any


def webhook_endpoint(url: str) -> DeliveryEndpoint:
    """Return the endpoint of a webhook's URL; raises Invalid for a wrong scheme, credentials, host or port."""
    parts = _split(url, gettext_noop("http:// or https://"), HTTP_PORTS)
    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._")
    query = quote(parts.query, safe="/?%:@!$&'()*+,;=~-._[]|")
    return _endpoint(parts, HTTP_PORTS, f"{path}?{query}" if query else path)


def syslog_endpoint(address: str) -> DeliveryEndpoint:
    """Return the endpoint of `udp://host:port`, `tcp://host:port` or `tls://host:port`; raises Invalid."""
    parts = _split(address, gettext_noop("udp://, tcp:// or tls://"), SYSLOG_PORTS)
    if parts.path not in {"", "/"} or parts.query:
        raise _invalid_address(_("The address of a syslog server ends after its port: tls://host:6514."))
    return _endpoint(parts, SYSLOG_PORTS, "")


def ldap_endpoint(address: str) -> DeliveryEndpoint:
    """Return the endpoint of `ldap://host:port` or `ldaps://host:port`; raises Invalid."""
    parts = _split(address, gettext_noop("ldap:// or ldaps://"), LDAP_PORTS)
    if parts.path not in {"", "/"} or parts.query:
        raise _invalid_address(_("The address of a directory ends after its port: ldaps://host:636."))
    return _endpoint(parts, LDAP_PORTS, "")


def resolve_peers(endpoint: DeliveryEndpoint) -> list[Peer]:
    """Resolve a host and return the allowed addresses, in the system's order.

    Raises DeliveryFailed where the name is not known, and, permanently, where all of its addresses are refused:
    link-local ones, those of cloud metadata services, multicast, and the unspecified address (0.0.0.0).
    """
    kind = socket.SOCK_DGRAM if endpoint.scheme == "udp" else socket.SOCK_STREAM
    try:
        found = socket.getaddrinfo(endpoint.host, endpoint.port, type=kind)
    except (OSError, UnicodeError) as error:
        raise DeliveryFailed(
            _("The name {host} is not known to this machine's name service.", host=endpoint.host)
        ) from error
    refused = ""
    peers = []
    for family, _kind, _protocol, _name, address in found:
        if why := refusal(str(address[0])):
            refused = _(why.message, number=why.number)
        else:
            peers.append(Peer(family, address))
    if not peers:
        raise DeliveryFailed(refused or _("{host} has no address.", host=endpoint.host), permanent=True)
    return peers


def _split(url: str, schemes: str, ports: dict[str, int]) -> SplitResult:
    if len(url) > MAX_ADDRESS_LENGTH:
        raise _invalid_address(_("An address has at most {count} characters.", count=MAX_ADDRESS_LENGTH))
    if any(letter.isspace() or not letter.isprintable() for letter in url):
        raise _invalid_address(_("The address contains a space or a control character."))
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises for an invalid port
    except ValueError as error:
        raise _invalid_address(_("This is not a valid address: give one such as https://host/path.")) from error
    if parts.scheme not in ports or not url.lower().startswith(f"{parts.scheme}://"):
        raise _invalid_address(_("The address begins with {schemes}.", schemes=_(schemes)))
    if "@" in parts.netloc:
        raise _invalid_address(_("Leave name and password out of the address: it is shown and logged."))
    if parts.fragment or "\\" in url:
        raise _invalid_address(_("The address has a part that is not sent: leave out '#' and '\\'."))
    return parts


def _endpoint(parts: SplitResult, ports: dict[str, int], path: str) -> DeliveryEndpoint:
    host = parts.hostname or ""
    try:
        plain = host if ":" in host else host.encode("idna").decode()
    except UnicodeError as error:
        raise _invalid_address(_("'{host}' is not a valid host name.", host=host[:60])) from error
    if not plain:
        raise _invalid_address(_("The address has no host."))
    number = parts.port if parts.port is not None else ports[parts.scheme]
    if number == 0:
        raise _invalid_address(_("Port 0 is not a valid destination."))
    if sentence := host_refusal_reason(plain):
        raise _invalid_address(sentence)
    return DeliveryEndpoint(parts.scheme, plain, number, path)


def _invalid_address(sentence: str) -> Invalid:
    return Invalid(sentence, errors={"address": sentence})


def host_refusal_reason(host: str) -> str:
    """Return why a host that is written as an address is refused; '' for an allowed one and for a name."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return ""
    found = refusal(host)
    return _(found.message, number=found.number) if found else ""


def retry_after_seconds(header: str | None, now: float, *, most: float = 3600.0) -> float | None:
    """Return the seconds of a Retry-After header (RFC 9110: seconds or a date), at most `most`; None without one."""
    text = (header or "").strip()
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), most)
    try:
        wait = email.utils.parsedate_to_datetime(text).timestamp() - now
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(wait, 0.0), most) if math.isfinite(wait) else None
