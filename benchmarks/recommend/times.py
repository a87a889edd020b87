"""The time around the training of a job: composing its devices, starting it, giving them back. Pure.

The operations of a drawer are carried out one after the other, those of different drawers at the same time. Giving back
undoes each operation.
"""

from __future__ import annotations

import statistics
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import exp, log
from typing import Final

import numpy as np

from benchmarks.model.reference_data import NORMAL_90, Floats
from fabric.plans.rules import StepKind

MIN_SAMPLES: Final = 3  # fewer do not show the usual time
NORMAL_80_WIDTH: Final = 2.563  # standard deviations of a normal distribution between its 10th and 90th percentile
MIN_TIME_SPREAD: Final = 0.05
MIN_SECONDS: Final = 0.01
UNDONE_BY: Final[Mapping[StepKind, StepKind]] = {"attach": "detach", "detach": "attach"}  # the others by themselves


@dataclass(frozen=True, kw_only=True)
class UsualTime:
    """How long something takes: the median in s, the standard deviation of the logarithm, and the measurements.

    No measurements (`count` 0): it is assumed.
    """

    seconds: float
    spread: float
    count: int = 0

    @property
    def low(self) -> float:
        """The lower end of the interval that holds nine of ten."""
        return self.seconds * exp(-self.spread * NORMAL_90)

    @property
    def high(self) -> float:
        return self.seconds * exp(self.spread * NORMAL_90)


# Assumed, since neither the published experiment nor a data sheet has a figure: the switch changes its zone and the
# link trains in a second or so, then the host looks for the device and its driver starts it. A mode restarts a drawer.
ASSUMED_TIMES: Final[Mapping[StepKind, UsualTime]] = {
    "attach": UsualTime(seconds=10.0, spread=0.5),
    "detach": UsualTime(seconds=5.0, spread=0.5),
    "move": UsualTime(seconds=15.0, spread=0.5),
    "mode": UsualTime(seconds=60.0, spread=0.7),
}
# Assumed: the interpreter, the framework, a context on each device, the network.
ASSUMED_START: Final = UsualTime(seconds=20.0, spread=0.5)


@dataclass(frozen=True)
class StepSample:
    """The measured time of an operation: since the one before it in the drawer, `among` all of a plan in it."""

    kind: StepKind
    chassis: int
    among: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class SiteTimes:
    """How long operations and starts take here: `steps` by name and number in a drawer (0: any), `starts` by workload.

    Operations are looked up for their number, else for any, else for any chassis ('' and 0), else they are assumed.
    """

    steps: Mapping[tuple[StepKind, int, int], UsualTime] = field(default_factory=dict)
    starts: Mapping[str, UsualTime] = field(default_factory=dict)

    @classmethod
    def measured(cls, steps: Iterable[StepSample], starts: Iterable[tuple[str, float]] = ()) -> SiteTimes:
        """Return the usual times of measured operations, and of starts by workload."""
        seconds: dict[tuple[StepKind, int, int], list[float]] = {}
        for one in steps:
            for key in ((one.chassis, one.among), (one.chassis, 0), (0, 0)):
                seconds.setdefault((one.kind, *key), []).append(one.seconds)
        started: dict[str, list[float]] = {}
        for workload, taken in starts:
            for name in (workload, ""):
                started.setdefault(name, []).append(taken)
        return cls(
            steps={key: usual_time(values) for key, values in seconds.items() if len(values) >= MIN_SAMPLES},
            starts={name: usual_time(values) for name, values in started.items() if len(values) >= MIN_SAMPLES},
        )

    def step(self, kind: StepKind, chassis: int, among: int) -> UsualTime:
        keys = ((kind, chassis, among), (kind, chassis, 0), (kind, 0, 0))
        return next((self.steps[key] for key in keys if key in self.steps), ASSUMED_TIMES[kind])

    def start(self, workload: str) -> UsualTime:
        return self.starts.get(workload) or self.starts.get("") or ASSUMED_START


def usual_time(seconds: Sequence[float]) -> UsualTime:
    """Return the median and the spread of at least two measurements."""
    tenths = statistics.quantiles([max(MIN_SECONDS, one) for one in seconds], n=10, method="inclusive")
    spread = log(tenths[-1] / tenths[0]) / NORMAL_80_WIDTH
    return UsualTime(seconds=tenths[4], spread=max(MIN_TIME_SPREAD, spread), count=len(seconds))


DrawerSteps = tuple[tuple[StepKind, int, int, UsualTime], ...]  # kind, chassis, how often, and the time of each


@dataclass(frozen=True, kw_only=True)
class TimesAround:
    """The operations that compose a candidate and give it back, by drawer, and its start."""

    compose: frozenset[DrawerSteps] = frozenset()
    give_back: frozenset[DrawerSteps] = frozenset()
    start: UsualTime = ASSUMED_START

    @classmethod
    def of(cls, times: SiteTimes, drawers: Iterable[tuple[int, Sequence[StepKind]]], workload: str) -> TimesAround:
        """Return the times of drawers, each the id of its chassis and its operations."""
        changed = [(chassis, kinds) for chassis, kinds in drawers if kinds]
        return cls(
            compose=frozenset(_drawer_steps(times, chassis, kinds) for chassis, kinds in changed),
            give_back=frozenset(
                _drawer_steps(times, chassis, [UNDONE_BY.get(kind, kind) for kind in kinds])
                for chassis, kinds in changed
            ),
            start=times.start(workload),
        )

    @cached_property
    def used(self) -> dict[StepKind, UsualTime]:
        """The time of an operation of each kind that composes it, the longest one of several chassis."""
        steps = [one for drawer in self.compose for one in drawer]
        return {kind: used for kind, _, _, used in sorted(steps, key=lambda one: one[3].seconds)}


def _drawer_steps(times: SiteTimes, chassis: int, kinds: Sequence[StepKind]) -> DrawerSteps:
    return tuple(
        (kind, chassis, count, times.step(kind, chassis, len(kinds))) for kind, count in sorted(Counter(kinds).items())
    )


def drawers_seconds(drawers: frozenset[DrawerSteps], rows: int) -> Floats:
    """Return draws of the time of drawers at once, s; the medians for a single row.

    A draw has one speed of each kind and chassis, so that more operations always take longer. What is assumed is the
    same of all chassis.
    """
    found = np.zeros(rows)
    for steps in drawers:
        taken = [
            count * _seconds(f"{kind} {chassis if usual.count else ''}", usual, rows)
            for kind, chassis, count, usual in steps
        ]
        found = np.maximum(found, np.sum(taken, axis=0))
    return found


def start_seconds(start: UsualTime, rows: int) -> Floats:
    """Return draws of the time of a start, s."""
    return _seconds("start", start, rows)


def _seconds(name: str, usual: UsualTime, rows: int) -> Floats:
    if rows == 1:
        return np.full(1, usual.seconds)
    normal = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(rows)
    drawn: Floats = usual.seconds * np.exp(usual.spread * normal)
    return drawn
