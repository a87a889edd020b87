"""The catalogue of workloads, with their parameters, presets and sources.

`tiny` runs on a CPU in two processes within a minute and is no measure of speed. `paper` has the sizes and batches
of the published experiment (batches of 64 and 128 a GPU; 88, 96 and 48 over eight GPUs), or, for other workloads, of
the publication that the source names. `custom` starts at full size on one GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from benchmarks.workloads import costs
from benchmarks.workloads.definitions import (
    BLOCK_BYTES,
    DEPTH,
    FILE_BYTES,
    ITERATIONS,
    LEAST_BYTES,
    MOST_BYTES,
    WIDTH,
    Preset,
    Workload,
    classes_parameter,
    image_parameter,
    transformer_parameters,
)
from benchmarks.workloads.validation import SpecError, spec_of_workload
from core.language import _, gettext_noop
from hostwire.training import Spec

# On the CPU, two processes over gloo, one thread each: small machines run several of them.
_TINY = {"devices": 2, "steps": 10, "warmup": 2, "backend": "cpu", "precision": "fp32", "threads": 1}
_TINY_TRAINING = _TINY | {"data": "files", "samples": 64}
# Native mixed precision with DDP on eight GPUs, as published; the count of steps is ours.
_PAPER = {"devices": 8, "steps": 50, "warmup": 10, "backend": "cuda", "precision": "fp16", "strategy": "ddp"}
_PAPER_LINK = {"devices": 8, "steps": 10, "warmup": 2, "backend": "cuda", "strategy": "ddp"}
_LOADER_WORKERS = 4  # a device: ours, the publication names none


def _tiny_preset(batch: int, **options: float) -> Mapping[str, object]:
    return _TINY_TRAINING | {"batch": batch, "options": options}


def _tiny_link_preset(**options: float) -> Mapping[str, object]:
    return _TINY | {"batch": 1, "options": options}


def _paper_preset(batch: int, loader_workers: int = _LOADER_WORKERS) -> Mapping[str, object]:
    return _PAPER | {"batch": batch, "loader_workers": loader_workers, "data": "files", "validate_every": 25}


_WORKLOADS = (
    Workload(
        name="mobilenet_v2",
        title="MobileNetV2",
        family="vision",
        samples=gettext_noop("images"),
        about=gettext_noop(
            "Classifies images with few multiplications; the input often limits it. 3.4 million parameters."
        ),
        source=gettext_noop("Sandler and others, MobileNetV2, CVPR 2018; model class of transformers."),
        data_set=gettext_noop("ImageNet sizes, generated"),
        depth=53,
        parameters=(image_parameter(224), classes_parameter(1000), WIDTH),
        presets={
            "tiny": _tiny_preset(2, image=64, classes=10, width=0.35),
            "paper": _paper_preset(64),
            "custom": {"batch": 64},
        },
        costs=costs.mobilenet_v2,
    ),
    Workload(
        name="resnet50",
        title="ResNet-50",
        family="vision",
        samples=gettext_noop("images"),
        about=gettext_noop("Classifies images; the common yardstick of training. 25.6 million parameters."),
        source=gettext_noop("He and others, Deep residual learning, CVPR 2016; model class of transformers."),
        data_set=gettext_noop("ImageNet sizes, generated"),
        depth=50,
        parameters=(image_parameter(224), classes_parameter(1000), WIDTH),
        presets={
            "tiny": _tiny_preset(2, image=64, classes=10, width=0.125),
            "paper": _paper_preset(128),
            "custom": {"batch": 128},
        },
        costs=costs.resnet50,
    ),
    Workload(
        name="yolov5l",
        title="YOLOv5-L",
        family="detection",
        samples=gettext_noop("images"),
        about=gettext_noop(
            "Finds objects in images: a CSP backbone, a path aggregation neck, three scales. 47 million parameters."
        ),
        source=gettext_noop(
            "Layer graph written from the public description of YOLOv5, releases 4 and 5; loss over random boxes."
        ),
        data_set=gettext_noop("COCO sizes, generated"),
        depth=392,
        parameters=(image_parameter(640), classes_parameter(80), WIDTH, DEPTH),
        presets={
            "tiny": _tiny_preset(2, image=64, classes=4, width=0.125, depth=0.33),
            "paper": _paper_preset(11),
            "custom": {"batch": 11},
        },
        costs=costs.yolov5l,
    ),
    Workload(
        name="bert_base",
        title="BERT-base",
        family="language",
        samples=gettext_noop("sequences"),
        about=gettext_noop(
            "Marks the answer to a question in a text. 110 million parameters, and as many gradients to exchange."
        ),
        source=gettext_noop("Devlin and others, BERT, NAACL 2019; model class of transformers."),
        data_set=gettext_noop("SQuAD v1.1 sizes, generated"),
        depth=12,
        parameters=transformer_parameters(layers=12, hidden=768, heads=12),
        presets={
            "tiny": _tiny_preset(2, sequence=32, layers=2, hidden=64, heads=2, vocabulary=1000),
            "paper": _paper_preset(12, 1),
            "custom": {"batch": 12},
        },
        costs=costs.bert_base,
    ),
    Workload(
        name="bert_large",
        title="BERT-large",
        family="language",
        samples=gettext_noop("sequences"),
        about=gettext_noop(
            "As BERT-base, three times as large: the exchange of 340 million gradients is what the links feel."
        ),
        source=gettext_noop("Devlin and others, BERT, NAACL 2019; model class of transformers."),
        data_set=gettext_noop("SQuAD v1.1 sizes, generated"),
        depth=24,
        parameters=transformer_parameters(layers=24, hidden=1024, heads=16),
        presets={
            "tiny": _tiny_preset(2, sequence=32, layers=4, hidden=96, heads=4, vocabulary=1000),
            "paper": _paper_preset(6, 1),
            "custom": {"batch": 6},
        },
        costs=costs.bert_large,
    ),
    Workload(
        name="inception_v3",
        title="InceptionV3",
        family="vision",
        samples=gettext_noop("images"),
        about=gettext_noop(
            "Classifies images by kernels of several sizes side by side. 27 million parameters, those of an auxiliary "
            "classifier among them."
        ),
        source=gettext_noop(
            "Layer graph written from Szegedy and others, Rethinking the Inception architecture, CVPR 2016; its batch "
            "of 32 a device."
        ),
        data_set=gettext_noop("ImageNet sizes, generated"),
        depth=48,
        parameters=(image_parameter(299, least=75), classes_parameter(1000), WIDTH),
        presets={
            "tiny": _tiny_preset(2, image=75, classes=10, width=0.125),
            "paper": _paper_preset(32),
            "custom": {"batch": 32},
        },
        costs=costs.inception_v3,
    ),
    Workload(
        name="alexnet",
        title="AlexNet",
        family="vision",
        samples=gettext_noop("images"),
        about=gettext_noop("Classifies images; little arithmetic for 61 million parameters, so gradients weigh much."),
        source=gettext_noop(
            "Krizhevsky, One weird trick, 2014 (one tower, 1000 classes); its batch of 128 over eight GPUs."
        ),
        data_set=gettext_noop("ImageNet sizes, generated"),
        depth=8,
        parameters=(image_parameter(224, least=64), classes_parameter(1000), WIDTH),
        presets={
            "tiny": _tiny_preset(2, image=64, classes=10, width=0.0625),
            "paper": _paper_preset(16),
            "custom": {"batch": 128},
        },
        costs=costs.alexnet,
    ),
    Workload(
        name="vgg16",
        title="VGG-16",
        family="vision",
        samples=gettext_noop("images"),
        about=gettext_noop("Classifies images; much arithmetic and 138 million parameters."),
        source=gettext_noop(
            "Simonyan and Zisserman, Very deep convolutional networks, ICLR 2015; its batch of 256 over eight GPUs."
        ),
        data_set=gettext_noop("ImageNet sizes, generated"),
        depth=16,
        parameters=(image_parameter(224), classes_parameter(1000), WIDTH),
        presets={
            "tiny": _tiny_preset(2, image=32, classes=10, width=0.0625),
            "paper": _paper_preset(32),
            "custom": {"batch": 32},
        },
        costs=costs.vgg16,
    ),
    Workload(
        name="mnist_cnn",
        title="MNIST CNN",
        family="vision",
        samples=gettext_noop("images"),
        about=gettext_noop("Tells handwritten digits apart with two convolutions: a first run that ends soon."),
        source=gettext_noop(
            "LeCun and others, Gradient-based learning, 1998, with today's layers; digits drawn by ourselves."
        ),
        data_set=gettext_noop("MNIST sizes, drawn digits"),
        depth=4,
        parameters=(image_parameter(28, least=16, most=256, channels=1), classes_parameter(10)),
        presets={"tiny": _tiny_preset(8), "paper": _paper_preset(64, 1), "custom": {"batch": 64}},
        costs=costs.mnist_cnn,
    ),
    Workload(
        name="gpu_bandwidth",
        title=gettext_noop("GPU to GPU"),
        family="link",
        samples=gettext_noop("transfers"),
        about=gettext_noop(
            "Bandwidth both ways, and latency of a small write, between each two devices. On the CPU, of processes."
        ),
        source=gettext_noop("Measured as the published table of GPU-to-GPU bandwidth and latency names it."),
        parameters=(LEAST_BYTES, MOST_BYTES, ITERATIONS),
        presets={
            "tiny": _tiny_link_preset(least_bytes=4, most_bytes=2**18, iterations=4),
            "paper": _PAPER_LINK | {"options": {"most_bytes": 2**28}},
            "custom": {"devices": 2},
        },
        precisions=("fp32",),
        strategies=("ddp",),
        costs=costs.gpu_bandwidth,
    ),
    Workload(
        name="all_reduce",
        title="All-reduce",
        family="link",
        samples=gettext_noop("operations"),
        about=gettext_noop(
            "Time, algorithm bandwidth and bus bandwidth of a sum over all devices, by the size of the message."
        ),
        source=gettext_noop("Bandwidths as nccl-tests defines them: bus = algorithm x 2 (n - 1) / n."),
        parameters=(LEAST_BYTES, MOST_BYTES, ITERATIONS),
        presets={
            "tiny": _tiny_link_preset(least_bytes=1024, most_bytes=2**18, iterations=4),
            "paper": _PAPER_LINK | {"options": {"most_bytes": 2**28}},
            "custom": {"devices": 2},
        },
        precisions=("fp32",),
        strategies=("ddp",),
        costs=costs.all_reduce,
    ),
    Workload(
        name="host_copy",
        title=gettext_noop("Host to device"),
        family="link",
        samples=gettext_noop("transfers"),
        about=gettext_noop(
            "Bandwidth from the host's memory to each device and back, all at once; within memory on the CPU."
        ),
        source=gettext_noop("Pinned memory, as nvbandwidth's host_to_device and device_to_host tests."),
        parameters=(LEAST_BYTES, MOST_BYTES, ITERATIONS),
        presets={
            "tiny": _tiny_link_preset(least_bytes=4096, most_bytes=2**20, iterations=4),
            "paper": _PAPER_LINK | {"options": {"least_bytes": 4096, "most_bytes": 2**28}},
            "custom": {"options": {"least_bytes": 4096}},
        },
        precisions=("fp32",),
        strategies=("single", "ddp"),
        costs=costs.host_copy,
    ),
    Workload(
        name="storage_read",
        title=gettext_noop("Storage read"),
        family="link",
        samples=gettext_noop("passes"),
        about=gettext_noop(
            "Reads a file that was written for it, in blocks and past the cache of the host as far as it lets go."
        ),
        source=gettext_noop(
            "Sequential reads of a scratch file; the cache is dropped by posix_fadvise before each pass."
        ),
        parameters=(FILE_BYTES, BLOCK_BYTES),
        presets={
            "tiny": _tiny_link_preset(file_bytes=2**23, block_bytes=2**18),
            "paper": _PAPER_LINK | {"devices": 1, "strategy": "single", "options": {"file_bytes": 2**33}},
            "custom": {},
        },
        precisions=("fp32",),
        strategies=("single", "ddp"),
        costs=costs.storage_read,
    ),
    Workload(
        name="command",
        title=gettext_noop("Own command"),
        family="command",
        samples=gettext_noop("runs"),
        about=gettext_noop("A command of yours, on the host and devices of the run, as an unprivileged account."),
        source=gettext_noop("What it prints is its log; its exit code is the outcome."),
        presets={"tiny": {"backend": "cpu", "command": ("uname", "-a")}, "custom": {}},
        precisions=("fp32",),
        strategies=("single", "ddp"),
    ),
)

CATALOGUE: Mapping[str, Workload] = {workload.name: workload for workload in _WORKLOADS}


class UnknownWorkload(KeyError):
    """The workload is not in the catalogue; its text is a sentence that lists the known ones."""

    def __init__(self, name: str) -> None:
        self.sentence = _("There is no workload '{name}'. There are: {names}.", name=name, names=", ".join(CATALOGUE))
        super().__init__(self.sentence)

    def __str__(self) -> str:
        return self.sentence


def workload_of(name: str) -> Workload:
    """Return the workload of a name. Raises UnknownWorkload, a KeyError."""
    try:
        return CATALOGUE[name]
    except KeyError:
        raise UnknownWorkload(name) from None


def spec_of(name: str, preset: str, given: Mapping[str, Any]) -> Spec:
    """Return the Spec of a preset of the catalogue, as `spec_of_workload` does; raises SpecError also for its name."""
    try:
        workload = workload_of(name)
    except UnknownWorkload as error:
        raise SpecError({"workload": error.sentence}) from error
    if preset not in get_args(Preset):
        raise SpecError({"preset": _("A preset is one of: {names}.", names=", ".join(get_args(Preset)))})
    if preset not in workload.presets:
        raise SpecError(
            {"preset": _("{workload} has no preset '{preset}'.", workload=_(workload.title), preset=preset)}
        )
    return spec_of_workload(workload, preset, given)


def workload_title(name: str) -> str:
    """Return the title of a workload; of an imported one, its name."""
    return CATALOGUE[name].title if name in CATALOGUE else name
