"""Runs as lines of records: streamed, so that a run of any length is never held as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np

from benchmarks.records.identity import STORED, Identity
from benchmarks.records.shapes import (
    CHARACTERS_A_LINE,
    VALUES_A_LINE,
    EndLine,
    Line,
    LogLine,
    RunLine,
    SeriesLine,
)
from benchmarks.runs.models import Chunk, LogPart, Run, Series

CHUNKS_AT_ONCE: Final = 64
SUMMARISED: Final = "summarised"  # of a run's source: its results were made here, of the samples of its record


def record_of(run: Run) -> Iterator[Line]:
    """Yield the record of a run that has ended: its header, series by key, log, and end."""
    count = 1
    name = str(run.pk)
    yield header_of(run)
    for line in samples_of(run):
        count += 1
        yield line
    for text_line in _log(run, name):
        count += 1
        yield text_line
    yield EndLine(run=name, lines=count)


def record_text(run: Run) -> Iterator[str]:
    """Yield the lines of a run's record as JSON."""
    for line in record_of(run):
        yield f"{msgspec.json.encode(line).decode()}\n"


def header_of(run: Run) -> RunLine:
    """Return a run without its samples."""
    return RunLine(
        id=str(run.pk),
        title=run.title,
        workload=run.workload,
        preset=run.preset,
        provenance=run.provenance,  # type: ignore[arg-type]  # the choices are the same words
        executor=run.executor,
        state=run.state,  # type: ignore[arg-type]  # it has ended
        trouble=run.trouble,
        error=run.error,
        exit_code=run.exit_code,
        steps_done=run.steps_done,
        spec=run.spec,
        spec_hash=run.spec_hash,
        topology=run.topology,
        software=run.software,
        # What was made here is no part of the record: it goes on as it came.
        results={} if run.source.get(SUMMARISED) else run.results,
        point=run.point,
        started_at=run.started_at,
        ended_at=run.ended_at,
        source=run.source,
    )


def identity_of(run: Run) -> str:
    """Return what makes a run's record the same as another."""
    identity = Identity(header_of(run))
    for line in samples_of(run):
        identity.add(line)
    return identity.hexdigest()


def samples_of(run: Run) -> Iterator[SeriesLine]:
    """Yield the series of a run by key, one without values too."""
    name = str(run.pk)
    for series in Series.objects.filter(run=run).order_by("key"):
        made = False
        first = 0
        for at, values in _blocks(series):
            made = True
            yield SeriesLine(
                run=name, key=series.key, unit=series.unit, source=series.source, interval=series.interval,
                first=first, at=_numbers(at), values=_numbers(values),
            )  # fmt: skip
            first += len(values)
        if not made:
            yield SeriesLine(
                run=name, key=series.key, unit=series.unit, source=series.source, interval=series.interval,
                at=(), values=(),
            )  # fmt: skip


def _blocks(series: Series) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield times and values, so many a line, wherever the database breaks them."""
    at, values = np.zeros(0), np.zeros(0)
    chunks = Chunk.objects.filter(series=series).order_by("first").values_list("at", "values")
    for more_at, more_values in chunks.iterator(chunk_size=CHUNKS_AT_ONCE):
        at = np.concatenate([at, np.frombuffer(bytes(more_at), dtype=STORED)])
        values = np.concatenate([values, np.frombuffer(bytes(more_values), dtype=STORED)])
        while len(values) >= VALUES_A_LINE:
            yield at[:VALUES_A_LINE], values[:VALUES_A_LINE]
            at, values = at[VALUES_A_LINE:], values[VALUES_A_LINE:]
    if len(values):
        yield at, values


def _numbers(values: np.ndarray) -> tuple[float | None, ...]:
    """Return values for JSON, which has neither NaN nor Infinity."""
    return tuple(one if finite else None for one, finite in zip(values.tolist(), np.isfinite(values), strict=True))


def _log(run: Run, name: str) -> Iterator[LogLine]:
    """Yield the log in pieces of one size; a piece that does not follow on the last begins anew."""
    first, text, end = 0, "", 0
    for part in LogPart.objects.filter(run=run).order_by("first").iterator(chunk_size=CHUNKS_AT_ONCE):
        if text and part.first != end:
            yield LogLine(run=name, first=first, text=text)
            text = ""
        if not text:
            first = end = part.first
        text += part.text
        end += len(part.text.encode())
        while len(text) >= CHARACTERS_A_LINE:
            piece, text = text[:CHARACTERS_A_LINE], text[CHARACTERS_A_LINE:]
            yield LogLine(run=name, first=first, text=piece)
            first += len(piece.encode())
    if text:
        yield LogLine(run=name, first=first, text=text)
