"""Reads alerts for a person, by filters from query parameters."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import or_
from typing import Any, Final

import redis
from django.core.paginator import Paginator
from django.db.models import BooleanField, Case, Exists, ExpressionWrapper, F, OuterRef, Q, QuerySet, When
from django.db.models.functions import Coalesce, Greatest
from django.urls import reverse
from django.utils import timezone

from accounts.models import User
from core.errors import Invalid
from core.forms import checked_instant
from core.language import _, english, gettext_noop
from core.text import parse_id
from fabric.bmc.series import Quantity
from fabric.inventory.models import Chassis, Device, Port
from fabric.topology.problems import Problem, Subject, level_of, present_problems
from telemetry.alerts.messages import telemetry_url
from telemetry.alerts.models import Alert, AlertSeverity, Route, Silence
from telemetry.alerts.rules import DEVICE_MISSING, DRIFT, LINK_RULES, NOT_ANSWERING, value_label
from telemetry.live.newest import newest_series_values

logger = logging.getLogger(__name__)
SHOW_CHOICES: Final = ("open", "history", "all")
SORTS: Final = {
    "worst": ("is_pending", "-rank", "is_acknowledged", "-shown_since", "-pk"),
    "newest": ("-shown_since", "-pk"),
    "oldest": ("shown_since", "pk"),
    "subject": ("chassis__name", "subject_name", "-rank", "-pk"),
    "title": ("title", "chassis__name", "subject_name", "pk"),
}
MAX_SEARCH_LENGTH = 200
ALERT_PAGE: Final = "alerts:alert"
THIS_SITE: Final = gettext_noop("This site")  # in place of a chassis
MAX_ACTIVE_SHOWN = 5
CSV_ROWS_PER_QUERY = 500
ALERT_COLUMNS = (
    "id", "severity", "state", "alert", "about", "chassis", "measured", "value_at_fire", "worst_value", "unit",
    "threshold", "since", "fired_at", "acknowledged_at", "acknowledged_by", "note", "resolved_at", "silenced",
    "inhibited",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class AlertFilter:
    """Selection and order of alerts; ids are of rows, times are timezone-aware."""

    show: str = "open"
    search: str = ""
    severity: str = ""
    state: str = ""
    chassis: int | None = None
    device: int | None = None
    port: int | None = None
    rule: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    sort: str = "worst"

    @classmethod
    def of(cls, given: Mapping[str, str]) -> AlertFilter:
        """Parse query parameters; raises Invalid with the parameters that are wrong."""
        errors: dict[str, str] = {}
        texts = {name: given.get(name, "").replace("\0", " ").strip() for name in (
            "show", "q", "severity", "state", "sort", "since", "until")}  # fmt: skip
        shown = texts["show"] or "open"
        _one_of(errors, "show", shown, SHOW_CHOICES)
        _one_of(errors, "severity", texts["severity"], AlertSeverity.values)
        _one_of(errors, "state", texts["state"], Alert.State.values)
        sort = texts["sort"] or ("newest" if shown == "history" else "worst")
        _one_of(errors, "sort", sort, SORTS)
        if len(texts["q"]) > MAX_SEARCH_LENGTH:
            errors["q"] = _("At most {most} characters.", most=MAX_SEARCH_LENGTH)
        ids = {name: _id(errors, name, given) for name in ("chassis", "device", "port", "rule")}
        # An offset's '+' that is not encoded in a URL arrives as a space.
        times = [texts[name].replace(" ", "+") if "T" in texts[name] else texts[name] for name in ("since", "until")]
        since, until = checked_instant(times[0], "since", errors), checked_instant(times[1], "until", errors)
        if since is not None and until is not None and until < since:
            errors["until"] = _("Give an end that is not before the begin.")
        if errors:
            raise Invalid(_("The filter cannot be used."), errors=errors)
        return cls(
            show=shown, search=texts["q"], severity=texts["severity"], state=texts["state"], sort=sort,
            since=since, until=until, **ids,
        )  # fmt: skip

    def apply(self, rows: QuerySet[Alert]) -> QuerySet[Alert]:
        """Return the matching rows of `alert_rows`, sorted by the times that the person may see."""
        if self.show == "open":
            rows = rows.filter(state__in=Alert.OPEN)
        elif self.show == "history":
            rows = rows.filter(state=Alert.State.RESOLVED)
        exact = {"severity": self.severity, "state": self.state, "chassis": self.chassis, "device": self.device,
                 "port": self.port, "rule": self.rule}  # fmt: skip
        rows = rows.filter(**{name: value for name, value in exact.items() if value})
        if self.since is not None:
            rows = rows.filter(Q(resolved_at=None) | Q(resolved_at__gte=self.since))
        if self.until is not None:
            rows = rows.filter(Q(("shown_since__lt", self.until)))
        for word in self.search.split()[:20]:
            fields = ("title", "subject_name", "chassis__name", "quantity", "threshold", "series_key")
            rows = rows.filter(reduce(or_, (Q((f"{field}__icontains", word)) for field in fields)))
        # Within a severity: unacknowledged alerts, then acknowledged ones, then pending ones.
        rows = rows.annotate(
            is_pending=ExpressionWrapper(Q(state=Alert.State.PENDING), output_field=BooleanField()),
            is_acknowledged=ExpressionWrapper(Q(state=Alert.State.ACKNOWLEDGED), output_field=BooleanField()),
        )
        return rows.order_by(*SORTS[self.sort])


def _one_of(errors: dict[str, str], name: str, text: str, known: Iterable[str]) -> None:
    if text and text not in known:
        errors[name] = _("One of {choices}.", choices=", ".join(known))


def _id(errors: dict[str, str], name: str, given: Mapping[str, str]) -> int | None:
    text = given.get(name, "") or given.get(f"{name}_id", "")
    if not text:
        return None
    found = parse_id(text)
    if not found:
        errors[name] = _("Give a whole number.")
    return found or None


def silenced_alerts(now: datetime | None = None) -> Q:
    """Return the condition under which an alert is silenced now."""
    nothing = Q(pk__in=[])
    # An empty Q matches everything, but Django drops it from an 'or'.
    return reduce(or_, (silence.alerts() or ~nothing for silence in Silence.objects.in_force(now)), nothing)


def inhibited_alerts() -> Q:
    """Return the condition under which an alert is suppressed by a more severe one.

    The chassis does not answer, the same sensor is beyond its critical limit too, or the same link is down.
    """
    active = Alert.objects.filter(state__in=Alert.ACTIVE, chassis=OuterRef("chassis"))
    silent = Q(Exists(active.filter(cause=NOT_ANSWERING))) & ~Q(cause=NOT_ANSWERING)
    critical = active.filter(series_key=OuterRef("series_key"), cause__startswith="sensor_critical")
    down = active.filter(port=OuterRef("port"), cause="link_down")
    inhibited = silent | (Q(cause__startswith="sensor_caution") & Q(Exists(critical)))
    return inhibited | (Q(cause="link_degraded") & Q(Exists(down)))


def suppressed_alerts(now: datetime | None = None) -> Q:
    """Return the condition under which an alert notifies nobody now."""
    return silenced_alerts(now) | inhibited_alerts()


def alert_rows(person: User) -> QuerySet[Alert]:
    """Return the alerts that a person may see, with whether each is silenced or inhibited.

    `shown_since` is when it began as far as the person may know.
    """
    rows: QuerySet[Alert] = Alert.objects.visible_to(person)
    leased_since = Case(
        When(device__isnull=False, then=F("device__tenant_since")), default=F("host_port__tenant_since")
    )
    known = F("since") if person.is_administrator else Greatest("since", Coalesce(leased_since, "since"))
    return rows.select_related("chassis", "device", "host_port").annotate(
        is_silenced=ExpressionWrapper(silenced_alerts(), output_field=BooleanField()),
        is_inhibited=ExpressionWrapper(inhibited_alerts(), output_field=BooleanField()),
        shown_since=known,
    )


def alert_views(person: User, rows: Iterable[Alert], *, with_current: bool = False) -> list[Any]:
    """Return rows of `alert_rows` as the person may see them, not to be saved; two queries for any number of rows.

    What is from before their tenant leased the subject is cleared. Added are `may_acknowledge`, `level`, `about` (the
    subject and its chassis), `value_words` and `worst_words` (the values with their unit), `subject_url` (the page of
    the subject) and `chart_url` ('' for none); with `with_current`, `current_value` and `current_words` of what fires,
    as far as it is measured now.
    """
    found = _rows_for(person, rows)
    for row in found:
        row.may_acknowledge = row.state == Alert.State.FIRING and person.may_compose
        row.worst_words = _value_label(row.worst_value, row)
        row.subject_url, row.chart_url = _subject_url(row), _chart_url(row, person)
    if with_current:
        _add_current_values(person, found)
    return found


def _rows_for(person: User, rows: Iterable[Alert]) -> list[Any]:
    """Return rows without what the person may not see, with `level`, `about` and `value_words`."""
    found: list[Any] = list(rows)
    device_rows = Device.objects.visible_to(person).filter(pk__in={row.device_id for row in found})
    port_rows = Port.objects.visible_to(person).filter(pk__in={row.port_id for row in found})
    devices, ports = (set(rows.values_list("pk", flat=True)) for rows in (device_rows, port_rows))
    for row in found:
        _prepare_for(person, row, devices, ports)
        row.level, row.value_words = level_of(row.severity), _value_label(row.value, row)
        row.about = row.subject_name
        if row.object not in {"chassis", "site"}:
            row.about = _("{part} of {chassis}", part=row.subject_name, chassis=row.chassis.name)
    return found


def _add_current_values(person: User, views: Iterable[Any]) -> None:
    """Add the present values of what fires; counters of errors from before a lease are not visible to its tenant."""
    wanted: defaultdict[int, set[str]] = defaultdict(set)
    for row in views:
        is_open = row.state in Alert.ACTIVE and row.chassis_id is not None and row.unit != "health"
        if is_open and (person.is_administrator or "/errors/" not in row.series_key):
            wanted[row.chassis_id].add(row.series_key)
    try:
        values = newest_series_values(wanted)
    except (redis.RedisError, OSError) as error:
        logger.info("present values of alerts are not available: %s", error)
        values = {}
    for row in views:
        row.current_value = values.get((row.chassis_id, row.series_key))
        row.current_words = _value_label(row.current_value, row)


def alert_lines(person: User, rows: QuerySet[Alert]) -> Iterator[tuple[object, ...]]:
    """Yield a row of a table for each of `alert_rows`; its columns are ALERT_COLUMNS, times ISO 8601 in UTC."""
    pages = Paginator(rows, CSV_ROWS_PER_QUERY)
    for one in (view for page in pages for view in alert_views(person, page.object_list)):
        yield (
            one.id,
            one.severity,
            one.state,
            one.title,
            english(one.subject_name),
            english(one.chassis.name),
            one.quantity,
            one.value,
            one.worst_value,
            one.unit,
            one.threshold,
            _iso(one.since),
            _iso(one.fired_at),
            _iso(one.acknowledged_at),
            one.acknowledged_by_name,
            one.acknowledged_note,
            _iso(one.resolved_at),
            "yes" if one.is_silenced else "",
            "yes" if one.is_inhibited else "",
        )


@dataclass(frozen=True)
class ActiveAlerts:
    """Content of the header: the number of a person's firing alerts by severity, and the worst of them first."""

    critical: int
    warning: int
    worst_unacknowledged: str  # worst severity of unacknowledged alerts: 'Critical', 'Warning' or ''
    views: list[Any]

    @property
    def worst(self) -> str:
        """'Critical', 'Warning' or ''."""
        return "Critical" if self.critical else "Warning" if self.warning else ""


def active_alerts_for(person: User) -> ActiveAlerts:
    """Return a person's firing alerts, without silenced and inhibited ones.

    Where there are routes to the page, only the alerts of these.
    """
    rows = _notifying_alerts(person)
    if routes := list(Route.objects.filter(kind=Route.Kind.PAGE)):
        conditions = [route.alerts() for route in routes if route.enabled]
        rows = rows.filter(reduce(or_, conditions)) if conditions else rows.none()
    found = list(rows.values_list("pk", "severity", "state").order_by("pk"))
    combinations, firing = {(severity, state) for _, severity, state in found}, Alert.State.FIRING.value
    shown = AlertFilter(sort="worst").apply(rows)[:MAX_ACTIVE_SHOWN]
    return ActiveAlerts(
        critical=sum(severity == AlertSeverity.CRITICAL for _, severity, _ in found),
        warning=sum(severity == AlertSeverity.WARNING for _, severity, _ in found),
        worst_unacknowledged=next((one for one in ("Critical", "Warning") if (one, firing) in combinations), ""),
        views=alert_views(person, shown) if found else [],
    )


def worst_status(person: User, active: ActiveAlerts) -> str:
    """Return 'Critical', 'Warning' or '': the worst of a person's `active` alerts and of problems that are no alerts.

    A problem of what has an acknowledged or silenced alert is left out.
    """
    if active.worst_unacknowledged == AlertSeverity.CRITICAL:
        return active.worst_unacknowledged  # nothing is worse
    heard = Alert.objects.visible_to(person).filter(state__in=Alert.ACTIVE)
    heard = heard.filter(Q(state=Alert.State.ACKNOWLEDGED) | silenced_alerts())
    subjects: set[Subject] = set()
    for row in heard.only("object", "chassis", "device", "port"):
        subjects |= {(kind, pk) for kind in ("device", "port") if (pk := getattr(row, f"{kind}_id")) is not None}
        subjects |= {("chassis", row.chassis_id)} if row.object == "chassis" else set()
    problems = [one for one in present_problems(person) if one.page != ALERT_PAGE and one.about not in subjects]
    levels = [level_of(active.worst_unacknowledged)] if active.worst_unacknowledged else []
    levels += [one.level for one in problems]
    return max(levels).name.capitalize() if levels else ""


def _notifying_alerts(person: User) -> QuerySet[Alert]:
    """Return a person's firing alerts, without silenced and inhibited ones."""
    return alert_rows(person).filter(state__in=Alert.ACTIVE).exclude(suppressed_alerts())


# What the fabric and the links report as problems by themselves, whether a rule is on or not.
SAID_ELSEWHERE: Final = frozenset({NOT_ANSWERING, DEVICE_MISSING, DRIFT, *LINK_RULES})


def alert_problems(person: User, chassis_ids: Collection[int] | None) -> Iterator[Problem]:
    """Yield a person's firing alerts about what the fabric does not report by itself: readings and fans."""
    rows = _notifying_alerts(person).exclude(cause__in=SAID_ELSEWHERE)
    if chassis_ids is not None:
        rows = rows.filter(chassis__in=chassis_ids)
    for row in _rows_for(person, AlertFilter(sort="worst").apply(rows)):
        pk = getattr(row, f"{row.object}_id", None)
        quantity, threshold = _(row.quantity), row.threshold_words
        # The value when it fired, beside the limit.
        measured = f"{quantity} {row.value_words}, {threshold}" if row.value_words else quantity
        name = quantity or row.title_words
        yield Problem(
            level=row.level, word=name.lower() if name == english(name) else name,
            sentence=f"{row.title_words}: {row.about}{', ' if measured else ''}{measured}.",
            page=ALERT_PAGE, pk=row.pk, chassis_id=row.chassis_id,
            explains=not row.cause.startswith("rule-"), about=(row.object, pk) if pk else None,
        )  # fmt: skip


def _prepare_for(person: User, row: Any, devices: set[int], ports: set[int]) -> None:
    """Clear what the person may not see of a row."""
    leased_since = None if person.is_administrator else _tenant_since(row)
    if not may_see_acknowledgement(person, row):
        row.acknowledged_at, row.acknowledged_by_name, row.acknowledged_note = None, "", ""
    if leased_since is not None and row.since < leased_since:
        row.since, row.value, row.worst_value = leased_since, None, None
    row.fired_at = max(row.fired_at, row.since) if row.fired_at else None
    row.device_id = row.device_id if row.device_id in devices else None
    row.port_id = row.port_id if row.port_id in ports else None
    if not person.is_administrator:
        row.drawer_id = None
        # Without a rule, it is the error of the chassis' client.
        row.note = row.note if row.rule_id is not None else ""
        row.rule_id = None
    # A database may return NULL for a condition on a column without a value.
    row.is_silenced, row.is_inhibited = bool(row.is_silenced), bool(row.is_inhibited)
    if row.chassis is None:
        row.chassis, row.subject_name = Chassis(name=_(THIS_SITE)), _(row.subject_name)


def may_see_acknowledgement(person: User, row: Alert) -> bool:
    """Return whether a person may see an acknowledgement: not one from before their tenant leased the subject."""
    leased_since = None if person.is_administrator else _tenant_since(row)
    return leased_since is None or row.acknowledged_at is None or row.acknowledged_at >= leased_since


def _value_label(value: float | None, row: Any) -> str:
    return "" if value is None or row.unit == "health" or not row.series_key else value_label(value, row.unit)


def _tenant_since(row: Any) -> datetime | None:
    """Return since when the subject belongs to its tenant, who may not see earlier values."""
    part = row.device if row.device is not None else row.host_port
    return part.tenant_since if part is not None else None


def _subject_url(row: Any) -> str:
    if row.object == "site":
        return reverse("pipeline:pipeline")
    pk = getattr(row, f"{row.object}_id")
    return reverse(f"fabric:{row.object}", args=[pk]) if pk else reverse("fabric:chassis", args=[row.chassis_id])


def _chart_url(row: Any, person: User) -> str:
    steps = row.series_key.split("/")
    if len(steps) < 3 or row.unit == "health":
        return ""
    until = row.resolved_at or timezone.now()
    own = {"device": row.device_id, "port": row.port_id}.get(row.object)
    # A series that belongs to no metric has a chart of its own.
    if own is not None and len(steps) == 3 and steps[2] != Quantity.OTHER:
        return telemetry_url(f"{row.object}/{own}", steps[2], row.since, until)
    if own is None and not person.is_administrator:
        return ""
    return telemetry_url(f"series/{row.chassis_id}/{row.series_key}", "", row.since, until)


def _iso(at: datetime | None) -> str:
    return at.isoformat(timespec="seconds") if at else ""
