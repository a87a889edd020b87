"""Runs of the trainer in folders of their own; nothing of them outlives a test."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hostwire.training import Spec
from tests.trainer.starting import Running, RunOutcome, start
from tests.without import NO_TORCH

LONGEST = 250  # s


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Starts runs, and ends what is left of them."""
    pytest.importorskip("torch", reason=NO_TORCH)
    runs: list[Running] = []

    def begin(spec: Spec | bytes, **more: Any) -> Running:
        folder = tmp_path / str(len(runs))
        folder.mkdir()
        runs.append(start(folder, spec, **more))
        return runs[-1]

    yield begin
    for run in runs:
        for pid in run.members():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        run.process.wait()


@pytest.fixture
def ran(started: Callable[..., Running]) -> Callable[..., RunOutcome]:
    """Runs a spec to its end."""

    def run(spec: Spec | bytes, **more: Any) -> RunOutcome:
        running = started(spec, **more)
        running.process.wait(LONGEST)
        return running.outcome()

    return run
