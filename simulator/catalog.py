"""The hardware models of labs, with their real vendor and device IDs."""

from __future__ import annotations

from enum import StrEnum

import msgspec

# Signalling rate of one lane in Gbit/s, by PCIe generation.
LANE_GBPS = {"Gen1": 2.5, "Gen2": 5.0, "Gen3": 8.0, "Gen4": 16.0, "Gen5": 32.0}
GENERATIONS = tuple(LANE_GBPS)


class DeviceModelKind(StrEnum):
    """The PCI properties of a device on its host."""

    GPU = "GPU"
    DRIVE = "Drive"
    NETWORK = "NetworkAdapter"
    CUSTOM = "Custom"


class DeviceModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One model of a PCIe device; IDs are hexadecimal strings, power is in watts."""

    kind: DeviceModelKind
    manufacturer: str
    model: str
    part_number: str
    vendor_id: str
    device_id: str
    subsystem_vendor_id: str
    subsystem_id: str
    class_code: str
    generation: str = "Gen3"
    lanes: int = 16
    firmware: str = "1.0"
    idle_watts: float = 15.0
    max_watts: float = 75.0
    memory_mib: int = 0
    capacity_bytes: int = 0
    # The share of the link's capacity that a busy device receives and transmits.
    receive_share: float = 0.3
    transmit_share: float = 0.2


DEVICE_MODELS: dict[str, DeviceModel] = {
    "V100-PCIE-16GB": DeviceModel(
        kind=DeviceModelKind.GPU,
        manufacturer="NVIDIA",
        model="Tesla V100-PCIE-16GB",
        part_number="900-2G500-0000-000",
        vendor_id="0x10DE",
        device_id="0x1DB4",
        subsystem_vendor_id="0x10DE",
        subsystem_id="0x1214",
        class_code="0x030200",
        firmware="88.00.48.00.02",
        idle_watts=26,
        max_watts=250,
        memory_mib=16384,
        receive_share=0.42,
        transmit_share=0.26,
    ),
    "P100-PCIE-16GB": DeviceModel(
        kind=DeviceModelKind.GPU,
        manufacturer="NVIDIA",
        model="Tesla P100-PCIE-16GB",
        part_number="900-2H400-0000-000",
        vendor_id="0x10DE",
        device_id="0x15F8",
        subsystem_vendor_id="0x10DE",
        subsystem_id="0x118F",
        class_code="0x030200",
        firmware="86.00.4D.00.01",
        idle_watts=28,
        max_watts=250,
        memory_mib=16384,
        receive_share=0.34,
        transmit_share=0.2,
    ),
    "SSDPEDKX040T7": DeviceModel(
        kind=DeviceModelKind.DRIVE,
        manufacturer="Intel",
        model="SSDPEDKX040T7",
        part_number="SSDPEDKX040T7",
        vendor_id="0x8086",
        device_id="0x0A54",
        subsystem_vendor_id="0x8086",
        subsystem_id="0x4702",
        class_code="0x010802",
        lanes=4,
        firmware="QDV10130",
        idle_watts=5,
        max_watts=16,
        capacity_bytes=4_000_787_030_016,
        receive_share=0.15,
        transmit_share=0.7,
    ),
    "MCX555A-ECAT": DeviceModel(
        kind=DeviceModelKind.NETWORK,
        manufacturer="Mellanox",
        model="ConnectX-5 MCX555A-ECAT",
        part_number="MCX555A-ECAT",
        vendor_id="0x15B3",
        device_id="0x1017",
        subsystem_vendor_id="0x15B3",
        subsystem_id="0x0006",
        class_code="0x020000",
        firmware="16.35.2000",
        idle_watts=10,
        max_watts=20,
        receive_share=0.5,
        transmit_share=0.5,
    ),
    "ALVEO-U250": DeviceModel(
        kind=DeviceModelKind.CUSTOM,
        manufacturer="Xilinx",
        model="Alveo U250",
        part_number="A-U250-P64G-PQ-G",
        vendor_id="0x10EE",
        device_id="0x5004",
        subsystem_vendor_id="0x10EE",
        subsystem_id="0x000E",
        class_code="0x120000",
        firmware="5.2.14",
        idle_watts=30,
        max_watts=215,
        receive_share=0.25,
        transmit_share=0.25,
    ),
}
