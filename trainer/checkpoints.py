"""Checkpoints: model, optimiser and position of a run, in a folder on its drive, put in place whole.

Each run has one, the newest. It outlives the run unless that completes, so that another run can go on from it.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from hostwire.training import RUN_VARIABLE, Spec
from trainer.reporting import RunRefused, format_bytes, logger
from trainer.storage import require_own

FOLDER: Final = "falcon-checkpoints"
MOST_CHECKPOINTS: Final = 4  # of a folder: older ones of ended runs make room
# Fields that a run that goes on may change: how it runs, not what it trains.
FREE_FIELDS: Final = frozenset(
    {"devices", "hosts", "batch", "accumulation", "steps", "warmup", "loader_workers", "threads", "cores", "restarts",
     "resume_from", "validate_every", "checkpoint_every", "bucket_bytes", "compile", "backend", "gradient"}
)  # fmt: skip


class Checkpoint:
    """The checkpoint of one run, in its folder below a folder for data."""

    def __init__(self, data: Path, run: str) -> None:
        self.run = run
        self._file = data / FOLDER / run / "checkpoint.pt"

    @property
    def exists(self) -> bool:
        return self._file.is_file()

    def save(self, state: dict[str, Any]) -> int:
        """Replace the checkpoint by a new one; returns its size. Raises RunRefused where it does not fit."""
        folder = self._file.parent
        new = folder / ".new"
        require_own(folder.parent)
        try:
            folder.parent.mkdir(mode=0o700, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            with new.open("wb") as stream:
                torch.save(state, stream)
                stream.flush()
                os.fsync(stream.fileno())
            new.replace(self._file)
        except (OSError, RuntimeError) as error:  # PyTorch's writer raises the latter on a full drive
            new.unlink(missing_ok=True)
            free = format_bytes(shutil.disk_usage(folder if folder.is_dir() else folder.parent.parent).free)
            raise RunRefused(f"The checkpoint cannot be written to {folder}, which has {free} free: {error}") from error
        self._make_room()
        return self._file.stat().st_size

    def load(self, spec: Spec) -> dict[str, Any]:
        """Return the saved state. Raises RunRefused where there is none, or one of another training."""
        require_own(self._file.parent.parent)
        try:
            state: dict[str, Any] = torch.load(self._file, map_location="cpu", weights_only=True)
            of = state["training"]
        except FileNotFoundError:
            raise RunRefused(f"There is no checkpoint of {self.run} in {self._file.parent.parent}.") from None
        except Exception as error:
            raise RunRefused(f"The checkpoint {self._file} cannot be read: {error}") from error
        if different := [name for name, value in training_fields(spec).items() if of.get(name) != value]:
            raise RunRefused(f"The checkpoint of {self.run} is of another training: {', '.join(different)} differ.")
        return state

    def delete(self) -> None:
        shutil.rmtree(self._file.parent, ignore_errors=True)

    def _make_room(self) -> None:
        """Delete the oldest checkpoints of the folder beyond the number that it keeps, but none of a run under way."""
        files = sorted(self._file.parent.parent.glob("*/checkpoint.pt"), key=_written_at, reverse=True)
        surplus = files[MOST_CHECKPOINTS:]
        going_on = _runs_under_way() if surplus else set()
        for file in (one for one in surplus if one.parent.name not in going_on):
            # Not of which run: it may be somebody else's.
            logger.info("An older checkpoint is deleted: a folder keeps %d.", MOST_CHECKPOINTS)
            shutil.rmtree(file.parent, ignore_errors=True)


def _written_at(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:  # another run has deleted it
        return 0.0


def _runs_under_way() -> set[str]:
    """Return the runs of this account that have processes here: a run that restarts has one throughout."""
    found = set()
    for file in Path("/proc").glob("[0-9]*/environ"):
        try:
            words = file.read_bytes().decode(errors="replace").split("\0")
        except OSError:  # it has ended, or is another account's
            continue
        found |= {word.removeprefix(f"{RUN_VARIABLE}=") for word in words if word.startswith(f"{RUN_VARIABLE}=")}
    return found


def training_fields(spec: Spec) -> dict[str, Any]:
    """Return the fields that a run and the one that goes on from its checkpoint share, as plain values."""
    return {
        name: getattr(spec, name) if name != "command" else list(spec.command)
        for name in spec.__struct_fields__
        if name not in FREE_FIELDS
    }


def full_state(model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Any]:
    """Return the whole state of model and optimiser in memory, for every strategy; all processes call it."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict

    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    model_state, optimiser_state = get_state_dict(model, optimiser, options=options)
    return {"model": model_state, "optimiser": optimiser_state}


def restore_state(model: nn.Module, optimiser: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Put a whole state into model and optimiser; all processes call it with the same."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_state_dict

    set_state_dict(
        model,
        optimiser,
        model_state_dict=state["model"],
        optim_state_dict=state["optimiser"],
        options=StateDictOptions(full_state_dict=True),
    )
