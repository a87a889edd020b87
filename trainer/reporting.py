"""Events, log and errors of a run, reported by its processes."""

from __future__ import annotations

import logging
import os
import re
import statistics
import time
from pathlib import Path
from typing import Any

from hostwire.training import PhaseStarted, RunEvent, RunFailed, RunResult, StepsCompleted, event_encoder

logger = logging.getLogger("trainer")
# The interval in seconds at which steps are reported together.
REPORT_INTERVAL = 0.5
_TAIL_BYTES = 65536


class EventWriter:
    """Appends events to a file, each with one write, so that several processes may add to it.

    Only the leading process reports phases, steps and results; each may report a failure.
    """

    def __init__(self, path: Path, *, leads: bool) -> None:
        self.path = path
        self.leads = leads
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def report(self, event: RunEvent) -> None:
        """Append the event, if this is the leading process."""
        if self.leads:
            self._write(event)

    def phase(self, name: str) -> None:
        self.report(PhaseStarted(at=time.time(), name=name))
        if self.leads:
            logger.info("Phase: %s.", name)

    def result(self, values: dict[str, Any], units: dict[str, str]) -> None:
        self.report(RunResult(at=time.time(), values=values, units=units))

    def trouble(self, what: str, sentence: str) -> None:
        logger.error("%s", sentence)
        self._write(RunFailed(at=time.time(), what=what, sentence=sentence))

    def has_trouble(self) -> bool:
        with self.path.open("rb") as file:
            length = file.seek(0, os.SEEK_END)
            file.seek(max(0, length - _TAIL_BYTES))
            return b'"kind":"trouble"' in file.read()

    def _write(self, event: RunEvent) -> None:
        os.write(self._file, event_encoder.encode(event) + b"\n")


class StepReporter:
    """Collects the steps of one phase and reports them together, every half second."""

    def __init__(self, events: EventWriter, phase: str, of: int, *, first: int = 0) -> None:
        self._events = events
        self._phase = phase
        self._of = first + of
        self._first = first
        self._seconds: list[float] = []
        self._loss: list[float | None] = []
        self._reported_at = time.monotonic()

    def add(self, seconds: float, loss: float | None = None, *, has_loss: bool = True) -> None:
        self._seconds.append(seconds)
        if has_loss:
            self._loss.append(loss)
        if time.monotonic() - self._reported_at >= REPORT_INTERVAL:
            self.flush()

    def flush(self) -> None:
        self._reported_at = time.monotonic()
        if not self._seconds:
            return
        self._events.report(
            StepsCompleted(
                at=time.time(),
                phase=self._phase,
                first=self._first,
                seconds=tuple(self._seconds),
                loss=tuple(self._loss),
            )
        )
        self._first += len(self._seconds)
        if self._events.leads:
            loss = f", loss {self._loss[-1]:.4g}" if self._loss and self._loss[-1] is not None else ""
            middle = statistics.median(self._seconds)
            logger.info("%s: step %d of %d, %.4g s a step%s.", self._phase, self._first, self._of, middle, loss)
        self._seconds.clear()
        self._loss.clear()


GIB = 2**30


class RunRefused(Exception):
    """The run is not possible as specified; the text is a sentence for people."""


def out_of_memory_bytes(error: BaseException) -> int | None:
    """Return the bytes that could not be allocated, 0 where the error does not say; None for any other error."""
    text = str(error)
    if isinstance(error, MemoryError):
        return 0
    if type(error).__name__ == "OutOfMemoryError":
        found = re.search(r"allocate ([\d.]+) (KiB|MiB|GiB|bytes)", text)
        units = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
        return int(float(found[1]) * units[found[2]]) if found else 0
    if "can't allocate memory" in text or "not enough memory" in text or "std::bad_alloc" in text:
        found = re.search(r"allocate (\d+) bytes", text)
        return int(found[1]) if found else 0
    return None


def format_bytes(number: float) -> str:
    """Return bytes in readable units: '1.5 GiB', '300 MiB'."""
    if number >= GIB:
        return f"{number / GIB:.1f} GiB"
    return f"{number / 2**20:.0f} MiB" if number >= 2**20 else f"{number:.0f} bytes"


def error_summary(error: BaseException) -> str:
    """Return the type and the first line of an exception, short enough for a page."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else ""
    return f"{type(error).__name__}: {text}"[:500].rstrip(". ") if text else type(error).__name__


# Messages of gloo and NCCL when the peer process is gone.
_PEER_LOST = re.compile(
    r"connection (was )?(closed|reset)|broken pipe|connection refused|remote process exited|peer closed|"
    r"ncclRemoteError|NCCL error.*remote|socket (closed|timeout)",
    re.IGNORECASE,
)


def is_peer_loss(error: BaseException) -> bool:
    """Return whether the error only means that another process of the run has ended."""
    return isinstance(error, RuntimeError) and bool(_PEER_LOST.search(str(error)))


def is_compile_error(error: BaseException) -> bool:
    return type(error).__module__.startswith(("torch._dynamo", "torch._inductor"))
