"""A prediction with its interval, its terms and what it rests on."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from benchmarks.model.belief import Belief, Draws, cell_key, formula, step_seconds
from benchmarks.model.facts import DEVICES, device_facts
from benchmarks.model.features import columns, features_of, is_link, used
from benchmarks.model.memory import fits, memory_bytes
from benchmarks.model.parameters import INDEX, NAMES, Floats
from benchmarks.model.prior import prior
from benchmarks.model.shapes import LOCAL, Accelerator, Basis, Interval, Prediction, Term, Topology
from benchmarks.model.step import Times, ring_bytes, times, traffic
from hostwire.training import Spec

COUNT, SEED, PROBABILITY = 400, 20201127, 0.9
RATES_SOURCE = "published rates on V100 and data sheets"
LINKS_SOURCE = "published GPU-to-GPU table"
EDGES = {
    "nvlink": "NVLink",
    "switch": "a switch of the chassis",
    "across": "the host's ports",
    "loopback": "the loopback interface",
}


def predict(spec: Spec, topology: Topology, belief: Belief | None = None, *, count: int = COUNT) -> Prediction:
    """Return the prediction of one run; without a belief, the prior's.

    Of `count` draws. Raises ModelError of a workload that there is no model of, or of too few devices.
    """
    belief = belief or prior()
    draws, cell = belief.draws(count, SEED), (spec, topology)
    drawn = step_seconds(draws, [cell])[:, 0]
    # A median over the formula's draws, which does not scatter: more bandwidth is never slower.
    centre = float(np.median(step_seconds(draws, [cell], misfit=False)))
    low, high = np.quantile(drawn, [(1 - PROBABILITY) / 2, (1 + PROBABILITY) / 2])
    raw = float(formula(belief.centre(), [cell])[0, 0])
    basis, sentence = _basis(spec, topology, belief)
    if is_link(spec):
        parts: tuple[Term, ...] = (_link_term(spec, centre),)
        bytes_each: Mapping[str, tuple[float, float]] = {}
        rate, utilisation = 0.0, 0.0
    else:
        row = columns([features_of(spec, topology)])
        found = times(belief.mean[None], row)
        # What was measured beside the formula is felt by all terms alike, as is what a median of draws differs by.
        parts = _terms(spec, belief, row, found, centre / raw, told=basis != "prior")
        rate = float(traffic(belief.mean[None], row, np.array([[centre]]))[0, 0])
        bytes_each = _bytes(spec, topology, belief, row)
        utilisation = min(1.0, (parts[0].seconds + parts[3].seconds) / centre)
    return Prediction(
        spec=spec,
        topology=topology,
        step_seconds=centre,
        interval=Interval(low=min(float(low), centre), high=max(float(high), centre), probability=PROBABILITY),
        samples_per_second=spec.global_batch / centre,
        terms=parts,
        pcie_bytes=bytes_each,
        pcie_bytes_per_second=rate,
        memory_bytes=memory_bytes(spec),
        fits=fits(spec, topology),
        utilisation=utilisation,
        basis=basis,
        basis_sentence=sentence,
    )


def _basis(spec: Spec, topology: Topology, belief: Belief) -> tuple[Basis, str]:
    measured = belief.measured.get(cell_key(spec, topology))
    if measured is not None:
        runs = "one run" if measured.runs == 1 else f"{measured.runs} runs"
        return "measured", f"Measured: {runs} of just this on an equal topology, weighed with the model."
    count = belief.runs.get(spec.workload, 0)
    if count and not is_link(spec):
        runs = "one run" if count == 1 else f"{count} runs"
        return "calibrated", f"Calibrated: the model was fitted to {runs} of {spec.workload}, none of just this."
    known = "runs of other workloads, published rates" if belief.runs else "Published rates"
    sentence = f"Prior: no run of {spec.workload} is known. {known[0].upper()}{known[1:]} and data sheets say this."
    doubtful = [device.model for device in used(spec, topology) if device_facts(device.model) is DEVICES["other"]]
    if doubtful:
        sentence += f" No data sheet of '{doubtful[0]}' is known: it is taken for a V100-PCIE, with much doubt."
    return "prior", sentence


def _link_term(spec: Spec, seconds: float) -> Term:
    what = "reads of the drive" if spec.workload == "storage_read" else "transfers"
    name = "input" if spec.workload == "storage_read" else "communication"
    return Term(name=name, seconds=seconds, why=f"{seconds_told(seconds)} of {what} a step.", source=LINKS_SOURCE)


def _terms(
    spec: Spec, belief: Belief, row: Mapping[str, Floats], found: Times, factor: float, *, told: bool
) -> tuple[Term, Term, Term, Term]:
    """Return compute, communication, input and optimiser; they add up to the step."""

    def one(values: Floats) -> float:
        return float(values[0, 0])

    rate = one(found.compute) and spec.batch * spec.accumulation / one(found.compute)
    pieces = [f"{spec.batch * spec.accumulation} samples a device at {_told(rate)} a second"]
    if told and abs(factor - 1) > 0.005:
        pieces.append(f"all terms {factor - 1:+.0%} by what runs of this specification showed")
    compute = Term(
        name="compute",
        seconds=one(found.compute) * factor,
        why=f"{seconds_told(one(found.compute) * factor)}: {'; '.join(pieces)}.",
        source=RATES_SOURCE,
    )
    exposed, exchange = one(found.exposed) * factor, one(found.exchange) * factor
    communication = Term(
        name="communication", seconds=exposed, why=_exchange(belief, row, found, exposed, exchange), source=LINKS_SOURCE
    )
    waited = one(found.waited) * factor
    inputs = {"preparing": one(found.decode), "reading": one(found.read), "copying to devices": one(found.copied)}
    slowest = max(inputs, key=lambda name: inputs[name])
    samples = float(row["samples"][0]) / max(one(found.input), 1e-9)
    why = (
        f"{seconds_told(waited)} waited: the input takes {seconds_told(one(found.input) * factor)} a step, "
        f"most of it {slowest} ({_told(samples)} samples a second, {row['cores'][0]:.0f} cores)."
    )
    source = "rate of an input-bound network, drives' data sheets"
    optimiser = one(found.optimiser) * factor
    return (
        compute,
        communication,
        Term(name="input", seconds=waited, why=why, source=source),
        Term(
            name="optimiser",
            seconds=optimiser,
            why=f"{seconds_told(optimiser)}: weights and moments are read and written at the memory's rate.",
            source="data sheets",
        ),
    )


def _exchange(belief: Belief, row: Mapping[str, Floats], found: Times, exposed: float, exchange: float) -> str:
    if row["devices"][0] == 1:
        return "0 s: one device has nobody to exchange gradients with."
    values = np.exp(belief.mean[: len(NAMES)])
    slowest = min(EDGES, key=lambda kind: values[INDEX[kind]] * row[f"{kind}_rate"][0])
    sent = float(ring_bytes(belief.mean[None], row)[0, 0])
    hidden = max(0.0, exchange - exposed)
    return (
        f"{seconds_told(exposed)} exposed of {seconds_told(exchange)}: each device sends {sent / 1e6:.0f} MB a step, "
        f"the slowest edge is {EDGES[slowest]} at {float(found.rate[0, 0]) / 1e9:.3g} GB/s; "
        f"{seconds_told(hidden)} hide behind the computation."
    )


def _bytes(spec: Spec, topology: Topology, belief: Belief, row: Mapping[str, Floats]) -> dict[str, tuple[float, float]]:
    """Return the bytes that ports count for each device a step, to it and from it."""
    values = np.exp(belief.mean)
    counted = float(values[INDEX["count"]])
    copied = float(row["copy_bytes"][0] * values[INDEX["sample"]]) * counted
    sent = float(ring_bytes(belief.mean[None], row)[0, 0]) * counted
    devices = sorted(used(spec, topology), key=lambda device: device.place)
    return {
        device.name: (
            copied + sent * _over_pcie(devices[index - 1], device, topology),
            sent * _over_pcie(device, devices[(index + 1) % len(devices)], topology),
        )
        for index, device in enumerate(devices)
    }


def _over_pcie(one: Accelerator, other: Accelerator, topology: Topology) -> bool:
    """Whether what one device of a ring sends to the next goes over PCIe."""
    return one.place != LOCAL or other.place != LOCAL or topology.local_fabric == "pcie"


def _told(rate: float) -> str:
    """Return a rate with three digits, of thousands all of them."""
    return f"{rate:,.0f}" if rate >= 1000 else f"{rate:.3g}"


def seconds_told(seconds: float) -> str:
    """Return a duration with three digits."""
    if seconds < 1e-9:
        return "0 s"
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"


def draws_of(belief: Belief | None = None, count: int = COUNT) -> Draws:
    """Return the draws that `predict` uses."""
    return (belief or prior()).draws(count, SEED)
