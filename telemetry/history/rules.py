"""Metrics, time ranges and views of the telemetry page. Pure.

A metric is a quantity of the live catalogue. Several readings of it (a drawer has eight ports) are combined into one
line by the metric's rule. Of a sum and of a mean, low and high are bounds: the ports need not have been at their lowest
in the same second. Of the highest, high is exact, mean and low are lower bounds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal

import numpy as np
from django.http import QueryDict
from django.utils.http import urlencode
from django.utils.translation import gettext
from numpy.typing import NDArray

from core.errors import Invalid
from core.language import _, gettext_noop
from core.text import parse_id

Combine = Literal["sum", "mean", "highest", "lowest"]
Floats = NDArray[np.floating[Any]]
ValueRow = NDArray[np.float64]
RATE: Final = "/rate"  # suffix of the key of an error counter's rate (1/s), as in the store


@dataclass(frozen=True)
class Metric:
    """A metric: its unit, and the rule that combines several readings.

    `per` is the owner of the readings; those of ports apply to all subjects with ports. `panel` is the title of its
    chart; `groups` is whether it applies to a drawer, a chassis, a host or a tenant.
    """

    name: str
    label: str
    unit: str
    per: Literal["device", "port"]
    combine: Combine
    panel: str
    groups: bool = True
    quantity: str = ""  # of the catalogue, where its name differs
    suffix: str = ""  # of the key


_METRICS: Final = (
    Metric("rx_bytes_per_second", gettext_noop("Receive"), "B/s", "port", "sum", gettext_noop("Throughput")),
    Metric("tx_bytes_per_second", gettext_noop("Transmit"), "B/s", "port", "sum", gettext_noop("Throughput")),
    Metric("temperature_celsius", gettext_noop("Temperature"), "°C", "device", "highest", gettext_noop("Temperature")),
    Metric("power_watts", gettext_noop("Power"), "W", "device", "sum", gettext_noop("Power")),
    Metric("utilisation_percent", gettext_noop("Utilisation"), "%", "device", "mean", gettext_noop("Utilisation")),
    Metric(
        "error_rate", gettext_noop("Errors"), "1/s", "port", "sum",
        gettext_noop("Error rate"), quantity="errors", suffix=RATE,
    ),
    Metric("errors", gettext_noop("Errors, total"), "", "port", "sum", gettext_noop("Errors, total")),
    Metric(
        "link_width_lanes", gettext_noop("Link width"), "lanes", "port", "lowest",
        gettext_noop("Link width"), groups=False,
    ),
    Metric(
        "link_speed_gbps", gettext_noop("Link speed"), "Gb/s", "port", "lowest",
        gettext_noop("Link speed"), groups=False,
    ),
    Metric("link_status", gettext_noop("Link"), "state", "port", "lowest", gettext_noop("Link"), groups=False),
    Metric("energy_kilowatt_hours", gettext_noop("Energy"), "kWh", "device", "sum", gettext_noop("Energy")),
    Metric("voltage_volts", gettext_noop("Voltage"), "V", "device", "mean", gettext_noop("Voltage"), groups=False),
    Metric("current_amperes", gettext_noop("Current"), "A", "device", "sum", gettext_noop("Current")),
    Metric("fan_rpm", gettext_noop("Fan speed"), "rpm", "device", "lowest", gettext_noop("Fan speed"), groups=False),
    Metric(
        "fan_percent", gettext_noop("Fan speed"), "%", "device", "lowest",
        gettext_noop("Fan speed, share"), groups=False,
    ),
)  # fmt: skip
METRICS: Final = {metric.name: metric for metric in _METRICS}
GROUP_KINDS: Final = frozenset({"drawer", "chassis", "host", "tenant"})


def metric_applies(metric: Metric, kind: str) -> bool:
    """Return whether a metric applies to a kind of subject ('port' has no temperature)."""
    return metric.per == "port" if kind == "port" else metric.groups or kind not in GROUP_KINDS


_COMBINATIONS: Final = {
    ("sum", "device"): gettext_noop("sum of {count} devices"),
    ("mean", "device"): gettext_noop("mean of {count} devices"),
    ("highest", "device"): gettext_noop("highest of {count} devices"),
    ("lowest", "device"): gettext_noop("lowest of {count} devices"),
    ("sum", "port"): gettext_noop("sum of {count} device-side ports"),
    ("lowest", "port"): gettext_noop("lowest of {count} device-side ports"),
    ("sum", "counter"): gettext_noop("sum of {count} error counters"),
}


def combination_words(metric: Metric, count: int) -> str:
    """Return the combination of `count` readings in words; '' for a single one."""
    if count < 2:
        return ""
    of = "counter" if metric.name in {"errors", "error_rate"} else metric.per
    return gettext(_COMBINATIONS[metric.combine, of]).format(count=count)


def _ignoring_nan(reduce: Callable[..., Any]) -> Callable[[Floats], Floats]:
    """Return a reduction that ignores NaN, and yields NaN where all values are."""

    def reduced(values: Floats) -> Floats:
        present = ~np.isnan(values)
        count = present.sum(axis=0)
        return np.where(count > 0, reduce(np.where(present, values, 0.0), count), np.nan)

    return reduced


_COMBINERS: Final[dict[str, Callable[[Floats], Any]]] = {
    "sum": _ignoring_nan(lambda values, _: values.sum(axis=0)),
    "mean": _ignoring_nan(lambda values, count: values.sum(axis=0) / np.maximum(count, 1)),
    "highest": lambda values: np.fmax.reduce(values, axis=0),
    "lowest": lambda values: np.fmin.reduce(values, axis=0),
}


def combine_rows(rule: str, rows: Sequence[Floats]) -> ValueRow:
    """Return several rows combined into one (f8) by a rule; NaNs are ignored, and yield NaN where all are."""
    values = np.array(rows, dtype=np.float64)
    one: ValueRow = values[0] if len(values) == 1 else np.asarray(_COMBINERS[rule](values), dtype=np.float64)
    return one


HOUR, DAY = 3600.0, 86400.0
# By name in query parameters: label, s.
RANGES: Final = {
    "15m": ("15 min", 900.0), "1h": ("1 h", HOUR), "6h": ("6 h", 6 * HOUR), "24h": ("24 h", DAY),
    "7d": (gettext_noop("7 d"), 7 * DAY), "30d": (gettext_noop("30 d"), 30 * DAY),
    "1y": (gettext_noop("a year"), 365 * DAY),
}  # fmt: skip
DEFAULT_RANGE: Final = "1h"
EARLIEST, LATEST = 946_684_800.0, 7_258_118_400.0  # 2000 to 2200, Unix s
MIN_RANGE_SECONDS: Final = 1.0
MAX_RANGE_SECONDS: Final = 10 * 366 * DAY
UNIT_SECONDS = {"s": 1.0, "m": 60.0, "h": HOUR, "d": DAY, "w": 7 * DAY, "y": 365 * DAY}
RELATIVE_TIME = re.compile(r"(?:now)?-(\d{1,9})([smhdwy])")
TIME_HINT = gettext_noop("Give a time such as 2026-03-01T12:00:00Z, -6h or now.")


@dataclass(frozen=True)
class TimeRange:
    """A half-open range, Unix s; `live` is whether it ends now and moves on."""

    since: float
    until: float
    live: bool = False

    @property
    def seconds(self) -> float:
        """Its length, s."""
        return self.until - self.since


def parse_time(text: str, *, now: float, field: str) -> float:
    """Return the Unix time of ISO 8601 (without an offset: UTC), Unix seconds, 'now' or '-6h'; raises Invalid."""
    text = text.strip()
    if text == "now":
        return now
    back = RELATIVE_TIME.fullmatch(text)
    found = now - float(back[1]) * UNIT_SECONDS[back[2]] if back else _parse_absolute(text, field)
    if not EARLIEST <= found <= LATEST:
        raise Invalid(_("'{field}' is not between the years 2000 and 2200.", field=field), errors={field: _(TIME_HINT)})
    return found


def _parse_absolute(text: str, field: str) -> float:
    try:
        if re.fullmatch(r"\d{9,11}(\.\d+)?", text):
            return float(text)
        # In a query string, the plus of an offset is decoded as a space.
        parsed = datetime.fromisoformat(re.sub(r" (\d\d:\d\d)$", r"+\1", text) if "T" in text else text)
        found = (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        unclear = _("This time comes twice or not at all, as the clocks change. Give an earlier or a later one.")
        sentence = unclear if text.endswith("]") else _("'{field}' is not a valid time.", field=field)
        raise Invalid(sentence, errors={field: _(TIME_HINT)}) from error
    return found if math.isfinite(found) else LATEST + 1


def range_between(since: str, until: str, *, now: float) -> TimeRange:
    """Return the range of two texts; the default end is now, the default length an hour. Raises Invalid."""
    end = parse_time(until, now=now, field="until") if until.strip() else now
    begin = parse_time(since, now=now, field="since") if since.strip() else end - HOUR
    if end - begin < MIN_RANGE_SECONDS:
        raise Invalid(
            _("The range has no length."), errors={"until": _("Give a time at least a second after 'since'.")}
        )
    if end - begin > MAX_RANGE_SECONDS:
        raise Invalid(_("The range is longer than ten years."), errors={"since": _("Give a later begin.")})
    return TimeRange(begin, end, live=until.strip() in {"", "now"})


def named_range(name: str, *, now: float) -> TimeRange:
    """Return the range of one of RANGES that ends now; raises Invalid."""
    if name not in RANGES:
        raise Invalid(_("There is no such range."), errors={"range": _("One of {choices}.", choices=", ".join(RANGES))})
    return TimeRange(now - RANGES[name][1], now, live=True)


def iso_utc(at: float, precision: str = "seconds") -> str:
    """Return a Unix time as ISO 8601 in UTC, to the second or another `timespec` of datetime.isoformat."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec=precision).replace("+00:00", "Z")


def step_label(seconds: float) -> str:
    """Return the width of a bucket for display: '10 s', '15 min', '6 h'."""
    for unit, size in (("d", DAY), ("h", HOUR), ("min", 60.0)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


MAX_SHOWN: Final = 16
DEFAULT_METRICS: Final = (
    "rx_bytes_per_second", "tx_bytes_per_second", "temperature_celsius", "power_watts", "utilisation_percent",
)  # fmt: skip
VARIABLES: Final = ("chassis", "host")  # kinds of subjects that are chosen on top of a dashboard
Layout = Literal["together", "apart"]


@dataclass(frozen=True)
class ChartPanel:
    """A chart: metrics with one title and unit, of some subjects."""

    title: str
    unit: str
    subjects: tuple[str, ...]
    metrics: tuple[str, ...]
    group: str = ""  # charts of a group share their axis of values


@dataclass(frozen=True)
class TelemetryView:
    """The content of the page. `range` is one of RANGES, '' where `since` and `until` apply."""

    subjects: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    range: str = DEFAULT_RANGE
    since: str = ""
    until: str = ""
    layout: Layout = "together"

    @classmethod
    def from_query(cls, text: str) -> TelemetryView:
        """Return the view of a query string; raises Invalid."""
        try:
            return cls.from_parameters(QueryDict(text))
        except Invalid as error:
            raise Invalid(error.sentence, errors={"query": error.sentence}) from error
        except Exception as error:
            # Too many fields, or invalid bytes.
            raise Invalid(
                _("This is not a valid view."), errors={"query": _("Copy it from the address of the page.")}
            ) from error

    @classmethod
    def from_parameters(cls, given: QueryDict) -> TelemetryView:
        """Return the view of query parameters; raises Invalid for unknown values."""
        subjects = tuple(parse_subjects(given.getlist("of")))
        if len(subjects) > MAX_SHOWN:
            raise Invalid(_("The page shows at most {most} things at a time. Leave some out.", most=MAX_SHOWN))
        metrics = tuple(name for name in METRICS if name in given.getlist("metric"))
        unknown = [name for name in given.getlist("metric") if name and name not in METRICS]
        if unknown:
            raise Invalid(_("There is no metric '{name}'.", name=unknown[0][:60]))
        since, until = given.get("since", "").strip(), given.get("until", "").strip()
        name = given.get("range", "")
        if name and name not in RANGES:
            raise Invalid(
                _("There is no range '{name}'. There are {choices}.", name=name[:20], choices=", ".join(RANGES))
            )
        layout: Layout = "apart" if given.get("charts") == "apart" else "together"
        if name or not (since or until):
            return cls(subjects, metrics, name or DEFAULT_RANGE, "", "", layout)
        found = cls(subjects, metrics, "", _normalized_time(since, "since"), _normalized_time(until, "until"), layout)
        found.span(LATEST - 1)
        return found

    def span(self, now: float) -> TimeRange:
        """Return the range that is shown; raises Invalid."""
        if self.range:
            return named_range(self.range, now=now)
        return range_between(self.since, self.until, now=now)

    def query(self, **changes: Any) -> str:
        """Return the query string of the page, with changes."""
        shown = replace(self, **changes) if changes else self
        when = [("range", shown.range)] if shown.range else [("since", shown.since), ("until", shown.until)]
        pairs = [
            *(("of", ref) for ref in shown.subjects),
            *(("metric", name) for name in shown.metrics),
            *((name, value) for name, value in when if value),
            *([("charts", "apart")] if shown.layout == "apart" else []),
        ]
        return urlencode(pairs).replace("%2F", "/").replace("%3A", ":")

    @property
    def variable(self) -> str:
        """The variable of a dashboard that it can follow: 'chassis' or 'host' if it shows one alone, else ''."""
        kind = self.subjects[0].partition("/")[0] if len(self.subjects) == 1 else ""
        return kind if kind in VARIABLES else ""

    def panels(self, found: Sequence[str]) -> list[ChartPanel]:
        """Return the charts of the found subjects: one a panel, or one a panel and subject."""
        refs = [ref for ref in self.subjects if ref in found]
        chosen = [METRICS[name] for name in self.metrics or DEFAULT_METRICS]
        own = tuple(ref for ref in refs if ref.startswith(f"{SERIES_KIND}/"))
        others = [ref for ref in refs if ref not in own]
        by_panel: dict[str, list[Metric]] = {}
        for metric in chosen:
            by_panel.setdefault(metric.panel, []).append(metric)
        panels: list[ChartPanel] = []
        for title, metrics in by_panel.items():
            fitting = [ref for ref in others if any(metric_applies(one, ref.partition("/")[0]) for one in metrics)]
            names, unit = tuple(one.name for one in metrics), metrics[0].unit
            if self.layout == "apart":
                panels += [ChartPanel(title, unit, (ref,), names, group=title) for ref in fitting]
            elif fitting:
                panels.append(ChartPanel(title, unit, tuple(fitting), names))
        return panels + [ChartPanel("", "", (ref,), ()) for ref in own]


def _normalized_time(text: str, field: str) -> str:
    """Return a time for a query string: relative times unchanged, others in UTC to the second."""
    if not text or text == "now" or text.startswith(("-", "now")):
        return text
    return iso_utc(parse_time(text, now=LATEST - 1, field=field))


MAX_SUBJECTS: Final = 64
MAX_REF_LENGTH: Final = 400
KINDS: Final = (
    gettext_noop("device"), gettext_noop("slot"), gettext_noop("port"), gettext_noop("drawer"),
    gettext_noop("chassis"), gettext_noop("host"), gettext_noop("tenant"),
)  # fmt: skip
SERIES_KIND: Final = "series"
SUBJECT_HINT: Final = gettext_noop("Name it as in device/3, slot/3, port/5, drawer/1, chassis/1, host/2 or tenant/4.")


def parse_subjects(texts: Iterable[str]) -> list[str]:
    """Return the references of subjects, each once; raises Invalid for an invalid one, and for too many."""
    refs = list(dict.fromkeys(text.strip() for text in texts if text.strip()))
    if len(refs) > MAX_SUBJECTS:
        raise Invalid(
            _("These are too many subjects."),
            errors={"subjects": _("Request at most {most} at a time.", most=MAX_SUBJECTS)},
        )
    for ref in refs:
        kind, _slash, rest = ref.partition("/")
        chassis, _slash, key = rest.partition("/")
        is_valid = parse_id(rest) > 0 if kind in KINDS else kind == SERIES_KIND and parse_id(chassis) > 0 and key
        if not is_valid or len(ref) > MAX_REF_LENGTH or "\0" in ref:
            raise Invalid(_("'{ref}' is not a valid subject.", ref=ref[:60]), errors={"subjects": _(SUBJECT_HINT)})
    return refs
