"""Published figures and data sheets, and the model's parameters with their prior.

Rates are bytes or operations a second, times seconds. Figures of the experiment are those of the project's
design notes; those of devices are from the manufacturers' data sheets, at boost clock and without sparsity.

The centre is general knowledge, the spread one standard deviation of the logarithm: 0.3 means 'within about 30 %'. The
efficiency of a workload is a product of a common factor, its family's deviation and its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from core.language import gettext_noop

GB, TERA = 1e9, 1e12
NORMAL_90 = 1.645  # standard deviations of a normal distribution to either side that hold 90 %
CARD_GB = 0.985 * 2**30  # bytes: a card of '16 GB' has 16 GiB, of which the driver takes a little
GPU_TABLE_SOURCE = "published GPU-to-GPU table"


@dataclass(frozen=True, kw_only=True)
class DeviceDatasheet:
    """A processor by its data sheet. `half` and `brain` are the rates in fp16 and bf16, `memory_rate` bytes a second.

    `tf32`: the rate of fp32 convolutions, which cuDNN rounds to TF32 where there are units for it; else `single`.
    `nvlink` is the sum both ways of all its NVLinks, 0 for none. `limited`: the time that it takes longer than its data
    sheet says against others of its generation: a card does not hold its boost clock (assumed). `doubt`: the
    relative uncertainty (of the logarithm) of its efficiency against the one fitted to the V100.
    """

    name: str
    single: float
    half: float
    bf16: float
    tf32: float
    memory_rate: float
    memory_bytes: float
    watts: float
    nvlink: float = 0.0
    limited: float = 1.0
    doubt: float = 0.3
    source: str

    @property
    def is_newer(self) -> bool:
        """Whether it is of a later generation than the V100: it has units for TF32."""
        return self.tf32 > self.single

    @property
    def faster_units(self) -> float:
        """How much faster its units of matrices are than a V100's, on a scale of ratios: an H100 has 1."""
        return max(0.0, math.log(self.half / (125 * TERA)) / math.log(989 / 125))


def _gpu_datasheet(
    name: str,
    tera: tuple[float, float, float],
    memory: tuple[float, float],
    watts: float,
    source: str,
    *,
    tf32: float = 0.0,
    nvlink: float = 0.0,
    limited: float = 1.0,
    doubt: float = 0.3,
) -> DeviceDatasheet:
    single, half, brain = (value * TERA for value in tera)
    return DeviceDatasheet(
        name=name,
        single=single,
        half=half,
        bf16=brain,
        tf32=(tf32 or tera[0]) * TERA,
        memory_rate=memory[0] * GB,
        memory_bytes=memory[1] * CARD_GB,
        watts=watts,
        nvlink=nvlink * GB,
        limited=limited,
        doubt=doubt,
        source=source,
    )


_AMPERE, _HOPPER = "NVIDIA A100 data sheet", "NVIDIA H100 data sheet"
# (fp32, fp16, bf16) in TFLOP/s; (memory GB/s, GB). Without units for bf16 the V100 and its elders compute it as fp32.
_DATASHEETS = (
    _gpu_datasheet("V100-SXM2", (15.7, 125, 15.7), (900, 16), 300, "NVIDIA V100 data sheet", nvlink=300, doubt=0.02),
    _gpu_datasheet("V100-PCIE", (14, 112, 14), (900, 16), 250, "NVIDIA V100 data sheet", doubt=0.03),
    _gpu_datasheet("P100-SXM2", (10.6, 21.2, 10.6), (732, 16), 300, "NVIDIA P100 data sheet", nvlink=160, doubt=0.35),
    _gpu_datasheet("P100-PCIE", (9.3, 18.7, 9.3), (732, 16), 250, "NVIDIA P100 data sheet", doubt=0.35),
    _gpu_datasheet(
        "K80", (4.37, 4.37, 4.37), (240, 12), 150, "NVIDIA K80 data sheet, one of its two GPUs", limited=1.5, doubt=0.45
    ),
    _gpu_datasheet("A100-SXM", (19.5, 312, 312), (1555, 40), 400, _AMPERE, tf32=156, nvlink=600),
    _gpu_datasheet("A100-PCIE", (19.5, 312, 312), (1555, 40), 250, _AMPERE, tf32=156, limited=1.1),
    _gpu_datasheet("H100-PCIE", (51, 756, 756), (2000, 80), 350, _HOPPER, tf32=378, limited=1.1, doubt=0.25),
    _gpu_datasheet("H100", (67, 989, 989), (3350, 80), 700, _HOPPER, tf32=494, nvlink=900, doubt=0.25),
    _gpu_datasheet(
        "GH200", (67, 989, 989), (4000, 96), 700, "NVIDIA GH200 data sheet", tf32=494, nvlink=900, doubt=0.25
    ),
    _gpu_datasheet(
        "H200",
        (67, 989, 989),
        (4800, 141),
        700,
        "NVIDIA H200 data sheet",
        tf32=494,
        nvlink=900,
        doubt=0.25,
    ),
)
STAND_IN = next(device for device in _DATASHEETS if device.name == "V100-PCIE")  # whose facts an unknown GPU is given
UNKNOWN_DEVICE = replace(STAND_IN, name="other", source=f"no data sheet known: as a {STAND_IN.name}", doubt=0.8)
# A core of a server's CPU: 2.5 GHz, two AVX2 units of 8 values, multiply and add. The memory is that of a host:
# 800 Gb/s, the upper end of the design notes' scale.
CORE_RATE, HOST_MEMORY_RATE = 80e9, 100 * GB
DEVICE_DATASHEETS: Mapping[str, DeviceDatasheet] = {device.name: device for device in (*_DATASHEETS, UNKNOWN_DEVICE)}


# Words of a model's name that tell what it is, the first that are all there: 'NVIDIA A100 80GB PCIe'.
_DEVICE_WORDS = (
    *(((chip, "PCIE"), f"{chip}-PCIE") for chip in ("V100", "P100", "A100", "H100")),
    *(((chip,), name) for chip, name in (("V100", "V100-SXM2"), ("P100", "P100-SXM2"), ("A100", "A100-SXM"))),
    *(((name,), name) for name in ("K80", "GH200", "H200", "H100")),
)


@cache
def device_datasheet(model: str) -> DeviceDatasheet:
    """Return the facts of an accelerator by its model's name ('Tesla V100-PCIE-16GB'), else UNKNOWN_DEVICE."""
    words = set(re.split(r"[^A-Z0-9]+", model.upper()))
    found = next((name for needed, name in _DEVICE_WORDS if words.issuperset(needed)), UNKNOWN_DEVICE.name)
    return DEVICE_DATASHEETS[found]


# PCIe, bytes a second of one lane, one way, by generation, after its line code.
LANE_RATES = {1: 0.25 * GB, 2: 0.5 * GB, 3: 0.985 * GB, 4: 1.969 * GB, 5: 3.938 * GB, 6: 7.563 * GB}
X16_GEN3_RATE = 16 * LANE_RATES[3]  # what the published table was measured over


@dataclass(frozen=True, kw_only=True)
class GpuEdge:
    """A path between two GPUs: bytes a second one way, seconds of a small write."""

    rate: float
    latency: float
    source: str = GPU_TABLE_SOURCE


# Bidirectional bandwidths 72.37, 19.64 and 24.47 GB/s, halved. The NVLink one is a mean over pairs.
NVLINK_PAIR = GpuEdge(rate=72.37 * GB / 2, latency=1.85e-6)
ACROSS_HOST = GpuEdge(rate=19.64 * GB / 2, latency=2.66e-6)
SAME_SWITCH = GpuEdge(rate=24.47 * GB / 2, latency=2.08e-6)
# The table has one figure for two Falcon GPUs, without their drawers: pairs in two drawers, which communicate through
# the host, are assumed to be between both figures.
BETWEEN_DRAWERS = GpuEdge(rate=math.sqrt(19.64 * 24.47) * GB / 2, latency=math.sqrt(2.66 * 2.08) * 1e-6)
NVLINK_ALL_REDUCE = 130 * GB  # bus bandwidth over the eight V100 of a hybrid cube mesh
# Links of one V100 of a hybrid cube mesh that a ring over n of them can use: six over eight, four in a group of four,
# and the mean of single and double links between two.
MESH_LINKS = {1: 6.0, 2: 72.37 / 2 / (130 / 6), 3: 2.0, 4: 4.0, 5: 4.0, 6: 4.0, 7: 4.0, 8: 6.0}
GLOO_LOOPBACK = GpuEdge(
    rate=2 * GB, latency=100e-6, source="assumed: processes on one host over the loopback interface"
)


@dataclass(frozen=True, kw_only=True)
class DriveDatasheet:
    """A drive: bytes a second of sequential reads and writes."""

    rate: float
    write_rate: float
    source: str


NVME_DRIVE = DriveDatasheet(rate=3.29 * GB, write_rate=1.89 * GB, source="Intel SSD DC P4500 4 TB data sheet")
# 'Local storage' beside 'local NVMe': the lower end of the design notes' 5 to 128 Gb/s of a disk.
OTHER_DRIVE = DriveDatasheet(rate=5 * GB / 8, write_rate=5 * GB / 8, source="lower end of 5 to 128 Gb/s a disk")
LOCAL_STORAGE = "local storage"


# Substrings of the model names of such drives.
NVME_MODELS = ("nvme", "ssdpe", "p4500", "p4510", "pm17", "pm9")


def is_nvme(model: str) -> bool:
    """Return whether a drive is an NVMe drive, by its model's name."""
    plain = model.casefold()
    return any(one in plain for one in NVME_MODELS)


def drive_datasheet(model: str) -> DriveDatasheet:
    """Return the facts of a drive by its model's name."""
    return NVME_DRIVE if is_nvme(model) else OTHER_DRIVE


CACHING_SHARE = 0.8  # of a host's memory


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """A data set: bytes and samples, those of its validation, and the passes of the published runs.

    `reads`: files read for one sample (YOLOv5 makes a mosaic of four); `copies`: files of a checkpoint (YOLOv5
    writes the last and the best). `checkpoint_steps`: 0 for one after each pass
    with a validation, else the steps between two (Transformers' default), with a validation at the end.
    """

    bytes: float
    samples: int
    validation: int
    epochs: int
    reads: int = 1
    copies: int = 1
    checkpoint_steps: int = 0

    def uncached_share(self, memory_bytes: float) -> float:
        """Return the share that a host's memory does not keep, of which it has some for other things."""
        return max(0.0, 1 - CACHING_SHARE * memory_bytes / self.bytes)


def _imagenet(epochs: int) -> DataSet:
    return DataSet(bytes=141 * GB, samples=1_281_167, validation=50_000, epochs=epochs)


def _squad(epochs: int) -> DataSet:
    """SQuAD v1.1: questions of its training and development sets; long texts make 1 % more sequences of 384."""
    return DataSet(bytes=1 * GB, samples=88_500, validation=10_800, epochs=epochs, checkpoint_steps=500)


DATA_SETS: Mapping[str, DataSet] = {
    "mobilenet_v2": _imagenet(10),
    "resnet50": _imagenet(20),
    "yolov5l": DataSet(bytes=19 * GB, samples=118_287, validation=5_000, epochs=20, reads=4, copies=2),
    "bert_base": _squad(2),
    "bert_large": _squad(2),
}
DEFAULT_DATA_SET = _imagenet(10)


def workload_data_set(workload: str) -> DataSet:
    """Return the data set of a workload; of those without a published one, that of an image network."""
    return DATA_SETS.get(workload, DEFAULT_DATA_SET)


Floats = npt.NDArray[np.float64]

WORKLOAD_FAMILY: Mapping[str, str] = MappingProxyType(
    {
        "mobilenet_v2": "depthwise",
        "efficientnet_b0": "depthwise",
        "resnet50": "convolution",
        "yolov5l": "convolution",
        "inception_v3": "convolution",
        "alexnet": "convolution",
        "vgg16": "convolution",
        "mnist_cnn": "convolution",
        "bert_base": "transformer",
        "bert_large": "transformer",
    }
)


@dataclass(frozen=True, kw_only=True)
class ModelParameter:
    """One parameter: `centre` in its own unit, `spread` of its logarithm."""

    name: str
    centre: float
    spread: float
    about: str


def _model_parameters() -> tuple[ModelParameter, ...]:
    def one(name: str, centre: float, spread: float, about: str) -> ModelParameter:
        return ModelParameter(name=name, centre=centre, spread=spread, about=about)

    general = (
        one("half", 0.4, 0.4, gettext_noop("share of the fp16 or bf16 peak rate that matrix products reach")),
        one("single", 0.55, 0.3, "share of the fp32 peak rate that matrix products reach"),
        one("conv_half", 0.3, 0.4, "share of the fp16, bf16 or TF32 peak rate that convolutions reach"),
        one("conv_single", 0.65, 0.35, "share of the fp32 peak rate that convolutions reach"),
        one(
            "winograd",
            1.7,
            0.35,
            "times the fp32 rate of 3x3 convolutions of stride 1: Winograd saves at most 2.25 times",
        ),
        one("memory", 0.75, 0.3, "share of the memory's rate that other operations reach"),
        one("stack", 1.0, 0.17, "time of a device against the published rates: this site's software and clocks"),
        one("loaders", 1.0, 0.35, "time of this site's cores to prepare samples against the published hosts'"),
        one("machine", 1.0, 0.35, "time of this site's CPUs against that of the design notes"),
        one("launch", 8e-6, 0.5, "s to start an operation"),
        one("update", 0.5, 0.4, "starts of an operation that the update of one tensor takes: PyTorch joins many"),
        one("guest", 1.5, 0.6, "times the start of an operation in the virtual machine that was measured"),
        one("newer", 1.0, 0.4, "time of A100 and later against their data sheets, compared with V100"),
        one("faster_units", 1.5, 0.5, "times that, of an H100's units of matrices: the faster, the harder to fill"),
        one("call", 20e-6, 0.6, "s that one operation on a CPU takes at least"),
        one("nvlink", 0.95, 0.15, "share of NVLink's all-reduce rate"),
        one("ring", 0.9, 0.2, "share of the published rate between GPUs over PCIe that a ring reaches"),
        one("switch", 1.0, 0.08, "times that share, below one switch"),
        one("across", 1.0, 0.08, "times that share, across the host"),
        one("drawers", 1.0, 0.08, "times that share, between two drawers"),
        one("loopback", 1.0, 0.7, "share of the assumed rate between processes on a CPU"),
        one("latency", 3.0, 0.5, "times the latency of a small write that one hop of a ring takes"),
        one("contention", 0.1, 0.6, "share of hidden communication that slows computation nevertheless"),
        one("straggle", 0.008, 0.6, "slowdown a doubling of devices (natural logarithm): the slowest is waited for"),
        one("buckets", 4.0, 0.4, "times the gradients' bytes that copies to buckets and back move in device memory"),
        one("gradient", 1.0, 0.2, gettext_noop("width of gradients on the wire against what the run asks for")),
        # The design notes' 7 bytes a parameter and GPU are one way of a ring of eight in fp32: half of both ways.
        one("count", 0.5, 0.2, "bytes that the ports count against those sent and received"),
        one("optimiser", 1.5, 0.4, "times the least traffic of memory that an optimiser step takes"),
        one("compile", 0.8, 0.15, gettext_noop("time of operations bound by memory when compiled (assumed)")),
        one("dp", 1.3, 0.35, "times the exchange of DP against its bytes over the slowest link"),
        one("interpreter", 20e-6, 0.5, "s that the one interpreter of DP takes to start an operation on one device"),
        one("sharded", 1.15, 0.25, "times the exchange of sharded training against its bytes over the slowest link"),
        one("images", 1 / 110 / (4 * 3 * 224**2), 0.6, "s of a core to read and change an image, a byte of the tensor"),
        one("scenes", 0.035 / (4 * 3 * 640**2), 0.6, "s of a core to read and mix an image with boxes, a byte"),
        one("tokens", 2e-4 / 9e3, 0.8, "s of a core to prepare a sequence, a byte"),
        one("made:images", 2e-9, 0.7, "s of a core to make an image in memory, a byte: four passes over its tensor"),
        one("made:scenes", 4e-9, 0.7, "s of a core to make an image with boxes in memory, a byte: no cache holds it"),
        one("made:tokens", 1e-8, 0.8, "s of a core to make a sequence in memory, a byte: 100 µs, most of them calls"),
        one(
            "fed", 1 / 8000 / (4 * 3 * 224**2), 0.4, "s a byte of images that NVIDIA's host takes to feed eight devices"
        ),
        one("rented", 0.12, 1.0, "share of NVLink's rate between the GPUs of Lambda's hosts"),
        one("storage", 0.5, 0.4, "share of a drive's sequential rate that reads and writes of files reach"),
        one("layout", 1.25, 0.2, "time of mixed-precision convolutions whose channels are not the last dimension"),
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
    workloads = tuple(one(f"workload:{name}", 1.0, 0.22, f"time of devices, {name}") for name in WORKLOAD_FAMILY)
    halves = tuple(
        one(f"half:{name}", 1.0, 0.12, f"time in mixed precision against that in fp32, {name}")
        for name in WORKLOAD_FAMILY
    )
    cores = tuple(
        one(f"core:{name}", 1.0, 0.35, f"time of a CPU against that of a GPU, {name}") for name in WORKLOAD_FAMILY
    )
    devices = tuple(
        one(f"device:{name}", facts.limited, facts.doubt, f"time of devices, {name} against its data sheet")
        for name, facts in DEVICE_DATASHEETS.items()
    )
    return general + families + workloads + halves + cores + devices


PARAMETERS = _model_parameters()
PARAMETER_NAMES = tuple(parameter.name for parameter in PARAMETERS)
PARAMETER_INDEX: Mapping[str, int] = MappingProxyType({name: index for index, name in enumerate(PARAMETER_NAMES)})
PRIOR_CENTRES: Floats = np.log([parameter.centre for parameter in PARAMETERS])
PRIOR_SPREADS: Floats = np.array([parameter.spread for parameter in PARAMETERS])
