"""Any drawers, any wish, any order that the steps allow: no rule is broken, the end is exact, the rest is untouched."""

from __future__ import annotations

import collections
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from fabric.bmc.types import DrawerMode
from fabric.operations.rules import DrawerSnapshot, PortSetting
from fabric.plans.rules import DesiredState, PlannedSteps, PlanStep, plan_steps, projected_after
from tests.fabric.plans.drawers import ADVANCED, ONE, TWO, carried_out, drawer, refusal_of
from tests.turns import NIGHTLY

MODES = (ONE, TWO, ADVANCED)
TYPES = ("DownstreamPort", "UpstreamPort", "UnconfiguredPort")
WIDTHS = (4, 8, 16)
MANY = settings(max_examples=500 if NIGHTLY else 50)
SMALL = 1000 if NIGHTLY else 250  # drawers small enough to be tried out
MOST_OVER_FEWEST = 0.03

State = tuple[DrawerMode, tuple[int | None, ...]]


# --- any drawers ----------------------------------------------------------------------------------------------------


def legal(draw: st.DrawFn, seen: DrawerSnapshot) -> DrawerSnapshot:
    """Attach the drawer's devices anyhow, as far as the chassis allows it and a person may ask for it."""
    unconfigured = {pk for pk, setting in seen.settings.items() if setting.port_type == "UnconfiguredPort"}
    usable = [port for port in seen.ports if port.host is not None and port.port not in unconfigured]
    for index, device in enumerate(seen.devices):
        port = draw(st.sampled_from([None, *usable]))
        if port is None or device.port in unconfigured:
            continue
        devices = list(seen.devices)
        devices[index] = replace(device, attached=port.id)
        tried = replace(seen, devices=tuple(devices))
        seen = seen if refusal_of(tried) else tried
    return seen


def configured(draw: st.DrawFn, seen: DrawerSnapshot, *, oddly: float) -> DrawerSnapshot:
    """Configure the drawer's ports anyhow; some are off."""
    behind = [*(device.port for device in seen.devices), *(port.port for port in seen.ports)]
    ports = [pk for pk in behind if pk is not None]
    chosen = draw(st.sets(st.sampled_from(ports), max_size=3)) if oddly else set()
    made = {
        pk: PortSetting(port_type=draw(st.sampled_from(TYPES)), configured_width=draw(st.sampled_from(WIDTHS)))
        if pk in chosen
        else seen.settings.get(pk, PortSetting(port_type="DownstreamPort", configured_width=16))
        for pk in ports
    }
    return replace(seen, settings=made)


def cabled(draw: st.DrawFn, seen: DrawerSnapshot) -> DrawerSnapshot:
    """Lead some cables to other hosts."""
    moved = draw(
        st.dictionaries(st.sampled_from([port.id for port in seen.ports]), st.sampled_from("ABCDE-"), max_size=2)
    )
    ports = (
        replace(port, host=(None if moved[port.id] == "-" else ord(moved[port.id])) if port.id in moved else port.host)
        for port in seen.ports
    )
    return replace(seen, ports=tuple(ports))


@st.composite
def changes(draw: st.DrawFn) -> tuple[list[DrawerSnapshot], list[DrawerSnapshot], DesiredState]:
    """Up to four drawers in any legal state, the same in another one, and the wish that leads from these to those."""
    starts, ends = [], []
    for number in range(1, draw(st.integers(1, 4)) + 1):
        hosts = draw(st.text("ABCDE-", min_size=2, max_size=5))
        slots = draw(st.text(". ", min_size=8, max_size=8).filter(str.strip))
        bare = drawer(draw(st.sampled_from(MODES)), hosts, slots, number=number)
        bare = configured(draw, bare, oddly=draw(st.sampled_from([0, 1])))
        starts.append(legal(draw, bare))
        other = bare
        if draw(st.booleans()):
            other = replace(other, mode=draw(st.sampled_from(MODES)))
        if draw(st.booleans()):
            other = cabled(draw, other)
        if draw(st.booleans()):
            other = configured(draw, other, oddly=1)
        ends.append(legal(draw, other))
    return starts, ends, wanted_of(ends, starts if draw(st.booleans()) else [])


def wanted_of(ends: Iterable[DrawerSnapshot], starts: Sequence[DrawerSnapshot] = ()) -> DesiredState:
    """Return the wish for drawers to be so: all of it, or what differs from how they are."""
    every, now = _all_of(ends), _all_of(starts)
    return DesiredState(
        attachments={pk: one for pk, one in every.attachments.items() if now.attachments.get(pk, pk) != one},
        modes={pk: one for pk, one in every.modes.items() if now.modes.get(pk) != one},
        cables={pk: one for pk, one in every.cables.items() if now.cables.get(pk, pk) != one},
        settings={pk: one for pk, one in every.settings.items() if now.settings.get(pk) != one},
    )


def _all_of(drawers: Iterable[DrawerSnapshot]) -> DesiredState:
    seen = list(drawers)
    return DesiredState(
        attachments={device.id: device.attached for one in seen for device in one.devices},
        modes={one.id: one.mode for one in seen if one.id is not None},
        cables={port.id: port.host for one in seen for port in one.ports},
        settings={pk: setting for one in seen for pk, setting in one.settings.items()},
    )


def some_order(steps: Sequence[PlanStep], chance: random.Random) -> list[PlanStep]:
    """Return the steps in some order in which each comes after those that it waits for."""
    left, done, order = list(steps), set[int](), list[PlanStep]()
    while left:
        step = chance.choice([one for one in left if done.issuperset(one.after)])
        left.remove(step)
        done.add(step.position)
        order.append(step)
    return order


def all_carried_out(drawers: Iterable[DrawerSnapshot], steps: Iterable[PlanStep]) -> list[DrawerSnapshot]:
    """Carry steps out on paper in every drawer; breaks at one that a rule forbids."""
    of_drawer = collections.defaultdict(list)
    for step in steps:
        of_drawer[step.drawer].append(step)
    return [carried_out(one, of_drawer.pop(one.id, [])) for one in drawers]


# --- what always holds ----------------------------------------------------------------------------------------------


@MANY
@given(changes(), st.randoms(use_true_random=False))
def test_in_any_order_that_the_steps_allow_no_rule_breaks_and_the_end_is_exact(
    change: tuple[list[DrawerSnapshot], list[DrawerSnapshot], DesiredState], chance: random.Random
) -> None:
    starts, ends, wanted = change
    planned = plan_steps(starts, wanted)
    assert planned.objections == ()
    assert [step.position for step in planned.steps] == list(range(len(planned.steps)))
    assert all(position < step.position for step in planned.steps for position in step.after)
    assert all_carried_out(starts, planned.steps) == ends
    assert all_carried_out(starts, some_order(planned.steps, chance)) == ends
    assert [projected_after(one, wanted) for one in starts] == ends
    assert plan_steps(ends, wanted) == PlannedSteps()


@MANY
@given(changes())
def test_what_need_not_change_is_not_touched_and_drawers_do_not_wait_for_each_other(
    change: tuple[list[DrawerSnapshot], list[DrawerSnapshot], DesiredState],
) -> None:
    starts, ends, wanted = change
    steps = plan_steps(starts, wanted).steps
    assert all(steps[position].drawer == step.drawer for step in steps for position in step.after)
    for start, end in zip(starts, ends, strict=True):
        own = [step for step in steps if step.drawer == start.id]
        kinds = collections.Counter(step.kind for step in own)
        assert kinds["mode"] == (start.mode != end.mode)
        assert {step.source for step in own if step.kind == "cable"} == {
            before.id for before, after in zip(start.ports, end.ports, strict=True) if before.host != after.host
        }
        reset = {pk for pk, setting in end.settings.items() if setting != start.settings[pk]}
        assert [step.port for step in own if step.kind == "port"] == sorted(reset)
        cut_ports = {step.source for step in own if step.kind == "cable"} | {
            port.id for port in start.ports if port.port in reset
        }
        for before, after in zip(start.devices, end.devices, strict=True):
            went = [(step.kind, step.interrupts) for step in own if step.device == before.id]
            is_cut = before.attached is not None and (before.attached in cut_ports or before.port in reset)
            if before.attached == after.attached:
                assert went == ([("detach", True), ("attach", True)] if is_cut else [])
            elif before.attached is None:
                assert went == [("attach", False)]
            elif after.attached is None:
                assert went == [("detach", False)]
            else:
                assert went in ([("move", False)], [("detach", False), ("attach", False)])


@MANY
@given(changes(), st.data())
def test_from_every_halfway_point_there_is_a_way_on_and_a_way_back(
    change: tuple[list[DrawerSnapshot], list[DrawerSnapshot], DesiredState], data: st.DataObject
) -> None:
    starts, ends, wanted = change
    steps = plan_steps(starts, wanted).steps
    order = some_order(steps, data.draw(st.randoms(use_true_random=False)))
    halfway = all_carried_out(starts, order[: data.draw(st.integers(0, len(order)))])
    on = plan_steps(halfway, wanted.with_interrupted(steps))
    assert on.objections == ()
    assert all_carried_out(halfway, on.steps) == ends
    back = plan_steps(halfway, wanted_of(starts))
    assert back.objections == ()
    assert all_carried_out(halfway, back.steps) == starts


# --- how many steps -------------------------------------------------------------------------------------------------


def test_hardly_ever_are_there_more_steps_than_the_fewest_possible() -> None:
    chance = random.Random(16)  # noqa: S311 - the same drawers in every run
    planned_steps = fewest_steps = 0
    for _ in range(SMALL):
        start, end = small(chance)
        planned = plan_steps([start], wanted_of([end]))
        fewest = fewest_between(start, end, limit=len(planned.steps))
        assert fewest <= len(planned.steps) <= fewest + 2
        planned_steps += len(planned.steps)
        fewest_steps += fewest
    assert planned_steps <= fewest_steps * (1 + MOST_OVER_FEWEST)


def small(chance: random.Random) -> tuple[DrawerSnapshot, DrawerSnapshot]:
    """Return a drawer with up to six devices in two legal states."""
    slots = "".join(chance.sample(("." * chance.randint(2, 6)).ljust(8), 8))
    hosts = "".join(chance.choice("ABCDE") for _ in range(chance.randint(2, 5)))
    mode = chance.choice(MODES)
    made = []
    for one in (mode, mode if chance.random() < 0.5 else chance.choice(MODES)):
        seen = drawer(one, hosts, slots)
        while True:
            tried = replace(
                seen,
                devices=tuple(
                    replace(device, attached=chance.choice([None, *(port.id for port in seen.ports)]))
                    for device in seen.devices
                ),
            )
            if refusal_of(tried) is None:
                break
        made.append(tried)
    return made[0], made[1]


def fewest_between(start: DrawerSnapshot, end: DrawerSnapshot, *, limit: int) -> int:
    """Return the fewest steps from a drawer to the same in another state, by trying all that the chassis allows."""
    goal = _state_of(end)
    seen = {_state_of(start): 0}
    front = collections.deque(seen)
    while front:
        state = front.popleft()
        if state == goal:
            return seen[state]
        mode, at = state
        following: list[State] = [(end.mode, at)]
        for index, target in enumerate(goal[1]):
            if at[index] != target:
                following += [(mode, (*at[:index], place, *at[index + 1 :])) for place in {None, target}]
        for one in following:
            if one not in seen and seen[state] < limit and refusal_of(_with(start, one)) is None:
                seen[one] = seen[state] + 1
                front.append(one)
    raise AssertionError("there is no way")


def _state_of(seen: DrawerSnapshot) -> State:
    return seen.mode, tuple(device.attached for device in seen.devices)


def _with(seen: DrawerSnapshot, state: State) -> DrawerSnapshot:
    devices = (replace(device, attached=at) for device, at in zip(seen.devices, state[1], strict=True))
    return replace(seen, mode=state[0], devices=tuple(devices))
