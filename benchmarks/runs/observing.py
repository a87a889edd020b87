"""What the performance model learns from: completed runs of training, as far as a person sees them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from functools import cache
from typing import Any, Final

import msgspec
import numpy as np

from accounts.models import User
from benchmarks import model
from benchmarks.model.shapes import Observation, Topology
from benchmarks.runs.models import Run
from benchmarks.runs.summary import Figure, Summary, summary_of

# What happened. Simulated runs go as the model says: to learn from them would be to learn from oneself; so it would be
# from an imported record of one.
REAL: Final = (Run.Provenance.MEASURED, Run.Provenance.IMPORTED)
UNREAL: Final = (Run.Provenance.SIMULATED, Run.Provenance.PREDICTED)
MOST: Final = 500  # of the newest
NARROWEST: Final = 0.005  # the relative spread that a median is believed to have at least
NINETY: Final = 3.29  # standard deviations of a normal distribution between its 5th and 95th percentile
OF_MEDIAN: Final = 1.2533  # the standard error of a median by that of a mean


def observations(
    person: User, workload: str | None = None, *, provenances: Collection[str] = REAL
) -> list[Observation]:
    """Return what completed runs that the person sees have shown, the newest first, 500 at most.

    Measured and imported ones unless `provenances` says otherwise: simulated ones are never among those. Runs without
    step times, or whose topology nobody knows, are left out.
    """
    rows = Run.objects.visible_to(person).filter(state=Run.State.COMPLETED, provenance__in=provenances)
    if workload is not None:
        rows = rows.filter(workload=workload)
    if set(provenances) == set(REAL):
        rows = rows.exclude(provenance=Run.Provenance.IMPORTED, source__provenance__in=UNREAL)
    return observed(rows.order_by("-queued_at")[:MOST])


def observed(runs: Iterable[Run]) -> list[Observation]:
    """Return what these runs have shown, those left out that show nothing of step times, or that nothing is known of.

    A record from elsewhere may say anything of its sizes and links: one that cannot be teaches nobody.
    """
    found = (observation_of(run) for run in runs)
    return [one for one in found if one is not None and _is_known(one)]


def _is_known(one: Observation) -> bool:
    try:
        with np.errstate(all="ignore"):
            seconds = model.step_seconds(_draw(), [(one.spec, one.topology)])
    except (model.ModelError, ArithmeticError, TypeError, ValueError):
        return False
    return bool(np.isfinite(seconds).all() and (seconds > 0).all())


@cache
def _draw() -> model.Draws:
    return model.prior().draws(1, 0)


def observation_of(run: Run) -> Observation | None:
    """Return what a run has shown; None where it has no step times, or nobody knows what it ran on."""
    topology = topology_kept(run)
    summary = summary_of(run)
    if topology is None or summary.step_seconds is None or not topology.accelerators:
        return None
    try:
        spec = run.specification()
    except msgspec.ValidationError:
        return None
    return Observation(
        spec=spec,
        topology=topology,
        step_seconds=summary.step_seconds.value,
        spread=_spread(summary.step_seconds),
        traffic=_traffic(summary),
        run=str(run.pk),
    )


def topology_kept(run: Run) -> Topology | None:
    """Return what a run ran on, as it was kept; None where nobody knows."""
    plain: Any = run.topology
    if not plain:
        return None
    try:
        return msgspec.convert(plain, Topology)
    except msgspec.ValidationError:
        return None


def _spread(steps: Figure) -> float:
    """Return the relative standard error of a median, by the spread of its values."""
    if steps.value <= 0 or steps.count < 2:
        return 0.05
    one = (steps.high - steps.low) / NINETY / steps.value
    return max(NARROWEST, OF_MEDIAN * one / math.sqrt(steps.count))


def _traffic(summary: Summary) -> float | None:
    return summary.pcie.value if summary.pcie is not None else None
