"""The thread of a worker that stores the changes of watches and judges links.

Pending changes are merged by port, so that memory does not grow with the duration of a database outage. They are
written when the database is reachable again; a worker that dies loses only its last seconds.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future

from django.db import (
    DatabaseError,
    DataError,
    IntegrityError,
    InterfaceError,
    OperationalError,
    close_old_connections,
    connections,
)

from telemetry.links import services
from telemetry.links.counters import KnownLinks, PortChange

logger = logging.getLogger(__name__)

PendingChanges = dict[int, dict[int, services.PendingPortChanges]]  # by chassis and port

WRITE_SECONDS = 1.0
COUNT_SECONDS = 5.0  # interval of writes of counts alone; new states are written immediately
SEEN_SECONDS = 30.0
TIME_DEPENDENT_SECONDS = 20.0  # interval of verdicts that may change with time alone
ALL_SECONDS = 120.0  # interval of all verdicts of a chassis
BATCH_CHASSIS = 8  # of which all links are judged together
BATCH_LINKS = 200  # of some chassis, stored or judged together: most of the cost are the statements
SLICE_SECONDS = 0.5  # maximum time of judging before starting and stopping watches are served
RETRY_SECONDS = 5.0
CLOSE_SECONDS = 2.5


def _no_changes() -> PendingChanges:
    return defaultdict(lambda: defaultdict(services.PendingPortChanges))


class LinkRecorder:
    """Accepts changes from any thread; its own thread runs while a chassis is watched."""

    def __init__(self) -> None:
        self._wake = threading.Condition()
        self._pending = _no_changes()
        self._urgent = False
        # A changed address of a chassis starts a new watch before the old one has ended: so they are counted.
        self._watches: Counter[int] = Counter()
        self._watched: dict[int, float] = {}  # chassis -> Unix time of its newest reading
        self._loads: list[tuple[int, Future[KnownLinks]]] = []
        self._stopping: list[tuple[int, Future[None]]] = []
        # By chassis: when all of its links are due, when those that may change with time alone are due, and their ids;
        # and the ids of changed links. Times are monotonic, s.
        self._all_at: dict[int, float] = {}
        self._time_dependent_at: dict[int, float] = {}
        self._time_dependent: dict[int, frozenset[int]] = {}
        self._changed: dict[int, set[int]] = defaultdict(set)
        self._judged_last = 0
        self._judged: dict[int, float] = {}  # chassis -> Unix time of the newest reading up to which all is judged
        self._postponed: set[int] = set()  # chassis whose judging failed; retried when all of their links are due
        self._seen_changed = False  # a chassis was read, or judged, after more than SEEN_SECONDS
        self._thread: threading.Thread | None = None
        self._failing = False

    def start_watch(self, chassis: int) -> Future[KnownLinks]:
        """Start a watch of a chassis; the future has its stored state, once that is loaded from the database."""
        loading: Future[KnownLinks] = Future()
        with self._wake:
            self._watches[chassis] += 1
            self._watched.setdefault(chassis, 0.0)
            self._loads.append((chassis, loading))
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="links", daemon=True)
                self._thread.start()
            self._wake.notify()
        return loading

    async def stop_watch(self, chassis: int) -> None:
        """Stop a watch of a chassis; returns when its changes are written, or after CLOSE_SECONDS."""
        stopped: Future[None] = Future()
        with self._wake:
            if self._watches[chassis] == 0:
                return
            self._stopping.append((chassis, stopped))
            self._wake.notify()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.wrap_future(stopped)
        except TimeoutError:
            # An unreachable database was logged once for all chassis.
            logger.info("links of chassis %s: the last changes wait for the database", chassis)

    def add_change(self, chassis: int, change: PortChange) -> None:
        with self._wake:
            self._pending[chassis][change.port].add(change)
            if change.state is not None or change.reset is not None:
                self._urgent = True

    def record_reading(self, chassis: int, at: float) -> None:
        """Record that a chassis was read at `at` (Unix s)."""
        with self._wake:
            before = self._watched.get(chassis)
            if before is not None:
                self._watched[chassis] = at
                self._seen_changed |= at - before > SEEN_SECONDS

    def request_judging(self, chassis: int) -> None:
        """Schedule the judging of a chassis' links: facts of verdicts may have changed."""
        with self._wake:
            if chassis in self._watched:
                self._all_at[chassis] = 0.0

    def _run(self) -> None:
        written_at = seen_at = 0.0
        is_behind = False
        while True:
            with self._wake:
                pause = 0.0 if is_behind else WRITE_SECONDS
                self._wake.wait_for(lambda: self._loads or self._stopping, timeout=pause)
                stopping, self._stopping = self._stopping, []
            now = time.monotonic()
            is_failing, may_pause = False, not stopping
            try:
                close_old_connections()
                if self._urgent or stopping or now - written_at >= COUNT_SECONDS:
                    self._write()
                    written_at = now
                if self._seen_changed or stopping or now - seen_at >= SEEN_SECONDS:
                    self._seen_changed = False
                    read = {chassis: at for chassis, at in list(self._watched.items()) if at}
                    services.links_record_read_times(read, dict(self._judged))
                    seen_at = now
                # Watches that stop wait only for their own changes.
                self._complete_stopping(stopping)
                self._load()
                is_behind = self._judge(now)
                if self._failing:
                    logger.info("links are recorded again")
                self._failing = False
            except Exception as error:
                is_failing = may_pause
                if isinstance(error, DataError | IntegrityError) or not isinstance(
                    error, DatabaseError | InterfaceError
                ):
                    logger.exception("links could not be recorded")
                elif not self._failing:
                    logger.warning("links are not recorded while the database is unreachable: %s", error)
                    self._failing = True
            self._complete_stopping(stopping)
            if is_failing:
                is_behind = False
                connections.close_all()
                time.sleep(RETRY_SECONDS)
            if self._is_over():
                break

    def _complete_stopping(self, stopping: list[tuple[int, Future[None]]]) -> None:
        while stopping:
            chassis, stopped = stopping.pop()
            self._drop_watch(chassis)
            # The waiting caller may have timed out.
            if stopped.set_running_or_notify_cancel():
                stopped.set_result(None)

    def _is_over(self) -> bool:
        with self._wake:
            over = not self._watched and not self._loads and not self._stopping and not any(self._pending.values())
            if over:
                self._thread = None
        if over:
            connections.close_all()
        return over

    def _drop_watch(self, chassis: int) -> None:
        with self._wake:
            self._watches[chassis] -= 1
            if self._watches[chassis] > 0:
                return
            del self._watches[chassis]
            self._loads = [(one, loading) for one, loading in self._loads if one != chassis]
            for by_chassis in (
                self._watched, self._all_at, self._time_dependent_at, self._time_dependent, self._changed, self._judged,
            ):  # fmt: skip
                by_chassis.pop(chassis, None)
            self._postponed.discard(chassis)

    def _load(self) -> None:
        """Load the stored states of new chassis, for SLICE_SECONDS at most."""
        until = time.monotonic() + SLICE_SECONDS
        while self._loads and not self._stopping and time.monotonic() < until:
            chassis, loading = self._loads[0]
            if not loading.done():
                loading.set_result(services.links_load(chassis_id=chassis))
            with self._wake:
                self._loads = [one for one in self._loads if one[1] is not loading]

    def _write(self) -> None:
        """Write the pending changes, those of some chassis together; failed ones stay pending.

        One failing chassis does not affect the others: what cannot be written together is written by itself.
        """
        with self._wake:
            taken, self._pending = self._pending, _no_changes()
            self._urgent = False
        failure: Exception | None = None
        batches = deque(_batches({chassis: len(ports) for chassis, ports in taken.items()}))
        while batches:
            batch = batches.popleft()
            try:
                services.links_record_changes(
                    {port: changes for chassis in batch for port, changes in taken[chassis].items()}
                )
            except (OperationalError, InterfaceError) as error:
                failure = error  # the database is unreachable: attempts for the others would fail, too
                break
            except Exception as error:  # noqa: BLE001 - raised at the end
                if len(batch) > 1:
                    batches.extendleft([chassis] for chassis in batch)
                else:
                    failure = error
                continue
            for chassis in batch:
                written = taken.pop(chassis)
                if chassis in self._watched:
                    self._changed[chassis].update(written)
        if failure is not None:
            with self._wake:
                for chassis, ports in taken.items():
                    for port, waiting in ports.items():
                        waiting.merge(self._pending[chassis][port])
                        self._pending[chassis][port] = waiting
            raise failure

    def _judge(self, now: float) -> bool:
        """Judge due links, for SLICE_SECONDS at most; returns whether some are left."""
        until = time.monotonic() + SLICE_SECONDS
        watched = dict(self._watched)
        due = [chassis for chassis in watched if now >= self._all_at.get(chassis, 0.0)]
        due.sort(key=lambda one: (one <= self._judged_last, one))
        for begin in range(0, len(due), BATCH_CHASSIS):
            self._judge_all(due[begin : begin + BATCH_CHASSIS], watched, now)
            if self._stopping or time.monotonic() > until:
                return True
        return self._judge_changed(watched, now, until)

    def _judge_all(self, batch: list[int], watched: Mapping[int, float], now: float) -> None:
        """Judge all links of some chassis."""
        # Before judging, so that a request during it is not lost.
        self._all_at.update(dict.fromkeys(batch, now + ALL_SECONDS))
        self._judged_last = batch[-1]
        try:
            found = services.links_judge(chassis_id__in=batch)
        except (OperationalError, InterfaceError):
            self._all_at.update(dict.fromkeys(batch, 0.0))
            raise
        except Exception as error:  # noqa: BLE001 - logged for the chassis that causes it
            for chassis in batch:
                if len(batch) == 1:
                    self._postpone(chassis, error)
                else:
                    self._judge_all([chassis], watched, now)
            return
        for chassis in batch:
            self._time_dependent[chassis] = found.get(chassis, frozenset())
            self._time_dependent_at[chassis] = now + TIME_DEPENDENT_SECONDS
            self._changed.pop(chassis, None)
            self._postponed.discard(chassis)
            self._record_judged(chassis, watched[chassis])

    def _postpone(self, chassis: int, error: Exception) -> None:
        """Skip a chassis whose links cannot be judged, until all of its links are due."""
        logger.error("links of chassis %s could not be judged", chassis, exc_info=error)
        self._postponed.add(chassis)
        self._time_dependent.pop(chassis, None)
        self._changed.pop(chassis, None)

    def _record_judged(self, chassis: int, at: float) -> None:
        if at:
            self._seen_changed |= at - self._judged.get(chassis, 0.0) > SEEN_SECONDS
            self._judged[chassis] = at

    def _judge_changed(self, watched: Mapping[int, float], now: float, until: float) -> bool:
        """Judge changed links and, every TIME_DEPENDENT_SECONDS, those that may change with time alone."""
        batch: dict[int, frozenset[int]] = {}
        for chassis in watched.keys() - self._postponed:
            due = frozenset(self._changed.get(chassis, ()))
            if now >= self._time_dependent_at.get(chassis, 0.0):
                due |= self._time_dependent.get(chassis, frozenset())
            if due:
                batch[chassis] = due
            if sum(map(len, batch.values())) >= BATCH_LINKS:
                self._judge_batch(batch, now)
                batch = {}
                if self._stopping or time.monotonic() > until:
                    return True
        if batch:
            self._judge_batch(batch, now)
        for chassis in watched.keys() - self._postponed:
            self._record_judged(chassis, watched[chassis])
        return False

    def _judge_batch(self, batch: dict[int, frozenset[int]], now: float) -> None:
        """Judge links of several chassis together: most of the cost are the queries, whatever the number of rows."""
        try:
            found = services.links_judge(pk__in=frozenset().union(*batch.values()))
        except (OperationalError, InterfaceError):
            raise
        except Exception as error:  # noqa: BLE001 - logged for the chassis that causes it
            for chassis, due in batch.items():
                if len(batch) == 1:
                    self._postpone(chassis, error)
                else:
                    self._judge_batch({chassis: due}, now)
            return
        for chassis, due in batch.items():
            time_dependent = self._time_dependent.get(chassis, frozenset())
            if time_dependent <= due:
                self._time_dependent_at[chassis] = now + TIME_DEPENDENT_SECONDS
            self._time_dependent[chassis] = (time_dependent - due) | found.get(chassis, frozenset())
            self._changed.pop(chassis, None)


def _batches(links: Mapping[int, int]) -> Iterator[list[int]]:
    """Yield chassis in batches with BATCH_LINKS links together, or little more; their numbers of links are given."""
    batch: list[int] = []
    for chassis in links:
        batch.append(chassis)
        if sum(links[one] for one in batch) >= BATCH_LINKS:
            yield batch
            batch = []
    if batch:
        yield batch


_recorder = LinkRecorder()


def process_recorder() -> LinkRecorder:
    return _recorder
