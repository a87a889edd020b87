"""What was published of the experiment besides its observations; nothing else may be shown as published.

Source: El Maghraoui et al., Performance Analysis of Deep Learning Workloads on a Composable System, arXiv 2103.10911.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from benchmarks.figures.charts import Relation
from benchmarks.model.published_observations import VISION_TIME
from benchmarks.workloads.catalogue import workload_title
from core.language import _, gettext_noop, joined
from hostwire.training import Executor


@dataclass(frozen=True)
class PublishedWorkload:
    """A workload as published; `length` in epochs."""

    name: str
    domain: str
    data: str
    parameters: str
    depth: int
    batch: str
    length: int

    @property
    def title(self) -> str:
        return workload_title(self.name)


_VISION, _LANGUAGE = gettext_noop("vision"), gettext_noop("language")
_IMAGENET, _SQUAD = "ImageNet", gettext_noop("SQuAD v1.1, sequence 384")
WORKLOADS: Final = (
    PublishedWorkload("mobilenet_v2", _VISION, _IMAGENET, "3.4 M", 53, gettext_noop("64 per GPU"), 10),
    PublishedWorkload("resnet50", _VISION, _IMAGENET, "25.6 M", 50, gettext_noop("128 per GPU"), 20),
    PublishedWorkload("yolov5l", _VISION, "COCO", "47 M", 392, gettext_noop("88 over all GPUs"), 20),
    PublishedWorkload("bert_base", _LANGUAGE, _SQUAD, "110 M", 12, gettext_noop("96 over all GPUs"), 2),
    PublishedWorkload("bert_large", _LANGUAGE, _SQUAD, "340 M", 24, gettext_noop("48 over all GPUs"), 2),
)
CONFIGURATIONS: Final[Mapping[str, str]] = {
    "localGPUs": gettext_noop("8 local GPUs, local storage"),
    "hybridGPUs": gettext_noop("4 local GPUs, 4 Falcon GPUs in 2 drawers, local storage"),
    "falconGPUs": gettext_noop("8 Falcon GPUs, 4 a drawer"),
    "localNVMe": gettext_noop("8 local GPUs, local NVMe drive"),
    "falconNVMe": gettext_noop("8 local GPUs, NVMe drive in the Falcon"),
}
VARIANTS: Final = (
    ("DP", gettext_noop("one process copies the model to all GPUs in each step and gathers the gradients on one")),
    ("DDP", gettext_noop("a process a GPU; gradients go around while the backward pass still runs")),
    ("FP16", gettext_noop("native mixed precision, against FP32")),
    (
        gettext_noop("sharded"),
        gettext_noop("optimiser state and gradients are spread over the GPUs; the batch grows from 6 to 10 a GPU"),
    ),
)
# Training time relative to localGPUs, by workload: O1, O2, O3.
RELATIVE_TIME: Final[Mapping[str, tuple[Relation, float]]] = {
    **{name: ("<", most) for name, most in VISION_TIME.items()}, "bert_large": ("≈", 2.0),
}  # fmt: skip
# The titles of the sweeps that play it, by executor.
PLAY_TITLES: Final[Mapping[Executor, str]] = {
    "simulated": "Published experiment, simulated", "torch": "Published experiment, measured",
}  # fmt: skip
_PART_LABELS: Final = {"time": gettext_noop("time"), "order": gettext_noop("order")}


def observation_label(key: str) -> str:
    """Return the label of an observation by its key: 'O4 BERT-large' of 'O4-bert_large'."""
    number, _dash, part = key.partition("-")
    return joined(
        [number, *([_(_PART_LABELS[part]) if part in _PART_LABELS else workload_title(part)] if part else [])]
    )
