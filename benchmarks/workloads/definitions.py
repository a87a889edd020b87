"""Definitions of workloads, their parameters, and the validation of specifications. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal

from core.language import gettext_noop
from hostwire.training import Option, Precision, Spec, Strategy

Preset = Literal["tiny", "paper", "custom"]
Family = Literal["vision", "detection", "language", "link", "command"]


@dataclass(frozen=True)
class WorkloadParameter:
    """A parameter of a workload: a number from `least` to `most`, or one of `choices`."""

    name: str
    label: str
    default: Option
    _: KW_ONLY
    unit: str = ""
    least: int = 1
    most: int = 10**9
    choices: tuple[Option, ...] = ()
    help: str = ""


@dataclass(frozen=True, kw_only=True)
class LayerCosts:
    """The part of one layer in the costs of a sample, in the same units, in the order of the forward pass."""

    parameters: float = 0.0
    flops: float = 0.0
    winograd_flops: float = 0.0  # of these, those of 3x3 convolutions with stride 1
    activation_bytes: float = 0.0
    operations: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Costs:
    """The costs of one sample, at the sizes of a spec; the performance model's inputs.

    `flops`: forward and backward, multiply and add counted as two. `input_bytes`: from storage; `device_bytes`: host to
    device. `activation_bytes`: kept for the backward pass, in the precision of fp32. `late_share`: of the parameters,
    those whose gradients are ready only as the backward pass ends (embeddings). `operations`: kernels a pass; `casts`:
    those that autocast adds to a forward pass; `tensors`: of parameters.
    `layers` add up to them; there are none where a workload trains nothing.
    `winograd_share`: of `flops`, those of 3x3 convolutions with stride 1, which need fewer multiplications by Winograd.
    """

    parameters: float = 0.0
    flops: float = 0.0
    activation_bytes: float = 0.0
    input_bytes: float = 0.0
    device_bytes: float = 0.0
    late_share: float = 0.0
    operations: int = 0
    casts: int = 0
    tensors: int = 0
    layers: tuple[LayerCosts, ...] = ()
    winograd_share: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A definition. `samples` names what a batch counts ('images', 'sequences').

    `presets` maps presets to fields of Spec that differ from its defaults. `costs` is None for a user's own command,
    which has no model. `source` names the origin of parameters, depth and costs.
    """

    name: str
    title: str
    family: Family
    samples: str
    about: str
    source: str
    data_set: str = ""
    depth: int = 0
    parameters: tuple[WorkloadParameter, ...] = ()
    presets: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    precisions: tuple[Precision, ...] = ("fp32", "fp16", "bf16")
    strategies: tuple[Strategy, ...] = ("single", "dp", "ddp", "sharded")
    costs: Callable[[Spec], Costs] | None = None

    @property
    def is_training(self) -> bool:
        """Whether it trains a model in steps; else it measures links, or runs a user's command."""
        return self.family in ("vision", "detection", "language")

    @property
    def is_predictable(self) -> bool:
        """Whether the model predicts its throughput, and so recommends a topology."""
        return self.is_training and self.costs is not None


# Fields of hostwire.training.Spec, in the order of a form, without 'command', which is neither a number nor a choice.
COMMON_PARAMETERS: tuple[WorkloadParameter, ...] = (
    WorkloadParameter(
        "devices", gettext_noop("Devices"), 1, most=64, help=gettext_noop("One process for each, except with DP.")
    ),
    WorkloadParameter("hosts", gettext_noop("Hosts"), 1, most=8),
    WorkloadParameter("batch", gettext_noop("Batch a device"), 1, unit=gettext_noop("samples"), most=8192),
    WorkloadParameter(
        "accumulation",
        gettext_noop("Accumulation"),
        1,
        unit=gettext_noop("batches a step"),
        most=256,
        help=gettext_noop("Gradients are exchanged and applied once after this many batches."),
    ),
    WorkloadParameter("steps", gettext_noop("Timed steps"), 10, most=1_000_000),
    WorkloadParameter(
        "warmup", gettext_noop("Warm-up steps"), 3, least=0, most=10_000, help=gettext_noop("They are not counted.")
    ),
    WorkloadParameter(
        "precision",
        gettext_noop("Arithmetic"),
        "fp32",
        choices=("fp32", "fp16", "bf16"),
        help=gettext_noop("fp16 and bf16 are mixed precision: weights stay in fp32."),
    ),
    WorkloadParameter(
        "gradient",
        gettext_noop("Gradients are sent as"),
        "fp32",
        choices=("fp32", "fp16", "bf16"),
        help=gettext_noop("fp16 and bf16 halve what devices exchange."),
    ),
    WorkloadParameter(
        "strategy",
        gettext_noop("Strategy"),
        "ddp",
        choices=("single", "dp", "ddp", "sharded"),
        help=gettext_noop(
            "single: one device. dp: one process, many devices. ddp: a process a device. "
            "sharded: weights, gradients and optimiser are spread over the devices."
        ),
    ),
    WorkloadParameter(
        "compile", gettext_noop("Compile the model"), False, choices=(False, True), help="torch.compile."
    ),
    WorkloadParameter(
        "bucket_bytes",
        gettext_noop("Gradient bucket"),
        25 * 2**20,
        unit="B",
        least=2**10,
        most=2**30,
        help=gettext_noop("Gradients that are sent together with DDP."),
    ),
    WorkloadParameter(
        "loader_workers",
        gettext_noop("Loader processes a device"),
        0,
        least=0,
        most=64,
        help=gettext_noop("They prepare batches; 0: the training process does."),
    ),
    WorkloadParameter(
        "threads",
        gettext_noop("CPU threads a process"),
        0,
        least=0,
        most=256,
        help=gettext_noop("0 leaves the choice to the library."),
    ),
    WorkloadParameter(
        "cores",
        gettext_noop("CPU cores a host"),
        0,
        least=0,
        most=1024,
        help=gettext_noop("All processes and loaders share them; 0: all that there are."),
    ),
    WorkloadParameter(
        "data",
        gettext_noop("Samples"),
        "random",
        choices=("random", "files"),
        help=gettext_noop(
            "files: pictures and texts that can be learnt, generated once on the drive, decoded by the loaders. "
            "random: noise, in memory or as bytes on a chosen drive."
        ),
    ),
    WorkloadParameter(
        "samples",
        gettext_noop("Files of an epoch"),
        0,
        least=0,
        most=10_000_000,
        help=gettext_noop("0: as many as are usual for the workload."),
    ),
    WorkloadParameter(
        "validate_every",
        gettext_noop("Steps between validations"),
        0,
        least=0,
        most=1_000_000,
        help=gettext_noop("Of files only; 0: none."),
    ),
    WorkloadParameter(
        "checkpoint_every",
        gettext_noop("Steps between checkpoints"),
        0,
        least=0,
        most=1_000_000,
        help=gettext_noop("A halted run can be resumed from the last one; 0: none."),
    ),
    WorkloadParameter(
        "restarts",
        gettext_noop("Restarts"),
        0,
        least=0,
        most=8,
        help=gettext_noop("After the loss of a process or device the run goes on with those that are left."),
    ),
    WorkloadParameter(
        "seed", gettext_noop("Seed"), 0, least=0, help=gettext_noop("The same seed gives the same losses.")
    ),
    WorkloadParameter("backend", gettext_noop("Runs on"), "cuda", choices=("cuda", "cpu")),
)

WIDTH = WorkloadParameter(
    "width",
    gettext_noop("Width"),
    1.0,
    unit=gettext_noop("times"),
    least=0,
    most=4,
    help=gettext_noop("Multiplies all channels."),
)
DEPTH = WorkloadParameter(
    "depth",
    gettext_noop("Depth"),
    1.0,
    unit=gettext_noop("times"),
    least=0,
    most=4,
    help=gettext_noop("Multiplies repeated blocks."),
)
SEQUENCE = WorkloadParameter("sequence", gettext_noop("Sequence"), 384, unit=gettext_noop("tokens"), least=8, most=512)
VOCABULARY = WorkloadParameter(
    "vocabulary", gettext_noop("Vocabulary"), 30522, unit=gettext_noop("tokens"), least=100, most=1_000_000
)
LEAST_BYTES = WorkloadParameter(
    "least_bytes",
    gettext_noop("Smallest message"),
    4,
    unit="B",
    least=4,
    most=2**34,
    help=gettext_noop("A multiple of 4."),
)
MOST_BYTES = WorkloadParameter(
    "most_bytes",
    gettext_noop("Largest message"),
    2**28,
    unit="B",
    least=4,
    most=2**34,
    help=gettext_noop("Sizes grow fourfold from the smallest to this one."),
)
ITERATIONS = WorkloadParameter("iterations", gettext_noop("Transfers a size and step"), 20, most=10_000)
FILE_BYTES = WorkloadParameter("file_bytes", gettext_noop("File"), 2**32, unit="B", least=2**16, most=2**40)
BLOCK_BYTES = WorkloadParameter("block_bytes", gettext_noop("Block"), 2**20, unit="B", least=512, most=2**30)


def image_parameter(side: int, *, least: int = 32, most: int = 2048, channels: int = 3) -> WorkloadParameter:
    return WorkloadParameter(
        "image",
        gettext_noop("Image side"),
        side,
        unit="px",
        least=least,
        most=most,
        help=gettext_noop("Square, three colours.") if channels == 3 else gettext_noop("Square, grey."),
    )


def classes_parameter(number: int) -> WorkloadParameter:
    return WorkloadParameter("classes", gettext_noop("Classes"), number, least=2, most=100_000)


def transformer_parameters(*, layers: int, hidden: int, heads: int) -> tuple[WorkloadParameter, ...]:
    return (
        SEQUENCE,
        WorkloadParameter("layers", gettext_noop("Layers"), layers, most=96),
        WorkloadParameter(
            "hidden",
            gettext_noop("Hidden size"),
            hidden,
            least=8,
            most=16384,
            help=gettext_noop("A multiple of heads."),
        ),
        WorkloadParameter("heads", gettext_noop("Heads"), heads, most=128),
        VOCABULARY,
    )
