"""What people ask for: plans and single changes, possible ones and others; actions of the machine of plans."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, TypeVar

from django.db import connection

from accounts.models import User
from core.errors import FalconWebError
from fabric.bmc.types import DrawerMode
from fabric.inventory.models import Device
from fabric.operations.models import Operation, Plan
from fabric.operations.rules import PortSetting
from fabric.operations.services import mode_request, operation_cancel, operation_request
from fabric.plans.jobs import plan_cancel, plan_resume
from fabric.plans.rules import DesiredState
from fabric.plans.services import plan_apply, plan_change, plan_create, plan_discard, plan_undo
from tests.fabric.disorder import MODES
from tests.fabric.plans.world import DRAWERS, HOLDINGS, PLACES, World

Choice = Callable[[Random], Any]


def one_of(*values: Any) -> Choice:
    """Choose one of these."""
    return lambda random: random.choice(values)


def number(low: int, high: int) -> Choice:
    """Choose a whole number."""
    return lambda random: random.randint(low, high)


def some(choice: Choice, most: int) -> Choice:
    """Choose 1 to `most`."""
    return lambda random: [choice(random) for _ in range(random.randint(1, most))]


def maybe(choice: Choice, chance: float = 0.5) -> Choice:
    """Choose, or None."""
    return lambda random: choice(random) if random.random() < chance else None


PICK = number(0, 11)  # which of those that there are
YES = one_of(False, True)
SELDOM = one_of(*[False] * 9, True)
PEOPLE = one_of("ada", "ada", "ada", "ann", "ben", "cyd")
MODE = one_of(*MODES)
DRAWER = one_of(*sorted(DRAWERS))
AT = number(0, 3)  # no host port, or one of those of the drawer
# A place of those that somebody has, and where the device there shall be; seldom one that it cannot reach.
WISHES = some(lambda random: (random.randrange(24), 4 if random.random() < 0.05 else random.randrange(4)), 4)
Wishes = list[tuple[int, int]]


@dataclass(frozen=True)
class Action:
    """Something that may be done: how often against others, when at all, and with what."""

    weight: int
    when: Callable[[Any], object]
    arguments: dict[str, Choice]

    def chosen(self, random: Random) -> dict[str, Any]:
        """Return arguments."""
        return {name: choice(random) for name, choice in self.arguments.items()}


ACTIONS: dict[str, Action] = {}
Method = TypeVar("Method", bound=Callable[..., None])


def action(
    weight: int, *, when: Callable[[Any], object] = lambda _: True, **arguments: Choice
) -> Callable[[Method], Method]:
    """Let a method be one of the things that may be done in a step, `weight` times as often as one of weight 1."""

    def registered(method: Method) -> Method:
        ACTIONS[method.__name__] = Action(weight, when, arguments)
        return method

    return registered


def places_of(person: str, *, stray: bool) -> list[tuple[str, int, int]]:
    """Return the places of the devices that somebody has; all others, too, for somebody who strays."""
    tenant = dict(zip(("ann", "ben", "cyd"), HOLDINGS, strict=True)).get(person)
    if tenant is None or stray:
        return PLACES
    (name, drawer), slots, _ = HOLDINGS[tenant]
    return [(name, drawer, slot) for slot in slots]


def port_of(place: tuple[str, int, int], choice: int) -> tuple[str, str] | None:
    """Return where a device shall be: nowhere, at a port of its drawer, or, rarely, at one that it cannot reach."""
    name, drawer, _ = place
    labels = DRAWERS[name, drawer][1]
    if choice == 0:
        return None
    if choice == 4:
        return name, DRAWERS[name, 3 - drawer][1][0]
    return name, labels[choice % len(labels)]


class Asking:
    """People who ask for changes of the hardware of a world."""

    world: World
    drafts: dict[object, dict[int, Any] | None]  # what the site showed of their drawers when they were made

    # --- plans ------------------------------------------------------------------------------------------------------

    @action(
        10,
        by=PEOPLE,
        wishes=WISHES,
        mode=maybe(MODE, 0.1),
        width=maybe(one_of(4, 8, 16), 0.4),
        stray=SELDOM,
        at_once=one_of("stop", "stop", "roll_back", ""),
    )
    def draft(self, by: str, wishes: Wishes, at_once: str, **more: Any) -> None:
        """Make a draft of anything, possible or not, and apply it at once or later."""
        wanted = self.wanted(by, wishes, **more)
        plan = self.world.held_up(lambda: self.create(by, wanted))
        if plan is not None and at_once:
            self.apply_draft(plan, at_once)

    @action(3, by=PEOPLE, drawer=DRAWER, choice=number(1, 3), mode=MODE)
    def turn_a_drawer_over(self, by: str, drawer: tuple[str, int], choice: int, mode: str) -> None:
        """All of a drawer to one host, in another mode."""
        wishes = [(PLACES.index((*drawer, slot)), choice) for slot in DRAWERS[drawer][0]]
        wanted = self.wanted(by, wishes, mode=mode, stray=True)
        plan = self.world.held_up(lambda: self.create(by, wanted))
        if plan is not None:
            self.apply_draft(plan, "roll_back" if choice == 3 else "stop")

    @action(
        4,
        when=lambda self: Plan.objects.filter(state="draft").exists(),
        pick=PICK,
        on_failure=one_of("stop", "roll_back"),
    )
    def apply(self, pick: int, on_failure: str) -> None:
        """Apply a draft, of now or of long ago."""
        self.apply_draft(self.picked(pick, "draft"), on_failure)

    @action(2, when=lambda self: Plan.objects.filter(state="draft").exists(), pick=PICK, other=PICK)
    def apply_two_at_once(self, pick: int, other: int) -> None:
        """Two people apply at the same moment, the same draft or two."""
        plans = [self.picked(pick, "draft"), self.picked(other, "draft")]
        done: list[Plan] = []
        refused: list[FalconWebError] = []  # somebody was faster, or it is stale, or it cannot be

        def apply(plan: Plan) -> None:
            try:
                done.append(plan_apply(person=plan.requested_by, plan=plan))
            except FalconWebError as error:
                refused.append(error)

        self.together([lambda: apply(plans[0]), lambda: apply(plans[1])])
        assert len({plan.pk for plan in done}) == len(done), "one draft was applied twice"
        assert len(done) + len(refused) == 2
        for plan in done:
            self.world.was_applied(plan)

    @action(2, when=lambda self: Plan.objects.filter(state="draft").exists(), pick=PICK, wishes=maybe(WISHES))
    def change_or_discard(self, pick: int, wishes: Wishes | None) -> None:
        """Want something else of a draft, or nothing any more."""
        plan = self.picked(pick, "draft")
        if wishes is None:
            self.world.held_up(lambda: plan_discard(person=self.person("ada"), plan=plan))
            return
        wanted = self.wanted(plan.requested_by_name, wishes)
        owner = self.person(plan.requested_by_name)
        changed = self.world.held_up(lambda: plan_change(person=owner, plan=plan, desired=wanted))
        if changed is not None:
            self.drafts[plan.pk] = self.mirrored(changed)

    @action(
        2,
        when=lambda self: Plan.objects.filter(state__in=["running", "rolling_back", "stopped"]).exists(),
        pick=PICK,
        by=PEOPLE,
        roll_back=YES,
    )
    def cancel(self, pick: int, by: str, roll_back: bool) -> None:
        """Cancel a plan between any two of its steps; one that stopped is left, or rolled back."""
        plan = self.picked(pick, "running", "rolling_back", "stopped")
        self.world.held_up(lambda: plan_cancel(person=self.person(by), plan=plan, roll_back=roll_back))

    @action(8, when=lambda self: Plan.objects.filter(state="stopped").exists(), pick=PICK, back=YES)
    def decide(self, pick: int, back: bool) -> None:
        """Resume a plan that stopped, or roll it back."""
        plan = self.picked(pick, "stopped")
        do = partial(plan_cancel, roll_back=True) if back else plan_resume
        self.world.held_up(lambda: do(person=self.person("ada"), plan=plan))

    @action(2, when=lambda self: Plan.objects.exclude(state="draft").exists(), pick=PICK)
    def undo(self, pick: int) -> None:
        """Make the draft that undoes a plan."""
        plan = self.picked(pick, *(state for state in Plan.State.values if state != "draft"))
        undo = self.world.held_up(lambda: plan_undo(person=self.person("ada"), plan=plan))
        if undo is not None:
            self.drafts[undo.pk] = self.mirrored(undo)

    # --- single changes ---------------------------------------------------------------------------------------------

    @action(4, by=PEOPLE, at=number(0, 23), choice=AT, stray=SELDOM)
    def change_one(self, by: str, at: int, choice: int, stray: bool) -> None:
        """Ask for one device to be attached, moved or detached."""
        places = places_of(by, stray=stray)
        place = places[at % len(places)]
        device, wanted = self.world.device(*place), port_of(place, choice)
        target = self.world.host_port(*wanted) if wanted else None
        self.world.held_up(lambda: operation_request(person=self.person(by), device=device, target=target))

    @action(2, by=PEOPLE, drawer=DRAWER, mode=MODE)
    def change_mode(self, by: str, drawer: tuple[str, int], mode: str) -> None:
        """Ask for a drawer's mode."""
        row = self.world.drawer(*drawer)
        self.world.held_up(lambda: mode_request(person=self.person(by), drawer=row, mode=mode))

    @action(1, when=lambda self: Operation.objects.open().exists(), pick=PICK)
    def cancel_one(self, pick: int) -> None:
        """Cancel an operation; a step of a plan is not cancelled by itself."""
        rows = list(Operation.objects.open().in_turn())
        operation = rows[pick % len(rows)]
        self.world.held_up(lambda: operation_cancel(person=self.person("ada"), operation=operation))

    # --- helpers ----------------------------------------------------------------------------------------------------

    def person(self, name: str) -> User:
        """Return somebody."""
        return self.world.people[name]

    def picked(self, pick: int, *states: str) -> Plan:
        """Return one of the plans in these states."""
        plans: list[Plan] = list(Plan.objects.filter(state__in=states).order_by("created_at"))
        return plans[pick % len(plans)]

    def wanted(
        self, by: str, wishes: Wishes, *, mode: str | None = None, width: int | None = None, stray: bool = False
    ) -> DesiredState:
        """Return in ids what somebody wants; the mode is that of the first device's drawer, the width its port's."""
        places = places_of(by, stray=stray)
        attachments: dict[int, int | None] = {}
        for index, choice in wishes:
            place = places[index % len(places)]
            at = port_of(place, choice)
            attachments[self.world.device(*place).pk] = self.world.host_port(*at).pk if at else None
        first = places[wishes[0][0] % len(places)]
        slot = self.world.device(*first).slot
        return DesiredState(
            attachments=attachments,
            modes={self.world.drawer(*first[:2]).pk: DrawerMode(mode)} if mode else {},
            settings={slot.port_id: PortSetting(configured_width=width)} if width and slot and slot.port_id else {},
        )

    def create(self, by: str, wanted: DesiredState) -> Plan:
        """Make a draft."""
        plan = plan_create(person=self.person(by), desired=wanted, title="", origin="api")
        self.drafts[plan.pk] = self.mirrored(plan)
        return plan

    def apply_draft(self, plan: Plan, on_failure: str) -> None:
        """Apply a draft; one that was made on another state than that of now is refused with the difference."""
        then, now = self.drafts.get(plan.pk), self.mirrored(plan)
        applied = self.world.held_up(lambda: plan_apply(person=plan.requested_by, plan=plan, on_failure=on_failure))
        if applied is not None:
            if then is not None and now is not None:
                assert all(then[pk] == now[pk] for pk in {*then} & {*now}), "it was made on another state"
            self.world.was_applied(applied)

    @staticmethod
    def mirrored(plan: Plan) -> dict[int, Any] | None:
        """Return what its owner is shown of the drawers that a plan is about; None where that is about to change."""
        named = [int(pk) for pk in plan.wanted["attachments"]]
        chassis = list(Device.objects.filter(pk__in=named).values_list("chassis", "slot__drawer").distinct())
        if Operation.objects.open().filter(chassis__in=[one for one, _ in chassis]).exists():
            return None
        assert plan.requested_by is not None
        seen = Device.objects.visible_to(plan.requested_by)
        rows = seen.filter(slot__drawer__in=[drawer for _, drawer in chassis], missing_since=None)
        return {row[0]: row for row in rows.values_list("pk", "host_port", "slot__drawer__mode")}

    def together(self, works: list[Callable[[], None]]) -> None:
        """Do several things at once."""
        failed: list[Exception] = []

        def do(work: Callable[[], None]) -> None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - told by the thread that waits
                failed.append(error)
            finally:
                connection.close()

        threads = [threading.Thread(target=do, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not failed, failed
