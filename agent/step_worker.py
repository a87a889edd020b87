"""`python -m agent.step_worker`: executes single steps for the agent, a line of JSON each; may be killed anytime.

All access to hardware is in these processes, so that a read that never returns blocks nothing else.
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

from agent import device_usage, host_limits, nvml, sysfs

STEPS: dict[str, Callable[..., Any]] = {
    "addresses": sysfs.addresses,
    "functions": sysfs.functions,
    "present": sysfs.present,
    "device": sysfs.device,
    "driver": sysfs.driver,
    "write": sysfs.write,
    "holders": device_usage.holders,
    "data_place": device_usage.data_place,
    "host_limits": host_limits.host_limits,
    "gpus": nvml.readings,
    "draining": nvml.set_draining,
}


class StepRequest(msgspec.Struct):
    """One step below the root folder of a host, and its arguments."""

    root: str
    step: str
    arguments: dict[str, Any]


class StepReply(msgspec.Struct):
    """The value that a step returned, or its error message."""

    value: msgspec.Raw = msgspec.Raw(b"null")
    error: str = ""


def execute_step(request: StepRequest) -> StepReply:
    """Execute one step."""
    os.environ["AGENT_ROOT"] = request.root  # a simulated NVML finds its host by it
    try:
        return StepReply(msgspec.Raw(msgspec.json.encode(STEPS[request.step](Path(request.root), **request.arguments))))
    except OSError as error:
        return StepReply(error=error.strerror or str(error))
    except Exception as error:  # noqa: BLE001 - any error is reported to the agent
        return StepReply(error=f"{type(error).__name__}: {error}")


def main() -> None:
    """Execute steps until the agent closes the pipe or ends, even during a step."""
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def listen() -> None:
        for line in sys.stdin.buffer:
            lines.put(line)
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    reply = StepReply()  # reports that the process has started
    while True:
        sys.stdout.buffer.write(msgspec.json.encode(reply) + b"\n")
        sys.stdout.buffer.flush()
        reply = execute_step(msgspec.json.decode(lines.get(), type=StepRequest))


if __name__ == "__main__":
    main()
