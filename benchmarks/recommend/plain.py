"""An answer as plain JSON and as rows of a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from benchmarks.recommend.amounts import in_words
from benchmarks.recommend.answer import Amount, Answer, Line
from benchmarks.recommend.pool import Pool
from benchmarks.recommend.request import UNITS
from benchmarks.runs.composition import Composition

COLUMNS: Final = (
    "rank", "composition", "host", "gpus", "precision", "strategy", "batch", "objective", "low", "high", "unit",
    "step_seconds", "step_low", "step_high", "job_hours", "gpu_hours", "energy_kwh", "probability_of_being_best",
    "expected_regret", "basis", "provenance",
)  # fmt: skip


def composition_of(pool: Pool, line: Line) -> Composition:
    """Return where a run of a line would run."""
    layout = line.candidate.layout
    drive = layout.storage(pool)
    return Composition(
        host=layout.host.id,
        local_gpus=layout.local,
        devices={**layout.attachments(pool), **({drive[0]: drive[1]} if drive is not None else {})},
        storage=drive[0] if drive is not None else None,
        own_drive=drive is None and layout.host.own_drive,
    )


def answer_json(pool: Pool, answer: Answer) -> dict[str, Any]:
    """Return an answer as the API and the command tell it."""
    deciding = answer.deciding
    return {
        "sentence": answer.sentence,
        "objective": answer.asked.objective,
        "unit": UNITS[answer.asked.objective][0],
        "abstains": answer.abstains,
        "exact": answer.exact,
        "search": answer.search_words,
        "considered": answer.considered,
        "compositions": answer.layouts,
        "runs_learned_from": answer.runs,
        "provenance": "predicted",
        "candidates": [_line(pool, answer, line, rank) for rank, line in enumerate(answer.lines, 1)],
        "deciding_run": {
            "sentence": deciding.sentence,
            "expected_regret_before": deciding.before,
            "expected_regret_after": deciding.after,
            "candidate": _line(pool, answer, deciding.line, None),
        }
        if deciding is not None
        else None,
        "impossible": {
            "constraints": list(answer.impossible.constraints),
            "sentence": answer.impossible.sentence,
            "without": [{"constraint": name, "sentence": words} for name, words in answer.impossible.relaxed],
        }
        if answer.impossible is not None
        else None,
        "does_not_fit": list(answer.unfit),
        "batch_not_divided_by": list(answer.undivided),
    }


def _line(pool: Pool, answer: Answer, line: Line, rank: int | None) -> dict[str, Any]:
    layout, factor = line.candidate.layout, UNITS[answer.asked.objective][1]
    wanted = layout.wanted(pool)
    return {
        "rank": rank,
        "composition_words": line.words,
        "composition": composition_of(pool, line).as_json(),
        "spec": msgspec.to_builtins(line.candidate.spec),
        "gpus": line.devices,
        "value": _amount(line.objective, factor),
        "step_seconds": _amount(line.step),
        "job_hours": _amount(line.seconds, 1 / 3600),
        "gpu_hours": _amount(line.gpu_hours),
        "energy_kwh": _amount(line.joules, 1 / 3.6e6),
        "probability_of_being_best": line.probability,
        "probability_of_being_near_the_best": line.near,
        "expected_regret": line.regret,
        "basis": line.basis,
        "reasons": list(line.reasons),
        "terms": [
            {"name": term.name, "seconds": term.seconds, "why": term.why, "source": term.source}
            for term in line.prediction.terms
        ],
        "pcie_bytes_per_second": line.prediction.pcie_bytes_per_second,
        "memory_bytes": line.prediction.memory_bytes,
        "attachments": [{"device_id": device, "host_port_id": port} for device, port in wanted.attachments.items()],
        "modes": [{"drawer_id": drawer, "mode": mode.value} for drawer, mode in wanted.modes.items()],
    }


def _amount(amount: Amount, factor: float = 1.0) -> dict[str, float]:
    return {"median": amount.value * factor, "low": amount.low * factor, "high": amount.high * factor}


def answer_rows(answer: Answer) -> Iterator[tuple[object, ...]]:
    """Yield a row of COLUMNS for each line; everything in it is predicted, but for steps whose basis is measured."""
    unit, factor = UNITS[answer.asked.objective]
    for rank, line in enumerate(answer.lines, 1):
        spec = line.candidate.spec
        yield (
            rank, line.words, line.candidate.layout.host.name, line.devices, spec.precision, spec.strategy, spec.batch,
            line.objective.value * factor, line.objective.low * factor, line.objective.high * factor, unit,
            line.step.value, line.step.low, line.step.high, line.seconds.value / 3600, line.gpu_hours.value,
            line.joules.value / 3.6e6, line.probability, line.regret, line.basis, "predicted",
        )  # fmt: skip


def words_of(answer: Answer, amount: Amount) -> str:
    """Return an amount of the objective with its interval in words."""
    objective = answer.asked.objective
    if amount.low == amount.high:
        return in_words(objective, amount.value)
    return (
        f"{in_words(objective, amount.value)} ({in_words(objective, amount.low)} to {in_words(objective, amount.high)})"
    )
