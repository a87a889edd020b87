"""What is asked of the recommender: a workload, what may vary of it, what is wanted, and what must hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal

from hostwire.training import Precision, Spec, Strategy

Objective = Literal["time", "gpu_hours", "energy", "devices"]
Where = Literal["any", "local", "chassis"]
OBJECTIVES: Final[dict[Objective, str]] = {
    "time": "least time",
    "gpu_hours": "fewest GPU-hours",
    "energy": "least energy",
    "devices": "fewest devices",
}
# What an objective is counted in, and how many of them a second, a joule or a device are.
UNITS: Final[dict[Objective, tuple[str, float]]] = {
    "time": ("h", 1 / 3600),
    "gpu_hours": ("GPU-h", 1.0),
    "energy": ("kWh", 1 / 3.6e6),
    "devices": ("devices", 1.0),
}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What must hold; a member at its default is no constraint.

    `hosts` are ids, `models` names of GPU models, `most_seconds` and `most_joules` are of the whole job, `most_watts`
    of all GPUs together. `keep` are ids of devices that stay attached where they are. `storage` says where data lies,
    `gpus` where GPUs are. `same_mode`: no drawer changes its mode; `one_model`, `one_place`: no mixture.
    """

    least_devices: int | None = None
    most_devices: int | None = None
    hosts: frozenset[int] | None = None
    models: frozenset[str] | None = None
    most_seconds: float | None = None
    most_joules: float | None = None
    most_watts: float | None = None
    keep: frozenset[int] = frozenset()
    storage: Where = "local"
    gpus: Where = "any"
    same_mode: bool = False
    one_model: bool = False
    one_place: bool = False

    def given(self) -> Iterator[str]:
        """Yield the names of those that constrain anything."""
        for one in fields(self):
            if getattr(self, one.name) != one.default:
                yield one.name

    def without(self, *names: str) -> Limits:
        """Return them with some no constraints any more."""
        defaults: dict[str, Any] = {one.name: one.default for one in fields(self)}
        return replace(self, **{name: defaults[name] for name in names})

    def only(self, *names: str) -> Limits:
        """Return them with all but some no constraints any more."""
        return self.without(*(name for name in self.given() if name not in names))


@dataclass(frozen=True, kw_only=True)
class Freedom:
    """Which software options may vary, () each: as in the template. Batches are for one device."""

    precisions: tuple[Precision, ...] = ()
    strategies: tuple[Strategy, ...] = ()
    batches: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """How many combinations there are."""
        return max(1, len(self.precisions)) * max(1, len(self.strategies)) * max(1, len(self.batches))


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request. `spec` is the template; its `devices` are not read: how many is what is asked.

    `samples` is how much the job trains on, over all devices: with other numbers of devices it is the same work. With
    `global_batch` each device gets its part of it, and numbers of devices that do not divide it are left out.
    """

    spec: Spec
    samples: float
    objective: Objective = "time"
    freedom: Freedom = field(default_factory=Freedom)
    limits: Limits = field(default_factory=Limits)
    global_batch: int | None = None
