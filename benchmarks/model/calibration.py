"""The prior fitted to published figures, its leave-one-out check, the refit to runs, the published experiment."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType

import numpy as np

from benchmarks.model.belief import (
    SHARED_MISFIT,
    Belief,
    CellMeasurement,
    FitDatum,
    FitProblem,
    ParameterFit,
    cell_key,
    fit_parameters,
)
from benchmarks.model.features import Features, ModelError, features_of, is_link_workload
from benchmarks.model.reference_data import (
    LOCAL_STORAGE,
    PARAMETER_NAMES,
    PRIOR_CENTRES,
    PRIOR_SPREADS,
    PUBLISHED_CPU_STEPS,
    PUBLISHED_FALCON_TRAFFIC,
    PUBLISHED_RATES,
    PublishedCpuStep,
    PublishedRate,
)
from benchmarks.model.topology import LOCAL, Accelerator, PcieLink, Storage, Topology
from benchmarks.workloads.catalogue import spec_of
from hostwire.training import Option, Spec

# Published rates of one network on the same hardware differ by software, more between sources than within one.
BETWEEN_SOURCES, WITHIN_SOURCE, BETWEEN_MACHINES = 0.17, 0.05, 0.35
# The prior of the formula's own error: the prototype was within about 20 % with all its parameters.
PRIOR_MISFIT, PRIOR_FREEDOM = 0.075, 8.0


def _rate_datum(rate: PublishedRate) -> FitDatum:
    """A host of eight V100-SXM2-16GB; if its loader is not part of the rate, the input is not a limit."""
    spec = Spec(
        workload=rate.workload,
        devices=rate.gpus,
        batch=rate.batch,
        precision=rate.precision,
        strategy="ddp" if rate.gpus > 1 else "single",
        loader_workers=5,
    )
    eight = PAPER_TOPOLOGIES["localGPUs"]
    host = replace(eight, accelerators=eight.accelerators[: rate.gpus])
    features = replace(features_of(spec, host), site=0.0)
    if not rate.includes_loader:
        features = replace(features, decode=0.0, read_seconds=0.0)
    return FitDatum(
        features=features,
        log_value=math.log(rate.gpus * rate.batch / rate.samples),
        spread=WITHIN_SOURCE,
        effect=rate.row,
        # Cores and workers of the feeding host are unknown.
        effect_spread=BETWEEN_MACHINES if rate.includes_loader else BETWEEN_SOURCES,
        name=f"{rate.row}, {rate.gpus} GPU{'s' if rate.gpus > 1 else ''}",
    )


def _cpu_datum(step: PublishedCpuStep) -> FitDatum:
    options: dict[str, Option] = {"sequence": step.sequence} if step.workload.startswith("bert") else {}
    spec = Spec(
        workload=step.workload, devices=2, batch=step.batch, backend="cpu", threads=2, loader_workers=1, options=options
    )
    features = replace(features_of(spec, Topology(cores=4)), site=0.0, decode=0.0, read_seconds=0.0)
    return FitDatum(
        features=features,
        log_value=math.log(step.seconds),
        spread=WITHIN_SOURCE,
        effect="CPU",
        effect_spread=BETWEEN_MACHINES,
        name=f"{step.workload}, CPU",
    )


def published_data() -> tuple[FitDatum, ...]:
    """Return all published figures that the parameters are fitted to."""
    traffic = FitDatum(
        # It fixes the counting, so it has no error of a source's software besides.
        features=replace(features_of(paper_spec("resnet50"), PAPER_TOPOLOGIES["falconGPUs"]), site=0.0),
        log_value=math.log(PUBLISHED_FALCON_TRAFFIC),
        spread=WITHIN_SOURCE,
        is_traffic=True,
        effect="published experiment",
        effect_spread=WITHIN_SOURCE,
        name="ResNet-50, falconGPUs, PCIe traffic",
    )
    return (*map(_rate_datum, PUBLISHED_RATES), *map(_cpu_datum, PUBLISHED_CPU_STEPS), traffic)


def fit_published(data: Sequence[FitDatum]) -> ParameterFit:
    """Return the fit of general knowledge to published figures."""
    return fit_parameters(
        data, PRIOR_CENTRES, np.diag(PRIOR_SPREADS**2), misfit=PRIOR_MISFIT, freedom=PRIOR_FREEDOM, learn=False
    )


@cache
def prior() -> Belief:
    """Return the belief before any run."""
    fit = fit_published(published_data())
    size = len(PARAMETER_NAMES)
    return Belief(
        mean=fit.mean[:size], covariance=fit.covariance[:size, :size], misfit=PRIOR_MISFIT, freedom=PRIOR_FREEDOM
    )


MIN_SPREAD = 0.015  # of a run's median from one repetition to the next
TRAFFIC_SPREAD = 0.1  # of traffic: counters are read at intervals, and runs are short


def refit(observations: Sequence[Observation]) -> Belief:
    """Return the belief after runs: the most probable parameters, their covariance, and the remaining misfit.

    Runs of one cell are repetitions: they share one error of the formula. Runs outside of the model (a user's command,
    an impossible topology), or with figures that are not numbers, are left out; runs of link workloads count only for
    their own cell.
    """
    start = prior()
    groups: dict[str, list[Observation]] = defaultdict(list)
    for observation in observations:
        seconds, spread = observation.step_seconds, observation.spread
        if seconds > 0 and math.isfinite(seconds) and 0 <= spread < math.inf:
            groups[cell_key(observation.spec, observation.topology)].append(observation)
    data: list[FitDatum] = []
    measured: dict[str, CellMeasurement] = {}
    runs: Counter[str] = Counter()
    for key, group in groups.items():
        spec, topology = group[0].spec, group[0].topology
        log_seconds, spread = _weighted_mean(group)
        try:
            if not is_link_workload(spec):
                features = features_of(spec, topology)
                data.append(
                    FitDatum(
                        features=features,
                        log_value=log_seconds,
                        spread=spread,
                        effect=spec.hash,
                        effect_spread=SHARED_MISFIT,
                    )
                )
                data += _traffic_data(group, features)
        except ModelError:
            continue
        measured[key] = CellMeasurement(log_seconds=log_seconds, spread=spread, runs=len(group))
        runs[spec.workload] += len(group)
    if not data:
        return replace(start, runs=dict(runs), measured=measured)
    fit = fit_parameters(data, start.mean, start.covariance, misfit=start.misfit, freedom=start.freedom)
    return Belief(
        mean=fit.mean,
        covariance=fit.covariance,
        misfit=fit.misfit,
        freedom=fit.freedom,
        specs={name: len(PARAMETER_NAMES) + index for index, name in enumerate(fit.effects)},
        runs=dict(runs),
        measured=measured,
    )


def _weighted_mean(group: Sequence[Observation]) -> tuple[float, float]:
    """Return the weighted mean of the logarithms of repeated runs, and its standard deviation."""
    weights = [1 / (MIN_SPREAD**2 + run.spread**2) for run in group]
    total = sum(weights)
    mean = sum(weight * math.log(run.step_seconds) for weight, run in zip(weights, group, strict=True)) / total
    return mean, total**-0.5


def _traffic_data(group: Sequence[Observation], features: Features) -> list[FitDatum]:
    """Return the traffic of repeated runs as one datum; none for a run without devices in chassis."""
    logs = [math.log(run.traffic) for run in group if run.traffic and 0 < run.traffic < math.inf]
    if not logs or not features.chassis_devices:
        return []
    mean = sum(logs) / len(logs)
    return [
        FitDatum(
            features=features,
            log_value=mean,
            spread=TRAFFIC_SPREAD / len(logs) ** 0.5,
            is_traffic=True,
            effect=group[0].spec.hash,
            effect_spread=SHARED_MISFIT,
        )
    ]


NORMAL_90 = 1.645  # standard deviations to either side that hold 90 %


@dataclass(frozen=True, kw_only=True)
class HeldOutFigure:
    """A published figure beside its prediction from all others; seconds a step, or bytes a second of traffic.

    `error` is relative, `inside`: the 90 % interval includes the figure.
    """

    name: str
    published: float
    predicted: float
    low: float
    high: float
    is_traffic: bool

    @property
    def error(self) -> float:
        return self.predicted / self.published - 1

    @property
    def inside(self) -> bool:
        return self.low <= self.published <= self.high


@cache
def leave_one_out() -> tuple[HeldOutFigure, ...]:
    """Return each published figure as predicted by a fit to all others."""
    data = published_data()
    return tuple(
        _held_out_figure(datum, fit_published([other for other in data if other is not datum])) for datum in data
    )


def _held_out_figure(datum: FitDatum, fit: ParameterFit) -> HeldOutFigure:
    problem, size = FitProblem([datum], len(PARAMETER_NAMES)), len(PARAMETER_NAMES)
    state, covariance = np.zeros(size + 1), np.zeros((size + 1, size + 1))
    chosen = [*range(size)]
    if datum.effect in fit.effects:  # other rates of its row determine the deviation of that source
        chosen.append(size + fit.effects.index(datum.effect))
    else:
        covariance[size, size] = datum.effect_spread**2
    state[: len(chosen)] = fit.mean[chosen]
    covariance[: len(chosen), : len(chosen)] = fit.covariance[np.ix_(chosen, chosen)]
    slope = problem.derivatives(state)[0]
    spread = math.sqrt(float(slope @ covariance @ slope) + datum.spread**2 + PRIOR_MISFIT**2)
    log_value = float(problem.log_values(state[None])[0, 0])
    return HeldOutFigure(
        name=datum.name,
        published=math.exp(datum.log_value),
        predicted=math.exp(log_value),
        low=math.exp(log_value - NORMAL_90 * spread),
        high=math.exp(log_value + NORMAL_90 * spread),
        is_traffic=datum.is_traffic,
    )


def median_error(found: tuple[HeldOutFigure, ...]) -> float:
    """Return the median of the relative errors without sign."""
    return float(np.median([abs(one.error) for one in found]))


PAPER_WORKLOADS = ("mobilenet_v2", "resnet50", "yolov5l", "bert_base", "bert_large")
PAPER_DRAWERS = ("falcon-1/drawer 1/H1", "falcon-1/drawer 2/H2")
PAPER_LOCAL_GPU, PAPER_FALCON_GPU, PAPER_DRIVE = "V100-SXM2-16GB", "V100-PCIE-16GB", "SSDPEDKX040T7"
# The slower end of a disk, where localNVMe names its own.
PAPER_DISK = Storage(model=LOCAL_STORAGE)


def paper_spec(workload: str) -> Spec:
    """Return the specification of a workload in the published experiment."""
    return spec_of(workload, "paper", {})


def _paper_topology(
    name: str, *, local: int = 0, drawers: tuple[int, ...] = (), storage: Storage = PAPER_DISK
) -> Topology:
    """Return a host with `local` GPUs and so many in each of the `drawers`, each drawer at its own host port."""
    accelerators = [Accelerator(name=f"local GPU {index}", model=PAPER_LOCAL_GPU) for index in range(local)]
    for drawer, count in enumerate(drawers):
        accelerators += [
            Accelerator(name=f"drawer {drawer + 1} GPU {index}", model=PAPER_FALCON_GPU, place=PAPER_DRAWERS[drawer])
            for index in range(count)
        ]
    places = {device.place for device in accelerators} | {storage.place}
    return Topology(
        name=name,
        host="host",
        accelerators=tuple(accelerators),
        storage=storage,
        uplinks={place: PcieLink() for place in sorted(places - {LOCAL})},
    )


PAPER_TOPOLOGIES: Mapping[str, Topology] = MappingProxyType(
    {
        topology.name: topology
        for topology in (
            _paper_topology("localGPUs", local=8),
            _paper_topology("hybridGPUs", local=4, drawers=(2, 2)),
            _paper_topology("falconGPUs", drawers=(4, 4)),
            _paper_topology("localNVMe", local=8, storage=Storage(model=PAPER_DRIVE)),
            _paper_topology("falconNVMe", local=8, storage=Storage(model=PAPER_DRIVE, place=PAPER_DRAWERS[0])),
        )
    }
)
PAPER_CONFIGURATIONS = tuple(PAPER_TOPOLOGIES)


def paper_cells() -> list[tuple[str, str, Spec, Topology]]:
    """Return the 25 cells: workload, configuration, specification and topology."""
    return [
        (workload, configuration, paper_spec(workload), topology)
        for workload in PAPER_WORKLOADS
        for configuration, topology in PAPER_TOPOLOGIES.items()
    ]


@dataclass(frozen=True, kw_only=True)
class Observation:
    """A run to learn from: specification, topology, the median of its steps and the relative spread of that median.

    `traffic` is bytes a second over PCIe of all accelerators that are not local, both ways; None: not measured.
    """

    spec: Spec
    topology: Topology
    step_seconds: float
    spread: float = 0.02
    traffic: float | None = None
    run: str = ""
