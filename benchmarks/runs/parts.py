"""What the performance model reads of a device: how its model is called, and its link."""

from __future__ import annotations

from typing import Final

from benchmarks.model.shapes import Link
from fabric.bmc.values import LANE_GBPS
from fabric.models import Device, Port

NEARLY: Final = 0.75  # services tell the raw rate of a link, or what is left of it after encoding
MAKERS: Final = ("NVIDIA ", "Tesla ", "AMD ", "Intel ")
UNKNOWN: Final = "unknown"


def model_name(text: str) -> str:
    """Return a model without its maker: 'V100-SXM2-16GB' of 'Tesla V100-SXM2-16GB'."""
    for maker in MAKERS:
        text = text.removeprefix(maker)
    return text.strip() or UNKNOWN


def link_of(port: Port | None, device: Device | None = None) -> Link:
    """Return the link of a port as it is trained; of one that is down, what both its ends can be."""
    if port is not None and port.active_width and port.speed_gbps:
        return Link(lanes=port.active_width, generation=generation_of(port.speed_gbps / port.active_width))
    lanes = min(
        (
            known
            for known in (port and port.width, port and port.configured_width, device and device.max_lanes)
            if known
        ),
        default=Link.lanes,
    )
    if device is not None and device.max_pcie_type in LANE_GBPS:
        return Link(lanes=lanes, generation=generation_of(LANE_GBPS[device.max_pcie_type]))
    if port is not None and port.max_speed_gbps and port.width:
        return Link(lanes=lanes, generation=generation_of(port.max_speed_gbps / port.width))
    return Link(lanes=lanes)


def generation_of(gbps: float) -> int:
    """Return the generation of PCIe that has a lane of this rate, Gb/s."""
    rates = [rate for rate in LANE_GBPS.values() if gbps >= NEARLY * rate]
    return max(1, len(rates))
