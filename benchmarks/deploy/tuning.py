"""Tuning of a deployment: a small sweep over what its files set, and the best setting of one. Pure: no database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from benchmarks.deploy.gains import fast_precisions
from benchmarks.model.topology import Topology
from benchmarks.runs.rules import Composition
from benchmarks.sweeps.grid import AXIS_LABELS, EarlyStopping, SweepGrid
from benchmarks.sweeps.placement import (
    CPU_PLACEMENT,
    DEVICES_PREFIX,
    HOST_STORAGE,
    LOCAL_PLACEMENT,
    NVME_PREFIX,
    OWN_DRIVE_STORAGE,
)
from benchmarks.workloads.catalogue import workload_of
from core.errors import Invalid
from core.language import _, _n, joined
from hostwire.training import Spec

TUNED_FIELDS: Final = ("precision", "compile", "batch", "loader_workers")  # varied, at most two values each
LOADER_CHOICES: Final = (1, 4)
TUNING_STEPS, TUNING_WARMUP = 20, 5
MAX_PLACEMENT_LENGTH: Final = 100  # characters of a value of an axis


@dataclass(frozen=True, kw_only=True)
class TunedSetting:
    """A setting that ran: its values of TUNED_FIELDS, and samples a second with the 5th and 95th percentile."""

    values: dict[str, Any]
    rate: float
    low: float
    high: float
    provenance: Literal["measured", "simulated"]


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What a sweep says of a deployment: its settings that ran, of `total`, of which `left` have still to run.

    `start` are the values that a deployment without tuning has.
    """

    sweep: str
    title: str
    workload: str
    devices: int
    total: int
    left: int
    start: dict[str, Any]
    settings: tuple[TunedSetting, ...] = ()

    @property
    def best(self) -> TunedSetting | None:
        """The fastest setting; None while settings have still to run, and where none completed."""
        return None if self.left else max(self.settings, key=lambda one: one.rate, default=None)

    @property
    def sentence(self) -> str:
        """The state of the tuning, or its result and what that gained."""
        if self.left:
            return _(
                "The tuning goes on: {done} of {total} settings are done.",
                done=self.total - self.left,
                total=self.total,
            )
        best = self.best
        if best is None:
            return _("The tuning has no result: none of its runs completed.")
        values = ", ".join(f"{_(AXIS_LABELS[name])}: {_shown(value)}" for name, value in best.values.items())
        rate = f"{best.rate:.4g}"
        parts = [
            _(
                "Tuned. The fastest of {total} settings has {rate} samples a second ({values}).",
                values=values, total=self.total, rate=rate,
            ),
            self._gain_sentence(best),
            _("The runs were simulated: they show how tuning works, and nothing of this host.")
            if best.provenance == "simulated"
            else _("The runs were measured, of the catalogue's network, and not of your program."),
        ]  # fmt: skip
        if skipped := self.total - len(self.settings):
            parts.append(
                _n(
                    "{count} setting was skipped early or failed.",
                    "{count} settings were skipped early or failed.",
                    skipped,
                )
            )
        return joined(parts)

    def _gain_sentence(self, best: TunedSetting) -> str:
        first = next((one for one in self.settings if one.values == self.start), None)
        if first is None:
            return _("What it gained is unknown: the setting to begin with did not complete.")
        if first is best:
            return _("It is the setting to begin with: there was nothing to gain.")
        factor = f"{best.rate / first.rate:.2f}"
        if best.low <= first.high:
            return _(
                "It is {factor} times as fast as the setting to begin with, but the spreads of their steps overlap.",
                factor=factor,
            )
        return _("It is {factor} times as fast as the setting to begin with.", factor=factor)


def tuning_grid(
    spec: Spec, composition: Composition, topology: Topology, *, variable: frozenset[str], executors: Sequence[str]
) -> SweepGrid:
    """Return the grid of the sweep that tunes a specification on a composition; raises Invalid where there is nothing.

    `variable` are the fields that the files set and the request leaves open; at most 16 points, with early stop.
    """
    axes: dict[str, Any] = {name: _choices(name, spec, topology) for name in TUNED_FIELDS if name in variable}
    if not any(len(values) > 1 for values in axes.values()):
        raise Invalid(
            _("There is nothing to tune: no file sets a precision, a batch, compilation or loader processes. Write "
              "{{batch}} or its like into the command.")
        )  # fmt: skip
    if not executors:
        raise Invalid(_("No agent with a trainer runs on the host: it can be tuned when one does."))
    known = {one.name for one in workload_of(spec.workload).parameters}
    given: dict[str, Any] = {name: (getattr(spec, name),) for name in (*TUNED_FIELDS, "strategy", "gradient")}
    if spec.threads:
        given["threads"] = (spec.threads,)
    same: dict[str, Any] = {name: value for name, value in spec.options.items() if name in known}
    return SweepGrid(
        workload=(spec.workload,),
        host=(composition.host,),
        count=(spec.devices,),
        placement=(_placement(spec, composition),),
        storage=(_storage(composition),),
        accumulation=(spec.accumulation,),
        same={**same, "steps": TUNING_STEPS, "warmup": TUNING_WARMUP},
        executor="torch" if "torch" in executors else "simulated",
        early=EarlyStopping(objectives=("time",), predicted=True),
        **dict[str, Any](given | axes),
    )  # fmt: skip


def _choices(name: str, spec: Spec, topology: Topology) -> tuple[Any, ...]:
    """Return the values of a field to try, the specification's own first."""
    own = getattr(spec, name)
    if name == "batch":
        return (own, 2 * own)
    if name == "compile":
        return (own, not own)
    if name == "loader_workers":
        most = max(1, topology.cores // spec.devices)
        return tuple(dict.fromkeys((own, *(one for one in LOADER_CHOICES if one <= most))))[:2]
    return tuple(dict.fromkeys((own, *fast_precisions(spec, topology)[-1:])))


def _placement(spec: Spec, composition: Composition) -> str:
    if spec.backend == "cpu":
        return CPU_PLACEMENT
    named = [pk for pk in composition.devices if pk != composition.storage]
    if not named:
        return LOCAL_PLACEMENT
    chosen = named[: max(0, spec.devices - composition.local_gpus)]
    placement = f"{DEVICES_PREFIX}{','.join(map(str, chosen))}" if chosen else LOCAL_PLACEMENT
    if len(placement) > MAX_PLACEMENT_LENGTH:
        raise Invalid(_("These are too many devices for a tuning: tune on some of them."))
    return placement


def _storage(composition: Composition) -> str:
    if composition.storage is not None:
        return f"{NVME_PREFIX}{composition.storage}"
    return OWN_DRIVE_STORAGE if composition.own_drive else HOST_STORAGE


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    return value.upper() if isinstance(value, str) else str(value)  # 'fp16'
