"""What a token may do, and whether one is within another: pure functions over their values."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

from core.language import _

WRITE = "write"
# From less to more; 'metrics' opens /metrics alone, which the others open too.
SCOPE_ORDER = ("metrics", "read", WRITE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRights:
    """The rights of a token: at most `scope`; in `scopes` of areas only, from `addresses` only, unless empty."""

    scope: str
    scopes: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()


def covers(scopes: Collection[str], area: str, action: str) -> bool:
    """Return whether scopes such as 'fabric:read' include an action in an area; 'write' includes 'read'.

    Without scopes everything is included, with any nothing that has no area.
    """
    return not scopes or bool(area and ({f"{area}:{action}", f"{area}:{WRITE}"} & set(scopes)))


def is_admitted(addresses: Collection[str], address: IPv4Address | IPv6Address | None) -> bool:
    """Return whether a token for some networks may be used from an address; an unknown one is in no network."""
    return not addresses or (address is not None and any(address in ip_network(one) for one in addresses))


def rights_within(wanted: TokenRights, limit: TokenRights | None) -> tuple[TokenRights, dict[str, str]]:
    """Return the rights of a token that another one makes, and what exceeds the other's, by field.

    Areas and addresses that are left out are those of the other.
    """
    if limit is None:
        return wanted, {}
    scopes, addresses = wanted.scopes or limit.scopes, wanted.addresses or limit.addresses
    errors: dict[str, str] = {}
    if SCOPE_ORDER.index(wanted.scope) > SCOPE_ORDER.index(limit.scope):
        errors["scope"] = _("The token that makes this one may do less. Choose at most what it may do.")
    if not wanted.scopes and wanted.scope != WRITE:
        scopes = tuple(sorted({f"{one.partition(':')[0]}:read" for one in scopes}))
    if not all(covers(limit.scopes, *one.split(":")) for one in scopes):
        errors["scopes"] = _("The token that makes this one has fewer areas. Choose among its own.")
    if limit.addresses and not all(_is_inside(one, limit.addresses) for one in addresses):
        errors["addresses"] = _("The token that makes this one is for fewer addresses. Choose among its own.")
    return TokenRights(scope=wanted.scope, scopes=scopes, addresses=addresses), errors


def _is_inside(text: str, networks: Collection[str]) -> bool:
    inner = ip_network(text)
    return any(_contains(ip_network(one), inner) for one in networks)


def _contains(outer: IPv4Network | IPv6Network, inner: IPv4Network | IPv6Network) -> bool:
    return outer.version == inner.version and inner.subnet_of(outer)  # type: ignore[arg-type]  # of the same version
