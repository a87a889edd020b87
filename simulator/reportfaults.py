"""What faults make of the metric report: values that are none, reports that come again, too late, or far too long."""

from __future__ import annotations

import re
from collections import deque

import msgspec

from simulator.faults import Faults
from simulator.tree import Raw

REMEMBERED = 120  # reports
NAN = msgspec.Raw(b"NaN")  # which JSON does not know, and some services write all the same
NO_NUMBER = "not available"


class ReportFaults:
    """The faults of one chassis' report, as they are now."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._kept: deque[tuple[float, Raw]] = deque(maxlen=REMEMBERED)

    @property
    def most(self) -> int:
        """How many readings the report is filled up to; 0 for those that there are."""
        return max((fault.readings for fault in self._faults.of_kind("many_readings")), default=0)

    def value(self, metric: str, value: str) -> str | msgspec.Raw | None:
        """Return what stands in the report for a value; of what is no number only the first three apply."""
        for fault in self._faults.of_kind("bad_values"):
            if fault.target in metric:
                if fault.value == "nan":
                    return NAN
                if fault.value == "null":
                    return None
                if fault.value == "text":
                    return NO_NUMBER
                if re.fullmatch(r"[\d.]+", value):
                    return f"-{value}" if float(value) else "-1"
        return value

    def keep(self, now: float, report: Raw) -> None:
        """Take note of a report that was made at a simulated second."""
        self._kept.append((now, report))

    def sent(self, now: float, step: int, report: Raw) -> Raw:
        """Return the report that is sent: where reports are late, every third is one of so many seconds ago."""
        for fault in self._faults.of_kind("late_reports"):
            if step % 3 == 0:
                old = [kept for at, kept in self._kept if at <= now - fault.delay]
                return old[-1] if old else report
        return report
