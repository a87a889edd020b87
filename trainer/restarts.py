"""The attempts of a run: after the loss of a process or its device it goes on with those that are left.

As torchrun's restart: all processes are started again, and go on from the last checkpoint. Does not import torch.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial

from hostwire.training import NodePart, Spec
from trainer.processes import run_ranks
from trainer.reporting import RunRefused, logger

REFUSED = 2  # exit code
_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"


def limit_cores(spec: Spec) -> None:
    """Limit this process and those that it starts to the spec's number of cores. Raises RunRefused for too many."""
    allowed = sorted(os.sched_getaffinity(0))
    if spec.cores > len(allowed):
        raise RunRefused(f"The run is to use {spec.cores} cores; this host lets it use {len(allowed)}.")
    if spec.cores:
        os.sched_setaffinity(0, allowed[: spec.cores])


def run_with_restarts(spec: Spec, work: Callable[[str, bool], int], node: NodePart | None) -> int:
    """Run `work` in the processes of a run, again with those that are left after a loss; returns the exit code.

    `work` is told why it begins again, '' at first, and whether it is the last attempt. What was refused is refused.
    """
    count, restart, code = spec.processes, "", 0
    for attempt in range(spec.restarts + 1):
        is_last = attempt == spec.restarts
        code, rank = run_ranks(count, partial(work, restart, is_last), node)
        if code in (0, REFUSED) or is_last:
            break
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        restart = f"Process {rank} {how}."
        logger.warning("%s The run is restarted.", restart)
        if count > 1:
            count -= 1
            if spec.backend == "cuda":
                _leave_out_device(rank, spec.devices)
    return code


def _leave_out_device(rank: int, devices: int) -> None:
    """Hide the GPU of a lost process from those that are started from now on."""
    given = os.environ.get(_VISIBLE_DEVICES)
    visible = given.split(",") if given else [str(number) for number in range(devices)]
    os.environ[_VISIBLE_DEVICES] = ",".join(visible[:rank] + visible[rank + 1 :])
