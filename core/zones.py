"""The zone of the times that a person reads and types: of the account, else of the browser, else UTC."""

from __future__ import annotations

from datetime import UTC, datetime, time, tzinfo
from functools import cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime

from core.language import Text, gettext_noop

ZONE_COOKIE: Final = "zone"
# Forms of local_words.
MINUTE: Final = "%Y-%m-%d %H:%M %Z"
CLOCK: Final = "%H:%M:%S %Z"
UNCLEAR_TIME: Final = gettext_noop(
    "This time comes twice or not at all, as the clocks change. Give an earlier or a later one."
)


@cache
def zone_names() -> frozenset[str]:
    """Return the names of all zones that this machine knows."""
    return frozenset({"UTC", *available_timezones()})


def zone_named(name: str) -> tzinfo | None:
    """Return the zone of a name such as 'Europe/Berlin', None for any other text."""
    if name == "UTC":
        return UTC
    return ZoneInfo(name) if name in zone_names() else None


def instant_of(wall: datetime, zone: tzinfo) -> datetime | None:
    """Return the instant of a time on the clocks of a zone, in UTC; None for one that comes twice or not at all."""
    first, second = (wall.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    return first.astimezone(UTC) if first.utcoffset() == second.utcoffset() else None


def typed_in(text: str, zone: tzinfo) -> str:
    """Return a typed day, or day and time, as an instant of UTC; with the zone's name in brackets if it is unclear.

    A text with an offset, or that is no time, stays as it is.
    """
    try:
        wall = parse_datetime(text)
        if wall is None and (day := parse_date(text)) is not None:
            wall = datetime.combine(day, time())
        if wall is None or wall.tzinfo is not None:
            return text
        found = instant_of(wall, zone)
    except (ValueError, OverflowError):
        return text
    return f"{text}[{zone}]" if found is None else found.isoformat().replace("+00:00", "Z")


def field_text(at: datetime) -> str:
    """Return an instant as a field of a form shows it, in the person's zone."""
    wall = timezone.localtime(at).replace(tzinfo=None)
    return wall.isoformat(timespec="milliseconds" if wall.microsecond else "seconds" if wall.second else "minutes")


def local_words(at: datetime, form: str = "%Y-%m-%d %H:%M:%S %Z") -> Text:
    """Return an instant in the person's zone for a sentence, with the short name of the zone; for logs it is in UTC."""
    return Text(timezone.localtime(at).strftime(form), at.astimezone(UTC).strftime(form))


def zone_name() -> str:
    """Return the name of the person's zone."""
    # Django's own name of a zone with one offset for ever is that offset.
    return str(timezone.get_current_timezone())


def zone_label() -> str:
    """Return the person's zone, with its present offset unless it is UTC: 'Europe/Berlin (UTC+1)'."""
    name = zone_name()
    sign, hours, minutes = (offset := f"{timezone.localtime():%z}")[0], int(offset[1:3]), offset[3:5]
    return name if name == "UTC" else f"{name} (UTC{sign}{hours}{f':{minutes}' if minutes != '00' else ''})"
