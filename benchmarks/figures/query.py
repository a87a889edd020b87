"""The query of a figure page: the runs and the options. A URL shows the same to everybody with the same visibility."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, time
from typing import Final
from urllib.parse import urlencode

from django.http import QueryDict
from django.utils.dateparse import parse_date, parse_datetime

from benchmarks.figures.catalogue import FigureOptions, validate_options
from benchmarks.runs.models import Run
from benchmarks.runs.selectors import EXECUTOR_LABELS, STATE_GROUPS
from core.errors import Invalid
from core.text import parse_id

MAX_RUNS: Final = 200
RUN_STATES: Final = (*Run.State.values, *STATE_GROUPS)
MAX_VALUE_LENGTH: Final = 200  # characters of a value
LIST_PARAMETERS: Final = ("q", "state", "executor", "person")  # that only the list of runs has fields for
SELECTION_PARAMETERS: Final = (*LIST_PARAMETERS, "workload", "provenance", "host", "sweep", "run", "since")
OPTION_PARAMETERS: Final = ("baseline", "time", "reading", "with")
PARAMETERS: Final = (*SELECTION_PARAMETERS, *OPTION_PARAMETERS)
# Optional additions to runs, with their labels.
OVERLAYS: Final = {"predicted": "Predictions of the same", "published": "Published figures"}


@dataclass(frozen=True, kw_only=True)
class FigureQuery:
    """Runs by ids or sweeps, else all that match; several values of one member are alternatives.

    Without a `state`, completed runs.
    """

    runs: tuple[uuid.UUID, ...] = ()
    sweeps: tuple[uuid.UUID, ...] = ()
    workloads: tuple[str, ...] = ()
    provenances: tuple[str, ...] = ()
    hosts: tuple[int, ...] = ()
    since: datetime | None = None
    words: str = ""
    state: str = ""
    executor: str = ""
    person: str = ""
    besides: tuple[str, ...] = ()
    options: FigureOptions = field(default_factory=FigureOptions)

    @property
    def is_filtered(self) -> bool:
        """Whether it restricts the runs."""
        return self != replace(FigureQuery(), besides=self.besides, options=self.options)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The names and values of its query parameters."""
        usual, options = FigureOptions(), self.options
        given: dict[str, Iterable[object]] = {
            "q": [self.words],
            "state": [self.state],
            "executor": [self.executor],
            "person": [self.person],
            "run": self.runs,
            "sweep": self.sweeps,
            "workload": self.workloads,
            "provenance": self.provenances,
            "host": self.hosts,
            "since": [self.since_text],
            "baseline": [options.baseline],
            "time": [options.time] if options.time != usual.time else [],
            "reading": [options.reading] if options.reading != usual.reading else [],
            "with": self.besides,
        }
        return [(name, str(value)) for name, values in given.items() for value in values if value]

    def query(self, *, but: Collection[str] = ()) -> str:
        """Return it as query parameters, without those in `but`."""
        return urlencode([(name, value) for name, value in self.pairs if name not in but])

    def first(self, run: str) -> str:
        """Return it as query parameters with one of its runs first."""
        return replace(self, runs=tuple(sorted(self.runs, key=lambda one: str(one) != run))).query()

    @property
    def since_text(self) -> str:
        """The start as a query parameter, UTC."""
        if self.since is None:
            return ""
        is_day = self.since.time() == time()
        return self.since.date().isoformat() if is_day else self.since.strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_figure_query(given: QueryDict) -> FigureQuery:
    """Parse query parameters; raises Invalid with the wrong parameters."""
    errors: dict[str, str] = {}
    values = {name: _distinct_values(given, name) for name in PARAMETERS}
    for name, texts in values.items():
        if len(texts) > MAX_RUNS or any(len(text) > MAX_VALUE_LENGTH or "\0" in text for text in texts):
            errors[name] = f"Give {MAX_RUNS} at most, of {MAX_VALUE_LENGTH} characters at most, and no NUL."
            values[name] = []
    one = {name: texts[-1] if texts else "" for name, texts in values.items()}
    options = FigureOptions(
        baseline=one["baseline"],
        time=one["time"] or FigureOptions().time,
        reading=one["reading"] or FigureOptions().reading,
        published="published" in values["with"],
    )
    try:
        validate_options(options)
    except Invalid as error:
        errors |= error.details["errors"]
    found = FigureQuery(
        runs=_parse_ids(values["run"], "run", errors),
        sweeps=_parse_ids(values["sweep"], "sweep", errors),
        workloads=tuple(values["workload"]),
        provenances=_parse_choices(values["provenance"], "provenance", Run.Provenance.values, errors),
        hosts=_parse_numbers(values["host"], "host", errors),
        since=_parse_moment(values["since"], errors),
        words=one["q"],
        state=next(iter(_parse_choices(values["state"][-1:], "state", RUN_STATES, errors)), ""),
        executor=next(iter(_parse_choices(values["executor"][-1:], "executor", list(EXECUTOR_LABELS), errors)), ""),
        person=one["person"],
        besides=_parse_choices(values["with"], "with", OVERLAYS, errors),
        options=options,
    )
    if errors:
        raise Invalid(" ".join(dict.fromkeys(errors.values())), errors=errors)
    return found


def _distinct_values(given: QueryDict, name: str) -> list[str]:
    return list(dict.fromkeys(text.strip() for text in given.getlist(name) if text.strip()))


def _parse_ids(texts: Collection[str], name: str, errors: dict[str, str]) -> tuple[uuid.UUID, ...]:
    try:
        return tuple(dict.fromkeys(uuid.UUID(text) for text in texts))
    except ValueError:
        errors[name] = f"Give the id of a {name}, as its address has it."
        return ()


def _parse_numbers(texts: Collection[str], name: str, errors: dict[str, str]) -> tuple[int, ...]:
    numbers = tuple(parse_id(text) for text in texts)
    if 0 in numbers:
        errors[name] = f"Give the id of a {name}, a whole number."
        return ()
    return numbers


def _parse_choices(
    texts: Collection[str], name: str, known: Collection[str], errors: dict[str, str]
) -> tuple[str, ...]:
    if any(text not in known for text in texts):
        errors[name] = f"One of {', '.join(known)}."
        return ()
    return tuple(texts)


def _parse_moment(texts: list[str], errors: dict[str, str]) -> datetime | None:
    if not texts:
        return None
    try:
        moment = parse_datetime(texts[-1])
        day = parse_date(texts[-1]) if moment is None else None
    except ValueError:
        moment = day = None
    if day is not None:
        moment = datetime.combine(day, time(), UTC)
    if moment is None:
        errors["since"] = "Give a day such as 2026-11-01, or a moment such as 2026-11-01T10:00Z."
        return None
    try:
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except OverflowError:
        errors["since"] = "Give a moment within the calendar."
        return None
