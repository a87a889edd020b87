"""The belief before any run: general knowledge, fitted to the published rates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from benchmarks.model.belief import Belief
from benchmarks.model.facts import CPU_STEPS, FALCON_TRAFFIC, RATES, CpuStep, Rate
from benchmarks.model.features import features_of
from benchmarks.model.fitting import Datum, Fit, fitted
from benchmarks.model.paper import falcon_gpus, local_gpus, paper_spec
from benchmarks.model.parameters import CENTRE, NAMES, SPREAD
from benchmarks.model.shapes import Topology
from hostwire.training import Option, Spec

# Published rates of one network on the same hardware differ by software: as much between sources, less within one.
BETWEEN_SOURCES, WITHIN_SOURCE, BETWEEN_MACHINES = 0.17, 0.05, 0.35
# What is believed of the formula's own error: the prototype was within about 20 % with all its parameters.
MISFIT, FREEDOM = 0.075, 8.0


def _rate_datum(rate: Rate) -> Datum:
    """A host of eight V100-SXM2-16GB; where its loader is not part of the rate, the input keeps up."""
    spec = Spec(
        workload=rate.workload,
        devices=rate.gpus,
        batch=rate.batch,
        precision=rate.precision,
        strategy="ddp" if rate.gpus > 1 else "single",
        loader_workers=5,
    )
    host = replace(local_gpus(), accelerators=local_gpus().accelerators[: rate.gpus])
    features = replace(features_of(spec, host), site=0.0)
    if not rate.own_loader:
        features = replace(features, decode=0.0, read_seconds=0.0)
    return Datum(
        features=features,
        log_value=math.log(rate.gpus * rate.batch / rate.samples),
        spread=WITHIN_SOURCE,
        effect=rate.row,
        # Cores and workers of the host that fed the network are not known.
        effect_spread=BETWEEN_MACHINES if rate.own_loader else BETWEEN_SOURCES,
        name=f"{rate.row}, {rate.gpus} GPU{'s' if rate.gpus > 1 else ''}",
    )


def _cpu_datum(step: CpuStep) -> Datum:
    options: dict[str, Option] = {"sequence": step.sequence} if step.workload.startswith("bert") else {}
    spec = Spec(
        workload=step.workload, devices=2, batch=step.batch, backend="cpu", threads=2, loader_workers=1, options=options
    )
    features = replace(features_of(spec, Topology(cores=4)), site=0.0, decode=0.0, read_seconds=0.0)
    return Datum(
        features=features,
        log_value=math.log(step.seconds),
        spread=WITHIN_SOURCE,
        effect="CPU",
        effect_spread=BETWEEN_MACHINES,
        name=f"{step.workload}, CPU",
    )


def public_data() -> tuple[Datum, ...]:
    """Return all published figures that the parameters are fitted to."""
    traffic = Datum(
        # It fixes the counting, so it has no error of a source's software besides.
        features=replace(features_of(paper_spec("resnet50"), falcon_gpus()), site=0.0),
        log_value=math.log(FALCON_TRAFFIC),
        spread=WITHIN_SOURCE,
        is_traffic=True,
        effect="published experiment",
        effect_spread=WITHIN_SOURCE,
        name="ResNet-50, falconGPUs, PCIe traffic",
    )
    return (*map(_rate_datum, RATES), *map(_cpu_datum, CPU_STEPS), traffic)


def fit_public(data: Sequence[Datum]) -> Fit:
    """Return the fit of general knowledge to published figures."""
    return fitted(data, CENTRE, np.diag(SPREAD**2), misfit=MISFIT, freedom=FREEDOM, learn=False)


@cache
def prior() -> Belief:
    """Return the belief before any run."""
    fit = fit_public(public_data())
    size = len(NAMES)
    return Belief(mean=fit.mean[:size], covariance=fit.covariance[:size, :size], misfit=MISFIT, freedom=FREEDOM)
