"""Days of the week as people choose them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, time
from typing import Final

from core.language import Text, _, gettext_noop, joined

# As cron counts them.
DAYS: Final = (
    gettext_noop("Sun"), gettext_noop("Mon"), gettext_noop("Tue"), gettext_noop("Wed"), gettext_noop("Thu"),
    gettext_noop("Fri"), gettext_noop("Sat"),
)  # fmt: skip
WEEK: Final = (1, 2, 3, 4, 5, 6, 0)  # begins on Monday


def days_label(days: Collection[int]) -> Text:
    """Return days for display: 'Mon, Wed'; 'each day' for all, or none."""
    if len(set(days)) in {0, 7}:
        return _("each day")
    return joined((_(DAYS[one]) for one in WEEK if one in days), ", ")


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
    def words(self) -> Text:
        """Return it for display: 'Sun, 02:00 to 04:00 UTC'."""
        days, begins, ends = days_label(self.days), f"{self.begins:%H:%M}", f"{self.ends:%H:%M}"
        return _("{days}, {begins} to {ends} UTC", days=days, begins=begins, ends=ends)
