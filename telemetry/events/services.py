"""Records events once, manages saved views, deletes old events."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlencode

from django.conf import settings
from django.db import IntegrityError, transaction
from django.http import QueryDict
from django.utils import timezone

from accounts.audit.actions import Action
from accounts.audit.services import audited, target_of
from accounts.models import Tenant, User
from accounts.visibility import row_or_404
from core.errors import Conflict, Invalid
from core.language import _, gettext_noop
from fabric.inventory.models import Chassis
from telemetry.events.filters import EventFilter
from telemetry.events.models import Event, EventSeverity, EventSource, SavedView, event_key
from telemetry.events.rules import message_name
from telemetry.events.selectors import announce_writer
from telemetry.events.subjects import subject_at, tenants_at

logger = logging.getLogger(__name__)

MAX_TEXT_LENGTH = 4000


@dataclass(frozen=True, kw_only=True)
class EventReport:
    """What is reported of a subject: one of a chassis, source and `key` (not '') is stored once."""

    message_id: str
    severity: str
    text: str
    at: datetime
    arguments: Sequence[str] = ()
    key: str = ""


def event_record(
    *,
    source: str,
    message_id: str,
    severity: str,
    text: str,
    at: datetime,
    arguments: Sequence[str] = (),
    key: str = "",
    **about: Any,
) -> Event | None:
    """Store an event of a subject, as `events_record` does, and return it; None where it exists already."""
    report = EventReport(
        message_id=message_id, severity=severity, text=text, at=at, arguments=arguments, key=key
    )  # fmt: skip
    return next(iter(events_record([report], source=source, **about)), None)


def events_record(
    reports: Sequence[EventReport],
    *,
    source: str,
    chassis_id: int | None = None,
    chassis_name: str = "",
    device_id: int | None = None,
    port_id: int | None = None,
    drawer_id: int | None = None,
    host_id: int | None = None,
    tenant_id: int | None = None,
    subject_name: str = "",
    link: str = "",
    person_id: int | None = None,
    person_name: str = "",
) -> list[Event]:
    """Store events of one subject that stayed where it was meanwhile, and return those that did not exist.

    Part of the caller's transaction, if there is one. Pass no secrets: all values are shown to everybody who may see
    the events. Values that are not given for a device or port (drawer, page, tenant at the time) are looked up.
    """
    keys = [event_key(source, chassis_id, report.key) for report in reports]
    wanted = [key for key in keys if key]
    stored = set(Event.objects.filter(key__in=wanted).order_by().values_list("key", flat=True)) if wanted else set()
    news = [(key, report) for key, report in zip(keys, reports, strict=True) if key not in stored]
    if not news:
        return []
    about = subject_at(at=news[-1][1].at, device_id=device_id, port_id=port_id, drawer_id=drawer_id, host_id=host_id)
    tenants: list[tuple[int | None, str]]
    if tenant_id is not None:
        tenants = [(tenant_id, _row_name(Tenant, tenant_id))] * len(news)
    else:
        tenures = tenants_at([(about, report.at) for _, report in news])
        tenants = [(tenure.tenant_id, tenure.tenant_name) for tenure in tenures]
    common: dict[str, Any] = {
        "received_at": timezone.now(), "source": EventSource(source), "chassis_id": chassis_id,
        "chassis_name": chassis_name or _row_name(Chassis, chassis_id), "device_id": about.device_id,
        "port_id": about.port_id, "drawer_id": about.drawer_id, "host_id": about.host_id,
        "subject_name": (subject_name or about.name)[:300], "link": (link or about.link)[:400],
        "person_id": person_id, "person_name": person_name[:150],
    }  # fmt: skip
    events = [
        Event(
            **common, at=report.at, severity=EventSeverity(report.severity), message_id=report.message_id[:200],
            message=message_name(report.message_id)[:200], text=report.text.replace("\0", " ")[:MAX_TEXT_LENGTH],
            arguments=list(report.arguments), key=key, tenant_id=tenant, tenant_name=tenant_name,
        )
        for (key, report), (tenant, tenant_name) in zip(news, tenants, strict=True)
    ]  # fmt: skip
    return _store(events)


def _store(events: list[Event]) -> list[Event]:
    """Store events, and return those that nobody else has recorded concurrently."""
    try:
        with transaction.atomic():
            announce_writer()
            Event.objects.bulk_create(events)
    except IntegrityError:
        if len(events) > 1:
            return [event for one in events for event in _store([one])]
        if events[0].key is None:
            raise
        return []
    return events


def _row_name(model: type[Chassis | Tenant], pk: int | None) -> str:
    if pk is None:
        return ""
    return model.objects.filter(pk=pk).order_by().values_list("name", flat=True).first() or ""


MAX_SAVED_VIEWS: Final = 50
MAX_NAME_LENGTH: Final = 60
MAX_QUERY_LENGTH: Final = 2000


def saved_view_add(*, person: User, name: str, query: str, is_default: bool = False) -> SavedView:
    """Save a search under a name; raises Invalid, and Conflict for a taken name.

    `query` is the query string of the page; it is stored as normalized by the filter.
    """
    with audited(Action.EVENT_VIEW_ADD, actor=person) as act:
        _lock_person(person)
        name, query = _clean_view_name(name), _normalized_query(query)
        own = person.event_views.all()
        if own.count() >= MAX_SAVED_VIEWS:
            raise Conflict(_("You keep {most} views already. Remove one first.", most=MAX_SAVED_VIEWS))
        _refuse_same_name(person, name)
        if is_default:
            own.filter(is_default=True).update(is_default=False)
        made = SavedView.objects.create(person=person, name=name, query=query, is_default=is_default)
        act.target, act.after = target_of(made), {"name": name, "query": query}
        return made


def saved_view_change(
    *, person: User, pk: int, name: str | None = None, query: str | None = None, is_default: bool | None = None
) -> SavedView:
    """Change a view's name or search, or whether it is the default; raises NotFound, Invalid, Conflict."""
    with audited(Action.EVENT_VIEW_CHANGE, actor=person) as act:
        _lock_person(person)
        row = saved_view_get(person, pk)
        act.target, act.before = target_of(row), {"name": row.name, "query": row.query, "default": row.is_default}
        if name is not None:
            row.name = _clean_view_name(name)
            _refuse_same_name(person, row.name, but=pk)
        if query is not None:
            row.query = _normalized_query(query)
        if is_default is not None:
            person.event_views.filter(is_default=True).update(is_default=False)
            row.is_default = is_default
        row.save(update_fields=["name", "query", "is_default"])
        act.after = {"name": row.name, "query": row.query, "default": row.is_default}
        return row


def saved_view_remove(*, person: User, pk: int) -> None:
    """Delete a view; raises NotFound."""
    with audited(Action.EVENT_VIEW_REMOVE, actor=person) as act:
        row = saved_view_get(person, pk)
        act.target, act.before = target_of(row), {"name": row.name, "query": row.query}
        row.delete()


def saved_view_get(person: User, pk: int) -> SavedView:
    """Return one of a person's own views; raises NotFound."""
    row: SavedView = row_or_404(person.event_views.all(), pk, gettext_noop("view"))
    return row


def _lock_person(person: User) -> None:
    # Concurrent requests must neither exceed the limit nor make two defaults.
    User.objects.select_for_update(of=("self",), no_key=True).get(pk=person.pk)


def _clean_view_name(name: str) -> str:
    name = " ".join(name.replace("\0", " ").split())
    if not name or len(name) > MAX_NAME_LENGTH:
        sentence = _("Give the view a name of at most {most} letters.", most=MAX_NAME_LENGTH)
        raise Invalid(sentence, errors={"name": sentence})
    return name


def _normalized_query(query: str) -> str:
    given = QueryDict(query.removeprefix("?")[: 2 * MAX_QUERY_LENGTH])
    kept = urlencode(EventFilter.of(given).parameters())
    if len(kept) > MAX_QUERY_LENGTH:
        raise Invalid(_("The search is too long to be kept."), errors={"query": _("Choose less.")})
    return kept


def _refuse_same_name(person: User, name: str, *, but: int = 0) -> None:
    if person.event_views.filter(name=name).exclude(pk=but).exists():
        raise Conflict(_("You have a view ‘{name}’ already. Choose another name, or remove that one.", name=name))


DELETE_BATCH = 500
DELETE_PAUSE_SECONDS = 0.05  # s, for other writers


def events_delete_old(*, most: int = 200_000) -> int:
    """Delete events older than FALCONWEB_KEEP_EVENTS, at most `most`; returns their number.

    Each small batch is a transaction of its own, followed by a pause, so that writers do not wait long.
    """
    before = timezone.now() - timedelta(seconds=settings.KEEP_EVENTS_SECONDS)
    deleted = 0
    while deleted < most:
        old = list(Event.objects.filter(at__lt=before).order_by("at", "pk").values_list("pk", flat=True)[:DELETE_BATCH])
        if not old:
            break
        deleted += Event.objects.filter(pk__in=old).delete()[0]
        time.sleep(DELETE_PAUSE_SECONDS)
    if deleted:
        logger.info("%s events of before %s were deleted", deleted, before.date())
    return deleted
