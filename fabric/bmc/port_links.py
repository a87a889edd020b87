"""The link of a port as it is read back after a change."""

from __future__ import annotations

import msgspec


class PortLink(msgspec.Struct, frozen=True, kw_only=True):
    """The present link and configuration of a port, read back."""

    port_uri: str
    status: str
    active_width: int | None
    width: int | None
    speed_gbps: float | None
    max_speed_gbps: float | None
    configured_width: int | None = None  # the configured maximum of lanes
    port_type: str = ""  # UpstreamPort, DownstreamPort, UnconfiguredPort; '' where the BMC has no types
    link_state: str = ""  # requested: Enabled, Disabled
