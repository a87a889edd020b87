"""What the published experiment observed, from the project's design notes: sentences, and their values.

`reading` says what a sentence is taken to claim where it has no figure of its own. Ratios are of times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from core.language import gettext_noop

# GB/s of the eight Falcon GPUs on falconGPUs, in and out: O4.
TRAFFIC: Mapping[str, float] = MappingProxyType({"bert_large": 76.43, "resnet50": 11.31, "mobilenet_v2": 4.0})
# What the time relative to localGPUs is below, on falconGPUs and hybridGPUs: O1, and O2 for YOLOv5-L.
VISION_TIME: Mapping[str, float] = MappingProxyType({"mobilenet_v2": 1.05, "resnet50": 1.05, "yolov5l": 1.07})
# 'Almost twice': what it is taken for as one value, and what counts as it. O3.
ALMOST_TWICE, ALMOST_TWICE_RANGE = 1.9, (1.7, 2.05)
UTILISATION = 0.8  # share of time, that all workloads exceed in all configurations: O5
# What remains of the time of fp32 is below, in mixed precision: O11, in all cases and with Falcon GPUs.
MIXED_TIME: Mapping[str, float] = MappingProxyType({"localGPUs": 0.5, "hybridGPUs": 0.3, "falconGPUs": 0.3})
DDP_SPEEDUP = 1.8  # of DDP over DP on localGPUs, that it exceeds: O12


@dataclass(frozen=True, kw_only=True)
class PaperObservation:
    """One published observation; `reading` is '' where the sentence is plain."""

    key: str
    published: str
    reading: str = ""


OBSERVATIONS: tuple[PaperObservation, ...] = (
    PaperObservation(
        key="O1",
        published=gettext_noop(
            "On falconGPUs and hybridGPUs, MobileNetV2 and ResNet-50 train slower than on localGPUs by less than 5 %."
        ),
    ),
    PaperObservation(
        key="O2",
        published=gettext_noop("All vision workloads, YOLOv5-L too, are slower by less than 7 %."),
    ),
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
            "For all workloads in all configurations, GPU utilisation is above 80 %, and slightly higher with Falcon "
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
        reading=gettext_noop("cores less than 80 % busy"),
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
        reading=gettext_noop("whole trainings shorter by at least 0.5 %, of which the chassis takes less than a fifth"),
    ),
    PaperObservation(
        key="O11",
        published=gettext_noop(
            "BERT-large, mixed precision: in all cases time falls by more than 50 %, with Falcon GPUs by more than "
            "70 %."
        ),
        reading=gettext_noop("time a sample, against FP32 with a batch of 4; Falcon GPUs: hybridGPUs and falconGPUs"),
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
