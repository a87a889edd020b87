"""Reading alerts, on somebody's behalf."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from operator import or_
from typing import Any, Final

from django.db.models import BooleanField, Case, Exists, ExpressionWrapper, F, OuterRef, Q, QuerySet, When
from django.db.models.functions import Coalesce, Greatest
from django.urls import reverse
from django.utils import timezone

from accounts.models import User
from fabric.bmc.types import Quantity
from fabric.models import Device, Port
from fabric.numbers import whole_number
from falconweb.errors import Invalid, NotFound
from telemetry.alerts.models import Alert, Route, Severity, Silence
from telemetry.alerts.terms import NOT_ANSWERING, seconds_words, value_words
from telemetry.alerts.wording import chart_of

SHOWS: Final = ("open", "history", "all")
SORTS: Final = {
    "worst": ("is_pending", "-rank", "is_acknowledged", "-shown_since", "-pk"),
    "newest": ("-shown_since", "-pk"),
    "oldest": ("shown_since", "pk"),
    "subject": ("chassis__name", "subject_name", "-rank", "-pk"),
    "title": ("title", "chassis__name", "subject_name", "pk"),
}
LONGEST = 200
COLUMNS = (
    "id", "severity", "state", "alert", "about", "chassis", "measured", "value_at_fire", "worst_value", "unit",
    "threshold", "since", "fired_at", "acknowledged_at", "acknowledged_by", "note", "resolved_at", "silenced",
    "inhibited",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Which alerts to keep; ids are of rows, times aware."""

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
    def of(cls, given: Mapping[str, str], *, show: str = "open") -> Filter:
        """Read it from the parameters of an address; raises Invalid with what is wrong."""
        errors: dict[str, str] = {}
        texts = {name: given.get(name, "").replace("\0", " ").strip() for name in (
            "show", "q", "severity", "state", "sort", "since", "until")}  # fmt: skip
        shown = texts["show"] or show
        _one_of(errors, "show", shown, SHOWS)
        _one_of(errors, "severity", texts["severity"], Severity.values)
        _one_of(errors, "state", texts["state"], Alert.State.values)
        sort = texts["sort"] or ("newest" if shown == "history" else "worst")
        _one_of(errors, "sort", sort, SORTS)
        if len(texts["q"]) > LONGEST:
            errors["q"] = f"At most {LONGEST} characters."
        ids = {name: _id(errors, name, given) for name in ("chassis", "device", "port", "rule")}
        since, until = (_instant(errors, name, texts[name]) for name in ("since", "until"))
        if since is not None and until is not None and until < since:
            errors["until"] = "Give an end that is not before the begin."
        if errors:
            raise Invalid("The filter cannot be used.", errors=errors)
        return cls(
            show=shown, search=texts["q"], severity=texts["severity"], state=texts["state"], sort=sort,
            since=since, until=until, **ids,
        )  # fmt: skip

    def apply(self, rows: QuerySet[Alert]) -> QuerySet[Alert]:
        """Return those of `alert_rows` that it keeps, sorted; by the times that the person may know."""
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
        # Of the same severity, what nobody has taken notice of comes before what somebody has, and both before pending.
        rows = rows.annotate(
            is_pending=ExpressionWrapper(Q(state=Alert.State.PENDING), output_field=BooleanField()),
            is_acknowledged=ExpressionWrapper(Q(state=Alert.State.ACKNOWLEDGED), output_field=BooleanField()),
        )
        return rows.order_by(*SORTS[self.sort])


@dataclass(frozen=True, kw_only=True)
class AlertView:
    """An alert as a person may read it; of a time before they held its subject nothing is told but that it lasts."""

    id: int
    severity: str
    state: str
    state_label: str
    title: str
    rule_id: int | None
    cause: str
    object: str
    subject_name: str
    chassis_id: int
    chassis_name: str
    drawer_id: int | None
    device_id: int | None
    port_id: int | None
    series_key: str
    quantity: str
    unit: str
    threshold: str
    value: float | None
    value_words: str
    worst_value: float | None
    worst_words: str
    note: str
    since: datetime
    fired_at: datetime | None
    acknowledged_at: datetime | None
    acknowledged_by_name: str
    acknowledged_note: str
    resolved_at: datetime | None
    resolved_because: str
    is_silenced: bool
    is_inhibited: bool
    may_acknowledge: bool
    thing_url: str
    chart_url: str

    @property
    def lasted(self) -> str:
        """How long it lasted, in words."""
        return seconds_words(max(0.0, (self.resolved_at - self.since).total_seconds())) if self.resolved_at else ""

    @property
    def mark(self) -> str:
        """The sign beside the word of its severity."""
        return "▲" if self.severity == "Critical" else "▼"


def silenced_alerts(now: datetime | None = None) -> Q:
    """Return the condition under which an alert is silenced now."""
    conditions = [silence.alerts() for silence in Silence.objects.in_force(now)]
    if not conditions:
        return Q(pk__in=[])
    # An empty condition is one that everything meets: joined by 'or' Django would drop it.
    return reduce(or_, ((one or ~Q(pk__in=[])) for one in conditions))


def inhibited_alerts() -> Q:
    """Return the condition under which another alert says enough.

    The chassis does not answer, or the same sensor is beyond its critical limit too.
    """
    ringing = Alert.objects.filter(state__in=Alert.RINGING, chassis=OuterRef("chassis"))
    silent = Q(Exists(ringing.filter(cause=NOT_ANSWERING))) & ~Q(cause=NOT_ANSWERING)
    critical = ringing.filter(series_key=OuterRef("series_key"), cause__startswith="sensor_critical")
    return silent | (Q(cause__startswith="sensor_caution") & Q(Exists(critical)))


def hushed_alerts(now: datetime | None = None) -> Q:
    """Return the condition under which an alert notifies nobody now."""
    return silenced_alerts(now) | inhibited_alerts()


def alert_rows(person: User) -> QuerySet[Alert]:
    """Return the alerts that a person may see, with whether each is silenced or inhibited.

    `shown_since` is when it began as far as the person may know.
    """
    rows: QuerySet[Alert] = Alert.objects.visible_to(person)
    held = Case(When(device__isnull=False, then=F("device__tenant_since")), default=F("host_port__tenant_since"))
    known = F("since") if person.is_administrator else Greatest("since", Coalesce(held, "since"))
    return rows.select_related("chassis", "device", "host_port").annotate(
        is_silenced=ExpressionWrapper(silenced_alerts(), output_field=BooleanField()),
        is_inhibited=ExpressionWrapper(inhibited_alerts(), output_field=BooleanField()),
        shown_since=known,
    )


def alert_of(person: User, pk: int) -> Alert:
    """Return one alert; raises NotFound where the person may not see it."""
    row = alert_rows(person).filter(pk=pk).first() if pk < 2**63 else None
    if row is None:
        raise NotFound("There is no such alert.")
    return row


def alert_views(person: User, rows: Iterable[Alert]) -> list[AlertView]:
    """Return rows of `alert_rows` as the person may read them; two queries, however many there are."""
    rows = list(rows)
    devices = _visible(Device.objects.visible_to(person), {row.device_id for row in rows})
    ports = _visible(Port.objects.visible_to(person), {row.port_id for row in rows})
    return [_view(row, person, devices, ports) for row in rows]


def alert_lines(views: Iterable[AlertView]) -> Iterator[tuple[object, ...]]:
    """Yield a row of a table for each alert; its columns are COLUMNS, times ISO 8601 in UTC."""
    for one in views:
        yield (
            one.id, one.severity, one.state, one.title, one.subject_name, one.chassis_name, one.quantity, one.value,
            one.worst_value, one.unit, one.threshold, _iso(one.since), _iso(one.fired_at), _iso(one.acknowledged_at),
            one.acknowledged_by_name, one.acknowledged_note, _iso(one.resolved_at),
            "yes" if one.is_silenced else "", "yes" if one.is_inhibited else "",
        )  # fmt: skip


@dataclass(frozen=True)
class Ringing:
    """What the header shows: how many alerts ring for a person, the worst of them first, and how bad it is."""

    critical: int
    warning: int
    loudest: str  # of those that nobody has acknowledged: 'Critical', 'Warning' or ''
    views: list[AlertView]

    @property
    def worst(self) -> str:
        """'Critical', 'Warning' or ''."""
        return "Critical" if self.critical else "Warning" if self.warning else ""


def ringing_for(person: User, *, most: int = 5) -> Ringing:
    """Return what rings for a person now; what is silenced or inhibited is not among it.

    Where there are routes to the page, what they take in; without any, everything.
    """
    rows = alert_rows(person).filter(state__in=Alert.RINGING).exclude(hushed_alerts())
    if routes := list(Route.objects.filter(kind=Route.Kind.PAGE)):
        conditions = [route.alerts() for route in routes if route.enabled]
        rows = rows.filter(reduce(or_, conditions)) if conditions else rows.none()
    found = list(rows.values_list("pk", "severity", "state").order_by("pk"))
    loud = {(severity, state) for _, severity, state in found}
    shown = Filter(sort="worst").apply(rows)[:most]
    return Ringing(
        critical=sum(severity == Severity.CRITICAL for _, severity, _ in found),
        warning=sum(severity == Severity.WARNING for _, severity, _ in found),
        loudest=next((one for one in ("Critical", "Warning") if (one, Alert.State.FIRING.value) in loud), ""),
        views=alert_views(person, shown) if found else [],
    )


def _view(row: Any, person: User, devices: set[int], ports: set[int]) -> AlertView:
    held = None if person.is_administrator else _held_since(row)
    begun_before = held is not None and row.since < held
    seen = acknowledgement_is_seen(person, row)
    device = row.device_id if row.device_id in devices else None
    port = row.port_id if row.port_id in ports else None
    since = held if begun_before and held is not None else row.since
    return AlertView(
        id=row.pk,
        severity=row.severity,
        state=row.state,
        state_label=row.get_state_display(),
        title=row.title,
        rule_id=row.rule_id if person.is_administrator else None,
        cause=row.cause,
        object=row.object,
        subject_name=row.subject_name,
        chassis_id=row.chassis_id,
        chassis_name=row.chassis.name,
        drawer_id=row.drawer_id if person.is_administrator else None,
        device_id=device,
        port_id=port,
        series_key=row.series_key,
        quantity=row.quantity,
        unit=row.unit,
        threshold=row.threshold,
        value=None if begun_before else row.value,
        value_words="" if begun_before or row.value is None else _words(row.value, row),
        worst_value=None if begun_before else row.worst_value,
        worst_words="" if begun_before or row.worst_value is None else _words(row.worst_value, row),
        note=row.note if person.is_administrator or row.rule_id is not None else "",
        since=since,
        fired_at=max(row.fired_at, since) if row.fired_at else None,
        acknowledged_at=row.acknowledged_at if seen else None,
        acknowledged_by_name=row.acknowledged_by_name if seen else "",
        acknowledged_note=row.acknowledged_note if seen else "",
        resolved_at=row.resolved_at,
        resolved_because=row.resolved_because,
        is_silenced=bool(row.is_silenced),
        is_inhibited=bool(row.is_inhibited),
        may_acknowledge=row.state == Alert.State.FIRING and person.may_compose,
        thing_url=_thing(row, device, port, person),
        chart_url=_chart(row, device, port, person, since),
    )


def acknowledgement_is_seen(person: User, row: Alert) -> bool:
    """Tell whether a person may know who acknowledged an alert, and when: not what was before they held its subject."""
    held = None if person.is_administrator else _held_since(row)
    return held is None or row.acknowledged_at is None or row.acknowledged_at >= held


def _words(value: float, row: Any) -> str:
    return "" if row.unit == "health" or not row.series_key else value_words(value, row.unit)


def _held_since(row: Any) -> datetime | None:
    """Return since when the subject is whose it is: what was before is none of theirs."""
    part = row.device if row.device is not None else row.host_port
    return part.tenant_since if part is not None else None


def _thing(row: Any, device: int | None, port: int | None, person: User) -> str:
    if row.object == "device" and device is not None:
        return reverse("fabric:device", args=[device])
    if row.object == "port" and port is not None:
        return reverse("fabric:port", args=[port])
    if row.object == "drawer" and row.drawer_id is not None and person.is_administrator:
        return reverse("fabric:drawer", args=[row.drawer_id])
    return reverse("fabric:chassis", args=[row.chassis_id])


def _chart(row: Any, device: int | None, port: int | None, person: User, since: datetime) -> str:
    """Return where the moment is in the charts, '' for what is no series."""
    steps = row.series_key.split("/")
    if len(steps) < 3 or row.unit == "health":
        return ""
    until = row.resolved_at or timezone.now()
    own = {"device": device, "port": port}.get(row.object)
    # What no metric is made of is a series by itself.
    if own is not None and len(steps) == 3 and steps[2] != Quantity.OTHER:
        return chart_of(f"{row.object}/{own}", steps[2], since, until)
    if own is None and not person.is_administrator:
        return ""
    return chart_of(f"series/{row.chassis_id}/{row.series_key}", "", since, until)


def _visible(rows: QuerySet[Any], pks: set[int | None]) -> set[int]:
    wanted = pks - {None}
    return set(rows.filter(pk__in=wanted).values_list("pk", flat=True)) if wanted else set()


def _one_of(errors: dict[str, str], name: str, text: str, known: Iterable[str]) -> None:
    if text and text not in known:
        errors[name] = f"One of {', '.join(known)}."


def _id(errors: dict[str, str], name: str, given: Mapping[str, str]) -> int | None:
    text = given.get(name, "") or given.get(f"{name}_id", "")
    if not text:
        return None
    found = whole_number(text)
    if not found:
        errors[name] = "Give a whole number."
    return found or None


def _instant(errors: dict[str, str], name: str, text: str) -> datetime | None:
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text.replace(" ", "+") if "T" in text else text)
        found = found if found.tzinfo else found.replace(tzinfo=UTC)
        return found.astimezone(UTC)
    except (ValueError, OverflowError):
        errors[name] = "Give a time such as 2026-03-01T12:00 (UTC)."
        return None


def _iso(at: datetime | None) -> str:
    return at.isoformat(timespec="seconds") if at else ""
