"""What a host has of its own, besides what it is given by a chassis: a network card, a drive, its built-in GPUs."""

from __future__ import annotations

import msgspec

from simulator.catalog import DEVICE_MODELS, DeviceModel, Kind
from simulator.hosttree import Card
from simulator.lab import Host, stable_serial

NETWORK_CARD = DeviceModel(
    kind=Kind.NETWORK,
    manufacturer="Intel",
    model="X540-AT2",
    part_number="X540-AT2",
    vendor_id="0x8086",
    device_id="0x1528",
    subsystem_vendor_id="0x15D9",
    subsystem_id="0x0734",
    class_code="0x020000",
    generation="Gen2",
    lanes=8,
)


def local_cards(name: str, host: Host) -> list[Card]:
    """Return the cards that a host shows at all times; the same host has the same ones in each process."""
    gpu = msgspec.structs.replace(
        DEVICE_MODELS["V100-PCIE-16GB"], model=host.gpu_model, device_id="0x1DB1", part_number="900-2G503-0000-000"
    )
    cards = [
        Card("0000:02:00.0", NETWORK_CARD, stable_serial("", name, "network"), 0),
        Card("0000:02:00.1", NETWORK_CARD, stable_serial("", name, "network"), 0),
        Card("0000:05:00.0", DEVICE_MODELS["SSDPEDKX040T7"], stable_serial("", name, "drive"), 0),
    ]
    return cards + [
        Card(f"0000:{0x10 + number:02x}:00.0", gpu, stable_serial("", name, f"gpu{number + 1}"), number)
        for number in range(host.gpus)
    ]
