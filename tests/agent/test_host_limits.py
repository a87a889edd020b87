"""What limits a host is read as Linux has it, of trees with hardware that no test has and of a simulated host."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent import sysfs
from agent.host_limits import host_limits
from hostwire.protocol import HostLimits, RootPort
from simulator.host_tree import HostTree, own_cards
from simulator.lab import HostLab

GIB = 2**30
# Of a root port: 32 GiB of prefetchable memory, then 1 MiB of other memory.
BRIDGE = """0x0000000000000000 0x0000000000000000 0x0000000000000000
0x00000000a0000000 0x00000000a00fffff 0x0000000000200200
0x0000380000000000 0x00003807ffffffff 0x0000000000302201
"""
# Of a V100: 16 MiB, 32 GiB of prefetchable memory, and 32 MiB of it that got no addresses.
GPU = """0x00000000a0000000 0x00000000a0ffffff 0x0000000000040200
0x0000380000000000 0x00003807ffffffff 0x000000000014220c
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x0000000000000000 0x0000000001ffffff 0x000000002014220c
"""


@pytest.fixture
def pci(tmp_path: Path) -> Path:
    place = tmp_path / "sys/bus/pci/devices"
    place.mkdir(parents=True)
    return place


def show(pci: Path, address: str, **files: str) -> Path:
    place = pci / address
    place.mkdir()
    for name, text in files.items():
        (place / name).write_text(text + "\n")
    return place


def show_bridge(pci: Path, address: str, first: str, last: str, resource: str = "") -> None:
    show(
        pci, address, secondary_bus_number=first, subordinate_bus_number=last, resource=resource,
        **{"class": "0x060400"},
    )  # fmt: skip


def test_root_ports_have_their_buses_and_windows(tmp_path: Path, pci: Path) -> None:
    show_bridge(pci, "0000:00:01.0", "1", "8", BRIDGE)
    show_bridge(pci, "0000:01:00.0", "2", "8", BRIDGE)  # a switch below it, with two ports
    show_bridge(pci, "0000:02:00.0", "3", "5")
    show_bridge(pci, "0000:02:01.0", "6", "8")
    show(pci, "0000:03:00.0", **{"class": "0x030200"})
    show_bridge(pci, "0001:00:01.0", "1", "8")  # of another domain
    show_bridge(pci, "0000:00:02.0", "0", "0")  # not configured
    show_bridge(pci, "0000:00:03.0", "9", "none")
    show(pci, "0000:00:04.0", **{"class": "0x060100"})
    assert host_limits(tmp_path).root_ports == (
        # Buses 1, 2, 3 and 6 are taken.
        RootPort("0000:00:01.0", 1, 8, 4, 32 * GIB),
        RootPort("0001:00:01.0", 1, 8, 1),
    )


def test_a_device_has_the_size_of_its_memory_and_what_got_no_addresses(tmp_path: Path, pci: Path) -> None:
    place = show(pci, "0000:03:00.0", vendor="0x10de", device="0x1db4", resource=GPU)
    (place / "iommu_group").mkdir()
    (place / "iommu_group/type").write_text("DMA-FQ\n")
    found = sysfs.device(tmp_path, "0000:03:00.0")
    assert found is not None
    assert (found.memory_window, found.unassigned, found.iommu) == (32 * GIB + 2**25, 2**25, "DMA-FQ")
    (place / "resource").write_text("nonsense\n0x1 0x0 0x200\n0x0 0xffffffffffffffff 0x2200\n")
    found = sysfs.device(tmp_path, "0000:03:00.0")
    assert found is not None
    assert found.memory_window == sysfs.MAX_RESOURCE_BYTES


def test_drivers_are_those_of_the_kernel_or_unknown(tmp_path: Path, pci: Path) -> None:
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/osrelease").write_text("6.1.0\n")
    (pci.parent / "drivers/nouveau").mkdir(parents=True)
    assert host_limits(tmp_path).drivers is None
    modules = tmp_path / "lib/modules/6.1.0"
    modules.mkdir(parents=True)
    (modules / "modules.builtin").write_text("kernel/drivers/nvme/host/nvme.ko\n")
    (modules / "modules.dep").write_text("kernel/a/mlx5_core.ko.xz: kernel/b/nvidia.ko\nupdates/dkms/other.ko:\n")
    (tmp_path / "sys/module/nvme").mkdir(parents=True)
    (tmp_path / "sys/module/nvme/version").write_text("1.0\n")
    assert host_limits(tmp_path).drivers == {"nouveau": "", "nvme": "1.0", "mlx5_core": ""}
    (modules / "modules.dep").write_text("updates/dkms/nvidia.ko.zst:\nkernel/a/mlx5-core.ko:\n")
    assert set(host_limits(tmp_path).drivers or ()) == {"nouveau", "nvme", "mlx5_core", "nvidia"}


def test_a_simulated_host_shows_what_its_lab_has(tmp_path: Path) -> None:
    host = HostLab(gpus=1, pci_window_gib=64, iommu="DMA", drivers={"nvme": "1.0"})
    tree = HostTree(tmp_path, "node-a", host)
    gpu = own_cards("node-a", host)[-1]
    tree.plug(gpu, 16, "Gen3")
    shown = sysfs.device(tmp_path, gpu.address)
    assert shown is not None
    assert (shown.memory_window, shown.unassigned, shown.iommu, shown.driver) == (16 * GIB, 0, "DMA", "")
    port = RootPort("0000:00:01.0", 1, 0x3F, 2, 64 * GIB)
    assert host_limits(tmp_path) == HostLimits(drivers={"nvme": "1.0"}, root_ports=(port,))
