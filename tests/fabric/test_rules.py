"""The three modes of a drawer, case by case: the published examples first, then every slot, port and edge."""

from __future__ import annotations

import pytest

from fabric.bmc.types import DrawerMode
from fabric.rules import Connection, DrawerState, why_not_attach, why_not_mode

ONE, TWO, ADVANCED, UNKNOWN = (
    DrawerMode.STANDARD_ONE_HOST,
    DrawerMode.STANDARD_TWO_HOSTS,
    DrawerMode.ADVANCED,
    DrawerMode.UNKNOWN,
)
ALL_SLOTS = range(1, 9)
A, B, C, D = "node-a", "node-b", "node-c", "node-d"


def drawer(mode: DrawerMode, hosts: dict[str, str], attached: dict[int, str] | None = None) -> DrawerState:
    """A drawer with a host (or '') behind each host port."""
    connections = tuple(
        Connection(label=label, number=int(label.removeprefix("H")), host=host) for label, host in hosts.items()
    )
    return DrawerState(mode=mode, connections=connections, attached=attached or {})


# --- the published examples ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("slot", ALL_SLOTS)
def test_standard_with_one_host_reaches_all_eight_slots(slot: int) -> None:
    assert why_not_attach(drawer(ONE, {"H1": A}), slot=slot, label="H1") == ""
    all_others = {number: "H1" for number in ALL_SLOTS if number != slot}
    assert why_not_attach(drawer(ONE, {"H1": A}, all_others), slot=slot, label="H1") == ""


@pytest.mark.parametrize("slot", ALL_SLOTS)
@pytest.mark.parametrize("label", ["H1", "H2"])
def test_standard_with_two_hosts_gives_each_its_half(slot: int, label: str) -> None:
    said = why_not_attach(drawer(TWO, {"H1": A, "H2": B}), slot=slot, label=label)
    if (slot <= 4) == (label == "H1"):
        assert said == ""
    else:
        half = "1 to 4" if label == "H1" else "5 to 8"
        assert f"{label} reaches slots {half}, not slot {slot}" in said


@pytest.mark.parametrize(
    "split",
    [
        ["H1"] * 8,
        ["H1"] * 4 + ["H2"] * 4,
        ["H1", "H2"] * 4,
        ["H1", "H2", "H3", "H1", "H2", "H3", "H1", "H2"],
        ["H3"] * 1 + ["H1"] * 1 + ["H2"] * 6,
        ["H2"] * 7 + ["H3"],
    ],
)
def test_advanced_lets_up_to_three_hosts_share_the_slots_in_any_split(split: list[str]) -> None:
    attached: dict[int, str] = {}
    for slot, label in zip(ALL_SLOTS, split, strict=True):
        assert why_not_attach(drawer(ADVANCED, {"H1": A, "H2": B, "H3": C}, attached), slot=slot, label=label) == ""
        attached[slot] = label


# --- standard, one host -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attached", "slot", "label", "said"),
    [
        ({}, 1, "H1", ""),
        ({}, 8, "H2", ""),  # which of the cabled ports is the one is told by the first attachment
        ({1: "H1"}, 2, "H1", ""),
        ({1: "H1"}, 2, "H2", "H1 is the port in use"),
        ({5: "H2"}, 1, "H1", "H2 is the port in use"),
        ({1: "H1"}, 1, "H2", ""),  # the only device moves: its old port is free by then
        ({1: "H1", 2: "H1"}, 1, "H2", "H1 is the port in use"),
    ],
)
def test_standard_one_host(attached: dict[int, str], slot: int, label: str, said: str) -> None:
    answer = why_not_attach(drawer(ONE, {"H1": A, "H2": B}, attached), slot=slot, label=label)
    assert said in answer
    assert bool(said) == bool(answer)


def test_one_host_with_two_cables_is_still_one_port_at_a_time() -> None:
    assert "only one host port" in why_not_attach(drawer(ONE, {"H1": A, "H2": A}, {1: "H1"}), slot=2, label="H2")


# --- standard, two hosts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hosts", "slot", "label", "said"),
    [
        ({"H3": B, "H4": A}, 1, "H3", ""),  # the lower number has the first half
        ({"H3": B, "H4": A}, 5, "H4", ""),
        ({"H4": A, "H3": B}, 1, "H3", ""),  # in whatever order they are listed
        ({"H10": A, "H9": B}, 1, "H9", ""),  # by number, not by text
        ({"H10": A, "H9": B}, 1, "H10", "H10 reaches slots 5 to 8, not slot 1"),
        ({"H1": A, "H2": B, "H3": C}, 1, "H3", "only H1 and H2 reach its slots, H3 does not"),
        ({"H1": A, "H2": B, "H3": C}, 8, "H3", "only H1 and H2 reach its slots, H3 does not"),
        ({"H1": A, "H2": A}, 5, "H2", ""),  # one host on both connections has both halves
        ({"H1": A}, 4, "H1", ""),
        ({"H1": A}, 5, "H1", "H1 reaches slots 1 to 4, not slot 5"),
    ],
)
def test_standard_two_hosts(hosts: dict[str, str], slot: int, label: str, said: str) -> None:
    answer = why_not_attach(drawer(TWO, hosts), slot=slot, label=label)
    assert said in answer
    assert bool(said) == bool(answer)


# --- advanced -----------------------------------------------------------------------------------------------------

FOUR = {"H1": A, "H2": B, "H3": C, "H4": D}


@pytest.mark.parametrize(
    ("hosts", "attached", "slot", "label", "said"),
    [
        (FOUR, {1: "H1", 2: "H2", 3: "H3"}, 4, "H4", "at most 3 hosts, and this would be the 4th"),
        (FOUR, {1: "H1", 2: "H2", 3: "H3"}, 4, "H3", ""),
        (FOUR, {1: "H1", 2: "H2", 3: "H3"}, 3, "H4", ""),  # the third host's only device moves to the fourth
        (FOUR, {1: "H1", 2: "H2", 3: "H3", 4: "H3"}, 3, "H4", "would be the 4th"),
        ({**FOUR, "H4": A}, {1: "H1", 2: "H2", 3: "H3"}, 4, "H4", ""),  # hosts are counted, not cables
        (FOUR, {1: "H1", 2: "H1", 3: "H1"}, 8, "H4", ""),
    ],
)
def test_advanced(hosts: dict[str, str], attached: dict[int, str], slot: int, label: str, said: str) -> None:
    answer = why_not_attach(drawer(ADVANCED, hosts, attached), slot=slot, label=label)
    assert said in answer
    assert bool(said) == bool(answer)


# --- whatever the mode --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", list(DrawerMode))
def test_a_port_of_another_drawer_or_without_a_host_is_refused_in_every_mode(mode: DrawerMode) -> None:
    state = drawer(mode, {"H1": A, "H2": ""})
    assert why_not_attach(state, slot=1, label="H9") == "Host port H9 is not cabled to this drawer."
    assert why_not_attach(state, slot=5, label="H2") == "No host is cabled to host port H2."


@pytest.mark.parametrize("slot", ALL_SLOTS)
def test_a_chassis_that_tells_no_mode_judges_by_itself(slot: int) -> None:
    state = drawer(UNKNOWN, FOUR, {1: "H1", 2: "H2", 3: "H3"})
    assert why_not_attach(state, slot=slot, label="H4") == ""


@pytest.mark.parametrize(
    ("attached", "fits"),
    [
        ({}, {ONE, TWO, ADVANCED}),
        ({1: "H1", 4: "H1"}, {ONE, TWO, ADVANCED}),
        ({5: "H2", 8: "H2"}, {ONE, TWO, ADVANCED}),
        ({1: "H1", 5: "H2"}, {TWO, ADVANCED}),
        (dict.fromkeys(ALL_SLOTS, "H1"), {ONE, ADVANCED}),
        ({1: "H2"}, {ONE, ADVANCED}),
        ({1: "H2", 5: "H1"}, {ADVANCED}),
        ({1: "H3"}, {ONE, ADVANCED}),
        ({1: "H1", 2: "H2", 3: "H3"}, {ADVANCED}),
        ({1: "H1", 2: "H2", 3: "H3", 4: "H4"}, set()),
    ],
)
@pytest.mark.parametrize("wanted", [ONE, TWO, ADVANCED])
@pytest.mark.parametrize("now", list(DrawerMode))
def test_a_mode_is_entered_only_with_attachments_it_allows(
    now: DrawerMode, wanted: DrawerMode, attached: dict[int, str], fits: set[DrawerMode]
) -> None:
    said = why_not_mode(drawer(now, FOUR, attached), wanted)
    assert (said == "") == (wanted in fits)
    if said:
        assert said.endswith(" first.") or "serves at most 3 hosts" in said


def test_what_stands_in_the_way_of_a_mode_is_said_in_full() -> None:
    four = {"H1": A, "H2": B, "H3": C}
    attached = {1: "H1", 2: "H1", 3: "H2", 6: "H1"}
    assert why_not_mode(drawer(ADVANCED, four, attached), ONE) == (
        "In this mode one host port at a time has devices, and H1 (slots 1, 2 and 6) and H2 (slot 3) have some. "
        "Detach all but one's first."
    )
    assert why_not_mode(drawer(ADVANCED, four, attached), TWO) == (
        "Slots 3 and 6 would lose their host: in this mode H1 reaches slots 1 to 4 and H2 reaches slots 5 to 8. "
        "Detach them first."
    )
    assert why_not_mode(drawer(ADVANCED, four, {6: "H1"}), TWO).startswith("Slot 6 would lose its host: ")
    assert why_not_mode(drawer(ADVANCED, four, {1: "H1", 2: "H1"}), ONE) == ""
