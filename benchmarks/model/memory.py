"""How much memory of a device a run needs, and whether it is there."""

from __future__ import annotations

from benchmarks.model.features import WIDTH, costs_of, is_link, used
from benchmarks.model.parameters import FAMILY
from benchmarks.model.shapes import Topology
from hostwire.training import Spec

# Bytes a parameter. The optimiser keeps one value (momentum) or two (Adam); DDP copies gradients into its buckets.
WEIGHT, GRADIENT, BUCKETS = 4.0, 4.0, 4.0
MOMENTS = {"convolution": 4.0, "depthwise": 4.0, "transformer": 8.0}
CUDA_CONTEXT, CPU_PROCESS = 1.0e9, 0.4e9  # bytes of a process before anything is trained
FRAGMENTS = 1.05  # of what the allocator holds against what is used
GATHERED = 0.1  # of the weights, whole at a time when sharded
# Of a device's memory the driver keeps a little for itself.
USABLE = 0.98


def memory_bytes(spec: Spec) -> float:
    """Return the bytes of memory that a run needs on one device, on the CPU backend those of one process.

    Weights, gradients, optimiser, what the backward pass keeps, and the runtime. Raises ModelError of a workload that
    there is no model of.
    """
    costs = costs_of(spec)
    fixed = CPU_PROCESS if spec.backend == "cpu" else CUDA_CONTEXT
    if is_link(spec):
        return fixed + costs.activation_bytes
    width = WIDTH[spec.precision]
    each = WEIGHT + GRADIENT + MOMENTS[FAMILY[spec.workload]]
    if spec.devices > 1 and spec.strategy == "sharded":
        weights = each / spec.devices + GATHERED * width
    else:
        # Mixed precision keeps a copy of the weights in half width while a batch is computed.
        weights = each + (width if spec.precision != "fp32" else 0.0)
        weights += BUCKETS if spec.devices > 1 else 0.0
    activations = spec.batch * costs.activation_bytes * width / 4
    return fixed + FRAGMENTS * (costs.parameters * weights + activations)


def fits(spec: Spec, topology: Topology) -> str:
    """Return '' where the run fits, else a sentence that says what it needs and what there is. Raises ModelError."""
    needed = memory_bytes(spec)
    if spec.backend == "cpu":
        total = needed * spec.devices
        if total <= USABLE * topology.memory_bytes:
            return ""
        return (
            f"It needs about {total / 1e9:.1f} GB of the host's memory for {spec.devices} processes, "
            f"and the host has {topology.memory_bytes / 1e9:.1f} GB."
        )
    devices = used(spec, topology)
    if not devices:
        return ""
    smallest = min(devices, key=lambda device: device.memory_bytes)
    if needed <= USABLE * smallest.memory_bytes:
        return ""
    return (
        f"It needs about {needed / 1e9:.1f} GB a device, and {smallest.name} ({smallest.model}) has "
        f"{smallest.memory_bytes / 1e9:.1f} GB: choose a smaller batch, mixed precision or sharding."
    )
