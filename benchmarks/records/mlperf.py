"""Logs of MLPerf Training: lines of ':::MLLOG' with JSON among other output of a training."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import numpy as np

from benchmarks.records.import_files import ImportProblems, finite_number
from benchmarks.records.schema import MAX_VALUES, RunLine, SeriesLine, ToolOutput, ToolRun, tool_results
from benchmarks.runs.results import Statistic, statistic_of
from core.language import _
from core.strict_json import InvalidDocument, loads_strict
from hostwire.training import Spec

LOG_PREFIX: Final = ":::MLLOG"
# The benchmarks of MLPerf by the names that this site's workloads have; others keep theirs.
WORKLOAD_NAMES: Final = {"resnet": "resnet50", "bert": "bert_large"}
# These events start a run; after a run's end they start another one.
START_KEYS: Final = ("cache_clear", "init_start", "submission_benchmark", "run_start")
DEVICE_COUNT_KEYS: Final = ("number_of_ranks", "num_ranks", "world_size", "num_gpus", "number_of_gpus")
PLATFORM_PATTERN = re.compile(r"(\d{1,5})\s*x")
INTEGER_KEYS: Final = (
    "global_batch_size",
    "gradient_accumulation_steps",
    "seed",
    "train_samples",
    "eval_samples",
    *DEVICE_COUNT_KEYS,
)
# Series by their MLPerf key: name, and unit.
SERIES_KEYS: Final = {
    "eval_accuracy": ("eval/accuracy", ""), "eval_loss": ("eval/loss", ""), "train_loss": ("train/loss", ""),
    "throughput": ("train/samples_per_second", "1/s"), "train_step_time": ("train/step_seconds", "s"),
}  # fmt: skip
INTERVALS: Final = ("init", "run", "epoch", "block", "eval")
# Fields of a specification that are not in these logs.
ASSUMED_FIELDS: Final = ("steps", "precision", "gradient", "strategy", "loader_workers")
MAX_VALUE_LENGTH: Final = 2000  # characters of a value that is stored unchanged
MAX_KEYS: Final = 500


@dataclass
class _MlperfRun:
    """A run while it is parsed; times in seconds."""

    line: int
    values: dict[str, Any] = field(default_factory=dict)
    series: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    open: dict[str, tuple[float, int]] = field(default_factory=dict)
    began: float | None = None
    ended: float | None = None
    status: str = ""


def parse(text: str, problems: ImportProblems) -> ToolOutput:
    """Return the runs in a log. Other lines are counted; invalid events are reported as problems."""
    output = ToolOutput()
    run: _MlperfRun | None = None
    for number, line in enumerate(text.splitlines(), 1):
        _before, mark, rest = line.partition(LOG_PREFIX)
        if not mark:
            output.skipped += bool(line.strip())
            continue
        event = _parse_event(rest, number, problems)
        if event is None:
            continue
        key, at, value, metadata = event
        if run is not None and run.ended is not None and key in START_KEYS:
            _finish_run(run, output, problems)
            run = None
        run = run or _MlperfRun(number)
        _record_event(run, key, at, value, metadata, number, problems)
    if run is not None:
        _finish_run(run, output, problems)
    else:
        problems.note(0, "", _("There is no line with {prefix} in it.", prefix=LOG_PREFIX))
    return output


def _parse_event(text: str, number: int, problems: ImportProblems) -> tuple[str, float, Any, dict[str, Any]] | None:
    """Return key, time (Unix s), value and metadata of an event; None if it is invalid."""
    try:
        event = loads_strict(text.strip())
    except InvalidDocument as error:
        problems.note(number, error.where, error.sentence)
        return None
    if not isinstance(event, dict):
        problems.note(number, "", _("An event is an object."))
        return None
    key, at = event.get("key"), event.get("time_ms")
    if not isinstance(key, str) or not 0 < len(key) <= 200:
        problems.note(number, "key", _("It is missing, or no text."))
        return None
    if not isinstance(at, int | float) or isinstance(at, bool) or not 0 <= at < 32_503_680_000_000:
        problems.note(number, "time_ms", _("It is missing, or no time in milliseconds."))
        return None
    metadata = event.get("metadata")
    return key, at / 1000, event.get("value"), metadata if isinstance(metadata, dict) else {}


def _record_event(  # noqa: PLR0917 - one event, in the order of its members
    run: _MlperfRun, key: str, at: float, value: Any, metadata: dict[str, Any], number: int, problems: ImportProblems
) -> None:
    if key == "tracked_stats" and isinstance(value, dict):
        for name, one in value.items():
            if name in SERIES_KEYS:
                _record_sample(run, name, at, one, number, f"value.{name}", problems)
        return
    if key in SERIES_KEYS:
        _record_sample(run, key, at, value, number, "value", problems)
        return
    kind, _bar, edge = key.rpartition("_")
    if kind in INTERVALS and edge in {"start", "stop", "end"}:
        _record_interval_edge(run, kind, edge, at, metadata, number, problems)
        return
    if key in INTEGER_KEYS and (not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**53):
        problems.note(
            number, "value", _("{key} is a whole number, and this is '{value}'.", key=key, value=str(value)[:40])
        )
        return
    if len(run.values) < MAX_KEYS and len(str(value)) <= MAX_VALUE_LENGTH:
        run.values[key] = value


def _record_interval_edge(  # noqa: PLR0917 - as above
    run: _MlperfRun, kind: str, edge: str, at: float, metadata: dict[str, Any], number: int, problems: ImportProblems
) -> None:
    if edge == "start":
        run.open[kind] = at, number
        if kind == "run":
            run.began = at
        return
    begun = run.open.pop(kind, None)
    if begun is None:
        problems.note(number, "key", _("{kind}_{edge} without a {kind}_start before it.", kind=kind, edge=edge))
        return
    if at < begun[0]:
        problems.note(
            number, "time_ms", _("The {kind} ends before it begins, in line {line}.", kind=kind, line=begun[1])
        )
        return
    if kind == "run":
        run.ended, run.status = at, str(metadata.get("status", ""))[:40]
    run.series.setdefault(f"{kind}/seconds", []).append((at, at - begun[0]))


def _record_sample(  # noqa: PLR0917 - as above
    run: _MlperfRun, name: str, at: float, value: Any, number: int, where: str, problems: ImportProblems
) -> None:
    sample = None if isinstance(value, str) else finite_number(value)
    if sample is None:
        problems.note(number, where, _("'{value}' is no number.", value=str(value)[:40]))
        return
    run.series.setdefault(SERIES_KEYS[name][0], []).append((at, sample))


def _finish_run(run: _MlperfRun, output: ToolOutput, problems: ImportProblems) -> None:
    if run.began is None:
        problems.note(run.line, "key", _("There is no run_start: its start time is unknown."))
        return
    benchmark = str(run.values.get("submission_benchmark", "") or "unknown")[:40]
    workload = WORKLOAD_NAMES.get(benchmark, benchmark)
    spec = _spec(run, workload)
    if spec is None:
        output.notes.append(
            _(
                "Line {line}: the log does not have the number of devices of its batch, so the run has no "
                "specification.",
                line=run.line,
            )
        )
    else:
        output.notes.append(
            _(
                "Line {line}: the log does not have the {fields}: the specification has the defaults of this site.",
                line=run.line,
                fields=", ".join(ASSUMED_FIELDS),
            )
        )
    if run.ended is None:
        output.notes.append(_("Line {line}: the log ends before the run: kept as failed.", line=run.line))
    is_done = run.ended is not None and run.status in {"", "success"}
    name = f"mlperf {len(output.runs) + 1}"
    header = RunLine(
        id=name,
        title=f"MLPerf {benchmark}{_submitter(run)}"[:200],
        workload=workload,
        provenance="measured",
        state="completed" if is_done else "failed",
        trouble="" if is_done else ("lost" if run.ended is None else "crash"),
        error="" if is_done else (f"Its status is '{run.status}'." if run.ended else "The log has no run_stop."),
        source={} if spec is None else {"assumed": list(ASSUMED_FIELDS)},
        spec={} if spec is None else msgspec.to_builtins(spec),
        spec_hash="" if spec is None else spec.hash,
        results=_results(run),
        started_at=datetime.fromtimestamp(run.began, UTC),
        ended_at=None if run.ended is None else datetime.fromtimestamp(run.ended, UTC),
    )
    output.runs.append(ToolRun(run.line, header, tuple(_series_lines(run, name))))


def _submitter(run: _MlperfRun) -> str:
    parts = (str(run.values.get(name) or "") for name in ("submission_org", "submission_platform"))
    words = ", ".join(part for part in parts if part)
    return f", {words}" if words else ""


def _spec(run: _MlperfRun, workload: str) -> Spec | None:
    """Return its specification, if the log has the distribution of its batch."""
    whole = run.values.get("global_batch_size")
    ranks = next((run.values[name] for name in DEVICE_COUNT_KEYS if run.values.get(name)), None)
    if ranks is None and (found := PLATFORM_PATTERN.search(str(run.values.get("submission_platform", "")))):
        nodes = run.values.get("number_of_nodes", run.values.get("num_nodes", 1))
        ranks = int(found[1]) * (nodes if isinstance(nodes, int) and nodes > 0 else 1)
    accumulation = run.values.get("gradient_accumulation_steps") or 1
    if not whole or not ranks or whole % (ranks * accumulation):
        return None
    batch = whole // (ranks * accumulation)
    seed = run.values.get("seed", 0)
    if max(batch, ranks, accumulation) > 10**9 or min(batch, ranks, accumulation) < 1:
        return None
    return Spec(
        workload=workload, devices=ranks, batch=batch, accumulation=accumulation, warmup=0,
        seed=seed if seed <= 10**9 else 0,
    )  # fmt: skip


def _series_lines(run: _MlperfRun, name: str) -> list[SeriesLine]:
    units = dict(SERIES_KEYS.values())
    made = []
    for key, pairs in sorted(run.series.items()):
        for first in range(0, len(pairs), MAX_VALUES):
            part = pairs[first : first + MAX_VALUES]
            made.append(
                SeriesLine(
                    run=name, key=key, unit=units.get(key, "s"), source="mlperf", first=first,
                    at=tuple(at for at, _value in part), values=tuple(value for _at, value in part),
                )
            )  # fmt: skip
    return made


def _results(run: _MlperfRun) -> dict[str, Any]:
    """Return medians, and other values of the log by key."""
    tables: dict[str, Any] = {"mlperf": run.values}
    units: dict[str, str] = {}
    if run.ended is not None and run.began is not None:
        tables["run_seconds"], units["run_seconds"] = run.ended - run.began, "s"
    for key, (series, unit) in SERIES_KEYS.items():
        if key.startswith("eval") and series in run.series:
            tables[key], units[key] = run.series[series][-1][1], unit
    losses = run.series.get("train/loss", [])
    throughput, step = (
        statistic_of(np.array([value for _at, value in run.series.get(key, [])]), unit)
        for key, unit in (("train/samples_per_second", "1/s"), ("train/step_seconds", "s"))
    )
    whole = run.values.get("global_batch_size")
    if step is None and throughput is not None and whole and throughput.low > 0:
        # The log has one of the two; the other follows from the batch.
        step = Statistic(
            value=whole / throughput.value, low=whole / throughput.high, high=whole / throughput.low, unit="s",
            count=throughput.count,
        )  # fmt: skip
    return tool_results(
        tables=tables,
        units=units,
        step_seconds=step,
        samples_per_second=throughput,
        first_loss=losses[0][1] if losses else None,
        last_loss=losses[-1][1] if losses else None,
    )
