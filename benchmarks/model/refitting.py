"""Learns from runs: the prior's parameters, fitted again to what was observed."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

from benchmarks.model.belief import SHARED_MISFIT, Belief, Measured, cell_key
from benchmarks.model.features import Features, ModelError, features_of, is_link
from benchmarks.model.fitting import Datum, fitted
from benchmarks.model.parameters import NAMES
from benchmarks.model.prior import prior
from benchmarks.model.shapes import Observation

LEAST_SPREAD = 0.015  # of a run's median from one repetition to the next
TRAFFIC_SPREAD = 0.1  # of traffic: counters are read at intervals, and runs are short


def refit(observations: Sequence[Observation]) -> Belief:
    """Return the prior after runs: the most probable parameters, their covariance, and the misfit that is left.

    Runs of one cell are repetitions: they tell of one error of the formula, not of many. Runs that the model knows
    nothing of (a user's command, an impossible topology), or whose figures are no numbers, are left out; runs of link
    workloads count for their own cell.
    """
    start = prior()
    groups: dict[str, list[Observation]] = defaultdict(list)
    for observation in observations:
        seconds, spread = observation.step_seconds, observation.spread
        if seconds > 0 and math.isfinite(seconds) and 0 <= spread < math.inf:
            groups[cell_key(observation.spec, observation.topology)].append(observation)
    data: list[Datum] = []
    measured: dict[str, Measured] = {}
    runs: Counter[str] = Counter()
    for key, group in groups.items():
        spec, topology = group[0].spec, group[0].topology
        log_seconds, spread = _mean(group)
        try:
            if not is_link(spec):
                features = features_of(spec, topology)
                data.append(
                    Datum(
                        features=features,
                        log_value=log_seconds,
                        spread=spread,
                        effect=spec.hash,
                        effect_spread=SHARED_MISFIT,
                    )
                )
                data += _traffic(group, features)
        except ModelError:
            continue
        measured[key] = Measured(log_seconds=log_seconds, spread=spread, runs=len(group))
        runs[spec.workload] += len(group)
    if not data:
        return Belief(
            mean=start.mean,
            covariance=start.covariance,
            misfit=start.misfit,
            freedom=start.freedom,
            runs=dict(runs),
            measured=measured,
        )
    fit = fitted(data, start.mean, start.covariance, misfit=start.misfit, freedom=start.freedom)
    return Belief(
        mean=fit.mean,
        covariance=fit.covariance,
        misfit=fit.misfit,
        freedom=fit.freedom,
        specs={name: len(NAMES) + index for index, name in enumerate(fit.effects)},
        runs=dict(runs),
        measured=measured,
    )


def _mean(group: Sequence[Observation]) -> tuple[float, float]:
    """Return the weighted mean of the logarithms of repeated runs, and its standard deviation."""
    weights = [1 / (LEAST_SPREAD**2 + run.spread**2) for run in group]
    total = sum(weights)
    mean = sum(weight * math.log(run.step_seconds) for weight, run in zip(weights, group, strict=True)) / total
    return mean, total**-0.5


def _traffic(group: Sequence[Observation], features: Features) -> list[Datum]:
    """Return the traffic that repeated runs measured as one datum; none of a run without devices in chassis."""
    logs = [math.log(run.traffic) for run in group if run.traffic and 0 < run.traffic < math.inf]
    if not logs or not features.chassis_devices:
        return []
    mean = sum(logs) / len(logs)
    return [
        Datum(
            features=features,
            log_value=mean,
            spread=TRAFFIC_SPREAD / len(logs) ** 0.5,
            is_traffic=True,
            effect=group[0].spec.hash,
            effect_spread=SHARED_MISFIT,
        )
    ]
