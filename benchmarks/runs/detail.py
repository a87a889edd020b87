"""Data of a run's page: stages, progress, prediction, tables of results."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import zip_longest
from typing import Any, Final

import msgspec
import numpy as np
from django.utils import timezone

from accounts.models import User
from benchmarks import model
from benchmarks.model.prediction import Prediction
from benchmarks.runs.attachment import devices_to_restore
from benchmarks.runs.isolation import shown_overlaps
from benchmarks.runs.models import Run
from benchmarks.runs.quantities import field_label, format_number, value_text
from benchmarks.runs.recording import PHASE_PREFIX, STEP_SECONDS_KEY, series_values
from benchmarks.runs.results import Summary, summary_of
from benchmarks.runs.topology import recorded_topology
from benchmarks.workloads.catalogue import CATALOGUE
from core.language import _, gettext_noop
from fabric.operations.models import Plan

logger = logging.getLogger(__name__)

# The stages: in the queue, attaching devices, on the host, restoring devices.
STAGE_NUMBERS: Final = {
    Run.State.QUEUED: 0, Run.State.COMPOSING: 1, **dict.fromkeys(Run.ON_HOST, 2), Run.State.RETURNING: 3,
}  # fmt: skip
MAX_EARLIER_RUNS: Final = 20  # earlier runs for the usual duration
PHASE_LABELS: Final = {
    "build": gettext_noop("Build"),
    "data": gettext_noop("Prepare files"),
    "warmup": gettext_noop("Warm up"),
    "timed": gettext_noop("Measure"),
    "validation": gettext_noop("Validate"),
    "checkpoint": gettext_noop("Save a checkpoint"),
    "resumed": gettext_noop("Train with the devices that are left"),
    "no_sync": gettext_noop("Measure without exchange of gradients"),
    "finish": gettext_noop("Finish"),
}
COUNTING_PHASES: Final = frozenset(PHASE_LABELS) - {"build", "data", "warmup"}  # when steps are counted, and after
TROUBLE_LABELS: Final = {
    "out_of_memory": gettext_noop("Out of memory"),
    "crash": gettext_noop("Crashed"),
    "hang": gettext_noop("Hung"),
    "limit": gettext_noop("Time limit"),
    "lost": gettext_noop("Lost"),
    "refused": gettext_noop("Refused"),
    "compose": gettext_noop("Not composed"),
}
STAGE_STATES: Final = (
    gettext_noop("waiting"),
    gettext_noop("running"),
    gettext_noop("done"),
    gettext_noop("failed"),
    gettext_noop("skipped"),
)


@dataclass(frozen=True, kw_only=True)
class RunStage:
    """A stage of a run; `state` is waiting, running, done, failed or skipped."""

    name: str
    state: str
    seconds: float | None = None
    sentence: str = ""
    plan: Plan | None = None


@dataclass(frozen=True, kw_only=True)
class RunProgress:
    """The number of timed steps done, and the estimated remaining time (s), None if unknown."""

    done: int
    total: int
    left: float | None = None


def run_status(person: User, run: Run) -> dict[str, Any]:
    """Return the current state and results of a run for the templates of its page.

    `prediction_error` is the measured over the predicted step, less one; `unreturned` counts devices that could not be
    restored; `tables` and `single_results` are the results that are no step times.
    """
    summary = summary_of(run)
    recorded = series_values(run, [STEP_SECONDS_KEY, *(f"{PHASE_PREFIX}{name}" for name in PHASE_LABELS)])
    stages, progress, prediction = _stages(run, recorded), _progress(run, recorded), run_prediction(run)
    measured, error = summary.step_seconds, None
    if measured is not None and prediction is not None and prediction.step_seconds > 0:
        error = measured.value / prediction.step_seconds - 1.0
    current = next((one.name for one in stages if one.state == "running"), "")
    if current and progress is not None:
        current = _("{stage}, {done} of {total} steps", stage=current, done=progress.done, total=progress.total)
    return {
        "stages": stages,
        "screen_reader_text": current,
        "phase": _(PHASE_LABELS.get(run.phase, run.phase)) if run.state in Run.ON_HOST else "",
        "progress": progress,
        "seconds": _elapsed_seconds(run),
        "usual_duration": _usual_duration(person, run),
        "summary": summary,
        "tables": result_tables(summary),
        "single_results": single_results(summary),
        "overlaps": shown_overlaps(person, run),
        "prediction": prediction,
        "prediction_error": error,
        "unreturned": 0 if run.is_open else len(devices_to_restore(run).attachments),
        "trouble": _(TROUBLE_LABELS.get(run.trouble, run.trouble)),
    }


def _elapsed_seconds(run: Run) -> float:
    """Return the duration of a run since its request; of an imported run its recorded duration, if known."""
    if run.executor:
        return ((run.finished_at or timezone.now()) - run.queued_at).total_seconds()
    return (_seconds_between(run.started_at, run.ended_at) or 0.0) if run.ended_at is not None else 0.0


def run_prediction(run: Run) -> Prediction | None:
    """Return the prediction for a run's steps; None where the performance model does not apply, such as CPUs."""
    topology = recorded_topology(run)
    workload = CATALOGUE.get(run.workload)
    if topology is None or workload is None or not workload.is_training or not topology.accelerators:
        return None
    try:
        return model.predict(run.specification(), topology)
    except (msgspec.ValidationError, model.ModelError) as error:
        logger.info("run %s has no prediction: %s", run.pk, error)
        return None


def _stages(run: Run, recorded: Mapping[str, Any]) -> tuple[RunStage, ...]:
    if not run.executor:
        return ()
    failed, cancelled = (state in (run.outcome, run.state) for state in (Run.State.FAILED, Run.State.CANCELLED))
    attached = run.started_at is not None or run.state == Run.State.STARTING
    stuck = not run.is_open and run.sentence.startswith("Its devices were not returned")
    kept = run.keep_composed and run.plan is not None
    past = (
        "done" if run.begun_at else "skipped",
        "done" if attached else "failed" if failed and run.begun_at else "skipped",
        "skipped" if run.started_at is None else "failed" if failed or cancelled else "done",
        "failed" if stuck else "skipped" if run.plan_back is None else "done",
    )
    current = STAGE_NUMBERS.get(run.state, len(past))
    queue, attach, host, restore = (
        "running" if number == current else "waiting" if number > current else state
        for number, state in enumerate(past)
    )
    phases = _started_phases(recorded) if host == "running" else []
    return (
        RunStage(
            name=_("Wait in queue"),
            state=queue,
            seconds=_seconds_between(run.queued_at, run.begun_at or run.finished_at),
            sentence=run.sentence if queue == "running" else "",
        ),
        RunStage(
            name=_("Attach devices") if run.plan is not None or not attached else _("Devices already attached"),
            state=attach,
            seconds=None
            if run.plan is None
            else _seconds_between(run.begun_at, run.plan.finished_at or run.started_at or run.finished_at),
            sentence=run.sentence if attach == "running" else "",
            plan=run.plan,
        ),
        RunStage(
            name=_("Run on {host}", host=run.host_names) if run.host is not None else _("Run"),
            state=host,
            seconds=_seconds_between(run.started_at, run.ended_at),
            sentence=run.sentence or " ".join(phases[-1:]) if host == "running" else "",
        ),
        RunStage(
            name=_("Nothing to return")
            if restore == "skipped" and run.plan is None
            else _("Keep devices attached")
            if kept
            else _("Return devices"),
            state=restore,
            seconds=None
            if run.plan_back is None
            else _seconds_between(run.ended_at or run.state_since, run.finished_at),
            sentence=run.sentence if restore == "running" or stuck or (kept and not run.is_open) else "",
            plan=run.plan_back,
        ),
    )


def _started_phases(recorded: Mapping[str, Any]) -> list[str]:
    """Return the started phases in the order in which they began last, with the time since then."""
    now = timezone.now().timestamp()
    begun = [
        (float(recorded[key][1][-1]), words)
        for name, words in PHASE_LABELS.items()
        if (key := f"{PHASE_PREFIX}{name}") in recorded
    ]
    return [
        _("{phase}, for {seconds:.0f} s.", phase=_(words), seconds=max(0.0, now - at))
        for at, words in sorted(begun, key=lambda one: one[0])
    ]


def _progress(run: Run, recorded: Mapping[str, Any]) -> RunProgress | None:
    total = int(run.spec.get("steps", 0)) if run.spec else 0
    if run.state not in Run.ON_HOST or not total or run.phase not in COUNTING_PHASES:
        return None
    _at, seconds = recorded.get(STEP_SECONDS_KEY, ((), ()))
    told = run.results.get("tables", {}).get("resumed_at")
    before = told if isinstance(told, int) and 0 <= told <= total else 0  # steps of the run that it goes on from
    left = None
    if len(seconds) >= 3 and before + run.steps_done < total:
        left = float(np.median(seconds)) * (total - before - run.steps_done)
    return RunProgress(done=min(before + run.steps_done, total), total=total, left=left)


def _usual_duration(person: User, run: Run) -> str:
    """Return the usual duration of the same spec on the same host: 'usually 40 to 55 s'; '' without earlier runs."""
    before = Run.objects.visible_to(person).filter(
        spec_hash=run.spec_hash,
        host=run.host,
        state=Run.State.COMPLETED,
        executor=run.executor,
        started_at__isnull=False,
    )
    times = before.exclude(pk=run.pk).order_by("-queued_at").values_list("started_at", "ended_at")
    seconds = [(ended - started).total_seconds() for started, ended in times[:MAX_EARLIER_RUNS] if ended is not None]
    if not seconds:
        return ""
    low, high = np.percentile(seconds, [10, 90])
    if round(low) == round(high):
        return _("usually {high:.0f} s", high=high)
    return _("usually {low:.0f} to {high:.0f} s", low=low, high=high)


def _seconds_between(begin: datetime | None, end: datetime | None) -> float | None:
    if begin is None:
        return None
    return max(timedelta(), (end or timezone.now()) - begin).total_seconds()


@dataclass(frozen=True, kw_only=True)
class ResultTable:
    heads: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


def result_tables(summary: Summary) -> list[tuple[str, ResultTable]]:
    found = []
    for name, value in sorted(summary.tables.items()):
        if isinstance(value, dict | list):
            unit = summary.units.get(name, "")
            words = field_label(name)
            found.append((f"{words}, {unit}" if unit else words, _result_table(value)))
    return found


def single_results(summary: Summary) -> list[tuple[str, str]]:
    found = []
    for name, value in sorted(summary.tables.items()):
        if isinstance(value, dict | list):
            continue
        unit = summary.units.get(name, "")
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        words = value_text(float(value), unit) if is_number and unit else f"{_cell_text(value)} {unit}".strip()
        found.append((field_label(name.removesuffix("_bytes") if unit == "B" else name), words))
    return found


def _result_table(value: dict[str, Any] | list[Any]) -> ResultTable:
    if isinstance(value, dict):
        columns = [map(_cell_text, one if isinstance(one, list) else [one]) for one in value.values()]
        return ResultTable(heads=tuple(map(str, value)), rows=tuple(zip_longest(*columns, fillvalue="")))
    if value and all(isinstance(one, list) for one in value):
        return ResultTable(
            heads=("", *(str(place) for place in range(len(value[0])))),
            rows=tuple((str(place), *(_cell_text(one) for one in line)) for place, line in enumerate(value)),
        )
    return ResultTable(rows=(tuple(_cell_text(one) for one in value),))


def _cell_text(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)[:200]
    return format_number(float(value))
