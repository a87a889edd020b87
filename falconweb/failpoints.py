"""What happens at a failpoint: `FALCONWEB_FAILPOINTS=bmc.attach.answered=die`, or `...=die@2` for the second time.

For tests of the site alone, with `FALCONWEB_DEBUG=1`: any other site with the variable refuses to start.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError, connection

from core.errors import Unavailable
from core.failpoints import FAILPOINTS, Failpoint, set_failpoint_handler
from fabric.bmc.errors import Unreachable
from telemetry.delivery.endpoints import DeliveryFailed

VARIABLE: Final = "FALCONWEB_FAILPOINTS"
FOLDER_VARIABLE: Final = "FALCONWEB_FAILPOINTS_FOLDER"
ACTIONS: Final = ("die", "hang", "lose_answer", "lose_database")
EXIT_STATUS: Final = 137  # as of a process that the kernel has killed
POLL_SECONDS: Final = 0.01
# How a lost answer shows itself, by whose answer it is.
LOST_ANSWERS: Final = {
    "bmc.": lambda: Unreachable("The chassis broke the connection before its answer was complete."),
    "agent.": lambda: Unavailable("The agent of the host cannot be reached: the broker does not answer."),
    "export.batch.": lambda: DeliveryFailed("The receiver broke the connection."),
}


class FaultInjector:
    """A handler of failpoints that does one thing at one of them, and counts how often each is reached.

    'hang' writes `reached` into the folder, with 'uncommitted' where a transaction is open, and goes on once there is a
    `release`. 'lose_answer' is for requests: to BMCs, agents and receivers.
    """

    def __init__(self, text: str = "", folder: Path | None = None) -> None:
        name, _, what = text.partition("=")
        action, _, number = what.partition("@")
        if text and (
            name not in FAILPOINTS
            or action not in ACTIONS
            or (action == "hang" and folder is None)
            or (action == "lose_answer" and not name.startswith(tuple(LOST_ANSWERS)))
        ):
            raise ImproperlyConfigured(f"{VARIABLE} is '{text}', which names no failpoint and an action for it.")
        self.name, self.action, self.number, self.folder = name, action, int(number or 1), folder
        self.reached: Counter[Failpoint] = Counter()

    def __call__(self, name: Failpoint) -> None:
        if name not in FAILPOINTS:
            raise ValueError(f"there is no failpoint {name!r}")
        self.reached[name] += 1
        if name != self.name or self.reached[name] != self.number:
            return
        if self.action == "die":
            os._exit(EXIT_STATUS)
        elif self.action == "hang":
            self._hang()
        elif self.action == "lose_answer":
            raise next(lost() for prefix, lost in LOST_ANSWERS.items() if name.startswith(prefix))
        else:
            connection.close()
            raise OperationalError("the database is gone")

    def _hang(self) -> None:
        if self.folder is None:
            raise RuntimeError("it hangs without a folder")
        written = self.folder / "reached.part"
        written.write_text("uncommitted" if connection.in_atomic_block else "")
        written.rename(self.folder / "reached")
        while not (self.folder / "release").exists():
            time.sleep(POLL_SECONDS)


def failpoints_activate(environment: Mapping[str, str], *, debug: bool) -> None:
    """Do at failpoints what the environment says; raises ImproperlyConfigured for that without `debug`."""
    text = environment.get(VARIABLE, "")
    if not text:
        return
    if not debug:
        raise ImproperlyConfigured(f"{VARIABLE} is for tests alone: unset it, or set FALCONWEB_DEBUG=1.")
    folder = environment.get(FOLDER_VARIABLE)
    set_failpoint_handler(FaultInjector(text, Path(folder) if folder else None))
