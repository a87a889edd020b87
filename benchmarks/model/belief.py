"""What is believed of the parameters, and draws of it: mean and covariance of their logarithms, and what is left."""

from __future__ import annotations

import hashlib
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from benchmarks.model.features import columns, features_of, is_link
from benchmarks.model.links import link_seconds
from benchmarks.model.parameters import Floats
from benchmarks.model.shapes import LOCAL, Topology
from benchmarks.model.step import times, traffic
from hostwire.training import Spec

Cell = tuple[Spec, Topology]
SMALLEST = 1e-9  # s, of a step
# The formula's error that all topologies of one spec share; what is each cell's own is Belief.misfit.
SHARED_MISFIT = 0.06
# Of the variance of a cell's own error, what topologies share that differ in storage alone.
STORAGE_SHARES = 0.8


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What runs of one cell found: the logarithm of their step in seconds, its standard deviation, and how many."""

    log_seconds: float
    spread: float
    runs: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Belief:
    """Mean and covariance of the logarithms of PARAMETERS after `runs` (observations by workload).

    After the parameters come the formula's errors for the specs of `specs` (by hash), which were run. `misfit` is the
    relative error of one cell that is left, known with `freedom` degrees of freedom; `measured` has the cells that were
    run, by `cell_key`.
    """

    mean: Floats
    covariance: Floats
    misfit: float
    freedom: float
    specs: Mapping[str, int] = field(default_factory=dict)  # hash to column
    runs: Mapping[str, int] = field(default_factory=dict)
    measured: Mapping[str, Measured] = field(default_factory=dict)

    def draws(self, count: int = 400, seed: int = 0) -> Draws:
        """Return draws of the parameters and of the misfit's size; the same seed gives the same."""
        return _draws(self, count, seed)

    def centre(self) -> Draws:
        """Return the mean as the only draw, its misfit zero: for a quick look at many cells."""
        return Draws(belief=self, logs=self.mean[None], misfit=np.zeros(1), seed=0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Draws:
    """Draws of a belief: logarithms of parameters, one draw a row, and the size of the misfit of each."""

    belief: Belief
    logs: Floats
    misfit: Floats
    seed: int


@lru_cache(maxsize=16)
def _draws(belief: Belief, count: int, seed: int) -> Draws:
    random = np.random.default_rng(seed)
    values, vectors = np.linalg.eigh(belief.covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    logs = belief.mean + random.standard_normal((count, len(belief.mean))) @ root.T
    sizes = belief.misfit * np.sqrt(belief.freedom / random.chisquare(belief.freedom, count))
    return Draws(belief=belief, logs=logs, misfit=sizes, seed=seed)


def topology_key(topology: Topology, *, storage: bool = True) -> str:
    """Return what makes topologies equal to a run: hosts and devices may be others, places may have other names.

    Without `storage`, where and what the drive is makes no difference.
    """
    places = {device.place for device in topology.accelerators} | ({topology.storage.place} if storage else set())
    kinds = []
    for place in sorted(places):
        inside = Counter((device.model, device.link) for device in topology.accelerators if device.place == place)
        uplink = topology.uplinks.get(place) if place != LOCAL else None
        drive = (topology.storage.model, topology.storage.link) if storage and topology.storage.place == place else None
        members = sorted((model, link.lanes, link.generation, count) for (model, link), count in inside.items())
        kinds.append(repr((place == LOCAL, members, uplink, drive)))
    order = [device.place == LOCAL for device in topology.accelerators]
    return repr((sorted(kinds), order, topology.cores, topology.memory_bytes, topology.local_fabric))


def cell_key(spec: Spec, topology: Topology) -> str:
    """Return what makes two runs repetitions of each other: the spec's hash and the topology's key, as a digest."""
    return hashlib.sha256((spec.hash + topology_key(topology)).encode()).hexdigest()


def step_seconds(draws: Draws, cells: Sequence[Cell], *, misfit: bool = True) -> Floats:
    """Return the seconds of a step, draws by cells. Raises ModelError of a cell that cannot be.

    With `misfit` each cell has its own error of the formula, which is the same for the same cell and seed. Without it
    that error is zero, or what is known of it from runs: medians then do not scatter from one cell to the next. A
    measured cell is drawn to what was measured.
    """
    if not cells:
        return np.zeros((len(draws.logs), 0))
    return with_misfit(draws, cells, formula(draws, cells), scatter=misfit)


def formula(draws: Draws, cells: Sequence[Cell]) -> Floats:
    """Return the seconds of a step as the formula alone has it, draws by cells."""
    found = np.zeros((len(draws.logs), len(cells)))
    training = [index for index, (spec, _topology) in enumerate(cells) if not is_link(spec)]
    if training:
        found[:, training] = times(draws.logs, columns([features_of(*cells[index]) for index in training])).step
    for index, (spec, topology) in enumerate(cells):
        if is_link(spec):
            found[:, index] = link_seconds(draws.logs, spec, topology)
    return found


def with_misfit(draws: Draws, cells: Sequence[Cell], found: Floats, *, scatter: bool = True) -> Floats:
    """Return steps of the formula with the misfit of each cell, given what was measured of it."""
    logs = np.log(np.maximum(found, SMALLEST))
    belief = draws.belief
    for column, (spec, topology) in enumerate(cells):
        if not scatter and not belief.measured:
            break
        identity, key = spec.hash, cell_key(spec, topology)
        shared, measured = belief.specs.get(identity), belief.measured.get(key)
        if shared is not None:
            logs[:, column] += draws.logs[:, shared]
        elif scatter:
            logs[:, column] += SHARED_MISFIT * _normal(draws, identity)
        if measured is not None:
            weight = belief.misfit**2 / (belief.misfit**2 + measured.spread**2)
            logs[:, column] += weight * (measured.log_seconds - logs[:, column])
            if scatter:
                logs[:, column] += np.sqrt(weight) * measured.spread * _normal(draws, key)
        elif scatter:
            elsewhere = identity + topology_key(topology, storage=False)
            own = STORAGE_SHARES**0.5 * _normal(draws, elsewhere) + (1 - STORAGE_SHARES) ** 0.5 * _normal(draws, key)
            logs[:, column] += draws.misfit * own
    found_again: Floats = np.exp(logs)
    return found_again


def _normal(draws: Draws, name: str) -> Floats:
    """Return normal draws that are the same for the same name and seed."""
    random = np.random.Generator(np.random.Philox(key=[draws.seed, zlib.crc32(name.encode())]))
    return random.standard_normal(len(draws.logs))


def traffic_rate(draws: Draws, cells: Sequence[Cell]) -> Floats:
    """Return the bytes a second over the links of accelerators in chassis, both ways together, draws by cells.

    Cells train: a workload that measures links has no steady traffic.
    """
    rows = columns([features_of(spec, topology) for spec, topology in cells])
    step = with_misfit(draws, cells, times(draws.logs, rows).step)
    return traffic(draws.logs, rows, step)
