"""What the published experiment observed, each judged by the model: does it hold in what is predicted?

Sentences are those of the project's design notes; `reading` says what a sentence is taken to claim where it has no
figure of its own. Nothing here is an answer: each value comes from the formula.
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
)
from benchmarks.model.fitting import FitDatum
from benchmarks.model.memory import fits, memory_bytes
from benchmarks.model.paper_study import (
    FALCON_GPUS,
    FALCON_NVME,
    HYBRID_GPUS,
    LOCAL_GPUS,
    LOCAL_NVME,
    Figure,
    PaperStudy,
)
from benchmarks.model.prediction import PROBABILITY
from core.language import _, gettext_noop

VISION, LANGUAGE = PAPER_WORKLOADS[:3], PAPER_WORKLOADS[3:]
GIGA = 1e9
TRAFFIC_TOLERANCE = 0.1  # relative; 4 GB/s is published with one digit
ALMOST_TWICE = (1.7, 2.05)
SLIGHTLY = 0.1  # of all time


@dataclass(frozen=True, kw_only=True)
class PaperObservation:
    """One published observation; `reading` is '' where the sentence is plain."""

    key: str
    published: str
    reading: str = ""


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


OBSERVATIONS: tuple[PaperObservation, ...] = (
    PaperObservation(
        key="O1",
        published=gettext_noop(
            "MobileNetV2 and ResNet-50 train less than 5 % slower on falconGPUs and hybridGPUs than on localGPUs."
        ),
    ),
    PaperObservation(key="O2", published=gettext_noop("All vision workloads, YOLOv5-L too, are less than 7 % slower.")),
    PaperObservation(
        key="O3-time",
        published=gettext_noop("BERT-large takes almost twice as long on falconGPUs."),
        reading=gettext_noop("1.7 to 2.05 times"),
    ),
    PaperObservation(
        key="O3-order",
        published=gettext_noop("Overhead grows with the number of parameters."),
        reading=gettext_noop("each of the five workloads loses more on falconGPUs than the next smaller one"),
    ),
    PaperObservation(
        key="O4-bert_large",
        published=gettext_noop("PCIe traffic of the Falcon GPUs on falconGPUs: BERT-large, 76.43 GB/s."),
    ),
    PaperObservation(
        key="O4-resnet50",
        published=gettext_noop("PCIe traffic of the Falcon GPUs on falconGPUs: ResNet-50, 11.31 GB/s."),
    ),
    PaperObservation(
        key="O4-mobilenet_v2",
        published=gettext_noop("PCIe traffic of the Falcon GPUs on falconGPUs: MobileNetV2, 4 GB/s."),
    ),
    PaperObservation(
        key="O5",
        published=gettext_noop(
            "GPU utilisation is above 80 % for all workloads in all configurations, and slightly higher with Falcon "
            "GPUs."
        ),
        reading=gettext_noop("over a whole training; on falconGPUs above localGPUs by less than 10 points"),
    ),
    PaperObservation(
        key="O6",
        published=gettext_noop(
            "The share of time with GPU memory access is lower with Falcon GPUs, most of all for BERT."
        ),
    ),
    PaperObservation(
        key="O7",
        published=gettext_noop(
            "BERT uses GPUs more steadily than vision; sharp periodic drops come from synchronisation and checkpoints."
        ),
        reading=gettext_noop(
            "within steps BERT waits less for its input; each checkpoint stops the GPUs for a second or more"
        ),
    ),
    PaperObservation(
        key="O8",
        published=gettext_noop(
            "No workload stresses CPU cores or system memory; vision uses the CPUs more than NLP (crop, resize, "
            "transpose, normalise on the CPU)."
        ),
        reading=gettext_noop("less than 80 % of the cores' time"),
    ),
    PaperObservation(
        key="O9",
        published=gettext_noop("Vision is limited by GPU compute; NLP by GPU compute and GPU memory."),
        reading=gettext_noop(
            "computation is the largest term on localGPUs; a batch twice as large does not fit BERT-large"
        ),
    ),
    PaperObservation(
        key="O10",
        published=gettext_noop(
            "An NVMe drive, local or Falcon-attached, speeds BERT and YOLO up (data loading); the Falcon's share of "
            "that cost is small."
        ),
        reading=gettext_noop("whole trainings at least 0.5 % shorter, of which the chassis takes less than a fifth"),
    ),
    PaperObservation(
        key="O11",
        published=gettext_noop(
            "BERT-large, mixed precision: time falls by more than 50 % in all cases, by more than 70 % with Falcon "
            "GPUs."
        ),
        reading=gettext_noop("time a sample, against fp32 with a batch of 4; Falcon GPUs: hybridGPUs and falconGPUs"),
    ),
    PaperObservation(
        key="O12",
        published=gettext_noop("BERT-large, DDP instead of DP: faster, most with local GPUs (more than 80 %)."),
        reading=gettext_noop("more than 1.8 times the samples a second"),
    ),
    PaperObservation(
        key="O13",
        published=gettext_noop("Sharding lets BERT-large's batch grow from 6 to 10 a GPU and gives further speed."),
        reading=gettext_noop("ten sharded need no more memory than six with DDP, and give more samples a second"),
    ),
)


Judgement = tuple[str, Figure, bool]  # predicted in words, the leading figure, holds


def _below(study: PaperStudy, workloads: Sequence[str], most: float) -> Judgement:
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
        workload=worst[0],
        configuration=worst[1],
    )
    return predicted, found[worst], found[worst].value < most


def _almost_twice(study: PaperStudy) -> Judgement:
    ratio = study.overhead("bert_large", FALCON_GPUS) + 1.0
    low, high = ALMOST_TWICE
    return _("{ratio:.2f} times", ratio=ratio.value), ratio, low <= ratio.value <= high


def _order(study: PaperStudy) -> Judgement:
    found = [study.overhead(workload, FALCON_GPUS) for workload in PAPER_WORKLOADS]
    values = [one.value for one in found]
    return ", ".join(f"{value:+.1%}" for value in values), found[-1], values == sorted(values)


def _traffic(study: PaperStudy, workload: str, published: float) -> Judgement:
    found = study.figure("traffic", workload, FALCON_GPUS) * (1 / GIGA)
    return f"{found.value:.2f} GB/s", found, abs(found.value / published - 1) <= TRAFFIC_TOLERANCE


def _utilisation(study: PaperStudy) -> Judgement:
    found = {key: study.figure("utilisation", *key) for key in study.cells if key[0] in PAPER_WORKLOADS}
    least = min(found, key=lambda key: found[key].value)
    higher = [found[workload, FALCON_GPUS].value - found[workload, LOCAL_GPUS].value for workload in PAPER_WORKLOADS]
    predicted = _(
        "{least:.0%} or more, least for {workload} on {configuration}; {low:+.1f} to {high:+.1f} points on falconGPUs",
        least=found[least].value,
        workload=least[0],
        configuration=least[1],
        low=100 * min(higher),
        high=100 * max(higher),
    )
    return predicted, found[least], found[least].value > 0.8 and min(higher) > 0 and max(higher) < SLIGHTLY


def _memory_access(study: PaperStudy) -> Judgement:
    lower = {
        workload: study.figure("memory", workload, LOCAL_GPUS) - study.figure("memory", workload, FALCON_GPUS)
        for workload in PAPER_WORKLOADS
    }
    values = {workload: one.value for workload, one in lower.items()}
    predicted = ", ".join(f"{workload} {-100 * value:+.1f}" for workload, value in values.items())
    holds = min(values.values()) > 0 and min(values[name] for name in LANGUAGE) > max(values[name] for name in VISION)
    return _("points of all time: {points}", points=predicted), lower["bert_large"] * -1.0, holds


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


def _cpu(study: PaperStudy) -> Judgement:
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


def _drive(study: PaperStudy) -> Judgement:
    gains, costs = {}, {}
    for workload in ("yolov5l", *LANGUAGE):
        disk, nvme, falcon = (
            study.figure("training", workload, name) for name in (LOCAL_GPUS, LOCAL_NVME, FALCON_NVME)
        )
        gains[workload] = (disk - nvme) / disk
        costs[workload] = (falcon.value - nvme.value) / (disk.value - nvme.value)
    predicted = _(
        "{gains} shorter; the chassis takes {cost:.0%} of it",
        gains=", ".join(f"{workload} {one.value:.1%}" for workload, one in gains.items()),
        cost=max(costs.values()),
    )
    least = min(one.value for one in gains.values())
    return predicted, gains["bert_large"], least >= 0.005 and max(costs.values()) < 0.2


def _mixed(study: PaperStudy) -> Judgement:
    falls = {
        name: study.seconds_a_sample("bert_large", name) / study.seconds_a_sample("fp32", name) * -1.0 + 1.0
        for name in (LOCAL_GPUS, HYBRID_GPUS, FALCON_GPUS)
    }
    predicted = ", ".join(f"{name} {-one.value:.0%}" for name, one in falls.items())
    holds = falls[LOCAL_GPUS].value > 0.5 and min(falls[HYBRID_GPUS].value, falls[FALCON_GPUS].value) > 0.7
    return predicted, falls[FALCON_GPUS], holds


def _data_parallel(study: PaperStudy) -> Judgement:
    gains = {
        name: study.figure("step", "dp", name) / study.figure("step", "bert_large", name) + -1.0
        for name in (LOCAL_GPUS, HYBRID_GPUS, FALCON_GPUS)
    }
    predicted = ", ".join(f"{name} {one.value:+.0%}" for name, one in gains.items())
    local = gains[LOCAL_GPUS].value
    others = [gains[name].value for name in (HYBRID_GPUS, FALCON_GPUS)]
    return predicted, gains[LOCAL_GPUS], local > 0.8 and local > max(others) and min(others) > 0


def _sharded(study: PaperStudy) -> Judgement:
    spec, topology = study.cells["sharded", LOCAL_GPUS]
    six = study.cells["bert_large", LOCAL_GPUS][0]
    gains = {
        name: study.seconds_a_sample("bert_large", name) / study.seconds_a_sample("sharded", name) + -1.0
        for name in (LOCAL_GPUS, HYBRID_GPUS, FALCON_GPUS)
    }
    predicted = _(
        "{gains} samples a second; {sharded:.1f} GB at 10, against {whole:.1f} GB at 6",
        gains=", ".join(f"{name} {one.value:+.0%}" for name, one in gains.items()),
        sharded=memory_bytes(spec) / GIGA,
        whole=memory_bytes(six) / GIGA,
    )
    roomy = not fits(spec, topology) and memory_bytes(spec) <= memory_bytes(six)
    return predicted, gains[LOCAL_GPUS], roomy and min(one.value for one in gains.values()) > 0


_JUDGES: Mapping[str, Callable[[PaperStudy], Judgement]] = {
    "O1": lambda study: _below(study, VISION[:2], 0.05),
    "O2": lambda study: _below(study, VISION, 0.07),
    "O3-time": _almost_twice,
    "O3-order": _order,
    "O4-bert_large": lambda study: _traffic(study, "bert_large", 76.43),
    "O4-resnet50": lambda study: _traffic(study, "resnet50", 11.31),
    "O4-mobilenet_v2": lambda study: _traffic(study, "mobilenet_v2", 4.0),
    "O5": _utilisation,
    "O6": _memory_access,
    "O7": _steadiness,
    "O8": _cpu,
    "O9": _limits,
    "O10": _drive,
    "O11": _mixed,
    "O12": _data_parallel,
    "O13": _sharded,
}


def judge_observations(belief: Belief | None = None) -> list[JudgedObservation]:
    """Return each published observation with what the model says of it, by default by what it believes of that site."""
    return _judge(OBSERVATIONS, belief or published_belief())


def judge_left_out() -> dict[str, JudgedObservation]:
    """Return each observation that the model is fitted to, as judged by a fit to all else, by its key."""
    data = published_data()
    whole, found = fit_published(data), {}
    for observation in OBSERVATIONS:
        others = [datum for datum in data if observation_key(datum) != observation.key]
        if len(others) < len(data):
            found[observation.key] = _judge([observation], belief_of(fit_published(others, whole)))[0]
    return found


def observation_key(datum: FitDatum) -> str:
    """Return the key of the observation that a datum is from: 'O1' of 'O1, resnet50, falconGPUs'."""
    return datum.name.split(", ")[0]


def _judge(observations: Sequence[PaperObservation], belief: Belief) -> list[JudgedObservation]:
    study = PaperStudy(belief)
    fitted = {observation_key(datum) for datum in published_data()}
    found = []
    for observation in observations:
        predicted, figure, holds = _JUDGES[observation.key](study)
        low, high = np.quantile(figure.drawn, [(1 - PROBABILITY) / 2, (1 + PROBABILITY) / 2])
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
