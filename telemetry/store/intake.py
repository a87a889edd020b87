"""What is let into the store: what is no number, or no count, is kept out, and counted. Pure."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from telemetry.catalogue import CLOCKS_AGREE, Sample, repeats
from telemetry.store.format import Values

REACH_SECONDS = 120.0  # a counter's rise over a longer time is no rate of the moment at its end
SLACK_SECONDS = 5.0  # what is missing for so long is told as a gap
REMEMBERED = 8  # intervals


class Verdict(Enum):
    """What becomes of a reading."""

    GOES_ON = "goes on"  # it follows on the one before
    BEGINS = "begins"  # it is good, and what was before it is too long ago
    SET_BACK = "set back"  # our clock was set back: it comes after the one before, and its time before
    REPEATED = "repeated"  # the one before came once more


@dataclass(frozen=True)
class Admitted:
    """Readings as they are kept, [series, rows], and how many were kept out."""

    values: Values
    no_numbers: int
    negative_counts: int


def admitted(readings: Values, counters: NDArray[np.bool_]) -> Admitted:
    """Return readings, [series, rows], without what is no number and without counters below zero."""
    good = np.isfinite(readings)
    no_numbers = readings.size - int(good.sum())
    below = readings[counters] < 0
    negative = int((below & good[counters]).sum())
    # To add zero makes 0.0 of -0.0.
    values = readings + 0.0
    if no_numbers:
        values[~good] = math.nan
    if negative:
        values[counters] = np.where(below, math.nan, values[counters])
    return Admitted(values, no_numbers, negative)


class Pace:
    """How readings of one chassis follow each other, by our clock and by the BMC's."""

    def __init__(self, period: float) -> None:
        self._intervals: deque[float] = deque([period], REMEMBERED)
        self.last: Sample | None = None
        self.bmc_jumped = False  # at the newest reading
        self._bound(period)

    def _bound(self, interval: float) -> None:
        self._shortest = interval
        # How long nothing may come without being missed, and how long ago a reading may be for a rate since then, s.
        self.slack = max(SLACK_SECONDS, 3 * interval)
        self.reach = max(REACH_SECONDS, 3 * interval)

    def judge(self, sample: Sample) -> Verdict:
        """Return what becomes of the next reading."""
        last, self.bmc_jumped = self.last, False
        if last is None:
            self.last = sample
            return Verdict.BEGINS
        if repeats(sample, last):
            return Verdict.REPEATED
        self.last = sample
        elapsed = sample.at - last.at
        if sample.measured_at > 0 and last.measured_at > 0:
            drift = sample.measured_at - last.measured_at - elapsed
            self.bmc_jumped = abs(drift) > CLOCKS_AGREE
        if elapsed <= 0:
            return Verdict.SET_BACK
        reach = self.reach
        self._intervals.append(elapsed)
        if not self._shortest <= elapsed < 1.5 * self._shortest:
            self._bound(min(self._intervals))
        return Verdict.GOES_ON if elapsed <= reach else Verdict.BEGINS
