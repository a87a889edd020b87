"""Taking devices from a host that runs the real agent: idle ones, held ones, and all that may go wrong."""

from __future__ import annotations

import threading
import time

import pytest

from hostwire.protocol import DeviceSelector, DrainRequest, HoldersRequest, RescanRequest, RestoreRequest
from tests.agent.conftest import H1_SLOTS, Lab
from tests.waiting import eventually

pytestmark = pytest.mark.process

GPU = ("0x10DE", "0x1DB4")


def test_an_idle_gpu_is_taken_off_the_bus_and_the_report_no_longer_has_it(lab: Lab) -> None:
    address = lab.shown["drawer1slot1"]
    # One that the test before took off the bus is there at once, and for NVML a moment later.
    lab.agent.report(lambda seen: address in {gpu.address for gpu in seen.gpus})
    answer = lab.agent.ask(DrainRequest(DeviceSelector(address)))
    assert (answer.outcome, answer.holders, answer.cut_off) == ("removed", (), ())
    assert [(step.name, step.outcome) for step in answer.steps] == [
        ("look", "done"),
        ("stop new use by NVML", "done"),
        ("unbind", "done"),
        ("remove", "done"),
    ]
    assert not lab.folder(address).exists()
    # A report that was begun before may come after the answer.
    lab.agent.report(lambda seen: address not in {found.address for found in seen.devices})


def test_a_device_is_found_by_its_serial_number_alone(lab: Lab) -> None:
    serial = lab.falcon.state()["devices"]["drawer2slot5"]
    answer = lab.agent.ask(DrainRequest(DeviceSelector(serial=serial.lower())))
    assert answer.outcome == "removed"
    assert answer.devices[0].address == "0000:4c:00.0"


def test_a_device_that_was_removed_before_is_removed(lab: Lab) -> None:
    wanted = DeviceSelector(lab.shown["drawer1slot1"], *GPU)
    assert lab.agent.ask(DrainRequest(wanted)).outcome == "removed"
    again = lab.agent.ask(DrainRequest(wanted))
    assert again.outcome == "removed"
    assert "nothing to do" in again.sentence


def test_a_held_device_is_refused_with_the_processes_and_their_owners(lab: Lab) -> None:
    began = time.time()
    held = lab.falcon.hold("node-a", "drawer1slot1", command="python train.py --epochs 90", owner="maria")
    lab.falcon.hold("node-a", "drawer1slot2", owner="viktor")
    answer = lab.agent.ask(DrainRequest(DeviceSelector(held["address"])))
    assert answer.outcome == "in_use"
    assert [(who.pid, who.command, who.owner, who.what) for who in answer.holders] == [
        (held["pid"], "python train.py --epochs 90", "maria", "/dev/nvidia64")
    ]
    assert "python train.py --epochs 90" in answer.sentence
    assert "maria" in answer.sentence
    assert abs(answer.holders[0].started - began) <= 60
    assert (lab.folder(held["address"]) / "driver").is_symlink()
    asked = lab.agent.ask(HoldersRequest(DeviceSelector(held["address"])))
    assert (asked.outcome, asked.holders) == ("done", answer.holders)
    seen = lab.agent.report(lambda seen: lab.shown["drawer1slot2"] in seen.holders).holders
    assert seen[held["address"]] == answer.holders
    assert seen[lab.shown["drawer1slot2"]][0].owner == "viktor"


def test_a_drain_waits_until_the_last_holder_has_left(lab: Lab) -> None:
    held = lab.falcon.hold("node-a", "drawer1slot1")
    command = lab.agent.send(DrainRequest(DeviceSelector(held["address"]), wait=60))
    eventually(lab.agent.log.read_text, lambda said: f"{command.nonce} begins" in said)
    lab.falcon.release("node-a", held["pid"])
    answer = lab.agent.answer(command)
    assert (answer.outcome, answer.cut_off) == ("removed", ())


def test_a_drain_that_waited_long_enough_says_who_is_still_there(lab: Lab) -> None:
    held = lab.falcon.hold("node-a", "drawer1slot1", owner="viktor")
    answer = lab.agent.ask(DrainRequest(DeviceSelector(held["address"]), wait=0.6))
    assert answer.outcome == "in_use"
    assert "after 0.6 s" in answer.sentence
    assert lab.folder(held["address"]).exists()


def test_force_takes_a_held_device_and_says_from_whom(lab: Lab) -> None:
    held = lab.falcon.hold("node-a", "drawer1slot1", owner="maria")
    answer = lab.agent.ask(DrainRequest(DeviceSelector(held["address"]), force=True))
    assert answer.outcome == "removed"
    assert [(who.pid, who.owner) for who in answer.cut_off] == [(held["pid"], "maria")]
    assert "removed by force while in use" in answer.sentence
    assert not lab.folder(held["address"]).exists()


def test_force_against_a_process_that_hangs_ends_in_the_truth(lab: Lab) -> None:
    held = lab.falcon.hold("node-a", "drawer1slot1", hangs=True)
    answer = lab.agent.ask(DrainRequest(DeviceSelector(held["address"]), force=True))
    assert answer.outcome == "timed_out"
    assert answer.steps[-1].name == "unbind"
    assert [found.address for found in answer.devices] == [held["address"]]
    # It goes on answering, and once the process has ended the device goes.
    lab.falcon.release("node-a", held["pid"])
    eventually(
        lambda: lab.agent.ask(DrainRequest(DeviceSelector(held["address"]))).outcome,
        lambda outcome: outcome == "removed",
    )


def test_a_mounted_drive_is_refused_even_by_force(lab: Lab) -> None:
    address = lab.shown["drawer2slot5"]
    lab.falcon.mount("node-a", "drawer2slot5", "/data")
    for force in (False, True):
        answer = lab.agent.ask(DrainRequest(DeviceSelector(address), force=force))
        assert answer.outcome == "refused"
        assert "mounted on /data" in answer.sentence
        assert [(who.kind, who.what) for who in answer.holders] == [("mount", "/data")]
    lab.falcon.unmount("node-a", "drawer2slot5")
    assert lab.agent.ask(DrainRequest(DeviceSelector(address))).outcome == "removed"


def test_the_card_that_carries_the_network_is_in_use_and_all_its_functions_are_looked_at(lab: Lab) -> None:
    answer = lab.agent.ask(DrainRequest(DeviceSelector("0000:02:00.1")))
    assert answer.outcome == "in_use"
    assert [(who.kind, who.what) for who in answer.holders] == [("interface", "enp0200f0"), ("interface", "enp0200f1")]
    assert lab.agent.ask(DrainRequest(DeviceSelector("0000:02:00.1"), force=True)).outcome == "removed"
    assert not lab.folder("0000:02:00.0").exists()


def test_what_fits_several_devices_or_another_one_is_refused(lab: Lab) -> None:
    several = lab.agent.ask(DrainRequest(DeviceSelector("", *GPU)))
    assert several.outcome == "refused"
    assert "0000:40:00.0" in several.sentence
    other = lab.agent.ask(DrainRequest(DeviceSelector("0000:40:00.0", serial="ANOTHER")))
    assert other.outcome == "refused"
    assert "another device" in other.sentence
    assert lab.agent.ask(DrainRequest(DeviceSelector())).outcome != "refused"
    assert len(lab.shown) == 9


def test_no_address_leads_out_of_the_bus(lab: Lab) -> None:
    for address in ("../../../../etc", "0000:40:00.0/../0000:41:00.0", "x" * 5000):
        answer = lab.agent.ask(DrainRequest(DeviceSelector(address)))
        assert answer.outcome in ("removed", "failed")
        assert len(answer.steps) <= 1
    assert len(lab.shown) == 9


def test_a_removal_that_never_returns_is_reported_and_the_agent_goes_on(lab: Lab) -> None:
    fault = lab.falcon.fault("host_remove_hangs", "node-a")
    address = lab.shown["drawer1slot1"]
    answer = lab.agent.ask(DrainRequest(DeviceSelector(address)))
    assert answer.outcome == "timed_out"
    assert (answer.steps[-1].name, answer.steps[-1].outcome) == ("remove", "timed_out")
    assert "did not end within 2 s" in answer.sentence
    assert [found.driver for found in answer.devices] == [""]
    lab.falcon.end_fault(fault)
    # The undoing of the half that was done: the device is back with its driver.
    back = lab.agent.ask(RestoreRequest(DeviceSelector(address)))
    assert (back.outcome, back.devices[0].driver) == ("seen", "nvidia")
    assert lab.agent.ask(DrainRequest(DeviceSelector(address))).outcome == "removed"


def test_a_device_whose_reads_hang_delays_no_other(lab: Lab) -> None:
    address = lab.shown["drawer1slot4"]
    others = set(lab.shown.values()) - {address}
    lab.falcon.fault("host_read_hangs", "drawer1slot4")
    # A report may have been begun before all of them were there.
    report = lab.agent.report(
        lambda seen: (
            any(found.problems for found in seen.devices)
            and others <= {found.address for found in seen.devices if found.vendor_id}
        )
    )
    stuck = {found.address: found.problems for found in report.devices if found.problems}
    assert list(stuck) == [address]
    assert "did not end within" in stuck[address][0] or "does not end" in stuck[address][0]
    assert lab.agent.ask(DrainRequest(DeviceSelector(lab.shown["drawer1slot2"]))).outcome == "removed"


def test_a_device_that_vanishes_midway_is_gone_and_not_an_error(lab: Lab) -> None:
    held = lab.falcon.hold("node-a", "drawer1slot1")
    command = lab.agent.send(DrainRequest(DeviceSelector(held["address"]), wait=20))
    lab.agent.report(lambda seen: bool(seen.busy))
    (lab.folder(held["address"]) / "remove").write_text("1\n")
    answer = lab.agent.answer(command)
    assert answer.outcome == "removed"


def test_a_device_that_the_bmc_took_first_is_an_entry_that_no_longer_answers_and_can_be_cleared(lab: Lab) -> None:
    held = lab.falcon.hold("node-a", "drawer1slot1", owner="maria")
    lab.attach(*H1_SLOTS[1:])
    report = lab.agent.report(lambda seen: any(not found.answers for found in seen.devices))
    ghost = next(found for found in report.devices if not found.answers)
    assert (ghost.address, ghost.vendor_id, ghost.width) == (held["address"], "0x10de", 0)
    answer = lab.agent.ask(DrainRequest(DeviceSelector(held["address"])))
    assert answer.outcome == "removed"
    assert [who.owner for who in answer.cut_off] == ["maria"]


def test_two_drains_of_one_device_at_once_are_one_removal(lab: Lab) -> None:
    held = lab.falcon.hold("node-a", "drawer1slot1")
    commands = [lab.agent.send(DrainRequest(DeviceSelector(held["address"]), wait=60)) for _ in range(2)]
    refusals = [f"{command.nonce}: refused" for command in commands]
    eventually(lab.agent.log.read_text, lambda said: any(one in said for one in refusals))
    lab.falcon.release("node-a", held["pid"])
    outcomes = sorted(lab.agent.answer(command).outcome for command in commands)
    assert outcomes == ["refused", "removed"]


def test_many_devices_are_drained_side_by_side(lab: Lab) -> None:
    shown = {slot: address for slot, address in lab.shown.items() if slot.startswith("drawer1")}
    commands = [lab.agent.send(DrainRequest(DeviceSelector(address))) for address in shown.values()]
    assert {lab.agent.answer(command).outcome for command in commands} == {"removed"}
    assert not set(lab.shown) & set(shown)


def test_a_process_that_comes_in_between_keeps_its_device(lab: Lab) -> None:
    """Somebody opens devices all the time while they are drained: whoever was not told of is never cut off."""
    address, ended = lab.shown["drawer1slot1"], threading.Event()

    def come_and_go() -> None:
        while not ended.is_set():
            try:
                held = lab.falcon.hold("node-a", "drawer1slot1")
                time.sleep(0.05)
                lab.falcon.release("node-a", held["pid"])
            except OSError:  # the device is gone, or has no driver just now
                time.sleep(0.02)

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        for _ in range(4):
            answer = lab.agent.ask(DrainRequest(DeviceSelector(address), wait=0.3))
            assert answer.outcome in ("removed", "in_use")
            assert answer.cut_off == ()
            if answer.outcome == "in_use":
                assert answer.holders
            assert lab.agent.ask(RestoreRequest(DeviceSelector(address), wait=5)).outcome == "seen"
    finally:
        ended.set()
        thread.join()


def test_a_rescan_brings_a_drained_device_back_while_it_is_still_attached(lab: Lab) -> None:
    address = lab.shown["drawer1slot1"]
    lab.agent.ask(DrainRequest(DeviceSelector(address)))
    answer = lab.agent.ask(RescanRequest((DeviceSelector(vendor_id=GPU[0], device_id=GPU[1]),), wait=10))
    assert answer.outcome == "seen"
    assert (answer.devices[0].address, answer.devices[0].driver) == (address, "nvidia")
