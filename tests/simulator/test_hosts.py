"""Simulated hosts as files: what a host sees of its chassis, what its people do there, and what hangs."""

from __future__ import annotations

import os
import select
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pytest

from falconweb.testing.processes import SimulatorProcess
from tests.simulator.conftest import Client
from tests.waiting import eventually

H1, SLOTS = "hostport1_H1", ["drawer1slot1", "drawer1slot2", "drawer1slot3", "drawer1slot4"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder of the hosts."""
    return tmp_path / "hosts"


@pytest.fixture
def falcon(root: Path) -> Iterator[SimulatorProcess]:
    """A chassis that plays its hosts, with quick time."""
    with SimulatorProcess("--hosts-root", str(root), "--speed", "20") as process:
        yield process


def devices(root: Path, host: str = "node-a") -> set[str]:
    """Return the addresses that a host shows."""
    return {entry.name for entry in (root / host / "sys/bus/pci/devices").iterdir()}


def write(root: Path, path: str, content: str = "1", host: str = "node-a") -> None:
    """Write to a control file as a host's people do."""
    with (root / host / "sys/bus/pci" / path).open("a") as file:
        file.write(content + "\n")


def compose(falcon: SimulatorProcess, *slots: str) -> None:
    """Make these the devices of host port H1 and wait for their links."""
    assert Client(falcon).compose(H1, [H1, *slots]).status_code == 200
    eventually(falcon.state, lambda state: all(state["links"][slot]["status"] == "LinkUp" for slot in slots))


def test_a_host_shows_what_is_attached_and_its_own_devices(falcon: SimulatorProcess, root: Path) -> None:
    shown = falcon.state()["hosts"]["node-a"]
    assert set(shown) == {*SLOTS, *(f"drawer2slot{number}" for number in (1, 2, 3, 4, 5))}
    eventually(lambda: devices(root), lambda there: there >= {*shown.values(), "0000:05:00.0", "0000:17:00.0"})
    place = root / "node-a/sys/bus/pci/devices" / shown["drawer1slot1"]
    assert (place / "vendor").read_text() == "0x10de\n"
    assert (place / "current_link_width").read_text() == "16\n"
    assert (place / "driver").resolve().name == "nvidia"
    assert (root / "node-a/sys/class/dmi/id/product_uuid").read_text().strip()


def test_a_new_device_is_seen_only_after_a_scan(falcon: SimulatorProcess, root: Path) -> None:
    compose(falcon, *SLOTS, "drawer1slot7")
    assert "drawer1slot7" not in falcon.state()["hosts"]["node-a"]
    write(root, "rescan")
    eventually(lambda: falcon.state()["hosts"]["node-a"], lambda shown: "drawer1slot7" in shown)


def test_with_hotplug_it_is_seen_at_once(root: Path) -> None:
    with SimulatorProcess("--hosts-root", str(root), "--hotplug", "--speed", "20") as falcon:
        compose(falcon, *SLOTS, "drawer1slot7")
        eventually(lambda: falcon.state()["hosts"]["node-a"], lambda shown: "drawer1slot7" in shown)


def test_a_removed_device_vanishes_and_a_scan_brings_it_back_while_it_is_attached(
    falcon: SimulatorProcess, root: Path
) -> None:
    address = falcon.state()["hosts"]["node-a"]["drawer1slot1"]
    write(root, f"devices/{address}/remove")
    eventually(lambda: devices(root), lambda there: address not in there)
    write(root, "rescan")
    eventually(lambda: devices(root), lambda there: address in there)


def test_the_state_of_a_chassis_is_that_of_the_moment_in_which_it_is_asked_for(
    falcon: SimulatorProcess, root: Path
) -> None:
    for slot in SLOTS:
        write(root, f"devices/{falcon.state()['hosts']['node-a'][slot]}/remove")
        assert slot not in falcon.state()["hosts"]["node-a"]
        write(root, "rescan")
        assert slot in falcon.state()["hosts"]["node-a"]


def test_a_scan_before_the_end_of_a_fault_does_not_find_what_the_fault_hid(
    falcon: SimulatorProcess, root: Path
) -> None:
    hidden = "drawer1slot7"
    falcon.fault("host_misses_device", hidden)
    compose(falcon, *SLOTS, hidden)
    write(root, "rescan")
    falcon.clear_faults()
    assert hidden not in falcon.state()["hosts"]["node-a"]
    write(root, "rescan")
    assert hidden in falcon.state()["hosts"]["node-a"]


def test_a_device_that_is_detached_without_removal_stays_as_an_entry_of_ones(
    falcon: SimulatorProcess, root: Path
) -> None:
    address = falcon.state()["hosts"]["node-a"]["drawer1slot1"]
    compose(falcon, *SLOTS[1:])
    place = root / "node-a/sys/bus/pci/devices" / address
    eventually(lambda: (place / "config").read_bytes()[:4], lambda head: head == b"\xff\xff\xff\xff")
    # One file after the other.
    eventually((place / "current_link_speed").read_text, lambda speed: speed == "Unknown\n")
    write(root, f"devices/{address}/remove")
    eventually(lambda: devices(root), lambda there: address not in there)


def test_unbinding_takes_the_driver_and_probing_brings_it_back(falcon: SimulatorProcess, root: Path) -> None:
    address = falcon.state()["hosts"]["node-a"]["drawer2slot5"]
    place = root / "node-a/sys/bus/pci/devices" / address
    write(root, "drivers/nvme/unbind", address)
    eventually((place / "driver").is_symlink, lambda bound: not bound)
    assert not (place / "nvme").exists()
    with pytest.raises(urllib.error.HTTPError):
        falcon.hold("node-a", "drawer2slot5")
    write(root, "drivers_probe", address)
    eventually((place / "driver").is_symlink, lambda bound: bound)
    assert list((place / "nvme").iterdir())


def test_a_process_is_there_as_in_proc_and_goes_with_its_device(falcon: SimulatorProcess, root: Path) -> None:
    held = falcon.hold("node-a", "drawer1slot1", command="python train.py", owner="viktor")
    process = root / "node-a/proc" / str(held["pid"])
    assert (process / "cmdline").read_bytes() == b"python\0train.py\0"
    assert "Uid:\t1002" in (process / "status").read_text()
    assert str((process / "fd/7").readlink()) == "/dev/nvidia64"
    write(root, f"devices/{held['address']}/remove")
    eventually(process.exists, lambda there: not there)


def test_a_process_that_hangs_keeps_its_device(falcon: SimulatorProcess, root: Path) -> None:
    held = falcon.hold("node-a", "drawer1slot1", hangs=True)
    write(root, f"devices/{held['address']}/remove")
    began = falcon.state()["simulated_seconds"]
    eventually(lambda: falcon.state()["simulated_seconds"], lambda now: now > began + 6)
    assert held["address"] in devices(root)
    falcon.release("node-a", held["pid"])
    eventually(lambda: devices(root), lambda there: held["address"] not in there)


@pytest.mark.parametrize(
    ("kind", "target", "file"),
    [
        ("host_rescan_hangs", "node-a", "rescan"),
        ("host_remove_hangs", "node-a", "devices/0000:40:00.0/remove"),
        ("host_read_hangs", "drawer1slot1", "devices/0000:40:00.0/config"),
    ],
)
def test_what_hangs_hangs_until_the_fault_ends(
    falcon: SimulatorProcess, root: Path, kind: str, target: str, file: str
) -> None:
    place = root / "node-a/sys/bus/pci" / file
    fault = falcon.fault(kind, target)
    # Nobody is at the other end: an open that waits would wait for ever.
    handle = os.open(place, os.O_RDONLY | os.O_NONBLOCK)
    assert select.select([], [], [], 0.01) == ([], [], [])
    assert place.is_fifo()
    os.close(handle)
    falcon.end_fault(fault)
    assert place.is_file()


def test_two_chassis_share_the_hosts_they_are_cabled_to(falcon: SimulatorProcess, root: Path) -> None:
    with SimulatorProcess("--hosts-root", str(root), "--speed", "20", chassis="falcon-2") as second:
        mine, other = falcon.state()["hosts"]["node-b"], second.state()["hosts"]["node-b"]
        assert not set(mine.values()) & set(other.values())
        assert devices(root, "node-b") >= {*mine.values(), *other.values()}
        for address in (next(iter(mine.values())), next(iter(other.values()))):
            write(root, f"devices/{address}/remove", host="node-b")
        eventually(lambda: len(second.state()["hosts"]["node-b"]), lambda count: count == len(other) - 1)
        eventually(lambda: len(falcon.state()["hosts"]["node-b"]), lambda count: count == len(mine) - 1)
        write(root, "rescan", host="node-b")
        eventually(lambda: falcon.state()["hosts"]["node-b"], lambda shown: shown == mine)
        eventually(lambda: second.state()["hosts"]["node-b"], lambda shown: shown == other)
        # The first one dies: whoever is left minds the host's own devices, too.
        falcon.process.kill()
        falcon.process.wait()
        write(root, "devices/0000:17:00.0/remove", host="node-b")
        eventually(lambda: devices(root, "node-b"), lambda there: "0000:17:00.0" not in there)
        write(root, "rescan", host="node-b")
        eventually(lambda: devices(root, "node-b"), lambda there: "0000:17:00.0" in there)
    with SimulatorProcess("--hosts-root", str(root), "--speed", "20") as again:
        assert again.state()["hosts"]["node-b"] == mine


def test_a_moved_cable_moves_what_hosts_see(falcon: SimulatorProcess, root: Path) -> None:
    moved = falcon.state()["hosts"]["node-b"]["drawer1slot5"]
    falcon.ask_control("POST", "/chassis/falcon-1/cabling", {"port": "H2", "host": "node-c"})
    ends = ("hostport1_H2", "drawer1slot5")
    # A host finds in a scan what has a link by then: the cable's trains first, then the device's.
    eventually(
        lambda: {falcon.state()["links"][end]["status"] for end in ends}, lambda statuses: statuses == {"LinkUp"}
    )
    write(root, "rescan", host="node-c")
    eventually(lambda: falcon.state()["hosts"]["node-c"], lambda shown: "drawer1slot5" in shown)
    ghost = root / "node-b/sys/bus/pci/devices" / moved / "config"
    assert ghost.read_bytes()[:2] == b"\xff\xff"


def test_without_a_folder_hosts_are_not_played() -> None:
    with SimulatorProcess() as plain:
        assert plain.state()["hosts"] == {}
        for ask in (lambda: plain.hold("node-a", "drawer1slot1"), lambda: plain.fault("host_rescan_hangs", "node-a")):
            with pytest.raises(urllib.error.HTTPError) as refused:
                ask()
            assert refused.value.code == 400
            assert "--hosts-root" in refused.value.read().decode()


def test_a_folder_that_cannot_be_used_is_said() -> None:
    with pytest.raises(RuntimeError, match="the hosts cannot be simulated in"):
        SimulatorProcess("--hosts-root", "/dev/null/hosts")
