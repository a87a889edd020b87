"""A site with a chassis, in the state from which each course begins, and the workers that die in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from accounts.models import Tenant, User
from benchmarks.runs.models import Run
from core.failpoints import set_failpoint_handler
from fabric.inventory.models import Chassis
from fabric.leases.services import lease_give
from falconweb.testing import SimulatorProcess
from telemetry.events.models import Event
from telemetry.exports.options import ExportOptions, ExportSpec
from telemetry.exports.services import export_add, run_request
from tests.benchmarks.runs.conftest import running_lab
from tests.benchmarks.runs.lab import RunningLab, until
from tests.fabric.conftest import administrator, chassis, falcon_chassis, simulator
from tests.fabric.disorder import database_url
from tests.fabric.leases.leasing import pass_time
from tests.failpoints import courses
from tests.failpoints.workers import Workers
from tests.telemetry.delivery.sinks import HttpSink
from tests.telemetry.exports.conftest import events_make

__all__ = ["administrator", "chassis", "falcon_chassis", "running_lab", "simulator"]
EVENTS = 700  # two batches to a receiver
DAY = timedelta(days=1)


@dataclass
class World:
    """What a course begins with: a chassis, a person who asks, and a receiver of exports."""

    chassis: Chassis
    simulator: SimulatorProcess
    person: User
    receiver: HttpSink
    exports: Path
    lab: RunningLab | None = None

    def prepare(self, course: str) -> None:
        """Make what a course needs besides."""
        match course:
            case "roll back":
                self.simulator.fault("server_error", method="PATCH", path="Zones/hostport1_H3", status=400)
            case "lease":
                gpu = courses.device_at(1)
                for name, begin in (("First", None), ("Second", timezone.now() + DAY)):
                    tenant = Tenant.objects.create(name=name)
                    end = timezone.now() + DAY * (1 if begin is None else 9)
                    lease = lease_give(person=self.person, tenant=tenant, things=[gpu], starts_at=begin, ends_at=end)
                    pass_time(lease, days=2)
            case "export":
                Event.objects.all().delete()  # that the chassis was added
                events_make(EVENTS)
                options = ExportOptions(keep_files=1)
                columns = ("id", "text")
                spec = ExportSpec("file", format="csv", target="download", columns=columns, options=options)
                run_request(by=self.person, definition=export_add(by=self.person, spec=spec))
                courses.settle()
                options = ExportOptions(address=self.receiver.url)
                spec = ExportSpec("receiver", format="jsonl", target="webhook", columns=columns, options=options)
                export_add(by=self.person, spec=spec)
            case "stray":
                courses.run_benchmark({"steps": 1_000_000})
                until(Run.objects.get(), lambda run: run.steps_done > 0, doing=courses.turn)
                Run.objects.all().delete()


@pytest.fixture
def site(
    request: pytest.FixtureRequest, transactional_db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], World]]:
    """A function that returns the world in which a course begins; with an agent where it needs one."""
    courses.shorten_waits(tmp_path / "exports", monkeypatch.setattr)
    with HttpSink() as receiver:

        def begin(course: str) -> World:
            lab: RunningLab | None = request.getfixturevalue("running_lab") if course in {"run", "stray"} else None
            process = request.getfixturevalue("simulated_falcon" if lab else "simulator")
            row = lab.chassis if lab else request.getfixturevalue("chassis")
            person = request.getfixturevalue("administrator")
            world = World(row, process, person, receiver, tmp_path / "exports", lab)
            world.prepare(course)
            return world

        yield begin


@pytest.fixture(scope="module")
def workers(django_db_setup: None, django_db_blocker: object) -> Iterator[Workers]:
    """The workers of a file."""
    workers = Workers(database_url())
    yield workers
    workers.close()


@pytest.fixture(autouse=True)
def no_failpoint_left() -> Iterator[None]:
    """Nothing happens at failpoints after a test."""
    yield
    set_failpoint_handler(None)
