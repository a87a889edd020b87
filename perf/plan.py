"""The time to re-plan four full chassis: every device changes its host, every drawer its mode.

Measured for the planner alone, from drawers in memory to ordered steps; and as users see it, from rows of the database
to a stored draft with its preview.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from fabric.bmc.types import DrawerMode
from fabric.inventory.models import Chassis, Drawer, Host, HostPort, Port
from fabric.operations.projected_state import projected_drawers
from fabric.operations.rules import DrawerSnapshot
from fabric.plans.rules import DesiredState, plan_steps
from fabric.plans.services import plan_create, plan_discard
from perf.chassis import create_device
from perf.environment import CannotMeasureError
from perf.figures import PerfFigure

CHASSIS = 4
SLOTS = 8
DEVICES = CHASSIS * 2 * SLOTS
PLANS = 300
DRAFTS = 40
SHORT = {"PLANS": 60, "DRAFTS": 1}
MAX_MS = 50.0
# For alternating drawers: mode and host port (first or second) of each slot, before and after.
CHANGES = (
    (("Advanced", "22221111"), ("StandardTwoHosts", "11112222")),
    (("StandardTwoHosts", "11112222"), ("Advanced", "22221111")),
    (("StandardOneHost", "11111111"), ("Advanced", "22222222")),
    (("Advanced", "11111111"), ("StandardOneHost", "22222222")),
)


def measure(log: Callable[[str], None]) -> list[PerfFigure]:
    """Return the figures of planning."""
    desired = _create_chassis()
    person = User.objects.create_superuser("perf")
    drawers = list(projected_drawers(list(Chassis.objects.values_list("pk", flat=True))).values())
    steps = plan_steps(drawers, desired).steps
    touched = len({step.device for step in steps if step.device is not None})
    modes = sum(step.kind == "mode" for step in steps)
    if (touched, modes) != (DEVICES, CHASSIS * 2):
        raise CannotMeasureError(f"the plan moves {touched} devices and changes {modes} modes.")
    log(f"{DEVICES} devices, {len(steps)} steps: {PLANS} times alone, {DRAFTS} times as a draft")
    planned, compared = _measure_planning(drawers, desired)
    drafted, queries = _measure_drafts(person, desired)
    what = f"{DEVICES} devices of {CHASSIS} chassis, {modes} modes, {len(steps)} steps"
    return [
        PerfFigure(
            what,
            planned * 1000,
            "ms",
            beside="difference without rules",
            beside_value=compared * 1000,
            most=MAX_MS,
        ),
        PerfFigure(f"as a stored draft, {queries} queries", drafted * 1000, "ms", most=MAX_MS),
    ]


def _measure_planning(drawers: list[DrawerSnapshot], desired: DesiredState) -> tuple[float, float]:
    """Return seconds per plan, and per plain diff of present and desired state: medians of alternating rounds."""
    spent: tuple[list[float], list[float]] = ([], [])
    ways: tuple[Callable[[list[DrawerSnapshot], DesiredState], object], ...] = (plan_steps, _differences)
    for _ in range(PLANS):
        for way, kept in zip(ways, spent, strict=True):
            begin = time.perf_counter()
            way(drawers, desired)
            kept.append(time.perf_counter() - begin)
    return statistics.median(spent[0]), statistics.median(spent[1])


def _differences(drawers: list[DrawerSnapshot], desired: DesiredState) -> list[tuple[str, int, int | None]]:
    """Return detach, mode and attach steps for the differences: a plan without rules and with only this order."""
    moved = [
        (device.id, desired.attachments[device.id])
        for drawer in drawers
        for device in drawer.devices
        if desired.attachments.get(device.id, device.attached) != device.attached
    ]
    out: list[tuple[str, int, int | None]] = [("detach", device, None) for device, _ in moved]
    modes = [("mode", drawer.id, None) for drawer in drawers if drawer.id in desired.modes and drawer.id is not None]
    return out + modes + [("attach", device, target) for device, target in moved]


def _measure_drafts(person: User, desired: DesiredState) -> tuple[float, int]:
    """Return the median seconds to create a draft, and the number of its queries."""
    spent = []
    for _ in range(DRAFTS):
        begin = time.perf_counter()
        plan = plan_create(person=person, desired=desired, title="", origin="api")
        spent.append(time.perf_counter() - begin)
        plan_discard(person=person, plan=plan)
    with CaptureQueriesContext(connection) as queries:
        plan_create(person=person, desired=desired, title="", origin="api")
    return statistics.median(spent), len(queries)


def _create_chassis() -> DesiredState:
    """Create the rows of the chassis, and return their desired state."""
    hosts = Host.objects.bulk_create([Host(identity=f"host-{number}", name=f"host-{number}") for number in range(1, 5)])
    attachments: dict[int, int | None] = {}
    modes: dict[int, DrawerMode] = {}
    for number in range(CHASSIS):
        url = f"https://127.0.0.1:{number + 1}"
        chassis = Chassis.objects.create(name=f"falcon-{number + 1}", url=url, dialect="zone_patch", enabled=False)
        for position in (1, 2):
            before, after = CHANGES[(2 * number + position - 1) % len(CHANGES)]
            drawer = Drawer.objects.create(
                chassis=chassis, uri=f"/drawer{position}", name=f"Drawer {position}", number=position, mode=before[0]
            )
            modes[drawer.pk] = DrawerMode(after[0])
            ports = [
                HostPort.objects.create(
                    chassis=chassis,
                    drawer=drawer,
                    uri=f"/zone{label}",
                    label=f"H{label}",
                    number=label,
                    host=hosts[label - 1],
                    port=Port.objects.create(chassis=chassis, uri=f"/port{label}", name=f"H{label}", width=16),
                )
                for label in (2 * position - 1, 2 * position)
            ]
            for index in range(SLOTS):
                host_port = ports[int(before[1][index]) - 1]
                device = create_device(chassis, drawer, index + 1, f"/drawer{position}slot{index + 1}", host_port)
                attachments[device.pk] = ports[int(after[1][index]) - 1].pk
    return DesiredState(attachments=attachments, modes=modes)
