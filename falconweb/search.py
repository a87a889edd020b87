"""Search over all that has a page: hardware, tenants, people, plans, runs, pages of the navigation, and actions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce
from operator import or_
from typing import Any, Final

from django.db.models import Case, F, Func, IntegerField, Q, QuerySet, TextField, Value, When
from django.db.models.functions import Coalesce, Length
from django.urls import reverse

from accounts.declaration import Audience
from accounts.models import Tenant, User
from accounts.visibility import RestrictedQuerySet
from benchmarks.runs.models import Run
from core.language import _, gettext_noop
from core.text import natural_key
from fabric.inventory.models import Chassis, Device, Drawer, Host, HostPort, Slot
from fabric.operations.models import Plan
from falconweb.navigation import FOR_ADMINISTRATORS, Address, addresses, navigation_entries

MAX_TEXT: Final = 200  # characters, as in the field; SQLite refuses patterns of 50,000
MAX_WORDS: Final = 8
MAX_HITS: Final = 6  # of a group
MAX_SORTED: Final = 60  # rows of a kind that are read, of which the first in natural order are shown
EXACT, PREFIX, WHOLE, INSIDE = range(4)  # how a hit has the words: as one field, before others, as words, within some
# Words of 'Attach GPU to node-b' that are not the host's, the verb first.
ATTACH_WORDS: Final = gettext_noop("attach GPU device to")
# What leads to a form, by the name of its address; of those that the person may open.
ACTIONS: Final = {
    "runs:run_new": gettext_noop("Start run"),
    "sweeps:sweep_add": gettext_noop("Start sweep"),
    "fabric:lease_give": gettext_noop("Create lease"),
    "fabric:lease_request": gettext_noop("Request lease"),
    "fabric:chassis_add": gettext_noop("Add chassis"),
    "accounts:tenant_add": gettext_noop("Add tenant"),
    "accounts:person_add": gettext_noop("Add person"),
    "accounts:service_add": gettext_noop("Add service account"),
    "accounts:token_add": gettext_noop("Create token"),
    "alerts:rule_add": gettext_noop("Add alert rule"),
    "alerts:route_add": gettext_noop("Add alert route"),
    "alerts:silence_add": gettext_noop("Add silence"),
    "exports:export_add": gettext_noop("Add export"),
}
# Pages below an entry of the navigation that people know by a name of their own.
PAGES_BELOW: Final = {
    "accounts:account": gettext_noop("Account and tokens"),
    "fabric:lease_calendar": gettext_noop("Lease calendar"),
    "fabric:lease_usage": gettext_noop("Lease usage"),
    "alerts:rules": gettext_noop("Alert rules"),
    "alerts:routes": gettext_noop("Alert routes"),
    "alerts:silences": gettext_noop("Silences"),
    "api:docs": gettext_noop("API reference"),
}


@dataclass(frozen=True)
class SearchHit:
    """A page that was found: its name, what tells it from others of the name, and how well it fits."""

    name: str
    detail: str
    url: str
    rank: int = INSIDE


@dataclass(frozen=True)
class SearchGroup:
    """The best hits of a kind; `icon` is a symbol of site/icons.svg."""

    label: str
    icon: str
    hits: Sequence[SearchHit]


@dataclass(frozen=True, kw_only=True)
class SearchKind:
    """Rows that are found: the words are in `name`, `detail` or `besides`; the page is that of the row's `key`."""

    label: str
    icon: str
    model: Any
    page: str
    name: str = "name"
    detail: tuple[str, ...] = ()
    besides: tuple[str, ...] = ()
    key: str = "pk"
    query: str = ""  # of a page without the key in its path: the parameter that has it

    def hits(self, person: User, words: Sequence[str]) -> list[SearchHit]:
        """Return the best rows that a person may see and that have all of these words, in one query."""
        fields = (self.name, *self.detail, *self.besides)
        rows = self._rows(person).exclude(**{self.key: None})
        for word in words:
            rows = rows.filter(_any_of(fields, "icontains", word))
        phrase = " ".join(words)
        parts = [part for field in fields for part in (Coalesce(field, Value("")), Value(" "))]
        # Django's own Concat nests, deeper than SQLite reads.
        spaced = Func(Value(" "), *parts, template="(%(expressions)s)", arg_joiner=" || ", output_field=TextField())
        fit = Case(
            When(_any_of(fields, "iexact", phrase), then=Value(EXACT)),
            When(_any_of(fields, "istartswith", phrase), then=Value(PREFIX)),
            When(Q(*(Q(spaced__icontains=f" {word} ") for word in words), pk__isnull=False), then=Value(WHOLE)),
            default=Value(INSIDE),
            output_field=IntegerField(),
        )
        # Shorter names first: 'falcon-2' before 'falcon-10' for any database.
        order = [one for field in (self.name, *self.detail) for one in (Length(field), F(field))]
        rows = rows.annotate(spaced=spaced, fit=fit).order_by("fit", *order)
        shown = rows.values_list("fit", self.key, self.name, *self.detail)[:MAX_SORTED]
        found = [
            SearchHit(str(name), ", ".join(str(one) for one in detail if one), self._url(key), fit)
            for fit, key, name, *detail in shown
        ]
        return _best(found)

    def _url(self, key: object) -> str:
        return f"{reverse(self.page)}?{self.query}={key}" if self.query else reverse(self.page, args=[key])

    def _rows(self, person: User) -> QuerySet[Any]:
        rows: QuerySet[Any] = self.model.objects.all()
        if isinstance(rows, RestrictedQuerySet):
            return rows.visible_to(person)
        # Tenants and people: their pages are the administrators'.
        return rows if person.is_administrator else rows.none()


HOSTS: Final = SearchKind(
    label=gettext_noop("Hosts"), icon="hosts", model=Host, page="fabric:host", detail=("model",),
    besides=("serial_number",),
)  # fmt: skip
ATTACH: Final = replace(HOSTS, page="fabric:give", query="host")
KINDS: Final = (
    SearchKind(
        label=gettext_noop("Chassis"), icon="chassis", model=Chassis, page="fabric:chassis",
        detail=("model", "serial_number"),
    ),
    HOSTS,
    SearchKind(
        label=gettext_noop("Devices"), icon="device", model=Device, page="fabric:device",
        detail=("chassis__name", "slot__name", "serial_number"), besides=("model", "kind", "vendor_id", "device_id"),
    ),
    SearchKind(
        label=gettext_noop("Drawers"), icon="drawer", model=Drawer, page="fabric:drawer", detail=("chassis__name",),
        besides=("serial_number",),
    ),
    SearchKind(
        label=gettext_noop("Slots"), icon="slot", model=Slot, page="fabric:slot",
        detail=("chassis__name", "device__name"),
    ),
    SearchKind(
        label=gettext_noop("Host ports"), icon="port", model=HostPort, page="fabric:port", name="label",
        detail=("host__name", "chassis__name"), key="port",
    ),
    SearchKind(
        label=gettext_noop("Plans"), icon="plan", model=Plan, page="fabric:plan", name="title",
        detail=("requested_by_name",),
    ),
    SearchKind(
        label=gettext_noop("Runs"), icon="run", model=Run, page="runs:run", name="title", detail=("workload",),
        besides=("requested_by_name",),
    ),
    SearchKind(label=gettext_noop("Tenants"), icon="tenant", model=Tenant, page="fabric:tenant"),
    SearchKind(
        label=gettext_noop("People"), icon="person", model=User, page="accounts:person", name="username",
        detail=("first_name", "last_name", "tenant__name"), besides=("email",),
    ),
)  # fmt: skip


def search(person: User, text: str) -> list[SearchGroup]:
    """Return what a person finds by the words of a text, the kinds with the best hits first; actions without words."""
    # Of '10de:20b5', vendor and device are in fields of their own; PostgreSQL refuses NUL.
    words = text[:MAX_TEXT].replace("\0", " ").replace(":", " ").split()[:MAX_WORDS]
    if not words:
        return [SearchGroup(gettext_noop("Actions"), "action", _actions(person, words)[:MAX_HITS])]
    actions = [*_actions(person, words), *_attachments(person, words)]
    found = [
        SearchGroup(gettext_noop("Pages"), "page", _best(_pages(person, words))),
        SearchGroup(gettext_noop("Actions"), "action", _best(actions)),
        *(SearchGroup(kind.label, kind.icon, kind.hits(person, words)) for kind in KINDS),
    ]
    return sorted((group for group in found if group.hits), key=lambda group: group.hits[0].rank)


def _any_of(fields: Sequence[str], lookup: str, text: str) -> Q:
    return reduce(or_, (Q((f"{field}__{lookup}", text)) for field in fields))


def _best(hits: list[SearchHit]) -> list[SearchHit]:
    hits.sort(key=lambda hit: (hit.rank, natural_key(hit.name.casefold()), natural_key(hit.detail.casefold())))
    return hits[:MAX_HITS]


def _named(label: str, detail: str, url: str, words: Sequence[str]) -> Iterator[SearchHit]:
    """Yield the hit of an entry whose label and detail have all of the words, in English too."""
    here, there = _(label), _(detail) if detail else ""
    labels = {here.casefold(), label.casefold()}
    texts = {f"{here} {there}".casefold(), f"{label} {detail}".casefold()}
    phrase = " ".join(words).casefold()
    if any(all(word.casefold() in text for word in words) for text in texts):
        is_prefix = any(one.startswith(phrase) for one in labels)
        yield SearchHit(here, there, url, EXACT if phrase in labels else PREFIX if is_prefix else INSIDE)


def _may_open(person: User, address: Address) -> bool:
    match address.declaration.audience:
        case Audience.ADMINISTRATORS:
            return person.is_administrator
        case Audience.COMPOSERS:
            return person.may_compose
    return True


@cache
def _navigation_pages() -> Sequence[tuple[Address, str, str]]:
    """Return all pages of the navigation and below: the address, the label, and the menu that it is in."""
    entries = [(one, entry.label, entry.menu) for one, entry in navigation_entries()]
    return [*entries, *((addresses()[name], label, "") for name, label in PAGES_BELOW.items())]


def _pages(person: User, words: Sequence[str]) -> list[SearchHit]:
    return [
        hit
        for address, label, menu in _navigation_pages()
        if _may_open(person, address) and (person.is_administrator or menu not in FOR_ADMINISTRATORS)
        for hit in _named(label, menu, reverse(address.name), words)
    ]


def _actions(person: User, words: Sequence[str]) -> list[SearchHit]:
    """Return forms that a person may open; a lease is requested by those who cannot create one."""
    return [
        hit
        for name, label in ACTIONS.items()
        if _may_open(person, addresses()[name])
        and (name != "fabric:lease_request" or (person.may_compose and not person.is_administrator))
        for hit in _named(label, "", reverse(name), words)
    ]


def _attachments(person: User, words: Sequence[str]) -> list[SearchHit]:
    """Return 'Attach GPU to node-b' for the hosts that the words are about."""
    if not person.may_compose:
        return []
    known = [text.casefold().split() for text in (ATTACH_WORDS, _(ATTACH_WORDS))]
    named = [word for word in words if not any(word.casefold() in one for one in known)]
    rank = PREFIX if words[0].casefold() in {one[0] for one in known} else INSIDE
    return [
        replace(hit, name=_("Attach GPU to {host}", host=hit.name), detail="", rank=rank)
        for hit in ATTACH.hits(person, named)
    ]
