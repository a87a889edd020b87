"""What a host tells of a run becomes series, log, phase and results: each event once, in order."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final

import msgspec
import numpy as np

from benchmarks.runs.log import log_append
from benchmarks.runs.models import Run
from benchmarks.runs.series import Column, series_append_all
from benchmarks.runs.summary import PHASE
from hostwire.training import READINGS, Began, Event, News, Phase, Reading, Result, Steps, Trouble

LONGEST_KEY: Final = 200
LONGEST_SOURCE: Final = 40
MOST_SERIES: Final = 5000  # of a run; a record of more could not be imported anywhere
LARGEST_RESULT: Final = 2**20  # bytes of JSON: it is read with every list that the run is in
TIMED: Final = "timed"
LARGEST_READING: Final = 1e30  # whatever the unit: what is beyond is no reading, and sums of it are no numbers
LONGEST_STEP: Final = 1e9  # s


class Gathered:
    """Values of one series while they are gathered; `about` is unit, source and interval."""

    def __init__(self, unit: str, source: str, interval: float) -> None:
        self.about = (unit, source, interval)
        self.at: list[float] = []
        self.values: list[float] = []


def news_keep(run: Run, news: News) -> dict[str, Any]:
    """Keep what is new, in the caller's transaction; returns the fields of the run that it changes.

    What was told before (a host that answers twice) is left out by its number.
    """
    changes: dict[str, Any] = {}
    columns: dict[str, Gathered] = {}
    skipped = max(0, run.next_event - news.first_event)
    events = news.events[skipped:]
    for event in events:
        _note(run, event, columns, changes)
    if columns and len(columns) + run.series.count() > MOST_SERIES:
        columns = _known_first(run, columns)
    series_append_all(run, {key: Column(*one.about, one.at, one.values) for key, one in columns.items()})
    if news.first_byte >= run.next_byte:
        log_append(run, run.next_byte, news.log)
    changes["next_event"] = max(run.next_event, news.first_event + len(news.events))
    changes["next_byte"] = max(run.next_byte, news.next_byte)
    return changes


def _known_first(run: Run, columns: dict[str, Gathered]) -> dict[str, Gathered]:
    """Return the columns of series that there are, and as many new ones as a run may have besides; the rest is left."""
    known = set(run.series.values_list("key", flat=True))
    new = [key for key in columns if key not in known][: max(0, MOST_SERIES - len(known))]
    return {key: column for key, column in columns.items() if key in known or key in new}


def _note(run: Run, event: Event, columns: dict[str, Gathered], changes: dict[str, Any]) -> None:
    match event:
        case Began():
            changes["software"] = msgspec.to_builtins(event.software)
        case Phase():
            changes["phase"] = event.name[:20]
            _add(columns, f"{PHASE}{event.name}", "s", [event.at], [event.at])
        case Steps():
            seconds = np.clip(event.seconds, 0.0, LONGEST_STEP)
            ends = event.at - np.append(np.cumsum(seconds[::-1])[::-1][1:], 0.0)
            _add(columns, f"steps/{event.phase}/seconds", "s", ends.tolist(), event.seconds)
            if event.loss:
                loss = [float("nan") if one is None else one for one in event.loss]
                _add(columns, f"steps/{event.phase}/loss", "", ends.tolist()[: len(loss)], loss)
            if event.phase == TIMED:
                changes["steps_done"] = max(changes.get("steps_done", run.steps_done), event.first + len(event.seconds))
        case Reading():
            for name, value in event.values.items():
                unit = READINGS.get(name.rpartition("/")[2], ("", ""))[0]
                source = event.source[:LONGEST_SOURCE]
                _add(columns, name, unit, [event.at], [value], source=source, interval=event.interval)
        case Result():
            kept = changes.get("results", run.results)
            results = {
                **kept,
                "tables": {**kept.get("tables", {}), **event.values},
                "units": {**kept.get("units", {}), **event.units},
            }
            if len(msgspec.json.encode(results)) <= LARGEST_RESULT:
                changes["results"] = results
        case Trouble():
            # The first is the cause; what comes after follows from it.
            if not run.trouble and "trouble" not in changes:
                changes["trouble"], changes["error"] = event.what[:20], event.sentence


def _add(
    columns: dict[str, Gathered],
    key: str,
    unit: str,
    at: Iterable[float],
    values: Iterable[float],
    *,
    source: str = "",
    interval: float = 0.0,
) -> None:
    column = columns.setdefault(key[:LONGEST_KEY], Gathered(unit, source, interval))
    column.at += at
    column.values += [value if abs(value) <= LARGEST_READING else math.nan for value in values]
