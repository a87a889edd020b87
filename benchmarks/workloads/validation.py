"""Specifications from what is given, field by field, and what one may not say at once. Pure."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from typing import Any

from benchmarks.workloads.definitions import COMMON_PARAMETERS, Workload, WorkloadParameter
from core.language import _, joined
from hostwire.training import Spec

MAX_COMMAND_LENGTH = 4096
# They halve an image five times and normalise over the remaining pixels and the batch: this needs several values.
_BATCH_NORMALISED = ("mobilenet_v2", "resnet50", "yolov5l")


class SpecError(ValueError):
    """A specification was refused: `errors` has a sentence for each field, 'options.image' for an option."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        self.errors = dict(errors)
        super().__init__(joined(self.errors.values()))


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
        errors["options"] = _("Options are an object of names and values.")
        nested = {}
    if values.pop("workload", workload.name) != workload.name:
        errors["workload"] = _("This is the specification of {workload}.", workload=workload.name)
    if values.pop("framework", "pytorch") != "pytorch":
        errors["framework"] = _("Only pytorch runs here.")
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
            errors[name] = _("{workload} has no parameter '{name}'.", workload=_(workload.title), name=name)
    for name, value in nested.items():
        if name in own:
            options[name] = _parameter_value(own[name], value, f"options.{name}", errors)
        else:
            names = ", ".join(own) or _("none")
            errors[f"options.{name}"] = _(
                "{workload} has no option '{name}'; its options are: {names}.",
                workload=_(workload.title),
                name=name,
                names=names,
            )
    if errors:
        raise SpecError(errors)
    return validate_spec(
        workload, Spec(workload=workload.name, framework="pytorch", options=options, command=tuple(command), **fields)
    )


def validate_spec(workload: Workload, spec: Spec) -> Spec:
    """Return the spec. Raises SpecError if its fields are inconsistent."""
    if errors := inconsistencies(workload, spec):
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
        errors[field] = _("{parameter} is one of: {names}.", parameter=_(parameter.label), names=names)
        return parameter.default
    fractional = isinstance(parameter.default, float)
    number = _parse_number(value)
    is_wrong_kind = number is None or (not fractional and number != int(number))
    is_least = fractional and number == parameter.least
    if number is None or is_wrong_kind or is_least or not parameter.least <= number <= parameter.most:
        named = {"parameter": _(parameter.label), "least": parameter.least, "most": parameter.most}
        errors[field] = (
            _("{parameter} is a number above {least} and up to {most}.", **named)
            if fractional
            else _("{parameter} is a whole number from {least} to {most}.", **named)
        )
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
            errors["command"] = _("The command cannot be split into words: {reason}.", reason=str(wrong).lower())
            return ()
    elif isinstance(value, list | tuple) and all(isinstance(word, str) for word in value):
        words = list(value)
    else:
        errors["command"] = _("The command is one line, or a list of words.")
    if any("\0" in word for word in words) or sum(map(len, words)) > MAX_COMMAND_LENGTH:
        errors["command"] = _("A command has up to {most} characters, none of them NUL.", most=MAX_COMMAND_LENGTH)
    return tuple(words)


def inconsistencies(workload: Workload, spec: Spec) -> dict[str, str]:
    """Return a sentence for each field of a spec that is inconsistent, 'options.image' for an option."""
    if workload.family == "command":
        if not spec.command or not spec.command[0].strip():
            return {"command": _("Enter a command.")}
        return {}
    errors: dict[str, str] = {}
    if spec.command:
        errors["command"] = _("{workload} takes no command.", workload=_(workload.title))
    if spec.precision not in workload.precisions:
        errors["precision"] = _(
            "{workload} runs in {names}.", workload=_(workload.title), names=joined(workload.precisions, _(" or "))
        )
    elif spec.precision == "fp16" and spec.backend == "cpu":
        errors["precision"] = _("fp16 needs a GPU. On the CPU, use bf16 or fp32.")
    if spec.compile and not workload.is_training:
        errors["compile"] = _("{workload} has no model to compile.", workload=_(workload.title))
    errors |= _strategy_errors(workload, spec) | _data_errors(workload, spec)
    return errors | _option_errors(workload, spec)


def _strategy_errors(workload: Workload, spec: Spec) -> dict[str, str]:
    errors: dict[str, str] = {}
    if spec.strategy not in workload.strategies:
        errors["strategy"] = _(
            "{workload} runs with {names}.", workload=_(workload.title), names=joined(workload.strategies, _(" or "))
        )
    elif spec.strategy == "single" and spec.devices != 1:
        errors["devices"] = _("The strategy 'single' has one device, not {devices}.", devices=spec.devices)
    elif spec.strategy == "dp" and spec.backend == "cpu":
        errors["strategy"] = _("DP spreads one process over GPUs; it does nothing on the CPU. Use ddp.")
    elif spec.strategy == "dp" and spec.devices < 2:
        errors["devices"] = _("DP needs at least 2 devices.")
    elif "single" not in workload.strategies and spec.devices < 2:
        errors["devices"] = _("{workload} is between devices: it needs at least 2.", workload=_(workload.title))
    if spec.hosts > 1:
        errors |= _hosts_errors(workload, spec)
    if spec.gradient != "fp32" and spec.strategy not in ("ddp", "sharded"):
        errors["gradient"] = _("Only ddp and sharded can send gradients in another precision.")
    if not workload.is_training and spec.accumulation != 1:
        errors["accumulation"] = _("{workload} has no gradients to accumulate.", workload=_(workload.title))
    return errors


def _hosts_errors(workload: Workload, spec: Spec) -> dict[str, str]:
    if not (workload.is_training or workload.name == "all_reduce"):
        return {"hosts": _("{workload} runs on one host.", workload=_(workload.title))}
    if spec.strategy not in ("ddp", "sharded"):
        return {"strategy": _("Over several hosts a run has the strategy ddp or sharded.")}
    if spec.restarts:
        return {"restarts": _("A run over several hosts is not restarted.")}
    if spec.resume_from:
        return {"resume_from": _("A run over several hosts begins anew: its checkpoint is on the first host alone.")}
    if spec.devices < spec.hosts:
        return {"devices": _("Each of {hosts} hosts has a process: it needs that many devices.", hosts=spec.hosts)}
    return {}


def _data_errors(workload: Workload, spec: Spec) -> dict[str, str]:
    """Return the errors of the fields that are about files and checkpoints."""
    if not workload.is_training:
        names = ("samples", "validate_every", "checkpoint_every", "restarts")
        wrong = [name for name in names if getattr(spec, name)] + ["data"] * (spec.data != "random")
        return {name: _("{workload} trains nothing.", workload=_(workload.title)) for name in wrong}
    if spec.data != "random":
        return {}
    return {
        name: _("Random samples have none: choose files.")
        for name in ("samples", "validate_every")
        if getattr(spec, name)
    }


def _option_errors(workload: Workload, spec: Spec) -> dict[str, str]:
    errors: dict[str, str] = {}
    options: Mapping[str, Any] = spec.options
    if workload.family == "language" and options["hidden"] % options["heads"]:
        errors["options.hidden"] = _(
            "The hidden size {hidden} is no multiple of {heads} heads.",
            hidden=options["hidden"],
            heads=options["heads"],
        )
    if workload.family == "detection" and options["image"] % 32:
        errors["options.image"] = _("The image side is a multiple of 32: the network halves it five times.")
    if workload.name in _BATCH_NORMALISED and spec.batch == 1 and options["image"] <= 32:
        errors["options.image"] = _("With one image a device its side must be above 32: nothing is left to normalise.")
    if workload.name == "inception_v3" and spec.batch == 1:
        errors["batch"] = _("Its auxiliary classifier normalises over the batch: two images a device or more.")
    if "least_bytes" in options:
        if options["most_bytes"] < options["least_bytes"]:
            errors["options.most_bytes"] = _("The largest message is smaller than the smallest.")
        for name in ("least_bytes", "most_bytes"):
            if options[name] % 4:
                errors.setdefault(f"options.{name}", _("A message is a multiple of 4 bytes."))
    if "block_bytes" in options and options["block_bytes"] > options["file_bytes"]:
        errors["options.block_bytes"] = _("A block is larger than the file.")
    return errors
