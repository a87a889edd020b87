"""`python -m agent.step_worker ROOT`: takes single steps for the agent, one line of JSON each; may be killed at any.

Whatever touches hardware happens here and nowhere else, so that a read that never returns holds up nobody else.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from agent import device_usage, nvml, sysfs

STEPS: dict[str, Callable[..., Any]] = {
    "addresses": sysfs.addresses,
    "functions": sysfs.functions,
    "present": sysfs.present,
    "device": sysfs.device,
    "driver": sysfs.driver,
    "write": sysfs.write,
    "holders": device_usage.holders,
    "data_place": device_usage.data_place,
    "gpus": nvml.readings,
    "draining": nvml.set_draining,
}


class StepRequest(msgspec.Struct):
    """One step and its arguments."""

    step: str
    arguments: dict[str, Any]


class StepReply(msgspec.Struct):
    """What a step returned, or in which words it failed."""

    value: msgspec.Raw = msgspec.Raw(b"null")
    error: str = ""


def execute_step(root: Path, asked: StepRequest) -> StepReply:
    """Take one step."""
    try:
        return StepReply(msgspec.Raw(msgspec.json.encode(STEPS[asked.step](root, **asked.arguments))))
    except OSError as error:
        return StepReply(error=error.strerror or str(error))
    except Exception as error:  # noqa: BLE001 - whatever it is, the agent goes on and says so
        return StepReply(error=f"{type(error).__name__}: {error}")


def main() -> None:
    """Take steps until the agent closes the line or is gone, even from the midst of a step."""
    root = Path(sys.argv[1])
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def listen() -> None:
        for line in sys.stdin.buffer:
            lines.put(line)
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    reply = StepReply()  # that it is there
    while True:
        sys.stdout.buffer.write(msgspec.json.encode(reply) + b"\n")
        sys.stdout.buffer.flush()
        reply = execute_step(root, msgspec.json.decode(lines.get(), type=StepRequest))


if __name__ == "__main__":
    main()
