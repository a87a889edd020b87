"""What runs ask of devices: their links carry it, they warm up, their host shows who uses them; it must be fresh."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from falconweb.testing.processes import SimulatorProcess
from simulator import nvml
from simulator.state import RequestedLoad
from tests.simulator.test_readings import falcon as plain_falcon
from tests.waiting import eventually, wait_for

GIGA = 1e9


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the hosts."""
    return tmp_path_factory.mktemp("hosts")


@pytest.fixture(scope="module")
def falcon(root: Path) -> Iterator[SimulatorProcess]:
    """A chassis that plays its hosts, with quick time."""
    with SimulatorProcess("--hosts-root", str(root), "--speed", "20") as process:
        yield process


@pytest.fixture
def somebody() -> Iterator[subprocess.Popen[bytes]]:
    """A process in whose name something is asked."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def ask(root: Path, pid: int, *devices: dict[str, Any], host: str = "node-a", **more: Any) -> Path:
    """Write a load, as who plays a run does, and return its file."""
    file = root / host / f"loads/{pid}.json"
    file.parent.mkdir(exist_ok=True)
    new = file.with_suffix(".new")
    new.write_text(json.dumps({"command": "trainer resnet50", "devices": devices, **more}))
    new.replace(file)
    return file


def gpu(root: Path, address: str) -> dict[str, Any]:
    """Return what NVML reads of a GPU."""
    return dict(json.loads((root / f"node-a/gpus/{address}.json").read_text()))


@pytest.mark.process
def test_a_load_counts_while_it_is_fresh_and_its_process_lives(
    falcon: SimulatorProcess, root: Path, somebody: subprocess.Popen[bytes]
) -> None:
    address = falcon.state()["hosts"]["node-a"]["drawer1slot1"]
    other = falcon.state()["hosts"]["node-a"]["drawer1slot2"]
    mine = {"address": address, "share": 0.5, "memory_share": 0.25, "to_device": 2 * GIGA, "from_device": GIGA}
    file = ask(root, somebody.pid, mine)
    shown = root / "node-a/proc" / str(somebody.pid)

    def fresh() -> dict[str, Any]:
        if file.exists():
            os.utime(file)
        return gpu(root, address)

    eventually(fresh, lambda read: 0.9 * GIGA < read["from_device"] < 1.1 * GIGA and 45 <= read["gpu"] <= 55)
    assert gpu(root, address)["used_mib"] == 400 + 4096
    assert (shown / "cmdline").read_bytes() == b"trainer\0resnet50\0"
    assert [str(link.readlink()) for link in (shown / "fd").iterdir()] == ["/dev/nvidia64"]
    eventually(lambda: (fresh(), gpu(root, other))[1], lambda read: read["to_device"] == 0)
    # Nobody refreshes it: the host goes on as before.
    os.utime(file, (time.time() - 60, time.time() - 60))
    eventually(lambda: gpu(root, other), lambda read: read["to_device"] > 0)
    assert not shown.exists()
    ask(root, somebody.pid, mine)
    eventually(lambda: gpu(root, other), lambda read: read["to_device"] == 0)
    somebody.kill()
    somebody.wait()
    eventually(lambda: gpu(root, other), lambda read: read["to_device"] > 0)
    assert not shown.exists()


@pytest.mark.parametrize(
    "content",
    [
        '{"devices": [{"address": "0000:40:00.0", "share": -1}]}',
        "[",
        "",
        '{"devices": 5}',
        '{"devices": [{"share": 1}]}',
    ],
)
def test_a_load_that_makes_no_sense_is_ignored(falcon: SimulatorProcess, root: Path, content: str) -> None:
    folder = root / "node-a/loads"
    folder.mkdir(exist_ok=True)
    (folder / f"{os.getpid()}.json").write_text(content)
    (folder / "999999999999999999999.json").write_text("{}")
    (folder / "nobody.json").write_text("{}")
    began = falcon.state()["simulated_seconds"]
    wait_for(lambda: falcon.state()["simulated_seconds"] > began + 10)
    assert not (root / "node-a/proc" / str(os.getpid())).exists()
    (folder / f"{os.getpid()}.json").unlink()


@pytest.mark.process
def test_the_hosts_own_gpus_and_meters_follow_too(
    falcon: SimulatorProcess, root: Path, somebody: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Kernels that wait for a link: the GPU is in use, and its memory idle for most of the time.
    local = {"address": "0000:10:00.0", "share": 1.0, "memory_share": 0.5, "memory_busy": 0.2, "to_device": 3 * GIGA}
    assert falcon.process.poll() is None
    file = ask(root, somebody.pid, local, cpu_share=0.5, memory_bytes=100 * 2**30, disk_read=GIGA, disk_write=GIGA)
    monkeypatch.setenv("AGENT_ROOT", str(root / "node-a"))
    nvml.nvmlInit()
    handle = root / "node-a/gpus/0000:10:00.0.json"
    wait_for(handle.exists)  # where this is the first test, the simulator has just begun to write its meters

    def received() -> int:
        os.utime(file)
        return nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_RX_BYTES)

    eventually(received, lambda kilobytes: kilobytes == 3_000_000)
    assert nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_TX_BYTES) == 0
    assert nvml.nvmlDeviceGetPowerUsage(handle) == 250_000
    used = nvml.nvmlDeviceGetUtilizationRates(handle)
    assert (used.gpu, used.memory) == (100, 20)
    proc = root / "node-a/proc"
    eventually(lambda: (received(), (proc / "meminfo").read_text())[1], lambda said: int(said.split()[4]) < 654 * 2**20)
    for sectors in (5, 9):  # read, written
        before = int((proc / "diskstats").read_text().split()[sectors])
        eventually(
            lambda field=sectors: (received(), int((proc / "diskstats").read_text().split()[field]))[1],  # type: ignore[misc]
            lambda now, before=before: now > before + 10**7,  # type: ignore[misc]
        )
    assert (root / "node-a/speed").read_text() == "20\n"
    falcon.set_speed(10)
    eventually((root / "node-a/speed").read_text, lambda said: said == "10\n")
    falcon.set_speed(20)


def load(to_device: float, from_device: float = 0.0, **more: float) -> RequestedLoad:
    return RequestedLoad(share=0.9, memory_share=0.5, to_device=to_device, from_device=from_device, **more)


def test_links_carry_no_more_than_they_can_and_share_the_host_port() -> None:
    one = plain_falcon(1)
    port = one.state.drawers[1].host_ports["H1"]
    slots = [one.state.drawers[1].slots[number] for number in port.slots]
    for slot in slots:
        assert slot.device is not None
        slot.device.requested = load(14 * GIGA, 1 * GIGA)
    one.physics.advance(20.0)
    # Four Gen3 x16 links of 15.75 GB/s each want 56 GB/s of one Gen4 x16 port: 31.5 GB/s, in equal parts.
    for slot in slots:
        assert slot.device is not None
        assert slot.device.carried[0] == pytest.approx(31.5 * GIGA / 4, rel=0.05)
        assert slot.device.carried[1] == pytest.approx(GIGA, rel=0.05)
    assert port.link.received_bytes <= 20 * 31.6 * GIGA
    before = slots[0].link.transmitted_bytes
    # What the devices of a drawer send each other does not pass the port.
    for slot in slots:
        assert slot.device is not None
        slot.device.requested = load(100 * GIGA, peer_share=1.0)
    received = port.link.received_bytes
    one.physics.advance(40.0)
    assert port.link.received_bytes == received
    assert slots[0].link.transmitted_bytes - before == pytest.approx(20 * 15.75 * GIGA, rel=0.02)


def test_a_device_with_more_load_takes_more_power_and_warms_up() -> None:
    one = plain_falcon(2)
    slot = one.state.drawers[1].slots[1]
    assert slot.device is not None
    slot.device.requested = RequestedLoad(0.1, 0.1, 0.0, 0.0)
    one.physics.advance(300.0)
    cool, little = slot.temperature, slot.watts
    slot.device.requested = RequestedLoad(1.0, 0.1, 0.0, 0.0)
    one.physics.advance(600.0)
    assert slot.watts > 4 * little
    assert cool + 10 < slot.temperature < 83


def test_a_device_that_no_host_reaches_carries_nothing_whatever_is_requested() -> None:
    one = plain_falcon(3)
    slot = one.state.drawers[1].slots[1]
    assert slot.device is not None
    slot.device.requested = load(GIGA)
    one.physics.advance(10.0)
    assert slot.device.carried[0] > 0
    one.composer.apply(one.state.drawers[1].host_ports["H1"], [])
    counted = slot.link.transmitted_bytes
    one.physics.advance(20.0)
    assert (slot.link.transmitted_bytes, slot.device.carried, slot.device.load) == (counted, (0.0, 0.0), 0.0)
