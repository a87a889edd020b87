"""Where error counters of ports stood when the ports became a tenant's: what came before is not the tenant's to see.

A room above follows the counters and tells it; without one, nothing was counted before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from accounts.models import User


@dataclass(frozen=True)
class Before:
    """What the counters of a port had, by name, when it became a tenant's; `until` (Unix s) they first began anew.

    `left` is what they still have of that: a reset may leave some alone; None where nobody follows them that closely.
    `gained` is what came since, over all resets: all of it is the tenant's.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    until: float = math.inf
    left: Mapping[str, int] | None = None
    gained: Mapping[str, int] = field(default_factory=dict)

    @property
    def now(self) -> Mapping[str, int]:
        """What they still have of before."""
        if self.left is not None:
            return self.left
        return self.counts if self.until == math.inf else {}


# Takes the ids of a tenant and of chassis; returns what was before by the ports' ids.
Teller = Callable[[int, Collection[int]], Mapping[int, Before]]
_tellers: list[Teller] = []


def tell_counted(teller: Teller) -> None:
    """Let a room above tell where counters stood."""
    if teller not in _tellers:
        _tellers.append(teller)


def counted_before(person: User, chassis: Collection[int]) -> Mapping[int, Before]:
    """Return what ports of chassis (ids) had counted before they were the person's; nothing for administrators."""
    if person.is_administrator or person.tenant_id is None:
        return {}
    found: dict[int, Before] = {}
    for teller in _tellers:
        found |= teller(person.tenant_id, chassis)
    return found


def theirs(errors: Mapping[str, int], before: Before | None) -> dict[str, int]:
    """Return what counters have that is somebody's own.

    The counts may have been read a while ago: before the counters began anew, or before they were the person's. So
    they are held against where the counters stood then, whether they began anew since or not.
    """
    if before is None:
        return dict(errors)
    return {
        name: min(count, max(0, count - before.counts.get(name, 0), before.gained.get(name, 0)))
        for name, count in errors.items()
    }
