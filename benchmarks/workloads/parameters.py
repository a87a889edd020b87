"""Parameters that people may set: those of every run, and the sizes that workloads share."""

from __future__ import annotations

from benchmarks.workloads.shapes import Parameter

# Fields of hostwire.training.Spec, in the order of a form. 'command' is apart: it is no number and no choice.
COMMON: tuple[Parameter, ...] = (
    Parameter(name="devices", label="Devices", default=1, most=64, help="One process for each, except with DP."),
    Parameter(name="batch", label="Batch a device", default=1, unit="samples", most=8192),
    Parameter(
        name="accumulation",
        label="Accumulation",
        default=1,
        unit="batches a step",
        most=256,
        help="Gradients are exchanged and applied once after this many batches.",
    ),
    Parameter(name="steps", label="Timed steps", default=10, most=1_000_000),
    Parameter(name="warmup", label="Warm-up steps", default=3, least=0, most=10_000, help="They are not counted."),
    Parameter(
        name="precision",
        label="Arithmetic",
        default="fp32",
        choices=("fp32", "fp16", "bf16"),
        help="fp16 and bf16 are mixed precision: weights stay in fp32.",
    ),
    Parameter(
        name="gradient",
        label="Gradients are sent as",
        default="fp32",
        choices=("fp32", "fp16", "bf16"),
        help="fp16 and bf16 halve what devices exchange.",
    ),
    Parameter(
        name="strategy",
        label="Strategy",
        default="ddp",
        choices=("single", "dp", "ddp", "sharded"),
        help="single: one device. dp: one process, many devices. ddp: a process a device. "
        "sharded: weights, gradients and optimiser are spread over the devices.",
    ),
    Parameter(name="compile", label="Compile the model", default=False, choices=(False, True), help="torch.compile."),
    Parameter(
        name="bucket_bytes",
        label="Gradient bucket",
        default=25 * 2**20,
        unit="B",
        least=2**10,
        most=2**30,
        help="Gradients that are sent together with DDP.",
    ),
    Parameter(
        name="loader_workers",
        label="Loader processes a device",
        default=0,
        least=0,
        most=64,
        help="They prepare batches; 0: the training process does.",
    ),
    Parameter(
        name="threads",
        label="CPU threads a process",
        default=0,
        least=0,
        most=256,
        help="0 leaves the choice to the library.",
    ),
    Parameter(name="seed", label="Seed", default=0, least=0, help="The same seed gives the same losses."),
    Parameter(name="backend", label="Runs on", default="cuda", choices=("cuda", "cpu")),
)

WIDTH = Parameter(
    name="width", label="Width", default=1.0, unit="times", least=0, most=4, help="Multiplies all channels."
)
DEPTH = Parameter(
    name="depth", label="Depth", default=1.0, unit="times", least=0, most=4, help="Multiplies repeated blocks."
)
SEQUENCE = Parameter(name="sequence", label="Sequence", default=384, unit="tokens", least=8, most=512)
VOCABULARY = Parameter(name="vocabulary", label="Vocabulary", default=30522, unit="tokens", least=100, most=1_000_000)
LEAST_BYTES = Parameter(
    name="least_bytes", label="Smallest message", default=4, unit="B", least=4, most=2**34, help="A multiple of 4."
)
MOST_BYTES = Parameter(
    name="most_bytes",
    label="Largest message",
    default=2**28,
    unit="B",
    least=4,
    most=2**34,
    help="Sizes grow fourfold from the smallest to this one.",
)
ITERATIONS = Parameter(name="iterations", label="Transfers a size and step", default=20, most=10_000)
FILE_BYTES = Parameter(name="file_bytes", label="File", default=2**32, unit="B", least=2**16, most=2**40)
BLOCK_BYTES = Parameter(name="block_bytes", label="Block", default=2**20, unit="B", least=512, most=2**30)


def image(side: int, *, least: int = 32, most: int = 2048, channels: int = 3) -> Parameter:
    """Return the parameter of a square image whose side is `side` pixels where nothing else is asked."""
    colours = "three colours" if channels == 3 else "grey"
    return Parameter(
        name="image", label="Image side", default=side, unit="px", least=least, most=most, help=f"Square, {colours}."
    )


def classes(number: int) -> Parameter:
    """Return the parameter of how many classes are told apart."""
    return Parameter(name="classes", label="Classes", default=number, least=2, most=100_000)


def transformer(*, layers: int, hidden: int, heads: int) -> tuple[Parameter, ...]:
    """Return the sizes of a BERT."""
    return (
        SEQUENCE,
        Parameter(name="layers", label="Layers", default=layers, most=96),
        Parameter(name="hidden", label="Hidden size", default=hidden, least=8, most=16384, help="A multiple of heads."),
        Parameter(name="heads", label="Heads", default=heads, most=128),
        VOCABULARY,
    )
