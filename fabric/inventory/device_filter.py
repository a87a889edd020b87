"""The words of a filter of devices, such as `kind:gpu free temp>80 host:node-a V100`: their parser and their query.

All words and texts have to hold. What is in quotes is a text, whatever it looks like.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import and_, ge, gt, le, lt, or_
from typing import Any, Final

from django.apps import apps
from django.db.models import Q

from accounts.models import User
from core.errors import Invalid
from core.language import _, english, gettext_noop, join_words
from fabric.inventory.models import Device, HostPort

# Each word with what it means, as pages show them.
NAMED: Final = {
    "kind": gettext_noop("GPU, NVMe drive, NIC or custom device"),
    "model": gettext_noop("a part of the model"),
    "chassis": gettext_noop("its chassis"),
    "host": gettext_noop("the host it is attached to"),
    "tenant": gettext_noop("the tenant it is assigned to"),
    "state": gettext_noop("as below"),
}
MEASURED: Final = {
    "temp": gettext_noop("temperature, °C"),
    "use": gettext_noop("utilisation, %"),
    "traffic": gettext_noop("of its link, the busier direction, GB/s"),
}
STATES: Final = {
    "free": gettext_noop("detached and unassigned"),
    "attached": gettext_noop("to a host"),
    "detached": gettext_noop("from every host"),
    "assigned": gettext_noop("to a tenant"),
    "unassigned": gettext_noop("to no tenant"),
    "missing": gettext_noop("no longer reported by its chassis"),
    "drifted": gettext_noop("not as approved"),
}
TEXTS = (
    "name", "model", "serial_number", "manufacturer", "vendor_id", "device_id", "tenant__name", "chassis__name"
)  # fmt: skip
COMPARISONS: Final = {">=": ge, "<=": le, ">": gt, "<": lt}
MAX_FILTER_LENGTH = 200
_TERM = re.compile(r'([A-Za-z]+)(:|>=|<=|>|<)("[^"]*"|\S*)|("[^"]*")|(\S+)')

# Takes ids of chassis; returns values by measure (a name of MEASURED) and id of the device, of traffic of its port.
LiveValues = Mapping[str, Mapping[int, float]]
LiveValueSource = Callable[[Collection[int]], LiveValues]
_live_value_sources: list[LiveValueSource] = []


def register_live_values(source: LiveValueSource) -> None:
    """Register the source of the newest values in a room above."""
    if source not in _live_value_sources:
        _live_value_sources.append(source)


def live_values(chassis: Collection[int]) -> LiveValues:
    """Return the newest values of chassis (ids) in one read; raises Unavailable where they cannot be read."""
    found: dict[str, Mapping[int, float]] = {name: {} for name in MEASURED}
    for source in _live_value_sources:
        found |= source(chassis)
    return found


def filter_words() -> tuple[tuple[str, str], ...]:
    """Return each word with what it means."""
    return (
        *((f"{name}:", _(about)) for name, about in NAMED.items()),
        *((f"{name}>80", _(about)) for name, about in MEASURED.items()),
        *((name, _(about)) for name, about in STATES.items()),
    )


@dataclass(frozen=True)
class FilterTerm:
    """One word: 'kind', ':', 'gpu'; 'temp', '>', '80'; 'state', ':', 'free'; a text has neither name nor operator."""

    name: str
    operator: str
    value: str


def parse_filter(text: str) -> tuple[FilterTerm, ...]:
    """Return the words of a filter; raises Invalid for a word that is unknown, or lacks its value, and for too many."""
    if len(text) > MAX_FILTER_LENGTH:
        # Each word is several conditions, of which a query of SQLite has a limited number.
        raise _invalid(_("A filter has at most {most} letters.", most=MAX_FILTER_LENGTH))
    # PostgreSQL accepts no NUL.
    return tuple(_term(*match.groups(default="")) for match in _TERM.finditer(text.replace("\0", " ")))


def _term(name: str, operator: str, value: str, quoted: str, word: str) -> FilterTerm:
    if not name:
        lower = word.casefold()
        return FilterTerm("state", ":", lower) if lower in STATES else FilterTerm("", "", word or quoted.strip('"'))
    lower, value = name.casefold(), value.strip('"')
    if lower not in NAMED and lower not in MEASURED:
        known = [*(f"{one}:" for one in NAMED), *(f"{one}>" for one in MEASURED), *STATES]
        raise _invalid(
            _(
                'Unknown word "{name}{operator}". Known: {known}. Put a text in quotes.',
                name=name,
                operator=operator,
                known=", ".join(known),
            )
        )
    if (lower in NAMED) != (operator == ":"):
        raise _invalid(
            _('Write "{name}:…".', name=lower)
            if lower in NAMED
            else _('Compare it with a number: "{name}>80".', name=lower)
        )
    if not value:
        raise _invalid(_('Give a value after "{name}{operator}".', name=name, operator=operator))
    if lower in MEASURED and not re.fullmatch(r"-?\d{1,9}(\.\d{1,9})?", value, re.ASCII):
        raise _invalid(
            _('"{value}" is no number: write "{name}{operator}80".', value=value, name=lower, operator=operator)
        )
    if lower == "state" and value.casefold() not in STATES:
        raise _invalid(_('Unknown state "{value}". Known: {known}.', value=value, known=", ".join(STATES)))
    if lower == "kind" and not _kinds(value):
        raise _invalid(
            _('Unknown kind "{value}". Known: {known}.', value=value, known=join_words([*Device.Kind.values]))
        )
    return FilterTerm(lower, operator, value)


def _invalid(sentence: str) -> Invalid:
    return Invalid(sentence, errors={"search": sentence})


def _kinds(value: str) -> list[str]:
    """Return the kinds whose value or label begins with a text, in English too: a filter is kept, and shared."""
    folded = value.casefold()
    return [one.value for one in Device.Kind if any(label.startswith(folded) for label in _kind_labels(one))]


def _kind_labels(kind: Device.Kind) -> tuple[str, str, str]:
    label = str(kind.label)
    return kind.value, label.casefold(), english(label).casefold()


def filter_query(person: User, text: str, chassis: Callable[[], Collection[int]]) -> Q:
    """Return the query of a filter for devices that the person may see; values are read of `chassis` (ids)."""
    terms = parse_filter(text)
    values = live_values(chassis()) if any(term.name in MEASURED for term in terms) else {}
    return reduce(and_, (_query(person, term, values) for term in terms), Q())


def _query(person: User, term: FilterTerm, values: LiveValues) -> Q:
    match term.name:
        case "":
            return _text_query(person, term.value)
        case "state":
            return _state_query(person, term.value.casefold())
        case "kind":
            return Q(kind__in=_kinds(term.value))
        case "model":
            return Q(model__icontains=term.value)
        case "host":
            # By the name of a host only where the user sees it: else a search would disclose it letter by letter.
            return Q(host_port__in=HostPort.objects.visible_to(person).filter(_name_query("host__name", term.value)))
        case "chassis" | "tenant":
            return _name_query(f"{term.name}__name", term.value)
    compare, bound = COMPARISONS[term.operator], float(term.value)
    found = [pk for pk, value in values[term.name].items() if compare(value, bound)]
    return Q(slot__port__in=found) if term.name == "traffic" else Q(pk__in=found)


def _text_query(person: User, text: str) -> Q:
    ports = HostPort.objects.visible_to(person).filter(host__name__icontains=text).values("pk")
    kinds = [one.value for one in Device.Kind if any(text.casefold() in label for label in _kind_labels(one))]
    found = (Q((f"{field}__icontains", text)) for field in TEXTS)
    return reduce(or_, found, Q(host_port__in=ports) | Q(kind__in=kinds))


def _name_query(field: str, value: str) -> Q:
    """Return the query for a name, in any case; '*' stands for anything."""
    first, *rest = value.split("*")
    if not rest:
        return Q((f"{field}__iexact", value))
    found = Q((f"{field}__istartswith", first)) & Q((f"{field}__iendswith", rest[-1]))
    return reduce(and_, (Q((f"{field}__icontains", part)) for part in rest[:-1]), found)


def _state_query(person: User, state: str) -> Q:
    if state == "drifted":
        # Drift belongs to a higher feature.
        drift: Any = apps.get_model("fabric", "Drift")
        return Q(
            pk__in=drift.objects.visible_to(person).open().exclude(device=None).exclude(kind="port").values("device")
        )
    return {
        "free": Q(host_port=None, tenant=None, missing_since=None),
        "attached": Q(host_port__isnull=False),
        "detached": Q(host_port=None),
        "assigned": Q(tenant__isnull=False),
        "unassigned": Q(tenant=None),
        "missing": Q(missing_since__isnull=False),
    }[state]
