"""Evaluates the checks of one chassis on each reading; one thread a worker writes the transitions.

It keeps what turns, in order and until the database has it, works out what is to be checked of each chassis, and looks
every few seconds whether rules have changed. Nothing here is waited for by the poller's event loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from django.db import DatabaseError, close_old_connections

from fabric.inventory.models import Chassis
from telemetry.alerts.checks import RATE, ChassisFacts, PlannedChecks, RuleSet, plan_checks, unreachable_check
from telemetry.alerts.rules import LINK_RULES, NOT_ANSWERING, AlertEngine, CheckState, CheckTransition, Values
from telemetry.alerts.selectors import active_rules, chassis_facts, open_alert_states
from telemetry.alerts.services import (
    NOT_ABOUT_IT,
    NOT_ATTACHED,
    NOT_MEASURED,
    RULE_ENDED,
    alerts_end,
    transitions_record,
)
from telemetry.instrumentation import metrics
from telemetry.live.catalogue import ReadingContext, Sample, is_repeat

FLUSH_SECONDS = 3.0
SILENT, ANSWERS = np.array([1.0]), np.array([0.0])

CheckIdentity = tuple[str, str]


@dataclass(frozen=True)
class CheckPlan:
    """What the clerk worked out for a chassis: the plan of its checks, for one telling, and where they stood.

    `silent` is the check of a chassis that does not answer, None where that rule is off. A plan that is None: nothing
    was told yet of what is measured. `kept` is how many of the watch's turns the rows knew when they were read.
    """

    told: ReadingContext | None
    plan: PlannedChecks | None
    silent: AlertEngine | None
    states: Mapping[CheckIdentity, CheckState]
    kept: int


class AlertWatch:
    """One chassis; all of it but `order`, `told` and `handed` belongs to the poller's event loop."""

    def __init__(self, chassis_id: int) -> None:
        self.chassis_id = chassis_id
        self.told: ReadingContext | None = None
        self.handed = 0  # how many steps that turned something the clerk has got
        self._clerk: AlertWriter = alert_writer()
        self._orders: CheckPlan | None = None  # put here by the clerk's thread, taken up at the next reading
        self._plan: PlannedChecks | None = None
        self._engine: AlertEngine | None = None
        self._silent: AlertEngine | None = None
        self._marks: dict[CheckIdentity, int] = {}  # by which such step a check turned last
        self._before: Sample | None = None
        self._clerk.follow(self)

    def order(self, orders: CheckPlan) -> None:
        """Take what the clerk worked out; called in its thread."""
        self._orders = orders

    def begin(self, told: ReadingContext) -> None:
        """Have the checks worked out for what is measured from now on; until then nothing is judged."""
        self._take_up()
        self.told = told
        # Places mean other series from now on.
        self._plan, self._before = None, None
        self._clerk.request_plan(self)
        self._judge(self._silent, time.time(), ANSWERS)

    def take(self, sample: Sample) -> None:
        """Judge a reading."""
        self._take_up()
        self._judge(self._silent, sample.at, ANSWERS)
        before = self._before
        if before is None or not is_repeat(sample, before):
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

    def _judge(self, engine: AlertEngine | None, at: float, values: Values, *, note: str = "") -> None:
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
            orders.silent.restore(self._carried_states(orders, self._silent))
        self._silent = orders.silent
        if orders.plan is not None and orders.told is self.told:
            engine = AlertEngine(orders.plan.checks, orders.plan.places)
            engine.restore(self._carried_states(orders, self._engine))
            self._engine, self._plan = engine, orders.plan

    def _carried_states(self, orders: CheckPlan, engine: AlertEngine | None) -> dict[CheckIdentity, CheckState]:
        """Return where to go on from: so an alert that a person ended by a switch, off and on, fires anew."""
        own = {} if engine is None else engine.states()
        fresh = {identity for identity, step in self._marks.items() if step > orders.kept}
        states = {one: state for one, state in orders.states.items() if one not in fresh}
        # The rows do not know the worst value until the end.
        same = {one: kept for one, kept in own.items() if one in states and states[one].state == kept.state}
        return states | same | {one: kept for one, kept in own.items() if one in fresh}


logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 2.0
# Who holds what, and what is attached, for rules that depend on it.
REPLAN_SECONDS: Final = 15.0
GONE_SECONDS: Final = 300.0  # what is measured no more may come back with the next walk
GATHER_SECONDS: Final = 0.2  # turns of one moment are written together
RETRY_DELAYS: Final = (0.5, 1.0, 2.0, 5.0, 10.0)
MAX_BATCH: Final = 500
MAX_WAITING: Final = 200_000


class AlertWriter:
    """One a process, with one thread while it follows anything; every method may be called by any thread."""

    def __init__(self) -> None:
        self._wake = threading.Condition()
        self._watches: set[AlertWatch] = set()
        self._wanted: dict[AlertWatch, None] = {}
        self._turns: deque[tuple[int, CheckTransition]] = deque()
        self._writing = 0
        self._thread: threading.Thread | None = None
        self._book: RuleSet | None = None
        self._looked_at = 0.0
        self._planned_at: dict[AlertWatch, float] = {}
        self._orphans: dict[tuple[int, tuple[str, str]], float] = {}

    def follow(self, watch: AlertWatch) -> None:
        """Work out what is to be checked of a chassis, now and whenever rules change."""
        with self._wake:
            self._watches.add(watch)
            self._wanted[watch] = None
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="alerts", daemon=True)
                self._thread.start()
            self._wake.notify_all()

    def request_plan(self, watch: AlertWatch) -> None:
        """Work it out again."""
        with self._wake:
            self._wanted[watch] = None
            self._wake.notify_all()

    def leave(self, watch: AlertWatch) -> None:
        """Follow a chassis no longer; what turned of it is kept all the same."""
        with self._wake:
            self._watches.discard(watch)
            self._wanted.pop(watch, None)
            self._planned_at.pop(watch, None)
            for place in [place for place in self._orphans if place[0] == watch.chassis_id]:
                del self._orphans[place]
            self._wake.notify_all()

    def keep(self, chassis_id: int, changes: Sequence[CheckTransition]) -> None:
        """Keep what turned, as soon as the database takes it."""
        with self._wake:
            for change in changes:
                if len(self._turns) >= MAX_WAITING:
                    metrics.increment("alert_turns_dropped", chassis=chassis_id)
                else:
                    self._turns.append((chassis_id, change))
            self._wake.notify_all()

    def flush(self, seconds: float) -> bool:
        """Wait until all that turned is kept, so long at most; tell whether it is."""
        with self._wake:
            return self._wake.wait_for(lambda: not self._turns and not self._writing, seconds)

    def _run(self) -> None:
        failures = 0
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._turns or self._wanted or not self._watches, LOOK_SECONDS)
                if not self._watches and not self._turns:
                    self._thread = None
                    return
            if self._turns:
                time.sleep(GATHER_SECONDS)
            close_old_connections()
            try:
                self._write()
                self._look()
                self._plan()
            except DatabaseError as error:
                if failures == 0:
                    logger.warning("alerts wait for the database: %s", error)
                time.sleep(RETRY_DELAYS[min(failures, len(RETRY_DELAYS) - 1)])
                failures += 1
            except Exception:
                logger.exception("alerts")
                time.sleep(RETRY_DELAYS[min(failures, len(RETRY_DELAYS) - 1)])
                failures += 1
            else:
                if failures:
                    logger.info("alerts are kept again")
                failures = 0
            finally:
                close_old_connections()

    def _write(self) -> None:
        """Keep what turned: of one chassis after the other, each in order; what cannot be kept stays in the queue."""
        while True:
            with self._wake:
                batch = [self._turns.popleft() for _ in range(min(MAX_BATCH, len(self._turns)))]
                self._writing = len(batch)
                if not batch:
                    self._wake.notify_all()
                    return
            try:
                while batch:
                    chassis = batch[0][0]
                    self._record(chassis, [change for of, change in batch if of == chassis])
                    batch = [one for one in batch if one[0] != chassis]
            finally:
                with self._wake:
                    self._turns.extendleft(reversed(batch))
                    self._writing = 0
                    self._wake.notify_all()

    @staticmethod
    def _record(chassis: int, changes: list[CheckTransition]) -> None:
        try:
            transitions_record(chassis_id=chassis, changes=changes)
        except DatabaseError:
            raise
        except Exception:
            # What is wrong with one chassis must not stand before all others for ever.
            logger.exception("%s turns of chassis %s are not kept", len(changes), chassis)
            metrics.increment("alert_turns_dropped", len(changes), chassis=chassis)

    def _look(self) -> None:
        """See whether rules have changed, and whether what is measured no more has stayed away."""
        now = time.monotonic()
        if self._book is not None and now - self._looked_at < LOOK_SECONDS:
            return
        book = active_rules()
        changed = book != self._book
        self._book, self._looked_at = book, now
        with self._wake:
            for watch in self._watches:
                moved = book.moves and now - self._planned_at.get(watch, now) > REPLAN_SECONDS
                if changed or moved:
                    self._wanted[watch] = None
        gone = [place for place, since in self._orphans.items() if now - since > GONE_SECONDS]
        for chassis, identity in gone:
            alerts_end(chassis_id=chassis, identities={identity}, because=NOT_MEASURED)
            self._orphans.pop((chassis, identity), None)

    def _plan(self) -> None:
        while True:
            with self._wake:
                # What turned meanwhile goes first: where it stands is read from the rows.
                if self._turns or not self._wanted:
                    return
                watch = next(iter(self._wanted))
                del self._wanted[watch]
                kept = watch.handed
            try:
                self._order(watch, kept)
            except DatabaseError:
                with self._wake:
                    if watch in self._watches:
                        self._wanted[watch] = None
                raise
            except Chassis.DoesNotExist:
                pass  # removed a moment ago
            except Exception:
                logger.exception("the rules of chassis %s", watch.chassis_id)

    def _order(self, watch: AlertWatch, kept: int) -> None:

        book, told = self._book or RuleSet(), watch.told
        facts = chassis_facts(watch.chassis_id)
        plan = None
        if told is not None:
            plan = plan_checks(
                book=book,
                facts=facts,
                entries=told.catalogue.entries,
                series=told.catalogue.series,
                sensors=told.inventory.sensors,
                fans=told.inventory.fans,
                owners=told.owners,
            )
        silent = AlertEngine([unreachable_check(facts)], [0]) if NOT_ANSWERING in book.built_ins else None
        states = open_alert_states(watch.chassis_id)
        watch.order(CheckPlan(told=told, plan=plan, silent=silent, states=states, kept=kept))
        self._planned_at[watch] = time.monotonic()
        if plan is not None and told is not None:
            known = {check.identity for check in plan.checks}
            self._end_unchecked(facts, book, {entry["key"] for entry in told.catalogue.entries},
                                set(states) - known)  # fmt: skip

    def _end_unchecked(
        self, facts: ChassisFacts, book: RuleSet, measured: set[str], left: set[tuple[str, str]]
    ) -> None:
        """End open alerts that nothing is checked for, and say why; of what is not measured just now, only later."""
        left = {one for one in left if one[0] != NOT_ANSWERING}
        ends = {one: because for one in left if (because := _end_reason(one, book, measured, facts))}
        for because in sorted(set(ends.values())):
            identities = {one for one, said in ends.items() if said == because}
            alerts_end(chassis_id=facts.chassis, identities=identities, because=because)
        self._record_orphans(facts.chassis, left - set(ends))

    def _record_orphans(self, chassis: int, left: set[tuple[str, str]]) -> None:
        """Note open alerts of series that are not there, to be ended once they have stayed away."""
        places = {(chassis, one) for one in left}
        for place in [one for one in self._orphans if one[0] == chassis and one not in places]:
            del self._orphans[place]
        for place in places:
            self._orphans.setdefault(place, time.monotonic())


def _end_reason(identity: tuple[str, str], book: RuleSet, measured: set[str], facts: ChassisFacts) -> str:
    """Return why what is checked no more is over, '' where it may be checked again.

    So it may where its series is away for now, or where a walk did not tell how many lanes a link should have.
    """
    cause, key = identity
    if not book.holds(cause):
        return RULE_ENDED
    if key.removesuffix(RATE) not in measured:
        return ""
    if cause in LINK_RULES:
        return "" if int(key.split("/")[1]) in facts.links else NOT_ATTACHED
    return NOT_ABOUT_IT if cause.startswith("rule-") else ""


_lock = threading.Lock()
_writers: list[AlertWriter] = []


def alert_writer() -> AlertWriter:
    """Return this process' clerk."""
    with _lock:
        if not _writers:
            _writers.append(AlertWriter())
        return _writers[0]
