"""Where a BMC is, how one signs in there, and how its certificate is checked."""

from __future__ import annotations

from typing import Any

import msgspec


class CertificateTrust(msgspec.Struct, frozen=True, kw_only=True):
    """How a BMC's certificate is checked: by a CA in PEM, a pinned SHA-256 fingerprint, else the system's CAs."""

    ca_pem: str = ""
    fingerprint: str = ""  # hex, colons allowed


class BmcAddress(msgspec.Struct, frozen=True, kw_only=True):
    """The address and credentials of a BMC; never logged (repr hides the password)."""

    url: str  # https://host[:port]; http only where a user has confirmed it
    username: str = ""
    password: str = ""
    trust: CertificateTrust = CertificateTrust()

    def __repr__(self) -> str:
        return f"Address({self.url!r}, {self.username!r})"

    def __rich_repr__(self) -> Any:
        yield self.url
        yield self.username
