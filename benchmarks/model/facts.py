"""Every published figure that the performance model begins with, as data beside its source; nothing else is recalled.

Rates are bytes or operations a second, times seconds. The figures of EXPERIMENT, RATES and CPU_STEPS are those of the
project's design notes; those of devices are from the manufacturers' data sheets, at boost clock and without sparsity.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

GB, TERA = 1e9, 1e12
DESIGN = "published GPU-to-GPU table"
NVIDIA = "NVIDIA DeepLearningExamples"
LAMBDA = "lambdal/deeplearning-benchmark"


@dataclass(frozen=True, kw_only=True)
class DeviceFacts:
    """A processor by its data sheet. `half` and `brain` are the rates in fp16 and bf16, `memory_rate` bytes a second.

    `nvlink` is the sum both ways of all its NVLinks, 0 where it has none; `doubt` the relative doubt (of the logarithm)
    about how far it reaches the efficiency that was fitted to the V100.
    """

    name: str
    single: float
    half: float
    brain: float
    memory_rate: float
    memory_bytes: float
    watts: float
    nvlink: float = 0.0
    doubt: float = 0.3
    source: str


def _gpu(
    name: str,
    tera: tuple[float, float, float],
    memory: tuple[float, float],
    watts: float,
    source: str,
    *,
    nvlink: float = 0.0,
    doubt: float = 0.3,
) -> DeviceFacts:
    single, half, brain = (value * TERA for value in tera)
    return DeviceFacts(
        name=name,
        single=single,
        half=half,
        brain=brain,
        memory_rate=memory[0] * GB,
        memory_bytes=memory[1] * GB,
        watts=watts,
        nvlink=nvlink * GB,
        doubt=doubt,
        source=source,
    )


# (fp32, fp16, bf16) in TFLOP/s; (memory GB/s, GB). Without units for bf16 the V100 and its elders compute it as fp32.
_SHEETS = (
    _gpu("V100-SXM2", (15.7, 125, 15.7), (900, 16), 300, "NVIDIA V100 data sheet", nvlink=300, doubt=0.02),
    _gpu("V100-PCIE", (14, 112, 14), (900, 16), 250, "NVIDIA V100 data sheet", doubt=0.06),
    _gpu("P100-SXM2", (10.6, 21.2, 10.6), (732, 16), 300, "NVIDIA P100 data sheet", nvlink=160, doubt=0.35),
    _gpu("P100-PCIE", (9.3, 18.7, 9.3), (732, 16), 250, "NVIDIA P100 data sheet", doubt=0.35),
    _gpu("K80", (4.37, 4.37, 4.37), (240, 12), 150, "NVIDIA K80 data sheet, one of its two GPUs", doubt=0.45),
    _gpu("A100-SXM", (19.5, 312, 312), (1555, 40), 400, "NVIDIA A100 data sheet", nvlink=600),
    _gpu("A100-PCIE", (19.5, 312, 312), (1555, 40), 250, "NVIDIA A100 data sheet"),
    _gpu("H100-PCIE", (51, 756, 756), (2000, 80), 350, "NVIDIA H100 data sheet", doubt=0.4),
    _gpu("H100", (67, 989, 989), (3350, 80), 700, "NVIDIA H100 data sheet", nvlink=900, doubt=0.4),
    _gpu("H200", (67, 989, 989), (4800, 141), 700, "NVIDIA H200 data sheet", nvlink=900, doubt=0.4),
)
OTHER = _gpu("other", (14, 112, 14), (900, 16), 250, "no data sheet known: as a V100-PCIE", doubt=0.8)
# A core of a server's CPU: 2.5 GHz, two AVX2 units of 8 values, multiply and add. The memory is that of a host:
# 800 Gb/s, the upper end of the design notes' scale.
CORE_RATE, HOST_MEMORY_RATE = 80e9, 100 * GB
DEVICES: Mapping[str, DeviceFacts] = {device.name: device for device in (*_SHEETS, OTHER)}


@cache
def device_facts(model: str) -> DeviceFacts:
    """Return the facts of an accelerator by its model's name ('Tesla V100-PCIE-16GB'); OTHER where it is not known."""
    plain = model.upper().replace(" ", "-")
    return next((device for device in _SHEETS if device.name in plain), OTHER)


# PCIe, bytes a second of one lane, one way, by generation, after its line code.
LANE = {1: 0.25 * GB, 2: 0.5 * GB, 3: 0.985 * GB, 4: 1.969 * GB, 5: 3.938 * GB, 6: 7.563 * GB}
FULL_LINK = 16 * LANE[3]  # what the published table was measured over


@dataclass(frozen=True, kw_only=True)
class Edge:
    """How two GPUs reach each other: bytes a second one way, seconds of a small write."""

    rate: float
    latency: float
    source: str = DESIGN


# Bidirectional bandwidths 72.37, 19.64 and 24.47 GB/s, halved. The NVLink one is a mean over pairs.
NVLINK_PAIR = Edge(rate=72.37 * GB / 2, latency=1.85e-6)
ACROSS_HOST = Edge(rate=19.64 * GB / 2, latency=2.66e-6)
SAME_SWITCH = Edge(rate=24.47 * GB / 2, latency=2.08e-6)
# The table has one figure for two Falcon GPUs, and does not say whether they stood in one drawer: those of two drawers,
# which reach each other through the host, are taken to be between both.
BETWEEN_DRAWERS = Edge(rate=math.sqrt(19.64 * 24.47) * GB / 2, latency=math.sqrt(2.66 * 2.08) * 1e-6)
NVLINK_ALL_REDUCE = 130 * GB  # bus bandwidth over the eight V100 of a hybrid cube mesh
# Links of one V100 of a hybrid cube mesh that a ring over n of them can use: six over eight, four in a group of four,
# and the mean of single and double links between two.
MESH_LINKS = {1: 6.0, 2: 72.37 / 2 / (130 / 6), 3: 2.0, 4: 4.0, 5: 4.0, 6: 4.0, 7: 4.0, 8: 6.0}
GLOO = Edge(rate=2 * GB, latency=100e-6, source="assumed: processes on one host over the loopback interface")


@dataclass(frozen=True, kw_only=True)
class DriveFacts:
    """A drive: bytes a second of sequential reads."""

    rate: float
    source: str


NVME = DriveFacts(rate=3.29 * GB, source="Intel SSD DC P4500 4 TB data sheet")
# 'Local storage' beside 'local NVMe': the lower end of the design notes' 5 to 128 Gb/s of a disk.
PLAIN = DriveFacts(rate=5 * GB / 8, source="lower end of 5 to 128 Gb/s a disk")
LOCAL_STORAGE = "local storage"


# Parts of what drives of this kind are called.
NVME_MODELS = ("nvme", "ssdpe", "p4500", "p4510", "pm17", "pm9")


def is_nvme(model: str) -> bool:
    """Tell whether a drive is one of NVMe, by its model's name."""
    plain = model.casefold()
    return any(one in plain for one in NVME_MODELS)


def drive_facts(model: str) -> DriveFacts:
    """Return the facts of a drive by its model's name."""
    return NVME if is_nvme(model) else PLAIN


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """Bytes of a data set, and how often the published runs pass over it."""

    bytes: float
    epochs: int


DATA_SETS: Mapping[str, DataSet] = {
    "mobilenet_v2": DataSet(bytes=141 * GB, epochs=10),
    "resnet50": DataSet(bytes=141 * GB, epochs=20),
    "yolov5l": DataSet(bytes=19 * GB, epochs=20),
    "bert_base": DataSet(bytes=1 * GB, epochs=2),
    "bert_large": DataSet(bytes=1 * GB, epochs=2),
}
OTHER_DATA = DataSet(bytes=141 * GB, epochs=10)


@dataclass(frozen=True, kw_only=True)
class Rate:
    """A published rate, samples a second over all GPUs of a host with V100-SXM2-16GB.

    `row` names what was measured together. The batch is a GPU's; where the source's is not known, it is assumed.
    """

    row: str
    workload: str
    precision: Literal["fp32", "fp16"]
    gpus: int
    batch: int
    samples: float
    source: str
    batch_assumed: bool = True
    own_loader: bool = False  # fed by PyTorch's loader; else the input is taken to keep up


def _pair(
    row: str,
    workload: str,
    batch: int,
    samples: tuple[float, float],
    source: str,
    *,
    known: bool = False,
    precision: Literal["fp32", "fp16"] = "fp16",
) -> tuple[Rate, Rate]:
    """Return the rates of one and of eight GPUs."""
    first, second = (
        Rate(
            row=row,
            workload=workload,
            precision=precision,
            gpus=gpus,
            batch=batch,
            samples=rate,
            source=source,
            batch_assumed=not known,
        )
        for gpus, rate in zip((1, 8), samples, strict=True)
    )
    return first, second


RATES: tuple[Rate, ...] = (
    *_pair("ResNet-50 AMP 20.06", "resnet50", 256, (856, 6636), NVIDIA),
    *_pair("ResNet-50 AMP 20.12", "resnet50", 256, (1180, 7608), NVIDIA),
    *_pair("ResNet-50 AMP Lambda", "resnet50", 256, (833, 6174), LAMBDA),
    *_pair("BERT-large FP16", "bert_large", 10, (50, 359), NVIDIA, known=True),
    *_pair("BERT-large FP32", "bert_large", 4, (9, 61), NVIDIA, known=True, precision="fp32"),
    *_pair("BERT-large FP16 Lambda", "bert_large", 16, (57, 286), LAMBDA, known=True),
    *_pair("BERT-base FP16 first", "bert_base", 32, (149, 986), LAMBDA),
    *_pair("BERT-base FP16 second", "bert_base", 32, (189, 1204), LAMBDA),
    Rate(
        row="YOLOv5-L AMP",
        workload="yolov5l",
        precision="fp16",
        gpus=1,
        batch=16,
        samples=68,
        source="ultralytics README, Feb 2021",
    ),
    Rate(
        row="MobileNetV2 FP32",
        workload="mobilenet_v2",
        precision="fp32",
        gpus=8,
        batch=32,
        samples=3268,
        source="pytorch/vision PR 818",
        own_loader=True,
    ),
    *_pair("EfficientNet-B0 AMP", "efficientnet_b0", 256, (1301, 7789), NVIDIA),
)


@dataclass(frozen=True, kw_only=True)
class CpuStep:
    """Seconds of a step over two processes on a CPU of four cores, as measured in the design notes."""

    workload: str
    batch: int
    seconds: float
    sequence: int = 384
    source: str = "measured on a 4-core CPU, 2 processes over gloo"


CPU_STEPS: tuple[CpuStep, ...] = (
    CpuStep(workload="mobilenet_v2", batch=4, seconds=0.43),
    CpuStep(workload="resnet50", batch=4, seconds=1.7),
    CpuStep(workload="bert_base", batch=2, seconds=2.6, sequence=128),
)

# ResNet-50 on falconGPUs, ingress and egress ports of the eight Falcon GPUs: what fixes the counting convention.
FALCON_TRAFFIC = 11.31 * GB
