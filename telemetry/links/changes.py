"""What the watch tells the recorder, and what the recorder knows from before."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class State:
    """How a link stands; status as in fabric.bmc.types.LINK_STATUSES, '' and None where the BMC does not tell."""

    status: str
    width: int | None
    speed_gbps: float | None


@dataclass(frozen=True, kw_only=True)
class Change:
    """What a reading at `at` (Unix s) showed of a port; the one before was at `seen_until`.

    `state` is the new state, None where it is as before; `reset` where the counters stood before they began anew.
    """

    port: int
    at: float
    seen_until: float = 0.0
    state: State | None = None
    gained: dict[str, int] = field(default_factory=dict)
    reset: dict[str, int] | None = None
    how: str = ""
    raw: dict[str, int] | None = None


@dataclass(frozen=True)
class Known:
    """What the rows say of a chassis: when it was last read, and the newest values by port and name."""

    seen_at: float
    values: dict[tuple[int, str], float]
