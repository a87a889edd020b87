"""Definitions of workloads, their parameters, and the validation of specifications. Pure."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal

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
class Costs:
    """The costs of one sample, at the sizes of a spec; the performance model's inputs.

    `flops`: forward and backward, multiply and add counted as two. `input_bytes`: from storage; `device_bytes`: host to
    device. `activation_bytes`: kept for the backward pass, in the precision of fp32. `late_share`: of the parameters,
    those whose gradients are ready only as the backward pass ends (embeddings). `operations`: kernels a pass.
    """

    parameters: float = 0.0
    flops: float = 0.0
    activation_bytes: float = 0.0
    input_bytes: float = 0.0
    device_bytes: float = 0.0
    late_share: float = 0.0
    operations: int = 0


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
    WorkloadParameter("devices", "Devices", 1, most=64, help="One process for each, except with DP."),
    WorkloadParameter("batch", "Batch a device", 1, unit="samples", most=8192),
    WorkloadParameter(
        "accumulation",
        "Accumulation",
        1,
        unit="batches a step",
        most=256,
        help="Gradients are exchanged and applied once after this many batches.",
    ),
    WorkloadParameter("steps", "Timed steps", 10, most=1_000_000),
    WorkloadParameter("warmup", "Warm-up steps", 3, least=0, most=10_000, help="They are not counted."),
    WorkloadParameter(
        "precision",
        "Arithmetic",
        "fp32",
        choices=("fp32", "fp16", "bf16"),
        help="fp16 and bf16 are mixed precision: weights stay in fp32.",
    ),
    WorkloadParameter(
        "gradient",
        "Gradients are sent as",
        "fp32",
        choices=("fp32", "fp16", "bf16"),
        help="fp16 and bf16 halve what devices exchange.",
    ),
    WorkloadParameter(
        "strategy",
        "Strategy",
        "ddp",
        choices=("single", "dp", "ddp", "sharded"),
        help="single: one device. dp: one process, many devices. ddp: a process a device. "
        "sharded: weights, gradients and optimiser are spread over the devices.",
    ),
    WorkloadParameter("compile", "Compile the model", False, choices=(False, True), help="torch.compile."),
    WorkloadParameter(
        "bucket_bytes",
        "Gradient bucket",
        25 * 2**20,
        unit="B",
        least=2**10,
        most=2**30,
        help="Gradients that are sent together with DDP.",
    ),
    WorkloadParameter(
        "loader_workers",
        "Loader processes a device",
        0,
        least=0,
        most=64,
        help="They prepare batches; 0: the training process does.",
    ),
    WorkloadParameter(
        "threads", "CPU threads a process", 0, least=0, most=256, help="0 leaves the choice to the library."
    ),
    WorkloadParameter("seed", "Seed", 0, least=0, help="The same seed gives the same losses."),
    WorkloadParameter("backend", "Runs on", "cuda", choices=("cuda", "cpu")),
)

WIDTH = WorkloadParameter("width", "Width", 1.0, unit="times", least=0, most=4, help="Multiplies all channels.")
DEPTH = WorkloadParameter("depth", "Depth", 1.0, unit="times", least=0, most=4, help="Multiplies repeated blocks.")
SEQUENCE = WorkloadParameter("sequence", "Sequence", 384, unit="tokens", least=8, most=512)
VOCABULARY = WorkloadParameter("vocabulary", "Vocabulary", 30522, unit="tokens", least=100, most=1_000_000)
LEAST_BYTES = WorkloadParameter(
    "least_bytes", "Smallest message", 4, unit="B", least=4, most=2**34, help="A multiple of 4."
)
MOST_BYTES = WorkloadParameter(
    "most_bytes",
    "Largest message",
    2**28,
    unit="B",
    least=4,
    most=2**34,
    help="Sizes grow fourfold from the smallest to this one.",
)
ITERATIONS = WorkloadParameter("iterations", "Transfers a size and step", 20, most=10_000)
FILE_BYTES = WorkloadParameter("file_bytes", "File", 2**32, unit="B", least=2**16, most=2**40)
BLOCK_BYTES = WorkloadParameter("block_bytes", "Block", 2**20, unit="B", least=512, most=2**30)


def image_parameter(side: int, *, least: int = 32, most: int = 2048, channels: int = 3) -> WorkloadParameter:
    colours = "three colours" if channels == 3 else "grey"
    return WorkloadParameter("image", "Image side", side, unit="px", least=least, most=most, help=f"Square, {colours}.")


def classes_parameter(number: int) -> WorkloadParameter:
    return WorkloadParameter("classes", "Classes", number, least=2, most=100_000)


def transformer_parameters(*, layers: int, hidden: int, heads: int) -> tuple[WorkloadParameter, ...]:
    return (
        SEQUENCE,
        WorkloadParameter("layers", "Layers", layers, most=96),
        WorkloadParameter("hidden", "Hidden size", hidden, least=8, most=16384, help="A multiple of heads."),
        WorkloadParameter("heads", "Heads", heads, most=128),
        VOCABULARY,
    )


MAX_COMMAND_LENGTH = 4096
# They halve an image five times and normalise over the remaining pixels and the batch: this needs several values.
_BATCH_NORMALISED = ("mobilenet_v2", "resnet50", "yolov5l")


class SpecError(ValueError):
    """A specification was refused: `errors` has a sentence for each field, 'options.image' for an option."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        self.errors = dict(errors)
        super().__init__(" ".join(self.errors.values()))


def spec_of_workload(workload: Workload, preset: str, given: Mapping[str, Any]) -> Spec:
    """Return the Spec of a preset with `given` values in its place; every option of the workload is filled in.

    `given` has fields of Spec by name; options are in 'options' or under their own names, as a form sends them.
    Raises SpecError with `errors` by field: 'batch', 'image' or 'options.image' as it was given.
    """
    errors: dict[str, str] = {}
    fields: dict[str, Any] = {parameter.name: parameter.default for parameter in COMMON_PARAMETERS}
    options: dict[str, Any] = {parameter.name: parameter.default for parameter in workload.parameters}
    start = dict(workload.presets.get(preset, {}))
    options.update(start.pop("options", {}))  # type: ignore[call-overload]  # a mapping of options
    fields.update(start)
    command = fields.pop("command", ())
    values = dict(given)
    nested = values.pop("options", {})
    if not isinstance(nested, Mapping):
        errors["options"] = "Options are an object of names and values."
        nested = {}
    if values.pop("workload", workload.name) != workload.name:
        errors["workload"] = f"This is the specification of {workload.name}."
    if values.pop("framework", "pytorch") != "pytorch":
        errors["framework"] = "Only pytorch runs here."
    if "command" in values:
        command = _parse_command(values.pop("command"), errors)
    common = {parameter.name: parameter for parameter in COMMON_PARAMETERS}
    own = {parameter.name: parameter for parameter in workload.parameters}
    for name, value in values.items():
        if name in own:
            options[name] = _parameter_value(own[name], value, name, errors)
        elif name in common:
            fields[name] = _parameter_value(common[name], value, name, errors)
        else:
            errors[name] = f"{workload.title} has no parameter '{name}'."
    for name, value in nested.items():
        if name in own:
            options[name] = _parameter_value(own[name], value, f"options.{name}", errors)
        else:
            names = ", ".join(own) or "none"
            errors[f"options.{name}"] = f"{workload.title} has no option '{name}'; its options are: {names}."
    if errors:
        raise SpecError(errors)
    return validate_spec(
        workload, Spec(workload=workload.name, framework="pytorch", options=options, command=tuple(command), **fields)
    )


def validate_spec(workload: Workload, spec: Spec) -> Spec:
    """Return the spec. Raises SpecError if its fields are inconsistent."""
    if errors := _inconsistencies(workload, spec):
        raise SpecError(errors)
    return spec


def _parameter_value(parameter: WorkloadParameter, value: Any, field: str, errors: dict[str, str]) -> Any:
    """Return the value converted to the parameter's type, also from text; else record its error."""
    if parameter.choices:
        for choice in parameter.choices:
            if value == choice and isinstance(value, bool) == isinstance(choice, bool):
                return choice
            if isinstance(value, str) and value.strip().lower() == str(choice).lower():
                return choice
        names = ", ".join(str(choice).lower() for choice in parameter.choices)
        errors[field] = f"{parameter.label} is one of: {names}."
        return parameter.default
    fractional = isinstance(parameter.default, float)
    number = _parse_number(value)
    span = f"above {parameter.least} and up to" if fractional else f"from {parameter.least} to"
    kind = "a number" if fractional else "a whole number"
    is_wrong_kind = number is None or (not fractional and number != int(number))
    is_least = fractional and number == parameter.least
    if number is None or is_wrong_kind or is_least or not parameter.least <= number <= parameter.most:
        errors[field] = f"{parameter.label} is {kind} {span} {parameter.most}."
        return parameter.default
    return float(number) if fractional else int(number)


def _parse_number(value: Any) -> float | int | None:
    if isinstance(value, bool):
        return None
    try:
        number = float(value) if not isinstance(value, int) else value
    except (TypeError, ValueError, OverflowError):
        return None
    return number if isinstance(number, int) or math.isfinite(number) else None


def _parse_command(value: Any, errors: dict[str, str]) -> tuple[str, ...]:
    """Return the words of a command that is given as one line of a shell or as a list of words."""
    words: list[str] = []
    if isinstance(value, str):
        try:
            words = shlex.split(value)
        except ValueError as wrong:
            errors["command"] = f"The command cannot be split into words: {str(wrong).lower()}."
            return ()
    elif isinstance(value, list | tuple) and all(isinstance(word, str) for word in value):
        words = list(value)
    else:
        errors["command"] = "The command is one line, or a list of words."
    if any("\0" in word for word in words) or sum(map(len, words)) > MAX_COMMAND_LENGTH:
        errors["command"] = f"A command has up to {MAX_COMMAND_LENGTH} characters, none of them NUL."
    return tuple(words)


def _inconsistencies(workload: Workload, spec: Spec) -> dict[str, str]:
    if workload.family == "command":
        if not spec.command or not spec.command[0].strip():
            return {"command": "Enter a command."}
        return {}
    errors: dict[str, str] = {}
    if spec.command:
        errors["command"] = f"{workload.title} takes no command."
    if spec.precision not in workload.precisions:
        errors["precision"] = f"{workload.title} runs in {' or '.join(workload.precisions)}."
    elif spec.precision == "fp16" and spec.backend == "cpu":
        errors["precision"] = "fp16 needs a GPU. On the CPU, use bf16 or fp32."
    if spec.compile and not workload.is_training:
        errors["compile"] = f"{workload.title} has no model to compile."
    errors |= _strategy_errors(workload, spec)
    return errors | _option_errors(workload, spec)


def _strategy_errors(workload: Workload, spec: Spec) -> dict[str, str]:
    errors: dict[str, str] = {}
    if spec.strategy not in workload.strategies:
        errors["strategy"] = f"{workload.title} runs with {' or '.join(workload.strategies)}."
    elif spec.strategy == "single" and spec.devices != 1:
        errors["devices"] = f"The strategy 'single' has one device, not {spec.devices}."
    elif spec.strategy == "dp" and spec.backend == "cpu":
        errors["strategy"] = "DP spreads one process over GPUs; it does nothing on the CPU. Use ddp."
    elif spec.strategy == "dp" and spec.devices < 2:
        errors["devices"] = "DP needs at least 2 devices."
    elif "single" not in workload.strategies and spec.devices < 2:
        errors["devices"] = f"{workload.title} is between devices: it needs at least 2."
    if spec.gradient != "fp32" and spec.strategy not in ("ddp", "sharded"):
        errors["gradient"] = "Only ddp and sharded can send gradients in another precision."
    if not workload.is_training and spec.accumulation != 1:
        errors["accumulation"] = f"{workload.title} has no gradients to accumulate."
    return errors


def _option_errors(workload: Workload, spec: Spec) -> dict[str, str]:
    errors: dict[str, str] = {}
    options: Mapping[str, Any] = spec.options
    if workload.family == "language" and options["hidden"] % options["heads"]:
        errors["options.hidden"] = f"The hidden size {options['hidden']} is no multiple of {options['heads']} heads."
    if workload.family == "detection" and options["image"] % 32:
        errors["options.image"] = "The image side is a multiple of 32: the network halves it five times."
    if workload.name in _BATCH_NORMALISED and spec.batch == 1 and options["image"] <= 32:
        errors["options.image"] = "With one image a device its side must be above 32: nothing is left to normalise."
    if "least_bytes" in options:
        if options["most_bytes"] < options["least_bytes"]:
            errors["options.most_bytes"] = "The largest message is smaller than the smallest."
        for name in ("least_bytes", "most_bytes"):
            if options[name] % 4:
                errors.setdefault(f"options.{name}", "A message is a multiple of 4 bytes.")
    if "block_bytes" in options and options["block_bytes"] > options["file_bytes"]:
        errors["options.block_bytes"] = "A block is larger than the file."
    return errors
