"""How a chassis attaches devices is found by one write of what is nobody's, which is reverted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.audit.models import AuditEntry
from accounts.models import Tenant, User
from core.errors import Conflict, FalconWebError, Forbidden, Invalid, NotFound
from core.threads import run_in_thread
from fabric.bmc import settling
from fabric.bmc.client import BmcClient
from fabric.bmc.composition import detach, read_zone
from fabric.bmc.types import Dialect
from fabric.execution import claims, membership, steps, trial_steps
from fabric.execution.services import execute
from fabric.inventory.models import Chassis, Device, HostPort
from fabric.operations.models import Operation
from fabric.operations.services import operation_request
from fabric.operations.trials import DialectTrial, proposed_trial, trial_obstacle, trial_request
from falconweb.testing.processes import SimulatorProcess
from tests.fabric.conftest import FALCON, put_back


@pytest.fixture
def silent(transactional_db: None) -> Iterator[SimulatorProcess]:
    """falcon-1 whose zones take PATCH, and that names no methods."""
    with SimulatorProcess("--dialect", "patch", "--allow", "none", chassis=FALCON) as process:
        process.set_speed(20)
        yield process


def trial_of(chassis: Chassis) -> DialectTrial:
    found = proposed_trial(chassis)
    assert found is not None
    return found


def requested(person: User, chassis: Chassis, **other: Any) -> Operation:
    found = trial_of(chassis)
    values: dict[str, Any] = {"dialect": found.dialect, "device": found.device, "port": found.port, **other}
    return trial_request(person=person, chassis=chassis, **values)


def run(operation: Operation) -> Operation:
    execute(str(operation.pk), worker="test")
    return Operation.objects.get(pk=operation.pk)


def test_a_trial_is_told_before_done_reverted_and_proven(silent: SimulatorProcess, administrator: User) -> None:
    chassis = put_back(silent)
    assert (chassis.dialect, trial_obstacle(chassis)) == ("none", "")
    before = silent.state()["zones"]
    found = trial_of(chassis)
    assert found.device.host_port is None
    assert not found.port.devices.exists()
    browser = Client()
    browser.force_login(administrator)
    page = browser.get(reverse("fabric:chassis_dialect", args=[chassis.pk])).content.decode()
    for told in (found.device.name, found.port.uri, "is reverted", "All other zones and links"):
        assert told in page
    values = {"dialect": "zone_patch", "device": found.device.pk, "port": found.port.pk}
    answer = browser.post(reverse("fabric:dialect_trial", args=[chassis.pk]), values)
    operation = Operation.objects.get()
    assert answer["Location"] == reverse("fabric:operation", args=[operation.pk])
    ended = run(operation)
    assert (ended.state, ended.error) == ("done", "")
    assert [step["state"] for step in ended.steps] == ["done"] * 4
    assert ended.proof.untouched
    assert silent.state()["zones"] == before
    assert silent.state()["requests"]["PATCH"] == 2
    chassis.refresh_from_db()
    assert (chassis.dialect, chassis.dialect_choice) == ("zone_patch", "zone_patch")
    assert chassis.dialect_reason.startswith("Proven by a write on ")
    assert "nothing else changed" in browser.get(reverse("fabric:chassis", args=[chassis.pk])).content.decode()
    done = AuditEntry.objects.filter(action__in=["chassis.trial", "chassis.dialect", "operation.end"]).order_by("pk")
    assert [(one.action, one.outcome) for one in done] == [
        ("chassis.trial", "done"), ("chassis.dialect", "done"), ("operation.end", "done"),
    ]  # fmt: skip
    assert chassis.settling == "Changes show at once, as seen of late."
    assert "chosen" in trial_obstacle(chassis)
    # From then on it is composed.
    attached = run(operation_request(person=administrator, device=found.device, target=found.port))
    assert attached.state == "done"


def test_a_way_that_a_chassis_does_not_have_stays_unused(transactional_db: None, administrator: User) -> None:
    with SimulatorProcess("--dialect", "none", "--allow", "none", chassis=FALCON) as process:
        chassis, before = put_back(process), process.state()["zones"]
        ended = run(requested(administrator, chassis))
        assert ended.state == "failed"
        assert "not allowed" in ended.error
        assert process.state()["zones"] == before
    chassis.refresh_from_db()
    assert (chassis.dialect, chassis.dialect_choice) == ("none", "")


def test_a_write_that_is_not_shown_in_time_is_reverted_when_it_is(
    silent: SimulatorProcess, administrator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "FIRST_SECONDS", 0.5)
    chassis, before = put_back(silent), silent.state()["zones"]
    silent.fault("half_applied_bind", answer="partial")
    ended = run(requested(administrator, chassis))
    assert ended.state == "failed"
    assert silent.state()["zones"] == before
    chassis.refresh_from_db()
    assert chassis.dialect == "none"


def test_a_write_whose_worker_died_is_reverted_by_the_next(
    silent: SimulatorProcess, administrator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    chassis, before = put_back(silent), silent.state()["zones"]
    operation = requested(administrator, chassis)

    async def die(*_: object) -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as dying:
        dying.setattr(steps, "revert_trial", die)
        with pytest.raises(asyncio.CancelledError):
            execute(str(operation.pk), worker="first")
    assert silent.state()["zones"] != before
    Operation.objects.filter(pk=operation.pk).update(lease_until=None, worker="")
    ended = run(operation)
    assert (ended.state, ended.attempts) == ("done", 2)
    assert silent.state()["zones"] == before


def test_a_trial_is_cancelled_in_the_middle_and_reverted(
    silent: SimulatorProcess, administrator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    chassis, before = put_back(silent), silent.state()["zones"]
    operation = requested(administrator, chassis)
    written = membership.set_membership

    async def cancelled_meanwhile(*arguments: Any, **more: Any) -> None:
        await written(*arguments, **more)
        cancelled = Operation.objects.filter(pk=operation.pk)
        await run_in_thread(cancelled.update, cancel_requested_at=timezone.now())

    monkeypatch.setattr(claims, "CANCEL_CHECK_SECONDS", 0.0)
    monkeypatch.setattr(steps, "set_membership", cancelled_meanwhile)
    ended = run(operation)
    assert ended.state == "cancelled"
    assert silent.state()["zones"] == before
    chassis.refresh_from_db()
    assert chassis.dialect == "none"


def test_what_else_changed_meanwhile_leaves_the_way_unproven(
    silent: SimulatorProcess, administrator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    chassis = put_back(silent)
    other = Device.objects.filter(host_port__isnull=False).select_related("host_port").first()
    assert other is not None
    assert other.host_port is not None
    address, uri = chassis.address(), other.host_port.uri

    async def somebody_else(claim: Any, bmc: BmcClient) -> None:
        async with BmcClient(address) as theirs:
            zone = await read_zone(theirs, uri)
            await detach(theirs, Dialect.ZONE_PATCH, zone=zone, endpoint_uri=other.endpoint_uri)
        await trial_steps.revert_trial(claim, bmc)

    monkeypatch.setattr(steps, "revert_trial", somebody_else)
    ended = run(requested(administrator, chassis))
    assert ended.state == "failed"
    assert "more than that changed" in ended.error
    chassis.refresh_from_db()
    assert chassis.dialect == "none"


def test_only_what_is_nobodys_and_unused_is_written(
    silent: SimulatorProcess, administrator: User, tenant: Tenant
) -> None:
    chassis = put_back(silent)
    found = trial_of(chassis)
    used = Device.objects.filter(host_port__isnull=False).first()
    elsewhere = HostPort.objects.exclude(drawer=found.port.drawer).first()
    with pytest.raises(Forbidden):
        requested(User.objects.create(username="eve"), chassis)
    with pytest.raises(Conflict, match="is not free"):
        requested(administrator, chassis, device=used)
    with pytest.raises(FalconWebError):
        requested(administrator, chassis, port=elsewhere)
    with pytest.raises(Invalid, match="cannot be tried"):
        requested(administrator, chassis, dialect="zone_actions")
    stranger = Chassis.objects.create(name="other", url="https://127.0.0.1:2")
    with pytest.raises(NotFound):
        requested(administrator, chassis, device=Device.objects.create(chassis=stranger, uri="/d", name="d"))
    mine = Device.objects.filter(host_port__drawer=found.port.drawer).select_related("host_port").first()
    assert mine is not None
    Device.objects.filter(pk=mine.pk).update(tenant=tenant)
    with pytest.raises(Conflict, match="is not free"):
        requested(administrator, chassis, port=mine.host_port)
    Device.objects.filter(pk=found.device.pk).update(tenant=tenant)
    assert proposed_trial(chassis) is None
    with pytest.raises(Conflict, match="is not free"):
        trial_request(person=administrator, chassis=chassis, dialect="zone_patch", device=found.device, port=found.port)
    assert not Operation.objects.exists()


def test_what_is_granted_after_the_request_is_not_written(
    silent: SimulatorProcess, administrator: User, tenant: Tenant
) -> None:
    chassis, before = put_back(silent), silent.state()["requests"].get("PATCH", 0)
    operation = requested(administrator, chassis)
    Device.objects.filter(pk=operation.device_id or 0).update(tenant=tenant)
    ended = run(operation)
    assert ended.state == "failed"
    assert ended.error.endswith("Nothing was changed.")
    assert silent.state()["requests"].get("PATCH", 0) == before


def test_nothing_is_tried_where_the_chassis_shows_its_way(chassis: Chassis, administrator: User) -> None:
    with pytest.raises(Conflict, match="nothing to try"):
        requested(administrator, chassis)
    browser = Client()
    browser.force_login(administrator)
    assert (
        "Find it by one write" not in browser.get(reverse("fabric:chassis_dialect", args=[chassis.pk])).content.decode()
    )


def test_another_way_is_proposed_where_the_first_was_refused(transactional_db: None, administrator: User) -> None:
    with SimulatorProcess("--dialect", "connections", "--allow", "none", chassis=FALCON) as process:
        process.set_speed(20)
        chassis, before = put_back(process), process.state()["zones"]
        assert chassis.dialect == "none"
        found = trial_of(chassis)
        assert found.dialect is Dialect.CONNECTIONS
        ended = run(requested(administrator, chassis))
        assert (ended.state, ended.error) == ("done", "")
        assert process.state()["zones"] == before
    chassis.refresh_from_db()
    assert (chassis.dialect, chassis.dialect_choice) == ("connections", "connections")
