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
    """What the counters of a port had, by name, until (Unix s) they began anew: from then on all is the tenant's."""

    counts: Mapping[str, int] = field(default_factory=dict)
    until: float = math.inf

    @property
    def now(self) -> Mapping[str, int]:
        """What they still have of before."""
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
    """Return what counters have that is somebody's own."""
    counts = before.now if before is not None else {}
    return {name: max(0, count - counts.get(name, 0)) for name, count in errors.items()}
