"""Brings what the watches saw to the database: one thread a process for all its chassis, never their event loop.

What waits is kept by port and put together: a database that is away costs no more memory the longer it stays away.
What happened meanwhile is written once it is back; of a worker that dies, the rows know all but its last seconds.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field

from django.db import DatabaseError, InterfaceError, OperationalError, close_old_connections, connections

from telemetry.links.changes import Change, Known, State
from telemetry.links.models import CounterReset
from telemetry.links.services import links_judge, links_known, links_note, links_seen
from telemetry.pipeline import tally

logger = logging.getLogger(__name__)

WRITE_SECONDS = 1.0
COUNT_SECONDS = 5.0  # counts alone wait so long for company; a new state does not
SEEN_SECONDS = 30.0
RESTLESS_SECONDS = 20.0  # verdicts that time alone may change
CALM_SECONDS = 300.0
RETRY_SECONDS = 5.0
CLOSE_SECONDS = 2.5
MOST_MINUTES = 90  # of a port: what the verdict looks back at, and some more
MOST_STATES = 200
MOST_RESETS = 50


@dataclass
class Pending:
    """What waits of one port, put together."""

    gained: dict[str, int] = field(default_factory=dict)
    minutes: dict[int, dict[str, int]] = field(default_factory=dict)  # Unix minutes
    states: list[tuple[float, float, State]] = field(default_factory=list)  # (at, seen until, state)
    resets: list[tuple[float, float, str, dict[str, int]]] = field(
        default_factory=list
    )  # (at, not before, how, counted)
    raw: dict[str, int] | None = None
    at: float = 0.0

    def add(self, change: Change) -> None:
        """Put a change to the others."""
        if change.gained:
            _sum(self.gained, change.gained)
            # What was gained while nobody looked is of no certain minute.
            if change.at - change.seen_until < 120.0:
                _sum(self.minutes.setdefault(int(change.at // 60), {}), change.gained)
                while len(self.minutes) > MOST_MINUTES:
                    del self.minutes[min(self.minutes)]
        if change.state is not None:
            self.states.append((change.at, change.seen_until, change.state))
            if len(self.states) > MOST_STATES:
                del self.states[0]
                tally.add("link_states_dropped")
        if change.reset is not None and len(self.resets) < MOST_RESETS:
            self.resets.append((change.at, change.seen_until, change.how or CounterReset.How.BMC, change.reset))
        if change.raw is not None:
            self.raw = change.raw
        self.at = max(self.at, change.at)

    def under(self, newer: Pending) -> Pending:
        """Return both as one, this being what came first."""
        _sum(self.gained, newer.gained)
        for minute, counts in newer.minutes.items():
            _sum(self.minutes.setdefault(minute, {}), counts)
        while len(self.minutes) > MOST_MINUTES:
            del self.minutes[min(self.minutes)]
        self.states = [*self.states, *newer.states][-MOST_STATES:]
        self.resets = [*self.resets, *newer.resets][:MOST_RESETS]
        self.raw, self.at = newer.raw or self.raw, max(self.at, newer.at)
        return self


class Recorder:
    """Takes changes from any thread; its own thread lives while some chassis is watched."""

    def __init__(self) -> None:
        self._wake = threading.Condition()
        self._pending: dict[int, dict[int, Pending]] = defaultdict(dict)
        self._urgent = False
        # A chassis whose address changed is watched anew before the watch before has ended: so they are counted.
        self._joined: Counter[int] = Counter()
        self._watched: dict[int, float] = {}  # chassis -> Unix time of its newest reading
        self._loads: list[tuple[int, Future[Known]]] = []
        self._leaving: list[tuple[int, Future[None]]] = []
        self._judge_at: dict[int, float] = {}  # chassis -> monotonic
        self._thread: threading.Thread | None = None
        self._failing = False

    @staticmethod
    def now() -> float:
        """Return the present, Unix s."""
        return time.time()

    def join(self, chassis: int) -> Future[Known]:
        """Watch a chassis from now on; the future brings what is known of it, once the database tells."""
        loading: Future[Known] = Future()
        with self._wake:
            self._joined[chassis] += 1
            self._watched.setdefault(chassis, 0.0)
            self._loads.append((chassis, loading))
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="links", daemon=True)
                self._thread.start()
            self._wake.notify()
        return loading

    async def leave(self, chassis: int) -> None:
        """Watch a chassis no longer; returns once what waits of it is written, or a moment later where it cannot be."""
        left: Future[None] = Future()
        with self._wake:
            if self._joined[chassis] == 0:
                return
            self._leaving.append((chassis, left))
            self._wake.notify()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.wrap_future(left)
        except TimeoutError:
            logger.warning("links of chassis %s: the last changes wait for the database", chassis)

    def hand(self, chassis: int, change: Change) -> None:
        """Take a change."""
        with self._wake:
            waiting = self._pending[chassis].setdefault(change.port, Pending())
            waiting.add(change)
            if change.state is not None or change.reset is not None:
                self._urgent = True

    def seen(self, chassis: int, at: float) -> None:
        """Take note that a chassis was read."""
        with self._wake:
            if chassis in self._watched:
                self._watched[chassis] = at

    def disturb(self, chassis: int) -> None:
        """Have the links of a chassis judged soon: something that a verdict looks at may have changed."""
        with self._wake:
            if chassis in self._watched:
                self._judge_at[chassis] = 0.0

    def _run(self) -> None:
        written_at = seen_at = 0.0
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._loads or self._leaving, timeout=WRITE_SECONDS)
                leaving, self._leaving = self._leaving, []
                loads, self._loads = self._loads, []
            now = time.monotonic()
            try:
                close_old_connections()
                self._load(loads)
                loads = []
                if self._urgent or leaving or now - written_at >= COUNT_SECONDS:
                    self._write()
                    written_at = now
                if leaving or now - seen_at >= SEEN_SECONDS:
                    links_seen({chassis: at for chassis, at in list(self._watched.items()) if at})
                    seen_at = now
                self._judge(now)
                self._recovered()
            except (DatabaseError, InterfaceError) as error:
                self._failed(error)
                self._put_off(loads, rest=not leaving)
            except Exception:
                logger.exception("links could not be recorded")
                self._put_off(loads, rest=not leaving)
            for chassis, left in leaving:
                self._forget(chassis)
                # Nobody may wait for it any more.
                if left.set_running_or_notify_cancel():
                    left.set_result(None)
            if self._is_over():
                break

    def _put_off(self, loads: list[tuple[int, Future[Known]]], *, rest: bool) -> None:
        """Try again later, after a rest."""
        with self._wake:
            self._loads = [*loads, *self._loads]
        connections.close_all()
        if rest:
            time.sleep(RETRY_SECONDS)

    def _is_over(self) -> bool:
        with self._wake:
            over = not self._watched and not self._loads and not self._leaving and not any(self._pending.values())
            if over:
                self._thread = None
        if over:
            connections.close_all()
        return over

    def _forget(self, chassis: int) -> None:
        with self._wake:
            self._joined[chassis] -= 1
            if self._joined[chassis] > 0:
                return
            del self._joined[chassis]
            self._loads = [(one, loading) for one, loading in self._loads if one != chassis]
            self._watched.pop(chassis, None)
            self._judge_at.pop(chassis, None)

    def _load(self, loads: Iterable[tuple[int, Future[Known]]]) -> None:
        for chassis, loading in loads:
            if not loading.done():
                loading.set_result(links_known(chassis_id=chassis))

    def _write(self) -> None:
        """Write what waits; what could not be written waits on, and one chassis' trouble is not the others'."""
        with self._wake:
            taken, self._pending = self._pending, defaultdict(dict)
            self._urgent = False
        trouble: Exception | None = None
        for chassis in list(taken):
            try:
                links_note(chassis_id=chassis, pending=taken[chassis])
            except (OperationalError, InterfaceError) as error:
                trouble = error  # the database is away: to ask for each of the others would only take longer
                break
            except Exception as error:  # noqa: BLE001 - told at the end
                trouble = error
                continue
            del taken[chassis]
            if chassis in self._watched:
                self._judge_at[chassis] = 0.0
        if trouble is not None:
            self._take_back(taken)
            raise trouble

    def _take_back(self, taken: dict[int, dict[int, Pending]]) -> None:
        with self._wake:
            for chassis, ports in taken.items():
                for port, waiting in ports.items():
                    newer = self._pending[chassis].pop(port, None)
                    self._pending[chassis][port] = waiting.under(newer) if newer else waiting

    def _judge(self, now: float) -> None:
        for chassis in list(self._watched):
            if now >= self._judge_at.get(chassis, 0.0):
                restless = links_judge(chassis_id=chassis)
                self._judge_at[chassis] = now + (RESTLESS_SECONDS if restless else CALM_SECONDS)

    def _failed(self, error: Exception) -> None:
        if not self._failing:
            logger.warning("links are not recorded while the database is away: %s", error)
        self._failing = True

    def _recovered(self) -> None:
        if self._failing:
            logger.info("links are recorded again")
        self._failing = False


_recorder = Recorder()


def recorder() -> Recorder:
    """Return the recorder of this process."""
    return _recorder


def _sum(into: dict[str, int], counts: dict[str, int]) -> None:
    for name, count in counts.items():
        into[name] = into.get(name, 0) + count
