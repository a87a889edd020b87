"""Steps with a time limit: each is taken by a process that can be given up."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec

from agent.steps import Asked, Reply

# A process that is stuck in the kernel cannot be ended. More than so many are not started.
MOST_STUCK = 8
# How long a new process may take to be there; a busy machine is no hanging device.
START_SECONDS = 30.0
CODE = Path(__file__).resolve().parent.parent


class StepError(Exception):
    """A step that the host refused; the text says why."""


class NotEndedError(StepError):
    """A step that did not end within its limit; whether it still will, nobody knows."""


class Hands:
    """Processes that take steps below one root folder. Safe to use from several threads."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._idle: list[subprocess.Popen[bytes]] = []
        self._stuck: list[tuple[subprocess.Popen[bytes], str]] = []

    def do(self, shape: Any, step: str, *, seconds: float, **arguments: Any) -> Any:
        """Take one step and return its value as `shape`.

        Raises NotEndedError after `seconds`, StepError where the host refuses it.
        """
        process = self._process(step)
        try:
            _say(process, msgspec.json.encode(Asked(step, arguments)) + b"\n")
            line = _line(process, seconds)
        except TimeoutError:
            process.kill()
            with self._lock:
                self._stuck.append((process, step))
            raise NotEndedError(f"did not end within {seconds:g} s") from None
        except OSError as error:
            process.kill()
            process.wait()
            raise StepError(f"the process that took the step ended: {error}") from error
        with self._lock:
            self._idle.append(process)
        reply = msgspec.json.decode(line, type=Reply)
        if reply.error:
            raise StepError(reply.error)
        return msgspec.json.decode(reply.value, type=shape)

    @property
    def stuck(self) -> list[str]:
        """The steps that were given up and whose processes cannot be ended."""
        with self._lock:
            self._stuck = [(process, step) for process, step in self._stuck if process.poll() is None]
            return [step for _, step in self._stuck]

    def close(self) -> None:
        """End the processes."""
        with self._lock:
            for process in self._idle:
                process.kill()
                process.wait()
            self._idle.clear()

    def _process(self, step: str) -> subprocess.Popen[bytes]:
        if len(stuck := self.stuck) >= MOST_STUCK:
            raise NotEndedError(f"was not tried: earlier steps have not ended ({', '.join(sorted(set(stuck)))})")
        with self._lock:
            while self._idle:
                process = self._idle.pop()
                if process.poll() is None:
                    return process
        process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", "agent.steps", str(self._root)],
            cwd=CODE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            _line(process, START_SECONDS)
        except OSError as error:
            process.kill()
            process.wait()
            raise StepError("no process could be started for the step") from error
        return process


def _say(process: subprocess.Popen[bytes], line: bytes) -> None:
    if process.stdin is None:
        raise OSError("it has no line")
    process.stdin.write(line)
    process.stdin.flush()


def _line(process: subprocess.Popen[bytes], seconds: float) -> bytes:
    """Return the next line that a process says; raises TimeoutError after `seconds`, OSError where it ended."""
    if process.stdout is None:
        raise OSError("it has no line")
    said = b""
    deadline = time.monotonic() + seconds
    poll = select.poll()
    poll.register(process.stdout.fileno(), select.POLLIN | select.POLLHUP)
    while not said.endswith(b"\n"):
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise TimeoutError
        part = os.read(process.stdout.fileno(), 2**16)
        if not part:
            raise OSError("it said nothing")
        said += part
    return said
