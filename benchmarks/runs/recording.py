"""Storage of the data that a host reports for a run: series, log, phase, results."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
from django.db import transaction
from django.db.models import F, Q
from numpy.typing import ArrayLike, NDArray

from benchmarks.runs.models import Chunk, LogPart, Run, RunNode, Series
from core.errors import Invalid
from hostwire.training import (
    READINGS,
    PhaseStarted,
    RunEvent,
    RunFailed,
    RunReading,
    RunResult,
    RunStarted,
    RunUpdate,
    StepsCompleted,
)

PEER_TROUBLE: Final = "peer"  # of a run whose other hosts have not said yet why they ended
GPU_PREFIX: Final = "gpu/"  # of the series of a GPU
MAX_KEY_LENGTH: Final = 200
MAX_SOURCE_LENGTH: Final = 40
MAX_SERIES: Final = 5000  # of a run; a larger record could not be imported
MAX_RESULT_BYTES: Final = 2**20  # bytes of JSON, which every list of runs reads
COUNTED_PHASES: Final = ("timed", "resumed")  # of steps that a run was to take
MAX_READING: Final = 1e30  # in any unit: larger values are not readings, and their sums overflow
MAX_STEP_SECONDS: Final = 1e9  # s


class SeriesBuffer:
    """Buffered values of one series; `about` is unit, source and interval."""

    def __init__(self, unit: str, source: str, interval: float) -> None:
        self.about = (unit, source, interval)
        self.at: list[float] = []
        self.values: list[float] = []


def run_update_store(run: Run, news: RunUpdate, node: RunNode) -> dict[str, Any]:
    """Store a node's new events and log bytes in the caller's transaction; return the changed fields of the run.

    Events that were stored before (a repeated answer) are skipped by number. Steps and results are of the first node,
    readings of each.
    """
    changes: dict[str, Any] = {}
    columns: dict[str, SeriesBuffer] = {}
    skipped = max(0, node.next_event - news.first_event)
    events = news.events[skipped:]
    for event in events:
        if isinstance(event, RunFailed):
            _record_failure(run, event, node, changes)
        elif isinstance(event, RunReading):
            _record_reading(event, node, columns)
        elif not node.number:
            _record_event(run, event, columns, changes)
    if columns and len(columns) + run.series.count() > MAX_SERIES:
        columns = _limit_series(run, columns)
    series_append_all(run, {key: SeriesValues(*one.about, one.at, one.values) for key, one in columns.items()})
    if news.first_byte >= node.next_byte:
        log_append(run, node.next_byte, _named_lines(node.name, news.log) if run.is_on_several_hosts else news.log)
    node.next_event = max(node.next_event, news.first_event + len(news.events))
    node.next_byte = max(node.next_byte, news.next_byte)
    if node.number:
        node.save(update_fields=["next_event", "next_byte"])
        return changes
    return {**changes, "next_event": node.next_event, "next_byte": node.next_byte}


def _named_lines(host: str, text: str) -> str:
    """Return the lines of a host's log with its name; a line in two parts becomes two, as others are in between."""
    return "".join(f"{host}: {line}\n" for line in text.splitlines())


def _limit_series(run: Run, columns: dict[str, SeriesBuffer]) -> dict[str, SeriesBuffer]:
    """Return the columns of existing series, and of new ones up to the limit of a run; the rest is dropped."""
    known = set(run.series.values_list("key", flat=True))
    new = [key for key in columns if key not in known][: max(0, MAX_SERIES - len(known))]
    return {key: column for key, column in columns.items() if key in known or key in new}


def _record_event(run: Run, event: RunEvent, columns: dict[str, SeriesBuffer], changes: dict[str, Any]) -> None:
    match event:
        case RunStarted():
            changes["software"] = msgspec.to_builtins(event.software)
        case PhaseStarted():
            changes["phase"] = event.name[:20]
            _append_values(columns, f"{PHASE_PREFIX}{event.name}", "s", [event.at], [event.at])
        case StepsCompleted():
            seconds = np.clip(event.seconds, 0.0, MAX_STEP_SECONDS)
            ends = event.at - np.append(np.cumsum(seconds[::-1])[::-1][1:], 0.0)
            _append_values(columns, f"steps/{event.phase}/seconds", "s", ends.tolist(), event.seconds)
            if event.loss:
                loss = [float("nan") if one is None else one for one in event.loss]
                _append_values(columns, f"steps/{event.phase}/loss", "", ends.tolist()[: len(loss)], loss)
            if event.phase in COUNTED_PHASES:
                changes["steps_done"] = max(changes.get("steps_done", run.steps_done), event.first + len(event.seconds))
        case RunResult():
            kept = changes.get("results", run.results)
            results = {
                **kept,
                "tables": {**kept.get("tables", {}), **event.values},
                "units": {**kept.get("units", {}), **event.units},
            }
            if len(msgspec.json.encode(results)) <= MAX_RESULT_BYTES:
                changes["results"] = results


def _record_reading(event: RunReading, node: RunNode, columns: dict[str, SeriesBuffer]) -> None:
    for name, value in event.values.items():
        unit = READINGS.get(name.rpartition("/")[2], ("", ""))[0]
        source, key = event.source[:MAX_SOURCE_LENGTH], node_reading_key(node, name)
        _append_values(columns, key, unit, [event.at], [value], source=source, interval=event.interval)


def node_reading_key(node: RunNode, name: str) -> str:
    """Return the key of a host's reading: of further hosts 'host/node-b/cpu', 'gpu/node-b 0000:41:00.0/power'."""
    if not node.number:
        return name
    host, of_gpu = node.name.replace("/", "-"), name.removeprefix(GPU_PREFIX)
    return f"host/{host}/{name}" if of_gpu == name else f"{GPU_PREFIX}{host} {of_gpu}"


def _record_failure(run: Run, event: RunFailed, node: RunNode, changes: dict[str, Any]) -> None:
    """Record the first failure, as the cause of the others; that a peer ended is no cause where there is another."""
    if changes.get("trouble", run.trouble) in {"", PEER_TROUBLE}:
        changes["trouble"], changes["error"] = event.what[:20], sentence_of_host(run, node, event.sentence)


def sentence_of_host(run: Run, node: RunNode, sentence: str) -> str:
    """Return a sentence with the host that it is of, where a run is on several."""
    return f"{node.name}: {sentence}" if run.is_on_several_hosts else sentence


def _append_values(
    columns: dict[str, SeriesBuffer],
    key: str,
    unit: str,
    at: Iterable[float],
    values: Iterable[float],
    *,
    source: str = "",
    interval: float = 0.0,
) -> None:
    column = columns.setdefault(key[:MAX_KEY_LENGTH], SeriesBuffer(unit, source, interval))
    column.at += at
    column.values += [value if abs(value) <= MAX_READING else math.nan for value in values]


Floats = NDArray[np.float64]
VALUES_A_CHUNK: Final = 512  # values of a full chunk
STORED_DTYPE: Final = np.dtype("<f8")
NO_VALUES: Final = (np.zeros(0), np.zeros(0))  # of a series that is not recorded


@dataclass
class SeriesValues:
    """Values to append to a series: `at` are Unix seconds, NaN is no value; each is over `interval` seconds."""

    unit: str = ""
    source: str = ""
    interval: float = 0.0
    at: ArrayLike = ()
    values: ArrayLike = ()


def series_append(
    run: Run,
    key: str,
    *,
    at: ArrayLike,
    values: ArrayLike,
    unit: str = "",
    source: str = "",
    interval: float = 0.0,
) -> None:
    series_append_all(run, {key: SeriesValues(unit, source, interval, at, values)})


def series_append_all(run: Run, columns: Mapping[str, SeriesValues]) -> None:
    """Append values to series of a run, by key, and create new series; five queries for any number of series.

    Not idempotent: callers record their position in the same transaction. Raises Invalid if the numbers of times and
    values differ.
    """
    added = {key: (_as_stored(one.at), _as_stored(one.values)) for key, one in columns.items()}
    for key, (at, values) in added.items():
        if at.shape != values.shape:
            raise Invalid(f"The series '{key}' has {len(at)} times and {len(values)} values.")
    with transaction.atomic():
        rows = _get_or_create(run, columns)
        # All chunks but the last are full, so the count determines the start of the last one.
        is_last = Q(first=F("series__count") - F("series__count") % VALUES_A_CHUNK)
        last = {row.series_id: row for row in Chunk.objects.filter(is_last, series__in=rows.values())}
        chunks: list[Chunk] = []
        for key, (at, values) in added.items():
            series, before = rows[key], last.get(rows[key].pk)
            begin = series.count if before is None else before.first
            whole_at, whole = at.tobytes(), values.tobytes()
            if before is not None:
                whole_at, whole = bytes(before.at) + whole_at, bytes(before.values) + whole
            size = VALUES_A_CHUNK * STORED_DTYPE.itemsize
            series.count = begin + len(whole) // STORED_DTYPE.itemsize
            chunks += [
                Chunk(
                    series=series,
                    first=begin + place // STORED_DTYPE.itemsize,
                    at=whole_at[place : place + size],
                    values=whole[place : place + size],
                )
                for place in range(0, len(whole), size)
            ]
        Chunk.objects.bulk_create(
            chunks, update_conflicts=True, unique_fields=["series", "first"], update_fields=["at", "values"]
        )
        Series.objects.bulk_update(rows.values(), ["count"])


def _get_or_create(run: Run, columns: Mapping[str, SeriesValues]) -> dict[str, Series]:
    rows = {row.key: row for row in Series.objects.filter(run=run, key__in=columns)}
    new = [
        Series(run=run, key=key, unit=one.unit, source=one.source, interval=one.interval)
        for key, one in columns.items()
        if key not in rows
    ]
    return rows | {row.key: row for row in Series.objects.bulk_create(new)}


def series_of(run: Run) -> list[Series]:
    """Return the recorded series of a run by key, without values."""
    return list(Series.objects.filter(run=run).order_by("key"))


def series_values(run: Run, keys: Sequence[str] | None = None) -> dict[str, tuple[Floats, Floats]]:
    """Return times (Unix s) and values of several series of a run, or of all, in the order of writing; one query."""
    rows = Chunk.objects.filter(series__run=run).order_by("series", "first")
    if keys is not None:
        rows = rows.filter(series__key__in=keys)
    parts: dict[str, list[tuple[bytes, bytes]]] = {}
    for key, at, values in rows.values_list("series__key", "at", "values"):
        parts.setdefault(key, []).append((bytes(at), bytes(values)))
    return {
        key: (_joined(at for at, _ in pieces), _joined(values for _, values in pieces)) for key, pieces in parts.items()
    }


def downsample(at: Floats, values: Floats, points: int) -> tuple[Floats, Floats]:
    """Return at most `points` of a series, evenly over its length, its last one among them."""
    if len(at) <= points:
        return at, values
    chosen = np.unique(np.linspace(0, len(at) - 1, points).round().astype(np.intp))
    return at[chosen], values[chosen]


def _as_stored(values: ArrayLike) -> NDArray[np.float64]:
    return np.atleast_1d(np.asarray(values, dtype=STORED_DTYPE))


def _joined(pieces: Iterator[bytes]) -> Floats:
    return np.frombuffer(b"".join(pieces), dtype=STORED_DTYPE).astype(np.float64)


MAX_READ_BYTES: Final = 256 * 1024  # bytes an answer
TAIL_BYTES: Final = 16 * 1024
PART_BYTES: Final = 64 * 1024  # bytes of a full part, about
MAX_LOG_BYTES: Final = 64 * 2**20  # bytes of one run; the rest is counted, and not stored
TRUNCATION_NOTE: Final = "\n[The log is longer than 64 MiB: what follows is not kept.]\n"


@dataclass(frozen=True)
class LogPiece:
    """A part of a log from byte `first` to `next`, and whether there is `more`."""

    first: int
    next: int
    text: str
    more: bool


def log_append(run: Run, first: int, text: str) -> None:
    """Append log output of a run's processes from byte `first` on.

    Not idempotent: callers record their position in the same transaction.
    """
    if not text:
        return
    last = run.log_parts.order_by("-first").first()
    if last is not None and last.first + _byte_length(last.text) > MAX_LOG_BYTES:
        return
    if first + _byte_length(text) > MAX_LOG_BYTES:
        text = TRUNCATION_NOTE
    # PostgreSQL stores no NUL in text.
    text = text.replace("\0", "\ufffd")
    if last is not None and _byte_length(last.text) < PART_BYTES:
        last.text += text
        last.save(update_fields=["text"])
        return
    LogPart.objects.create(run=run, first=first if last is None else last.first + _byte_length(last.text), text=text)


def log_read(run: Run, first: int = 0, *, most: int = MAX_READ_BYTES) -> LogPiece:
    """Return up to `most` bytes of a log from a byte on, cut between characters."""
    rows = run.log_parts.order_by("first")
    before = rows.filter(first__lte=first).order_by("-first").first()
    rows = rows.filter(first__gte=before.first) if before is not None else rows
    data, begin, more = b"", 0, False
    for part in rows.iterator(chunk_size=4):
        piece = part.text.encode()
        if not data:
            begin = max(first, part.first)
            piece = piece[begin - part.first :]
        data += piece
        if len(data) > most:
            data, more = data[:most], True
            break
    # Where it begins or is cut off within a character, that is left to who reads on.
    whole = data.decode(errors="ignore")
    return LogPiece(first=begin, next=max(first, begin) + len(whole.encode()), text=whole, more=more)


def log_size(run: Run) -> int:
    last = run.log_parts.order_by("-first").first()
    return 0 if last is None else last.first + _byte_length(last.text)


def log_tail(run: Run) -> LogPiece:
    """Return the end of a log, from the start of a line."""
    piece = log_read(run, max(0, log_size(run) - TAIL_BYTES), most=TAIL_BYTES + 4)
    if piece.first == 0 or "\n" not in piece.text:
        return piece
    cut = piece.text.index("\n") + 1
    return LogPiece(piece.first + len(piece.text[:cut].encode()), piece.next, piece.text[cut:], more=False)


def _byte_length(text: str) -> int:
    return len(text.encode())


STEP_SECONDS_KEY: Final = "steps/timed/seconds"
NO_SYNC_SECONDS_KEY: Final = "steps/no_sync/seconds"
CHECKPOINT_KEY: Final = "steps/checkpoint/seconds"
LOSS_KEY: Final = "steps/timed/loss"
PHASE_PREFIX: Final = "phase/"
DEVICE_LINK_PREFIX: Final = "link/device-"
