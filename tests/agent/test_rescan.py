"""Devices that are attached to a host that runs the real agent: seen, not seen, and told from others."""

from __future__ import annotations

import pytest

from hostwire.protocol import DeviceSelector, DrainRequest, RescanRequest
from tests.agent.conftest import H1_SLOTS, Lab
from tests.waiting import eventually

pytestmark = pytest.mark.process

CARD = "drawer1slot7"


def test_an_attached_device_is_seen_once_the_bus_was_scanned(lab: Lab) -> None:
    serial = lab.falcon.state()["devices"][CARD]
    lab.attach(*H1_SLOTS, CARD)
    assert CARD not in lab.shown
    answer = lab.agent.ask(RescanRequest((DeviceSelector(serial=serial),), wait=20))
    assert answer.outcome == "seen"
    (found,) = answer.devices
    assert (found.address, found.serial, found.width, found.speed) == (lab.shown[CARD], serial, 16, 8.0)
    assert "x16 at 8 GT/s" in answer.sentence
    assert found.driver == "mlx5_core"
    assert lab.agent.ask(DrainRequest(DeviceSelector(serial=serial))).outcome == "removed"


def test_a_device_without_a_known_serial_number_is_the_new_one_of_its_kind(lab: Lab) -> None:
    known = tuple(found.address for found in lab.agent.report().devices)
    gone = lab.agent.ask(DrainRequest(DeviceSelector(lab.shown["drawer1slot3"]))).devices[0]
    kind = DeviceSelector(vendor_id="0x10DE", device_id="0x1DB4")
    before = tuple(address for address in known if address != gone.address)
    answer = lab.agent.ask(RescanRequest((kind,), wait=20, known=before))
    assert (answer.outcome, answer.devices[0].address) == ("seen", gone.address)
    # Asked again, what was seen is seen: nothing depends on who scanned when.
    assert lab.agent.ask(RescanRequest((kind,), wait=5, known=before)).devices == answer.devices


def test_a_device_that_does_not_appear_is_not_seen_when_the_time_is_over(lab: Lab) -> None:
    lab.falcon.fault("host_misses_device", CARD)
    lab.attach(*H1_SLOTS, CARD)
    wanted = DeviceSelector(vendor_id="0x15b3", serial=lab.falcon.state()["devices"][CARD])
    answer = lab.agent.ask(RescanRequest((wanted,), wait=1))
    assert answer.outcome == "not_seen"
    assert wanted.serial in answer.sentence


def test_a_scan_that_never_returns_is_reported_and_the_agent_goes_on(lab: Lab) -> None:
    fault = lab.falcon.fault("host_rescan_hangs", "node-a")
    answer = lab.agent.ask(RescanRequest((), wait=1))
    assert (answer.outcome, answer.steps[-1].name) == ("timed_out", "rescan")
    assert lab.agent.ask(DrainRequest(DeviceSelector(lab.shown["drawer1slot1"]))).outcome == "removed"
    lab.falcon.end_fault(fault)
    assert lab.agent.ask(RescanRequest((), wait=1)).outcome == "seen"


def test_a_degraded_link_is_reported_as_it_trained(lab: Lab) -> None:
    address = lab.shown["drawer1slot2"]
    lab.falcon.fault("link_downgrade", "drawer1slot2", lanes=4, generation="Gen1")

    def trained(width: int) -> bool:
        seen = {found.address: found for found in lab.agent.report().devices}
        return (seen[address].width, seen[address].max_width) == (width, 16)

    eventually(lambda: trained(4), lambda so: so)


def test_what_is_left_of_a_device_makes_room_for_the_next_one(lab: Lab) -> None:
    address, serial = lab.shown["drawer1slot1"], lab.falcon.state()["devices"]["drawer1slot1"]
    lab.attach(*H1_SLOTS[1:])
    lab.agent.report(lambda seen: any(not found.answers for found in seen.devices))
    lab.attach(*H1_SLOTS)
    answer = lab.agent.ask(RescanRequest((DeviceSelector(serial=serial),), wait=20))
    assert (answer.outcome, answer.devices[0].address) == ("seen", address)


def test_gpus_report_their_readings_by_nvml(lab: Lab) -> None:
    report = lab.agent.report(lambda seen: len(seen.gpus) == 8 + 8)
    serials = lab.falcon.state()["devices"]
    gpu = next(one for one in report.gpus if one.address == lab.shown["drawer1slot1"])
    assert gpu.serial == serials["drawer1slot1"]
    assert gpu.memory_total == 16384
    assert gpu.watts is not None
    assert gpu.watts > 20
    assert gpu.celsius == pytest.approx(45, abs=40)
    assert report.nvml == ""


def test_a_report_says_whose_it_is_and_what_is_local(lab: Lab) -> None:
    first, second = lab.agent.report(), lab.agent.report()
    assert (first.hostname, first.uuid.lower()) == ("node-a", lab.agent.identity.lower())
    assert (second.started, second.number) > (first.started, first.number)
    addresses = {found.address for found in first.devices}
    assert {"0000:02:00.0", "0000:05:00.0", "0000:10:00.0"} <= addresses
    drive = next(found for found in first.devices if found.address == "0000:05:00.0")
    assert (drive.driver, drive.nodes) == ("nvme", ("/dev/nvme0", "/dev/nvme0n1", "/dev/nvme0n1p1"))
    assert [(who.kind, who.what) for who in first.holders["0000:05:00.0"]] == [("mount", "/")]
