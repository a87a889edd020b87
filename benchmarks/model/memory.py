"""The memory that a run needs on a device, and whether it is there."""

from __future__ import annotations

import math

from benchmarks.model.features import VALUE_BYTES, accelerators_used, costs_of, is_link_workload
from benchmarks.model.reference_data import WORKLOAD_FAMILY
from benchmarks.model.topology import Topology
from core.language import _
from hostwire.training import Spec

# Bytes a parameter. The optimiser keeps one value (momentum) or two (Adam); DDP copies gradients into its buckets.
WEIGHT_BYTES, GRADIENT_BYTES, BUCKET_BYTES = 4.0, 4.0, 4.0
MOMENT_BYTES = {"convolution": 4.0, "depthwise": 4.0, "transformer": 8.0}
CUDA_CONTEXT_BYTES, CPU_PROCESS_BYTES = 1.0e9, 0.4e9  # bytes of a process before anything is trained
COMMUNICATOR_BYTES = 0.5e9  # NCCL's buffers
FRAGMENTATION = 1.03  # of what the allocator holds against what is used
MIXED_KEPT = 0.53  # of what is kept in fp32: autocast leaves some normalisations in fp32
GATHERED_SHARE = 0.1  # of the weights, whole at a time when sharded
# Of a device's memory the driver keeps a little for itself.
USABLE_SHARE = 0.98


def checkpoint_bytes(spec: Spec) -> float:
    """Return the bytes of one checkpoint: weights and the optimiser's moments. Raises ModelError."""
    return costs_of(spec).parameters * (WEIGHT_BYTES + MOMENT_BYTES[WORKLOAD_FAMILY[spec.workload]])


def memory_bytes(spec: Spec) -> float:
    """Return the bytes of memory that a run needs on one device, on the CPU backend those of one process.

    Weights, gradients, optimiser, tensors kept for the backward pass, and the runtime. Raises ModelError for a workload
    without a model.
    """
    costs = costs_of(spec)
    fixed = CPU_PROCESS_BYTES if spec.backend == "cpu" else CUDA_CONTEXT_BYTES
    if is_link_workload(spec):
        return fixed + costs.activation_bytes
    width = VALUE_BYTES[spec.precision]
    each = WEIGHT_BYTES + GRADIENT_BYTES + MOMENT_BYTES[WORKLOAD_FAMILY[spec.workload]]
    if spec.devices > 1 and spec.strategy == "sharded":
        weights = each / spec.devices + GATHERED_SHARE * width
    else:
        # Mixed precision keeps a copy of the weights in half width while a batch is computed.
        weights = each + (width if spec.precision != "fp32" else 0.0)
        weights += BUCKET_BYTES if spec.devices > 1 else 0.0
    activations = spec.batch * costs.activation_bytes * (1.0 if spec.precision == "fp32" else MIXED_KEPT)
    if spec.devices > 1 and spec.backend != "cpu":
        fixed += COMMUNICATOR_BYTES
    return fixed + FRAGMENTATION * (costs.parameters * weights + activations)


def fits(spec: Spec, topology: Topology) -> str:
    """Return '' if the run fits, else a sentence with the required and the available memory. Raises ModelError."""
    needed = memory_bytes(spec)
    if spec.backend == "cpu":
        processes = math.ceil(spec.devices / spec.hosts)  # of the host that has the most
        total = needed * processes
        if total <= USABLE_SHARE * topology.memory_bytes:
            return ""
        return _(
            "It needs about {needed:.1f} GB of the host's memory for {devices} processes, and the host has "
            "{total:.1f} GB.",
            needed=total / 1e9,
            devices=processes,
            total=topology.memory_bytes / 1e9,
        )
    devices = accelerators_used(spec, topology)
    if not devices:
        return ""
    smallest = min(devices, key=lambda device: device.memory_bytes)
    if needed <= USABLE_SHARE * smallest.memory_bytes:
        return ""
    return _(
        "It needs about {needed:.1f} GB a device, and {name} ({model}) has {memory:.1f} GB: choose a smaller "
        "batch, mixed precision or sharding.",
        needed=needed / 1e9,
        name=smallest.name,
        model=smallest.model,
        memory=smallest.memory_bytes / 1e9,
    )
