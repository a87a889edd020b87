"""Evaluates the checks of one chassis on each reading; one thread a worker writes the transitions.

That thread queues transitions in order until the database has them, plans the checks of each chassis, and reads the
rules every few seconds. The poller's event loop never waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

import numpy as np
from django.db import DatabaseError, close_old_connections

from fabric.inventory.models import Chassis
from telemetry.alerts import services
from telemetry.alerts.checks import RATE, ChassisFacts, PlannedChecks, RuleSet, plan_checks, unreachable_check
from telemetry.alerts.engine import AlertEngine, CheckState, CheckTransition, Values
from telemetry.alerts.facts import active_rules, chassis_facts, open_alert_states
from telemetry.alerts.limits import limits_publish
from telemetry.alerts.rules import CONDITION_RULES, NOT_ANSWERING
from telemetry.alerts.services import transitions_record
from telemetry.instrumentation import metrics
from telemetry.live.catalogue import ReadingContext, Sample, is_repeat

FLUSH_SECONDS = 3.0
SILENT, ANSWERS = np.array([1.0]), np.array([0.0])

CheckIdentity = tuple[str, str]


@dataclass(frozen=True)
class CheckPlan:
    """The planned checks of a chassis for one reading context, and their stored states.

    `silent` is the check of a chassis that does not answer, None where that rule is off. `plan` is None before the
    first reading context. `steps` is the number of the watch's steps with transitions that `states` includes.
    """

    context: ReadingContext | None
    plan: PlannedChecks | None
    silent: AlertEngine | None
    states: Mapping[CheckIdentity, CheckState]
    steps: int


class AlertWatch:
    """One chassis; everything but `set_plan`, `context` and `steps` is used by the poller's event loop alone."""

    def __init__(self, chassis_id: int) -> None:
        self.chassis_id = chassis_id
        self.context: ReadingContext | None = None
        self.steps = 0  # steps with transitions that the writer has received
        self._writer: AlertWriter = alert_writer()
        self._next_plan: CheckPlan | None = None  # set by the writer's thread, applied at the next reading
        self._plan: PlannedChecks | None = None
        self._engine: AlertEngine | None = None
        self._silent: AlertEngine | None = None
        self._last_steps: dict[CheckIdentity, int] = {}  # the step of each check's last transition
        self._before: Sample | None = None
        self._writer.add(self)

    def set_plan(self, plan: CheckPlan) -> None:
        """Set the next plan; called in the writer's thread."""
        self._next_plan = plan

    def begin(self, context: ReadingContext) -> None:
        """Request a plan for the following readings; until it is there, no check is evaluated."""
        self._apply_next_plan()
        self.context = context
        # From now on, indices refer to other series.
        self._plan, self._before = None, None
        self._writer.request_plan(self)
        self._evaluate(self._silent, time.time(), ANSWERS)

    def take(self, sample: Sample) -> None:
        self._apply_next_plan()
        self._evaluate(self._silent, sample.at, ANSWERS)
        before = self._before
        if before is None or not is_repeat(sample, before):
            self._before = sample
        if self._plan is not None:
            self._evaluate(self._engine, sample.at, self._plan.values(sample, before))

    def lost(self, sentence: str) -> None:
        self._apply_next_plan()
        self._before = None
        self._evaluate(self._silent, time.time(), SILENT, note=sentence)

    async def close(self) -> None:
        """Stop, after FLUSH_SECONDS at most in which transitions are stored."""
        self._writer.remove(self)
        await asyncio.get_running_loop().run_in_executor(None, self._writer.flush, FLUSH_SECONDS)

    def _evaluate(self, engine: AlertEngine | None, at: float, values: Values, *, note: str = "") -> None:
        changes = engine.step(at, values) if engine is not None else []
        if not changes:
            return
        step = self.steps + 1
        self._last_steps.update((change.check.identity, step) for change in changes)
        self._writer.queue(self.chassis_id, [replace(change, note=note) for change in changes] if note else changes)
        self.steps = step

    def _apply_next_plan(self) -> None:
        """Apply the writer's newest plan, with the states of the rows and the transitions since they were read."""
        following, self._next_plan = self._next_plan, None
        if following is None:
            return
        if following.silent is not None:
            following.silent.restore(self._carried_states(following, self._silent))
        self._silent = following.silent
        if following.plan is not None and following.context is self.context:
            engine = AlertEngine(following.plan.checks, following.plan.places)
            engine.restore(self._carried_states(following, self._engine))
            if self._engine is not None:
                engine.follow(self._engine)
            self._engine, self._plan = engine, following.plan

    def _carried_states(self, following: CheckPlan, engine: AlertEngine | None) -> dict[CheckIdentity, CheckState]:
        """Return the states to continue from.

        Rows take precedence, so that an alert that a person ended by switching its rule off and on fires again.
        """
        own = {} if engine is None else engine.states()
        fresh = {identity for identity, step in self._last_steps.items() if step > following.steps}
        states = {one: state for one, state in following.states.items() if one not in fresh}
        # The rows have no worst value until the alert is resolved.
        same = {one: kept for one, kept in own.items() if one in states and states[one].state == kept.state}
        return states | same | {one: kept for one, kept in own.items() if one in fresh}


logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 2.0
# Tenants and attachments are read again this often for rules that depend on them.
REPLAN_SECONDS: Final = 15.0
# Everything is planned again this often, so that published limits do not expire.
REFRESH_SECONDS: Final = 300.0
GONE_SECONDS: Final = 300.0  # a series that disappeared may return with the next walk
GATHER_SECONDS: Final = 0.2  # transitions of one moment are written together
RETRY_DELAYS: Final = (0.5, 1.0, 2.0, 5.0, 10.0)
MAX_BATCH: Final = 500
MAX_WAITING: Final = 200_000


class AlertWriter:
    """Plans checks and stores transitions: one a process, with one thread while it has watches. Thread-safe."""

    def __init__(self) -> None:
        self._wake = threading.Condition()
        self._watches: set[AlertWatch] = set()
        self._to_plan: dict[AlertWatch, None] = {}
        self._transitions: deque[tuple[int, CheckTransition]] = deque()
        self._writing = 0
        self._thread: threading.Thread | None = None
        self._rules: RuleSet | None = None
        self._rules_read_at = 0.0
        self._planned_at: dict[AlertWatch, float] = {}
        # By chassis: the open alerts of series that are missing, with the time since when.
        self._missing_since: dict[int, dict[CheckIdentity, float]] = {}

    def add(self, watch: AlertWatch) -> None:
        """Plan the checks of a chassis, now and whenever rules change."""
        with self._wake:
            self._watches.add(watch)
            self._to_plan[watch] = None
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="alerts", daemon=True)
                self._thread.start()
            self._wake.notify_all()

    def request_plan(self, watch: AlertWatch) -> None:
        with self._wake:
            self._to_plan[watch] = None
            self._wake.notify_all()

    def remove(self, watch: AlertWatch) -> None:
        """Stop planning for a chassis; its queued transitions are still stored."""
        with self._wake:
            self._watches.discard(watch)
            self._to_plan.pop(watch, None)
            self._planned_at.pop(watch, None)
            self._missing_since.pop(watch.chassis_id, None)
            self._wake.notify_all()

    def queue(self, chassis_id: int, changes: Sequence[CheckTransition]) -> None:
        """Queue transitions until they are stored."""
        with self._wake:
            for change in changes:
                if len(self._transitions) >= MAX_WAITING:
                    metrics.increment("alert_turns_dropped", chassis=chassis_id)
                else:
                    self._transitions.append((chassis_id, change))
            self._wake.notify_all()

    def flush(self, seconds: float) -> bool:
        """Wait at most `seconds` until all transitions are stored; returns whether they are."""
        with self._wake:
            return self._wake.wait_for(lambda: not self._transitions and not self._writing, seconds)

    def _run(self) -> None:
        failures = 0
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._transitions or self._to_plan or not self._watches, LOOK_SECONDS)
                if not self._watches and not self._transitions:
                    self._thread = None
                    return
            if self._transitions:
                time.sleep(GATHER_SECONDS)
            close_old_connections()
            try:
                self._write()
                self._refresh_rules()
                self._plan_all()
            except Exception as error:
                if not isinstance(error, DatabaseError):
                    logger.exception("alerts")
                elif failures == 0:
                    logger.warning("alerts wait for the database: %s", error)
                time.sleep(RETRY_DELAYS[min(failures, len(RETRY_DELAYS) - 1)])
                failures += 1
            else:
                if failures:
                    logger.info("alerts are stored again")
                failures = 0
            finally:
                close_old_connections()

    def _write(self) -> None:
        """Store the queued transitions by chassis, each in order; those that cannot be stored stay in the queue."""
        while True:
            with self._wake:
                batch = [self._transitions.popleft() for _ in range(min(MAX_BATCH, len(self._transitions)))]
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
                    self._transitions.extendleft(reversed(batch))
                    self._writing = 0
                    self._wake.notify_all()

    @staticmethod
    def _record(chassis: int, changes: list[CheckTransition]) -> None:
        try:
            transitions_record(chassis_id=chassis, changes=changes)
        except DatabaseError:
            raise
        except Exception:
            # An error of one chassis must not block all others.
            logger.exception("%s transitions of chassis %s are not stored", len(changes), chassis)
            metrics.increment("alert_turns_dropped", len(changes), chassis=chassis)

    def _refresh_rules(self) -> None:
        """Read the rules, and end the alerts of series that have been missing for GONE_SECONDS."""
        now = time.monotonic()
        if self._rules is not None and now - self._rules_read_at < LOOK_SECONDS:
            return
        rules = active_rules()
        changed = rules != self._rules
        self._rules, self._rules_read_at = rules, now
        most = REPLAN_SECONDS if rules.has_moving_subjects else REFRESH_SECONDS
        with self._wake:
            for watch in self._watches:
                if changed or now - self._planned_at.get(watch, now) > most:
                    self._to_plan[watch] = None
        for chassis, missing in list(self._missing_since.items()):
            gone = {identity for identity, since in missing.items() if now - since > GONE_SECONDS}
            if gone:
                services.alerts_end(chassis_id=chassis, identities=gone, because=services.NOT_MEASURED)
                for identity in gone:
                    missing.pop(identity, None)

    def _plan_all(self) -> None:
        while True:
            with self._wake:
                # Queued transitions are stored first: a plan starts from the states of the rows.
                if self._transitions or not self._to_plan:
                    return
                watch = next(iter(self._to_plan))
                del self._to_plan[watch]
                steps = watch.steps
            try:
                self._plan(watch, steps)
            except DatabaseError:
                with self._wake:
                    if watch in self._watches:
                        self._to_plan[watch] = None
                raise
            except Chassis.DoesNotExist:
                pass  # removed a moment ago
            except Exception:
                logger.exception("the rules of chassis %s", watch.chassis_id)

    def _plan(self, watch: AlertWatch, steps: int) -> None:
        rules, context = self._rules or RuleSet(), watch.context
        facts = chassis_facts(watch.chassis_id, with_parts=context is not None)
        plan = None
        if context is not None:
            plan = plan_checks(
                rule_set=rules,
                facts=facts,
                entries=context.catalogue.entries,
                series=context.catalogue.series,
                sensors=context.inventory.sensors,
                fans=context.inventory.fans,
                owners=context.owners,
            )
        silent = AlertEngine([unreachable_check(facts)], [0]) if NOT_ANSWERING in rules.built_ins else None
        states = open_alert_states(watch.chassis_id)
        watch.set_plan(CheckPlan(context=context, plan=plan, silent=silent, states=states, steps=steps))
        self._planned_at[watch] = time.monotonic()
        if plan is not None and context is not None:
            limits_publish(watch.chassis_id, plan.checks)
            known = {check.identity for check in plan.checks}
            measured = {entry["key"] for entry in context.catalogue.entries}
            self._end_unchecked(facts, rules, measured, set(states) - known)

    def _end_unchecked(self, facts: ChassisFacts, rules: RuleSet, measured: set[str], left: set[CheckIdentity]) -> None:
        """End open alerts without a check, each with its reason; those of missing series only after GONE_SECONDS."""
        left = {one for one in left if one[0] not in {NOT_ANSWERING, *CONDITION_RULES}}
        ends = {one: because for one in left if (because := _end_reason(one, rules, measured))}
        for because in sorted(set(ends.values())):
            identities = {one for one, reason in ends.items() if reason == because}
            services.alerts_end(chassis_id=facts.chassis, identities=identities, because=because)
        known, now = self._missing_since.get(facts.chassis, {}), time.monotonic()
        self._missing_since[facts.chassis] = {one: known.get(one, now) for one in left - set(ends)}


def _end_reason(identity: CheckIdentity, rules: RuleSet, measured: set[str]) -> str:
    """Return why an alert without a check ends, '' where it may be checked again: its series is missing for now."""
    cause, key = identity
    if not rules.includes(cause):
        return services.RULE_ENDED
    if key.removesuffix(RATE) not in measured:
        return ""
    return services.NOT_ABOUT_IT if cause.startswith("rule-") else ""


@cache
def alert_writer() -> AlertWriter:
    return AlertWriter()
