"""Starts the trainer in a process group of its own, as a host does, and reads what it tells.

PyTorch takes seconds of a processor to be loaded: runs are forked from one process that has it. Where an interpreter of
its own is the point, `start` runs `python -m trainer`.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import runpy
import subprocess
import sys
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import msgspec
import pytest

from hostwire.training import (
    NodePart,
    PhaseStarted,
    RunEvent,
    RunFailed,
    RunResult,
    Spec,
    StepsCompleted,
    event_decoder,
)

HOME = Path(__file__).resolve().parents[2]
# What a run imports, also by its model and its optimiser.
PRELOADED = ["trainer.training", "torch._dynamo", "transformers.models.bert.modeling_bert", __name__]


@dataclass(frozen=True)
class RunOutcome:
    """A run up to now: its exit code, its events in order, its log."""

    code: int
    events: list[RunEvent]
    log: str

    def seconds(self, phase: str) -> list[float]:
        """Return the seconds of all steps of a phase."""
        return [value for event in self._steps(phase) for value in event.seconds]

    def losses(self, phase: str = "timed") -> list[float | None]:
        """Return the loss of each step of a phase."""
        return [value for event in self._steps(phase) for value in event.loss]

    @property
    def phases(self) -> list[str]:
        """Return the names of its phases."""
        return [event.name for event in self.events if isinstance(event, PhaseStarted)]

    @property
    def result(self) -> RunResult:
        """Return its only result."""
        (result,) = (event for event in self.events if isinstance(event, RunResult))
        return result

    @property
    def trouble(self) -> RunFailed | None:
        """Return the first trouble, None without any."""
        return next((event for event in self.events if isinstance(event, RunFailed)), None)

    def _steps(self, phase: str) -> list[StepsCompleted]:
        steps = [event for event in self.events if isinstance(event, StepsCompleted) and event.phase == phase]
        assert [step.first for step in steps] == [
            sum(len(before.seconds) for before in steps[:number]) for number in range(len(steps))
        ]
        return steps


class ForkedTrainer:
    """A trainer that was forked, with what the tests need of subprocess.Popen."""

    def __init__(self, process: ForkServerProcess) -> None:
        self._process = process
        self.pid: int = process.pid or 0

    def poll(self) -> int | None:
        """Return the exit code, minus the signal that ended it; None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return the exit code. Raises TimeoutExpired after `timeout` seconds."""
        self._process.join(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired("trainer", timeout or 0.0)
        return code


@dataclass
class Running:
    """A run that was started: its process leads the group of all of them, which are forked from it."""

    process: subprocess.Popen[bytes] | ForkedTrainer
    folder: Path

    def outcome(self) -> RunOutcome:
        """Return its state up to now."""
        file = self.folder / "events.jsonl"
        lines = file.read_bytes().split(b"\n")[:-1] if file.exists() else []
        code = self.process.poll()
        return RunOutcome(
            -1000 if code is None else code,
            [event_decoder.decode(line) for line in lines],
            (self.folder / "log").read_text(errors="replace"),
        )

    def members(self) -> list[int]:
        """Return the processes that are left of it: those of its group that are not ending."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                group = int((entry / "stat").read_text().rpartition(")")[2].split()[2])
                # One that ends has given its memory back, its command line with it.
                if group == self.process.pid and (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
        return found


def start(
    folder: Path,
    spec: Spec | bytes,
    *,
    memory: int = 0,
    node: NodePart | None = None,
    own_interpreter: bool = False,
    **more: str,
) -> Running:
    """Start a run, or its part `node`, in a folder, with `memory` bytes of addresses at most for each process."""
    data = spec if isinstance(spec, bytes) else msgspec.json.encode(spec)
    (folder / "spec.json").write_bytes(data)
    arguments = [str(folder / "spec.json"), "--events", str(folder / "events.jsonl")]
    if node is not None:
        (folder / "node.json").write_bytes(msgspec.json.encode(node))
        arguments += ["--node", str(folder / "node.json")]
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    environment = kept | {"OMP_NUM_THREADS": "1", "FALCONWEB_SCRATCH": str(folder)} | more
    (folder / "log").touch()
    if own_interpreter:
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "trainer", *arguments],
                cwd=HOME,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return Running(process, folder)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")  # read when PyTorch is loaded
        forkserver.ensure_running()
    forked = context.Process(target=_carry_out, args=(arguments, folder / "log", environment, memory))
    forked.start()
    return Running(ForkedTrainer(forked), folder)


def _carry_out(arguments: list[str], log: Path, environment: dict[str, str], memory: int) -> None:
    """Be `python -m trainer` from here on."""
    os.setsid()
    os.chdir(HOME)
    for place, descriptor in ((os.devnull, 0), (log, 1), (log, 2)):
        os.dup2(os.open(place, os.O_RDWR | os.O_APPEND), descriptor)
    os.environ.clear()
    os.environ.update(environment)
    if memory:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    multiprocessing.set_start_method("fork", force=True)
    sys.argv = ["trainer", *arguments]
    runpy.run_module("trainer", run_name="__main__", alter_sys=True)
