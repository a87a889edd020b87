"""Saved filters of the list of devices: those of a person, and those that administrators share."""

from __future__ import annotations

from typing import Final

from django.db import IntegrityError, transaction
from django.http import QueryDict

from accounts.access import require_administrator
from accounts.audit.actions import Action
from accounts.audit.services import audited, target_of
from accounts.models import User
from core.errors import Conflict, Forbidden, Invalid
from core.language import _
from fabric.inventory.device_filter import parse_filter
from fabric.inventory.models import SavedFilter

KEPT: Final = ("q", "sort", "column")
MAX_SAVED_FILTERS: Final = 50
MAX_FILTER_NAME_LENGTH: Final = 60
MAX_QUERY_LENGTH: Final = 1000


def saved_filter_add(*, person: User, name: str, query: str, is_shared: bool = False) -> SavedFilter:
    """Save a filter under a name; raises Invalid, Conflict for a taken name, Forbidden for who may not share."""
    with audited(Action.DEVICE_FILTER_ADD, actor=person) as act:
        if is_shared:
            require_administrator(person)
        name = " ".join(name.replace("\0", " ").split())
        if not name or len(name) > MAX_FILTER_NAME_LENGTH:
            raise Invalid(
                _(
                    "Give the filter a name of at most {most} letters.",
                    most=MAX_FILTER_NAME_LENGTH,
                )
            )
        query = _kept_query(query)
        User.objects.select_for_update(of=("self",), no_key=True).get(pk=person.pk)
        if person.saved_filters.count() >= MAX_SAVED_FILTERS:
            raise Conflict(
                _(
                    "You keep {most} filters already. Delete one first.",
                    most=MAX_SAVED_FILTERS,
                )
            )
        try:
            with transaction.atomic():
                made = SavedFilter.objects.create(person=person, name=name, query=query, is_shared=is_shared)
        except IntegrityError as error:
            raise Conflict(_("You have a filter of this name already. Give it another one.")) from error
        act.target, act.after = target_of(made), {"name": name, "query": query, "shared": is_shared}
        return made


def saved_filter_remove(*, person: User, row: SavedFilter) -> None:
    """Delete a filter; raises Forbidden for another person's, except for administrators."""
    with audited(Action.DEVICE_FILTER_REMOVE, actor=person, target=target_of(row)) as act:
        if row.person_id != person.pk and not person.is_administrator:
            raise Forbidden(_("An administrator shares this filter: only administrators delete it."))
        act.before = {"name": row.name, "query": row.query, "shared": row.is_shared}
        row.delete()


def _kept_query(text: str) -> str:
    """Return what is kept of a query string; raises Invalid for wrong words, and for one that is too long."""
    given = QueryDict(text.replace("\0", " "))
    parse_filter(given.get("q", ""))
    kept = QueryDict(mutable=True)
    for name in KEPT:
        kept.setlist(name, [one for one in given.getlist(name) if one])
    query: str = kept.urlencode()
    if len(query) > MAX_QUERY_LENGTH:
        raise Invalid(_("The filter is too long to be saved."))
    return query
