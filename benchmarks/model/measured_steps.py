"""Steps that were measured on one H100 and are fitted to, rounded as docs/results has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MEASURED_SOURCE = "docs/results/nvidia-h100-80gb-hbm3-2026-11-26.md: one H100 SXM, a virtual machine of 16 cores"


@dataclass(frozen=True, kw_only=True)
class MeasuredStep:
    """A median step in seconds, of the preset 'paper' on one GPU, and the share of time in which kernels ran.

    Of runs that wait for `files`, whose loaders bring batches in bursts, `seconds` are of the rate over all steps.
    """

    workload: str
    precision: Literal["fp16", "fp32"]
    seconds: float
    busy: float
    loaders: int = 4
    files: bool = False
    source: str = MEASURED_SOURCE

    @property
    def name(self) -> str:
        fed = f", {self.loaders} loader{'s' if self.loaders > 1 else ''} of files" if self.files else ""
        return f"H100, {self.workload} {self.precision}{fed}"


MEASURED_STEPS: tuple[MeasuredStep, ...] = (
    MeasuredStep(workload="mobilenet_v2", precision="fp16", seconds=0.04201, busy=0.43),
    MeasuredStep(workload="resnet50", precision="fp16", seconds=0.06362, busy=0.71),
    MeasuredStep(workload="yolov5l", precision="fp16", seconds=0.08922, busy=0.52),
    MeasuredStep(workload="bert_base", precision="fp16", seconds=0.04143, busy=0.38),
    MeasuredStep(workload="bert_large", precision="fp16", seconds=0.08696, busy=0.37),
    MeasuredStep(workload="mobilenet_v2", precision="fp32", seconds=0.03560, busy=0.63),
    MeasuredStep(workload="resnet50", precision="fp32", seconds=0.07397, busy=0.86),
    MeasuredStep(workload="yolov5l", precision="fp32", seconds=0.08826, busy=0.71),
    MeasuredStep(workload="bert_base", precision="fp32", seconds=0.07600, busy=0.90),
    MeasuredStep(workload="bert_large", precision="fp32", seconds=0.13983, busy=0.92),
    MeasuredStep(workload="mobilenet_v2", precision="fp16", seconds=64 / 151, busy=0.06, loaders=1, files=True),
    MeasuredStep(workload="mobilenet_v2", precision="fp16", seconds=64 / 810, busy=0.20, files=True),
)
