"""The shape of a workload's definition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from hostwire.training import Option, Precision, Spec, Strategy

Preset = Literal["tiny", "paper", "custom"]
Family = Literal["vision", "detection", "language", "link", "command"]


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A size of a workload that people may set: a whole number from `least` to `most`, or one of `choices`."""

    name: str
    label: str
    default: Option
    unit: str = ""
    least: int = 1
    most: int = 10**9
    choices: tuple[Option, ...] = ()
    help: str = ""


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What one sample asks for, at the sizes of a spec; the performance model's inputs.

    `flops`: forward and backward, multiply and add counted as two. `input_bytes`: from storage; `device_bytes`: host to
    device. `activation_bytes`: kept for the backward pass, in the precision of fp32. `late_share`: of the parameters,
    those whose gradients are ready only as the backward pass ends (embeddings). `operations`: kernels a pass.
    """

    parameters: float
    flops: float
    activation_bytes: float
    input_bytes: float
    device_bytes: float
    late_share: float = 0.0
    operations: int = 0


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A definition. `samples` names what a batch counts ('images', 'sequences').

    `presets` maps tiny and paper to fields of Spec that differ from its defaults. `costs` is None where there is
    nothing to model: of a user's own command. `source` tells where parameters, depth and costs come from.
    """

    name: str
    title: str
    family: Family
    samples: str
    about: str
    source: str
    data_set: str = ""
    depth: int = 0
    parameters: tuple[Parameter, ...] = ()
    presets: Mapping[Preset, Mapping[str, object]] = field(default_factory=dict)
    precisions: tuple[Precision, ...] = ("fp32", "fp16", "bf16")
    strategies: tuple[Strategy, ...] = ("single", "dp", "ddp", "sharded")
    costs: Callable[[Spec], Costs] | None = None

    @property
    def is_training(self) -> bool:
        """Whether it trains a model in steps; else it measures links, or runs a user's command."""
        return self.family in ("vision", "detection", "language")
