"""What the agent reads of a host: this machine's own /sys and /proc, and trees with hardware that no test has."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import device_usage, sysfs
from agent.machine import device_matches
from agent.nvml import NvmlReadings
from agent.report import truncate_report
from agent.step_execution import StepError, StepProcessPool, StepTimeoutError
from hostwire.protocol import DeviceHolder, DeviceSelector, HostReport, PciDevice
from hostwire.signing import MAX_BYTES
from tests.processes import ROOT
from tests.waiting import wait_for

FOUND = PciDevice("0000:41:00.0", "0x10de", "0x1db4", serial="ABC")


@pytest.mark.process
def test_this_machine_is_reported_as_it_is() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AGENT_")}
    done = subprocess.run(
        [sys.executable, "-m", "agent", "--look"], cwd=ROOT, env=environment, capture_output=True, timeout=60,
        check=True,
    )  # fmt: skip
    report = msgspec.json.decode(done.stdout, type=HostReport)
    assert report.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    there = {entry.name for entry in Path("/sys/bus/pci/devices").iterdir()} if Path("/sys/bus/pci").exists() else set()
    assert {found.address for found in report.devices} <= there
    for found in report.devices:
        assert found.vendor_id == (Path("/sys/bus/pci/devices") / found.address / "vendor").read_text().strip()


@pytest.mark.process
def test_who_holds_a_device_file_of_this_machine_is_found_by_its_open_files(tmp_path: Path) -> None:
    """The tree names /dev/null as the file of a device; this machine's real processes are looked through."""
    place = tmp_path / "sys/bus/pci/devices/0000:41:00.0/misc/null"
    place.mkdir(parents=True)
    (place / "dev").write_text("1:3\n")
    (place / "uevent").write_text("MAJOR=1\nDEVNAME=null\n")
    (tmp_path / "proc").symlink_to("/proc")
    began = time.time()
    holding = subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL)
    try:
        held = device_usage.holders(tmp_path, ["0000:41:00.0"])
        boot = device_usage._boot(tmp_path)
        listed = device_usage._holder(tmp_path, Path("/proc") / str(holding.pid), "/dev/null", boot, briefly=False)
        assert listed == DeviceHolder("process", "/dev/null", holding.pid, "sleep 60", listed.owner, listed.started)
        assert abs(listed.started - began) <= 2  # whole seconds, of the boot and of the process
        assert held.holders["0000:41:00.0"]
        assert {who.what for who in held.holders["0000:41:00.0"]} == {"/dev/null"}
    finally:
        holding.kill()
        holding.wait()


def test_what_uses_a_drive_without_a_process_is_found(tmp_path: Path) -> None:
    device = tmp_path / "sys/bus/pci/devices/0000:41:00.0"
    disk = device / "nvme/nvme0/nvme0n1"
    (disk / "nvme0n1p1").mkdir(parents=True)
    (device / "sriov_numvfs").write_text("4\n")
    for place, name, number in ((disk, "nvme0n1", "259:0"), (disk / "nvme0n1p1", "nvme0n1p1", "259:1")):
        (place / "dev").write_text(number)
        (place / "uevent").write_text(f"DEVNAME={name}\n")
    (tmp_path / "sys/class/block/nvme0n1p1/holders/dm-0").mkdir(parents=True)
    proc = tmp_path / "proc/1"
    (proc / "fd").mkdir(parents=True)
    (tmp_path / "proc/swaps").write_text("Filename Type Size Used Priority\n/dev/nvme0n1p1 partition 1 0 -2\n")
    (proc / "mountinfo").write_text(
        "30 1 0:40 / /btr\\040fs rw - btrfs /dev/nvme0n1 rw\n31 1 259:1 / /data rw - ext4 /dev/mapper/x rw\n"
    )
    found = device_usage.holders(tmp_path, ["0000:41:00.0"]).holders["0000:41:00.0"]
    assert {(who.kind, who.what) for who in found} == {
        ("functions", "4 virtual functions"),
        ("mapping", "nvme0n1p1 is part of dm-0"),
        ("swap", "/dev/nvme0n1p1"),
        ("mount", "/btr fs"),
        ("mount", "/data"),
    }


def test_data_of_a_drive_is_read_from_a_folder_of_ours_on_it_else_from_the_drive_itself(tmp_path: Path) -> None:
    address, here = "0000:41:00.0", tmp_path / "data"
    (here / "falconweb").mkdir(parents=True)
    number = here.stat().st_dev
    disk = tmp_path / f"sys/bus/pci/devices/{address}/nvme/nvme0/nvme0n1"
    disk.mkdir(parents=True)
    (disk / "uevent").write_text("DEVNAME=nvme0n1\n")
    (disk / "dev").write_text(f"{os.major(number)}:{os.minor(number)}\n")
    (tmp_path / "proc/1/fd").mkdir(parents=True)
    mounts = tmp_path / "proc/1/mountinfo"
    mounts.write_text(f"31 1 259:0 / {here} rw - ext4 /dev/nvme0n1 rw\n")
    assert device_usage.data_place(tmp_path, address) == str(here / "falconweb")
    # Another drive's file system under the name that a container gives it.
    (disk / "dev").write_text("259:9\n")
    assert device_usage.data_place(tmp_path, address) == ""
    (disk / "dev").write_text(f"{os.major(number)}:{os.minor(number)}\n")
    # What a service has mounted from the same drive for itself is a folder of the system here: nothing is written.
    service = tmp_path / "proc/700"
    (service / "fd").mkdir(parents=True)
    (service / "ns").mkdir()
    (service / "ns/mnt").symlink_to("mnt:[7]")
    (service / "mountinfo").write_text(f"32 31 259:0 / {tmp_path}/usr ro - ext4 /dev/nvme0n1 rw\n")
    (tmp_path / "usr").mkdir()
    (here / "falconweb").rmdir()
    assert device_usage.data_place(tmp_path, address) == ""
    # Nor behind a link.
    (here / "falconweb").symlink_to(tmp_path / "usr")
    assert device_usage.data_place(tmp_path, address) == ""


def test_a_gpu_that_was_given_to_a_virtual_machine_is_held_by_its_group(tmp_path: Path) -> None:
    device = tmp_path / "sys/bus/pci/devices/0000:41:00.0"
    device.mkdir(parents=True)
    (device / "driver").symlink_to("../../drivers/vfio-pci")
    (device / "iommu_group").symlink_to("../../../kernel/iommu_groups/17")
    assert ("/dev/vfio/17", "") in list(sysfs.device_files(tmp_path, "0000:41:00.0"))


def test_serial_numbers_are_read_from_vital_product_data_and_from_the_capability() -> None:
    vpd = b"\x82\x04\x00Card" + b"\x90\x10\x00" + b"PN\x03ABC" + b"SN\x07S123456" + b"\x78"
    assert sysfs.vpd_serial(vpd) == "S123456"
    capability = (0x0003 | 1 << 16).to_bytes(4, "little") + bytes.fromhex("8877665544332211")
    other = (0x0001 | 1 << 16 | 0x140 << 20).to_bytes(4, "little") + bytes(0x3C)
    assert sysfs.dsn_serial(bytes(0x100) + other + capability) == "1122334455667788"
    assert sysfs.dsn_serial(bytes(256)) == sysfs.dsn_serial(b"\xff" * 4096) == ""


@given(st.binary(max_size=600))
def test_no_bytes_of_a_card_stop_the_agent(raw: bytes) -> None:
    assert isinstance(sysfs.vpd_serial(raw), str)
    assert isinstance(sysfs.dsn_serial(bytes(256) + raw), str)


@pytest.mark.parametrize(
    ("wanted", "so"),
    [
        (DeviceSelector("0000:41:00.0"), True),
        (DeviceSelector("0000:41:00.0", "0x10DE", "0x1DB4", "abc"), True),
        (DeviceSelector(serial="abc"), True),
        (DeviceSelector(vendor_id="0x10DE", device_id="0x1DB4"), True),
        (DeviceSelector(), False),
        (DeviceSelector("0000:41:00.0", serial="other"), False),
        (DeviceSelector("0000:42:00.0", serial="ABC"), False),
        (DeviceSelector(vendor_id="0x8086", serial="ABC"), False),
    ],
)
def test_a_device_is_the_wanted_one_only_if_all_that_is_wanted_is_so(wanted: DeviceSelector, *, so: bool) -> None:
    assert device_matches(FOUND, wanted) is so


def test_a_device_without_a_serial_number_passes_only_where_its_address_is_named() -> None:
    silent = msgspec.structs.replace(FOUND, serial="")
    assert not device_matches(silent, DeviceSelector(vendor_id="0x10de", device_id="0x1db4", serial="ABC"))
    assert device_matches(silent, DeviceSelector("0000:41:00.0", "0x10de", "0x1db4", "ABC"))


def test_a_report_of_a_huge_host_still_fits_into_a_message() -> None:
    devices = tuple(
        PciDevice(f"{n:04x}:00:00.0", "0x1", "0x2", serial="s" * 200, nodes=("n" * 90,)) for n in range(2000)
    )
    report = truncate_report(HostReport("h", 1, 0.0, 0.0, "1", devices=devices))
    assert len(msgspec.json.encode(report)) < MAX_BYTES
    assert report.left_out == 2000 - len(report.devices) > 0


def test_control_files_are_those_of_the_bus_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "sys/bus/pci").mkdir(parents=True)
    (tmp_path / "secret").touch()
    for path, content in (("../../../secret", "1\n"), ("rescan", "1; reboot")):
        with pytest.raises(ValueError, match="not a control file"):
            sysfs.write(tmp_path, path, content)
    with pytest.raises(FileNotFoundError):
        sysfs.write(tmp_path, "rescan", "1\n")
    with pytest.raises(ValueError, match="no PCI address"):
        sysfs.device_folder(tmp_path, "../../x")


@pytest.mark.process
def test_a_step_that_never_ends_is_given_up_and_the_next_one_is_taken(tmp_path: Path) -> None:
    place = tmp_path / "sys/bus/pci/devices/0000:41:00.0"
    place.mkdir(parents=True)
    os.mkfifo(place / "vendor")
    pool = StepProcessPool()
    for _ in range(3):
        with pytest.raises(StepTimeoutError, match=r"did not end within 0\.2 s"):
            pool.execute(PciDevice, tmp_path, "device", seconds=0.2, address="0000:41:00.0")
    assert pool.execute(bool, tmp_path, "present", seconds=5, address="0000:41:00.0") is True
    with pytest.raises(StepError, match="no PCI address"):
        pool.execute(bool, tmp_path, "present", seconds=5, address="0000")
    with pytest.raises(StepError, match="KeyError"):
        pool.execute(bool, tmp_path, "reboot", seconds=5)
    pool.close()


@pytest.mark.process
def test_each_host_of_one_process_has_gpus_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {}
    for host in ("first", "second"):
        (tmp_path / host / "gpus").mkdir(parents=True)
        gpu = {
            "name": host,
            "serial": host,
            "gpu": 1,
            "memory": 1,
            "used_mib": 1,
            "total_mib": 2,
            "watts": 3,
            "celsius": 4,
        }
        (tmp_path / host / "gpus" / "0000:41:00.0.json").write_bytes(msgspec.json.encode(gpu))
    monkeypatch.setenv("AGENT_ROOT", str(tmp_path / "first"))
    monkeypatch.setenv("AGENT_NVML", "simulator.nvml")
    pool = StepProcessPool()
    for host in ("first", "second"):
        found[host] = pool.execute(NvmlReadings, tmp_path / host, "gpus", seconds=5)
    pool.close()
    assert {host: [gpu.serial for gpu in one.gpus] for host, one in found.items()} == {
        "first": ["first"],
        "second": ["second"],
    }


@pytest.mark.process
def test_a_process_that_was_killed_while_it_waited_for_work_is_replaced(tmp_path: Path) -> None:
    pool = StepProcessPool()
    assert pool.execute(bool, tmp_path, "present", seconds=5, address="0000:41:00.0") is False
    for process in pool._idle:
        process.kill()
        process.wait()
    assert pool.execute(bool, tmp_path, "present", seconds=5, address="0000:41:00.0") is False
    pool.close()


@pytest.mark.process
def test_steps_share_one_process_and_a_hanging_one_delays_no_other_for_long(tmp_path: Path) -> None:
    place = tmp_path / "stuck/sys/bus/pci/devices/0000:41:00.0"
    place.mkdir(parents=True)
    os.mkfifo(place / "vendor")
    pool = StepProcessPool()
    address = "0000:41:00.0"
    with ThreadPoolExecutor(9) as threads:
        hosts = [threads.submit(pool.execute, bool, tmp_path, "present", seconds=30, address=address) for _ in range(8)]
        assert [one.result() for one in hosts] == [False] * 8
        assert len(pool._idle) == 1
        hanging = threads.submit(pool.execute, PciDevice, tmp_path / "stuck", "device", seconds=5, address=address)
        wait_for(lambda: pool._busy, "the step that hangs was not begun")
        assert pool.execute(bool, tmp_path, "present", seconds=5, address=address) is False
        assert not hanging.done()
        with pytest.raises(StepTimeoutError):
            hanging.result()
    assert pool.execute(bool, tmp_path, "present", seconds=5, address=address) is False
    assert pool.stuck(tmp_path) == []
    pool.close()
