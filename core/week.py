"""Days of the week as people choose them. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, time
from typing import Final

DAYS: Final = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")  # as cron counts them
WEEK: Final = (1, 2, 3, 4, 5, 6, 0)  # begins on Monday


def days_label(days: Collection[int]) -> str:
    """Return days for display: 'Mon, Wed'; 'each day' for all, or none."""
    return ", ".join(DAYS[one] for one in WEEK if one in days) if len(set(days)) not in {0, 7} else "each day"


@dataclass(frozen=True, kw_only=True)
class WeeklyTimes:
    """From one time of day until another (of the next day where that is not later) on some days (none: each), UTC."""

    begins: time
    ends: time
    days: Collection[int] = ()

    def includes(self, at: datetime) -> bool:
        """Return whether an instant is within; the day that counts is that of the beginning."""
        at = at.astimezone(UTC)
        day, moment = at.isoweekday() % 7, at.time()
        if self.begins < self.ends:
            return self._is_on(day) and self.begins <= moment < self.ends
        return (self._is_on(day) and moment >= self.begins) or (self._is_on((day - 1) % 7) and moment < self.ends)

    def _is_on(self, day: int) -> bool:
        return not self.days or day in self.days

    @property
    def words(self) -> str:
        """Return it for display: 'Sun, 02:00 to 04:00 UTC'."""
        return f"{days_label(self.days)}, {self.begins:%H:%M} to {self.ends:%H:%M} UTC"
