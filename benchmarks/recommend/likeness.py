"""What the model leaves out of a cell, alike for cells that are alike: so that a run tells of its neighbours too.

A cell is a specification on a topology. The logarithm of what a step really takes, over what the model says, is a
Gaussian process over cells whose covariance falls with how much they differ; draws of it, given what was measured, are
added to the draws of the model. A cell that was measured comes to what was measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.model.shapes import LOCAL, Topology
from hostwire.training import Spec

Array = NDArray[np.float64]
# How far cells are apart that differ in a sort, or by a doubling of a size; at 1 a covariance is down to 37 %.
SORTS: Final = (1.5, 0.4, 0.4, 0.4, 0.6, 0.3, 0.2, 0.01)
SIZES: Final = (0.15, 0.15, 0.1, 0.4, 0.1)
NARROWEST: Final = 0.005  # relative spread that a measured median is believed to have at least


@dataclass(frozen=True)
class Likeness:
    """A cell as others are compared with it: what differs or not, and what differs by more or less."""

    sorts: tuple[object, ...]
    sizes: tuple[float, ...]


def likeness_of(spec: Spec, topology: Topology) -> Likeness:
    """Return what tells a cell from others."""
    gpus = topology.accelerators
    shape: dict[str, dict[tuple[str, int, int], int]] = {}
    for gpu in gpus:
        key = (gpu.model, gpu.link.lanes, gpu.link.generation)
        shape.setdefault(gpu.place, {})[key] = shape.setdefault(gpu.place, {}).get(key, 0) + 1
    places = [place for place in shape if place != LOCAL]
    local = sum(shape.get(LOCAL, {}).values())
    uplinks = [topology.uplinks[place] for place in places if place in topology.uplinks]
    slowest = min((link.lanes * 2.0**link.generation for link in uplinks), default=128.0)
    exact = (
        tuple(sorted(
            (place == LOCAL, tuple(sorted(held.items())),
             (link.lanes, link.generation) if (link := topology.uplinks.get(place)) is not None else ())
            for place, held in shape.items()
        )),
        tuple(sorted(spec.options.items())),
        (spec.gradient, spec.bucket_bytes, spec.accumulation, spec.loader_workers, spec.threads),
        topology.cores,
    )  # fmt: skip
    storage = (topology.storage.model, topology.storage.place == LOCAL)
    return Likeness(
        sorts=(
            spec.workload, spec.precision, spec.strategy, spec.compile, frozenset(gpu.model for gpu in gpus),
            storage, topology.local_fabric if local > 1 else "", exact,
        ),
        sizes=(
            math.log2(max(1, len(gpus))), math.log2(spec.batch), float(len(places)), local / max(1, len(gpus)),
            math.log2(slowest),
        ),
    )  # fmt: skip


def covariance(some: Sequence[Likeness], others: Sequence[Likeness]) -> Array:
    """Return how alike cells are, 1 for the same: a row for each of some, a column for each of the others."""
    distance = np.zeros((len(some), len(others)))
    for nth, weight in enumerate(SORTS):
        numbers: dict[object, int] = {}
        left, right = (
            np.array([numbers.setdefault(one.sorts[nth], len(numbers)) for one in cells], dtype=int)
            for cells in (some, others)
        )
        distance += weight * (left[:, None] != right[None, :])
    for nth, weight in enumerate(SIZES):
        left_sizes = np.array([one.sizes[nth] for one in some])
        right_sizes = np.array([one.sizes[nth] for one in others])
        distance += weight * np.abs(left_sizes[:, None] - right_sizes[None, :])
    found: Array = np.exp(-distance)
    return found


@dataclass(frozen=True)
class Seen:
    """What was measured of a cell: the logarithm of seconds a step, and its spread."""

    likeness: Likeness
    logarithm: float
    spread: float


def left_out(
    cells: Sequence[Likeness], seen: Sequence[Seen], modelled: Array, *, draws: int, floor: float, seed: int = 1
) -> Array:
    """Return draws of what the model leaves out of cells (logarithms), by draw and cell, given what was measured.

    `floor` is the standard deviation of it before any run, `modelled` are logarithms of what the model says of the
    cells that were measured, by draw and cell.
    """
    every = [*cells, *(one.likeness for one in seen)]
    count = len(cells)
    whole = floor**2 * covariance(every, every)
    root = np.linalg.cholesky(whole + 1e-8 * floor**2 * np.eye(len(every)))
    random = np.random.default_rng(seed)
    prior = random.standard_normal((draws, len(every))) @ root.T
    if not seen:
        return prior
    spreads = np.array([max(one.spread, NARROWEST) for one in seen])
    measured = np.array([one.logarithm for one in seen])[None, :] + random.standard_normal((draws, len(seen))) * spreads
    residual = measured - modelled - prior[:, count:]
    gain = np.linalg.solve(whole[count:, count:] + np.diag(spreads**2), whole[count:, :count])
    found: Array = prior[:, :count] + residual @ gain
    return found
