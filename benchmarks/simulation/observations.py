"""What the published experiment observed, each judged by the simulation: does it hold in what is simulated?

Sentences and what they are taken to claim are those of `benchmarks/model/observations.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache

import msgspec

from benchmarks.model import fits, memory_bytes
from benchmarks.model.calibration import PAPER_TOPOLOGIES, PAPER_VARIANTS, PAPER_WORKLOADS, paper_spec
from benchmarks.model.observations import ALMOST_TWICE, GIGA, LANGUAGE, SLIGHTLY, TRAFFIC_TOLERANCE, VISION
from benchmarks.model.paper_study import FALCON_GPUS, FALCON_NVME, HYBRID_GPUS, LOCAL_GPUS, LOCAL_NVME
from benchmarks.model.reference_data import DATA_SETS
from benchmarks.simulation.course import checkpoint_pause
from benchmarks.simulation.result import StepSimulation
from benchmarks.simulation.steps import simulate_step
from core.language import _
from hostwire.training import Spec

SimulatedObservation = tuple[float, str, bool]  # the leading value, all in words, holds
CONFIGURATIONS = (LOCAL_GPUS, HYBRID_GPUS, FALCON_GPUS)


def _spec(name: str) -> Spec:
    """Return the specification of a published workload, or of a variant of BERT-large."""
    if name in PAPER_VARIANTS:
        return msgspec.structs.replace(paper_spec("bert_large"), **PAPER_VARIANTS[name])
    return paper_spec(name)


@cache
def _cell(name: str, configuration: str, *, cold: bool = False) -> StepSimulation:
    return simulate_step(_spec(name), PAPER_TOPOLOGIES[configuration], cold=cold)


def _overhead(name: str, configuration: str) -> float:
    return _cell(name, configuration).step_seconds / _cell(name, LOCAL_GPUS).step_seconds - 1


def _seconds_a_sample(name: str, configuration: str) -> float:
    return _cell(name, configuration).step_seconds / _spec(name).global_batch


def _training(name: str, configuration: str) -> float:
    """Return the seconds of a published training: a first pass from the drive, further ones, and checkpoints."""
    data, spec = DATA_SETS[name], _spec(name)
    steps = data.samples / spec.global_batch
    first, further = (_cell(name, configuration, cold=cold).step_seconds for cold in (True, False))
    checkpoints = data.copies * (data.epochs * steps / data.checkpoint_steps if data.checkpoint_steps else data.epochs)
    pause = checkpoint_pause(spec, PAPER_TOPOLOGIES[configuration]).seconds
    return steps * (first + (data.epochs - 1) * further) + checkpoints * pause


def _below(workloads: Sequence[str], most: float) -> SimulatedObservation:
    found = {(name, where): _overhead(name, where) for name in workloads for where in (HYBRID_GPUS, FALCON_GPUS)}
    worst = max(found, key=lambda key: found[key])
    text = _(
        "{least:+.1%} to {most:+.1%}, most for {workload} on {configuration}",
        least=min(found.values()),
        most=found[worst],
        workload=worst[0],
        configuration=worst[1],
    )
    return found[worst], text, found[worst] < most


def _almost_twice() -> SimulatedObservation:
    ratio = 1 + _overhead("bert_large", FALCON_GPUS)
    return ratio, _("{ratio:.2f} times", ratio=ratio), ALMOST_TWICE[0] <= ratio <= ALMOST_TWICE[1]


def _order() -> SimulatedObservation:
    found = [_overhead(name, FALCON_GPUS) for name in PAPER_WORKLOADS]
    return found[-1], ", ".join(f"{value:+.1%}" for value in found), found == sorted(found)


def _traffic(name: str, published: float) -> SimulatedObservation:
    value = _cell(name, FALCON_GPUS).traffic / GIGA
    return value, f"{value:.2f} GB/s", abs(value / published - 1) <= TRAFFIC_TOLERANCE


def _utilisation() -> SimulatedObservation:
    found = {(name, where): _cell(name, where).kernel_busy for name in PAPER_WORKLOADS for where in PAPER_TOPOLOGIES}
    least = min(found, key=lambda key: found[key])
    higher = [found[name, FALCON_GPUS] - found[name, LOCAL_GPUS] for name in PAPER_WORKLOADS]
    text = _(
        "{least:.0%} or more, least for {workload} on {configuration}; {low:+.1f} to {high:+.1f} points on falconGPUs",
        least=found[least],
        workload=least[0],
        configuration=least[1],
        low=100 * min(higher),
        high=100 * max(higher),
    )
    return found[least], text, found[least] > 0.8 and min(higher) > 0 and max(higher) < SLIGHTLY


def _memory_access() -> SimulatedObservation:
    lower = {
        name: _cell(name, LOCAL_GPUS).memory_busy - _cell(name, FALCON_GPUS).memory_busy for name in PAPER_WORKLOADS
    }
    text = ", ".join(f"{name} {-100 * value:+.1f}" for name, value in lower.items())
    holds = min(lower.values()) > 0 and min(lower[name] for name in LANGUAGE) > max(lower[name] for name in VISION)
    return -lower["bert_large"], _("points of all time: {points}", points=text), holds


def _drive() -> SimulatedObservation:
    gains, costs = {}, {}
    for name in ("yolov5l", *LANGUAGE):
        disk, nvme, falcon = (_training(name, where) for where in (LOCAL_GPUS, LOCAL_NVME, FALCON_NVME))
        gains[name] = (disk - nvme) / disk
        costs[name] = (falcon - nvme) / max(disk - nvme, 1e-9)
    text = _(
        "{gains} shorter; the chassis takes {cost:.0%} of it",
        gains=", ".join(f"{name} {gain:.1%}" for name, gain in gains.items()),
        cost=max(costs.values()),
    )
    return gains["bert_large"], text, min(gains.values()) >= 0.005 and max(costs.values()) < 0.2


def _mixed() -> SimulatedObservation:
    falls = {
        where: 1 - _seconds_a_sample("bert_large", where) / _seconds_a_sample("fp32", where) for where in CONFIGURATIONS
    }
    text = ", ".join(f"{where} {-fall:.0%}" for where, fall in falls.items())
    holds = falls[LOCAL_GPUS] > 0.5 and min(falls[HYBRID_GPUS], falls[FALCON_GPUS]) > 0.7
    return falls[FALCON_GPUS], text, holds


def _data_parallel() -> SimulatedObservation:
    gains = {
        where: _cell("dp", where).step_seconds / _cell("bert_large", where).step_seconds - 1 for where in CONFIGURATIONS
    }
    local, *others = gains.values()
    text = ", ".join(f"{where} {gain:+.0%}" for where, gain in gains.items())
    return local, text, local > 0.8 and local > max(others) and min(others) > 0


def _sharded() -> SimulatedObservation:
    gains = {
        where: _seconds_a_sample("bert_large", where) / _seconds_a_sample("sharded", where) - 1
        for where in CONFIGURATIONS
    }
    spec, six = _spec("sharded"), _spec("bert_large")
    text = _(
        "{gains} samples a second; {sharded:.1f} GB at 10, against {whole:.1f} GB at 6",
        gains=", ".join(f"{where} {gain:+.0%}" for where, gain in gains.items()),
        sharded=memory_bytes(spec) / GIGA,
        whole=memory_bytes(six) / GIGA,
    )
    roomy = not fits(spec, PAPER_TOPOLOGIES[LOCAL_GPUS]) and memory_bytes(spec) <= memory_bytes(six)
    return gains[LOCAL_GPUS], text, roomy and min(gains.values()) > 0


_JUDGES: Mapping[str, Callable[[], SimulatedObservation]] = {
    "O1": lambda: _below(VISION[:2], 0.05),
    "O2": lambda: _below(VISION, 0.07),
    "O3-time": _almost_twice,
    "O3-order": _order,
    "O4-bert_large": lambda: _traffic("bert_large", 76.43),
    "O4-resnet50": lambda: _traffic("resnet50", 11.31),
    "O4-mobilenet_v2": lambda: _traffic("mobilenet_v2", 4.0),
    "O5": _utilisation,
    "O6": _memory_access,
    "O10": _drive,
    "O11": _mixed,
    "O12": _data_parallel,
    "O13": _sharded,
}


def simulated_observations() -> dict[str, SimulatedObservation]:
    """Return, by the key of an observation, its leading value in the simulation, all in words, and whether it holds."""
    return {key: judge() for key, judge in _JUDGES.items()}
