"""A recommendation as JSON, CSV and text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from benchmarks.recommend.answer import AmountInterval, RankedCandidate, Recommendation
from benchmarks.recommend.explanation import format_objective
from benchmarks.recommend.pool import RecommendationPool
from benchmarks.recommend.request import OBJECTIVE_UNITS
from benchmarks.runs.rules import Composition
from benchmarks.workloads.catalogue import CATALOGUE
from core.language import _, english

MAX_TITLE_LENGTH: Final = 200
CSV_COLUMNS: Final = (
    "rank", "composition", "host", "gpus", "precision", "strategy", "batch", "objective", "low", "high", "unit",
    "step_seconds", "step_low", "step_high", "job_hours", "gpu_hours", "energy_kwh", "probability_of_being_best",
    "expected_regret", "basis", "provenance", "variant", "steps", "compose_seconds", "start_seconds", "train_seconds",
    "give_back_seconds", "gpus_kwh", "host_kwh", "chassis_kwh",
)  # fmt: skip


def candidate_composition(pool: RecommendationPool, line: RankedCandidate) -> Composition:
    """Return the composition of a candidate."""
    layout = line.candidate.layout
    drive = layout.storage(pool)
    return Composition(
        host=layout.host.id,
        local_gpus=layout.local,
        devices={**layout.attachments(pool), **({drive[0]: drive[1]} if drive is not None else {})},
        storage=drive[0] if drive is not None else None,
        own_drive=drive is None and layout.host.own_drive,
    )


def candidate_title(line: RankedCandidate) -> str:
    """Return the title of its plan or run: workload, software and place."""
    workload = CATALOGUE[line.candidate.spec.workload].title
    variant = f", {english(line.variant)}"
    return f"{workload} as recommended: {english(line.words)}"[: MAX_TITLE_LENGTH - len(variant)] + variant


def recommendation_json(pool: RecommendationPool, answer: Recommendation) -> dict[str, Any]:
    """Return an answer as JSON for the API and the command."""
    deciding = answer.deciding
    return {
        "sentence": answer.sentence,
        "objective": answer.request.objective,
        "unit": OBJECTIVE_UNITS[answer.request.objective][0],
        "abstains": answer.abstains,
        "exact": answer.exact,
        "search": answer.search_words,
        "considered": answer.considered,
        "compositions": answer.layouts,
        "runs_learned_from": answer.runs,
        "provenance": "predicted",
        "candidates": [_candidate_json(pool, answer, line, rank) for rank, line in enumerate(answer.lines, 1)],
        "deciding_run": {
            "sentence": deciding.sentence,
            "expected_regret_before": deciding.before,
            "expected_regret_after": deciding.after,
            "candidate": _candidate_json(pool, answer, deciding.line, None),
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
        "notes": list(answer.notes),
        "batch_not_divided_by": list(answer.undivided),
    }


def _candidate_json(
    pool: RecommendationPool, answer: Recommendation, line: RankedCandidate, rank: int | None
) -> dict[str, Any]:
    layout, factor = line.candidate.layout, OBJECTIVE_UNITS[answer.request.objective][1]
    desired = layout.desired_state(pool)
    return {
        "rank": rank,
        "composition_words": line.words,
        "variant": line.variant,
        "title": candidate_title(line),
        "composition": candidate_composition(pool, line).as_json(),
        "spec": msgspec.to_builtins(line.candidate.spec),
        "gpus": line.devices,
        "value": _amount_json(line.objective, factor),
        "step_seconds": _amount_json(line.step),
        "job_hours": _amount_json(line.seconds, 1 / 3600),
        "gpu_hours": _amount_json(line.gpu_hours),
        "energy_kwh": _amount_json(line.joules, 1 / 3.6e6),
        "steps": line.steps,
        "time_parts": {f"{name}_seconds": seconds for name, seconds in line.spent.items()},
        "energy_parts": {f"{name}_kwh": joules / 3.6e6 for name, joules in line.energy.items()},
        "probability_of_being_best": line.probability,
        "probability_of_being_near_the_best": line.near,
        "expected_regret": line.regret,
        "basis": line.basis,
        "reasons": list(line.reasons),
        "terms": msgspec.to_builtins(line.prediction.terms, enc_hook=str.__str__),
        "pcie_bytes_per_second": line.prediction.pcie_bytes_per_second,
        "memory_bytes": line.prediction.memory_bytes,
        "attachments": [{"device_id": device, "host_port_id": port} for device, port in desired.attachments.items()],
        "modes": [{"drawer_id": drawer, "mode": mode.value} for drawer, mode in desired.modes.items()],
    }


def _amount_json(amount: AmountInterval, factor: float = 1.0) -> dict[str, float]:
    return {"median": amount.value * factor, "low": amount.low * factor, "high": amount.high * factor}


def recommendation_rows(answer: Recommendation) -> Iterator[tuple[object, ...]]:
    """Yield a row of CSV_COLUMNS for each line; all values are predicted, except steps whose basis is measured."""
    unit, factor = OBJECTIVE_UNITS[answer.request.objective]
    for rank, line in enumerate(answer.lines, 1):
        spec = line.candidate.spec
        yield (
            rank, line.words, line.candidate.layout.host.name, line.devices, spec.precision, spec.strategy, spec.batch,
            line.objective.value * factor, line.objective.low * factor, line.objective.high * factor, unit,
            line.step.value, line.step.low, line.step.high, line.seconds.value / 3600, line.gpu_hours.value,
            line.joules.value / 3.6e6, line.probability, line.regret, line.basis, "predicted",
            line.variant, line.steps, *line.spent.values(), *(joules / 3.6e6 for joules in line.energy.values()),
        )  # fmt: skip


def amount_text(answer: Recommendation, amount: AmountInterval) -> str:
    """Return an amount of the objective with its interval as text."""
    objective = answer.request.objective
    if amount.low == amount.high:
        return format_objective(objective, amount.value)
    value, low, high = (format_objective(objective, one) for one in (amount.value, amount.low, amount.high))
    return _("{value} ({low} to {high})", value=value, low=low, high=high)
