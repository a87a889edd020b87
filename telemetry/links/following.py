"""One port's counters from one reading to the next: what they gained; resets told from late reports and wraps. Pure.

A counter that stands lower than before was reset, or wrapped, or the report is an older one that came late. So a first
lower value is only doubted, and judged at the reading after it: a late report is followed by a value that is no lower
than ever. A reset takes several counters of a port back, a wrap one alone, from close below a power of two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

Raw = dict[str, int]
BYTES = ("RXBytes", "TXBytes")  # of a port's metrics: followed because a reset takes them back, too
WRAPS = (2**16, 2**32)
MOST_COUNTED = 2.0**53  # errors: a dead device reads all ones, and so much no float tells from one more
MOST_BYTES = 2.0**63
CLOSE = 0.05  # of the counter's range: below its end before, above its begin after


@dataclass(frozen=True)
class Step:
    """What a reading adds: `gained` since the one before, and, after a reset, where the counters stood `before` it.

    `last` is what the next reading is compared with; `doubt` the counters that stand lower than that for now.
    """

    gained: Raw = field(default_factory=dict)
    before: Raw | None = None
    last: Raw = field(default_factory=dict)
    doubt: frozenset[str] = frozenset()


def counts_of(values: Mapping[str, float]) -> Raw:
    """Return what of a reading can be a count: whole, not below zero, and no more than anything ever counts."""
    return {name: int(value) for name, value in values.items() if math.isfinite(value) and 0 <= value < most_of(name)}


def most_of(name: str) -> float:
    """Return what a counter stays below."""
    return MOST_BYTES if name in BYTES else MOST_COUNTED


def follow(last: Mapping[str, int], values: Mapping[str, int], doubt: frozenset[str] = frozenset()) -> Step:
    """Return the step from one reading's counts to the next; a counter that is new begins where it stands."""
    lower = {name for name, value in values.items() if value < last.get(name, 0)}
    if lower and not lower & doubt:
        return Step(last=dict(last), doubt=frozenset(lower))
    known = {**last, **values}
    if not lower:
        return Step(gained=_gained(last, values), last=known)
    wrapped = _wrapped(last, values, lower)
    if wrapped is not None:
        name, more = wrapped
        others = {other: value for other, value in values.items() if other != name}
        return Step(gained=_gained(last, others) | {name: more}, last=known)
    # From zero again. One that stands no lower may have been left alone: what it gained at least is counted.
    gained = {name: value if name in lower else value - last.get(name, value) for name, value in values.items()}
    return Step(gained=_errors(gained), before=_errors(last), last=known)


def _gained(last: Mapping[str, int], values: Mapping[str, int]) -> Raw:
    return _errors({name: value - last[name] for name, value in values.items() if name in last})


def _errors(counts: Mapping[str, int]) -> Raw:
    return {name: count for name, count in counts.items() if count and name not in BYTES}


def _wrapped(last: Mapping[str, int], values: Mapping[str, int], lower: set[str]) -> tuple[str, int] | None:
    """Return the counter that wrapped and what it gained, None where it was something else."""
    if len(lower) != 1:
        return None
    name = next(iter(lower))
    # Where nothing else counts, nothing tells a wrap from a reset.
    if not any(values.get(other, 0) >= count > 0 for other, count in last.items() if other != name):
        return None
    for size in WRAPS:
        if size * (1 - CLOSE) <= last[name] < size and values[name] <= size * CLOSE:
            return name, values[name] + size - last[name]
    return None
