"""Network addresses that this site never connects to, whatever name leads there: link-local and metadata services."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
# Translators carry an IPv4 address in the last four bytes (RFC 6052, RFC 8215, RFC 2765).
TRANSLATION_NETWORKS = tuple(map(ipaddress.ip_network, ("64:ff9b::/96", "64:ff9b:1::/48", "::ffff:0:0:0/96")))
# Addresses at which clouds serve credentials of the machine, besides 169.254.169.254.
METADATA_ADDRESSES = frozenset(
    ipaddress.ip_address(number)
    for number in (
        "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "100.100.100.200", "168.63.129.16", "192.0.0.192",
    )
)  # fmt: skip


@dataclass(frozen=True)
class Refusal:
    """Why a number is refused: a message with its place, for `make texts` too, since Django is not imported here."""

    message: str
    number: str


def refusal(number: str) -> Refusal | None:
    """Return why an address such as '169.254.169.254' is refused; None where it is allowed."""
    try:
        address: Address = ipaddress.ip_address(number.partition("%")[0])
    except ValueError:
        return Refusal("{number} is not a network address.", number[:60])
    for one in _embedded_addresses(address):
        if one.is_link_local:
            return Refusal("{number} is a link-local address. Nothing is sent there.", number)
        if one in METADATA_ADDRESSES:
            return Refusal(
                "{number} is a cloud metadata service with credentials of this machine. Nothing is sent there.", number
            )
        if one.is_unspecified or one.is_multicast or one == ipaddress.ip_address("255.255.255.255"):
            return Refusal("{number} is not the address of a single machine.", number)
    return None


def refusal_reason(number: str) -> str:
    """Return why an address is refused, in English; '' where it is allowed."""
    found = refusal(number)
    return found.message.format(number=found.number) if found else ""


def _embedded_addresses(address: Address) -> list[Address]:
    """Return an address, and the IPv4 addresses embedded in it."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    inside: list[Address | None] = [address, address.ipv4_mapped, address.sixtofour]
    if address.teredo is not None:
        inside.extend(address.teredo)
    if any(address in network for network in TRANSLATION_NETWORKS):
        inside.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    if int(address) >> 32 == 0 and int(address) > 1:  # IPv4-compatible, long out of use
        inside.append(ipaddress.IPv4Address(int(address)))
    return [one for one in inside if one is not None]
