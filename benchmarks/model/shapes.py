"""What the performance model reads and answers: frozen values, no database.

Rates are bytes a second, sizes bytes, times seconds. A topology is what one run gets: one host, its accelerators with
the links that lead to them, and where its data lies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from hostwire.training import Spec

# What a figure rests on: of runs of just this, of a model fitted to other runs, of published rates and data sheets.
Basis = Literal["measured", "calibrated", "prior"]
LOCAL = "local"


@dataclass(frozen=True, kw_only=True)
class Link:
    """A PCIe link as trained: lanes and generation."""

    lanes: int = 16
    generation: int = 3


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """A GPU: its model ('V100-SXM2-16GB'), and where it is.

    `place` is 'local' for the host's own, else what stands for one switch below one host port: 'falcon-1/drawer 1/H1'.
    Devices of one place reach each other without the host.
    """

    name: str
    model: str
    place: str = LOCAL
    link: Link = Link()
    memory_bytes: float = 16e9


@dataclass(frozen=True, kw_only=True)
class Storage:
    """Where the data lies; a disk of which nobody says what it is."""

    model: str = "local storage"
    place: str = LOCAL
    link: Link = Link(lanes=4, generation=3)


@dataclass(frozen=True, kw_only=True)
class Topology:
    """What a run gets. `uplinks` are the links from the host to each place of its accelerators that is not local.

    `local_fabric` says how local accelerators reach each other.
    """

    name: str = ""
    host: str = ""
    cores: int = 40
    memory_bytes: float = 756 * 2**30
    accelerators: tuple[Accelerator, ...] = ()
    storage: Storage = Storage()
    uplinks: Mapping[str, Link] = field(default_factory=dict)
    local_fabric: Literal["nvlink", "pcie"] = "nvlink"


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Between `low` and `high` lies the value with `probability`."""

    low: float
    high: float
    probability: float = 0.9


@dataclass(frozen=True, kw_only=True)
class Term:
    """A part of a step: 'compute', 'communication' (what is exposed of it), 'input' (what is waited for), 'optimiser'.

    `why` is a sentence with its numbers, `source` where they come from.
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
    interval: Interval
    samples_per_second: float
    terms: tuple[Term, ...]
    pcie_bytes: Mapping[str, tuple[float, float]]
    pcie_bytes_per_second: float  # of all accelerators that are not local, both ways
    memory_bytes: float  # of one device
    fits: str
    utilisation: float  # share of a step that devices compute
    basis: Basis
    basis_sentence: str


@dataclass(frozen=True, kw_only=True)
class Observation:
    """A run to learn from: what ran where, the median of its steps and the relative spread of that median.

    `traffic` is bytes a second over PCIe of all accelerators that are not local, both ways; None: not measured.
    """

    spec: Spec
    topology: Topology
    step_seconds: float
    spread: float = 0.02
    traffic: float | None = None
    run: str = ""
