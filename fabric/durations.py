"""How long operations take at this site: from its own history, never guessed."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from fabric.models import Operation
from fabric.outlook import Place

NEWEST = 200
FEWEST = 3  # fewer tell nothing of what is usual
TENTHS = 10
NONE_YET = "no history yet"

Kind = tuple[str, int]  # of an operation, and the id of the chassis that it is on


@dataclass(frozen=True, kw_only=True)
class Usually:
    """The 10th and the 90th percentile of how long something took, in s."""

    low: float
    high: float

    @property
    def words(self) -> str:
        """Return 'usually 4 to 9 s'."""
        return f"usually {span(self.low, self.high)}"


def durations_usual(kinds: Collection[Kind]) -> dict[Kind, Usually]:
    """Return how long operations of these kinds usually take; those without a history are left out.

    It is that of the newest 200 that were done on the same chassis, else on all.
    """
    found: dict[Kind, Usually] = {}
    anywhere: dict[str, Usually | None] = {}
    done = Operation.objects.filter(state=Operation.State.DONE, started_at__isnull=False, finished_at__isnull=False)
    for kind, chassis in sorted(set(kinds)):
        usually = _usual(done.filter(kind=kind, chassis=chassis))
        if usually is None:
            if kind not in anywhere:
                anywhere[kind] = _usual(done.filter(kind=kind))
            usually = anywhere[kind]
        if usually is not None:
            found[kind, chassis] = usually
    return found


def longest_path(steps: Iterable[tuple[Place, str]], usual: dict[Kind, Usually]) -> Usually | None:
    """Return how long steps (where, and of which kind) take: drawers side by side, each one step after the other.

    None where there is nothing to do, or no history of one of the kinds.
    """
    sums: dict[Place, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for place, kind in steps:
        if (usually := usual.get((kind, place[0]))) is None:
            return None
        sums[place][0] += usually.low
        sums[place][1] += usually.high
    if not sums:
        return None
    return Usually(low=max(low for low, _ in sums.values()), high=max(high for _, high in sums.values()))


def span(low: float, high: float) -> str:
    """Return two durations in s as '4 to 9 s', '0.4 to 0.9 s' or '2 to 4 min', and as one where they look the same."""
    if high >= 120:
        begin, end, unit = f"{low / 60:.0f}", f"{high / 60:.0f}", "min"
    elif high < 3:
        begin, end, unit = f"{low:.1f}", f"{high:.1f}", "s"
    else:
        begin, end, unit = f"{low:.0f}", f"{high:.0f}", "s"
    return f"{end} {unit}" if begin == end else f"{begin} to {end} {unit}"


def _usual(done: Any) -> Usually | None:
    times = done.order_by("-finished_at").values_list("started_at", "finished_at")[:NEWEST]
    seconds = [max(0.0, (finished - started).total_seconds()) for started, finished in times]
    if len(seconds) < FEWEST:
        return None
    tenths = statistics.quantiles(seconds, n=TENTHS, method="inclusive")
    return Usually(low=tenths[0], high=tenths[-1])
