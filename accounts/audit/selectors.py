"""Queries of the audit log: for administrators only, newest first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet
from django.urls import NoReverseMatch, reverse

from accounts.access import require_administrator
from accounts.audit.actions import Action, Outcome
from accounts.audit.models import AuditEntry
from accounts.models import User
from core.errors import Invalid
from core.forms import checked_instant
from core.language import _

AUDIT_FILTERS = ("q", "person", "action", "outcome", "since", "until", "target_kind", "target_id", "request_id")
MAX_WORDS = 20
MAX_FILTER_LENGTH = 200
SEARCHED = (
    "sentence", "actor_name", "actor_tenant", "address", "credential", "path", "request_id", "target_name",
)  # fmt: skip
# URL names of the pages of an entry's object, by its kind.
PAGES = {
    "approval": "accounts:approval",
    "person": "accounts:person", "tenant": "fabric:tenant", "chassis": "fabric:chassis", "device": "fabric:device",
    "drawer": "fabric:drawer", "host": "fabric:host", "operation": "fabric:operation", "plan": "fabric:plan",
    "failure": "fabric:failure", "managed part": "fabric:managed_part",
    "export": "exports:export", "export run": "exports:export_run",
}  # fmt: skip


@dataclass(frozen=True)
class AuditFilter:
    """A filter of entries: texts as typed, times in UTC."""

    words: tuple[str, ...] = ()
    person: str = ""
    action: str = ""
    outcome: str = ""
    since: datetime | None = None
    until: datetime | None = None
    target_kind: str = ""
    target_id: str = ""
    request_id: str = ""

    def description(self) -> dict[str, str]:
        """Return a description of the filter."""
        texts = {field.name: getattr(self, field.name) for field in fields(self) if getattr(self, field.name)}
        return {name: " ".join(text) if isinstance(text, tuple) else str(text) for name, text in texts.items()}

    @classmethod
    def of(cls, given: Mapping[str, str]) -> AuditFilter:
        """Read a filter from query parameters; raises Invalid with the wrong parameter."""
        long = [name for name in AUDIT_FILTERS if len(given.get(name, "")) > MAX_FILTER_LENGTH]
        errors: dict[str, str] = dict.fromkeys(long, _("Give less text."))
        texts = {name: given.get(name, "").replace("\0", " ").strip() for name in AUDIT_FILTERS}
        if texts["outcome"] and texts["outcome"] not in Outcome.values:
            errors["outcome"] = _("One of {names}.", names=", ".join(Outcome.values))
        if texts["action"] and not texts["action"].replace(".", "").replace("_", "").isalnum():
            errors["action"] = _("The code of an action, such as person.add, or its beginning, such as person.")
        since, until = (checked_instant(texts[name], name, errors) for name in ("since", "until"))
        if errors:
            raise Invalid(_("The filter cannot be used."), errors=errors)
        return cls(
            words=tuple(texts["q"].split()[:MAX_WORDS]),
            since=since,
            until=until,
            **{name: texts[name] for name in ("person", "action", "outcome", "target_kind", "target_id", "request_id")},
        )


def find_entries(person: User, filters: AuditFilter) -> QuerySet[AuditEntry]:
    """Return the matching entries, newest first; raises Forbidden."""
    require_administrator(person)
    return filter_entries(filters)


def filter_entries(filters: AuditFilter) -> QuerySet[AuditEntry]:
    """Return the matching entries, newest first, for commands, without a permission check."""
    rows: QuerySet[AuditEntry] = AuditEntry.objects.order_by("-sequence")
    for word in filters.words:
        found = Q(
            action__in=[one.value for one in Action if word.casefold() in f"{one.label}\n{_(one.label)}".casefold()]
        )
        for name in SEARCHED:
            found |= Q(**{f"{name}__icontains": word})
        rows = rows.filter(found)
    if filters.person:
        # Former names of a user match too.
        known = User.objects.filter(username__iexact=filters.person).values("pk")
        rows = rows.filter(Q(actor_name__iexact=filters.person) | Q(actor_id__in=known))
    if filters.action:
        rows = rows.filter(Q(action=filters.action) | Q(action__startswith=f"{filters.action.rstrip('.')}."))
    for name in ("outcome", "target_kind", "target_id", "request_id"):
        if text := getattr(filters, name):
            rows = rows.filter(**{name: text})
    if filters.since:
        rows = rows.filter(at__gte=filters.since)
    if filters.until:
        rows = rows.filter(at__lt=filters.until)
    return rows


def changes_of(entry: AuditEntry) -> Iterator[tuple[str, Any, Any, bool]]:
    """Yield each member of before and after with both values, and whether they differ."""
    before, after = entry.before or {}, entry.after or {}
    for name in dict.fromkeys([*before, *after]):
        both = entry.before is not None and entry.after is not None
        yield name, before.get(name), after.get(name), both and before.get(name) != after.get(name)


def target_url(kind: str, pk: str) -> str:
    """Return the URL of an object's page, '' where its kind has none; the object may have been deleted."""
    if kind not in PAGES or not pk:
        return ""
    try:
        return reverse(PAGES[kind], args=[pk])
    except NoReverseMatch:
        return ""
