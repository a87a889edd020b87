"""Starts the trainer as a host does, in a process group of its own, and reads what it tells."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

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


@dataclass
class Running:
    """A run that was started: its process leads the group of all of them, which are forked from it."""

    process: subprocess.Popen[bytes]
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
        """Return the processes that are left of it, by their command line."""
        own = str(self.folder / "events.jsonl").encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                if own in words:
                    found.append(int(entry.name))
        return found


def start(folder: Path, spec: Spec | bytes, *, memory: int = 0, node: NodePart | None = None, **more: str) -> Running:
    """Start a run, or its part `node`, in a folder, with `memory` bytes of addresses at most for each process."""
    data = spec if isinstance(spec, bytes) else msgspec.json.encode(spec)
    (folder / "spec.json").write_bytes(data)
    command = [sys.executable, "-m", "trainer", str(folder / "spec.json"), "--events", str(folder / "events.jsonl")]
    if node is not None:
        (folder / "node.json").write_bytes(msgspec.json.encode(node))
        command += ["--node", str(folder / "node.json")]
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=HOME,
            env=kept | {"OMP_NUM_THREADS": "1", "FALCONWEB_SCRATCH": str(folder)} | more,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    if memory:
        # Before it has read its own code, and long before it forks others, which inherit it.
        resource.prlimit(process.pid, resource.RLIMIT_AS, (memory, memory))
    return Running(process, folder)
