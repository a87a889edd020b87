"""Tells what happens in a run: each event one line of JSON in a file, and a line now and then in the log."""

from __future__ import annotations

import logging
import os
import statistics
import time
from pathlib import Path
from typing import Any

from hostwire.training import Event, Phase, Result, Steps, Trouble, event_encoder

log = logging.getLogger("trainer")
# Steps are told together: so often, in seconds.
TELL_EVERY = 0.5
_TAIL = 65536


class EventFile:
    """Appends events to a file, each with one write, so that several processes may add to it.

    Only the leading process tells of phases, steps and results; each may tell of its trouble.
    """

    def __init__(self, path: Path, *, leads: bool) -> None:
        self.path = path
        self.leads = leads
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def tell(self, event: Event) -> None:
        """Append the event, if this process leads."""
        if self.leads:
            self._write(event)

    def phase(self, name: str) -> None:
        """Tell that a phase begins."""
        self.tell(Phase(at=time.time(), name=name))
        if self.leads:
            log.info("Phase: %s.", name)

    def result(self, values: dict[str, Any], units: dict[str, str]) -> None:
        """Tell figures that are no step times, with their units."""
        self.tell(Result(at=time.time(), values=values, units=units))

    def trouble(self, what: str, sentence: str) -> None:
        """Tell of trouble, from any process. The log has it too."""
        log.error("%s", sentence)
        self._write(Trouble(at=time.time(), what=what, sentence=sentence))

    def has_trouble(self) -> bool:
        """Return whether trouble was told of already: by the process that had it first."""
        with self.path.open("rb") as file:
            length = file.seek(0, os.SEEK_END)
            file.seek(max(0, length - _TAIL))
            return b'"kind":"trouble"' in file.read()

    def _write(self, event: Event) -> None:
        os.write(self._file, event_encoder.encode(event) + b"\n")


class StepTeller:
    """Collects the steps of one phase and tells them together, each half second."""

    def __init__(self, events: EventFile, phase: str, of: int) -> None:
        self._events = events
        self._phase = phase
        self._of = of
        self._first = 0
        self._seconds: list[float] = []
        self._loss: list[float | None] = []
        self._told = time.monotonic()

    def add(self, seconds: float, loss: float | None = None, *, has_loss: bool = True) -> None:
        """Note a step that took `seconds`."""
        self._seconds.append(seconds)
        if has_loss:
            self._loss.append(loss)
        if time.monotonic() - self._told >= TELL_EVERY:
            self.flush()

    def flush(self) -> None:
        """Tell what is collected."""
        self._told = time.monotonic()
        if not self._seconds:
            return
        self._events.tell(
            Steps(
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
            log.info("%s: step %d of %d, %.4g s a step%s.", self._phase, self._first, self._of, middle, loss)
        self._seconds.clear()
        self._loss.clear()
