"""The parameters of the model: each is positive and known by its logarithm, with what is believed before any rate.

The centre is what general knowledge says, the spread one standard deviation of the logarithm: 0.3 says 'within about
30 %'. An efficiency of a workload is a product: what all share, its family's deviation and its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from benchmarks.model.facts import DEVICES

Floats = npt.NDArray[np.float64]

FAMILY: Mapping[str, str] = MappingProxyType(
    {
        "mobilenet_v2": "depthwise",
        "efficientnet_b0": "depthwise",
        "resnet50": "convolution",
        "yolov5l": "convolution",
        "alexnet": "convolution",
        "vgg16": "convolution",
        "mnist_cnn": "convolution",
        "bert_base": "transformer",
        "bert_large": "transformer",
    }
)


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter: `centre` in its own unit, `spread` of its logarithm."""

    name: str
    centre: float
    spread: float
    about: str


def _every() -> tuple[Parameter, ...]:
    def one(name: str, centre: float, spread: float, about: str) -> Parameter:
        return Parameter(name=name, centre=centre, spread=spread, about=about)

    general = (
        one("half", 0.4, 0.4, "share of the fp16 or bf16 peak rate that matrix products reach"),
        one("single", 0.6, 0.3, "share of the fp32 peak rate that matrix products reach"),
        one("memory", 0.75, 0.3, "share of the memory's rate that other operations reach"),
        one("stack", 1.0, 0.17, "time of a device against the published rates: this site's software and clocks"),
        one("machine", 1.0, 0.35, "time of this site's CPUs against that of the design notes"),
        one("launch", 8e-6, 0.5, "s to start an operation"),
        one("call", 20e-6, 0.6, "s that one operation on a CPU takes at least"),
        one("nvlink", 0.95, 0.15, "share of NVLink's all-reduce rate"),
        one("switch", 0.85, 0.2, "share of the published rate between GPUs below one switch that a ring reaches"),
        one("across", 0.85, 0.2, "share of the published rate between GPUs across the host that a ring reaches"),
        one("loopback", 1.0, 0.7, "share of the assumed rate between processes on a CPU"),
        one("latency", 3.0, 0.5, "times the latency of a small write that one hop of a ring takes"),
        one("contention", 0.1, 0.6, "share of hidden communication that slows computation nevertheless"),
        one("straggle", 0.015, 0.6, "slowdown a doubling of devices (natural logarithm): the slowest is waited for"),
        one("gradient", 1.0, 0.2, "width of gradients on the wire against what the run asks for"),
        # The design notes' 7 bytes a parameter and GPU are one way of a ring of eight in fp32: half of both ways.
        one("count", 0.5, 0.2, "bytes that the ports count against those sent and received"),
        one("optimiser", 1.5, 0.4, "times the least traffic of memory that an optimiser step takes"),
        one("compile", 0.8, 0.15, "time of operations bound by memory when compiled (assumed)"),
        one("dp", 1.3, 0.35, "times the exchange of DP against its bytes over the slowest link"),
        one("sharded", 1.15, 0.25, "times the exchange of sharded training against its bytes over the slowest link"),
        one("images", 1 / 110 / (4 * 3 * 224**2), 0.6, "s of a core to read and change an image, a byte of the tensor"),
        one("scenes", 0.035 / (4 * 3 * 640**2), 0.6, "s of a core to read and mix an image with boxes, a byte"),
        one("tokens", 2e-4 / 9e3, 0.8, "s of a core to prepare a sequence, a byte"),
        one("storage", 0.7, 0.3, "share of a drive's sequential rate that reads of files reach"),
        one("copy", 0.8, 0.25, "share of a link's rate that copies from the host reach"),
        one("sample", 1.0, 0.25, "bytes of a sample on the way to a device against its tensor's"),
        one("core", 0.5, 0.4, "share of a CPU's peak rate that matrix products reach"),
        one("host_memory", 0.5, 0.5, "share of a host's memory rate that other operations reach"),
    )
    families = (
        one("family:convolution", 1.0, 0.15, "time of devices, convolutional networks"),
        one("family:depthwise", 2.0, 0.4, "time of devices, depthwise separable convolutions"),
        one("family:transformer", 1.0, 0.15, "time of devices, transformers"),
    )
    workloads = tuple(one(f"workload:{name}", 1.0, 0.22, f"time of devices, {name}") for name in FAMILY)
    halves = tuple(
        one(f"half:{name}", 1.0, 0.12, f"time in mixed precision against that in fp32, {name}") for name in FAMILY
    )
    cores = tuple(one(f"core:{name}", 1.0, 0.35, f"time of a CPU against that of a GPU, {name}") for name in FAMILY)
    devices = tuple(
        one(f"device:{name}", 1.0, facts.doubt, f"time of devices, {name} against its data sheet")
        for name, facts in DEVICES.items()
    )
    return general + families + workloads + halves + cores + devices


PARAMETERS = _every()
NAMES = tuple(parameter.name for parameter in PARAMETERS)
INDEX: Mapping[str, int] = MappingProxyType({name: index for index, name in enumerate(NAMES)})
CENTRE: Floats = np.log([parameter.centre for parameter in PARAMETERS])
SPREAD: Floats = np.array([parameter.spread for parameter in PARAMETERS])
