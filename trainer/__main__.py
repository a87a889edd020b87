"""`python -m trainer SPEC.json --events FILE`: a run, from its specification to its end."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import traceback
from pathlib import Path

import msgspec

from hostwire.training import Spec
from trainer.ranks import end, rank_here, run_ranks
from trainer.telling import EventFile
from trainer.troubles import Refused, last_line, lost_another, not_compiled, out_of_memory_bytes, size

REFUSED = 2
FAILED = 1


def main() -> int:
    """Carry a run out; return its exit code: 0, 1 for trouble, 2 where it was refused."""
    reader = argparse.ArgumentParser(prog="trainer", description="Carries out one run of a benchmark on this host.")
    reader.add_argument("spec", type=Path, help="the specification, JSON as hostwire.training.Spec")
    reader.add_argument("--events", type=Path, required=True, help="where to append what happens, as lines of JSON")
    given = reader.parse_args()
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(asctime)s %(message)s")
    # Nothing is ever downloaded: weights and data are random. Who asks whether there is a GPU asks NVML: once CUDA has
    # begun in this process, those that are forked from it could not use it.
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", PYTORCH_NVML_BASED_CUDA_CHECK="1")
    try:
        spec = msgspec.json.decode(given.spec.read_bytes(), type=Spec)
    except (OSError, msgspec.DecodeError) as wrong:
        return _refuse(EventFile(given.events, leads=True), f"The specification is not understood: {last_line(wrong)}.")
    if spec.processes > 1:
        # As torchrun has it; libraries read it as they are imported, and would take all cores for each process.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        from trainer.course import prepare
    except ImportError as missing:
        return _refuse(EventFile(given.events, leads=True), f"A library is missing on this host: {last_line(missing)}.")
    if spec.processes == 1:
        return _take_part(spec, given.events)
    prepare(spec)
    return run_ranks(spec.processes, lambda: _take_part(spec, given.events))


def _take_part(spec: Spec, told: Path) -> int:
    """Do this process' part of the run."""
    from trainer.course import run

    rank = rank_here()
    events = EventFile(told, leads=rank == 0)
    if rank:
        only_warnings = f"%(asctime)s [process {rank}] %(message)s"
        logging.basicConfig(stream=sys.stdout, level=logging.WARNING, format=only_warnings, force=True)
    try:
        run(spec, events)
    except Refused as refused:
        return _refuse(events, str(refused))
    except Exception as error:  # noqa: BLE001  # whatever it is, the run ends and says so
        traceback.print_exc()
        _tell(events, error, spec, rank)
        return FAILED
    return 0


def _refuse(events: EventFile, sentence: str) -> int:
    """Tell why the run cannot be, where no other process did."""
    if not events.has_trouble():
        events.trouble("refused", sentence)
    return REFUSED


def _tell(events: EventFile, error: Exception, spec: Spec, rank: int) -> None:
    """Tell of an error, unless another process told of its own before: this one follows from that."""
    if events.has_trouble():
        return
    if lost_another(error):
        events.trouble("crash", f"Another process of the run ended without a word; process {rank} lost it.")
        return
    missing = out_of_memory_bytes(error)
    if missing is None:
        hint = " Run it without compilation." if not_compiled(error) else ""
        events.trouble("crash", f"Process {rank} failed. {last_line(error)}.{hint}")
        return
    asked = f"{size(missing)} more" if missing else "the next allocation"
    events.trouble(
        "out_of_memory",
        f"Process {rank} ran out of memory with a batch of {spec.batch} a device: {asked} did not fit{_in_use(spec)}. "
        "Use a smaller batch, or spread the model.",
    )


def _in_use(spec: Spec) -> str:
    """Return what is in use of the device's memory, as the end of a sentence."""
    import torch

    if spec.backend == "cuda" and torch.cuda.is_available():
        free, whole = torch.cuda.mem_get_info()
        return f"; {size(whole - free)} of the GPU's {size(whole)} are in use"
    import resource

    return f"; the process has used up to {size(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)}"


if __name__ == "__main__":
    end(main())
