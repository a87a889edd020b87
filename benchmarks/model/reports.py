"""Predictions in words and as plain JSON: for the command line, pages and the API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from benchmarks.model.belief import Belief, apply_misfit, formula_seconds
from benchmarks.model.calibration import PAPER_CONFIGURATIONS, paper_cells, published_belief
from benchmarks.model.features import is_link_workload
from benchmarks.model.left_out import HeldOutFigure, median_error, scaling_errors
from benchmarks.model.observations import FIRST_MODEL, JudgedObservation
from benchmarks.model.prediction import INTERVAL_QUANTILES, Prediction, format_seconds, predict, prediction_draws

SCALING_TOLERANCE = 0.1
PREDICTED_BEFORE = (
    "This model has seen all of them. The first one was judged on O1 to O4 before it had, but for ResNet-50's traffic:"
)


def prediction_json(prediction: Prediction) -> dict[str, Any]:
    """Return a prediction as plain JSON; seconds, bytes, bytes a second, shares."""
    return {
        "provenance": "predicted",
        "workload": prediction.spec.workload,
        "topology": prediction.topology.name,
        "spec": msgspec.to_builtins(prediction.spec),
        "spec_hash": prediction.spec.hash,
        "step_seconds": prediction.step_seconds,
        "interval": [prediction.interval.low, prediction.interval.high],
        "interval_probability": prediction.interval.probability,
        "samples_per_second": prediction.samples_per_second,
        "terms": msgspec.to_builtins(prediction.terms, enc_hook=str.__str__),
        "pcie_bytes_per_step": {
            name: {"to_device": to, "from_device": back} for name, (to, back) in prediction.pcie_bytes.items()
        },
        "pcie_bytes_per_second": prediction.pcie_bytes_per_second,
        "memory_bytes": prediction.memory_bytes,
        "fits": not prediction.fits,
        "fits_sentence": prediction.fits,
        "utilisation": prediction.utilisation,
        "compute_share": prediction.compute_share,
        "memory_share_busy": prediction.memory_share_busy,
        "cpu_share": prediction.cpu_share,
        "basis": prediction.basis,
        "basis_sentence": prediction.basis_sentence,
    }


def prediction_text(prediction: Prediction) -> str:
    """Return a prediction as lines to read."""
    spec, interval = prediction.spec, prediction.interval
    span = f"{format_seconds(interval.low)} and {format_seconds(interval.high)}"
    where = prediction.topology.name or f"{len(prediction.topology.accelerators)} devices"
    lines = [
        f"Predicted: {spec.workload} on {where}, {spec.devices} x {spec.batch}, {spec.precision}, {spec.strategy}.",
        "",
        f"step            {format_seconds(prediction.step_seconds)}  ({interval.probability:.0%} between {span})",
    ]
    if not is_link_workload(spec):
        lines.append(f"rate            {prediction.samples_per_second:.3g} samples/s")
        lines.append(
            f"devices         {prediction.utilisation:.0%} of a step in use, {prediction.compute_share:.0%} computing, "
            f"{prediction.memory_share_busy:.0%} with memory access"
        )
    lines.append(f"memory          {prediction.memory_bytes / 1e9:.1f} GB a device")
    if prediction.pcie_bytes_per_second:
        traffic = prediction.pcie_bytes_per_second / 1e9
        lines.append(f"PCIe            {traffic:.2f} GB/s, all devices in chassis, both ways")
    lines += ["", *(f"{term.name:15s} {term.why}" for term in prediction.terms), "", prediction.basis_sentence]
    if prediction.fits:
        lines += ["", f"It does not fit. {prediction.fits}"]
    return "\n".join(lines)


@dataclass(frozen=True, kw_only=True)
class PaperRow:
    """One of the 25 cells: seconds, a relative overhead with its 90 % interval, GB/s; None of localGPUs itself."""

    workload: str
    configuration: str
    prediction: Prediction
    overhead: float
    overhead_low: float
    overhead_high: float

    def for_json(self) -> dict[str, Any]:
        return {
            "workload": self.workload,
            "configuration": self.configuration,
            "step_seconds": self.prediction.step_seconds,
            "interval": [self.prediction.interval.low, self.prediction.interval.high],
            "interval_probability": self.prediction.interval.probability,
            "overhead_vs_localGPUs": self.overhead,
            "overhead_interval": [self.overhead_low, self.overhead_high],
            "pcie_gigabytes_per_second": self.prediction.pcie_bytes_per_second / 1e9,
            "samples_per_second": self.prediction.samples_per_second,
            "terms": {term.name: term.seconds for term in self.prediction.terms},
            "basis": self.prediction.basis,
            "provenance": "predicted",
        }


def paper_rows(belief: Belief | None = None) -> list[PaperRow]:
    """Return the published experiment's cells as predicted, by default by what is believed of its site.

    Overheads are of steps drawn together.
    """
    belief = belief or published_belief()
    cells = paper_cells()
    pairs = [(spec, topology) for _workload, _configuration, spec, topology in cells]
    draws = prediction_draws(belief)
    formula = formula_seconds(draws, pairs)
    drawn = apply_misfit(draws, pairs, formula)
    middle = np.median(apply_misfit(draws, pairs, formula, scatter=False), axis=0)
    rows = []
    for index, (workload, configuration, spec, topology) in enumerate(cells):
        base = index - PAPER_CONFIGURATIONS.index(configuration)  # its localGPUs
        low, high = np.quantile(drawn[:, index] / drawn[:, base], INTERVAL_QUANTILES)
        overhead = float(middle[index] / middle[base]) - 1
        rows.append(
            PaperRow(
                workload=workload,
                configuration=configuration,
                prediction=predict(spec, topology, belief),
                overhead=overhead,
                overhead_low=min(float(low) - 1, overhead),
                overhead_high=max(float(high) - 1, overhead),
            )
        )
    return rows


def _aligned_columns(rows: Sequence[Sequence[str]], left: int) -> str:
    """Return rows as aligned text; the first `left` columns to the left."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def paper_text(rows: Sequence[PaperRow]) -> str:
    """Return the cells as a table to read."""
    lines = [("workload", "configuration", "step", "90 % interval", "overhead", "90 % interval", "PCIe GB/s")]
    lines += [
        (
            row.workload,
            row.configuration,
            format_seconds(row.prediction.step_seconds),
            f"{format_seconds(row.prediction.interval.low)} .. {format_seconds(row.prediction.interval.high)}",
            f"{round(row.overhead, 3) + 0.0:+.1%}" if row.configuration != PAPER_CONFIGURATIONS[0] else "",
            f"{row.overhead_low:+.0%} .. {row.overhead_high:+.0%}"
            if row.configuration != PAPER_CONFIGURATIONS[0]
            else "",
            f"{row.prediction.pcie_bytes_per_second / 1e9:.2f}",
        )
        for row in rows
    ]
    return "Predicted, none of it measured.\n\n" + _aligned_columns(lines, 2)


def observations_text(found: Sequence[JudgedObservation], left_out: Mapping[str, JudgedObservation]) -> str:
    """Return what was published, each with what the model says of it, also when fitted to all else, as a text."""
    lines = []
    for one in found:
        origin = "fitted" if one.fitted else "seen, not fitted"
        interval = "" if one.low is None or one.high is None else f", 90 % {one.low:.3g} .. {one.high:.3g}"
        lines += [
            f"{one.observation.key:16s}{'holds' if one.holds else 'DOES NOT HOLD'}, {origin}",
            f"    published: {one.observation.published}",
            *([f"    read as:   {one.observation.reading}"] if one.observation.reading else []),
            f"    predicted: {one.predicted} ({one.value:.3g}{interval})",
            *(
                f"    left out:  {'holds' if other.holds else 'does not hold'}: {other.predicted}"
                for other in (left_out.get(one.observation.key),)
                if other is not None
            ),
        ]
    kept = sum(one.holds for one in left_out.values())
    closing = (
        f"{sum(one.holds for one in found)} of {len(found)} hold; of the {len(left_out)} fitted ones, each left out of "
        f"the fit, {kept}.\n{PREDICTED_BEFORE}"
    )
    before = [f"    {'held' if held else 'did not hold':14s}{words}: {said}" for words, said, held in FIRST_MODEL]
    return "\n".join([*lines, "", closing, *before])


def observation_json(one: JudgedObservation, left_out: JudgedObservation | None) -> dict[str, Any]:
    """Return a judged observation as plain JSON, with what a fit to all else says of it."""
    return {
        "observation": one.observation.key,
        "published": one.observation.published,
        "read_as": one.observation.reading,
        "predicted": one.predicted,
        "value": one.value,
        "interval": None if one.low is None else [one.low, one.high],
        "holds": one.holds,
        "left_out": left_out and {"predicted": left_out.predicted, "value": left_out.value, "holds": left_out.holds},
        "fitted": one.fitted,
    }


def held_out_text(found: Sequence[HeldOutFigure]) -> str:
    """Return the leave-one-out errors as a table to read."""
    lines = [("figure left out", "published or measured", "predicted", "error", "90 % interval", "")]
    for one in found:
        scale, unit = {"step": (1.0, "times") if one.is_ratio else (1e-3, "ms"), "traffic": (1e9, "GB/s")}.get(
            one.quantity, (0.01, "%")
        )
        lines.append(
            (
                one.name,
                f"{one.bound} {one.published / scale:.4g} {unit}".strip(),
                f"{one.predicted / scale:.4g} {unit}",
                "" if one.bound else f"{one.error:+.0%}",
                f"{one.low / scale:.3g} .. {one.high / scale:.3g}",
                "" if one.inside else "outside",
            )
        )
    figures = [one for one in found if not one.bound]
    scaling = [abs(error) for error in scaling_errors(tuple(found)).values()]
    inside = sum(one.inside for one in figures)
    kept = sum(one.inside for one in found if one.bound)
    near = sum(error <= SCALING_TOLERANCE for error in scaling)
    closing = (
        f"Median error of a published step {median_error(tuple(found)):.1%}, of a measured one "
        f"{median_error(tuple(found), measured=True):.1%}; {inside} of {len(figures)} intervals hold their "
        f"figure; {kept} of {len(found) - len(figures)} bounds are kept. From one to eight GPUs: {near} of "
        f"{len(scaling)} ratios within {SCALING_TOLERANCE:.0%}."
    )
    return f"{_aligned_columns(lines, 1)}\n\n{closing}"
