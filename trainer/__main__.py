"""`python -m trainer SPEC.json --events FILE`: carries out a run from its specification."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import traceback
from pathlib import Path

import msgspec

from hostwire.training import NodePart, Spec
from trainer.processes import PEER_LOST, current_rank, exit_process
from trainer.reporting import (
    EventWriter,
    RunRefused,
    error_summary,
    format_bytes,
    is_compile_error,
    is_peer_loss,
    out_of_memory_bytes,
)
from trainer.restarts import REFUSED, limit_cores, run_with_restarts

FAILED = 1


def main() -> int:
    """Carry out a run; returns the exit code: 0, 1 for a failure, 2 for a refusal."""
    reader = argparse.ArgumentParser(prog="trainer", description="Carries out one run of a benchmark on this host.")
    reader.add_argument("spec", type=Path, help="the specification, JSON as hostwire.training.Spec")
    reader.add_argument("--events", type=Path, required=True, help="where to append what happens, as lines of JSON")
    reader.add_argument("--node", type=Path, help="this host's part in a run over several, hostwire.training.NodePart")
    given = reader.parse_args()
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(asctime)s %(message)s")
    # Nothing is ever downloaded: weights and data are random. GPUs are detected with NVML: once this process has
    # initialised CUDA, processes forked from it could not use it.
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", PYTORCH_NVML_BASED_CUDA_CHECK="1")
    events = EventWriter(given.events, leads=True)
    try:
        spec = msgspec.json.decode(given.spec.read_bytes(), type=Spec)
        node = msgspec.json.decode(given.node.read_bytes(), type=NodePart) if given.node else None
    except (OSError, msgspec.DecodeError) as wrong:
        return _report_refusal(events, f"The specification is not understood: {error_summary(wrong)}.")
    if spec.processes > 1:
        # As torchrun does; libraries read it on import, and would use all cores in each process.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        limit_cores(spec)
        from trainer.training import preload
    except RunRefused as refused:
        return _report_refusal(events, str(refused))
    except ImportError as missing:
        return _report_refusal(events, f"A library is missing on this host: {error_summary(missing)}.")
    if spec.processes == 1 and not spec.restarts:
        return _run_rank_here(spec, given.events)
    preload(spec)
    try:
        code = run_with_restarts(
            spec, lambda restart, is_last: _run_rank_here(spec, given.events, restart, is_last=is_last), node
        )
    except (OSError, ValueError) as error:
        if node is None:
            raise
        meeting = f", or the rendezvous at {node.rendezvous}, port {node.port}, not be opened" if node.leads else ""
        return _report_refusal(
            events, f"The address {node.address} of this host (AGENT_RENDEZVOUS) cannot be used{meeting}: {error}."
        )
    if code < 0:  # the signal that ended a process of the run
        os.kill(os.getpid(), -code)
    return FAILED if code == PEER_LOST else code


def _run_rank_here(spec: Spec, events_file: Path, restart: str = "", *, is_last: bool = True) -> int:
    """Carry out this process's part of the run; a failure is one of the run if this is the last attempt."""
    from trainer.training import run_rank

    rank = current_rank()
    events = EventWriter(events_file, leads=rank == 0)
    if rank:
        only_warnings = f"%(asctime)s [process {rank}] %(message)s"
        logging.basicConfig(stream=sys.stdout, level=logging.WARNING, format=only_warnings, force=True)
    try:
        run_rank(spec, events, restart)
    except RunRefused as refused:
        return _report_refusal(events, str(refused))
    except Exception as error:  # noqa: BLE001  # any error ends the run and is reported
        traceback.print_exc()
        if is_last:
            _report_error(events, error, spec, rank)
        return PEER_LOST if is_peer_loss(error) else FAILED
    return 0


def _report_refusal(events: EventWriter, sentence: str) -> int:
    """Report a refusal, unless another process has."""
    if not events.has_trouble():
        events.trouble("refused", sentence)
    return REFUSED


def _report_error(events: EventWriter, error: Exception, spec: Spec, rank: int) -> None:
    """Report an error, unless another process reported its own before: this one is its consequence."""
    if events.has_trouble():
        return
    if is_peer_loss(error):
        events.trouble(
            "peer" if spec.hosts > 1 else "crash",
            f"Another process of the run ended without an error message; process {rank} lost its connection to it.",
        )
        return
    missing = out_of_memory_bytes(error)
    if missing is None:
        hint = " Run it without compilation." if is_compile_error(error) else ""
        events.trouble("crash", f"Process {rank} failed. {error_summary(error)}.{hint}")
        return
    amount = f"{format_bytes(missing)} more" if missing else "the allocation"
    events.trouble(
        "out_of_memory",
        f"Process {rank} ran out of memory with a batch of {spec.batch} a device: "
        f"{amount} did not fit{_memory_in_use(spec)}. "
        "Use a smaller batch, or spread the model.",
    )


def _memory_in_use(spec: Spec) -> str:
    """Return the device's memory in use, as the end of a sentence."""
    import torch

    if spec.backend == "cuda" and torch.cuda.is_available():
        free, whole = torch.cuda.mem_get_info()
        return f"; {format_bytes(whole - free)} of the GPU's {format_bytes(whole)} are in use"
    import resource

    return f"; the process has used up to {format_bytes(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)}"


if __name__ == "__main__":
    exit_process(main())
