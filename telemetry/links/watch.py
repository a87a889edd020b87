"""The reading subscriber that watches the links of a chassis and passes changes to the recorder."""

from __future__ import annotations

import time
from collections import defaultdict
from concurrent.futures import Future
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.bmc.series import LINK_STATUSES, Quantity
from telemetry.instrumentation import metrics
from telemetry.links.counters import (
    BYTE_COUNTERS,
    KnownLinks,
    LinkState,
    PortChange,
    counter_limit,
    counter_step,
    valid_counts,
)
from telemetry.links.models import CounterReset
from telemetry.links.recorder import LinkRecorder, process_recorder
from telemetry.live.catalogue import ReadingContext, Sample

How = CounterReset.How
STATUS_NAMES = {number: name for name, number in LINK_STATUSES.items()}
VALUE_NAMES = {
    Quantity.LINK_STATUS: "status", Quantity.LINK_WIDTH: "width", Quantity.LINK_SPEED: "speed",
    Quantity.RX_BYTES: BYTE_COUNTERS[0], Quantity.TX_BYTES: BYTE_COUNTERS[1],
}  # fmt: skip
STATE_VALUES = ("status", "width", "speed")
MAX_STATE_VALUE = 2.0**31  # lanes, and Gb/s
GAP_SECONDS = 60.0  # after a longer pause of readings, the states in between are unknown
REBOOT_SECONDS = 300.0  # a reset of counters this soon after the BMC was unreachable is due to its restart

Floats = NDArray[np.float64]


class LinkWatch:
    """Watches the links of one chassis (see telemetry.live.catalogue.ReadingSubscriber)."""

    def __init__(self, chassis_id: int) -> None:
        self._chassis = chassis_id
        self._recorder: LinkRecorder = process_recorder()
        self._loading: Future[KnownLinks] = self._recorder.start_watch(chassis_id)
        self._known: KnownLinks | None = None
        self._seen_at = 0.0  # of the newest reading
        self._lost_at = 0.0
        self._indexes: NDArray[np.intp] = np.array([], dtype=np.intp)
        self._names: list[tuple[int, str]] = []
        self._places: dict[int, dict[str, int]] = {}  # port -> name -> index in the arrays
        self._ports: NDArray[np.int64] = np.array([], dtype=np.int64)
        self._is_bytes: NDArray[np.bool_] = np.array([], dtype=np.bool_)
        self._is_state: NDArray[np.bool_] = np.array([], dtype=np.bool_)
        self._most: Floats = np.array([])  # upper limit of each value
        self._last: Floats = np.array([])
        self._values: dict[tuple[int, str], float] = {}  # last values under previous catalogues
        self._doubts: dict[int, frozenset[str]] = {}

    def begin(self, context: ReadingContext) -> None:
        """Set the indices of the ports' values; their last values are kept."""
        self._save_values()
        catalogue = context.catalogue
        found: list[tuple[int, int, str]] = []
        for index, (entry, series) in enumerate(zip(catalogue.entries, catalogue.series, strict=True)):
            name = series.detail if series.quantity is Quantity.ERRORS else VALUE_NAMES.get(series.quantity, "")
            if entry["object"] == "port" and name:
                found.append((index, entry["id"], name))
        self._places = defaultdict(dict)
        for place, (_, port, name) in enumerate(found):
            self._places[port].setdefault(name, place)
        names = [name for _, _, name in found]
        self._names = [(port, name) for _, port, name in found]
        self._indexes = np.array([index for index, _, _ in found], dtype=np.intp)
        self._ports = np.array([port for _, port, _ in found], dtype=np.int64)
        self._is_bytes = np.array([name in BYTE_COUNTERS for name in names], dtype=np.bool_)
        self._is_state = np.array([name in STATE_VALUES for name in names], dtype=np.bool_)
        self._most = np.array([MAX_STATE_VALUE if name in STATE_VALUES else counter_limit(name) for name in names])
        self._last = np.array([self._values.get(name, np.nan) for name in self._names])
        self._doubts = {port: doubt for port, doubt in self._doubts.items() if port in self._places}

    def take(self, sample: Sample) -> None:
        if not self._is_loaded():
            return
        values: Floats = sample.counted[self._indexes]
        usable = np.isfinite(values) & (values >= 0) & (values < self._most)
        negative = int(np.count_nonzero(values < 0))
        if negative:
            metrics.increment("link_counters_negative", negative, chassis=self._chassis)
        resumed = sample.at - self._seen_at > GAP_SECONDS
        with np.errstate(invalid="ignore"):
            # Byte counters always increase; only a decrease matters here.
            moved = usable & ((values < self._last) | (~self._is_bytes & (values != self._last)))
        # Not `np.unique`, whose first call imports NumPy's masked arrays: 22 MB of each worker.
        touched = set(self._places if resumed else self._ports[moved].tolist())
        for port in touched | self._doubts.keys():
            self._compare(port, values, sample.at, resumed=resumed)
        doubted = np.isin(self._ports, list(self._doubts)) if self._doubts else np.zeros(len(values), dtype=np.bool_)
        fresh = usable & ~(doubted & ~self._is_state)
        self._last[fresh] = values[fresh]
        self._seen_at = sample.at
        self._recorder.record_reading(self._chassis, sample.at)

    def lost(self, sentence: str) -> None:
        self._lost_at = time.time()

    async def close(self) -> None:
        if self._known is not None:
            self._save_values()
            for port, places in self._places.items():
                raw = valid_counts(
                    {name: self._last[place] for name, place in places.items() if name not in STATE_VALUES}
                )
                if raw and port not in self._doubts:
                    self._recorder.add_change(self._chassis, PortChange(port=port, at=self._seen_at, raw=raw))
        await self._recorder.stop_watch(self._chassis)

    def _compare(self, port: int, values: Floats, at: float, *, resumed: bool) -> None:
        places = self._places[port]
        last = {name: float(self._last[place]) for name, place in places.items()}
        now = {name: float(values[place]) for name, place in places.items()}
        state = self._state_of(last, now)
        new_state = state if resumed or state != self._state_of({}, last) else None
        counters: dict[str, Any] = {name: value for name, value in now.items() if name not in STATE_VALUES}
        before = valid_counts({name: last[name] for name in counters})
        step = counter_step(before, valid_counts(counters), self._doubts.get(port, frozenset()))
        if step.doubt:
            self._doubts[port] = step.doubt
        else:
            self._doubts.pop(port, None)
        if new_state is None and not step.gained and step.before is None and (before or not step.last):
            return
        how = How.REBOOT if self._lost_at and time.time() - self._lost_at < REBOOT_SECONDS else How.BMC
        self._recorder.add_change(
            self._chassis,
            PortChange(
                port=port, at=at, seen_until=self._seen_at, state=new_state, gained=step.gained,
                reset=step.before, how=how if step.before is not None else "",
                raw=None if step.doubt else step.last,
            ),
        )  # fmt: skip

    @staticmethod
    def _state_of(last: dict[str, float], now: dict[str, float]) -> LinkState:
        """Return the state of a link; values missing from a reading keep their previous ones."""
        known = {
            name: values[name]
            for values in (last, now)
            for name in STATE_VALUES
            if 0 <= values.get(name, np.nan) < MAX_STATE_VALUE
        }
        width = known.get("width")
        status = STATUS_NAMES.get(known.get("status", -1.0), "")
        return LinkState(status, int(width) if width is not None else None, known.get("speed"))

    def _save_values(self) -> None:
        for name, value in zip(self._names, self._last, strict=True):
            if np.isfinite(value):
                self._values[name] = float(value)

    def _is_loaded(self) -> bool:
        """Return whether the stored state is loaded; until then readings are ignored."""
        if self._known is not None:
            return True
        if not self._loading.done():
            return False
        self._known = self._loading.result()
        self._seen_at = self._known.seen_at
        self._values |= self._known.values
        self._last = np.array([self._values.get(name, np.nan) for name in self._names])
        return True
