"""Published rates and steps that the parameters are fitted to, from the project's design notes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

NVIDIA_SOURCE = "NVIDIA DeepLearningExamples"
LAMBDA_SOURCE = "lambdal/deeplearning-benchmark"


@dataclass(frozen=True, kw_only=True)
class PublishedRate:
    """A published rate, samples a second over all GPUs of a host with V100-SXM2-16GB.

    `row` names what was measured together. The batch is a GPU's; only the sources of BERT-large name theirs, the others
    are assumed.
    """

    row: str
    workload: str
    precision: Literal["fp32", "fp16"]
    gpus: int
    batch: int
    samples: float
    source: str
    rounding: float = 0.0  # relative standard deviation of what the figure is rounded to
    channels_last: bool = False  # of convolutions: assumed where a release became much faster
    includes_loader: bool = False  # fed by PyTorch's loader; else by the source's own


def _rate_pair(
    row: str,
    workload: str,
    batch: int,
    samples: tuple[float, float],
    source: str,
    *,
    precision: Literal["fp32", "fp16"] = "fp16",
    rounding: float = 0.0,
    channels_last: bool = False,
) -> tuple[PublishedRate, PublishedRate]:
    """Return the rates of one and of eight GPUs."""
    first, second = (
        PublishedRate(
            row=row,
            workload=workload,
            precision=precision,
            gpus=gpus,
            batch=batch,
            samples=rate,
            source=source,
            rounding=rounding if gpus == 1 else 0.0,
            channels_last=channels_last,
        )
        for gpus, rate in zip((1, 8), samples, strict=True)
    )
    return first, second


PUBLISHED_RATES: tuple[PublishedRate, ...] = (
    *_rate_pair("ResNet-50 AMP 20.06", "resnet50", 256, (856, 6636), NVIDIA_SOURCE),
    *_rate_pair("ResNet-50 AMP 20.12", "resnet50", 256, (1180, 7608), NVIDIA_SOURCE, channels_last=True),
    *_rate_pair("ResNet-50 AMP Lambda", "resnet50", 256, (833, 6174), LAMBDA_SOURCE),
    *_rate_pair("BERT-large FP16", "bert_large", 10, (50, 359), NVIDIA_SOURCE),
    *_rate_pair("BERT-large FP32", "bert_large", 4, (9, 61), NVIDIA_SOURCE, precision="fp32", rounding=0.032),
    *_rate_pair("BERT-large FP16 Lambda", "bert_large", 16, (57, 286), LAMBDA_SOURCE),
    *_rate_pair("BERT-base FP16 first", "bert_base", 32, (149, 986), LAMBDA_SOURCE),
    *_rate_pair("BERT-base FP16 second", "bert_base", 32, (189, 1204), LAMBDA_SOURCE),
    PublishedRate(
        row="YOLOv5-L AMP",
        workload="yolov5l",
        precision="fp16",
        gpus=1,
        batch=16,
        samples=68,
        source="ultralytics README, Feb 2021",
    ),
    PublishedRate(
        row="MobileNetV2 FP32",
        workload="mobilenet_v2",
        precision="fp32",
        gpus=8,
        batch=32,
        samples=3268,
        source="pytorch/vision PR 818",
        includes_loader=True,
    ),
    *_rate_pair("EfficientNet-B0 AMP", "efficientnet_b0", 256, (1301, 7789), NVIDIA_SOURCE, channels_last=True),
)


@dataclass(frozen=True, kw_only=True)
class PublishedCpuStep:
    """Seconds of a step over two processes on a CPU of four cores, as measured in the design notes."""

    workload: str
    batch: int
    seconds: float
    sequence: int = 384
    source: str = "measured on a 4-core CPU, 2 processes over gloo"


PUBLISHED_CPU_STEPS: tuple[PublishedCpuStep, ...] = (
    PublishedCpuStep(workload="mobilenet_v2", batch=4, seconds=0.43),
    PublishedCpuStep(workload="resnet50", batch=4, seconds=1.7),
    PublishedCpuStep(workload="bert_base", batch=2, seconds=2.6, sequence=128),
)
