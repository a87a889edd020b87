"""What happens at a failpoint: 'bmc.attach.answered=die', or 'bmc.attach.answered=die@2' for the second time."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from django.core.exceptions import SynchronousOnlyOperation
from django.db import OperationalError, connection

from core.endpoints import DeliveryFailed
from core.errors import Unavailable
from core.failpoints import Failpoint
from fabric.bmc.errors import Unreachable

EXIT_STATUS: Final = 137  # as of a process that the kernel has killed
POLL_SECONDS: Final = 0.01
# How a lost answer shows itself, by whose answer it is.
LOST_ANSWERS: Final[Mapping[str, Callable[[], Exception]]] = {
    "bmc.": lambda: Unreachable("The chassis broke the connection before its answer was complete."),
    "agent.": lambda: Unavailable("The agent of the host cannot be reached: the broker does not answer."),
    "export.batch.": lambda: DeliveryFailed("The receiver broke the connection."),
}


class FaultInjector:
    """A handler of failpoints that does one thing at one of them, and counts how often each is reached.

    'hang' writes `reached` into the folder, with 'uncommitted' where a transaction is open, and goes on once there is a
    `release`. 'lose_answer' is for requests: to BMCs, agents and receivers.
    """

    def __init__(self, text: str, folder: Path) -> None:
        self.name, _, what = text.partition("=")
        self.action, _, number = what.partition("@")
        self.number, self.folder = int(number or 1), folder
        self.reached: Counter[Failpoint] = Counter()

    def __call__(self, name: Failpoint, about: object = None) -> None:
        self.reached[name] += 1
        if name != self.name or self.reached[name] != self.number:
            return
        match self.action:
            case "die":
                os._exit(EXIT_STATUS)
            case "hang":
                self._hang()
            case "lose_answer":
                raise next(lost() for prefix, lost in LOST_ANSWERS.items() if name.startswith(prefix))
            case "lose_database":
                with contextlib.suppress(SynchronousOnlyOperation):  # a loop's own thread has no connection
                    connection.close()
                raise OperationalError("the database is gone")
            case unknown:
                raise ValueError(f"'{unknown}' is no action")

    def _hang(self) -> None:
        written = self.folder / "reached.part"
        written.write_text("uncommitted" if connection.in_atomic_block else "")
        written.rename(self.folder / "reached")
        while not (self.folder / "release").exists():
            time.sleep(POLL_SECONDS)
