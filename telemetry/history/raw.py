"""Every reading of a range as a table, portion by portion: a day takes no more memory than some minutes."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from accounts import sheets
from accounts.models import User
from falconweb.errors import Unavailable
from telemetry.history.encoding import shown
from telemetry.history.metrics import Metric
from telemetry.history.ranges import Span
from telemetry.history.selectors import Line, Part, lines_of
from telemetry.history.subjects import subjects_seen
from telemetry.store.reading import Readings, read_raw

Timed = tuple[float, str]

# Of one person in one process: each is minutes of work, which live pages need, too.
MOST_AT_ONCE = 4
_on_the_way: Counter[int] = Counter()
_changing = Lock()


def raw_lines(person: User, refs: Sequence[str], metrics: Sequence[Metric], span: Span) -> Iterator[str]:
    """Return the lines of a table with a row a reading, and a column for each series that the metrics are made of.

    Readings of several chassis are rows of their own, in order of time. What is wrong is raised before the first line:
    Unavailable where the person has as many such tables on the way as one may.
    """
    if _on_the_way[person.pk] >= MOST_AT_ONCE:
        raise Unavailable(f"{MOST_AT_ONCE} tables of readings are on the way to you. Wait until one is there.")
    lines, _ = lines_of(subjects_seen(person, refs, span), metrics, span)
    columns = [(line, part) for line in lines for part in line.parts]
    head = ["time", *(_name(line, part) for line, part in columns)]
    by_chassis: dict[int, list[tuple[int, Part]]] = defaultdict(list)
    for place, (_, part) in enumerate(columns):
        by_chassis[part.chassis].append((place, part))
    rows = [_rows(chassis, parts, len(columns), span) for chassis, parts in by_chassis.items()]
    heading = sheets.lines([sheets.safe(name) for name in head], ())
    return _counted(person.pk, chain(heading, (text for _, text in heapq.merge(*rows))))


def _counted(person: int, lines: Iterator[str]) -> Iterator[str]:
    """Yield lines; from the first to the last, or until nobody takes them any more, they count as on the way."""
    with _changing:
        _on_the_way[person] += 1
    try:
        yield from lines
    finally:
        with _changing:
            _on_the_way[person] -= 1
            if not _on_the_way[person]:
                del _on_the_way[person]


def _name(line: Line, part: Part) -> str:
    unit = f" ({line.unit})" if line.unit else ""
    which = f", {part.key}" if len(line.parts) > 1 else ""
    return f"{line.subject.full_name}: {line.label}{unit}{which}"


def _rows(chassis: int, parts: list[tuple[int, Part]], width: int, span: Span) -> Iterator[Timed]:
    keys = list(dict.fromkeys(part.key for _, part in parts))
    for readings in read_raw(chassis, keys, since=span.since, until=span.until):
        columns = _columns(readings, parts)
        here = ~np.all(np.isnan([values for _, values in columns]), axis=0) if columns else np.zeros(0, dtype=bool)
        for row in np.flatnonzero(here).tolist():
            cells = [""] * width
            for place, values in columns:
                cells[place] = shown(values[row])
            at = float(readings.at[row])
            yield at, ",".join([_moment(at), *cells]) + "\r\n"


def _columns(readings: Readings, parts: list[tuple[int, Part]]) -> list[tuple[int, NDArray[np.float64]]]:
    found = {entry["key"]: readings.values[row] for row, entry in enumerate(readings.series)}
    columns = []
    for place, part in parts:
        if part.key not in found:
            continue
        values = np.asarray(part.own(found[part.key], readings.at), dtype=np.float64)
        counts = part.counts_in(readings.at, 0.0)
        if counts is not None:
            values = np.where(counts, values, np.nan)
        columns.append((place, values))
    return columns


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
