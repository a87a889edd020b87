"""The simulator plays any model whose facts are published, and the site takes it for that."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabric.bmc.chassis_profiles import profile, profile_files, profile_of
from fabric.bmc.client import BmcClient
from fabric.bmc.discovery import discover
from fabric.bmc.types import DrawerMode
from falconweb.testing.processes import SimulatorProcess
from simulator.hosts import HostSimulation
from simulator.lab import LabError, load_lab, with_profile
from simulator.physics import Clock
from simulator.rules import ADVANCED, Allocation, load_rules, profile_names, refusal
from simulator.state import build_state
from tests.bmc.conftest import pinned


def test_each_profile_of_the_site_can_be_played() -> None:
    assert profile_names() == sorted(profile_files())
    for name in profile_names():
        rules, known = load_rules(name), profile(name)
        assert profile_of(rules.manufacturer, rules.model) is known
        assert known.slots in {0, rules.slots}
        assert set(rules.modes) == {mode.value for mode, _ in known.modes}
        lab = with_profile(load_lab(), "falcon-1", name)
        played = build_state(lab, "falcon-1", lab.chassis["falcon-1"])
        assert [len(drawer.slots) for drawer in played.drawers.values()] == [rules.slots, rules.slots]


async def test_a_chassis_of_another_model_is_that_to_the_site() -> None:
    with SimulatorProcess("--profile", "h3-falcon-c5022", "--dialect", "cxl") as process:
        async with BmcClient(pinned(process)) as bmc:
            inventory = await discover(bmc)
    outer = next(one for one in inventory.chassis if not one.contained_by)
    assert profile_of(outer.manufacturer, outer.model).key == "h3-falcon-c5022"
    # One for each slot that a host port can have.
    assert inventory.dialect_reason.endswith("there are 88 bridges.")
    first = inventory.drawers[0]
    assert (first.mode, first.allowed_modes) == (DrawerMode.UNKNOWN, ())
    slots = [slot for slot in inventory.slots if slot.chassis_uri == first.uri]
    assert [(slot.number, slot.lanes) for slot in slots] == [(number, 8) for number in range(1, 23)]


def test_slots_of_a_large_chassis_have_addresses_on_hosts_that_no_other_has(tmp_path: Path) -> None:
    lab = with_profile(load_lab(), "falcon-1", "h3-falcon-c5022")
    states = [build_state(lab, name, chassis) for name, chassis in lab.chassis.items()]
    hosts = [HostSimulation(state, lab, tmp_path, Clock(), index=index) for index, state in enumerate(states)]
    addresses = [host.address(slot) for host, state in zip(hosts, states, strict=True) for slot in state.all_slots()]
    assert len(set(addresses)) == len(addresses) == 44 + 16


def test_rules_of_another_model_are_its_own() -> None:
    ports = {f"H{number}": f"node-{number}" for number in range(1, 10)}
    held = Allocation(ports, dict(enumerate(ports, start=1)))
    assert refusal(ADVANCED, held, load_rules("h3-falcon-c5022")) == (
        "Falcon C5022: at most 8 hosts share a drawer, and 9 have devices."
    )
    assert refusal(ADVANCED, held, load_rules("h3-falcon-4109")) is None


def test_a_profile_that_is_none_or_does_not_fit_the_lab_is_refused() -> None:
    lab = load_lab()
    with pytest.raises(LabError, match="there is no profile 'falcon'"):
        with_profile(lab, "falcon-1", "falcon")
