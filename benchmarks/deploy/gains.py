"""The gain of each option of a training: a factor of throughput with its interval, by runs or by the performance model.

What a compiler or a precision gains depends on the network: only pairs of runs of it say so, else it is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
from msgspec.structs import replace as replace_struct

from benchmarks.model import ModelError, fits, predict, refit, step_seconds
from benchmarks.model.belief import topology_key
from benchmarks.model.calibration import Observation
from benchmarks.model.prediction import BASIS_LABELS, Basis, Prediction
from benchmarks.model.reference_data import NORMAL_90, PARAMETERS
from benchmarks.model.topology import Topology
from benchmarks.workloads.catalogue import workload_of, workload_title
from core.language import _, _n, joined
from hostwire.training import Precision, Spec

DRAW_COUNT, DRAW_SEED = 400, 20201127
LOW_QUANTILE, HIGH_QUANTILE = 0.05, 0.95
# GPU models without bf16 units.
NO_BF16: Final = ("V100", "P100", "K80", "T4", "2080", "TITAN")
WORKER_COUNTS: Final = (1, 2, 4, 8)
NEARLY_BEST: Final = 0.99  # of the best factor: fewer loader processes are enough at this share
PARAMETER_NOTES: Final = {one.name: one.about for one in PARAMETERS}
OF_THE_NETWORK: Final = ("precision", "compile")  # options whose gain only runs of the network tell
UNCOUNTED: Final[dict[str, Any]] = {"steps": 1, "warmup": 0, "seed": 0}  # fields that change no step's time


@dataclass(frozen=True, kw_only=True)
class OptionGain:
    """The gain of an option: `factor` times the samples a second of `against`, with 90 % between `low` and `high`.

    All three are None where it is unknown. `taken`: a generated file has it, and the prediction counts it; `why` is the
    reason. `basis` is 'measured', 'calibrated', 'prior' or 'unknown'.
    """

    option: str
    title: str
    value: str
    against: str
    factor: float | None
    low: float | None
    high: float | None
    taken: bool
    why: str
    basis: Basis | Literal["unknown"]
    source: str

    @property
    def basis_label(self) -> str:
        return _("unknown") if self.basis == "unknown" else _(BASIS_LABELS[self.basis])


@dataclass(frozen=True, kw_only=True)
class OptionEvaluation:
    """The evaluated options: the specification with those taken and its prediction, or the reason for none."""

    spec: Spec | None = None
    gains: tuple[OptionGain, ...] = ()
    prediction: Prediction | None = None
    why_not: str = ""
    does_not_fit: str = ""


@dataclass(frozen=True, kw_only=True)
class _TrainingOption:
    """A change of the specification that is compared with the current one, or with one `without` it."""

    name: str
    title: str
    change: dict[str, Any]
    without: dict[str, Any]
    value: str
    against: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class _GainFactor:
    """A factor with its interval, its basis and where it is from."""

    factor: float
    low: float
    high: float
    basis: Basis
    source: str


def evaluate_options(
    spec: Spec,
    topology: Topology,
    observations: Sequence[Observation] = (),
    *,
    fixed: frozenset[str] = frozenset(),
    settable: frozenset[str],
) -> OptionEvaluation:
    """Return the gain of each option on a topology, each on top of the options taken before.

    `fixed` options describe the program, so that the prediction has them; `settable` are those that a generated file
    sets, and no other is taken. Raises nothing: without a model, `why_not` is set.
    """
    evaluator = _OptionEvaluator(spec, topology, observations, fixed, settable)
    try:
        evaluator.evaluate()
        prediction = predict(evaluator.spec, topology, evaluator.belief)
    except ModelError as error:
        return OptionEvaluation(why_not=error.sentence)
    return OptionEvaluation(
        spec=evaluator.spec,
        gains=tuple(evaluator.gains),
        prediction=prediction,
        does_not_fit=fits(evaluator.spec, topology),
    )


class _OptionEvaluator:
    """A specification that is extended by the options with a gain."""

    def __init__(
        self,
        spec: Spec,
        topology: Topology,
        observations: Sequence[Observation],
        fixed: frozenset[str],
        settable: frozenset[str],
    ) -> None:
        self.spec, self.topology, self.observations = spec, topology, observations
        self.fixed, self.settable = fixed, settable
        self.belief = refit(observations)
        self.draws = self.belief.draws(DRAW_COUNT, DRAW_SEED)
        self.gains: list[OptionGain] = []

    def evaluate(self) -> None:
        for options in (self._parallel, self._precision, self._exchange, self._compile, self._workers, self._threads):
            self._take_best(options)

    def _take_best(self, options: Callable[[], Iterable[_TrainingOption]]) -> None:
        """Take the best choice of an option, if a file sets it, and it is requested or its whole interval is a gain."""
        found = [self._gain(one) for one in options()]
        if not found:
            return
        best = max(gain.factor or 0.0 for gain, _changed in found)
        gain, self.spec = next(one for one in found if (one[0].factor or 0.0) >= NEARLY_BEST * best)
        self.gains.append(gain)

    def _gain(self, option: _TrainingOption) -> tuple[OptionGain, Spec]:
        """Return the gain of a change, and the specification to go on with; one that has the change already is compared
        with the specification without it.
        """
        requested = all(getattr(self.spec, name) == value for name, value in option.change.items())
        before = replace_struct(self.spec, **option.without) if requested else self.spec
        changed = replace_struct(self.spec, **option.change)
        found = (
            self._paired_factor(option, changed) if option.name in OF_THE_NETWORK else self._predicted(before, changed)
        )
        is_set = next(iter(option.change)) in self.settable
        described = bool(self.fixed & set(option.change))
        taken = is_set and (requested or (found is not None and found.low > 1.0))
        model = self.topology.accelerators[0].model if self.topology.accelerators else _("the CPU")
        unknown = _(
            "No two runs of {workload} on {model} differ in this alone: tune the deployment, or run both.",
            workload=workload_title(self.spec.workload), model=model,
        )  # fmt: skip
        return (
            OptionGain(
                option=option.name, title=option.title, value=option.value, against=option.against,
                factor=found.factor if found else None, low=found.low if found else None,
                high=found.high if found else None, taken=taken,
                why=_gain_reason(option, found, requested=requested, is_set=is_set, described=described),
                basis=found.basis if found else "unknown",
                source=joined(part for part in (found.source if found else unknown, option.note) if part),
            ),
            changed if taken or (requested and described) else before,
        )  # fmt: skip

    def _predicted(self, before: Spec, changed: Spec) -> _GainFactor:
        steps = step_seconds(self.draws, [(before, self.topology), (changed, self.topology)])
        ratio = steps[:, 0] / steps[:, 1] * (changed.global_batch / before.global_batch)
        low, middle, high = (float(one) for one in np.quantile(ratio, (LOW_QUANTILE, 0.5, HIGH_QUANTILE)))
        prediction = predict(changed, self.topology, self.belief)
        return _GainFactor(factor=middle, low=low, high=high, basis=prediction.basis, source=prediction.basis_sentence)

    def _paired_factor(self, option: _TrainingOption, changed: Spec) -> _GainFactor | None:
        """Return the gain by pairs of runs of this network on these accelerators that differ in the option alone.

        The median of all pairs; the interval is from the lowest to the highest that one of them allows.
        """
        models = {one.model for one in self.topology.accelerators}
        sides: dict[str, tuple[list[Observation], list[Observation]]] = {}
        for one in self.observations:
            if one.spec.workload != changed.workload or {its.model for its in one.topology.accelerators} != models:
                continue
            alike = replace_struct(one.spec, **option.without, **UNCOUNTED)
            pair = sides.setdefault(alike.hash + topology_key(one.topology), ([], []))
            for side, values in enumerate((option.without, option.change)):
                if all(getattr(one.spec, name) == value for name, value in values.items()):
                    pair[side].append(one)
        ratios = [
            (math.log(slow.step_seconds / fast.step_seconds), math.hypot(slow.spread, fast.spread))
            for without, with_it in sides.values() for slow in without for fast in with_it
        ]  # fmt: skip
        if not ratios:
            return None
        source = _n(
            "{count} pair of runs of this network differs in this alone.",
            "{count} pairs of runs of this network differ in this alone.",
            len(ratios),
        )
        return _GainFactor(
            factor=math.exp(float(np.median([ratio for ratio, _spread in ratios]))),
            low=math.exp(min(ratio - NORMAL_90 * spread for ratio, spread in ratios)),
            high=math.exp(max(ratio + NORMAL_90 * spread for ratio, spread in ratios)),
            basis="measured",
            source=source,
        )

    def _parallel(self) -> Iterator[_TrainingOption]:
        count = self.spec.devices
        if count > 1:
            yield _TrainingOption(
                name="data_parallelism", title=_("Data parallelism"),
                value=_("{count} devices ({strategy})", count=count, strategy=self.spec.strategy),
                against=_n("{count} device", "{count} devices", 1),
                change={"devices": count, "strategy": self.spec.strategy},
                without={"devices": 1, "strategy": "single"},
            )  # fmt: skip

    def _precision(self) -> Iterator[_TrainingOption]:
        chosen = self.spec.precision
        if self.spec.backend == "cpu" or (chosen == "fp32" and "precision" in self.fixed):
            return
        for precision in fast_precisions(self.spec, self.topology) if chosen == "fp32" else [chosen]:
            yield _TrainingOption(
                name="precision", title=_("Mixed precision"), value=precision, against="fp32",
                change={"precision": precision}, without={"precision": "fp32"},
            )  # fmt: skip

    def _exchange(self) -> Iterator[_TrainingOption]:
        spec = self.spec
        if spec.devices < 2 or spec.strategy == "dp" or spec.backend == "cpu":
            return
        if spec.gradient != "fp32" or "gradient" not in self.fixed:
            value = spec.gradient if spec.gradient != "fp32" else "fp16"
            yield _TrainingOption(
                name="gradient", title=_("Gradients sent in half the width"), value=value, against="fp32",
                change={"gradient": value}, without={"gradient": "fp32"},
                note=_("Its share: {share}.", share=_(PARAMETER_NOTES["gradient"])),
            )  # fmt: skip

    def _compile(self) -> Iterator[_TrainingOption]:
        if self.spec.compile or "compile" not in self.fixed:
            yield _TrainingOption(
                name="compile", title=_("Compilation (torch.compile)"), value=_("on"), against=_("off"),
                change={"compile": True}, without={"compile": False},
            )  # fmt: skip

    def _workers(self) -> Iterator[_TrainingOption]:
        counts = [self.spec.loader_workers] if self.spec.loader_workers else []
        if "loader_workers" not in self.fixed:
            self.spec = replace_struct(self.spec, loader_workers=0)
            share = max(1, self.topology.cores // self.spec.devices)
            counts = [count for count in WORKER_COUNTS if count <= share]
        for count in counts:
            yield _TrainingOption(
                name="loader_workers", title=_("Loader processes a device"), value=str(count), against=_("none"),
                change={"loader_workers": count}, without={"loader_workers": 0},
            )  # fmt: skip

    def _threads(self) -> Iterator[_TrainingOption]:
        """Yield the number of computing threads, for CPUs only: the model ignores threads on GPUs."""
        count = self.topology.cores // max(1, self.spec.devices)
        if self.spec.backend == "cpu" and count > 1:
            value = self.spec.threads or count
            yield _TrainingOption(
                name="threads", title=_("CPU threads a process"), value=str(value), against="1",
                change={"threads": value}, without={"threads": 1},
            )  # fmt: skip


def fast_precisions(spec: Spec, topology: Topology) -> list[Precision]:
    """Return the half precisions that the workload has and the accelerators compute fast."""
    models = [one.model.upper() for one in topology.accelerators]
    has_bf16 = not any(old in model for model in models for old in NO_BF16)
    known = workload_of(spec.workload).precisions if models else ()
    return [one for one in known if one == "fp16" or (one == "bf16" and has_bf16)]


def _gain_reason(
    option: _TrainingOption, found: _GainFactor | None, *, requested: bool, is_set: bool, described: bool
) -> str:
    if not is_set:
        return _unset_reason(option, described=requested and described)
    if option.name == "data_parallelism":
        if found is None or found.high > 1.0:
            return _("The job has this number of GPUs.")
        return _("The job has this number of GPUs, although one would be as fast.")
    if found is None:
        if requested:
            return _("As requested; what it brings is unknown.")
        return _("Left out: what it brings is unknown.")
    if requested:
        return _("As requested.") if found.high > 1.0 else _("As requested, although it has no gain.")
    return _interval_reason(found)


def _unset_reason(option: _TrainingOption, *, described: bool) -> str:
    """Return why an option that no generated file sets is not counted."""
    if described:
        return _("Not counted: the request says that the program has it, and no generated file sets it.")
    if option.name == "data_parallelism":
        return _("Not counted: the program must use the GPUs by itself. Write {{devices}} into the command if it does.")
    placeholder = f"{{{option.name}}}"
    return _("Left out: no generated file sets it. Write {placeholder} into the command.", placeholder=placeholder)


def _interval_reason(found: _GainFactor) -> str:
    if found.low > 1.0:
        return _("Taken: its whole interval is a gain.")
    if found.high < 1.0:
        return _("Left out: it would make the training slower.")
    return _("Left out: its interval includes no gain. A run of each would decide.")


def spec_for_devices(spec: Spec, topology: Topology, gpus: int | None) -> Spec:
    """Return a specification for the requested devices of a topology, else for all, or the CPU without any."""
    count = gpus or len(topology.accelerators)
    if not topology.accelerators:
        return replace_struct(spec, devices=1, strategy="single", backend="cpu", precision="fp32", gradient="fp32")
    strategy = "single" if count == 1 else ("ddp" if spec.strategy == "single" else spec.strategy)
    return replace_struct(spec, devices=count, strategy=strategy, backend="cuda")


def topology_with_devices(topology: Topology, count: int) -> Topology:
    return replace(topology, accelerators=topology.accelerators[:count])
