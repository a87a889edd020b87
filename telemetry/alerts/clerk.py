"""The thread of a worker that stands between the engines and the database.

It keeps what turns, in order and until the database has it, works out what is to be checked of each chassis, and looks
every few seconds whether rules have changed. Nothing here is waited for by the poller's event loop.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from django.db import DatabaseError, close_old_connections

from fabric.models import Chassis
from telemetry.alerts.checks import RATE, Book, Facts, plan_checks, silent_check
from telemetry.alerts.engine import Change, Engine
from telemetry.alerts.facts import book_in_force, facts_of, open_states
from telemetry.alerts.services.recording import (
    NOT_ABOUT_IT,
    NOT_ATTACHED,
    NOT_MEASURED,
    RULE_ENDED,
    alerts_end,
    changes_record,
)
from telemetry.alerts.terms import NOT_ANSWERING, OF_LINKS
from telemetry.pipeline import tally

if TYPE_CHECKING:
    from telemetry.alerts.watch import AlertWatch

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 2.0
# Who holds what, and what is attached, for rules that depend on it.
MOVED_SECONDS: Final = 15.0
GONE_SECONDS: Final = 300.0  # what is measured no more may come back with the next walk
GATHER_SECONDS: Final = 0.2  # turns of one moment are written together
PAUSES: Final = (0.5, 1.0, 2.0, 5.0, 10.0)
MOST_AT_ONCE: Final = 500
MOST_WAITING: Final = 200_000


class Clerk:
    """One a process, with one thread while it follows anything; every method may be called by any thread."""

    def __init__(self) -> None:
        self._wake = threading.Condition()
        self._watches: set[AlertWatch] = set()
        self._wanted: dict[AlertWatch, None] = {}
        self._turns: deque[tuple[int, Change]] = deque()
        self._writing = 0
        self._thread: threading.Thread | None = None
        self._book: Book | None = None
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

    def want(self, watch: AlertWatch) -> None:
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

    def keep(self, chassis_id: int, changes: Sequence[Change]) -> None:
        """Keep what turned, as soon as the database takes it."""
        with self._wake:
            for change in changes:
                if len(self._turns) >= MOST_WAITING:
                    tally.add("alert_turns_dropped", chassis=chassis_id)
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
                time.sleep(PAUSES[min(failures, len(PAUSES) - 1)])
                failures += 1
            except Exception:
                logger.exception("alerts")
                time.sleep(PAUSES[min(failures, len(PAUSES) - 1)])
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
                batch = [self._turns.popleft() for _ in range(min(MOST_AT_ONCE, len(self._turns)))]
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
    def _record(chassis: int, changes: list[Change]) -> None:
        try:
            changes_record(chassis_id=chassis, changes=changes)
        except DatabaseError:
            raise
        except Exception:
            # What is wrong with one chassis must not stand before all others for ever.
            logger.exception("%s turns of chassis %s are not kept", len(changes), chassis)
            tally.add("alert_turns_dropped", len(changes), chassis=chassis)

    def _look(self) -> None:
        """See whether rules have changed, and whether what is measured no more has stayed away."""
        now = time.monotonic()
        if self._book is not None and now - self._looked_at < LOOK_SECONDS:
            return
        book = book_in_force()
        changed = book != self._book
        self._book, self._looked_at = book, now
        with self._wake:
            for watch in self._watches:
                moved = book.moves and now - self._planned_at.get(watch, now) > MOVED_SECONDS
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
        from telemetry.alerts.watch import Orders

        book, told = self._book or Book(), watch.told
        facts = facts_of(watch.chassis_id)
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
        silent = Engine([silent_check(facts)], [0]) if NOT_ANSWERING in book.built_ins else None
        states = open_states(watch.chassis_id)
        watch.order(Orders(told=told, plan=plan, silent=silent, states=states, kept=kept))
        self._planned_at[watch] = time.monotonic()
        if plan is not None and told is not None:
            known = {check.identity for check in plan.checks}
            self._see_to_others(facts, book, {entry["key"] for entry in told.catalogue.entries},
                                set(states) - known)  # fmt: skip

    def _see_to_others(self, facts: Facts, book: Book, measured: set[str], left: set[tuple[str, str]]) -> None:
        """End open alerts that nothing is checked for, and say why; of what is not measured just now, only later."""
        left = {one for one in left if one[0] != NOT_ANSWERING}
        ends = {one: because for one in left if (because := _why_over(one, book, measured, facts))}
        for because in sorted(set(ends.values())):
            identities = {one for one, said in ends.items() if said == because}
            alerts_end(chassis_id=facts.chassis, identities=identities, because=because)
        self._note_orphans(facts.chassis, left - set(ends))

    def _note_orphans(self, chassis: int, left: set[tuple[str, str]]) -> None:
        """Note open alerts of series that are not there, to be ended once they have stayed away."""
        places = {(chassis, one) for one in left}
        for place in [one for one in self._orphans if one[0] == chassis and one not in places]:
            del self._orphans[place]
        for place in places:
            self._orphans.setdefault(place, time.monotonic())


def _why_over(identity: tuple[str, str], book: Book, measured: set[str], facts: Facts) -> str:
    """Return why what is checked no more is over, '' where it may be checked again.

    So it may where its series is away for now, or where a walk did not tell how many lanes a link should have.
    """
    cause, key = identity
    if not book.holds(cause):
        return RULE_ENDED
    if key.removesuffix(RATE) not in measured:
        return ""
    if cause in OF_LINKS:
        return "" if int(key.split("/")[1]) in facts.links else NOT_ATTACHED
    return NOT_ABOUT_IT if cause.startswith("rule-") else ""


_lock = threading.Lock()
_clerks: list[Clerk] = []


def clerk() -> Clerk:
    """Return this process' clerk."""
    with _lock:
        if not _clerks:
            _clerks.append(Clerk())
        return _clerks[0]
