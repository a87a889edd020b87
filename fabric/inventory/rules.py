"""Whether a link runs at the capability of its two ends: pure, by the rates of the PCI Express base specifications.

A room above tracks the counters and provides the baselines; without one, they are zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from fabric.bmc import types as wire
from fabric.bmc.port_links import PortLink
from fabric.bmc.values import LANE_GBPS, is_uuid_set

# Services report the raw rate, or the rate after encoding (0.8 of it for Gen1 and Gen2, 0.985 after); the next lower
# generation has at most 0.625.
LINK_SPEED_TOLERANCE: Final = 0.75
# Of the systems in DMTF's published examples, which emulators and some services have unchanged.
SAMPLE_UUIDS: Final = frozenset({"38947555-7742-3448-3784-823347823834", "92384634-2938-2342-8820-489239905423"})


def is_link_degraded(link: PortLink, max_lanes: int | None, max_pcie_type: str) -> bool:
    """Return whether a link is narrower or slower than both its port and the device on it support.

    `max_lanes` and `max_pcie_type` are the device's; unknown values do not count. A link at the configured width of its
    port is not degraded.
    """
    lanes = min((known for known in (link.width, link.configured_width, max_lanes) if known), default=None)
    if lanes and link.active_width and link.active_width < lanes:
        return True
    speeds = []
    if link.max_speed_gbps:
        speeds.append(link.max_speed_gbps * (lanes / link.width if lanes and link.width else 1.0))
    if lanes and max_pcie_type in LANE_GBPS:
        speeds.append(LANE_GBPS[max_pcie_type] * lanes)
    return bool(speeds and link.speed_gbps) and (link.speed_gbps or 0.0) < LINK_SPEED_TOLERANCE * min(speeds)


def describe_link(link: PortLink) -> str:
    """Return a link that is up in a sentence."""
    speed = f" at {link.speed_gbps:g} Gb/s" if link.speed_gbps else ""
    below = link.width and link.active_width and link.active_width < link.width
    is_configured = bool(below) and link.active_width == link.configured_width
    of = " as configured" if is_configured else f" of x{link.width}" if below else ""
    return f"Link up, x{link.active_width}{of}{speed}."


@dataclass(frozen=True)
class CounterBaseline:
    """The counters of a port, by name, when it was granted to a tenant; `until` (Unix s) their first restart since.

    `left` is the part of that which they still include: a reset may clear only some; None where they are not tracked
    that closely. `gained` is what was counted since, over all resets: all of it is the tenant's.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    until: float = math.inf
    left: Mapping[str, int] | None = None
    gained: Mapping[str, int] = field(default_factory=dict)

    @property
    def now(self) -> Mapping[str, int]:
        """The part of the present counters that was counted before the grant."""
        if self.left is not None:
            return self.left
        return self.counts if self.until == math.inf else {}


def counts_since(errors: Mapping[str, int], before: CounterBaseline | None) -> dict[str, int]:
    """Return the part of counters that was counted since the grant.

    The counters may have been read some time ago: before they restarted, or before the grant. So they are compared with
    the baseline of that time, whether they restarted since or not.
    """
    if before is None:
        return dict(errors)
    return {
        name: min(count, max(0, count - before.counts.get(name, 0), before.gained.get(name, 0)))
        for name, count in errors.items()
    }


def host_identity(chassis: int, system: wire.RedfishSystem) -> str:
    """Return the identity of a host, which is the same in every chassis (id) that it is cabled to."""
    if is_uuid_set(system.uuid) and system.uuid.lower() not in SAMPLE_UUIDS:
        return system.uuid[:200]
    if system.serial_number:
        return f"{system.manufacturer} {system.serial_number}".strip()[:200]
    return f"{chassis}:{system.uri}"[:200]
