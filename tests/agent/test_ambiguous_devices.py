"""Draining cards that do not tell which they are: of several that it may be, none is taken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agent.drain import drain
from agent.machine import Machine
from agent.step_execution import StepLog
from falconweb.testing import AgentProcess
from falconweb.testing.processes import SimulatorProcess
from hostwire.protocol import DeviceSelector, DrainRequest, RestoreRequest
from tests.agent.conftest import H1_SLOTS, Lab

pytestmark = pytest.mark.process

GPU = ("0x10de", "0x1db4")
SERIAL = "1320000000001"  # of none that the host tells


def silence(falcon: SimulatorProcess, hosts: Path, *slots: str) -> list[str]:
    """Let cards of `node-a` tell no serial number, and return their addresses; before its agent has seen them."""
    shown = falcon.state()["hosts"]["node-a"]
    for slot in slots:
        (hosts / "node-a/sys/bus/pci/devices" / shown[slot] / "vpd").write_bytes(b"")
    return [shown[slot] for slot in slots]


@pytest.fixture
def silent(
    simulated_falcon: SimulatorProcess, simulated_hosts: Path, host_agent: Callable[..., AgentProcess]
) -> Callable[..., tuple[Lab, list[str]]]:
    """A function that starts the agent of `node-a` where the cards of these slots tell no serial number."""

    def start(*slots: str) -> tuple[Lab, list[str]]:
        places = silence(simulated_falcon, simulated_hosts, *slots)
        return Lab(simulated_falcon, simulated_hosts, host_agent("node-a", AGENT_NVML="")), places

    return start


def test_of_cards_that_report_no_serial_number_none_is_said_to_be_gone_and_none_is_taken(
    silent: Callable[..., tuple[Lab, list[str]]],
) -> None:
    lab, (first, second) = silent(*H1_SLOTS[:2])
    lab.falcon.hold("node-a", H1_SLOTS[0], owner="maria")
    for wanted in (
        DeviceSelector("", *GPU, serial=SERIAL),
        DeviceSelector(first, *GPU, serial=SERIAL),
        DeviceSelector(second, *GPU, serial=SERIAL),
        DeviceSelector("0000:7f:00.0", *GPU, serial=SERIAL),
    ):
        for force in (False, True):
            answer = lab.agent.ask(DrainRequest(wanted, force=force))
            assert answer.outcome == "refused", wanted
            assert "cannot be identified" in answer.sentence
            assert {found.address for found in answer.devices} == {first, second}
    assert {first, second} <= set(lab.shown.values())
    # An address alone is the word of somebody who looked.
    assert lab.agent.ask(DrainRequest(DeviceSelector(second))).outcome == "removed"


def test_the_only_card_that_reports_no_serial_number_is_taken_where_it_was_seen(
    silent: Callable[..., tuple[Lab, list[str]]],
) -> None:
    lab, (place,) = silent(H1_SLOTS[0])
    unseen = DeviceSelector("", *GPU, serial=SERIAL)
    assert lab.agent.ask(DrainRequest(unseen)).outcome == "refused", "nobody has said that it is that one"
    assert lab.agent.ask(DrainRequest(DeviceSelector(place, *GPU, serial=SERIAL))).outcome == "removed"
    assert lab.agent.ask(DrainRequest(unseen)).outcome == "removed", "the others tell that they are others"
    assert not lab.folder(place).exists()


def test_a_card_that_only_lost_its_driver_is_given_it_again_although_it_reports_no_serial_number(
    silent: Callable[..., tuple[Lab, list[str]]],
) -> None:
    lab, (place,) = silent(H1_SLOTS[0])
    fault = lab.falcon.fault("host_remove_hangs", "node-a")
    assert lab.agent.ask(DrainRequest(DeviceSelector(place, *GPU, serial=SERIAL))).outcome == "timed_out"
    lab.falcon.end_fault(fault)
    assert not (lab.folder(place) / "driver").is_symlink()
    back = lab.agent.ask(RestoreRequest(DeviceSelector("", *GPU, serial=SERIAL)))
    assert (back.outcome, [(found.address, found.driver) for found in back.devices]) == ("seen", [(place, "nvidia")])


def test_a_kind_without_an_address_or_a_serial_number_names_no_card(
    silent: Callable[..., tuple[Lab, list[str]]],
) -> None:
    lab, _ = silent()
    assert lab.agent.ask(DrainRequest(DeviceSelector("", "0x8086", "0x1528"))).outcome == "refused"
    assert "0000:02:00.0" in {found.address for found in lab.agent.report().devices}


def test_a_card_of_two_functions_is_one_card(silent: Callable[..., tuple[Lab, list[str]]]) -> None:
    lab, _ = silent()
    card = next(found for found in lab.agent.report().devices if found.address == "0000:02:00.1")
    answer = lab.agent.ask(
        DrainRequest(DeviceSelector(vendor_id=card.vendor_id, device_id=card.device_id, serial=card.serial))
    )
    assert (answer.outcome, [who.kind for who in answer.holders]) == ("in_use", ["interface", "interface"])


def test_a_card_that_cannot_be_read_may_be_the_one_that_is_looked_for(
    silent: Callable[..., tuple[Lab, list[str]]],
) -> None:
    lab, _ = silent()
    place, serial = lab.shown[H1_SLOTS[0]], lab.falcon.state()["devices"][H1_SLOTS[0]]
    lab.falcon.fault("host_read_hangs", H1_SLOTS[0])
    lab.agent.report(lambda seen: any(found.problems for found in seen.devices))
    for wanted in (DeviceSelector("", *GPU, serial=serial), DeviceSelector("", "0x15b3", "0x1017", serial=SERIAL)):
        answer = lab.agent.ask(DrainRequest(wanted))
        assert (answer.outcome, [found.address for found in answer.devices]) == ("refused", [place])
    readable = lab.falcon.state()["devices"][H1_SLOTS[1]]
    assert lab.agent.ask(DrainRequest(DeviceSelector("", *GPU, serial=readable))).outcome == "removed"


def test_an_agent_that_has_just_been_started_reads_the_serial_numbers_of_gpus_from_the_driver(
    simulated_falcon: SimulatorProcess, simulated_hosts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = silence(simulated_falcon, simulated_hosts, *H1_SLOTS)
    serial = simulated_falcon.state()["devices"][H1_SLOTS[1]]
    simulated_falcon.hold("node-a", H1_SLOTS[1], owner="maria")
    root = simulated_hosts / "node-a"
    monkeypatch.setenv("AGENT_NVML", "simulator.nvml")
    monkeypatch.setenv("AGENT_ROOT", str(root))
    machine, log = Machine(root, read_seconds=30.0, step_seconds=30.0), StepLog()
    try:
        wanted = DeviceSelector("", *GPU, serial=serial)
        outcome, _ = drain(machine, DrainRequest(wanted, force=True), log, wait_for=lambda _: False)
    finally:
        machine.close()
    assert (outcome, [who.owner for who in log.cut_off]) == ("removed", ["maria"])
    assert not (root / "sys/bus/pci/devices" / places[1]).exists()
