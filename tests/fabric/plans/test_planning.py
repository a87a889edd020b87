"""From what is to what is wanted: each kind of plan as a sentence; test_planning_any.py has any drawers and wishes.

Drawers are written as in the table of the rules: host ports H1, H2, ... by the host that each leads to ('-': no cable),
slots 1 to 8 by the number of the host port that each is attached to ('.': none, ' ': empty).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from fabric.bmc.types import DrawerMode
from fabric.operations.rules import DrawerSnapshot, PortSetting
from fabric.plans.rules import DesiredState, Objection, PlannedSteps, plan_steps, projected_after
from tests.fabric.plans.drawers import (
    ADVANCED,
    ONE,
    TWO,
    UNKNOWN,
    carried_out,
    device,
    drawer,
    host_port,
    port,
    step_texts,
    wish,
)

EMPTY = "........"


def steps_of(seen: DrawerSnapshot, wanted: DesiredState) -> list[str]:
    """Plan one drawer, check that the way is legal and ends where it shall, and tell the steps."""
    planned = plan_steps([seen], wanted)
    assert planned.objections == ()
    assert carried_out(seen, planned.steps) == projected_after(seen, wanted)
    return step_texts(planned)


def objections_of(seen: DrawerSnapshot, wanted: DesiredState) -> list[str]:
    planned = plan_steps([seen], wanted)
    assert planned.steps == ()
    return [objection.sentence for objection in planned.objections]


def waits(planned: PlannedSteps) -> list[tuple[int, ...]]:
    return [step.after for step in planned.steps]


# --- within a mode ------------------------------------------------------------------------------------------------


def test_nothing_wanted_is_an_empty_plan() -> None:
    seen = drawer(ADVANCED, "AB", "12......", widths={"slot 1": 16})
    assert plan_steps([], DesiredState()) == PlannedSteps()
    assert plan_steps([seen], DesiredState()) == PlannedSteps()


def test_what_is_so_already_needs_no_step() -> None:
    seen = drawer(ADVANCED, "AB", "12......", widths={"slot 1": 16})
    wanted = wish("12......", mode=ADVANCED, cables={"H1": "A", "H2": "B"}, widths={"slot 1": 16})
    assert plan_steps([seen], wanted) == PlannedSteps()


def test_a_free_device_is_attached_and_an_attached_one_detached_in_one_step_each() -> None:
    assert steps_of(drawer(ADVANCED, "AB", "1......."), wish(".2......")) == ["detach 1", "attach 2 to H2"]


def test_a_device_is_moved_in_one_step_where_both_ends_may_be() -> None:
    assert steps_of(drawer(ADVANCED, "AB", "1......."), wish("2.......")) == ["move 1 to H2"]


def test_two_devices_that_change_places_wait_for_nobody() -> None:
    planned = plan_steps([drawer(ADVANCED, "AB", "12......")], wish("21......"))
    assert step_texts(planned) == ["move 1 to H2", "move 2 to H1"]
    assert waits(planned) == [(), ()]


def test_a_fourth_host_waits_until_one_of_three_has_left() -> None:
    planned = plan_steps([drawer(ADVANCED, "ABCD", "123.....")], wish(".234...."))
    assert step_texts(planned) == ["detach 1", "attach 4 to H4"]
    assert waits(planned) == [(), (0,)]


def test_a_device_joins_a_host_that_is_there_without_waiting_for_one_that_leaves() -> None:
    planned = plan_steps([drawer(ADVANCED, "ABCD", "123.....")], wish(".233...."))
    assert step_texts(planned) == ["detach 1", "attach 4 to H3"]
    assert waits(planned) == [(), ()]


def test_two_hosts_that_would_both_fit_alone_do_not_both_come_before_one_has_left() -> None:
    planned = plan_steps([drawer(ADVANCED, "ABCD", "12......")], wish(".234...."))
    assert step_texts(planned) == ["detach 1", "attach 3 to H3", "attach 4 to H4"]
    assert waits(planned) == [(), (), (0, 1)]


def test_whoever_leaves_a_host_goes_before_those_who_come_to_a_new_one() -> None:
    # Were slot 1 attached first, nobody could move to H4 in one step.
    planned = plan_steps([drawer(ADVANCED, "ABCD", ".211....")], wish("3244...."))
    assert step_texts(planned) == ["move 3 to H4", "move 4 to H4", "attach 1 to H3"]
    assert waits(planned) == [(), (), (0, 1)]


def test_the_only_device_of_a_host_takes_its_place_to_a_fourth() -> None:
    assert steps_of(drawer(ADVANCED, "ABCD", "123....."), wish("423.....")) == ["move 1 to H4"]


def test_two_devices_of_one_of_three_hosts_are_taken_out_to_go_to_a_fourth() -> None:
    assert steps_of(drawer(ADVANCED, "ABCD", "1123...."), wish("4423....")) == [
        "detach 1", "detach 2", "attach 1 to H4", "attach 2 to H4",
    ]  # fmt: skip


def test_only_one_host_makes_room_where_that_lets_others_move_in_one_step() -> None:
    assert steps_of(drawer(ADVANCED, "ABCDE", "112223.."), wish("445553..")) == [
        "detach 1", "detach 2",
        "move 3 to H5", "move 4 to H5", "move 5 to H5",
        "attach 1 to H4", "attach 2 to H4",
    ]  # fmt: skip


def test_a_whole_drawer_for_one_host_changes_hands_out_first_then_in() -> None:
    planned = plan_steps([drawer(ONE, "AB", "11111111")], wish("22222222"))
    assert step_texts(planned) == [f"detach {slot}" for slot in range(1, 9)] + [
        f"attach {slot} to H2" for slot in range(1, 9)
    ]
    assert waits(planned) == [()] * 8 + [tuple(range(8))] * 8


def test_the_only_device_of_a_drawer_for_one_host_changes_hands_in_one_step() -> None:
    assert steps_of(drawer(ONE, "AB", "1......."), wish("2.......")) == ["move 1 to H2"]
    assert steps_of(drawer(ONE, "AB", "11......"), wish("2.......")) == ["detach 2", "move 1 to H2"]


# --- with a mode --------------------------------------------------------------------------------------------------


def test_a_mode_changes_around_what_it_allows_and_touches_nothing() -> None:
    assert steps_of(drawer(ADVANCED, "AB", "11112222"), wish(mode=TWO)) == ["mode StandardTwoHosts"]


def test_a_mode_changes_between_detaching_and_attaching() -> None:
    planned = plan_steps([drawer(ONE, "AB", "11111111")], wish("1111222.", mode=TWO))
    assert step_texts(planned) == [
        "detach 8", "detach 5", "detach 6", "detach 7",
        "mode StandardTwoHosts",
        "attach 5 to H2", "attach 6 to H2", "attach 7 to H2",
    ]  # fmt: skip
    assert waits(planned) == [(), (0,), (0,), (0,), (1, 2, 3), (4,), (4,), (4,)]


def test_what_the_mode_of_now_lets_move_moves_before_a_stricter_one_comes() -> None:
    assert steps_of(drawer(ADVANCED, "AB", "1122...."), wish("1111....", mode=ONE)) == [
        "move 3 to H1", "move 4 to H1", "mode StandardOneHost",
    ]  # fmt: skip


def test_what_only_the_new_mode_lets_move_stays_in_place_until_it_is_there() -> None:
    assert steps_of(drawer(ONE, "AB", "1111...."), wish("1122....", mode=ADVANCED)) == [
        "mode Advanced", "move 3 to H2", "move 4 to H2",
    ]  # fmt: skip


def test_a_free_device_is_attached_after_the_mode() -> None:
    assert steps_of(drawer(ONE, "AB", "11......"), wish("111.....", mode=ADVANCED)) == [
        "mode Advanced",
        "attach 3 to H1",
    ]


def test_both_halves_swap_their_hosts_on_the_way_to_advanced() -> None:
    assert steps_of(drawer(TWO, "AB", "11112222"), wish("22221111", mode=ADVANCED)) == [
        "mode Advanced", *(f"move {slot} to H{1 + (slot < 5)}" for slot in range(1, 9)),
    ]  # fmt: skip


def test_a_mode_that_the_end_would_break_is_objected_to() -> None:
    planned = plan_steps([drawer(ADVANCED, "AB", "12......")], wish(mode=ONE))
    assert planned.steps == ()
    (objection,) = planned.objections
    assert (objection.drawer, objection.device) == (1, device(1))
    assert objection.sentence == (
        "In mode ‘Standard, one host’ only one host port reaches its slots at a time, and H1 and H2 would have "
        "devices: leave them to one."
    )


def test_a_plan_within_a_mode_is_told_what_would_be_where_nothing_is_attached_yet() -> None:
    (said,) = objections_of(drawer(ONE, "AB", EMPTY), wish("12......"))
    assert said.startswith("In mode ‘Standard, one host’ only one host port reaches its slots")
    assert "H1 and H2 would have devices" in said


def test_a_mode_needs_its_host_ports_also_where_nothing_is_attached() -> None:
    planned = plan_steps([drawer(ADVANCED, "A", "........")], wish(mode=TWO))
    sentence = "In mode ‘Standard, two hosts’ each of two host ports reaches one half, and this drawer has only H1."
    assert planned == PlannedSteps(objections=(Objection(sentence=sentence, drawer=1),))


def test_a_mode_that_nobody_knows_is_objected_to() -> None:
    assert objections_of(drawer(ADVANCED, "AB", EMPTY), wish(mode=UNKNOWN)) == [
        "A drawer cannot be changed to an unknown mode."
    ]


def test_devices_whose_host_nobody_knows_do_not_stand_in_the_way_of_a_mode() -> None:
    assert steps_of(drawer(ADVANCED, "A-", "22......"), wish(mode=ONE)) == ["mode StandardOneHost"]


# --- cables and ports ---------------------------------------------------------------------------------------------


def test_a_cable_moves_while_its_devices_are_out_and_they_come_back() -> None:
    planned = plan_steps([drawer(ADVANCED, "AB", "112.....")], wish(cables={"H1": "C"}))
    assert step_texts(planned) == ["detach 1", "detach 2", "cable H1 to C", "attach 1 to H1", "attach 2 to H1"]
    assert [step.interrupts for step in planned.steps] == [True, True, False, True, True]
    assert waits(planned) == [(), (), (0, 1), (2,), (2,)]


def test_a_cable_that_nobody_uses_moves_alone() -> None:
    assert steps_of(drawer(ADVANCED, "AB", "11......"), wish(cables={"H2": "C"})) == ["cable H2 to C"]


def test_a_cable_that_is_pulled_leaves_its_devices_without_a_host() -> None:
    seen = drawer(ADVANCED, "AB", "11......")
    one, other = (f"{device.name} (slot {device.slot})" for device in seen.devices[:2])
    (both,) = objections_of(seen, wish(cables={"H1": "-"}))
    assert both == (
        f"Without the cable of H1, {one} and {other} would be attached to no host: "
        "detach them in the same plan, or move them."
    )
    (only,) = objections_of(seen, wish(".1......", cables={"H1": "-"}))
    assert only == (
        f"Without the cable of H1, {other} would be attached to no host: detach it in the same plan, or move it."
    )
    assert steps_of(seen, wish(EMPTY, cables={"H1": "-"})) == ["detach 1", "detach 2", "cable H1 to nobody"]
    assert steps_of(seen, wish("22......", cables={"H1": "-"}))[-1] == "cable H1 to nobody"


def test_a_device_is_not_wanted_at_a_host_port_whose_cable_is_pulled_or_that_has_none() -> None:
    (said,) = objections_of(drawer(ADVANCED, "AB", EMPTY), wish("1.......", cables={"H1": "-"}))
    assert said.startswith("Without the cable of H1, ")
    assert objections_of(drawer(ADVANCED, "A-", EMPTY), wish("2.......")) == ["No host is cabled to host port H2."]


def test_of_two_cables_that_are_pulled_each_names_its_own_devices() -> None:
    seen = drawer(ADVANCED, "AB", "12......")
    said = objections_of(seen, wish(cables={"H1": "-", "H2": "-"}))
    assert [sentence[: len("Without the cable of H1")] for sentence in said] == [
        "Without the cable of H1", "Without the cable of H2",
    ]  # fmt: skip
    assert "slot 2" not in said[0]


def test_devices_leave_a_host_port_in_one_step_before_its_cable_moves() -> None:
    assert steps_of(drawer(ADVANCED, "AB", "11......"), wish("22......", cables={"H1": "C"})) == [
        "move 1 to H2", "move 2 to H2", "cable H1 to C",
    ]  # fmt: skip


def test_devices_come_to_a_host_port_in_one_step_after_its_cable_was_moved() -> None:
    assert steps_of(drawer(ADVANCED, "A-", "11......"), wish("22......", cables={"H2": "B"})) == [
        "cable H2 to B", "move 1 to H2", "move 2 to H2",
    ]  # fmt: skip


def test_a_device_that_goes_from_one_moved_cable_to_another_is_out_meanwhile() -> None:
    planned = plan_steps([drawer(ADVANCED, "AB", "1.......")], wish("2.......", cables={"H1": "B", "H2": "A"}))
    assert step_texts(planned) == ["detach 1", "cable H1 to B", "cable H2 to A", "attach 1 to H2"]
    assert [step.interrupts for step in planned.steps] == [False] * 4


def test_a_cable_to_a_fourth_host_is_objected_to() -> None:
    said = objections_of(drawer(ADVANCED, "ABCA", "1234...."), wish(cables={"H4": "D"}))
    assert said == ["In mode ‘Advanced’ a drawer serves at most 3 hosts, and it would be 4."]  # told once


def test_the_port_of_a_slot_is_set_while_its_device_is_out() -> None:
    planned = plan_steps([drawer(ADVANCED, "AB", "12......", widths={"slot 1": 16})], wish(widths={"slot 1": 8}))
    assert step_texts(planned) == ["detach 1", "port slot 1 x8", "attach 1 to H1"]
    assert [step.interrupts for step in planned.steps] == [True, False, True]


def test_the_port_of_a_host_port_is_set_while_all_its_devices_are_out() -> None:
    seen = drawer(ADVANCED, "AB", "112.....", widths={"H1": 16})
    assert steps_of(seen, wish(widths={"H1": 8})) == [
        "detach 1", "detach 2", "port H1 x8", "attach 1 to H1", "attach 2 to H1",
    ]  # fmt: skip


def test_the_port_of_an_empty_slot_is_set_and_others_move_meanwhile_in_one_step() -> None:
    seen = drawer(ADVANCED, "AB", ".1......", widths={"slot 1": 16})
    assert steps_of(seen, wish(".2......", widths={"slot 1": 8})) == ["move 2 to H2", "port slot 1 x8"]


def test_a_device_that_moves_while_its_own_port_is_set_is_out_meanwhile() -> None:
    planned = plan_steps(
        [drawer(ADVANCED, "AB", "1.......", widths={"slot 1": 16})], wish("2.......", widths={"slot 1": 8})
    )
    assert step_texts(planned) == ["detach 1", "port slot 1 x8", "attach 1 to H2"]
    assert [step.interrupts for step in planned.steps] == [False] * 3


def test_a_setting_says_only_what_it_changes() -> None:
    seen = drawer(ADVANCED, "AB", EMPTY, widths={"slot 1": 16})
    planned = plan_steps([seen], DesiredState(settings={port("slot 1"): PortSetting(port_type="UpstreamPort")}))
    assert [step.setting for step in planned.steps] == [PortSetting(port_type="UpstreamPort", configured_width=16)]
    assert plan_steps([seen], DesiredState(settings={port("slot 1"): PortSetting()})) == PlannedSteps()


@pytest.mark.parametrize("unconfigured", ["slot 1", "H1"])
def test_nothing_is_attached_through_a_port_that_is_not_configured(unconfigured: str) -> None:
    off = DesiredState(settings={port(unconfigured): PortSetting(port_type="UnconfiguredPort")})
    attached, free = drawer(ADVANCED, "AB", "1......."), drawer(ADVANCED, "AB", EMPTY)
    sentence = "slot 1 cannot be attached through a port that is not configured."
    assert objections_of(attached, off) == [sentence]
    assert objections_of(free, replace(off, attachments=wish("1.......").attachments)) == [sentence]
    assert objections_of(projected_after(free, off), wish("1.......")) == [sentence]
    assert steps_of(attached, replace(off, attachments=wish(EMPTY).attachments)) == [
        "detach 1",
        f"port {unconfigured} off",
    ]


def test_an_attachment_through_a_port_that_says_it_is_not_configured_is_left_alone() -> None:
    off = DesiredState(settings={port("slot 1"): PortSetting(port_type="UnconfiguredPort")})
    odd = projected_after(drawer(ADVANCED, "AB", "1......."), off)
    assert steps_of(odd, wish("12......")) == ["attach 2 to H2"]
    assert steps_of(odd, wish(mode=TWO)) == ["mode StandardTwoHosts"]


# --- several drawers, and what is in none -------------------------------------------------------------------------


def test_drawers_do_not_wait_for_each_other() -> None:
    drawers = [drawer(ONE, "AB", "11......", number=number) for number in (1, 2, 3)]
    wanted = [wish("22......", number=number) for number in (1, 2, 3)]
    together = DesiredState(attachments={pk: target for one in wanted for pk, target in one.attachments.items()})
    steps = plan_steps(drawers, together).steps
    assert [step.position for step in steps] == list(range(12))
    assert [step.drawer for step in steps] == [1] * 4 + [2] * 4 + [3] * 4
    for step in steps:
        assert {steps[position].drawer for position in step.after} <= {step.drawer}
    assert [len(step.after) for step in steps] == [0, 0, 2, 2] * 3


def test_a_plan_with_an_objection_in_one_drawer_has_no_step_in_any() -> None:
    drawers = [drawer(ONE, "AB", "1.......", number=1), drawer(ONE, "AB", "1.......", number=2)]
    wanted = DesiredState(attachments={**wish("11......").attachments, **wish("12......", number=2).attachments})
    planned = plan_steps(drawers, wanted)
    assert planned.steps == ()
    assert {objection.drawer for objection in planned.objections} == {2}


def test_a_device_is_not_attached_to_a_host_port_of_another_drawer() -> None:
    drawers = [drawer(ADVANCED, "AB", "1.......", number=number) for number in (1, 2)]
    sentence = "slot 1 and its host port in this plan are not in the same drawer."
    for seen in (drawers, drawers[:1]):  # also where the other drawer is not part of the plan
        planned = plan_steps(seen, DesiredState(attachments={device(1): host_port("H2", number=2)}))
        assert planned == PlannedSteps(objections=(Objection(sentence=sentence, drawer=1, device=device(1)),))


def test_what_is_in_no_drawer_has_no_mode_to_break() -> None:
    loose = replace(drawer(UNKNOWN, "AB-", "11......"), id=None)
    assert step_texts(plan_steps([loose], wish("23......"))) == ["move 1 to H2", "move 2 to H3"]
    with pytest.raises(KeyError):
        plan_steps([loose], DesiredState(modes={1: ADVANCED}))


def test_a_drawer_that_does_not_tell_its_mode_judges_by_itself() -> None:
    assert steps_of(drawer(UNKNOWN, "ABCD", "1111...."), wish("1234....")) == [
        "move 2 to H2", "move 3 to H3", "move 4 to H4",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "wanted",
    [
        DesiredState(attachments={4711: None}),
        DesiredState(modes={4711: ADVANCED}),
        DesiredState(cables={4711: None}),
        DesiredState(settings={4711: PortSetting()}),
    ],
)
def test_what_is_not_there_cannot_be_wanted(wanted: DesiredState) -> None:
    with pytest.raises(KeyError, match="4711"):
        plan_steps([drawer(ADVANCED, "AB", "1.......")], wanted)


def test_a_device_whose_host_port_has_vanished_is_left_alone_and_may_go() -> None:
    seen = drawer(ADVANCED, "AB", "1.......")
    lost = replace(seen, ports=tuple(one for one in seen.ports if one.label != "H1"))
    assert steps_of(lost, wish(".2......", only=[2])) == ["attach 2 to H2"]
    assert steps_of(lost, wish(mode=ONE)) == ["mode StandardOneHost"]
    assert steps_of(lost, wish("2.......", only=[1])) == ["move 1 to H2"]
    assert steps_of(lost, wish(EMPTY)) == ["detach 1"]


def test_devices_in_slots_without_a_number_count_like_all_others() -> None:
    seen = drawer(ONE, "AB", "11......")
    unnumbered = replace(seen, devices=tuple(replace(one, slot=0) for one in seen.devices))
    assert step_texts(plan_steps([unnumbered], wish("22......"))) == [
        "detach 1",
        "detach 2",
        "attach 1 to H2",
        "attach 2 to H2",
    ]
    said = objections_of(unnumbered, wish("12......"))
    assert ["only one host port reaches" in one for one in said] == [True]


def test_a_rule_that_all_devices_of_a_drawer_break_is_told_once_and_others_each() -> None:
    assert len(objections_of(drawer(ADVANCED, "ABCD", EMPTY), wish("12341234"))) == 1
    assert len(objections_of(drawer(TWO, "AB", EMPTY), wish("22......"))) == 2


def test_a_state_that_breaks_the_rules_already_can_be_mended_and_not_be_made_worse() -> None:
    broken = drawer(ADVANCED, "ABCD", "1234....")
    assert step_texts(plan_steps([broken], wish(".234...."))) == ["detach 1"]
    assert step_texts(plan_steps([broken], wish("2234...."))) == ["move 1 to H2"]
    assert "it would be 4" in objections_of(broken, wish("12341..."))[0]


# --- half done, and as JSON ---------------------------------------------------------------------------------------


def test_what_a_plan_interrupts_is_put_back_also_when_it_is_planned_anew_halfway() -> None:
    seen = drawer(ADVANCED, "AB", "112.....", widths={"H1": 16})
    wanted = wish(widths={"H1": 8})
    planned = plan_steps([seen], wanted)
    halfway = carried_out(seen, planned.steps[:3])
    assert step_texts(plan_steps([halfway], wanted)) == []
    assert step_texts(plan_steps([halfway], wanted.with_interrupted(planned.steps))) == [
        "attach 1 to H1",
        "attach 2 to H1",
    ]


def test_what_is_wanted_survives_as_json() -> None:
    wanted = DesiredState(
        attachments={1: None, 2: 7}, modes={3: TWO}, cables={4: None, 5: 8},
        settings={6: PortSetting(port_type="DownstreamPort", configured_width=4), 9: PortSetting()},
    )  # fmt: skip
    plain = wanted.as_json()
    assert msgspec.json.decode(msgspec.json.encode(plain)) == plain
    assert DesiredState.from_json(plain) == wanted
    assert DesiredState.from_json({}) == DesiredState()


@pytest.mark.parametrize(
    "plain",
    [
        {"attachments": []},
        {"attachments": {"one": 2}},
        {"attachments": {"1": "two"}},
        {"modes": {"1": "Fast"}},
        {"cables": {"1": {}}},
        {"settings": {"1": 8}},
        {"settings": {"1": {"configured_width": "wide"}}},
        [],
    ],
)
def test_what_is_no_wanted_allocation_is_not_read_as_one(plain: Any) -> None:
    with pytest.raises(msgspec.ValidationError):
        DesiredState.from_json(plain)


def test_modes_are_the_three_and_the_unknown() -> None:
    assert {ONE, TWO, ADVANCED, UNKNOWN} == set(DrawerMode)
