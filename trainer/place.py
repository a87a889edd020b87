"""Where one process of a run stands: its number among the others, and its device."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist

from hostwire.training import Spec
from trainer.ranks import rank_here, store_here, world_here
from trainer.troubles import Refused


@dataclass(frozen=True, kw_only=True)
class Place:
    """The process is number `rank` of `world`, the first of which tells of the run. `grouped`: they can talk."""

    rank: int
    world: int
    device: torch.device
    grouped: bool

    @property
    def leads(self) -> bool:
        """Whether it is the first."""
        return self.rank == 0

    @property
    def on_gpu(self) -> bool:
        """Whether its device is a GPU."""
        return self.device.type == "cuda"

    def finish_device(self) -> None:
        """Wait until the device has done all that it was given."""
        if self.on_gpu:
            torch.cuda.synchronize(self.device)

    def wait(self) -> None:
        """Wait until the device of every process has done all that it was given."""
        self.finish_device()
        if self.grouped and self.world > 1:
            dist.barrier(device_ids=[self.device.index] if self.on_gpu else None)


def join(spec: Spec) -> Place:
    """Meet the other processes and take a device. Raises Refused with what is missing."""
    rank, world = rank_here(), world_here()
    if spec.threads:
        torch.set_num_threads(spec.threads)
    device = _device(spec)
    grouped = spec.strategy in ("ddp", "sharded")
    if grouped:
        backend, own = ("nccl", device) if spec.backend == "cuda" else ("gloo", None)
        dist.init_process_group(backend, store=store_here(), rank=rank, world_size=world, device_id=own)
    return Place(rank=rank, world=world, device=device, grouped=grouped)


def leave() -> None:
    """Part from the other processes at the end of a run that went well."""
    if dist.is_initialized():
        dist.destroy_process_group()


def _device(spec: Spec) -> torch.device:
    """Return the device of this process, the current one of CUDA from here on."""
    if spec.backend == "cpu":
        if spec.strategy == "dp":
            raise Refused("DP spreads one process over GPUs; it does nothing on the CPU. Use ddp.")
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise Refused("This host has no GPU that PyTorch can use. Choose the CPU, or attach a GPU.")
    there = torch.cuda.device_count()
    if there < spec.devices:
        raise Refused(f"The run needs {spec.devices} GPUs; PyTorch sees {there}.")
    if spec.strategy == "dp" and spec.devices < 2:
        raise Refused("DP needs at least 2 GPUs.")
    device = torch.device("cuda", rank_here())
    torch.cuda.set_device(device)
    # Sizes stay the same from step to step: the fastest way to convolve is sought once, in the warm-up.
    torch.backends.cudnn.benchmark = True
    return device
