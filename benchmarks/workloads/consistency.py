"""What a specification may not say at once, by field. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from core.language import _, joined
from hostwire.training import Spec

if TYPE_CHECKING:
    from benchmarks.workloads.definitions import Workload

# They halve an image five times and normalise over the remaining pixels and the batch: this needs several values.
_BATCH_NORMALISED = ("mobilenet_v2", "resnet50", "yolov5l")


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
