"""Times of a schedule as people choose them, by days and hours, and as cron has them. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from core.language import _
from core.week import days_label

CRON_PATTERN: Final = re.compile(r"(\d{1,2}) (\*|\d{1,2}(?:,\d{1,2}){0,23}) \* \* (\*|[0-6](?:,[0-6]){0,6})")


@dataclass(frozen=True)
class ScheduleTimes:
    """A minute of some hours (none: each) on some days of the week (none: each; 0 is Sunday); UTC."""

    minute: int = 0
    hours: Sequence[int] = ()
    days: Sequence[int] = ()

    @property
    def cron(self) -> str:
        """The cron expression of it."""
        hours, days = (",".join(map(str, sorted(set(one)))) or "*" for one in (self.hours, self.days))
        return f"{self.minute} {hours} * * {days}"

    @property
    def words(self) -> str:
        """Return it for display: 'Mon, Wed at 03:15', 'each hour at :15'."""
        if not self.hours:
            minute = f"{self.minute:02}"
            if not self.days:
                return _("each hour at :{minute}", minute=minute)
            return _("{days}, each hour at :{minute}", days=days_label(self.days), minute=minute)
        hours = ", ".join(f"{one:02}:{self.minute:02}" for one in sorted(set(self.hours)))
        return _("{days} at {hours}", days=days_label(self.days), hours=hours)


def schedule_times(cron: str) -> ScheduleTimes | None:
    """Return the times of a cron expression that is one of days and hours, None for any other."""
    found = CRON_PATTERN.fullmatch(cron)
    if found is None:
        return None
    minute, hours, days = int(found[1]), _numbers(found[2]), _numbers(found[3])
    return ScheduleTimes(minute, hours, days) if minute < 60 and all(one < 24 for one in hours) else None


def _numbers(text: str) -> tuple[int, ...]:
    return () if text == "*" else tuple(map(int, text.split(",")))
