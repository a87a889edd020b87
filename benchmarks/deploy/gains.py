"""The gain of each option of a training, by the performance model: a factor of throughput with its interval."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from msgspec.structs import replace as replace_struct

from benchmarks.model import Belief, ModelError, fits, predict, prior, step_seconds
from benchmarks.model.prediction import BASIS_LABELS, Basis, Prediction
from benchmarks.model.reference_data import PARAMETERS
from benchmarks.model.topology import Topology
from benchmarks.workloads.catalogue import workload_of
from core.language import _, _n, joined
from hostwire.training import Spec

DRAW_COUNT, DRAW_SEED = 400, 20201127
LOW_QUANTILE, HIGH_QUANTILE = 0.05, 0.95
# GPU models without bf16 units.
NO_BF16: Final = ("V100", "P100", "K80", "T4", "2080", "TITAN")
WORKER_COUNTS: Final = (1, 2, 4, 8)
NEARLY_BEST: Final = 0.99  # of the best factor: fewer loader processes are enough at this share
PARAMETER_NOTES: Final = {one.name: one.about for one in PARAMETERS}


@dataclass(frozen=True, kw_only=True)
class OptionGain:
    """The gain of an option: `factor` times the samples a second of `against`, with 90 % between `low` and `high`.

    `taken`: the deployment uses it, `why` is the reason. `basis` is 'measured', 'calibrated' or 'prior'.
    """

    option: str
    title: str
    value: str
    against: str
    factor: float
    low: float
    high: float
    taken: bool
    why: str
    basis: Basis
    source: str

    @property
    def basis_label(self) -> str:
        return _(BASIS_LABELS[self.basis])


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


def evaluate_options(
    spec: Spec, topology: Topology, belief: Belief | None = None, *, fixed: frozenset[str] = frozenset()
) -> OptionEvaluation:
    """Return the gain of each option on a topology, each on top of the options taken before.

    `fixed` options were requested: their gain is reported, and they are always taken. Raises nothing: without a model,
    `why_not` is set.
    """
    evaluator = _OptionEvaluator(spec, topology, belief or prior(), fixed)
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

    def __init__(self, spec: Spec, topology: Topology, belief: Belief, fixed: frozenset[str]) -> None:
        self.spec, self.topology, self.belief, self.fixed = spec, topology, belief, fixed
        self.draws = belief.draws(DRAW_COUNT, DRAW_SEED)
        self.gains: list[OptionGain] = []

    def evaluate(self) -> None:
        for options in (self._parallel, self._precision, self._exchange, self._compile, self._workers, self._threads):
            self._take_best(options)

    def _take_best(self, options: Callable[[], Iterable[_TrainingOption]]) -> None:
        """Take the best choice of an option, if its whole interval is a gain, or if it was requested."""
        found = [self._gain(one) for one in options()]
        if not found:
            return
        best = max(found, key=lambda one: one[0].factor)
        gain, changed = next(one for one in found if one[0].factor >= NEARLY_BEST * best[0].factor)
        self.gains.append(gain)
        if gain.taken:
            self.spec = changed

    def _gain(self, option: _TrainingOption) -> tuple[OptionGain, Spec]:
        """Return the gain of a change and the changed specification; one that has the change already is compared
        with the specification without it.
        """
        requested = all(getattr(self.spec, name) == value for name, value in option.change.items())
        before = replace_struct(self.spec, **option.without) if requested else self.spec
        changed = replace_struct(self.spec, **option.change)
        steps = step_seconds(self.draws, [(before, self.topology), (changed, self.topology)])
        ratio = steps[:, 0] / steps[:, 1] * (changed.global_batch / before.global_batch)
        low, middle, high = (float(one) for one in np.quantile(ratio, (LOW_QUANTILE, 0.5, HIGH_QUANTILE)))
        taken = requested or low > 1.0
        prediction = predict(changed, self.topology, self.belief)
        return (
            OptionGain(
                option=option.name, title=option.title, value=option.value, against=option.against,
                factor=middle, low=low, high=high, taken=taken,
                why=_gain_reason(requested=requested, low=low, high=high, counted=option.name == "data_parallelism"),
                basis=prediction.basis,
                source=joined(part for part in (prediction.basis_sentence, option.note) if part),
            ),
            changed,
        )  # fmt: skip

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
        chosen, known = self.spec.precision, workload_of(self.spec.workload).precisions
        if self.spec.backend == "cpu" or (chosen == "fp32" and "precision" in self.fixed):
            return
        models = [one.model.upper() for one in self.topology.accelerators]
        has_bf16 = not any(old in model for model in models for old in NO_BF16)
        mixed = [one for one in known if one == "fp16" or (one == "bf16" and has_bf16)]
        for precision in mixed if chosen == "fp32" else [chosen]:
            yield _TrainingOption(
                name="precision", title=_("Mixed precision"), value=precision, against="fp32",
                change={"precision": precision}, without={"precision": "fp32"},
                note=_("Its share: {share}.", share=_(PARAMETER_NOTES["half"])),
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
                note=_("Its share: {share}.", share=_(PARAMETER_NOTES["compile"])),
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


def _gain_reason(*, requested: bool, low: float, high: float, counted: bool) -> str:
    if counted:
        return (
            _("The job has this number of GPUs.")
            if high > 1.0
            else _("The job has this number of GPUs, although one would be as fast.")
        )
    if requested:
        return _("As requested.") if high > 1.0 else _("As requested, although it has no gain.")
    if low > 1.0:
        return _("Taken: its whole interval is a gain.")
    if high < 1.0:
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
