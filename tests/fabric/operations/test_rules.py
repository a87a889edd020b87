"""The three modes of a drawer as one table: the published examples first, then every edge; and the chassis' own rules.

In the table a drawer is written as its host ports H1, H2, ... with the host that each leads to ('-': no cable), and as
its slots 1 to 8 with the number of the host port that each is attached to ('.': none).
"""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import get_args

import pytest
from django.utils import translation
from hypothesis import given, settings
from hypothesis import strategies as st

from core.language import english
from fabric.bmc.chassis_profiles import profile, profile_files
from fabric.bmc.types import DrawerMode
from fabric.operations.rules import (
    MODE_LABELS,
    DrawerState,
    HostConnection,
    attach_violation,
    attachment_violation,
    mode_violation,
)
from simulator import rules as chassis_rules
from tests.turns import NIGHTLY

ONE, TWO, ADVANCED, UNKNOWN = (
    DrawerMode.STANDARD_ONE_HOST,
    DrawerMode.STANDARD_TWO_HOSTS,
    DrawerMode.ADVANCED,
    DrawerMode.UNKNOWN,
)
KNOWN = (ONE, TWO, ADVANCED)
ALL_SLOTS = range(1, 9)
EMPTY = "........"
ALLOWED = ""
ONLY_ONE = "only one host port reaches its slots at a time"
A, B, C, D = "ABCD"


def drawer(mode: DrawerMode, hosts: str, attached: str = EMPTY) -> DrawerState:
    """A drawer as the table writes it."""
    return DrawerState(
        mode=mode,
        connections=tuple(
            HostConnection(label=f"H{number}", number=number, host="" if host == "-" else host)
            for number, host in enumerate(hosts, start=1)
        ),
        attached={slot: f"H{port}" for slot, port in enumerate(attached, start=1) if port != "."},
    )


def numbered(mode: DrawerMode, hosts: dict[str, str]) -> DrawerState:
    """An empty drawer whose host ports have these labels."""
    connections = [
        HostConnection(label=label, number=int(label.removeprefix("H")), host=host) for label, host in hosts.items()
    ]
    return DrawerState(mode=mode, connections=tuple(connections), attached={})


# mode, host ports, slots, which slots are to be attached, to which host port, what is said ('' is allowed)
CASES = [
    # --- as published: standard with one host, one connection reaches all 8 slots
    (ONE, "A", EMPTY, "12345678", "H1", ALLOWED),
    (ONE, "A", "1111111.", "8", "H1", ALLOWED),
    # --- as published: standard with two hosts, each of two connections reaches one half
    (TWO, "AB", EMPTY, "1234", "H1", ALLOWED),
    (TWO, "AB", EMPTY, "5678", "H2", ALLOWED),
    (TWO, "AB", EMPTY, "5678", "H1", "H1 reaches slots 1 to 4, not slot"),
    (TWO, "AB", EMPTY, "1234", "H2", "H2 reaches slots 5 to 8, not slot"),
    (TWO, "AB", "111.222.", "4", "H1", ALLOWED),
    (TWO, "AB", "111.222.", "8", "H2", ALLOWED),
    # --- as published: both connections may belong to the same host, which then has both halves
    (TWO, "AA", "1111....", "5678", "H2", ALLOWED),
    (TWO, "AA", EMPTY, "5678", "H1", "H1 reaches slots 1 to 4, not slot"),
    # --- as published: advanced, up to three hosts share the 8 slots in any split
    (ADVANCED, "A", "1111111.", "8", "H1", ALLOWED),
    (ADVANCED, "AB", "12121212", "12345678", "H1", ALLOWED),
    (ADVANCED, "AB", "12121212", "12345678", "H2", ALLOWED),
    (ADVANCED, "ABC", "1222222.", "12345678", "H3", ALLOWED),
    (ADVANCED, "ABC", "12312312", "12345678", "H3", ALLOWED),
    (ADVANCED, "ABC", "3333333.", "8", "H1", ALLOWED),
    # --- standard, one host: the first attachment tells which of several host ports it is
    (ONE, "AB", EMPTY, "12345678", "H1", ALLOWED),
    (ONE, "AB", EMPTY, "12345678", "H2", ALLOWED),
    (ONE, "AB", "1.......", "2345678", "H2", f"H1 is the port in use: {ONLY_ONE}"),
    (ONE, "AB", "....2...", "1234678", "H1", f"H2 is the port in use: {ONLY_ONE}"),
    (ONE, "AB", "1.......", "1", "H2", ALLOWED),  # the only device moves: its port is free by then
    (ONE, "AB", "11......", "1", "H2", ONLY_ONE),
    (ONE, "AB", "11......", "1", "H1", ALLOWED),  # where it is already
    (ONE, "AA", "1.......", "2345678", "H2", ONLY_ONE),  # the second cable of the same host is a second connection
    (ONE, "A-", "2.......", "2345678", "H1", "H2 is the port in use"),
    (ONE, "ABC", "12......", "3", "H3", "H1 and H2 are the ports in use"),
    # --- standard, two hosts: the two lowest host ports, cabled or not, and nobody else
    (TWO, "ABC", EMPTY, "12345678", "H3", "only H1 and H2 reach its slots, H3 does not"),
    (TWO, "-BC", EMPTY, "5678", "H2", ALLOWED),
    (TWO, "-BC", EMPTY, "1234", "H2", "H2 reaches slots 5 to 8, not slot"),
    (TWO, "-BC", EMPTY, "12345678", "H3", "only H1 and H2 reach its slots, H3 does not"),
    (TWO, "A", EMPTY, "1234", "H1", ALLOWED),  # a drawer in this mode with one host port has half of it
    (TWO, "A", EMPTY, "5678", "H1", "H1 reaches slots 1 to 4, not slot"),
    (TWO, "AB", "2...1...", "2", "H1", ALLOWED),  # others that are wrong are not this one's matter
    (TWO, "AB", "1...2...", "1", "H2", "H2 reaches slots 5 to 8, not slot 1"),
    # --- advanced: hosts are counted, not host ports
    (ADVANCED, "ABCD", "123.....", "45678", "H4", "at most 3 hosts, and this would be the 4th"),
    (ADVANCED, "ABCD", "123.....", "45678", "H3", ALLOWED),
    (ADVANCED, "ABCD", "123.....", "123", "H4", ALLOWED),  # a host's only device moves: that host is gone by then
    (ADVANCED, "ABCD", "1233....", "34", "H4", "would be the 4th"),
    (ADVANCED, "ABCD", "111.....", "12345678", "H4", ALLOWED),
    (ADVANCED, "ABCA", "123.....", "12345678", "H4", ALLOWED),  # the same host by two ports counts once
    (ADVANCED, "ABCA", "4231....", "12345678", "H1", ALLOWED),
    (ADVANCED, "ABAB", "1234....", "5678", "H4", ALLOWED),
    (ADVANCED, "ABC-", "1234....", "5678", "H3", ALLOWED),  # a port that leads nowhere adds no host
    (ADVANCED, "ABCDE", "1234....", "5678", "H5", "would be the 5th"),
    (ADVANCED, "ABCDE", "1234....", "5678", "H1", "would be the 4th"),  # too many already: none is added
    # --- a port without a host, or of another drawer, in every mode
    *[(mode, "A-", EMPTY, "12345678", "H2", "No host is cabled to host port H2.") for mode in DrawerMode],
    *[(mode, "A-", EMPTY, "18", "H3", "Host port H3 is not cabled to this drawer.") for mode in DrawerMode],
    *[(mode, "", EMPTY, "18", "H1", "Host port H1 is not cabled to this drawer.") for mode in DrawerMode],
    # --- a mode that the BMC does not tell: it judges by itself
    (UNKNOWN, "ABCD", "123.....", "12345678", "H4", ALLOWED),
    (UNKNOWN, "ABC", "12......", "12345678", "H3", ALLOWED),
]


@pytest.mark.parametrize(
    ("state", "slot", "label", "said"),
    [
        pytest.param(
            drawer(mode, hosts, attached), int(slot), label, said, id=f"{mode} {hosts} {attached} {slot}{label}"
        )
        for mode, hosts, attached, slots, label, said in CASES
        for slot in slots
    ],
)
def test_every_case_of_the_rules(state: DrawerState, slot: int, label: str, said: str) -> None:
    answer = attach_violation(state, slot=slot, label=label)
    assert (answer == "") == (said == "")
    assert said in answer


def test_every_case_is_judged_alike_where_it_is_only_planned_and_told_as_what_would_be() -> None:
    for mode, hosts, attached, slots, label, said in CASES:
        for slot in slots:
            answer = attach_violation(drawer(mode, hosts, attached), slot=int(slot), label=label, planned=True)
            assert (answer == "") == (said == ""), (mode, hosts, attached, slot, label)
            assert "The drawer is in" not in answer
            assert not re.search("in use|would be the", answer)
            if answer and "cabled to" not in answer:
                assert answer.startswith(f"In mode ‘{MODE_LABELS[mode]}’ ")


@pytest.mark.parametrize(
    ("state", "slot", "label", "said"),
    [
        (
            drawer(ONE, "AB", "1......."), 2, "H2",
            "only one host port reaches its slots at a time, and H1 and H2 would have devices: leave them to one.",
        ),
        (drawer(TWO, "ABC"), 1, "H3", "only H1 and H2 reach its slots, H3 does not."),
        (
            drawer(TWO, "AB"), 5, "H1",
            "H1 reaches slots 1 to 4, not slot 5. Choose a device of its half, or advanced mode.",
        ),
        (drawer(ADVANCED, "ABCD", "123....."), 4, "H4", "a drawer serves at most 3 hosts, and it would be 4."),
    ],
)  # fmt: skip
def test_what_would_break_a_rule_is_said_in_full(state: DrawerState, slot: int, label: str, said: str) -> None:
    answer = attach_violation(state, slot=slot, label=label, planned=True)
    assert answer == f"In mode ‘{MODE_LABELS[state.mode]}’ {said}"


def test_both_drawers_to_the_same_host_give_it_sixteen_devices() -> None:
    for mode, hosts in ((ONE, "A"), (ADVANCED, "A"), (TWO, "AA")):
        for _drawer in (1, 2):
            attached: dict[int, str] = {}
            for slot in ALL_SLOTS:
                label = "H2" if mode is TWO and slot > 4 else "H1"
                state = DrawerState(mode=mode, connections=drawer(mode, hosts).connections, attached=attached)
                assert attach_violation(state, slot=slot, label=label) == ""
                attached[slot] = label
            assert len(attached) == 8


@pytest.mark.parametrize("split", list(itertools.combinations_with_replacement("123", 8)))
def test_advanced_takes_any_split_among_three_hosts_slot_after_slot(split: tuple[str, ...]) -> None:
    for slot in ALL_SLOTS:
        so_far = "".join(split[: slot - 1]).ljust(8, ".")
        assert attach_violation(drawer(ADVANCED, "ABC", so_far), slot=slot, label=f"H{split[slot - 1]}") == ""


@pytest.mark.parametrize(
    ("hosts", "slot", "label", "said"),
    [
        ({"H3": B, "H4": A}, 1, "H3", ""),  # the lower number has the first half
        ({"H3": B, "H4": A}, 5, "H4", ""),
        ({"H4": A, "H3": B}, 1, "H3", ""),  # in whatever order they are listed
        ({"H10": A, "H9": B}, 1, "H9", ""),  # by number, not by text
        ({"H10": A, "H9": B}, 1, "H10", "H10 reaches slots 5 to 8, not slot 1"),
        ({"H4": A, "H2": B, "H3": C}, 8, "H3", ""),
        ({"H4": A, "H2": B, "H3": C}, 8, "H4", "only H2 and H3 reach its slots, H4 does not"),
    ],
)
def test_the_number_of_a_host_port_tells_its_half(hosts: dict[str, str], slot: int, label: str, said: str) -> None:
    answer = attach_violation(numbered(TWO, hosts), slot=slot, label=label)
    assert (answer == "") == (said == "")
    assert said in answer


@pytest.mark.parametrize("mode", KNOWN)
@pytest.mark.parametrize("slot", [9, 10, 255])
def test_a_drawer_has_eight_slots(mode: DrawerMode, slot: int) -> None:
    assert attach_violation(drawer(mode, "AB"), slot=slot, label="H1") == (
        f"A drawer has slots 1 to 8: there is no slot {slot}."
    )


@pytest.mark.parametrize("slot", [9, 16])
def test_a_drawer_of_unknown_mode_may_have_more_slots(slot: int) -> None:
    assert attach_violation(drawer(UNKNOWN, "AB"), slot=slot, label="H1") == ""


def test_a_slot_without_a_number_is_in_neither_half_and_still_counts() -> None:
    assert attach_violation(drawer(TWO, "AB"), slot=0, label="H1") == ""
    assert attach_violation(drawer(TWO, "AB"), slot=0, label="H2") == ""
    assert "H3 does not" in attach_violation(drawer(TWO, "ABC"), slot=0, label="H3")
    assert ONLY_ONE in attach_violation(drawer(ONE, "AB", "1......."), slot=0, label="H2")
    assert "would be the 4th" in attach_violation(drawer(ADVANCED, "ABCD", "123....."), slot=0, label="H4")


def test_who_has_the_other_devices_can_be_told_instead_of_read() -> None:
    state = drawer(ONE, "AB", "1.......")
    assert attach_violation(state, slot=2, label="H2", others=()) == ""
    assert attach_violation(state, slot=2, label="H2", others={"H2"}) == ""
    assert ONLY_ONE in attach_violation(state, slot=1, label="H2", others={"H1"})


def test_what_is_attached_may_stay_although_no_host_is_behind_it() -> None:
    assert attachment_violation(drawer(ADVANCED, "A-", "2......."), slot=1, label="H2") == ""
    assert "H2 reaches slots 5 to 8" in attachment_violation(drawer(TWO, "A-", "2......."), slot=1, label="H2")
    assert "no host port reaches its slots" in attachment_violation(drawer(TWO, "", "2......."), slot=1, label="H2")
    assert "only H1 reaches its slots" in attachment_violation(drawer(TWO, "A", "2......."), slot=1, label="H2")


# --- changing the mode --------------------------------------------------------------------------------------------

MODE_CASES: list[tuple[str, str, set[DrawerMode]]] = [
    ("ABCD", EMPTY, {ONE, TWO, ADVANCED}),
    ("ABCD", "1..1....", {ONE, TWO, ADVANCED}),
    ("ABCD", "....2..2", {ONE, TWO, ADVANCED}),
    ("ABCD", "1...2...", {TWO, ADVANCED}),
    ("ABCD", "11111111", {ONE, ADVANCED}),
    ("ABCD", "2.......", {ONE, ADVANCED}),
    ("ABCD", "2...1...", {ADVANCED}),
    ("ABCD", "3.......", {ONE, ADVANCED}),
    ("ABCD", "123.....", {ADVANCED}),
    ("ABCD", "1234....", set()),
    ("ABCA", "1234....", {ADVANCED}),
    ("AA", "11112222", {TWO, ADVANCED}),
    ("AA", "1111....", {ONE, TWO, ADVANCED}),
    ("A-", "2222....", {ONE, ADVANCED}),  # a host that nobody knows does not stand in the way
    ("A-", "....2222", {ONE, TWO, ADVANCED}),
    ("A", EMPTY, {ONE, ADVANCED}),
    ("A", "1111....", {ONE, ADVANCED}),
    ("", EMPTY, {ONE, ADVANCED}),
]


@pytest.mark.parametrize(("hosts", "attached", "fits"), MODE_CASES)
def test_a_mode_is_entered_only_with_host_ports_and_attachments_it_allows(
    hosts: str, attached: str, fits: set[DrawerMode]
) -> None:
    for now, wanted in itertools.product(DrawerMode, KNOWN):
        said = mode_violation(drawer(now, hosts, attached), wanted)
        assert (said == "") == (wanted in fits), (now, wanted)
        if said:
            assert said.endswith(" first.") or "serves at most 3 hosts" in said or "each of two host ports" in said


def test_what_stands_in_the_way_of_a_mode_is_said_in_full() -> None:
    state = drawer(ADVANCED, "ABC", "112..1..")
    assert mode_violation(state, ONE) == (
        "In this mode one host port at a time has devices, and H1 (slots 1, 2 and 6) and H2 (slot 3) have some. "
        "Detach all but one's first."
    )
    assert mode_violation(state, TWO) == (
        "Slots 3 and 6 would lose their host: in this mode H1 reaches slots 1 to 4 and H2 reaches slots 5 to 8. "
        "Detach them first."
    )
    with translation.override("de"):
        assert english(mode_violation(state, TWO)).startswith("Slots 3 and 6 would lose their host: ")
    assert mode_violation(drawer(ADVANCED, "ABC", ".....1.."), TWO).startswith("Slot 6 would lose its host: ")
    assert mode_violation(drawer(ADVANCED, "A"), TWO) == (
        "In this mode each of two host ports reaches one half, and this drawer has only H1."
    )
    assert mode_violation(drawer(ADVANCED, ""), TWO).endswith("and this drawer has no host port.")
    assert mode_violation(drawer(ADVANCED, "A"), TWO, planned=True) == (
        "In mode ‘Standard, two hosts’ each of two host ports reaches one half, and this drawer has only H1."
    )
    assert mode_violation(drawer(ONE, "AB"), UNKNOWN) == "A drawer cannot be changed to an unknown mode."


# --- the chassis' own rules, written by themselves in the simulator -------------------------------------------------


@st.composite
def drawers(draw: st.DrawFn) -> DrawerState:
    """Any drawer with any attachments, whether a mode allows them or not."""
    labels = draw(st.lists(st.sampled_from(["H1", "H2", "H3", "H4", "H9", "H10"]), min_size=1, max_size=6, unique=True))
    hosts = {label: draw(st.sampled_from(["A", "B", "C", "D", "E", ""])) for label in labels}
    attached = draw(st.dictionaries(st.integers(1, 8), st.sampled_from(labels), max_size=8))
    return DrawerState(
        mode=draw(st.sampled_from(KNOWN)),
        connections=numbered(ONE, hosts).connections,
        attached=attached,
        profile=profile(draw(st.sampled_from(sorted(profile_files())))),
    )


def refused(mode: DrawerMode, state: DrawerState, attached: dict[int, str]) -> bool:
    """Tell whether the chassis refuses these attachments in that mode."""
    hosts = {connection.label: connection.host for connection in state.connections}
    known = next(one for one in get_args(chassis_rules.Mode) if one == mode.value)
    rules = chassis_rules.load_rules(state.profile.key)
    return chassis_rules.refusal(known, chassis_rules.Allocation(hosts, attached), rules) is not None


@settings(max_examples=500 if NIGHTLY else 100)
@given(drawers())
def test_the_chassis_takes_a_mode_exactly_if_the_rules_do(state: DrawerState) -> None:
    for mode in KNOWN:
        assert (mode_violation(state, mode) != "") == refused(mode, state, state.attached)


@settings(max_examples=500 if NIGHTLY else 100)
@given(drawers())
def test_the_chassis_takes_an_attachment_exactly_if_the_rules_do(state: DrawerState) -> None:
    legal: dict[int, str] = {}
    for slot, label in state.attached.items():
        if not refused(state.mode, state, {**legal, slot: label}):
            legal[slot] = label
    if refused(state.mode, state, legal):  # such as half a pair of host ports: the chassis is never in that state
        return
    state = replace(state, attached=legal)
    for slot, connection in itertools.product(ALL_SLOTS, state.connections):
        ours = attach_violation(state, slot=slot, label=connection.label)
        if connection.host:
            assert (ours != "") == refused(state.mode, state, {**legal, slot: connection.label})
        else:
            assert ours == f"No host is cabled to host port {connection.label}."
