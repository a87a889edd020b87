"""Error counters of a port: meaning, steps between readings (gain, reset, wrap), changes of state, flaps. Pure.

Sources: the descriptions of DMTF's PCIeErrors (PCIeDevice, which PortMetrics uses; schema bundle 2025.4) and the PCI
Express base specification: data link layer rules (LCRC, sequence numbers, NAK, replay buffer and REPLAY_NUM), link
training (Recovery), flow control, and Advanced Error Reporting, which names what counts as correctable.

'This end' is the port whose counters these are: of a slot or a host port, the switch's side of the link.

A counter that stands lower than before was reset, or wrapped, or the report is an older one that came late. So a first
lower value is only doubted, and judged at the reading after it: a late report is followed by a value that is no lower
than ever. A reset takes several counters of a port back, a wrap one alone, from close below a power of two.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from fabric.bmc.series import counter_label


class Direction(StrEnum):
    """Which way the packets went of which a counter says something."""

    RECEIVED = "received"  # by this end
    SENT = "sent"  # by this end
    BOTH = "both"  # the link as a whole, or it does not say


@dataclass(frozen=True)
class ErrorCounter:
    """One of PCIeErrors; `name` is the property."""

    name: str
    direction: Direction
    meaning: str

    @property
    def words(self) -> str:
        """What people call it."""
        return counter_label(self.name)


_R, _S, _B = Direction.RECEIVED, Direction.SENT, Direction.BOTH
COUNTERS = (
    ErrorCounter("FatalErrorCount", _B, "Errors after which the link or the device behind it cannot be relied on."),
    ErrorCounter("NonFatalErrorCount", _B, "Requests that failed for good, while the link itself went on."),
    ErrorCounter("CorrectableErrorCount", _B, "Errors that the hardware mended by itself, in whichever direction."),
    # A replay is what this end sends again: its packet was not acknowledged.
    ErrorCounter("ReplayCount", _S, "Packets that this end sent again, since no acknowledgement came."),
    ErrorCounter("ReplayRolloverCount", _S, "Packets sent again four times in vain: the link had to retrain."),
    ErrorCounter("NAKReceivedCount", _S, "Refusals by the far end: what this end sent arrived damaged or not at all."),
    # A NAK that this end sends is about a packet that it received.
    ErrorCounter("NAKSentCount", _R, "Refusals by this end: what it received was damaged or missing."),
    # The receiver checks LCRC and sequence number. DMTF's 'issued by the receiver' is the far end: it came from there.
    ErrorCounter("BadTLPCount", _R, "Packets of data that came in damaged or out of order."),
    ErrorCounter("BadDLLPCount", _R, "Packets of the link's own, such as acknowledgements, that came in damaged."),
    ErrorCounter("L0ToRecoveryCount", _B, "Times that the link left its working state to retrain."),
    ErrorCounter("FlowControlTimeoutErrors", _B, "Times that no news of free buffers came in time."),
    ErrorCounter(
        "UnsupportedRequestCount", _R, "Requests that this end received and does not know; no sign of a bad link."
    ),
)
COUNTERS_BY_NAME = {one.name: one for one in COUNTERS}
_COUNTER_ORDER = {one.name: place for place, one in enumerate(COUNTERS)}


def counter_of(name: str) -> ErrorCounter:
    """Return a counter; of one that this version does not know, its name and no direction."""
    return COUNTERS_BY_NAME.get(name) or ErrorCounter(name, Direction.BOTH, "A counter of this service's own.")


def sort_counters(names: Iterable[str]) -> list[ErrorCounter]:
    """Return counters, gravest first, those that this version does not know last."""
    return [
        counter_of(name)
        for name in sorted(set(names), key=lambda name: (_COUNTER_ORDER.get(name, len(_COUNTER_ORDER)), name))
    ]


RawCounts = dict[str, int]
BYTE_COUNTERS = ("RXBytes", "TXBytes")  # of a port's metrics: followed because a reset takes them back, too
WRAP_SIZES = (2**16, 2**32)
MAX_ERROR_COUNT = 2.0**53  # errors: a dead device reads all ones, and so much no float tells from one more
MAX_BYTE_COUNT = 2.0**63
WRAP_MARGIN = 0.05  # of the counter's range: below its end before, above its begin after


@dataclass(frozen=True)
class CounterStep:
    """What a reading adds: `gained` since the one before, and, after a reset, where the counters stood `before` it.

    `last` is what the next reading is compared with; `doubt` the counters that stand lower than that for now.
    """

    gained: RawCounts = field(default_factory=dict)
    before: RawCounts | None = None
    last: RawCounts = field(default_factory=dict)
    doubt: frozenset[str] = frozenset()


def valid_counts(values: Mapping[str, float]) -> RawCounts:
    """Return what of a reading can be a count: whole, not below zero, and no more than anything ever counts."""
    return {
        name: int(value) for name, value in values.items() if math.isfinite(value) and 0 <= value < counter_limit(name)
    }


def counter_limit(name: str) -> float:
    """Return what a counter stays below."""
    return MAX_BYTE_COUNT if name in BYTE_COUNTERS else MAX_ERROR_COUNT


def counter_step(
    last: Mapping[str, int], values: Mapping[str, int], doubt: frozenset[str] = frozenset()
) -> CounterStep:
    """Return the step from one reading's counts to the next; a counter that is new begins where it stands."""
    lower = {name for name, value in values.items() if value < last.get(name, 0)}
    if lower and not lower & doubt:
        return CounterStep(last=dict(last), doubt=frozenset(lower))
    known = {**last, **values}
    if not lower:
        return CounterStep(gained=_gained(last, values), last=known)
    wrapped = _wrapped(last, values, lower)
    if wrapped is not None:
        name, more = wrapped
        others = {other: value for other, value in values.items() if other != name}
        return CounterStep(gained=_gained(last, others) | {name: more}, last=known)
    # From zero again. One that stands no lower may have been left alone: what it gained at least is counted.
    gained = {name: value if name in lower else value - last.get(name, value) for name, value in values.items()}
    return CounterStep(gained=_error_counts(gained), before=_error_counts(last), last=known)


def _gained(last: Mapping[str, int], values: Mapping[str, int]) -> RawCounts:
    return _error_counts({name: value - last[name] for name, value in values.items() if name in last})


def _error_counts(counts: Mapping[str, int]) -> RawCounts:
    return {name: count for name, count in counts.items() if count and name not in BYTE_COUNTERS}


def _wrapped(last: Mapping[str, int], values: Mapping[str, int], lower: set[str]) -> tuple[str, int] | None:
    """Return the counter that wrapped and what it gained, None where it was something else."""
    if len(lower) != 1:
        return None
    name = next(iter(lower))
    # Where nothing else counts, nothing tells a wrap from a reset.
    if not any(values.get(other, 0) >= count > 0 for other, count in last.items() if other != name):
        return None
    for size in WRAP_SIZES:
        if size * (1 - WRAP_MARGIN) <= last[name] < size and values[name] <= size * WRAP_MARGIN:
            return name, values[name] + size - last[name]
    return None


@dataclass(frozen=True)
class LinkState:
    """How a link stands; status as in fabric.bmc.series.LINK_STATUSES, '' and None where the BMC does not tell."""

    status: str
    width: int | None
    speed_gbps: float | None


@dataclass(frozen=True, kw_only=True)
class PortChange:
    """What a reading at `at` (Unix s) showed of a port; the one before was at `seen_until`.

    `state` is the new state, None where it is as before; `reset` where the counters stood before they began anew.
    """

    port: int
    at: float
    seen_until: float = 0.0
    state: LinkState | None = None
    gained: dict[str, int] = field(default_factory=dict)
    reset: dict[str, int] | None = None
    how: str = ""
    raw: dict[str, int] | None = None


@dataclass(frozen=True)
class KnownLinks:
    """What the rows say of a chassis: when it was last read, and the newest values by port and name."""

    seen_at: float
    values: dict[tuple[int, str], float]


LINK_UP = "LinkUp"
FLAPPING = "Flapping"
DOWN_STATES = {"LinkDown", "NoLink"}
# Longer than this, a link was down and did not flap: a host that was switched off, a device that was taken out.
MAX_FLAP_DURATION = timedelta(seconds=60)


class StateSpan(Protocol):
    """A time during which a link was in one state; `drops` counts within one that is told as FLAPPING."""

    @property
    def since(self) -> datetime:
        """Its begin."""

    @property
    def status(self) -> str:
        """As fabric.bmc.series.LINK_STATUSES, or FLAPPING."""

    @property
    def asked(self) -> bool:
        """Whether an operation here was at work on the link when it began."""

    @property
    def drops(self) -> int:
        """How often the link left the up state."""


def count_flaps(states: Iterable[StateSpan], *, since: datetime) -> int:
    """Return how often a link went down after `since` and was up again within a minute; what was asked for is no flap.

    `states` are in order of time.
    """
    flaps, left_at, asked, was_up, was_down = 0, None, False, False, False
    for state in states:
        if state.status == FLAPPING:
            flaps += state.drops
            left_at, was_up = None, False
        elif state.status == LINK_UP:
            if left_at is not None and was_down and not asked and state.since - left_at <= MAX_FLAP_DURATION:
                flaps += left_at >= since
            left_at, was_up = None, True
        else:
            if was_up:
                left_at, asked, was_up, was_down = state.since, False, False, False
            asked |= state.asked
            # A link that only retrained was not down; how often it did is counted by the port.
            was_down |= state.status in DOWN_STATES
    return flaps
