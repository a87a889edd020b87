"""From where somebody signs in, as far as it can be believed: wrong passwords are counted by it."""

from __future__ import annotations

import ipaddress

from django.conf import settings
from django.http import HttpRequest

NETWORK_BITS = 64  # what one subscriber gets of IPv6


def client_address(request: HttpRequest) -> str:
    """Return the address of the client; of an IPv6 one the network, all of which its owner may use.

    Each trusted proxy adds the address that it saw at the end of X-Forwarded-For. What stands before these, and the
    whole header where no proxy is trusted, was written by whoever asks and is not looked at.
    """
    seen: str = request.META.get("REMOTE_ADDR", "")
    proxies: int = settings.CONFIG.trusted_proxies
    forwarded = [part.strip() for part in request.META.get("HTTP_X_FORWARDED_FOR", "").split(",")]
    if 0 < proxies <= len(forwarded):
        seen = _readable(forwarded[-proxies]) or seen
    return _readable(seen)


def _readable(text: str) -> str:
    """Return an address in its one spelling, '' for what is none."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address), NETWORK_BITS), strict=False).network_address)
