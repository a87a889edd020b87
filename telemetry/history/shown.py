"""A view of the telemetry page as its address has it: what, which metrics, which range, one chart or many. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from django.http import QueryDict
from django.utils.http import urlencode

from falconweb.errors import Invalid
from telemetry.history.metrics import METRICS, Metric, is_offered
from telemetry.history.ranges import LATEST, RANGES, USUAL, Span, iso, moment, span_between, span_named
from telemetry.history.subjects import SERIES, subjects_named

MOST_SHOWN: Final = 16
USUAL_METRICS: Final = (
    "rx_bytes_per_second", "tx_bytes_per_second", "temperature_celsius", "power_watts", "utilisation_percent",
)  # fmt: skip
Layout = Literal["together", "apart"]


@dataclass(frozen=True)
class Panel:
    """A chart: the metrics of one title and unit, of these subjects."""

    title: str
    unit: str
    subjects: tuple[str, ...]
    metrics: tuple[str, ...]
    group: str = ""  # charts of a group share their axis of values


@dataclass(frozen=True)
class Shown:
    """What the page shows. `range` is one of RANGES, '' where `since` and `until` say when."""

    subjects: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    range: str = USUAL
    since: str = ""
    until: str = ""
    layout: Layout = "together"

    @classmethod
    def from_query(cls, text: str) -> Shown:
        """Return the view of what stands behind the '?' of an address; raises Invalid."""
        try:
            return cls.from_parameters(QueryDict(text))
        except Invalid as error:
            raise Invalid(error.sentence, errors={"query": error.sentence}) from error
        except Exception as error:
            # Too many fields, or bytes that are no text.
            raise Invalid("This is no view.", errors={"query": "Copy it from the address of the page."}) from error

    @classmethod
    def from_parameters(cls, given: QueryDict) -> Shown:
        """Return the view of parameters; raises Invalid for what means nothing."""
        subjects = tuple(subjects_named(given.getlist("of")))
        if len(subjects) > MOST_SHOWN:
            raise Invalid(f"The page shows at most {MOST_SHOWN} things at a time. Leave some out.")
        metrics = tuple(name for name in METRICS if name in given.getlist("metric"))
        unknown = [name for name in given.getlist("metric") if name and name not in METRICS]
        if unknown:
            raise Invalid(f"There is no metric '{unknown[0][:60]}'.")
        since, until = given.get("since", "").strip(), given.get("until", "").strip()
        name = given.get("range", "")
        if name and name not in RANGES:
            raise Invalid(f"There is no range '{name[:20]}'. There are {', '.join(RANGES)}.")
        layout: Layout = "apart" if given.get("charts") == "apart" else "together"
        if name or not (since or until):
            return cls(subjects, metrics, name or USUAL, "", "", layout)
        found = cls(subjects, metrics, "", _kept(since, "since"), _kept(until, "until"), layout)
        found.span(LATEST - 1)
        return found

    def showing(self, subjects: tuple[str, ...]) -> Shown:
        """Return the view of other subjects."""
        return replace(self, subjects=subjects)

    def span(self, now: float) -> Span:
        """Return the range that is shown; raises Invalid."""
        if self.range:
            return span_named(self.range, now=now)
        return span_between(self.since, self.until, now=now)

    def query(self, **changes: Any) -> str:
        """Return what stands behind the '?' of the page's address, with changes."""
        shown = replace(self, **changes) if changes else self
        when = [("range", shown.range)] if shown.range else [("since", shown.since), ("until", shown.until)]
        pairs = [
            *(("of", ref) for ref in shown.subjects),
            *(("metric", name) for name in shown.metrics),
            *((name, value) for name, value in when if value),
            *([("charts", "apart")] if shown.layout == "apart" else []),
        ]
        return urlencode(pairs).replace("%2F", "/").replace("%3A", ":")

    def panels(self, found: Sequence[str]) -> list[Panel]:
        """Return the charts of the subjects that were found: one a kind of measurement, or one a subject as well."""
        refs = [ref for ref in self.subjects if ref in found]
        chosen = [METRICS[name] for name in self.metrics or USUAL_METRICS]
        own = tuple(ref for ref in refs if ref.startswith(f"{SERIES}/"))
        others = [ref for ref in refs if ref not in own]
        panels: list[Panel] = []
        for title, metrics in _by_panel(chosen).items():
            fitting = [ref for ref in others if any(is_offered(one, ref.partition("/")[0]) for one in metrics)]
            names, unit = tuple(one.name for one in metrics), metrics[0].unit
            if self.layout == "apart":
                panels += [Panel(title, unit, (ref,), names, group=title) for ref in fitting]
            elif fitting:
                panels.append(Panel(title, unit, tuple(fitting), names))
        return panels + [Panel("", "", (ref,), ()) for ref in own]


def _by_panel(metrics: Sequence[Metric]) -> dict[str, list[Metric]]:
    found: dict[str, list[Metric]] = {}
    for metric in metrics:
        found.setdefault(metric.panel, []).append(metric)
    return found


def _kept(text: str, field: str) -> str:
    """Return a time as an address keeps it: what is relative stays so, the rest is UTC to the second."""
    if not text or text == "now" or text.startswith(("-", "now")):
        return text
    return iso(moment(text, now=LATEST - 1, field=field))
