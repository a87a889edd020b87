"""Execution of steps in processes with a time limit, and the log of a command's steps."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from agent.step_worker import StepReply, StepRequest
from hostwire.protocol import CommandStep, DeviceHolder, Outcome, PciDevice
from hostwire.training import RunUpdate

# A process that is stuck in the kernel cannot be ended, so their number is limited.
MAX_STUCK_PROCESSES = 8
# The time in seconds that a new process may take to start; a busy machine is not a hanging device.
START_SECONDS = 30.0
# Steps take milliseconds: most wait for the process of another one rather than for the start of one more.
SHARE_SECONDS = 1.0
CODE_ROOT = Path(__file__).resolve().parent.parent
T = TypeVar("T")


class StepError(Exception):
    """The host refused a step; the text says why."""


class StepTimeoutError(StepError):
    """A step did not end within its time limit; it may still complete later."""


class StepProcessPool:
    """Processes that execute steps for all hosts of this process: one, and more while it hangs. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._idle: list[subprocess.Popen[bytes]] = []
        self._busy = 0  # processes that execute a step, or start
        self._stuck: list[tuple[subprocess.Popen[bytes], Path, str]] = []

    def execute(self, shape: type[T], root: Path, step: str, *, seconds: float, **arguments: Any) -> T:
        """Execute a step below a root folder and return its value as `shape`.

        Raises StepTimeoutError after `seconds`, StepError where the host refuses it.
        """
        process = self._take_idle()
        line = b""
        try:
            process = process or _start()
            _send_line(process, msgspec.json.encode(StepRequest(str(root), step, arguments)) + b"\n")
            line = _read_line(process, seconds)
        except TimeoutError:
            raise StepTimeoutError(f"did not end within {seconds:g} s") from None
        except OSError as error:
            raise StepError(f"the process that executed the step ended: {error}") from error
        finally:
            self._give_back(process, root, step, is_well=bool(line))
        reply = msgspec.json.decode(line, type=StepReply)
        if reply.error:
            raise StepError(reply.error)
        return msgspec.json.decode(reply.value, type=shape)

    def stuck(self, root: Path | None = None) -> list[str]:
        """Return the abandoned steps whose processes cannot be ended, below a root folder or all."""
        with self._changed:
            self._stuck = [one for one in self._stuck if one[0].poll() is None]
            return [step for _, where, step in self._stuck if root in (None, where)]

    def close(self) -> None:
        """End the processes."""
        with self._changed:
            for process in self._idle:
                process.kill()
                process.wait()
            self._idle.clear()

    def _take_idle(self) -> subprocess.Popen[bytes] | None:
        """Return a process that executes nothing, after some waiting; None where one is to be started."""
        if len(stuck := self.stuck()) >= MAX_STUCK_PROCESSES:
            raise StepTimeoutError(f"was not executed: earlier steps have not ended ({', '.join(sorted(set(stuck)))})")
        with self._changed:
            self._changed.wait_for(lambda: self._idle or not self._busy, SHARE_SECONDS)
            self._busy += 1
            while self._idle:
                process = self._idle.pop()
                if process.poll() is None:
                    return process
        return None

    def _give_back(self, process: subprocess.Popen[bytes] | None, root: Path, step: str, *, is_well: bool) -> None:
        """Keep a process for the next step; it is ended where there is one already, or where it is not well."""
        with self._changed:
            self._busy -= 1
            is_kept = is_well and not self._idle
            if is_kept and process is not None:
                self._idle.append(process)
            self._changed.notify()
        if process is not None and not is_kept:
            process.kill()
            if is_well:
                process.wait()
            else:
                with self._changed:
                    self._stuck.append((process, root, step))


def _start() -> subprocess.Popen[bytes]:
    """Start a process that executes steps; raises StepError."""
    process = subprocess.Popen(
        [sys.executable, "-m", "agent.step_worker"], cwd=CODE_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        _read_line(process, START_SECONDS)
    except OSError as error:
        process.kill()
        process.wait()
        raise StepError("no process could be started for the step") from error
    return process


def _send_line(process: subprocess.Popen[bytes], line: bytes) -> None:
    if process.stdin is None:
        raise OSError("it has no pipe")
    process.stdin.write(line)
    process.stdin.flush()


def _read_line(process: subprocess.Popen[bytes], seconds: float) -> bytes:
    """Return the next line of a process; raises TimeoutError after `seconds`, OSError where it ended."""
    if process.stdout is None:
        raise OSError("it has no pipe")
    line = b""
    deadline = time.monotonic() + seconds
    poll = select.poll()
    poll.register(process.stdout.fileno(), select.POLLIN | select.POLLHUP)
    while not line.endswith(b"\n"):
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise TimeoutError
        part = os.read(process.stdout.fileno(), 2**16)
        if not part:
            raise OSError("it gave no output")
        line += part
    return line


class CommandEndedError(Exception):
    """Ends a command early, with its outcome and the sentence for people."""

    def __init__(self, outcome: Outcome, sentence: str) -> None:
        super().__init__(sentence)
        self.outcome = outcome
        self.sentence = sentence


@dataclass
class StepLog:
    """The steps of a command so far, with the devices and holders that it concerns."""

    steps: list[CommandStep] = field(default_factory=list)
    devices: list[PciDevice] = field(default_factory=list)
    holders: tuple[DeviceHolder, ...] = ()
    cut_off: tuple[DeviceHolder, ...] = ()
    news: RunUpdate | None = None

    def skip(self, name: str, sentence: str) -> None:
        """Log a step that was not needed, or not possible."""
        self.steps.append(CommandStep(name, "skipped", 0.0, sentence))

    def run(self, name: str, step: Callable[[], T]) -> T:
        """Execute a step and log its result; raises the step's errors."""
        began = time.monotonic()
        try:
            value = step()
        except StepTimeoutError as error:
            self.steps.append(CommandStep(name, "timed_out", _elapsed(began), str(error)))
            raise
        except StepError as error:
            self.steps.append(CommandStep(name, "failed", _elapsed(began), str(error)))
            raise
        self.steps.append(CommandStep(name, "done", _elapsed(began)))
        return value


def _elapsed(began: float) -> float:
    return round(time.monotonic() - began, 3)
