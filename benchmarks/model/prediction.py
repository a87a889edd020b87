"""A prediction with its interval, its terms and its basis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from benchmarks.model.belief import Belief, Draws, apply_misfit, cell_key, formula_seconds
from benchmarks.model.calibration import prior
from benchmarks.model.features import (
    accelerators_used,
    feature_columns,
    features_of,
    is_link_workload,
)
from benchmarks.model.memory import fits, memory_bytes
from benchmarks.model.meter import meter_readings
from benchmarks.model.reference_data import (
    DEVICE_DATASHEETS,
    PARAMETER_INDEX,
    PARAMETER_NAMES,
    Floats,
    device_datasheet,
)
from benchmarks.model.step_time import StepTimes, counted_traffic, edge_rates, ring_bytes, step_times
from benchmarks.model.topology import LOCAL, Accelerator, Topology
from benchmarks.workloads.catalogue import workload_title
from core.language import _, _n, gettext_noop, joined
from hostwire.training import Spec

DRAW_COUNT, DRAW_SEED, PROBABILITY = 400, 20201127, 0.9
INTERVAL_QUANTILES = (1 - PROBABILITY) / 2, (1 + PROBABILITY) / 2  # of draws: the ends of an interval
RATES_SOURCE = "published rates on V100, steps measured on an H100, and data sheets"
LINKS_SOURCE = "published GPU-to-GPU table"
TERM_LABELS: Final = {
    "compute": gettext_noop("Compute"),
    "communication": gettext_noop("Communication"),
    "input": gettext_noop("Input"),
    "optimiser": gettext_noop("Optimiser"),
}
EDGE_LABELS = {
    "nvlink": "NVLink",
    "switch": gettext_noop("a switch of the chassis"),
    "across": gettext_noop("the host's ports"),
    "drawers": gettext_noop("the way between two drawers"),
    "loopback": gettext_noop("the loopback interface"),
}


def predict(spec: Spec, topology: Topology, belief: Belief | None = None, *, count: int = DRAW_COUNT) -> Prediction:
    """Return the prediction of one run; without a belief, the prior's.

    Uses `count` draws. Raises ModelError for a workload without a model, or too few devices.
    """
    belief = belief or prior()
    draws, cell = belief.draws(count, DRAW_SEED), (spec, topology)
    formula = formula_seconds(draws, [cell])
    drawn = apply_misfit(draws, [cell], formula)[:, 0]
    # A median over the formula's draws without misfit does not scatter: more bandwidth is never slower.
    centre = float(np.median(apply_misfit(draws, [cell], formula, scatter=False)))
    low, high = np.quantile(drawn, INTERVAL_QUANTILES)
    raw = float(formula_seconds(belief.centre(), [cell])[0, 0])
    basis, sentence = _basis(spec, topology, belief)
    if is_link_workload(spec):
        parts: tuple[StepTerm, ...] = (_link_term(spec, centre),)
        bytes_each: Mapping[str, tuple[float, float]] = {}
        rate, shares = 0.0, [0.0] * 4
    else:
        row = feature_columns([features_of(spec, topology)])
        found = step_times(belief.mean[None], row)
        # What was measured beside the formula is felt by all terms alike, as is what a median of draws differs by.
        parts = _terms(spec, belief, row, found, centre / raw, has_runs=basis != "prior")
        rate = float(counted_traffic(belief.mean[None], row, np.array([[centre]]))[0, 0])
        bytes_each = _device_bytes(spec, topology, belief, row)
        read = meter_readings(found, row)
        shares = [
            float(share[0, 0]) for share in (read.utilisation, read.compute_share, read.memory_share, read.cpu_share)
        ]
    return Prediction(
        spec=spec,
        topology=topology,
        step_seconds=centre,
        interval=PredictionInterval(
            low=min(float(low), centre), high=max(float(high), centre), probability=PROBABILITY
        ),
        samples_per_second=spec.global_batch / centre,
        terms=parts,
        pcie_bytes=bytes_each,
        pcie_bytes_per_second=rate,
        memory_bytes=memory_bytes(spec),
        fits=fits(spec, topology),
        utilisation=shares[0],
        compute_share=shares[1],
        memory_share_busy=shares[2],
        cpu_share=shares[3],
        basis=basis,
        basis_sentence=sentence,
    )


def _basis(spec: Spec, topology: Topology, belief: Belief) -> tuple[Basis, str]:
    measured = belief.measured.get(cell_key(spec, topology))
    if measured is not None:
        return "measured", _n(
            "Measured: one run of exactly this on an equal topology, combined with the model.",
            "Measured: {count} runs of exactly this on an equal topology, combined with the model.",
            measured.runs,
        )
    count = belief.runs.get(spec.workload, 0)
    if count and not is_link_workload(spec):
        return "calibrated", _n(
            "Calibrated: the model was fitted to one run of {workload}, none of exactly this.",
            "Calibrated: the model was fitted to {count} runs of {workload}, none of exactly this.",
            count,
            workload=workload_title(spec.workload),
        )
    if belief.runs:
        sentence = _(
            "Prior: no run of {workload} is known. Runs of other workloads, published rates and data sheets are its "
            "basis.",
            workload=workload_title(spec.workload),
        )
    else:
        sentence = _(
            "Prior: no run of {workload} is known. Published rates and data sheets are its basis.",
            workload=workload_title(spec.workload),
        )
    doubtful = [
        device.model
        for device in accelerators_used(spec, topology)
        if device_datasheet(device.model) is DEVICE_DATASHEETS["other"]
    ]
    if doubtful:
        doubt = _(
            "No data sheet of '{model}' is known: it is taken for a V100-PCIE, with much doubt.", model=doubtful[0]
        )
        sentence = joined([sentence, doubt])
    return "prior", sentence


def _link_term(spec: Spec, seconds: float) -> StepTerm:
    name = "input" if spec.workload == "storage_read" else "communication"
    shown = format_seconds(seconds)
    why = (
        _("{seconds} of reads of the drive a step.", seconds=shown)
        if spec.workload == "storage_read"
        else _("{seconds} of transfers a step.", seconds=shown)
    )
    return StepTerm(name=name, seconds=seconds, why=why, source=LINKS_SOURCE)


def _terms(
    spec: Spec, belief: Belief, row: Mapping[str, Floats], found: StepTimes, factor: float, *, has_runs: bool
) -> tuple[StepTerm, StepTerm, StepTerm, StepTerm]:
    """Return compute, communication, input and optimiser; they add up to the step."""

    def one(values: Floats) -> float:
        return float(values[0, 0])

    rate = one(found.compute) and spec.batch * spec.accumulation / one(found.compute)
    pieces = [
        _n(
            "{count} sample a device at {rate} a second",
            "{count} samples a device at {rate} a second",
            spec.batch * spec.accumulation,
            rate=_format_rate(rate),
        )
    ]
    if has_runs and abs(factor - 1) > 0.005:
        pieces.append(_("all terms {change:+.0%} by what runs of this specification showed", change=factor - 1))
    compute = StepTerm(
        name="compute",
        seconds=one(found.compute) * factor,
        why=_("{seconds}: {facts}.", seconds=format_seconds(one(found.compute) * factor), facts=joined(pieces, "; ")),
        source=RATES_SOURCE,
    )
    exposed, exchange = one(found.exposed) * factor, one(found.exchange) * factor
    communication = StepTerm(
        name="communication",
        seconds=exposed,
        why=_exchange_sentence(belief, row, found, exposed, exchange),
        source=LINKS_SOURCE,
    )
    waited = one(found.waited) * factor
    inputs = {
        _("preparing"): one(found.decode),
        _("reading"): one(found.read),
        _("copying to devices"): one(found.copied),
    }
    slowest = max(inputs, key=lambda name: inputs[name])
    samples = float(row["samples"][0]) / max(one(found.input), 1e-9)
    why = _(
        "{waited} waited: the input takes {seconds} a step, most of it {slowest} ({rate} samples a second, "
        "{cores:.0f} cores).",
        waited=format_seconds(waited),
        seconds=format_seconds(one(found.input) * factor),
        slowest=slowest,
        rate=_format_rate(samples),
        cores=row["cores"][0],
    )
    source = "rate of an input-bound network, drives' data sheets"
    optimiser = one(found.optimiser) * factor
    return (
        compute,
        communication,
        StepTerm(name="input", seconds=waited, why=why, source=source),
        StepTerm(
            name="optimiser",
            seconds=optimiser,
            why=_(
                "{seconds}: weights and moments are read and written at the memory's rate.",
                seconds=format_seconds(optimiser),
            ),
            source="data sheets",
        ),
    )


def _exchange_sentence(
    belief: Belief, row: Mapping[str, Floats], found: StepTimes, exposed: float, exchange: float
) -> str:
    if row["devices"][0] == 1:
        return _("0 s: a single device exchanges no gradients.")
    values = np.exp(belief.mean[: len(PARAMETER_NAMES)])
    rates = edge_rates(lambda name: values[PARAMETER_INDEX[name]], row)
    slowest = min(EDGE_LABELS, key=lambda kind: float(rates[kind][0]))
    sent = float(ring_bytes(belief.mean[None], row)[0, 0])
    hidden = max(0.0, exchange - exposed)
    return _(
        "{exposed} exposed of {exchange}: each device sends {sent:.0f} MB a step, the slowest edge is {edge} at "
        "{rate:.3g} GB/s; {hidden} hide behind the computation.",
        exposed=format_seconds(exposed),
        exchange=format_seconds(exchange),
        sent=sent / 1e6,
        edge=_(EDGE_LABELS[slowest]),
        rate=float(found.rate[0, 0]) / 1e9,
        hidden=format_seconds(hidden),
    )


def _device_bytes(
    spec: Spec, topology: Topology, belief: Belief, row: Mapping[str, Floats]
) -> dict[str, tuple[float, float]]:
    """Return the bytes that ports count for each device a step, to it and from it."""
    values = np.exp(belief.mean)
    counted = float(values[PARAMETER_INDEX["count"]])
    copied = float(row["copy_bytes"][0] * values[PARAMETER_INDEX["sample"]]) * counted
    sent = float(ring_bytes(belief.mean[None], row)[0, 0]) * counted
    devices = sorted(accelerators_used(spec, topology), key=lambda device: device.place)
    return {
        device.name: (
            copied + sent * _over_pcie(devices[index - 1], device, topology),
            sent * _over_pcie(device, devices[(index + 1) % len(devices)], topology),
        )
        for index, device in enumerate(devices)
    }


def _over_pcie(one: Accelerator, other: Accelerator, topology: Topology) -> bool:
    """Return whether traffic from one device of a ring to the next uses PCIe."""
    return one.place != LOCAL or other.place != LOCAL or topology.local_fabric == "pcie"


def _format_rate(rate: float) -> str:
    """Return a rate with three digits, of thousands all of them."""
    return f"{rate:,.0f}" if rate >= 1000 else f"{rate:.3g}"


def format_seconds(seconds: float) -> str:
    """Return a duration with three digits."""
    if seconds < 1e-9:
        return "0 s"
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"


def prediction_draws(belief: Belief) -> Draws:
    """Return the draws that `predict` uses."""
    return belief.draws(DRAW_COUNT, DRAW_SEED)


# The basis of a figure: runs of exactly this, a model fitted to other runs, or published rates and data sheets.
Basis = Literal["measured", "calibrated", "prior"]
BASIS_LABELS: Final[Mapping[Basis, str]] = {
    "measured": gettext_noop("measured"),
    "calibrated": gettext_noop("calibrated"),
    "prior": gettext_noop("prior"),
}


@dataclass(frozen=True, kw_only=True)
class PredictionInterval:
    """The value is between `low` and `high` with `probability`."""

    low: float
    high: float
    probability: float = 0.9


@dataclass(frozen=True, kw_only=True)
class StepTerm:
    """A part of a step: 'compute', 'communication' (the exposed part), 'input' (the waiting time), 'optimiser'.

    `why` is a sentence with its numbers, `source` their origin.
    """

    name: str
    seconds: float
    why: str
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A predicted run. `pcie_bytes` are of one step and device: (to the device, from it), by the accelerator's name.

    `fits` is '' or the sentence with the number of why a device's memory is too small. `step_seconds` is the median.
    """

    spec: Spec
    topology: Topology
    step_seconds: float
    interval: PredictionInterval
    samples_per_second: float
    terms: tuple[StepTerm, ...]
    pcie_bytes: Mapping[str, tuple[float, float]]
    pcie_bytes_per_second: float  # of all accelerators that are not local, both ways
    memory_bytes: float  # of one device
    fits: str
    utilisation: float  # as NVML reads it: share of a step in which any kernel runs, waiting ones too
    compute_share: float  # of a step, in which devices compute
    memory_share_busy: float  # of a step, in which kernels access device memory
    cpu_share: float  # of the host's cores, which prepare samples
    basis: Basis
    basis_sentence: str
