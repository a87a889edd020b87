"""The prior fitted to published figures, the refit to runs, the published experiment."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType

import msgspec
import numpy as np

from benchmarks.model.belief import SHARED_MISFIT, Belief, CellMeasurement, cell_key
from benchmarks.model.features import Features, ModelError, features_of, is_link_workload
from benchmarks.model.fitting import Bound, FitDatum, ParameterFit, Quantity, fit_parameters
from benchmarks.model.measured_steps import MEASURED_STEPS, MeasuredStep
from benchmarks.model.published_observations import ALMOST_TWICE, DDP_SPEEDUP, MIXED_TIME, TRAFFIC, VISION_TIME
from benchmarks.model.published_rates import (
    LAMBDA_SOURCE,
    NVIDIA_SOURCE,
    PUBLISHED_CPU_STEPS,
    PUBLISHED_RATES,
    PublishedCpuStep,
    PublishedRate,
)
from benchmarks.model.reference_data import (
    LOCAL_STORAGE,
    PARAMETER_INDEX,
    PARAMETER_NAMES,
    PRIOR_CENTRES,
    PRIOR_SPREADS,
    WORKLOAD_FAMILY,
)
from benchmarks.model.topology import LOCAL, Accelerator, PcieLink, Storage, Topology
from benchmarks.workloads.catalogue import spec_of
from hostwire.training import Option, Spec

# Published rates of one network on the same hardware differ by software, more between sources than within one.
BETWEEN_SOURCES, WITHIN_SOURCE, BETWEEN_MACHINES, BETWEEN_METERS = 0.17, 0.05, 0.35, 0.15
BETWEEN_NETWORKS, BETWEEN_DECODERS, BETWEEN_RINGS = 0.1, 0.35, 0.15
# The prior of the formula's own error: the prototype was within about 20 % with all its parameters.
PRIOR_MISFIT, PRIOR_FREEDOM = 0.08, 8.0


BUSY = ", busy"  # after the name of a measured step: its share of time with kernels


def _rate_datum(rate: PublishedRate) -> FitDatum:
    """A host of eight V100-SXM2-16GB; if its loader is not part of the rate, the input is not a limit."""
    spec = Spec(
        workload=rate.workload,
        devices=rate.gpus,
        batch=rate.batch,
        precision=rate.precision,
        strategy="ddp" if rate.gpus > 1 else "single",
        loader_workers=5,
        data="files",
    )
    eight = PAPER_TOPOLOGIES["localGPUs"]
    host = replace(eight, accelerators=eight.accelerators[: rate.gpus])
    features = replace(features_of(spec, host), site=0.0, rented=float(rate.source == LAMBDA_SOURCE))
    if rate.channels_last:
        features = replace(features, planar=0.0)
    if not rate.includes_loader:
        # NVIDIA's hosts feed images at a rate of their own; the others are taken to keep up.
        fed = features.decode if rate.source == NVIDIA_SOURCE and not rate.workload.startswith("bert") else 0.0
        features = replace(features, decode=fed, cores=1.0, loader=PARAMETER_INDEX["fed"], read_seconds=0.0)
    return FitDatum(
        features=features,
        log_value=math.log(rate.gpus * rate.batch / rate.samples),
        spread=math.hypot(WITHIN_SOURCE, rate.rounding),
        effect=rate.row,
        # Cores and workers of the feeding host are unknown.
        effect_spread=BETWEEN_MACHINES if rate.includes_loader else BETWEEN_SOURCES,
        name=f"{rate.row}, {rate.gpus} GPU{'s' if rate.gpus > 1 else ''}",
    )


def _measured_data(step: MeasuredStep) -> Iterator[FitDatum]:
    """Yield a step and its share of time with kernels, on a virtual machine that starts operations at its own rate."""
    spec = msgspec.structs.replace(
        paper_spec(step.workload),
        devices=1,
        strategy="single",
        precision=step.precision,
        data="files" if step.files else "random",
        loader_workers=step.loaders,
    )
    features = replace(features_of(spec, H100_TOPOLOGY), site=0.0, guest=1.0)
    yield FitDatum(
        features=features,
        log_value=math.log(step.seconds),
        # Its software is good at one network and worse at another.
        spread=math.hypot(WITHIN_SOURCE, BETWEEN_NETWORKS),
        effect="H100",
        effect_spread=BETWEEN_SOURCES,
        name=step.name,
    )
    yield FitDatum(
        features=features,
        log_value=math.log(step.busy),
        spread=BETWEEN_METERS,
        quantity="utilisation",
        name=step.name + BUSY,
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


def _observed(
    name: str,
    value: float,
    spread: float,
    spec: Spec,
    configuration: str,
    *,
    quantity: Quantity = "step",
    bound: Bound = "",
    over: tuple[Spec, str] | None = None,
) -> FitDatum:
    """Return an observation of the published experiment; `over` is the cell that a step is relative to."""
    return FitDatum(
        features=features_of(spec, PAPER_TOPOLOGIES[configuration]),
        log_value=math.log(value),
        spread=spread,
        quantity=quantity,
        bound=bound,
        over=over and features_of(over[0], PAPER_TOPOLOGIES[over[1]]),
        name=name,
    )


def _observed_data() -> Iterator[FitDatum]:
    """Yield the quantitative observations of the published experiment, and bounds that it states."""
    bert, local, hybrid, falcon = paper_spec("bert_large"), "localGPUs", "hybridGPUs", "falconGPUs"
    for workload, most in VISION_TIME.items():
        number, spec = "O2" if workload == "yolov5l" else "O1", paper_spec(workload)
        for name in (hybrid, falcon):
            yield _observed(f"{number}, {workload}, {name}", most, 0.01, spec, name, bound="<", over=(spec, local))
    yield _observed("O3-time, falconGPUs", ALMOST_TWICE, 0.04, bert, falcon, over=(bert, local))
    for workload, traffic in TRAFFIC.items():
        spread = 0.05 if workload == "mobilenet_v2" else 0.03  # 4 GB/s is published with one digit
        yield _observed(
            f"O4-{workload}, PCIe traffic", traffic * 1e9, spread, paper_spec(workload), falcon, quantity="traffic"
        )
    for workload in PAPER_WORKLOADS[:3]:
        spec = paper_spec(workload)
        # More than 80 % of a training with its pauses is more of a step; cores without stress are taken for 70 %.
        yield _observed(f"O5, {workload}, step", 0.85, 0.03, spec, local, quantity="utilisation", bound=">")
        yield _observed(f"O8, {workload}, step", 0.7, 0.05, spec, local, quantity="cpu", bound="<")
    # Time a sample falls by more than half, or 70 %; the step in fp32 is of a batch of four.
    full = msgspec.structs.replace(bert, **PAPER_VARIANTS["fp32"])
    for name, left in MIXED_TIME.items():
        ratio = full.batch / bert.batch / left
        yield _observed(f"O11, {name}", ratio, 0.02, full, name, bound=">", over=(bert, name))
    spread_out = msgspec.structs.replace(bert, **PAPER_VARIANTS["dp"])
    yield _observed(f"O12, {local}", DDP_SPEEDUP, 0.05, spread_out, local, bound=">", over=(bert, local))


@cache
def published_data() -> tuple[FitDatum, ...]:
    """Return all published and measured figures that the parameters are fitted to."""
    return (
        *map(_rate_datum, PUBLISHED_RATES),
        *map(_cpu_datum, PUBLISHED_CPU_STEPS),
        *_observed_data(),
        *(datum for step in MEASURED_STEPS for datum in _measured_data(step)),
    )


def fit_published(data: Sequence[FitDatum], near: ParameterFit | None = None) -> ParameterFit:
    """Return the fit of general knowledge to published figures; the search begins at the fit `near`."""
    known = np.diag(PRIOR_SPREADS**2)
    return fit_parameters(
        data, PRIOR_CENTRES, known, misfit=PRIOR_MISFIT, freedom=PRIOR_FREEDOM, learn=False, near=near
    )


@cache
def published_fit() -> ParameterFit:
    """Return the fit to all published and measured figures."""
    return fit_published(published_data())


@cache
def published_belief() -> Belief:
    """Return the belief of the published experiment's own site, with the software and the loaders of its hosts."""
    return belief_of(published_fit())


def belief_of(fit: ParameterFit) -> Belief:
    """Return the belief after a fit to published figures."""
    size = len(PARAMETER_NAMES)
    return Belief(
        mean=fit.mean[:size], covariance=fit.covariance[:size, :size], misfit=PRIOR_MISFIT, freedom=PRIOR_FREEDOM
    )


@cache
def prior() -> Belief:
    """Return the belief before any run: what was published tells less of another's software, loaders and meters."""
    published = published_belief()
    mean, covariance = published.mean.copy(), published.covariance.copy()
    stack, loaders, count, launch, guest, images, ring = (
        PARAMETER_INDEX[name] for name in ("stack", "loaders", "count", "launch", "guest", "images", "ring")
    )
    # Software is between that of the publishers, who tune it, and the experiment's; loaders are as anywhere.
    mean[stack], mean[loaders] = (PRIOR_CENTRES[stack] + mean[stack]) / 2, PRIOR_CENTRES[loaders]
    for index in (stack, loaders):
        covariance[index, :] = covariance[:, index] = 0.0
        covariance[index, index] = PRIOR_SPREADS[index] ** 2
    covariance[count, count] += BETWEEN_METERS**2
    # Operations start as fast as in the publishers' hosts, as slowly as in the measured machine, or between.
    mean[launch] += mean[guest] / 2
    covariance[launch, launch] += (mean[guest] / 2) ** 2
    # Rings depend on the version of NCCL and on the IOMMU.
    covariance[ring, ring] += BETWEEN_RINGS**2
    # Images of other sizes and other decoders take their own time.
    covariance[images, images] += BETWEEN_DECODERS**2
    for name in WORKLOAD_FAMILY:  # one site's software is good at one network, another's at another
        covariance[PARAMETER_INDEX[f"workload:{name}"], PARAMETER_INDEX[f"workload:{name}"]] += BETWEEN_NETWORKS**2
    return replace(published, mean=mean, covariance=covariance)


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
            quantity="traffic",
            effect=group[0].spec.hash,
            effect_spread=SHARED_MISFIT,
        )
    ]


PAPER_WORKLOADS = ("mobilenet_v2", "resnet50", "yolov5l", "bert_base", "bert_large")
# The software variants of BERT-large: what differs from its published run. In fp32, 16 GB hold NVIDIA's batch of 4.
PAPER_VARIANTS: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "fp32": {"precision": "fp32", "batch": 4},
        "dp": {"strategy": "dp"},
        "sharded": {"strategy": "sharded", "batch": 10},
    }
)
PAPER_DRAWERS = ("falcon-1/drawer 1/H1", "falcon-1/drawer 2/H2")
PAPER_LOCAL_GPU, PAPER_FALCON_GPU, PAPER_DRIVE = "V100-SXM2-16GB", "V100-PCIE-16GB", "SSDPEDKX040T7"
# The slower end of a disk, where localNVMe names its own.
PAPER_DISK = Storage(model=LOCAL_STORAGE)


def paper_spec(workload: str) -> Spec:
    """Return the specification of a workload in the published experiment."""
    return spec_of(workload, "paper", {"data": "files"})


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
H100_TOPOLOGY = Topology(  # of the measured steps
    name="one H100",
    cores=16,
    memory_bytes=135e9,
    accelerators=(Accelerator(name="GPU", model="H100", link=PcieLink(generation=5)),),
)


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
