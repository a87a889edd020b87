"""Logs of a BMC as a file: its diagnostic data, else its log entries; bounded, and deleted with their files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from django.test import Client

from accounts.audit.models import AuditEntry
from accounts.models import User
from core.errors import Conflict, Forbidden
from fabric.execution.services import execute
from fabric.inventory.models import Chassis, ManagedPart
from fabric.maintenance.files import log_path
from fabric.maintenance.models import CollectedLog
from fabric.maintenance.services import logs_request
from fabric.operations.models import Operation
from falconweb.testing import SimulatorProcess
from tests.fabric.conftest import put_back

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep files in a folder of the test."""
    monkeypatch.setattr("fabric.maintenance.files._folder", lambda: tmp_path)
    return tmp_path


@pytest.fixture
def without_dump(transactional_db: None) -> Iterator[SimulatorProcess]:
    """A BMC that collects no diagnostic data."""
    with SimulatorProcess("--no-dump", chassis="falcon-1") as process:
        put_back(process)
        yield process


def bmc() -> ManagedPart:
    found: ManagedPart = ManagedPart.objects.select_related("chassis").get(kind="bmc")
    return found


def collect(person: User) -> Operation:
    operation = logs_request(person=person, part=bmc())
    execute(str(operation.pk), worker="test")
    operation.refresh_from_db()
    return operation


@pytest.mark.usefixtures("simulator")
def test_diagnostic_data_are_collected_downloaded_and_deleted(
    chassis: Chassis, administrator: User, member: User, folder: Path
) -> None:
    operation = collect(administrator)
    assert (operation.state, operation.error) == ("done", "")
    log = CollectedLog.objects.get(operation=operation)
    assert log.name.startswith("falcon-1-Falcon-BMC-")
    content = log_path(log.pk).read_bytes()
    assert content.startswith(b"DUMP of falcon-1\n")
    assert log.size == len(content)
    client = Client()
    client.force_login(administrator)
    answer = client.get(f"/maintenance/logs/{log.pk}/")
    assert b"".join(answer) == content
    assert answer.headers["Content-Disposition"] == f'attachment; filename="{log.name}"'
    assert b"".join(client.get(f"/api/v1/collected-logs/{log.pk}/file/")) == content
    assert AuditEntry.objects.filter(action="log.download", outcome="done").count() == 2
    assert log.name in client.get(f"/maintenance/{bmc().pk}/").content.decode()
    again = collect(administrator)
    assert again.state == "done"
    for one in CollectedLog.objects.all():
        client.post(f"/maintenance/logs/{one.pk}/removal/")
    assert not [file for file in folder.rglob("*") if file.is_file()]
    with pytest.raises(Forbidden):
        logs_request(person=member, part=bmc())


def test_without_them_the_entries_of_the_log_are_the_file(without_dump: SimulatorProcess, administrator: User) -> None:
    without_dump.fault("fan_failure", target="1")
    operation = collect(administrator)
    assert (operation.state, operation.error) == ("done", "")
    assert operation.steps[1]["state"] == "skipped"
    lines = log_path(CollectedLog.objects.get().pk).read_bytes().splitlines()
    assert any("Fan" in msgspec.json.decode(line)["Message"] for line in lines)


def test_a_file_that_is_too_large_is_given_up_and_leaves_nothing(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fabric.execution.log_steps.MAX_LOG_BYTES", 10)
    operation = collect(administrator)
    assert operation.state == "failed"
    assert "a file larger than 0 MB" in operation.error
    assert "127.0.0.1" not in operation.error
    assert not [file for file in folder.rglob("*") if file.is_file()]
    assert not CollectedLog.objects.exists()


def test_one_at_a_time_and_of_a_bmc_alone(chassis: Chassis, administrator: User) -> None:
    logs_request(person=administrator, part=bmc())
    with pytest.raises(Conflict, match="has not ended"):
        logs_request(person=administrator, part=bmc())
    drawer = ManagedPart.objects.select_related("chassis", "device__slot").filter(kind="drawer")[0]
    with pytest.raises(Conflict, match="no BMC"):
        logs_request(person=administrator, part=drawer)
