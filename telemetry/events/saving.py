"""Keeping searches: each person's own, so that only the person changes them."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlencode

from django.http import QueryDict

from accounts.audit.actions import Action
from accounts.audit.services import audited, target_of
from accounts.models import User
from falconweb.errors import Conflict, Invalid, NotFound
from telemetry.events.filters import Filter
from telemetry.events.models import SavedView

MOST_VIEWS: Final = 50
LONGEST_NAME: Final = 60
LONGEST_QUERY: Final = 2000


def view_add(*, person: User, name: str, query: str, is_default: bool = False) -> SavedView:
    """Keep a search under a name; raises Invalid, and Conflict for a taken name.

    `query` is what stands behind the '?' of the page; it is kept in the form that the filter itself gives.
    """
    with audited(Action.EVENT_VIEW_ADD, actor=person) as act:
        _lock(person)
        name, query = _name(name), _query(query)
        mine = SavedView.objects.filter(person=person)
        if mine.count() >= MOST_VIEWS:
            raise Conflict(f"You keep {MOST_VIEWS} views already. Remove one first.")
        _refuse_same_name(person, name)
        if is_default:
            mine.filter(is_default=True).update(is_default=False)
        made = SavedView.objects.create(person=person, name=name, query=query, is_default=is_default)
        act.target, act.after = target_of(made), {"name": name, "query": query}
        return made


def view_change(
    *, person: User, pk: int, name: str | None = None, query: str | None = None, is_default: bool | None = None
) -> SavedView:
    """Give a view another name or search, or make it the default, or not; raises NotFound, Invalid, Conflict."""
    with audited(Action.EVENT_VIEW_CHANGE, actor=person) as act:
        _lock(person)
        row = view_get(person, pk)
        act.target, act.before = target_of(row), {"name": row.name, "query": row.query, "default": row.is_default}
        if name is not None:
            row.name = _name(name)
            _refuse_same_name(person, row.name, but=pk)
        if query is not None:
            row.query = _query(query)
        if is_default is not None:
            SavedView.objects.filter(person=person, is_default=True).update(is_default=False)
            row.is_default = is_default
        row.save(update_fields=["name", "query", "is_default"])
        act.after = {"name": row.name, "query": row.query, "default": row.is_default}
        return row


def view_remove(*, person: User, pk: int) -> None:
    """Forget a view; raises NotFound."""
    with audited(Action.EVENT_VIEW_REMOVE, actor=person) as act:
        row = view_get(person, pk)
        act.target, act.before = target_of(row), {"name": row.name, "query": row.query}
        row.delete()


def view_get(person: User, pk: int) -> SavedView:
    """Return one of a person's own views; raises NotFound."""
    row = SavedView.objects.filter(person=person, pk=pk).first()
    if row is None:
        raise NotFound("There is no such view.")
    return row


def _lock(person: User) -> None:
    # Two requests at once must neither pass the limit nor both become the default.
    User.objects.select_for_update(of=("self",), no_key=True).get(pk=person.pk)


def _name(name: str) -> str:
    name = " ".join(name.replace("\0", " ").split())
    if not name or len(name) > LONGEST_NAME:
        sentence = f"Give the view a name of at most {LONGEST_NAME} letters."
        raise Invalid(sentence, errors={"name": sentence})
    return name


def _query(query: str) -> str:
    given = QueryDict(query.removeprefix("?")[: 2 * LONGEST_QUERY])
    kept = urlencode(Filter.of(given).parameters())
    if len(kept) > LONGEST_QUERY:
        raise Invalid("The search is too long to be kept.", errors={"query": "Choose less."})
    return kept


def _refuse_same_name(person: User, name: str, *, but: int = 0) -> None:
    if SavedView.objects.filter(person=person, name=name).exclude(pk=but).exists():
        raise Conflict(f"You have a view ‘{name}’ already. Choose another name, or remove that one.")
