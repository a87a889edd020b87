"""A simulation, and its comparison with the model, as text and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.model.prediction import format_seconds
from benchmarks.simulation.chakra import Trace
from benchmarks.simulation.comparison import WORST_OF_WORKLOAD, ComparedCell, farthest, summary
from benchmarks.simulation.links import CORES
from benchmarks.simulation.result import StepSimulation
from benchmarks.simulation.trace import TraceSimulation
from hostwire.training import Spec


def simulation_text(spec: Spec, found: StepSimulation) -> str:
    """Return a simulation as lines of text."""
    head = (
        f"{spec.workload} on {spec.devices} devices: {format_seconds(found.step_seconds)} a step, "
        f"{format_seconds(min(found.steps))} to {format_seconds(max(found.steps))} over {len(found.steps)}; "
        f"{spec.global_batch / found.step_seconds:,.0f} samples a second (simulated)"
    )
    lines = [head, ""]
    for label, seconds in (
        ("Compute", found.compute),
        ("Exchange that is waited for", found.exposed),
        ("Waiting for the slowest device", found.late),
        ("Waiting for samples", found.input_wait),
        ("Copying samples", found.copying),
        ("Optimiser", found.optimiser),
    ):
        lines.append(f"  {label:32}{format_seconds(seconds):>10}")
    meters = (
        f"  GPU in use {found.kernel_busy:.0%} (a kernel runs, or waits), computing {found.compute_busy:.0%}, "
        f"memory busy {found.memory_busy:.0%}; CPU {found.cpu_share:.0%}"
    )
    lines += ["", meters, f"  PCIe of devices in chassis {found.traffic / 1e9:.1f} GB/s, both ways"]
    shared = {name: rate for name, rate in found.links.items() if not name.endswith(("/in", "/out", CORES)) and rate}
    lines += [f"  {name}: {rate / 1e9:.2f} GB/s" for name, rate in sorted(shared.items())]
    return "\n".join(lines)


def trace_text(trace: Trace, found: TraceSimulation) -> str:
    """Return the play of a trace as lines of text."""
    lines = [
        f"A trace of {found.nodes:,} nodes on {found.devices} devices: {format_seconds(found.seconds)} (simulated)",
        "",
        f"  {'Kernels, as the trace has them':32}{format_seconds(found.computed):>10}",
        f"  {'Exchange':32}{format_seconds(found.exchanged):>10}",
        f"  {'Exchange without a kernel':32}{format_seconds(found.exposed):>10}",
        "",
        f"  Each device sends {found.sent / 1e9:.3f} GB for the exchange",
    ]
    lines += [f"  {name}: {size / 1e9:.3f} GB" for name, size in sorted(trace.collective_bytes.items())]
    return "\n".join(lines)


def comparison_text(cells: Sequence[ComparedCell]) -> str:
    """Return how far simulation and model are apart, and the cells where they are farthest."""
    found = summary(cells)
    head = (
        f"{found.cells} random compositions, simulation against model: the step differs by {found.median:.1%} (median; "
        f"with sign {found.bias:+.1%}), {found.within_10:.0%} within 10 %, {found.within_20:.0%} within 20 %."
    )
    lines = [head, f"The farthest, at most {WORST_OF_WORKLOAD} of a workload:", ""]
    for cell in farthest(cells):
        terms = ", ".join(f"{name} {own * 1e3:.3g}/{other * 1e3:.3g}" for name, (own, other) in cell.terms.items())
        both = (
            f"      simulated {format_seconds(cell.simulated.step_seconds)}, predicted "
            f"{format_seconds(cell.predicted.step_seconds)}; ms of both: {terms}"
        )
        lines += [f"{cell.difference:+.0%}  {cell.label}", both, f"      {cell.why}"]
    return "\n".join(lines)


def comparison_json(cells: Sequence[ComparedCell]) -> dict[str, Any]:
    """Return a comparison for programs; times in seconds."""
    return {
        **asdict(summary(cells)),
        "worst": [
            {
                "cell": cell.label,
                "simulated": cell.simulated.step_seconds,
                "predicted": cell.predicted.step_seconds,
                "difference": cell.difference,
                "terms": {name: {"simulated": own, "predicted": other} for name, (own, other) in cell.terms.items()},
                "why": cell.why,
            }
            for cell in farthest(cells)
        ],
    }
