"""Whether a link runs as well as its two ends can: pure, by the rates of the PCI Express base specifications."""

from __future__ import annotations

from typing import Final

from fabric.bmc.types import Link
from fabric.bmc.values import LANE_GBPS

# Services tell the raw rate, or what is left after encoding (0.8 of it for Gen1 and Gen2, 0.985 after); the next lower
# generation has at most 0.625.
NEARLY: Final = 0.75


def is_below(link: Link, max_lanes: int | None, max_pcie_type: str) -> bool:
    """Tell whether a link is narrower or slower than both its port and the device on it can be.

    `max_lanes` and `max_pcie_type` are the device's; what is not known does not count. A link that is as narrow as its
    port was configured is as it should be.
    """
    lanes = min((known for known in (link.width, link.configured_width, max_lanes) if known), default=None)
    if lanes and link.active_width and link.active_width < lanes:
        return True
    speeds = []
    if link.max_speed_gbps:
        speeds.append(link.max_speed_gbps * (lanes / link.width if lanes and link.width else 1.0))
    if lanes and max_pcie_type in LANE_GBPS:
        speeds.append(LANE_GBPS[max_pcie_type] * lanes)
    return bool(speeds and link.speed_gbps) and (link.speed_gbps or 0.0) < NEARLY * min(speeds)


def described(link: Link) -> str:
    """Return a link that is up in a sentence."""
    speed = f" at {link.speed_gbps:g} Gb/s" if link.speed_gbps else ""
    below = link.width and link.active_width and link.active_width < link.width
    asked = bool(below) and link.active_width == link.configured_width
    of = " as configured" if asked else f" of x{link.width}" if below else ""
    return f"Link up, x{link.active_width}{of}{speed}."
