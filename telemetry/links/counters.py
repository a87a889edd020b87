"""Error counters of a port: meaning, steps between readings (gain, reset, wrap), changes of state. Pure.

Sources: the descriptions of DMTF's PCIeErrors (PCIeDevice, which PortMetrics uses; schema bundle 2025.4) and the PCI
Express base specification: data link layer rules (LCRC, sequence numbers, NAK, replay buffer and REPLAY_NUM), link
training (Recovery), flow control, and Advanced Error Reporting, which names what counts as correctable.

'This end' is the port of the counters: of a slot or a host port, the switch's side of the link.

A counter that is lower than before was reset, or wrapped, or the report is an older one that arrived late. So a first
lower value is only doubted, and decided at the next reading: a late report is followed by a value that is not lower. A
reset lowers several counters of a port, a wrap only one, from just below a power of two.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from core.language import gettext_noop
from fabric.bmc.series import counter_label


class Direction(StrEnum):
    """Direction of the packets that a counter is about."""

    RECEIVED = gettext_noop("received")  # by this end
    SENT = gettext_noop("sent")  # by this end
    BOTH = gettext_noop("both")  # the link as a whole, or not specified


@dataclass(frozen=True)
class ErrorCounter:
    """One counter of PCIeErrors; `name` is the property, `words` its counter_label."""

    name: str
    words: str
    direction: Direction
    meaning: str


_R, _S, _B = Direction.RECEIVED, Direction.SENT, Direction.BOTH
COUNTERS = (
    ErrorCounter(
        "FatalErrorCount",
        gettext_noop("Fatal error count"),
        _B,
        gettext_noop("Errors after which the link or the device behind it is not reliable."),
    ),
    ErrorCounter(
        "NonFatalErrorCount",
        gettext_noop("Non fatal error count"),
        _B,
        gettext_noop("Requests that failed permanently, while the link itself continued."),
    ),
    ErrorCounter(
        "CorrectableErrorCount",
        gettext_noop("Correctable error count"),
        _B,
        gettext_noop("Errors that the hardware corrected, in either direction."),
    ),
    # A replay is a packet that this end sends again, because it was not acknowledged.
    ErrorCounter(
        "ReplayCount",
        gettext_noop("Replay count"),
        _S,
        gettext_noop("Packets that this end sent again, since no acknowledgement arrived."),
    ),
    ErrorCounter(
        "ReplayRolloverCount",
        gettext_noop("Replay rollover count"),
        _S,
        gettext_noop("Packets that four replays did not deliver: the link had to retrain."),
    ),
    ErrorCounter(
        "NAKReceivedCount",
        gettext_noop("NAK received count"),
        _S,
        gettext_noop("NAKs of the far end: a packet of this end arrived damaged or not at all."),
    ),
    # A NAK that this end sends is about a packet that it received.
    ErrorCounter(
        "NAKSentCount",
        gettext_noop("NAK sent count"),
        _R,
        gettext_noop("NAKs of this end: a received packet was damaged or missing."),
    ),
    # The receiver checks LCRC and sequence number. DMTF's 'issued by the receiver' is the far end: it came from there.
    ErrorCounter(
        "BadTLPCount",
        gettext_noop("Bad TLP count"),
        _R,
        gettext_noop("Received TLPs that were damaged or out of order."),
    ),
    ErrorCounter(
        "BadDLLPCount",
        gettext_noop("Bad DLLP count"),
        _R,
        gettext_noop("Received DLLPs, such as acknowledgements, that were damaged."),
    ),
    ErrorCounter(
        "L0ToRecoveryCount",
        gettext_noop("L0 to recovery count"),
        _B,
        gettext_noop("Transitions of the link from L0 to Recovery to retrain."),
    ),
    ErrorCounter(
        "FlowControlTimeoutErrors",
        gettext_noop("Flow control timeout errors"),
        _B,
        gettext_noop("Times that flow control updates did not arrive in time."),
    ),
    ErrorCounter(
        "UnsupportedRequestCount",
        gettext_noop("Unsupported request count"),
        _R,
        gettext_noop("Received requests that this end does not support; no sign of a bad link."),
    ),
)
COUNTERS_BY_NAME = {one.name: one for one in COUNTERS}


def sort_counters(names: Collection[str]) -> list[ErrorCounter]:
    """Return counters, most severe first, unknown ones last, by name."""
    others = sorted(set(names) - COUNTERS_BY_NAME.keys())
    return [
        *(one for one in COUNTERS if one.name in names),
        *(
            ErrorCounter(
                name, counter_label(name), Direction.BOTH, gettext_noop("A counter that only this service has.")
            )
            for name in others
        ),
    ]


RawCounts = dict[str, int]
BYTE_COUNTERS = ("RXBytes", "TXBytes")  # of a port's metrics: watched because a reset clears them, too
WRAP_SIZES = (2**16, 2**32)
MAX_ERROR_COUNT = 2.0**53  # a dead device reads all ones; above this, floats do not represent every integer
MAX_BYTE_COUNT = 2.0**63
WRAP_MARGIN = 0.05  # of the counter's range: distance to its end before, and to its start after a wrap


@dataclass(frozen=True)
class CounterStep:
    """The change of a reading: counts `gained` since the previous one and, after a reset, the values `before` it.

    `last` are the values to compare the next reading with; `doubt` the counters that are lower than these for now.
    """

    gained: RawCounts = field(default_factory=dict)
    before: RawCounts | None = None
    last: RawCounts = field(default_factory=dict)
    doubt: frozenset[str] = frozenset()


def valid_counts(values: Mapping[str, float]) -> RawCounts:
    """Return the valid counts of a reading: finite, not negative, and below the limit of the counter."""
    return {
        name: int(value) for name, value in values.items() if math.isfinite(value) and 0 <= value < counter_limit(name)
    }


def counter_limit(name: str) -> float:
    return MAX_BYTE_COUNT if name in BYTE_COUNTERS else MAX_ERROR_COUNT


def counter_step(
    last: Mapping[str, int], values: Mapping[str, int], doubt: frozenset[str] = frozenset()
) -> CounterStep:
    """Return the step from one reading's counts to the next; a new counter has gained nothing."""
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
    # Reset to zero. A counter that is not lower may not have been reset: its minimum gain is counted.
    gained = {name: value if name in lower else value - last.get(name, value) for name, value in values.items()}
    return CounterStep(gained=_error_counts(gained), before=_error_counts(last), last=known)


def _gained(last: Mapping[str, int], values: Mapping[str, int]) -> RawCounts:
    return _error_counts({name: value - last[name] for name, value in values.items() if name in last})


def _error_counts(counts: Mapping[str, int]) -> RawCounts:
    return {name: count for name, count in counts.items() if count and name not in BYTE_COUNTERS}


def _wrapped(last: Mapping[str, int], values: Mapping[str, int], lower: set[str]) -> tuple[str, int] | None:
    """Return the counter that wrapped and its gain, None for a reset."""
    if len(lower) != 1:
        return None
    name = next(iter(lower))
    # Without another counter, a wrap cannot be distinguished from a reset.
    if not any(values.get(other, 0) >= count > 0 for other, count in last.items() if other != name):
        return None
    for size in WRAP_SIZES:
        if size * (1 - WRAP_MARGIN) <= last[name] < size and values[name] <= size * WRAP_MARGIN:
            return name, values[name] + size - last[name]
    return None


@dataclass(frozen=True)
class LinkState:
    """State of a link; status as in fabric.bmc.series.LINK_STATUSES, '' and None where not reported."""

    status: str
    width: int | None
    speed_gbps: float | None


NO_STATE = LinkState("", None, None)


@dataclass(frozen=True, kw_only=True)
class PortChange:
    """Change of a port in a reading at `at` (Unix s); the previous reading was at `seen_until`.

    `state` is the new state, None where unchanged; `reset` are the values of the counters before a reset.
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
    """Stored state of a chassis' links: when it was last read, and the newest values by port and name."""

    seen_at: float
    values: dict[tuple[int, str], float]


FLAPPING = "Flapping"
DOWN_STATES = {"LinkDown", "NoLink"}
