"""Links against what their two ends can do."""

from __future__ import annotations

import msgspec
import pytest

from fabric.bmc.port_links import PortLink
from fabric.inventory.rules import describe_link, is_link_degraded


def link(active: int | None, width: int | None, speed: float | None, most: float | None) -> PortLink:
    return PortLink(
        port_uri="/p", status="LinkUp", active_width=active, width=width, speed_gbps=speed, max_speed_gbps=most
    )


@pytest.mark.parametrize(
    ("found", "max_lanes", "max_pcie_type", "below"),
    [
        (link(16, 16, 256.0, 256.0), 16, "Gen4", False),
        (link(8, 16, 128.0, 256.0), 16, "Gen4", True),  # half the lanes
        (link(16, 16, 128.0, 256.0), 16, "Gen4", True),  # half the rate
        (link(16, 16, 128.0, 256.0), 16, "Gen3", False),  # a Gen3 device in a Gen4 slot
        (link(16, 16, 80.0, 256.0), 16, "Gen3", True),  # Gen2 of Gen3
        (link(4, 16, 32.0, 256.0), 4, "Gen3", False),  # a drive of four lanes
        (link(16, 16, 126.03, 252.06), 16, "Gen3", False),  # told after encoding
        (link(8, 8, 16.0, 20.0), None, "", False),  # Gen1 after encoding, against the raw rate
        (link(None, None, None, None), None, "", False),
        (link(16, 16, None, 256.0), 16, "Gen4", False),
        (link(8, None, 64.0, None), 16, "Gen3", True),
    ],
)
def test_a_link_is_below_what_both_ends_can_do(
    found: PortLink, max_lanes: int | None, max_pcie_type: str, below: bool
) -> None:
    assert is_link_degraded(found, max_lanes, max_pcie_type) is below


@pytest.mark.parametrize(
    ("active", "speed", "configured", "below", "words"),
    [
        (4, 64.0, 4, False, "Link up, x4 as configured at 64 Gb/s."),
        (2, 32.0, 4, True, "Link up, x2 of x16 at 32 Gb/s."),
        (4, 32.0, 4, True, "Link up, x4 as configured at 32 Gb/s."),  # half the rate
        (8, 128.0, 16, True, "Link up, x8 of x16 at 128 Gb/s."),
        (16, 256.0, 16, False, "Link up, x16 at 256 Gb/s."),
    ],
)
def test_a_link_as_narrow_as_its_port_was_configured_is_as_it_should_be(
    active: int, speed: float, configured: int, *, below: bool, words: str
) -> None:
    found = msgspec.structs.replace(link(active, 16, speed, 256.0), configured_width=configured)
    assert is_link_degraded(found, 16, "Gen4") is below
    assert describe_link(found) == words
