"""Filters of alerts, read from query parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import or_
from typing import Final

from django.db.models import BooleanField, ExpressionWrapper, Q, QuerySet

from accounts.audit.selectors import parse_instant
from core.errors import Invalid
from core.text import parse_id
from telemetry.alerts.models import Alert, AlertSeverity

SHOW_CHOICES: Final = ("open", "history", "all")
SORTS: Final = {
    "worst": ("is_pending", "-rank", "is_acknowledged", "-shown_since", "-pk"),
    "newest": ("-shown_since", "-pk"),
    "oldest": ("shown_since", "pk"),
    "subject": ("chassis__name", "subject_name", "-rank", "-pk"),
    "title": ("title", "chassis__name", "subject_name", "pk"),
}
MAX_SEARCH_LENGTH = 200


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
            errors["q"] = f"At most {MAX_SEARCH_LENGTH} characters."
        ids = {name: _id(errors, name, given) for name in ("chassis", "device", "port", "rule")}
        # An offset's '+' that is not encoded in a URL arrives as a space.
        times = [texts[name].replace(" ", "+") if "T" in texts[name] else texts[name] for name in ("since", "until")]
        since, until = parse_instant(times[0], "since", errors), parse_instant(times[1], "until", errors)
        if since is not None and until is not None and until < since:
            errors["until"] = "Give an end that is not before the begin."
        if errors:
            raise Invalid("The filter cannot be used.", errors=errors)
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
        errors[name] = f"One of {', '.join(known)}."


def _id(errors: dict[str, str], name: str, given: Mapping[str, str]) -> int | None:
    text = given.get(name, "") or given.get(f"{name}_id", "")
    if not text:
        return None
    found = parse_id(text)
    if not found:
        errors[name] = "Give a whole number."
    return found or None
