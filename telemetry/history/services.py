"""Adds, changes and removes a person's own dashboards."""

from __future__ import annotations

from typing import Final

from django.db.models import Max

from accounts.audit.actions import Action
from accounts.audit.services import audited, target_of
from accounts.models import User
from accounts.visibility import visible_or_404
from core.errors import Conflict, Invalid
from telemetry.history.models import Dashboard
from telemetry.history.rules import TelemetryView

MAX_DASHBOARDS: Final = 50
MAX_NAME_LENGTH: Final = 80


def dashboard_add(*, person: User, name: str, query: str, position: int | None = None) -> Dashboard:
    """Save a view under a name, at the end or at a position from 1; raises Invalid, and Conflict for a taken name.

    `query` is the query string of the telemetry page; it is stored normalized.
    """
    with audited(Action.DASHBOARD_ADD, actor=person) as act:
        name = _name(name)
        query = _normalized_query(query)
        _lock(person)
        own = Dashboard.objects.visible_to(person)
        if own.count() >= MAX_DASHBOARDS:
            raise Conflict(f"You keep {MAX_DASHBOARDS} dashboards already. Remove one first.")
        _refuse_same_name(own.filter(name=name))
        last = own.aggregate(last=Max("position"))["last"] or 0
        made = Dashboard.objects.create(person=person, name=name, query=query, position=last + 1)
        if position is not None:
            _move_to_position(person, made, position)
            made.refresh_from_db()
        act.target = target_of(made)
        act.after = {"name": name}
        return made


def dashboard_change(
    *, person: User, pk: int, name: str | None = None, query: str | None = None, position: int | None = None
) -> Dashboard:
    """Change a dashboard's name, view or position (from 1); raises NotFound, Invalid, Conflict."""
    with audited(Action.DASHBOARD_CHANGE, actor=person) as act:
        _lock(person)
        row: Dashboard = visible_or_404(Dashboard.objects, person, pk, "dashboard")
        act.target = target_of(row)
        act.before = {"name": row.name}
        own = Dashboard.objects.visible_to(person)
        if name is not None:
            row.name = _name(name)
            _refuse_same_name(own.filter(name=row.name).exclude(pk=pk))
        if query is not None:
            row.query = _normalized_query(query)
        row.save(update_fields=["name", "query", "saved_at"])
        if position is not None:
            _move_to_position(person, row, position)
        act.after = {"name": row.name}
        row.refresh_from_db()
        return row


def dashboard_remove(*, person: User, pk: int) -> None:
    """Delete a dashboard; raises NotFound."""
    with audited(Action.DASHBOARD_REMOVE, actor=person) as act:
        row: Dashboard = visible_or_404(Dashboard.objects, person, pk, "dashboard")
        act.target = target_of(row)
        act.before = {"name": row.name}
        row.delete()


def _lock(person: User) -> None:
    """Lock this person's dashboards until the transaction ends."""
    User.objects.select_for_update().filter(pk=person.pk).first()


def _move_to_position(person: User, row: Dashboard, position: int) -> None:
    others = list(Dashboard.objects.visible_to(person).exclude(pk=row.pk))
    others.insert(min(max(position, 1), len(others) + 1) - 1, row)
    for place, one in enumerate(others, 1):
        Dashboard.objects.filter(pk=one.pk).update(position=place)


def _name(text: str) -> str:
    name = " ".join(text.split())
    if not name or len(name) > MAX_NAME_LENGTH or not name.isprintable():
        raise Invalid("The name cannot be used.", errors={"name": f"Give one of 1 to {MAX_NAME_LENGTH} characters."})
    return name


def _normalized_query(text: str) -> str:
    query = TelemetryView.from_query(text.removeprefix("?")).query()
    if len(query) > 2000:
        raise Invalid("The view is too long to be kept.", errors={"query": "Show fewer things in it."})
    return query


def _refuse_same_name(same: Dashboard.DashboardQuerySet) -> None:
    if same.exists():
        raise Conflict("You have a dashboard of this name already. Give it another one.", errors={"name": "Taken."})
