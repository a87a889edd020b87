"""What an address asks for: which runs, and how they are drawn. One address shows the same to all who may see it."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, time
from typing import Final

from django.http import QueryDict
from django.utils.dateparse import parse_date, parse_datetime

from benchmarks.figures.catalogue import Options, checked
from benchmarks.runs.models import Run
from benchmarks.runs.selectors import EXECUTORS, GROUPS
from fabric.numbers import whole_number
from falconweb.errors import Invalid

MOST_RUNS: Final = 200
STATES: Final = (*Run.State.values, *GROUPS)
LONGEST: Final = 200  # characters of a value
# The first of these are also what the list of runs is filtered by.
SELECTING: Final = ("q", "workload", "provenance", "state", "host", "executor", "person", "sweep", "run", "since")
DRAWING: Final = ("baseline", "time", "reading", "with")
PARAMETERS: Final = (*SELECTING, *DRAWING)
# What may stand beside runs, and how it is called.
BESIDES: Final = {"predicted": "Predictions of the same", "published": "Published figures"}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Runs by their ids or their sweeps, else all that fit; of several values of one member any fits.

    Without a `state` they are those that completed.
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
    options: Options = field(default_factory=Options)

    @property
    def is_filtered(self) -> bool:
        """Whether it asks for less than all runs."""
        return self != replace(Asked(), besides=self.besides, options=self.options)

    def query(self, *, but: Collection[str] = (), **others: str) -> str:
        """Return it as the parameters of an address, without those in `but`, with `others` in their place."""
        made = QueryDict(mutable=True)
        given: dict[str, list[str]] = {
            "q": [self.words] if self.words else [],
            "state": [self.state] if self.state else [],
            "executor": [self.executor] if self.executor else [],
            "person": [self.person] if self.person else [],
            "run": [str(one) for one in self.runs],
            "sweep": [str(one) for one in self.sweeps],
            "workload": list(self.workloads),
            "provenance": list(self.provenances),
            "host": [str(one) for one in self.hosts],
            "since": [self.since_text] if self.since else [],
            "baseline": [self.options.baseline] if self.options.baseline else [],
            "time": [self.options.time] if self.options.time != Options().time else [],
            "reading": [self.options.reading] if self.options.reading != Options().reading else [],
            "with": list(self.besides),
        }
        for name, values in given.items():
            if name not in but and name not in others and values:
                made.setlist(name, values)
        for name, value in others.items():
            if value:
                made[name] = value
        return made.urlencode()

    def first(self, run: str) -> str:
        """Return it as the parameters of an address with one of its runs before the others."""
        return replace(self, runs=tuple(sorted(self.runs, key=lambda one: str(one) != run))).query()

    @property
    def since_text(self) -> str:
        """The begin as an address has it, UTC."""
        if self.since is None:
            return ""
        is_day = self.since.time() == time()
        return self.since.date().isoformat() if is_day else self.since.strftime("%Y-%m-%dT%H:%M:%SZ")


def asked_of(given: QueryDict) -> Asked:
    """Read an address; raises Invalid with the parameters that are wrong."""
    errors: dict[str, str] = {}
    values = {name: _values(given, name) for name in PARAMETERS}
    for name, texts in values.items():
        if len(texts) > MOST_RUNS or any(len(text) > LONGEST or "\0" in text for text in texts):
            errors[name] = f"Give {MOST_RUNS} at most, of {LONGEST} characters at most, and no NUL."
            values[name] = []
    one = {name: texts[-1] if texts else "" for name, texts in values.items()}
    options = Options(
        baseline=one["baseline"],
        time=one["time"] or Options().time,
        reading=one["reading"] or Options().reading,
        published="published" in values["with"],
    )
    try:
        checked(options)
    except Invalid as error:
        errors |= error.details["errors"]
    found = Asked(
        runs=_ids(values["run"], "run", errors),
        sweeps=_ids(values["sweep"], "sweep", errors),
        workloads=tuple(values["workload"]),
        provenances=_choices(values["provenance"], "provenance", Run.Provenance.values, errors),
        hosts=_numbers(values["host"], "host", errors),
        since=_moment(values["since"], errors),
        words=one["q"],
        state=next(iter(_choices(values["state"][-1:], "state", STATES, errors)), ""),
        executor=next(iter(_choices(values["executor"][-1:], "executor", list(EXECUTORS), errors)), ""),
        person=one["person"],
        besides=_choices(values["with"], "with", BESIDES, errors),
        options=options,
    )
    if errors:
        raise Invalid(" ".join(dict.fromkeys(errors.values())), errors=errors)
    return found


def _values(given: QueryDict, name: str) -> list[str]:
    return list(dict.fromkeys(text.strip() for text in given.getlist(name) if text.strip()))


def _ids(texts: Collection[str], name: str, errors: dict[str, str]) -> tuple[uuid.UUID, ...]:
    try:
        return tuple(dict.fromkeys(uuid.UUID(text) for text in texts))
    except ValueError:
        errors[name] = f"Give the id of a {name}, as its address has it."
        return ()


def _numbers(texts: Collection[str], name: str, errors: dict[str, str]) -> tuple[int, ...]:
    numbers = tuple(whole_number(text) for text in texts)
    if 0 in numbers:
        errors[name] = f"Give the id of a {name}, a whole number."
        return ()
    return numbers


def _choices(texts: Collection[str], name: str, known: Collection[str], errors: dict[str, str]) -> tuple[str, ...]:
    if any(text not in known for text in texts):
        errors[name] = f"One of {', '.join(known)}."
        return ()
    return tuple(texts)


def _moment(texts: list[str], errors: dict[str, str]) -> datetime | None:
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
