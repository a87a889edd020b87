"""Beliefs about the parameters, and steps drawn from them.

All values are logarithms, so that errors are relative.
"""

from __future__ import annotations

import hashlib
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from benchmarks.model.features import ModelError, feature_columns, features_of, is_link_workload
from benchmarks.model.reference_data import Floats
from benchmarks.model.step_time import link_seconds, step_times
from benchmarks.model.topology import LOCAL, Topology
from core.language import _
from hostwire.training import Spec

Cell = tuple[Spec, Topology]
MIN_STEP_SECONDS = 1e-9  # s, of a step
# The formula's error that all topologies of one spec share; the error of each cell is Belief.misfit.
SHARED_MISFIT = 0.06
# The share of the variance of a cell's own error that is common to topologies that differ in storage alone.
STORAGE_SHARE = 0.8


@dataclass(frozen=True, kw_only=True)
class CellMeasurement:
    """A cell's measurement: the logarithm of its step in seconds, its standard deviation, and its number of runs."""

    log_seconds: float
    spread: float
    runs: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Belief:
    """Mean and covariance of the logarithms of PARAMETERS after `runs` (observations by workload).

    The parameters are followed by the formula's errors for the measured `specs` (by hash). `misfit` is the remaining
    relative error of a cell, known with `freedom` degrees of freedom; `measured` has the measured cells, by `cell_key`.
    """

    mean: Floats
    covariance: Floats
    misfit: float
    freedom: float
    specs: Mapping[str, int] = field(default_factory=dict)  # hash to column
    runs: Mapping[str, int] = field(default_factory=dict)
    measured: Mapping[str, CellMeasurement] = field(default_factory=dict)

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
    # Each draw has its mirror image, so that medians scatter little.
    half = random.standard_normal(((count + 1) // 2, len(belief.mean))) @ root.T
    logs = belief.mean + np.concatenate([half, -half])[:count]
    sizes = belief.misfit * np.sqrt(belief.freedom / random.chisquare(belief.freedom, count))
    return Draws(belief=belief, logs=logs, misfit=sizes, seed=seed)


def topology_key(topology: Topology, *, storage: bool = True) -> str:
    """Return the key of a topology, independent of hosts, devices and the names of places.

    Without `storage`, the key is also independent of the drive.
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
    """Return the key that is shared by repetitions of a run: a digest of the spec's hash and the topology's key."""
    return hashlib.sha256((spec.hash + topology_key(topology)).encode()).hexdigest()


def step_seconds(draws: Draws, cells: Sequence[Cell], *, misfit: bool = True) -> Floats:
    """Return the seconds of a step, draws by cells. Raises ModelError for an impossible cell.

    With `misfit` each cell has its own error of the formula, deterministic for a cell and seed. Without it that error
    is zero, or known from runs, so that medians do not scatter between cells. A measured cell is drawn towards its
    measurement.
    """
    if not cells:
        return np.zeros((len(draws.logs), 0))
    return apply_misfit(draws, cells, formula_seconds(draws, cells), scatter=misfit)


def formula_seconds(draws: Draws, cells: Sequence[Cell]) -> Floats:
    """Return the seconds of a step by the formula alone, draws by cells."""
    if any(spec.hosts > 1 or topology.other_hosts for spec, topology in cells):
        raise ModelError(_("There is no model of the network between hosts: a run over several has no prediction."))
    found = np.zeros((len(draws.logs), len(cells)))
    training = [index for index, (spec, _topology) in enumerate(cells) if not is_link_workload(spec)]
    if training:
        found[:, training] = step_times(
            draws.logs, feature_columns([features_of(*cells[index]) for index in training])
        ).step
    for index, (spec, topology) in enumerate(cells):
        if is_link_workload(spec):
            found[:, index] = link_seconds(draws.logs, spec, topology)
    return found


def apply_misfit(draws: Draws, cells: Sequence[Cell], found: Floats, *, scatter: bool = True) -> Floats:
    """Return steps of the formula with the misfit of each cell, given its measurements."""
    logs = np.log(np.maximum(found, MIN_STEP_SECONDS))
    belief = draws.belief
    for column, (spec, topology) in enumerate(cells):
        if not scatter and not belief.measured:
            break
        identity, key = spec.hash, cell_key(spec, topology)
        shared, measured = belief.specs.get(identity), belief.measured.get(key)
        if shared is not None:
            logs[:, column] += draws.logs[:, shared]
        elif scatter:
            logs[:, column] += SHARED_MISFIT * _normal_draws(draws, identity)
        if measured is not None:
            weight = belief.misfit**2 / (belief.misfit**2 + measured.spread**2)
            logs[:, column] += weight * (measured.log_seconds - logs[:, column])
            if scatter:
                logs[:, column] += np.sqrt(weight) * measured.spread * _normal_draws(draws, key)
        elif scatter:
            elsewhere = identity + topology_key(topology, storage=False)
            own = STORAGE_SHARE**0.5 * _normal_draws(draws, elsewhere) + (1 - STORAGE_SHARE) ** 0.5 * _normal_draws(
                draws, key
            )
            logs[:, column] += draws.misfit * own
    found_again: Floats = np.exp(logs)
    return found_again


def _normal_draws(draws: Draws, name: str) -> Floats:
    """Return normal draws that are the same for the same name and seed."""
    random = np.random.Generator(np.random.Philox(key=[draws.seed, zlib.crc32(name.encode())]))
    return random.standard_normal(len(draws.logs))
