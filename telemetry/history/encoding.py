"""Encodes histories as JSON and CSV, and raw readings as CSV."""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from threading import Lock
from typing import Any, Final

import numpy as np
import orjson
from django.utils.translation import gettext
from numpy.typing import NDArray

from accounts.models import User
from core.downloads import csv_cell, csv_table
from core.errors import Unavailable
from core.language import _
from telemetry.history.rules import Metric, TimeRange, iso_utc
from telemetry.history.selectors import HistoryGap, HistoryLine, MetricHistory, SeriesPart, plan_lines
from telemetry.history.subjects import visible_subjects
from telemetry.store.selectors import RawReadings, read_raw

DIGITS: Final = 7  # significant: the precision of f32 readings
EXACT_INTEGER_LIMIT: Final = 2.0**53  # up to here, a float represents every integer
POWERS: Final = 10.0 ** np.arange(301)
STATS: Final = {"mean": ("mean",), "band": ("mean", "low", "high")}


def round_significant(values: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Return values rounded to seven significant digits; integers (totals), NaN and infinities stay exact."""
    exact = np.asarray(values, np.float64)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        size = np.floor(np.log10(np.abs(exact)))
        places = np.where(np.isfinite(size), DIGITS - 1 - size, 0.0).clip(-300, 300).astype(np.intp)
        # By integer powers of ten only, never by 0.001: so the result is the nearest float to its decimal form. One of
        # the two is 1.
        up, down = POWERS[places.clip(0)], POWERS[(-places).clip(0)]
        found = np.rint(exact * up / down) / up * down
        as_is = ~np.isfinite(found) | ((exact == np.rint(exact)) & (np.abs(exact) <= EXACT_INTEGER_LIMIT))
    return np.where(as_is, exact, found)


JsonRow = NDArray[np.float64] | NDArray[np.int64] | orjson.Fragment
ABSENT: Final = -(2.0**63)  # stands for no value among integers, which are much less


def json_numbers(values: NDArray[np.float64]) -> list[JsonRow]:
    """Return rows of numbers for `orjson`, to which NaN is null; a row of integers without fractions."""
    missing = np.isnan(values)
    whole = (missing | ((values == np.rint(values)) & (np.abs(values) <= EXACT_INTEGER_LIMIT))).all(axis=1)
    integers = np.where(missing | ~whole[:, None], ABSENT, values).astype(np.int64)
    found: list[JsonRow] = [(integers if is_whole else values)[place] for place, is_whole in enumerate(whole.tolist())]
    for place in np.flatnonzero(whole & missing.any(axis=1)).tolist():
        # As lists of Python's numbers they would take four times as long.
        text = orjson.dumps(integers[place], option=orjson.OPT_SERIALIZE_NUMPY)
        found[place] = orjson.Fragment(text.replace(b"%d" % ABSENT, b"null"))
    return found


def history_json(history: MetricHistory, stats: Sequence[str]) -> bytes:
    """Return a history as JSON; NaN is null. The shape is declared in telemetry.history.api."""
    return orjson.dumps(
        {
            "since": history.span.since,
            "until": history.span.until,
            "step": history.step,
            "at": history.at,
            "series": _lines_json(history.lines, stats),
            "gaps": worded_gaps(history.gaps),
            "left_out": history.left_out,
        },
        option=orjson.OPT_SERIALIZE_NUMPY,
    )


def worded_gaps(gaps: Sequence[HistoryGap]) -> list[HistoryGap]:
    """Return gaps with their reasons in the reader's language, where these are sentences of this site."""
    return [replace(gap, reason=gettext(gap.reason)) for gap in gaps]


def _lines_json(made: Sequence[HistoryLine], stats: Sequence[str]) -> list[dict[str, Any]]:
    # Round all lines together: line by line would take longer than reading them.
    rows = {name: round_significant(np.array([getattr(line, name) for line in made])) for name in stats} if made else {}
    numbers = {name: json_numbers(values) for name, values in rows.items()}
    captions = {text: gettext(text) for text in {line.label for line in made if not line.subject.key}}
    return [
        {
            "subject": line.subject.ref,
            "metric": line.metric,
            "name": line.subject.name,
            "place": line.subject.place,
            "label": line.label if line.subject.key else captions[line.label],
            "unit": line.unit,
            "made_of": line.made_of,
            "combine": line.combine,
            "parts": [
                {"chassis_id": one.chassis, "key": one.key} for one in line.parts if one.spans[-1][1] == math.inf
            ],
            **{name: numbers[name][place] for name in stats},
        }
        for place, line in enumerate(made)
    ]


def history_csv(history: MetricHistory, stats: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a table: a row for each bucket, its start first; missing values are empty."""
    columns = [(line, name) for line in history.lines for name in stats]
    yield from csv_table(
        [csv_cell(name) for name in ("time", *(f"{line.title}, {stat}" for line, stat in columns))], ()
    )
    values = [round_significant(getattr(line, name)) for line, name in columns]
    for place, at in enumerate(history.at.tolist()):
        # Only numbers and times, which need no escaping against formulas.
        yield ",".join([iso_utc(at), *(number_text(column[place]) for column in values)]) + "\r\n"


def number_text(value: float) -> str:
    """Return a number for a table: integers without a fraction, '' for NaN."""
    number = float(value)
    if math.isnan(number):
        return ""
    return str(int(number)) if number.is_integer() and abs(number) <= EXACT_INTEGER_LIMIT else repr(number)


# Limit of one person in one process: each takes minutes of CPU time that live pages need, too.
MAX_DOWNLOADS = 4
_downloads: Counter[int] = Counter()
_downloads_lock = Lock()


def raw_csv(person: User, refs: Sequence[str], metrics: Sequence[Metric], span: TimeRange) -> Iterator[str]:
    """Return the lines of a table with a row for each reading, and a column for each series of the metrics.

    Readings of several chassis are separate rows, in order of time. Errors are raised before the first line:
    Unavailable where the person has MAX_DOWNLOADS such downloads in progress.
    """
    if _downloads[person.pk] >= MAX_DOWNLOADS:
        sentence = _(
            "You have {most} downloads of readings in progress. Wait until one is complete.", most=MAX_DOWNLOADS
        )
        raise Unavailable(sentence)
    lines, _left_out = plan_lines(visible_subjects(person, refs, span), metrics, span)
    columns = [(line, part) for line in lines for part in line.parts]
    names = (f"{line.title}, {part.key}" if len(line.parts) > 1 else line.title for line, part in columns)
    by_chassis: dict[int, list[tuple[int, SeriesPart]]] = defaultdict(list)
    for place, (_line, part) in enumerate(columns):
        by_chassis[part.chassis].append((place, part))
    rows = [_rows(chassis, parts, len(columns), span) for chassis, parts in by_chassis.items()]
    heading = csv_table([csv_cell(name) for name in ("time", *names)], ())
    return _track_download(person.pk, chain(heading, (text for _, text in heapq.merge(*rows))))


def _track_download(person: int, lines: Iterator[str]) -> Iterator[str]:
    """Yield lines, counting the download as in progress until its end or its cancellation."""
    with _downloads_lock:
        _downloads[person] += 1
    try:
        yield from lines
    finally:
        with _downloads_lock:
            _downloads[person] -= 1
            if not _downloads[person]:
                del _downloads[person]


def _rows(
    chassis: int, parts: list[tuple[int, SeriesPart]], width: int, span: TimeRange
) -> Iterator[tuple[float, str]]:
    keys = list(dict.fromkeys(part.key for _, part in parts))
    for readings in read_raw(chassis, keys, since=span.since, until=span.until):
        columns = _columns(readings, parts)
        present = ~np.all(np.isnan([values for _, values in columns]), axis=0) if columns else np.zeros(0, dtype=bool)
        for row in np.flatnonzero(present).tolist():
            cells = [""] * width
            for place, values in columns:
                cells[place] = number_text(values[row])
            at = float(readings.at[row])
            yield at, ",".join([iso_utc(at, "milliseconds"), *cells]) + "\r\n"


def _columns(readings: RawReadings, parts: list[tuple[int, SeriesPart]]) -> list[tuple[int, NDArray[np.float64]]]:
    found = {entry["key"]: readings.values[row] for row, entry in enumerate(readings.series)}
    columns = []
    for place, part in parts:
        if part.key in found:
            (values,) = part.visible([found[part.key]], readings.at)
            columns.append((place, np.asarray(values, dtype=np.float64)))
    return columns
