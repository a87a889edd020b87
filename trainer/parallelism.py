"""Rank, device and process group, and the model distributed over them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from hostwire.training import Precision, Spec
from trainer.processes import current_rank, local_rank, rendezvous_store, world_size
from trainer.reporting import RunRefused

DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def _compression_hook(kind: torch.dtype, world: int) -> Callable[..., torch.futures.Future[Tensor]]:
    """Return a hook that exchanges a bucket of gradients in fewer bits; PyTorch's own for bf16 requires NCCL."""

    # PyTorch inspects the annotations, and fails on string annotations.
    def exchange(_state, bucket):  # type: ignore[no-untyped-def]
        whole = bucket.buffer()
        sent = whole.to(kind).div_(world)

        return dist.all_reduce(sent, async_op=True).get_future().then(lambda done: whole.copy_(done.value()[0]))

    return exchange


class AutocastModule(nn.Module):
    """A model with autocast in whichever thread it is called.

    DataParallel calls its replicas in threads, which inherit that autocast is enabled, but not its dtype.
    """

    def __init__(self, inner: nn.Module, kind: torch.dtype) -> None:
        super().__init__()
        self.inner = inner
        self.kind = kind

    def forward(self, *inputs: Tensor) -> Any:
        with torch.autocast(inputs[0].device.type, dtype=self.kind):
            return self.inner(*inputs)


class ParallelModel:
    """A model distributed by the run's strategy.

    `gradient_sync(False)` makes a backward pass accumulate its gradients locally. `can_skip`: whether whole steps can
    omit the exchange, which is not possible with sharded weights.
    """

    def __init__(self, model: nn.Module, spec: Spec, place: RankContext) -> None:
        self._spec = spec
        self.parameters = sum(parameter.numel() for parameter in model.parameters())
        self._no_sync: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
        self._sharded: Any = None
        self.can_skip = spec.strategy == "ddp" and place.world > 1
        # FSDP casts the weights, except those of batch normalisation; elsewhere autocast chooses per operation.
        normalises = any(isinstance(module, nn.BatchNorm2d) for module in model.modules())
        self._casts = spec.precision != "fp32" and (spec.strategy != "sharded" or normalises)
        if self._casts:
            model = AutocastModule(model, DTYPES[spec.precision])
        self.inner = self._spread(model.to(place.device), place)
        self.model: Callable[..., Any] = torch.compile(self.inner) if spec.compile else self.inner

    def _spread(self, model: nn.Module, place: RankContext) -> nn.Module:
        spec = self._spec
        if spec.strategy == "dp":
            return nn.DataParallel(model, device_ids=list(range(spec.devices)))
        if spec.strategy == "ddp":
            return self._ddp(model, place)
        if spec.strategy == "sharded":
            return self._shard(model, place)
        return model

    def _ddp(self, model: nn.Module, place: RankContext) -> nn.Module:
        from torch.nn.parallel import DistributedDataParallel

        spread = DistributedDataParallel(
            model,
            device_ids=[place.device.index] if place.on_gpu else None,
            bucket_cap_mb=self._spec.bucket_bytes / 2**20,
            gradient_as_bucket_view=True,
        )
        if self._spec.gradient != "fp32" and place.world > 1:
            spread.register_comm_hook(None, _compression_hook(DTYPES[self._spec.gradient], place.world))
        self._no_sync = spread.no_sync
        return spread

    def _shard(self, model: nn.Module, place: RankContext) -> nn.Module:
        """Shard each repeated block separately, and the rest together: weights, gradients and optimiser (FSDP2)."""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        mesh = init_device_mesh(place.device.type, (dist.get_world_size(),))
        policy = MixedPrecisionPolicy(
            param_dtype=None if self._casts else DTYPES[self._spec.precision],
            reduce_dtype=DTYPES[self._spec.gradient],
        )
        for module in list(model.modules()):
            if isinstance(module, nn.ModuleList):
                for block in module:
                    if any(True for _ in block.parameters()):
                        fully_shard(block, mesh=mesh, mp_policy=policy)
        self._sharded = fully_shard(model, mesh=mesh, mp_policy=policy)
        return model

    def gradient_sync(self, enabled: bool) -> AbstractContextManager[None]:
        """Return a context in which the backward pass exchanges gradients, or accumulates them locally."""
        if self._sharded is not None:
            self._sharded.set_requires_gradient_sync(enabled)
            return contextlib.nullcontext()
        return contextlib.nullcontext() if enabled else self._no_sync()


@dataclass(frozen=True, kw_only=True)
class RankContext:
    """The process has `rank` of `world`; rank 0 reports the run. `grouped`: there is a process group."""

    rank: int
    world: int
    device: torch.device
    grouped: bool

    @property
    def leads(self) -> bool:
        return self.rank == 0

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"

    def synchronise_device(self) -> None:
        """Wait until the device has completed all its work."""
        if self.on_gpu:
            torch.cuda.synchronize(self.device)

    def wait(self) -> None:
        """Wait until the devices of all processes have completed all their work."""
        self.synchronise_device()
        if self.grouped and self.world > 1:
            dist.barrier(device_ids=[self.device.index] if self.on_gpu else None)


def join_group(spec: Spec) -> RankContext:
    """Join the process group and select a device. Raises RunRefused with the missing requirement."""
    rank, world = current_rank(), world_size()
    if spec.threads:
        torch.set_num_threads(spec.threads)
    device = _rank_device(spec)
    grouped = spec.strategy in ("ddp", "sharded")
    if grouped:
        backend, own = ("nccl", device) if spec.backend == "cuda" else ("gloo", None)
        dist.init_process_group(backend, store=rendezvous_store(), rank=rank, world_size=world, device_id=own)
    return RankContext(rank=rank, world=world, device=device, grouped=grouped)


def _rank_device(spec: Spec) -> torch.device:
    """Return the device of this process, and make it CUDA's current one."""
    if spec.backend == "cpu":
        if spec.strategy == "dp":
            raise RunRefused("DP spreads one process over GPUs; it does nothing on the CPU. Use ddp.")
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise RunRefused("This host has no GPU that PyTorch can use. Choose the CPU, or attach a GPU.")
    there = torch.cuda.device_count()
    needed = spec.devices if spec.strategy == "dp" else world_size() if spec.hosts == 1 else local_rank() + 1
    if there < needed:
        raise RunRefused(f"The run needs {needed} GPUs; PyTorch sees {there}.")
    if spec.strategy == "dp" and spec.devices < 2:
        raise RunRefused("DP needs at least 2 GPUs.")
    device = torch.device("cuda", local_rank())
    torch.cuda.set_device(device)
    # Sizes are the same in every step: the fastest convolution algorithm is selected once, in the warm-up.
    torch.backends.cudnn.benchmark = True
    return device
