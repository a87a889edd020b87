"""Courses of work that a fault meets: what people ask, what workers and the clock make of it, and how it must end.

They run in the test's process and in copies of `tests.failpoints.workers`, which are there to die.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.utils import timezone

from accounts.audit.models import AuditEntry
from accounts.models import User
from benchmarks.runs.execution import orphaned_runs_end
from benchmarks.runs.models import Hold, Run
from benchmarks.runs.scheduler import run_advance, runs_schedule
from core import claims as core_claims
from core.claims import ClaimWatcher
from core.enqueue import worker_name
from fabric.agents.models import HostAgent
from fabric.agents.selectors import latest_report
from fabric.bmc.types import DrawerMode
from fabric.execution import claims, link_steps, services
from fabric.inventory.models import Chassis, Device, Drawer, Host, HostPort
from fabric.leases.lifecycle import leases_process
from fabric.leases.models import Lease, LeaseItem, Tenure
from fabric.operations.models import Operation, Plan
from fabric.operations.rules import PortSetting
from fabric.operations.services import operation_cancel, operation_request
from fabric.plans.jobs import idle_plans, plan_advance, plan_cancel
from fabric.plans.rules import DesiredState
from fabric.plans.services import plan_apply, plan_create
from fabric.tasks import run_operation
from telemetry.exports import execution, files
from telemetry.exports import services as export_services
from telemetry.exports.models import ExportDefinition, ExportRun, ExportTarget
from telemetry.exports.services import run_request
from tests.benchmarks.runs.lab import Lab
from tests.waiting import Pauses

SECONDS: Final = 240.0  # for a course; it takes two or three, but for a machine that has no time
CLAIM_SECONDS: Final = 0.1
OPEN_LEASES: Final = (Lease.State.APPROVED, Lease.State.ENDING)


def shorten_waits(folder: Path, change: Callable[[Any, str, Any], None] = setattr) -> None:
    """Wait for what does not come for a moment only, and keep exports in this folder."""
    change(core_claims, "WATCHED", [replace(one, seconds=CLAIM_SECONDS) for one in core_claims.WATCHED])
    change(services, "PICKUP_SECONDS", 0)
    change(claims, "CLAIM_RENEW_SECONDS", 0.1)
    change(link_steps, "RETRAIN_SECONDS", 0.5)
    change(execution, "MIN_RETRY_PAUSE", 0.02)
    change(execution, "MAX_RETRY_PAUSE", 0.1)
    change(export_services, "CHECK_SECONDS", 0.0)
    change(settings, "EXPORTS_FOLDER", folder)


def turn() -> None:
    """Do once what workers and the clock do; an error is raised, as it ends a task."""
    for operation in Operation.objects.open().in_turn():
        run_operation(str(operation.pk))
    for plan in idle_plans():
        plan_advance(plan)
    leases_process()
    for export in execution.exports_begin_due():
        while execution.run_continue(export, worker=worker_name()):
            pass
    for run in runs_schedule():
        run_advance(run, worker=worker_name())
    orphaned_runs_end()


def is_settled() -> bool:
    """Return whether workers and the clock have nothing left to do."""
    now = timezone.now()
    running = (latest_report(agent) for agent in HostAgent.objects.all())
    return not (
        Operation.objects.open().exists()
        or Plan.objects.active().exists()
        or Lease.objects.filter(state__in=OPEN_LEASES).exists()
        or Lease.objects.filter(state=Lease.State.ACTIVE, ends_at__lte=now).exists()
        or LeaseItem.objects.filter(lease__state=Lease.State.ACTIVE, taken_at=None, released_at=None).exists()
        or ExportRun.objects.open().exists()
        or Run.objects.open().exists()
        or any(report.trainer.running for report in running if report is not None)
    )


def settle() -> None:
    """Take turns until nothing is left to do. Nobody works in between: claims that are left are of the dead."""
    end, pauses, watcher = time.monotonic() + SECONDS, Pauses(), ClaimWatcher()
    while not is_settled():
        watcher.look()
        # The next try of what has failed waits for minutes.
        Lease.objects.exclude(tried_at=None).update(tried_at=timezone.now() - timedelta(hours=1))
        turn()
        assert time.monotonic() < end, f"it is stuck: {what_is_open()}"
        pauses.take(what_is_open())
    execution.exports_delete_expired()  # as every hour


def what_is_open() -> list[str]:
    """Return what has not ended, for a failure."""
    rows = [*Operation.objects.open(), *Plan.objects.active(), *Lease.objects.filter(state__in=OPEN_LEASES)]
    rows += [*ExportRun.objects.open(), *Run.objects.open()]
    return [f"{type(row).__name__} {row.pk} {row.state}" for row in rows]


def ask_operation(slot: int, label: str | None, key: str) -> Operation:
    """Ask as a client does that repeats its request until there is an answer."""
    device = Device.objects.get(slot__drawer__number=1, slot__number=slot)
    target = HostPort.objects.get(label=label) if label else None
    return operation_request(person=User.objects.get(), device=device, target=target, idempotency_key=key)


def ask_plan(desired: DesiredState, *, on_failure: str = "stop") -> Plan:
    """Make a plan and apply it, as a client does that repeats each request until there is an answer."""
    person = User.objects.get()
    plan = plan_create(person=person, desired=desired, title="Plan", origin="api", idempotency_key="plan")
    return plan_apply(person=person, plan=plan, on_failure=on_failure) if plan.state == Plan.State.DRAFT else plan


def device_at(slot: int, drawer: int = 1) -> Device:
    return Device.objects.get(slot__drawer__number=drawer, slot__number=slot)


def move() -> None:
    ask_operation(1, "H3", "move")


def cancel() -> None:
    operation = ask_operation(1, "H3", "move")
    if operation.state == Operation.State.REQUESTED:
        operation_cancel(person=User.objects.get(), operation=operation)


def configure() -> None:
    drawer = Drawer.objects.get(number=2)
    slot = device_at(1, drawer=2).slot
    assert slot is not None
    assert slot.port_id is not None
    settings = {slot.port_id: PortSetting(configured_width=8)}
    ask_plan(DesiredState(modes={drawer.pk: DrawerMode.ADVANCED}, settings=settings))


def roll_back() -> None:
    """A plan whose second device cannot be attached (`prepare` sees to that), which is rolled back."""
    wanted: dict[int, int | None] = {device_at(1).pk: None, device_at(2).pk: HostPort.objects.get(label="H3").pk}
    ask_plan(DesiredState(attachments=wanted), on_failure="roll_back")


def cancel_plan() -> None:
    plan = ask_plan(DesiredState(attachments={device_at(1).pk: None}))
    if plan.state == Plan.State.RUNNING:
        plan_cancel(person=User.objects.get(), plan=plan, roll_back=True)


def export() -> None:
    """Let each definition be exported once."""
    person = User.objects.get()
    for definition in ExportDefinition.objects.all():
        # The first file was there before: it goes when the second one is whole.
        if definition.runs.count() < (2 if definition.target == ExportTarget.DOWNLOAD else 1):
            run_request(by=person, definition=definition)


def run_benchmark(given: Mapping[str, int]) -> None:
    """Ask for a run on node-a with a GPU of node-b."""
    chassis, person = Chassis.objects.get(), User.objects.get()
    if not Run.objects.exists():
        lab = Lab(chassis, None, person, Host.objects.get(name="node-a"))  # type: ignore[arg-type]  # asks only
        lab.ask(lab.place(5), given=given)


def nothing() -> None:
    """Leases are due by the clock."""


ASKS: Final[Mapping[str, Callable[[], None]]] = {
    "move": move,
    "cancel": cancel,
    "configure": configure,
    "roll back": roll_back,
    "cancel plan": cancel_plan,
    "lease": nothing,
    "export": export,
    "run": partial(run_benchmark, {}),
    "stray": nothing,
}
# The course that reaches each failpoint, by the beginning of its name; the first that fits counts.
COURSE_OF: Final = {
    "operation.cancelled.": "cancel",
    "operation.host.": "run",
    "operation.": "move",
    "bmc.mode.": "configure",
    "bmc.port.": "configure",
    "bmc.": "move",
    "agent.": "run",
    "plan.cancelled.": "cancel plan",
    "plan.": "roll back",
    "lease.": "lease",
    "export.": "export",
    "run.orphan.": "stray",
    "run.": "run",
}
# How often a course without faults reaches a failpoint, where that is more than once and always the same.
TIMES: Final[Mapping[str, int]] = {
    "operation.step.begin": 5, "operation.step.begun": 5, "operation.step.done": 5,
    "operation.host.claimed": 2, "operation.host.released": 2,
}  # fmt: skip


def course_of(name: str) -> str:
    """Return the course that reaches the failpoint with which this begins."""
    return next(course for prefix, course in COURSE_OF.items() if name.startswith(prefix))


def zone_changes(events: list[dict[str, Any]]) -> dict[str, int]:
    """Return how often the BMC has changed each zone, as its own log says."""
    changed = (one["OriginOfCondition"]["@odata.id"] for one in events if one["MessageId"].endswith("ZoneModified"))
    return dict(Counter(uri.rpartition("_")[2] for uri in changed))


def check_rows() -> None:
    """Check that nothing is left of anybody's work: no claim, no half of a file, no second entry of an end."""
    assert is_settled(), what_is_open()
    assert not Operation.objects.exclude(lease_until=None).exists()
    assert not HostAgent.objects.exclude(turn_of=None).exists()
    assert not ExportRun.objects.exclude(lease_until=None).exists()
    assert not Run.objects.exclude(lease_until=None).exists()
    assert not Hold.objects.exists()
    ended = Operation.objects.exclude(finished_at=None).exclude(started_at=None)
    ends = Counter(AuditEntry.objects.filter(action="operation.end").values_list("target_id", flat=True))
    assert ends == Counter(str(pk) for pk in ended.values_list("pk", flat=True)), "each end is in the audit log once"
    assert all(step["state"] not in {"running", "waiting"} for one in ended for step in one.steps)
    for run in ExportRun.objects.filter(state=ExportRun.State.DONE, file_removed_at=None).exclude(file=""):
        path = files.run_file(run)
        assert path.stat().st_size == run.bytes
        assert not path.with_name(path.name + files.PART_SUFFIX).exists()
    for device in Device.objects.all():
        assert Tenure.objects.filter(device=device, ended_at=None).count() == int(device.tenant_id is not None)


# What is attached where when a course begins.
AT_FIRST: Final = {
    **{f"drawer1slot{slot}": "H1" if slot < 5 else "H2" for slot in range(1, 7)},
    **{f"drawer2slot{slot}": "H4" for slot in range(1, 6)},
}


def attached() -> dict[str, str]:
    """Return what is attached where, as the rows say."""
    rows = Device.objects.exclude(host_port=None).values_list("endpoint_uri", "host_port__label")
    return {uri.rpartition("/")[2]: str(label) for uri, label in rows}


def in_zones(zones: Mapping[str, list[str]]) -> dict[str, str]:
    """Return what the BMC itself says is attached where, in the words of `attached`."""
    return {member: zone.rpartition("_")[2] for zone, members in zones.items() for member in members}


def outcome() -> dict[str, Any]:
    """Return how everything has ended, by the rows; devices that are where they were are left out."""
    now = attached()
    return {
        "moved": {name: now.get(name) for name in AT_FIRST if now.get(name) != AT_FIRST[name]},
        "operations": dict(Counter(Operation.objects.values_list("state", flat=True))),
        "plans": sorted(Plan.objects.values_list("state", flat=True)),
        "leases": list(Lease.objects.order_by("pk").values_list("state", flat=True)),
        "holders": list(Device.objects.exclude(tenant=None).values_list("tenant__name", flat=True)),
        "exports": sorted(ExportRun.objects.values_list("name", "state", "counted")),
        "runs": list(Run.objects.values_list("state", "steps_done")),
    }
