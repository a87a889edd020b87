"""FalconWeb's own time in an attach: from the request to its end, without the BMC's response times.

In most attaches, the links of the chassis train within milliseconds. In some, they take 1 to 3 s: the delay until
FalconWeb's polling notices the link is its own time too.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

from accounts.models import User
from fabric.inventory.models import Chassis, Device, HostPort
from fabric.operations.models import Operation
from fabric.operations.services import operation_request
from falconweb.testing import SimulatorProcess
from perf.chassis import create_mirrored_chassis
from perf.environment import CannotMeasureError
from perf.figures import PerfFigure
from perf.servers import measured_worker, next_task

SPEED = 1000  # simulated seconds per second: links train in 1 to 3 ms
ATTACHES = 16
TRAININGS = 10  # attaches that wait for a link
LOOK_SECONDS = 0.003  # a link that is looked at each 10 ms is noticed after 5
UP_SECONDS = 60.0
TASK_SECONDS = 60.0
MAX_OWN_MS = 50.0


def measure(log: Callable[[str], None]) -> list[PerfFigure]:
    """Return the figures of attaching."""
    with SimulatorProcess("--speed", str(SPEED), own=True) as simulator, measured_worker():
        chassis = create_mirrored_chassis(simulator, "perf", simulator.address)
        person = User.objects.create_superuser("perf")
        device, port = _attached_device(chassis)
        log(f"{ATTACHES} attaches, then {TRAININGS} that wait for the link")
        found = []
        for _ in range(ATTACHES + 1):
            _run_operation(person, device, None)
            found.append(_run_operation(person, device, port))
        simulator.set_speed(1)
        late = []
        for _ in range(TRAININGS):
            _run_operation(person, device, None)
            late.append(_link_notice_delay(person, device, port, simulator))
    # The first attach opens connections and fills caches.
    return _figures(found[1:], late)


def _attached_device(chassis: Chassis) -> tuple[Device, HostPort]:
    """Return a device and the host port that it is attached to."""
    device = Device.objects.filter(chassis=chassis, host_port__isnull=False).order_by("pk").first()
    if device is None or device.host_port is None:
        raise CannotMeasureError("the simulated chassis has no attached device.")
    return device, device.host_port


def _link_notice_delay(person: User, device: Device, port: HostPort, simulator: SimulatorProcess) -> float:
    """Attach, and return the seconds from the link coming up to FalconWeb's detection."""
    slot = device.endpoint_uri.rpartition("/")[2]
    with ThreadPoolExecutor(1) as pool:
        up = pool.submit(_wait_until_up, simulator, slot)
        operation = _run_operation(person, device, port)["operation"]
    step = next(step for step in operation.steps if step["name"] == "Wait for the link")
    known = datetime.fromisoformat(step["finished_at"]).timestamp()
    return max(0.0, known - up.result())


def _wait_until_up(simulator: SimulatorProcess, slot: str) -> float:
    """Return the Unix time at which the link of a slot came up, accurate to LOOK_SECONDS and a response time."""
    deadline = time.time() + UP_SECONDS
    while simulator.state()["links"][slot]["status"] != "LinkUp":
        if time.time() > deadline:
            raise CannotMeasureError(f"the link of {slot} did not come up.")
        time.sleep(LOOK_SECONDS)
    return time.time()


def _run_operation(person: User, device: Device, target: HostPort | None) -> dict[str, Any]:
    """Request an attach as a user does, wait for its end, and return the worker's times."""
    device = Device.objects.get(pk=device.pk)
    requested_at = time.time()
    operation = operation_request(person=person, device=device, target=target)
    task = next_task(TASK_SECONDS)
    operation = Operation.objects.get(pk=operation.pk)
    if operation.state != Operation.State.DONE:
        raise CannotMeasureError(f"'{operation.summary}' did not succeed: {operation.state} {operation.error}")
    if not task["waits"]:
        raise CannotMeasureError("the worker's loop does not report its waiting times.")
    return {**task, "requested": requested_at, "operation": operation}


def _figures(attaches: list[dict[str, Any]], late: list[float]) -> list[PerfFigure]:
    def middle(take: Callable[[dict[str, Any]], float]) -> float:
        return statistics.median(take(one) for one in attaches)

    requests = round(middle(lambda one: float(one["requests"])))
    own = middle(lambda one: one["ended"] - one["requested"] - one["for_bmc"])
    noticed = statistics.median(late)
    parts = [
        ("own time, from request to end", own + noticed, MAX_OWN_MS),
        ("of it until the worker begins", middle(lambda one: one["began"] - one["requested"]), None),
        ("of it in the worker", middle(lambda one: one["ended"] - one["began"] - one["for_bmc"]), None),
        ("of it until a link that is up is noticed", noticed, None),
        ("CPU of the worker", middle(lambda one: one["cpu"]), None),
        (f"waiting for the BMC, {requests} requests", middle(lambda one: one["for_bmc"]), None),
    ]
    return [PerfFigure(figure, value * 1000, "ms", most=most) for figure, value, most in parts]
