"""Predictions beside runs: what the performance model says of the same work in the same place, as rows of their own.

They are made of what was published alone, not of the runs that they stand beside: so they tell how far it is off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from benchmarks.figures.labels import fields_of
from benchmarks.figures.rows import Row, counted, named, nothing
from benchmarks.model import ModelError, predict
from benchmarks.model.shapes import Prediction
from benchmarks.runs.summary import Figure, Summary

MOST: Final = 100
SOURCE: Final = "Predictions are the performance model's own before any run: published rates and data sheets (prior)."


def predicted_rows(rows: Sequence[Row]) -> tuple[list[Row], list[str]]:
    """Return a prediction for each distinct work and place of some runs, and sentences on what they are."""
    found: dict[tuple[object, ...], Row] = {}
    unfit: list[Row] = []
    for row in rows:
        if row.spec is None or row.topology is None or not row.is_training or row.provenance == "predicted":
            continue
        key = (row.workload, tuple(sorted(fields_of(row.spec).items(), key=str)), repr(row.topology))
        if key in found or len(found) >= MOST:
            continue
        try:
            prediction = predict(row.spec, row.topology)
        except ModelError:  # it knows no such workload
            unfit.append(row)
            continue
        if prediction.fits:
            unfit.append(row)
            continue
        found[key] = _row(row, prediction)
    notes = [SOURCE] if found else []
    if unfit:
        notes.append(f"The model predicts nothing for {counted(unfit, 'run')} ({named(unfit)}).")
    return list(found.values()), notes


def _row(row: Row, prediction: Prediction) -> Row:
    step = prediction.step_seconds
    low, high = prediction.interval.low, prediction.interval.high
    to, back = (sum(way) / step for way in zip(*(prediction.pcie_bytes.values() or [(0.0, 0.0)]), strict=True))
    devices = len(prediction.pcie_bytes) or 1
    return replace(
        row,
        id=f"predicted of {row.id}",
        title=f"{row.title}, predicted",
        provenance="predicted",
        keys=frozenset(),
        read=nothing,
        software={},
        summary=Summary(
            step_seconds=_figure(step, "s", low, high),
            samples_per_second=_figure(prediction.samples_per_second, "1/s"),
            readings={
                "utilisation": _figure(prediction.utilisation, "share"),
                "memory_used": _figure(prediction.memory_bytes, "B"),
                "pcie_to": _figure(to / devices, "B/s"),
                "pcie_from": _figure(back / devices, "B/s"),
            },
            pcie=_figure(prediction.pcie_bytes_per_second, "B/s") if prediction.pcie_bytes_per_second else None,
        ),
    )


def _figure(value: float, unit: str, low: float | None = None, high: float | None = None) -> Figure:
    return Figure(value=value, low=value if low is None else low, high=value if high is None else high, unit=unit)
