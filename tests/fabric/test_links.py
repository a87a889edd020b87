"""Links against what their two ends can do."""

from __future__ import annotations

import pytest

from fabric.bmc.types import Link
from fabric.links import is_below


def link(active: int | None, width: int | None, speed: float | None, most: float | None) -> Link:
    return Link(port_uri="/p", status="LinkUp", active_width=active, width=width, speed_gbps=speed, max_speed_gbps=most)


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
    found: Link, max_lanes: int | None, max_pcie_type: str, below: bool
) -> None:
    assert is_below(found, max_lanes, max_pcie_type) is below
