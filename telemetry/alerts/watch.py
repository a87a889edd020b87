"""The alert rules' ear: plays the engine of one chassis on each of its readings, and hands on what turns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from telemetry.alerts.checks import Plan
from telemetry.alerts.clerk import Clerk, clerk
from telemetry.alerts.engine import Engine, State, Values
from telemetry.catalogue import Sample, repeats
from telemetry.taps import Told

FLUSH_SECONDS = 3.0
SILENT, ANSWERS = np.array([1.0]), np.array([0.0])

Identity = tuple[str, str]


@dataclass(frozen=True)
class Orders:
    """What the clerk worked out for a chassis: the plan of its checks, for one telling, and where they stood.

    `silent` is the check of a chassis that does not answer, None where that rule is off. A plan that is None: nothing
    was told yet of what is measured. `kept` is how many of the watch's turns the rows knew when they were read.
    """

    told: Told | None
    plan: Plan | None
    silent: Engine | None
    states: Mapping[Identity, State]
    kept: int


class AlertWatch:
    """One chassis; all of it but `order`, `told` and `handed` belongs to the poller's event loop."""

    def __init__(self, chassis_id: int) -> None:
        self.chassis_id = chassis_id
        self.told: Told | None = None
        self.handed = 0  # how many steps that turned something the clerk has got
        self._clerk: Clerk = clerk()
        self._orders: Orders | None = None  # put here by the clerk's thread, taken up at the next reading
        self._plan: Plan | None = None
        self._engine: Engine | None = None
        self._silent: Engine | None = None
        self._marks: dict[Identity, int] = {}  # by which such step a check turned last
        self._before: Sample | None = None
        self._clerk.follow(self)

    def order(self, orders: Orders) -> None:
        """Take what the clerk worked out; called in its thread."""
        self._orders = orders

    def begin(self, told: Told) -> None:
        """Have the checks worked out for what is measured from now on; until then nothing is judged."""
        self._take_up()
        self.told = told
        # Places mean other series from now on.
        self._plan, self._before = None, None
        self._clerk.want(self)
        self._judge(self._silent, time.time(), ANSWERS)

    def take(self, sample: Sample) -> None:
        """Judge a reading."""
        self._take_up()
        self._judge(self._silent, sample.at, ANSWERS)
        before = self._before
        if before is None or not repeats(sample, before):
            self._before = sample
        if self._plan is not None:
            self._judge(self._engine, sample.at, self._plan.values(sample, before))

    def lost(self, sentence: str) -> None:
        """Judge that the chassis does not answer."""
        self._take_up()
        self._before = None
        self._judge(self._silent, time.time(), SILENT, note=sentence)

    async def close(self) -> None:
        """End; what turned is kept first, as far as the database is there."""
        self._clerk.leave(self)
        await asyncio.get_running_loop().run_in_executor(None, self._clerk.flush, FLUSH_SECONDS)

    def _judge(self, engine: Engine | None, at: float, values: Values, *, note: str = "") -> None:
        changes = engine.step(at, values) if engine is not None else []
        if not changes:
            return
        step = self.handed + 1
        self._marks.update((change.check.identity, step) for change in changes)
        self._clerk.keep(self.chassis_id, [replace(change, note=note) for change in changes] if note else changes)
        self.handed = step

    def _take_up(self) -> None:
        """Go on by the clerk's newest orders: from where the checks stand in the rows, and by what turned since."""
        orders, self._orders = self._orders, None
        if orders is None:
            return
        if orders.silent is not None:
            orders.silent.restore(self._carried(orders, self._silent))
        self._silent = orders.silent
        if orders.plan is not None and orders.told is self.told:
            engine = Engine(orders.plan.checks, orders.plan.places)
            engine.restore(self._carried(orders, self._engine))
            self._engine, self._plan = engine, orders.plan

    def _carried(self, orders: Orders, engine: Engine | None) -> dict[Identity, State]:
        """Return where to go on from: so an alert that a person ended by a switch, off and on, fires anew."""
        own = {} if engine is None else engine.states()
        fresh = {identity for identity, step in self._marks.items() if step > orders.kept}
        states = {one: state for one, state in orders.states.items() if one not in fresh}
        # The rows do not know the worst value until the end.
        same = {one: kept for one, kept in own.items() if one in states and states[one].state == kept.state}
        return states | same | {one: kept for one, kept in own.items() if one in fresh}
