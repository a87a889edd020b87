"""Adds, changes and removes dashboards and their panels."""

from __future__ import annotations

from typing import Any, Final

from django.db.models import Max, QuerySet

from accounts.audit.actions import Action
from accounts.audit.services import audited, target_of
from accounts.models import User
from accounts.visibility import row_or_404, visible_or_404
from core.errors import Conflict, Forbidden, Invalid
from core.language import _, gettext_noop
from telemetry.history.models import Dashboard, DashboardPanel
from telemetry.history.rules import TelemetryView

MAX_DASHBOARDS: Final = 50
MAX_PANELS: Final = 16
MAX_NAME_LENGTH: Final = 80


def dashboard_add(
    *, person: User, name: str, query: str, position: int | None = None, shared: bool = False
) -> Dashboard:
    """Create a dashboard with one panel, at the end or at a position from 1; raises Invalid, Conflict for a taken name.

    `query` is the query string of the telemetry page; it is stored normalized.
    """
    with audited(Action.DASHBOARD_ADD, actor=person) as act:
        name = _name(name)
        query = _normalized_query(query)
        User.objects.select_for_update().filter(pk=person.pk).first()
        own = Dashboard.objects.filter(person=person)
        if own.count() >= MAX_DASHBOARDS:
            raise Conflict(_("You keep {most} dashboards already. Remove one first.", most=MAX_DASHBOARDS))
        _refuse_same_name(own.filter(name=name))
        made = Dashboard.objects.create(person=person, name=name, shared=shared, position=_after_last(own))
        made.panels.create(title=name, query=query, position=1)
        if position is not None:
            _move_to_position(made, own, position)
            made.refresh_from_db()
        act.target = target_of(made)
        act.after = {"name": name, "shared": shared}
        return made


def dashboard_change(
    *,
    person: User,
    pk: int,
    name: str | None = None,
    query: str | None = None,
    position: int | None = None,
    shared: bool | None = None,
) -> Dashboard:
    """Change a dashboard's name, first view, position (from 1), or whether it is shared.

    Raises NotFound, Forbidden, Invalid, and Conflict for a taken name.
    """
    with audited(Action.DASHBOARD_CHANGE, actor=person) as act:
        row = _locked(person, pk)
        act.target = target_of(row)
        act.before = {"name": row.name, "shared": row.shared}
        own = Dashboard.objects.filter(person=row.person_id)
        if name is not None:
            row.name = _name(name)
            _refuse_same_name(own.filter(name=row.name).exclude(pk=pk))
        if query is not None:
            first = row.panels.first() or DashboardPanel(dashboard=row, title=row.name, position=1)
            first.query = _normalized_query(query)
            first.save()
        row.shared = row.shared if shared is None else shared
        row.save(update_fields=["name", "shared", "saved_at"])
        if position is not None:
            _move_to_position(row, own, position)
        act.after = {"name": row.name, "shared": row.shared}
        row.refresh_from_db()
        return row


def dashboard_remove(*, person: User, pk: int) -> None:
    """Delete a dashboard with its panels; raises NotFound, Forbidden."""
    with audited(Action.DASHBOARD_REMOVE, actor=person) as act:
        row = _locked(person, pk)
        act.target = target_of(row)
        act.before = {"name": row.name}
        row.delete()


def panel_add(*, person: User, dashboard: int, title: str, query: str) -> DashboardPanel:
    """Add a view to a dashboard as its last panel; raises NotFound, Forbidden, Invalid, Conflict for too many."""
    with audited(Action.DASHBOARD_CHANGE, actor=person) as act:
        row = _locked(person, dashboard)
        act.target = target_of(row)
        title, query = _name(title), _normalized_query(query)
        if row.panels.count() >= MAX_PANELS:
            raise Conflict(
                _(
                    "‘{name}’ has {most} panels already. Remove one first, or begin another dashboard.",
                    name=row.name,
                    most=MAX_PANELS,
                )
            )
        act.after = {"panel": title}
        return row.panels.create(title=title, query=query, position=_after_last(row.panels.all()))


def panel_change(
    *,
    person: User,
    dashboard: int,
    pk: int,
    title: str | None = None,
    position: int | None = None,
    follows: bool | None = None,
) -> DashboardPanel:
    """Change a panel's title, position (from 1), or whether it follows; raises NotFound, Forbidden, Invalid."""
    with audited(Action.DASHBOARD_CHANGE, actor=person) as act:
        row = _locked(person, dashboard)
        act.target = target_of(row)
        panel: DashboardPanel = row_or_404(row.panels.all(), pk, gettext_noop("panel"))
        act.before = {"panel": panel.title}
        panel.title = panel.title if title is None else _name(title)
        panel.follows = panel.follows if follows is None else follows
        if follows and not panel.view.variable:
            raise Invalid(_("This panel cannot follow: it does not show one chassis or one host alone."))
        panel.save(update_fields=["title", "follows"])
        if position is not None:
            _move_to_position(panel, row.panels.all(), position)
        act.after = {"panel": panel.title}
        return panel


def panel_remove(*, person: User, dashboard: int, pk: int) -> None:
    """Remove a panel from a dashboard; raises NotFound, Forbidden."""
    with audited(Action.DASHBOARD_CHANGE, actor=person) as act:
        row = _locked(person, dashboard)
        act.target = target_of(row)
        panel: DashboardPanel = row_or_404(row.panels.all(), pk, gettext_noop("panel"))
        act.before = {"panel": panel.title}
        panel.delete()


def _locked(person: User, pk: int) -> Dashboard:
    """Return a dashboard that the person may change; all of its owner's are locked until the transaction ends."""
    User.objects.select_for_update().filter(dashboards=pk).first()
    row: Dashboard = visible_or_404(Dashboard.objects, person, pk, gettext_noop("dashboard"))
    if not row.may_edit(person):
        raise Forbidden(
            _("Only its owner and administrators change this dashboard. Pin its panels to one of your own.")
        )
    return row


def _after_last(rows: QuerySet[Any]) -> int:
    return (rows.aggregate(last=Max("position"))["last"] or 0) + 1


def _move_to_position(row: Dashboard | DashboardPanel, siblings: QuerySet[Any], position: int) -> None:
    others = list(siblings.exclude(pk=row.pk))
    others.insert(min(max(position, 1), len(others) + 1) - 1, row)
    for place, one in enumerate(others, 1):
        siblings.filter(pk=one.pk).update(position=place)


def _name(text: str) -> str:
    name = " ".join(text.split())
    if not name or len(name) > MAX_NAME_LENGTH or not name.isprintable():
        raise Invalid(
            _("The name cannot be used."),
            errors={"name": _("Give one of 1 to {most} characters.", most=MAX_NAME_LENGTH)},
        )
    return name


def _normalized_query(text: str) -> str:
    query = TelemetryView.from_query(text.removeprefix("?")).query()
    if len(query) > 2000:
        raise Invalid(_("The view is too long to be kept."), errors={"query": _("Show fewer things in it.")})
    return query


def _refuse_same_name(same: Dashboard.DashboardQuerySet) -> None:
    if same.exists():
        raise Conflict(
            _("You have a dashboard of this name already. Give it another one."), errors={"name": _("Taken.")}
        )
