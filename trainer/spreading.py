"""Spreads a model over the devices of a run: DP, DDP or sharded, and the precision of arithmetic and gradients."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from hostwire.training import Precision, Spec
from trainer.place import Place

_TYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def dtype_of(precision: Precision) -> torch.dtype:
    """Return the type of PyTorch that a precision names."""
    return _TYPES[precision]


def _sent_as(kind: torch.dtype, world: int) -> Callable[..., torch.futures.Future[Tensor]]:
    """Return what exchanges a bucket of gradients in fewer bits; PyTorch's own for bf16 would ask for NCCL."""

    # PyTorch looks at annotations, and understands none that are text.
    def exchange(_state, bucket):  # type: ignore[no-untyped-def]
        whole = bucket.buffer()
        sent = whole.to(kind).div_(world)

        return dist.all_reduce(sent, async_op=True).get_future().then(lambda done: whole.copy_(done.value()[0]))

    return exchange


class Casting(nn.Module):
    """A model that chooses the precision of each operation itself, in whichever thread it is called.

    DataParallel calls its replicas in threads of their own, which inherit that there is autocast, and not to what.
    """

    def __init__(self, inner: nn.Module, kind: torch.dtype) -> None:
        super().__init__()
        self.inner = inner
        self.kind = kind

    def forward(self, *inputs: Tensor) -> Any:
        """Return what the model says."""
        with torch.autocast(inputs[0].device.type, dtype=self.kind):
            return self.inner(*inputs)


class Spread:
    """A model as the run's strategy spreads it.

    `exchanging(False)` lets a backward pass keep its gradients to itself. `can_skip` says whether whole steps can go
    without exchange: not where the weights themselves are spread.
    """

    def __init__(self, model: nn.Module, spec: Spec, place: Place) -> None:
        self._spec = spec
        self._device = place.device
        self.parameters = sum(parameter.numel() for parameter in model.parameters())
        self._hold: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
        self._sharded: Any = None
        self.can_skip = spec.strategy == "ddp" and place.world > 1
        # FSDP keeps weights in fewer bits, except of batch normalisation; elsewhere each operation chooses.
        normalises = any(isinstance(module, nn.BatchNorm2d) for module in model.modules())
        self._casts = spec.precision != "fp32" and (spec.strategy != "sharded" or normalises)
        if self._casts:
            model = Casting(model, dtype_of(spec.precision))
        self.inner = self._spread(model.to(place.device), place)
        self.model: Callable[..., Any] = torch.compile(self.inner) if spec.compile else self.inner

    def _spread(self, model: nn.Module, place: Place) -> nn.Module:
        spec = self._spec
        if spec.strategy == "dp":
            return nn.DataParallel(model, device_ids=list(range(spec.devices)))
        if spec.strategy == "ddp":
            return self._ddp(model, place)
        if spec.strategy == "sharded":
            return self._shard(model, place)
        return model

    def _ddp(self, model: nn.Module, place: Place) -> nn.Module:
        from torch.nn.parallel import DistributedDataParallel

        spread = DistributedDataParallel(
            model,
            device_ids=[place.device.index] if place.on_gpu else None,
            bucket_cap_mb=self._spec.bucket_bytes / 2**20,
            gradient_as_bucket_view=True,
        )
        if self._spec.gradient != "fp32" and place.world > 1:
            spread.register_comm_hook(None, _sent_as(dtype_of(self._spec.gradient), place.world))
        self._hold = spread.no_sync
        return spread

    def _shard(self, model: nn.Module, place: Place) -> nn.Module:
        """Shard each repeated block by itself, and the rest together: weights, gradients and optimiser (FSDP2)."""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        mesh = init_device_mesh(place.device.type, (dist.get_world_size(),))
        policy = MixedPrecisionPolicy(
            param_dtype=None if self._casts else dtype_of(self._spec.precision),
            reduce_dtype=dtype_of(self._spec.gradient),
        )
        for module in list(model.modules()):
            if isinstance(module, nn.ModuleList):
                for block in module:
                    if any(True for _ in block.parameters()):
                        fully_shard(block, mesh=mesh, mp_policy=policy)
        self._sharded = fully_shard(model, mesh=mesh, mp_policy=policy)
        return model

    def exchanging(self, wanted: bool) -> AbstractContextManager[None]:
        """Return a context in which gradients are exchanged by the backward pass, or kept."""
        if self._sharded is not None:
            self._sharded.set_requires_gradient_sync(wanted)
            return contextlib.nullcontext()
        return contextlib.nullcontext() if wanted else self._hold()

    def outputs(self, inputs: tuple[Tensor, ...]) -> Any:
        """Return what the model says to inputs, in the precision of the run."""
        return self.model(*inputs)

    def scaler(self) -> torch.amp.GradScaler:
        """Return what keeps small gradients of fp16 above zero; it does nothing for other precisions."""
        return torch.amp.GradScaler(self._device.type, enabled=self._spec.precision == "fp16")
