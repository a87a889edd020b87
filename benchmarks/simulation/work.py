"""The work of a training step by groups of layers, and of its input, for one device of a composition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.model.features import IMPOSSIBLE_INPUT, VALUE_BYTES, ModelError, costs_of, is_link_workload
from benchmarks.model.reference_data import CORE_RATE, HOST_MEMORY_RATE, WORKLOAD_FAMILY, DeviceDatasheet
from benchmarks.simulation import constants as c
from benchmarks.workloads.catalogue import workload_title
from benchmarks.workloads.definitions import LayerCosts
from core.language import _
from hostwire.training import Spec

MAX_GROUPS, FEW_GROUPS, MANY_DEVICES = 24, 6, 16  # with more devices than that, groups of layers are fewer
USUAL_SIDES = {"yolov5l": 640, "inception_v3": 299, "mnist_cnn": 28}  # pixels of an image's side; of all others 224


@dataclass(frozen=True)
class GroupWork:
    """Seconds of one group of layers on a device if nothing slows it, forward and backward.

    `memory` is the share of the time in which its kernels access memory at full rate; `gradients` counts parameters.
    """

    forward: float
    backward: float
    memory: float
    gradients: float


@dataclass(frozen=True)
class DeviceWork:
    """All of a step on one device: groups in the order of the forward pass, and the optimiser."""

    groups: tuple[GroupWork, ...]
    optimiser: float

    @property
    def forward(self) -> float:
        """Seconds of a whole pass, as is `backward`."""
        return sum(group.forward for group in self.groups)

    @property
    def backward(self) -> float:
        return sum(group.backward for group in self.groups)


class _Rates(NamedTuple):
    """Operations and bytes a second of a device, seconds to start a kernel and to fill the device, Winograd's gain."""

    reached: float
    memory_rate: float
    launch: float
    ramp: float = 0.0
    winograd: float = 1.0


def layers_of(spec: Spec) -> tuple[LayerCosts, ...]:
    """Return at most MAX_GROUPS groups of layers. Raises ModelError for a workload that trains nothing."""
    layers = costs_of(spec).layers
    if is_link_workload(spec) or not layers:
        raise ModelError(
            _("{workload} measures links: it has no training step.", workload=workload_title(spec.workload))
        )
    flops, parameters = sum(layer.flops for layer in layers), sum(layer.parameters for layer in layers)
    if not (flops > 0 and parameters > 0):
        raise ModelError(_(IMPOSSIBLE_INPUT))
    most = max(FEW_GROUPS, MAX_GROUPS * MANY_DEVICES // max(MANY_DEVICES, spec.devices))
    if len(layers) <= most:
        return layers
    # Groups of equal arithmetic or weights: a group ends where the sum of both shares passes the next mark.
    groups: list[list[LayerCosts]] = [[]]
    passed = 0.0
    for layer in layers:
        groups[-1].append(layer)
        passed += (layer.flops / flops + layer.parameters / parameters) / 2
        if passed >= len(groups) / most and len(groups) < most:
            groups.append([])
    return tuple(_sum_layers(group) for group in groups if group)


def _sum_layers(layers: Sequence[LayerCosts]) -> LayerCosts:
    return LayerCosts(
        parameters=sum(layer.parameters for layer in layers),
        flops=sum(layer.flops for layer in layers),
        winograd_flops=sum(layer.winograd_flops for layer in layers),
        activation_bytes=sum(layer.activation_bytes for layer in layers),
        operations=sum(layer.operations for layer in layers),
    )


def gpu_work(spec: Spec, facts: DeviceDatasheet) -> DeviceWork:
    """Return the work of one batch on a GPU, by its data sheet."""
    family = WORKLOAD_FAMILY[spec.workload]
    single = facts.single if family == "transformer" else facts.tf32
    peak = {"fp32": single, "fp16": facts.half, "bf16": facts.bf16}[spec.precision]
    tensor = peak > 1.5 * facts.single
    reached = peak * (c.HALF_REACHED if tensor else c.SINGLE_REACHED)[family]
    memory_rate = facts.memory_rate * c.MEMORY_REACHED[family]
    rates = _Rates(reached, memory_rate, c.LAUNCH_SECONDS, c.RAMP_SECONDS, 1.0 if tensor else c.WINOGRAD)
    return _work(spec, rates)


def cpu_work(spec: Spec, cores: float) -> DeviceWork:
    """Return the work of one batch in a process of the CPU that has these cores."""
    memory_rate = HOST_MEMORY_RATE * c.CPU_MEMORY_REACHED / spec.devices
    reached = CORE_RATE * cores * c.CPU_REACHED[WORKLOAD_FAMILY[spec.workload]]
    return _work(spec, _Rates(reached, memory_rate, c.CPU_OPERATION_SECONDS))


def _work(spec: Spec, rates: _Rates) -> DeviceWork:
    reached, memory_rate, launch, ramp, winograd = rates
    family = WORKLOAD_FAMILY[spec.workload]
    width = VALUE_BYTES[spec.precision] / 4
    compiled_bytes = c.COMPILED_BYTES if spec.compile else 1.0
    compiled_operations = c.COMPILED_OPERATIONS if spec.compile else 1.0
    layers = layers_of(spec)
    groups = []
    for layer in layers:
        kept = spec.batch * layer.activation_bytes * width * compiled_bytes / memory_rate
        kernels = layer.operations * compiled_operations
        products = layer.flops - layer.winograd_flops * (1 - 1 / winograd)
        seconds = []
        for part, passes, more in (
            (1 / 3, c.MEMORY_PASSES[0], 1.0),
            (2 / 3, c.MEMORY_PASSES[1], c.BACKWARD_OPERATIONS),
        ):
            busy = spec.batch * products * part / reached + passes * kept + kernels * more * ramp
            seconds.append(max(busy, kernels * more * launch))
        forward, backward = seconds
        total = forward + backward
        groups.append(
            GroupWork(
                forward=forward,
                backward=backward,
                memory=min(1.0, sum(c.MEMORY_PASSES) * kept / total) if total else 0.0,
                gradients=layer.parameters,
            )
        )
    parameters = sum(layer.parameters for layer in layers) / (spec.devices if spec.strategy == "sharded" else 1)
    moved = c.OPTIMISER_BYTES[family] + (c.SCALER_BYTES if spec.precision != "fp32" else 0.0)
    # A tensor for each three kernels of a pass: weights, biases and scales.
    tensors = sum(layer.operations for layer in layers) * 0.7
    started = tensors * c.OPTIMISER_KERNELS[family] * launch
    return DeviceWork(groups=tuple(groups), optimiser=max(parameters * moved / memory_rate, started))


def sample_seconds(spec: Spec) -> float:
    """Return the seconds of a core that prepare one sample."""
    if WORKLOAD_FAMILY[spec.workload] == "transformer":
        return c.TOKEN_SECONDS * float(spec.options.get("sequence", 384))
    side = float(spec.options.get("image", USUAL_SIDES.get(spec.workload, 224)))
    if spec.workload == "yolov5l":
        return c.SCENE_SECONDS * side**2 / c.SCENE_PIXELS
    return c.IMAGE_SECONDS * side**2 / c.IMAGE_PIXELS
