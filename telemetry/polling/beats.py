"""The beats of one chassis, measured: which were kept, how late, and which were over before anybody asked."""

from __future__ import annotations

from bisect import bisect_left

from telemetry.pipeline import tally

# Upper bounds, in s, of what is counted as poll_lag_le_<bound>: from the beat to the frame's being published.
LAGS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
LATE = 0.5  # of a period
EARLY = 0.05  # of a period: a timer may end so much before its beat
_BUCKETS = [*(f"poll_lag_le_{bound}" for bound in LAGS), "poll_lag_le_inf"]


class Beats:
    """Counts the polls of a chassis. A beat is a multiple of the period in Unix time; its number is how many.

    Where many chassis are read, each has a phase: its beats come so many s after those multiples.
    """

    def __init__(self, chassis_id: int) -> None:
        self._chassis = chassis_id
        self._period = 0.0
        self._number: int | None = None  # of the last beat that was kept
        self._due = 0.0
        self._is_first = True
        self._is_failing = False

    def plan(self, period: float) -> None:
        """Take note that polls come each `period` s from now on; the first comes at once, on no beat."""
        if period != self._period:
            self._period, self._number = period, None
        self._is_first = True
        tally.note("poll_period_seconds", period, chassis=self._chassis)

    def begin(self, now: float, phase: float = 0.0) -> None:
        """Take note that a poll begins (Unix s): what was missed between is told now."""
        number = int((now - phase) / self._period + EARLY)
        if self._number is not None and number > self._number + 1:
            missed = "polls_failed" if self._is_failing else "polls_skipped"
            tally.add(missed, number - self._number - 1, chassis=self._chassis)
        self._number, self._is_failing = number, False
        self._due = now if self._is_first else number * self._period + phase
        self._is_first = False

    def end(self, now: float, values: int) -> None:
        """Take note that its readings are published (Unix s), and of how many there are."""
        lag = max(0.0, now - self._due)
        tally.add("polls_done", chassis=self._chassis)
        tally.add("readings_taken", values)
        tally.add(_BUCKETS[bisect_left(LAGS, lag)])
        tally.add("poll_lag_milliseconds", round(lag * 1000))
        if lag > LATE * self._period:
            tally.add("polls_late", chassis=self._chassis)
        tally.note("poll_lag_seconds", lag, chassis=self._chassis)

    def failed(self, now: float) -> None:
        """Take note that the chassis could not be read (Unix s): beats until it can be are not skipped but failed."""
        missed = 1
        if self._number is not None:
            number = int(now / self._period)
            missed = max(1, number - self._number)
            self._number += missed
        tally.add("polls_failed", missed, chassis=self._chassis)
        self._is_failing = True

    def close(self) -> None:
        """Take note that this process follows the chassis no longer."""
        tally.forget(self._chassis)
