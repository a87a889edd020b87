"""`python -m tests.fabric.mortal_worker SCALE`: has each operation of its input done by a process that may be killed.

A line of JSON is an order: the operation's id, after how many seconds the process is killed, or at which step it kills
itself. The answer is 'died', or 'ended' for one that was quicker.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

import django

LOOKS_EVERY = 0.005  # s


def main(scale: float) -> None:
    """Carry out orders until the input ends."""
    django.setup()
    from tests.fabric.disorder import shorten_patience

    shorten_patience(scale)
    say("ready")
    for line in sys.stdin:
        order = json.loads(line)
        # A copy of a process that has imported everything is there at once.
        pid = os.fork()
        if pid == 0:
            work(order)
        say("died" if os.WIFSIGNALED(status_of(pid, order["seconds"])) else "ended")


def say(word: str) -> None:
    """Answer whoever gave the order."""
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def work(order: dict[str, Any]) -> None:
    """Do what a worker does of an operation; does not return."""
    from fabric.execution.services import execute
    from fabric.operations.models import Operation
    from fabric.plans.jobs import plan_advance, plan_without_steps
    from tests.fabric.disorder import at_step

    status = 1
    try:
        with at_step(order["operation"], order["step"], lambda: os.kill(os.getpid(), signal.SIGKILL)):
            execute(order["operation"], worker=f"mortal:{os.getpid()}")
        if plan := plan_without_steps(Operation.objects.get(pk=order["operation"])):
            plan_advance(plan)
        status = 0
    finally:
        os._exit(status)


def status_of(pid: int, seconds: float) -> int:
    """Return how a child ended; it is killed when its time is over."""
    end = time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "a worker ended with an error"
            return status
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
            return os.waitpid(pid, 0)[1]
        time.sleep(LOOKS_EVERY)


if __name__ == "__main__":
    main(float(sys.argv[1]))
