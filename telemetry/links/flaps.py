"""How often a link went down and came back by itself, told from the times of its states: pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Protocol

UP = "LinkUp"
FLAPPING = "Flapping"
DOWN = {"LinkDown", "NoLink"}
# Longer than this, a link was down and did not flap: a host that was switched off, a device that was taken out.
LONGEST_FLAP = timedelta(seconds=60)


class State(Protocol):
    """A time during which a link was in one state; `drops` counts within one that is told as FLAPPING."""

    @property
    def since(self) -> datetime:
        """Its begin."""

    @property
    def status(self) -> str:
        """As fabric.bmc.types.LINK_STATUSES, or FLAPPING."""

    @property
    def asked(self) -> bool:
        """Whether an operation here was at work on the link when it began."""

    @property
    def drops(self) -> int:
        """How often the link left the up state."""


def flaps_of(states: Iterable[State], *, since: datetime) -> int:
    """Return how often a link went down after `since` and was up again within a minute; what was asked for is no flap.

    `states` are in order of time.
    """
    flaps, left_at, asked, was_up, was_down = 0, None, False, False, False
    for state in states:
        if state.status == FLAPPING:
            flaps += state.drops
            left_at, was_up = None, False
        elif state.status == UP:
            if left_at is not None and was_down and not asked and state.since - left_at <= LONGEST_FLAP:
                flaps += left_at >= since
            left_at, was_up = None, True
        else:
            if was_up:
                left_at, asked, was_up, was_down = state.since, False, False, False
            asked |= state.asked
            # A link that only retrained was not down; how often it did is counted by the port.
            was_down |= state.status in DOWN
    return flaps
