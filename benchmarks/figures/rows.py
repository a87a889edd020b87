"""What figures are made of: a run as a frozen value, whoever it comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures.shapes import Source
from benchmarks.model.shapes import Topology
from benchmarks.runs.summary import Summary
from hostwire.training import Spec

Floats = NDArray[np.float64]
STEPS: Final = "steps/timed/seconds"
LOSS: Final = "steps/timed/loss"


def nothing(key: str) -> tuple[Floats, Floats]:
    """Return the values of a run that has no series."""
    return np.zeros(0), np.zeros(0)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A run with its results. `keys` are those of its series; `read(key)` returns (Unix s, values), NaN for none."""

    id: str
    title: str
    workload: str
    workload_title: str
    provenance: Source
    state: str = "completed"
    spec: Spec | None = None
    topology: Topology | None = None
    software: Mapping[str, object] = field(default_factory=dict)
    summary: Summary = field(default_factory=Summary)
    host: str = ""
    queued_at: datetime | None = None
    keys: frozenset[str] = frozenset()
    read: Callable[[str], tuple[Floats, Floats]] = nothing
    is_training: bool = True  # it trains a model in steps; else it measures links, storage, or is a command

    @property
    def samples_a_step(self) -> int | None:
        """How many samples a step has over all devices; None where nothing says so."""
        return self.spec.global_batch if self.spec else None

    def steps(self) -> Floats:
        """Return the seconds of its timed steps, without those that nothing is known of."""
        if STEPS not in self.keys:
            return np.zeros(0)
        _, values = self.read(STEPS)
        return values[np.isfinite(values) & (values > 0)]

    def readings(self, name: str) -> list[tuple[Floats, Floats]]:
        """Return the series of a reading: one of the host, or one a device ('gpu/<address>/<name>')."""
        return [self.read(key) for key in sorted(self.keys) if is_reading(key, name)]


def is_reading(key: str, name: str) -> bool:
    """Tell whether a series is a reading of this name: of the host, or of a device; links have names of their own."""
    return key == name or (key.endswith(f"/{name}") and not key.startswith("link/"))


def counted(rows: Sequence[object], one: str, many: str = "") -> str:
    """Return '1 run' or '3 runs'."""
    return f"{len(rows)} {one if len(rows) == 1 else many or one + 's'}"


def named(rows: Iterable[Row], most: int = 3) -> str:
    """Return the titles of some runs for a sentence."""
    titles = [f"‘{row.title}’" for row in rows]
    rest = len(titles) - most
    return ", ".join(titles[:most]) + (f" and {rest} more" if rest > 0 else "")


def distinct_names(rows: Sequence[Row]) -> dict[str, str]:
    """Return by run a name that no other one of these has: its title, numbered where several are called alike."""
    counts: dict[str, int] = {}
    found = {}
    for row in rows:
        counts[row.title] = counts.get(row.title, 0) + 1
        found[row.id] = f"{row.title} #{counts[row.title]}" if counts[row.title] > 1 else row.title
    return found
