"""Filters of events and of the message catalogue, read from query parameters."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.db.models import Q
from django.http import QueryDict
from django.utils import timezone

from core.errors import Invalid
from core.forms import checked_instant
from core.language import _, gettext_noop
from telemetry.events.models import EventQuerySet, EventSeverity, EventSource
from telemetry.events.rules import MESSAGE_CATALOGUE, EventMessage, message_name

IDS: Final = (
    gettext_noop("chassis"), gettext_noop("drawer"), gettext_noop("device"), gettext_noop("port"),
    gettext_noop("host"), gettext_noop("tenant"),
)  # fmt: skip
FILTERS: Final = (
    "q", gettext_noop("since"), gettext_noop("until"), gettext_noop("last"), *IDS, gettext_noop("source"),
    gettext_noop("severity"), gettext_noop("message"), gettext_noop("person"),
)  # fmt: skip
MAX_WORDS = 20
MAX_VALUES = 50
MAX_VALUE_LENGTH = 200
MAX_ID = 2**63 - 1
SEARCHED = ("text", "subject_name", "chassis_name", "message_id", "person_name")
UNITS = {"m": "minutes", "h": "hours", "d": "days"}


@dataclass(frozen=True)
class EventFilter:
    """Selection of events: all given members have to match, each by any of its values.

    `last` (such as '24h') counts back from the time at which the filter is applied, so that a saved filter stays fresh.
    """

    words: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    last: timedelta | None = None
    chassis: tuple[int, ...] = ()
    drawer: tuple[int, ...] = ()
    device: tuple[int, ...] = ()
    port: tuple[int, ...] = ()
    host: tuple[int, ...] = ()
    tenant: tuple[int, ...] = ()
    source: tuple[str, ...] = ()
    severity: tuple[str, ...] = ()
    message: tuple[str, ...] = ()
    person: str = ""

    def __bool__(self) -> bool:
        return any(getattr(self, field.name) for field in fields(self))

    @classmethod
    def of(cls, given: Mapping[str, Any] | QueryDict, *, is_kept: bool = False) -> EventFilter:
        """Parse a filter from parameters: a QueryDict, or a mapping of names to a text or a list of texts.

        Several values are repeated parameters, or separated by commas. Raises Invalid with the parameters that are
        wrong. A filter that `is_kept` was stored before: it may have an end before its start, and then matches nothing.
        """
        errors: dict[str, str] = {}
        texts = {name: _values(given, name) for name in FILTERS}
        for name, values in texts.items():
            if len(values) > MAX_VALUES or any(len(value) > MAX_VALUE_LENGTH for value in values):
                errors[name] = _("Give less.")
        since, until = (_instant(_first(texts[name]), name, errors) for name in ("since", "until"))
        if since is not None and until is not None and until <= since and not is_kept:
            errors["until"] = _("Give an end that is later than the begin: between these two nothing can be.")
        ids = {name: _numbers(texts[name], name, errors) for name in IDS}
        found = cls(
            words=tuple(" ".join(texts["q"]).split()[:MAX_WORDS]),
            since=since,
            until=until,
            last=_duration(_first(texts["last"]), errors),
            source=_choices(texts["source"], "source", EventSource.values, errors),
            severity=_choices(texts["severity"], "severity", EventSeverity.values, errors),
            message=tuple(message_name(value) for value in texts["message"]),
            person=_first(texts["person"]),
            **ids,
        )
        if errors:
            raise Invalid(_("The filter cannot be used."), errors=errors)
        return found

    def apply(self, rows: EventQuerySet, *, now: datetime | None = None) -> EventQuerySet:
        """Return the matching events of a queryset, in its order."""
        for word in self.words:
            found = Q()
            for name in SEARCHED:
                found |= Q((f"{name}__icontains", word))
            rows = rows.filter(found)
        begin = self.begin(now or timezone.now())
        if begin is not None:
            rows = rows.filter(at__gte=begin)
        if self.until is not None:
            rows = rows.filter(at__lt=self.until)
        for name in IDS:
            if values := getattr(self, name):
                rows = rows.filter(**_lookup(f"{name}_id", values))
        for name in ("source", "severity", "message"):
            if values := getattr(self, name):
                rows = rows.filter(**_lookup(name, values))
        if not self.source:
            # They are there for exports, and have a page of their own.
            rows = rows.exclude(source=EventSource.AUDIT)
        if self.person:
            rows = rows.filter(person_name__iexact=self.person)
        return rows

    def begin(self, now: datetime) -> datetime | None:
        """Return the start of the range, None for an open one."""
        begins = [one for one in (self.since, now - self.last if self.last else None) if one is not None]
        return max(begins) if begins else None

    def parameters(self) -> list[tuple[str, str]]:
        """Return the filter as query parameters in a fixed order; `EventFilter.of` restores it."""
        found: list[tuple[str, str]] = []
        if self.words:
            found.append(("q", " ".join(self.words)))
        found += [(name, at.isoformat()) for name in ("since", "until") if (at := getattr(self, name))]
        if self.last:
            found.append(("last", _duration_label(self.last)))
        for name in (*IDS, "source", "severity", "message"):
            found += [(name, str(value)) for value in getattr(self, name)]
        if self.person:
            found.append(("person", self.person))
        return found


def _lookup(name: str, values: Sequence[Any]) -> dict[str, Any]:
    # '=' for one value, so that an index that ends in the time also provides the order.
    return {name: values[0]} if len(values) == 1 else {f"{name}__in": values}


def _values(given: Mapping[str, Any] | QueryDict, name: str) -> list[str]:
    raw: Any = given.getlist(name) if isinstance(given, QueryDict) else given.get(name, [])
    texts = raw if isinstance(raw, list | tuple) else [raw]
    whole = name in {"q", "person", "since", "until", "last"}
    parts = [part for text in texts for part in ([str(text)] if whole else str(text).split(","))]
    return list(dict.fromkeys(clean for part in parts if (clean := part.replace("\0", " ").strip())))


def _first(values: Sequence[str]) -> str:
    return values[0] if values else ""


def _numbers(values: Sequence[str], name: str, errors: dict[str, str]) -> tuple[int, ...]:
    if not all(value.isascii() and value.isdecimal() and len(value) < 20 and int(value) <= MAX_ID for value in values):
        errors[name] = _("Give the number of one, as its address has it.")
        return ()
    return tuple(int(value) for value in values)


def _choices(values: Sequence[str], name: str, known: Sequence[str], errors: dict[str, str]) -> tuple[str, ...]:
    if not set(values) <= set(known):
        errors[name] = _("One of {choices}.", choices=", ".join(known))
        return ()
    return tuple(values)


def _duration(text: str, errors: dict[str, str]) -> timedelta | None:
    """Return '90m', '24h' or '7d' as a timedelta."""
    if not text:
        return None
    found = re.fullmatch(r"([1-9][0-9]{0,3})([mhd])", text)
    if found is None:
        errors["last"] = _("Give a time such as 90m, 24h or 7d.")
        return None
    return timedelta(**{UNITS[found[2]]: int(found[1])})


def _duration_label(span: timedelta) -> str:
    minutes = int(span.total_seconds() // 60)
    # A day is '24h', as on the page.
    for unit, size, least in (("d", 1440, 2), ("h", 60, 1)):
        if minutes % size == 0 and minutes // size >= least:
            return f"{minutes // size}{unit}"
    return f"{minutes}m"


def _instant(text: str, name: str, errors: dict[str, str]) -> datetime | None:
    """Return the time of a day, a day and a time, or seconds since 1970; UTC unless given."""
    if re.fullmatch(r"[0-9]{1,11}(\.[0-9]{1,6})?", text):
        with suppress(ValueError, OverflowError, OSError):
            return datetime.fromtimestamp(float(text), UTC)
    return checked_instant(text, name, errors)


REGISTRY_NAMES: Final = tuple(dict.fromkeys(one.registry for one in MESSAGE_CATALOGUE.values()))
SEVERITY_RANKS: Final = {severity: place for place, severity in enumerate(EventSeverity.values)}
# By query parameter; the first is the order of the catalogue: FalconWeb's own, then the registries of links first.
MESSAGE_SORTS: Final[dict[str, tuple[str, Callable[[EventMessage], Any] | None]]] = {
    "registry": (gettext_noop("By registry"), None),
    "worst": (gettext_noop("Worst first"), lambda one: (-SEVERITY_RANKS[one.severity], one.name.casefold())),
    "name": (gettext_noop("Name"), lambda one: one.name.casefold()),
}


@dataclass(frozen=True)
class MessageFilter:
    """Selection of messages: those with every word, of this registry and severity ('': any)."""

    words: tuple[str, ...] = ()
    registry: str = ""
    severity: str = ""
    sort: str = "registry"

    def __bool__(self) -> bool:
        return bool(self.words or self.registry or self.severity)

    @classmethod
    def of(cls, given: Mapping[str, str], *, search: str = "q") -> MessageFilter:
        """Parse query parameters; raises Invalid with those that are wrong."""
        errors: dict[str, str] = {}
        text = given.get(search, "").replace("\0", " ")
        if len(text) > MAX_VALUE_LENGTH:
            errors[search] = _("Give at most {most} characters.", most=MAX_VALUE_LENGTH)
        choices: list[tuple[str, Sequence[str]]] = [
            ("registry", REGISTRY_NAMES), ("severity", EventSeverity.values), ("sort", list(MESSAGE_SORTS)),
        ]  # fmt: skip
        chosen = {name: given.get(name, "") for name, _known in choices}
        for name, known in choices:
            if chosen[name] and chosen[name] not in known:
                errors[name] = _("One of {choices}.", choices=", ".join(known))
        if errors:
            raise Invalid(_("The messages cannot be looked up."), errors=errors)
        sort = chosen.pop("sort") or "registry"
        return cls(words=tuple(text.casefold().split()), sort=sort, **chosen)

    def found(self) -> list[EventMessage]:
        """Return the matching messages, sorted."""
        kept = [one for one in MESSAGE_CATALOGUE.values() if self._matches(one)]
        order = MESSAGE_SORTS[self.sort][1]
        return sorted(kept, key=order) if order is not None else kept

    def _matches(self, one: EventMessage) -> bool:
        shown = [_(words) for words in (one.explanation, one.advice) if words]
        text = " ".join([one.name, one.explanation, one.advice, *shown]).casefold()
        fits = self.registry in {"", one.registry} and self.severity in {"", one.severity}
        return fits and all(word in text for word in self.words)
