"""What a command did, step by step, and how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from agent.limits import NotEndedError, StepError
from hostwire.shapes import Holder, Outcome, PciDevice, Step
from hostwire.training import News

T = TypeVar("T")


class EndedError(Exception):
    """A command that ends here: its outcome, and the sentence for people."""

    def __init__(self, outcome: Outcome, sentence: str) -> None:
        super().__init__(sentence)
        self.outcome = outcome
        self.sentence = sentence


@dataclass
class Course:
    """The steps of one command so far, and what it is about."""

    steps: list[Step] = field(default_factory=list)
    devices: list[PciDevice] = field(default_factory=list)
    holders: tuple[Holder, ...] = ()
    cut_off: tuple[Holder, ...] = ()
    news: News | None = None

    def note(self, name: str, sentence: str) -> None:
        """Note a step that was not needed, or not possible."""
        self.steps.append(Step(name, "skipped", 0.0, sentence))

    def take(self, name: str, step: Callable[[], T]) -> T:
        """Take a step and note how it ended; raises as the step does."""
        with self._noted(name):
            return step()

    @contextmanager
    def _noted(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        except NotEndedError as error:
            self.steps.append(Step(name, "timed_out", _since(began), str(error)))
            raise
        except StepError as error:
            self.steps.append(Step(name, "failed", _since(began), str(error)))
            raise
        self.steps.append(Step(name, "done", _since(began)))


def _since(began: float) -> float:
    return round(time.monotonic() - began, 3)
