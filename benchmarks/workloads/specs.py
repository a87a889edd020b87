"""From what somebody asks for to the specification of a run, or a sentence for each field that is wrong."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from typing import Any

import msgspec

from benchmarks.workloads.parameters import COMMON
from benchmarks.workloads.shapes import Parameter, Preset, Workload
from hostwire.training import Spec

LONGEST_COMMAND = 4096
# They halve an image five times and normalise over what is left and the batch: more than one value is needed.
_NORMALISED = ("mobilenet_v2", "resnet50", "yolov5l")


class SpecError(ValueError):
    """A specification was refused: `errors` has a sentence for each field, 'options.image' for an option."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        self.errors = dict(errors)
        super().__init__(" ".join(self.errors.values()))


def spec_of_workload(workload: Workload, preset: Preset, given: Mapping[str, Any]) -> Spec:
    """Return the Spec of a preset with what is `given` in place of it; every option of the workload is filled in.

    `given` holds fields of Spec by name; options stand in 'options' or by their own names, as a form sends them.
    Raises SpecError.
    """
    errors: dict[str, str] = {}
    fields: dict[str, Any] = {parameter.name: parameter.default for parameter in COMMON}
    options: dict[str, Any] = {parameter.name: parameter.default for parameter in workload.parameters}
    start = dict(workload.presets.get(preset, {}))
    options.update(start.pop("options", {}))  # type: ignore[call-overload]  # a mapping of options
    fields.update(start)
    command = fields.pop("command", ())
    asked = dict(given)
    nested = asked.pop("options", {})
    if not isinstance(nested, Mapping):
        errors["options"] = "Options are an object of names and values."
        nested = {}
    if asked.pop("workload", workload.name) != workload.name:
        errors["workload"] = f"This is the specification of {workload.name}."
    if asked.pop("framework", "pytorch") != "pytorch":
        errors["framework"] = "Only pytorch runs here."
    if "command" in asked:
        command = _command(asked.pop("command"), errors)
    common = {parameter.name: parameter for parameter in COMMON}
    own = {parameter.name: parameter for parameter in workload.parameters}
    for name, value in asked.items():
        if name in own:
            options[name] = _value(own[name], value, name, errors)
        elif name in common:
            fields[name] = _value(common[name], value, name, errors)
        else:
            errors[name] = f"{workload.title} has no parameter '{name}'."
    for name, value in nested.items():
        if name in own:
            options[name] = _value(own[name], value, f"options.{name}", errors)
        else:
            names = ", ".join(own) or "none"
            errors[f"options.{name}"] = f"{workload.title} has no option '{name}'; its options are: {names}."
    if errors:
        raise SpecError(errors)
    return spec_checked(
        workload, Spec(workload=workload.name, framework="pytorch", options=options, command=tuple(command), **fields)
    )


def spec_checked(workload: Workload, spec: Spec) -> Spec:
    """Return the spec. Raises SpecError where its fields do not go together."""
    errors = _wrong_together(workload, spec)
    if errors:
        raise SpecError(errors)
    return spec


def _value(parameter: Parameter, value: Any, field: str, errors: dict[str, str]) -> Any:
    """Return the value as the parameter's kind, also from text; else note what is wrong with it."""
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
    number = _number(value)
    span = f"above {parameter.least} and up to" if fractional else f"from {parameter.least} to"
    kind = "a number" if fractional else "a whole number"
    wrong = f"{parameter.label} is {kind} {span} {parameter.most}."
    if number is None or (not fractional and number != int(number)):
        errors[field] = wrong
        return parameter.default
    if number > parameter.most or number < parameter.least or (fractional and number == parameter.least):
        errors[field] = wrong
        return parameter.default
    return float(number) if fractional else int(number)


def _number(value: Any) -> float | int | None:
    if isinstance(value, bool):
        return None
    try:
        number = float(value) if not isinstance(value, int) else value
    except (TypeError, ValueError, OverflowError):
        return None
    return number if isinstance(number, int) or math.isfinite(number) else None


def _command(value: Any, errors: dict[str, str]) -> tuple[str, ...]:
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
    if any("\0" in word for word in words) or sum(map(len, words)) > LONGEST_COMMAND:
        errors["command"] = f"A command has up to {LONGEST_COMMAND} characters, none of them NUL."
    return tuple(words)


def _wrong_together(workload: Workload, spec: Spec) -> dict[str, str]:
    """Return a sentence for each field that does not go with the others."""
    if workload.family == "command":
        if not spec.command or not spec.command[0].strip():
            return {"command": "Say what to run."}
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
    errors |= _wrong_strategy(workload, spec)
    return errors | _wrong_options(workload, spec)


def _wrong_strategy(workload: Workload, spec: Spec) -> dict[str, str]:
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


def _wrong_options(workload: Workload, spec: Spec) -> dict[str, str]:
    errors: dict[str, str] = {}
    options: Mapping[str, Any] = spec.options
    if workload.family == "language" and options["hidden"] % options["heads"]:
        errors["options.hidden"] = f"The hidden size {options['hidden']} is no multiple of {options['heads']} heads."
    if workload.family == "detection" and options["image"] % 32:
        errors["options.image"] = "The image side is a multiple of 32: the network halves it five times."
    if workload.name in _NORMALISED and spec.batch == 1 and options["image"] <= 32:
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


def spec_from_json(data: bytes | str) -> Spec:
    """Return the Spec that JSON holds, without a look at the catalogue. Raises SpecError, naming the field."""
    try:
        return msgspec.json.decode(data, type=Spec)
    except msgspec.DecodeError as wrong:
        raise SpecError({"spec": f"The specification is not understood: {wrong}."}) from wrong
