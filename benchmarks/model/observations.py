"""What the published experiment observed, each judged by the model: does it hold in what is predicted?

Nothing here is an answer: each value comes from a study, of the formula or of the simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from benchmarks.model.belief import Belief
from benchmarks.model.calibration import (
    PAPER_WORKLOADS,
    belief_of,
    fit_published,
    published_belief,
    published_data,
    published_fit,
)
from benchmarks.model.fitting import FitDatum
from benchmarks.model.memory import fits, memory_bytes
from benchmarks.model.paper_study import (
    FALCON_GPUS,
    FALCON_NVME,
    HYBRID_GPUS,
    LOCAL_GPUS,
    LOCAL_NVME,
    ExperimentStudy,
    Figure,
    PaperStudy,
)
from benchmarks.model.prediction import INTERVAL_QUANTILES
from benchmarks.model.published_observations import (
    ALMOST_TWICE_RANGE,
    DDP_SPEEDUP,
    MIXED_TIME,
    OBSERVATIONS,
    TRAFFIC,
    UTILISATION,
    VISION_TIME,
    PaperObservation,
)
from benchmarks.model.reference_data import GB
from benchmarks.workloads.catalogue import workload_title
from core.language import _, gettext_noop

VISION, LANGUAGE = PAPER_WORKLOADS[:3], PAPER_WORKLOADS[3:]
TRAFFIC_TOLERANCE = 0.1  # relative; 4 GB/s is published with one digit
SLIGHTLY = 0.1  # of all time
# The first model, judged before it had seen them: the observation, what it predicted, and whether that held.
FIRST_MODEL = (
    (gettext_noop("O1: MobileNetV2 and ResNet-50, slower by less than 5 %"), "1.3 %, 4.8 %", True),
    (gettext_noop("O2: vision with YOLOv5-L, slower by less than 7 %"), "10.1 %", False),
    (gettext_noop("O3: BERT-large, almost twice as long"), gettext_noop("2.33 times (1.54 to 3.83)"), False),
    (gettext_noop("O3: overhead grows with the number of parameters"), gettext_noop("the same order"), True),
    (gettext_noop("O4: PCIe traffic of BERT-large, 76.43 GB/s"), "58.2 GB/s", False),
    (gettext_noop("O4: PCIe traffic of MobileNetV2, 4 GB/s"), "4.34 GB/s", True),
)


@dataclass(frozen=True, kw_only=True)
class JudgedObservation:
    """An observation beside its prediction: `predicted` in words, its leading `value` with a 90 % interval.

    An order has no interval. `fitted`: the model was fitted to it; else the model's authors had seen it.
    """

    observation: PaperObservation
    predicted: str
    value: float
    low: float | None
    high: float | None
    holds: bool
    fitted: bool


Judgement = tuple[str, Figure, bool]  # predicted in words, the leading figure, holds


def _below(study: ExperimentStudy, workloads: Sequence[str], most: float) -> Judgement:
    found = {
        (workload, name): study.overhead(workload, name)
        for workload in workloads
        for name in (HYBRID_GPUS, FALCON_GPUS)
    }
    worst = max(found, key=lambda key: found[key].value)
    least = min(one.value for one in found.values())
    predicted = _(
        "{least:+.1%} to {most:+.1%}, most for {workload} on {configuration}",
        least=least,
        most=found[worst].value,
        workload=workload_title(worst[0]),
        configuration=worst[1],
    )
    return predicted, found[worst], found[worst].value < most


def _almost_twice(study: ExperimentStudy) -> Judgement:
    ratio = study.overhead("bert_large", FALCON_GPUS) + 1.0
    low, high = ALMOST_TWICE_RANGE
    return _("{ratio:.2f} times", ratio=ratio.value), ratio, low <= ratio.value <= high


def _order(study: ExperimentStudy) -> Judgement:
    found = [study.overhead(workload, FALCON_GPUS) for workload in PAPER_WORKLOADS]
    values = [one.value for one in found]
    predicted = ", ".join(
        f"{workload_title(name)} {value:+.1%}" for name, value in zip(PAPER_WORKLOADS, values, strict=True)
    )
    return predicted, found[-1], values == sorted(values)


def _traffic(study: ExperimentStudy, workload: str) -> Judgement:
    found = study.figure("traffic", workload, FALCON_GPUS) * (1 / GB)
    return f"{found.value:.2f} GB/s", found, abs(found.value / TRAFFIC[workload] - 1) <= TRAFFIC_TOLERANCE


def _utilisation(study: ExperimentStudy) -> Judgement:
    found = {key: study.figure("utilisation", *key) for key in study.cells if key[0] in PAPER_WORKLOADS}
    least = min(found, key=lambda key: found[key].value)
    higher = [found[workload, FALCON_GPUS].value - found[workload, LOCAL_GPUS].value for workload in PAPER_WORKLOADS]
    predicted = _(
        "{least:.0%} or more, least for {workload} on {configuration}; {low:+.1f} to {high:+.1f} points on falconGPUs",
        least=found[least].value,
        workload=workload_title(least[0]),
        configuration=least[1],
        low=100 * min(higher),
        high=100 * max(higher),
    )
    return predicted, found[least], found[least].value > UTILISATION and min(higher) > 0 and max(higher) < SLIGHTLY


def _memory_access(study: ExperimentStudy) -> Judgement:
    lower = {
        workload: study.figure("memory", workload, LOCAL_GPUS) - study.figure("memory", workload, FALCON_GPUS)
        for workload in PAPER_WORKLOADS
    }
    values = {workload: one.value for workload, one in lower.items()}
    predicted = ", ".join(f"{workload_title(name)} {-100 * value:+.1f}" for name, value in values.items())
    holds = min(values.values()) > 0 and min(values[name] for name in LANGUAGE) > max(values[name] for name in VISION)
    return _("falconGPUs against localGPUs, in points: {points}", points=predicted), lower["bert_large"] * -1.0, holds


def _steadiness(study: PaperStudy) -> Judgement:
    waits = {workload: study.figure("waited", workload, LOCAL_GPUS) for workload in PAPER_WORKLOADS}
    stop = float(study.training.checkpoint[0, study.column("bert_large", LOCAL_GPUS)])
    predicted = _(
        "waits within steps: NLP {language:.1%} at most, vision {vision:.1%} at least; BERT-large stops for "
        "{seconds:.1f} s at each checkpoint",
        language=max(waits[name].value for name in LANGUAGE),
        vision=min(waits[name].value for name in VISION),
        seconds=stop,
    )
    steadier = max(waits[name].value for name in LANGUAGE) < min(waits[name].value for name in VISION)
    return predicted, waits["bert_large"], steadier and stop >= 1.0


def _cpu(study: ExperimentStudy) -> Judgement:
    found = {key: study.figure("cpu", *key) for key in study.cells if key[0] in PAPER_WORKLOADS}
    most = max(found, key=lambda key: found[key].value)
    vision = min(found[name, LOCAL_GPUS].value for name in VISION)
    language = max(found[name, LOCAL_GPUS].value for name in LANGUAGE)
    predicted = _(
        "{most:.0%} of the cores at most; vision {vision:.0%} or more, NLP {language:.1%} or less",
        most=found[most].value,
        vision=vision,
        language=language,
    )
    return predicted, found[most], found[most].value < 0.8 and vision > language


def _limits(study: PaperStudy) -> Judgement:
    terms, largest = study.terms, []
    for workload in PAPER_WORKLOADS:
        column = study.column(workload, LOCAL_GPUS)
        parts = {name: float(getattr(terms, name)[0, column]) for name in ("compute", "exposed", "optimiser", "waited")}
        largest.append(max(parts, key=lambda name: parts[name]) == "compute")
    spec, topology = study.cells["bert_large", LOCAL_GPUS]
    double = msgspec.structs.replace(spec, batch=2 * spec.batch)
    share = study.figure("memory", "bert_large", LOCAL_GPUS)
    room = memory_bytes(double) / topology.accelerators[0].memory_bytes
    predicted = _(
        "computation is largest for {count} of 5; BERT-large at twice its batch needs {room:.0%} of the memory",
        count=sum(largest),
        room=room,
    )
    return predicted, share, all(largest) and fits(double, topology) != ""


def _drive(study: ExperimentStudy) -> Judgement:
    gains, costs = {}, {}
    for workload in ("yolov5l", *LANGUAGE):
        disk, nvme, falcon = (
            study.figure("training", workload, name) for name in (LOCAL_GPUS, LOCAL_NVME, FALCON_NVME)
        )
        gains[workload] = (disk - nvme) / disk
        costs[workload] = (falcon.value - nvme.value) / max(disk.value - nvme.value, 1e-9)
    predicted = _(
        "{gains} shorter; the chassis takes {cost:.0%} of it",
        gains=", ".join(f"{workload_title(name)} {one.value:.1%}" for name, one in gains.items()),
        cost=max(costs.values()),
    )
    least = min(one.value for one in gains.values())
    return predicted, gains["bert_large"], least >= 0.005 and max(costs.values()) < 0.2


def _mixed(study: ExperimentStudy) -> Judgement:
    falls = {
        name: study.seconds_a_sample("bert_large", name) / study.seconds_a_sample("fp32", name) * -1.0 + 1.0
        for name in (LOCAL_GPUS, HYBRID_GPUS, FALCON_GPUS)
    }
    predicted = ", ".join(f"{name} {-one.value:.0%}" for name, one in falls.items())
    return predicted, falls[FALCON_GPUS], all(1 - falls[name].value < left for name, left in MIXED_TIME.items())


def _data_parallel(study: ExperimentStudy) -> Judgement:
    gains = {
        name: study.figure("step", "dp", name) / study.figure("step", "bert_large", name) + -1.0
        for name in (LOCAL_GPUS, HYBRID_GPUS, FALCON_GPUS)
    }
    predicted = ", ".join(f"{name} {one.value:+.0%}" for name, one in gains.items())
    local = gains[LOCAL_GPUS].value
    others = [gains[name].value for name in (HYBRID_GPUS, FALCON_GPUS)]
    return predicted, gains[LOCAL_GPUS], local > DDP_SPEEDUP - 1 and local > max(others) and min(others) > 0


def _sharded(study: ExperimentStudy) -> Judgement:
    spec, topology = study.cells["sharded", LOCAL_GPUS]
    six = study.cells["bert_large", LOCAL_GPUS][0]
    gains = {
        name: study.seconds_a_sample("bert_large", name) / study.seconds_a_sample("sharded", name) + -1.0
        for name in (LOCAL_GPUS, HYBRID_GPUS, FALCON_GPUS)
    }
    predicted = _(
        "{gains} samples a second; {sharded:.1f} GB at 10, against {whole:.1f} GB at 6",
        gains=", ".join(f"{name} {one.value:+.0%}" for name, one in gains.items()),
        sharded=memory_bytes(spec) / GB,
        whole=memory_bytes(six) / GB,
    )
    roomy = not fits(spec, topology) and memory_bytes(spec) <= memory_bytes(six)
    return predicted, gains[LOCAL_GPUS], roomy and min(one.value for one in gains.values()) > 0


STEP_JUDGES: Mapping[str, Callable[[ExperimentStudy], Judgement]] = {
    "O1": lambda study: _below(study, VISION[:2], VISION_TIME["resnet50"] - 1),
    "O2": lambda study: _below(study, VISION, VISION_TIME["yolov5l"] - 1),
    "O3-time": _almost_twice,
    "O3-order": _order,
    "O4-bert_large": lambda study: _traffic(study, "bert_large"),
    "O4-resnet50": lambda study: _traffic(study, "resnet50"),
    "O4-mobilenet_v2": lambda study: _traffic(study, "mobilenet_v2"),
    "O5": _utilisation,
    "O6": _memory_access,
    "O8": _cpu,
    "O10": _drive,
    "O11": _mixed,
    "O12": _data_parallel,
    "O13": _sharded,
}
# These need the parts of a training and the terms of the formula.
_MODEL_JUDGES: Mapping[str, Callable[[PaperStudy], Judgement]] = {"O7": _steadiness, "O9": _limits}


def judge_observations(belief: Belief | None = None) -> list[JudgedObservation]:
    """Return each published observation with what the model says of it, by default by what it believes of that site."""
    return _judge(OBSERVATIONS, belief or published_belief())


def judge_left_out() -> dict[str, JudgedObservation]:
    """Return each observation that the model is fitted to, as judged by a fit to all else, by its key."""
    data = published_data()
    found = {}
    for observation in OBSERVATIONS:
        others = [datum for datum in data if observation_key(datum) != observation.key]
        if len(others) < len(data):
            found[observation.key] = _judge([observation], belief_of(fit_published(others, published_fit())))[0]
    return found


def observation_key(datum: FitDatum) -> str:
    """Return the key of the observation that a datum is from: 'O1' of 'O1, resnet50, falconGPUs'."""
    return datum.name.split(", ")[0]


def _judge(observations: Sequence[PaperObservation], belief: Belief) -> list[JudgedObservation]:
    study = PaperStudy(belief)
    fitted = {observation_key(datum) for datum in published_data()}
    found = []
    for observation in observations:
        predicted, figure, holds = {**STEP_JUDGES, **_MODEL_JUDGES}[observation.key](study)
        low, high = np.quantile(figure.drawn, INTERVAL_QUANTILES)
        order = observation.key in ("O3-order", "O9")
        found.append(
            JudgedObservation(
                observation=observation,
                predicted=predicted,
                value=figure.value,
                low=None if order else float(low),
                high=None if order else float(high),
                holds=bool(holds),
                fitted=observation.key in fitted,
            )
        )
    return found
