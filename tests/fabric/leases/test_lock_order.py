"""Nobody waits in a circle: each pair of transactions that could is brought to the moment at which it would.

SQLite lets one write at a time, whatever they lock: these run on a PostgreSQL server of their own.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import dj_database_url
import pytest
from django.db import DatabaseError, connection, connections
from django.utils import timezone
from pytest_django.plugin import DjangoDbBlocker

from accounts.audit.triggers import lift
from accounts.models import Tenant, User
from core.errors import Conflict, FalconWebError
from fabric.inventory.models import Chassis, Device, LeasablePart
from fabric.inventory.services import chassis_remove
from fabric.leases.ends import lease_release_parts
from fabric.leases.lifecycle import lease_acquire_pending, lease_end
from fabric.leases.models import Lease, LeaseItem
from fabric.leases.ownership import items_add
from fabric.leases.services import lease_give
from fabric.operations.models import Operation
from fabric.operations.services import operation_request
from fabric.plans.drafts import draft_add
from fabric.plans.refresh import mirror_attachments
from fabric.plans.rules import DesiredState
from fabric.plans.services import plan_apply
from falconweb.testing import device_in, host_port_of, mirror
from tests.fabric.leases.leasing import fresh, pass_time
from tests.postgres import PostgresServer

pytestmark = pytest.mark.django_db(transaction=True)
LOCKS_CHASSIS = r'FROM "fabric_chassis" .*FOR NO KEY UPDATE'
ASKS = r'INSERT INTO "fabric_operation"'
SOON = 30.0


@pytest.fixture(scope="module", autouse=True)
def postgres(
    postgres_server: PostgresServer, django_db_setup: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[None]:
    """Let the site of this module's tests have a PostgreSQL server for its database."""
    settings, before = connections.settings["default"], connections["default"]
    with django_db_blocker.unblock():
        url = dj_database_url.parse(postgres_server.url)
        connections.settings |= connections.configure_settings({"default": url})
        connections["default"] = connections.create_connection("default")
        try:
            lift(connections["default"])
            yield
        finally:
            connections["default"].close()
            connections.settings["default"], connections["default"] = settings, before


@pytest.fixture
def gpu(chassis: Chassis) -> Device:
    """A device that is attached to H1."""
    device = device_in(chassis, drawer=1, slot=1)
    assert device.host_port == host_port_of(chassis, "H1")
    return device


class Doing(threading.Thread):
    """Somebody who does something, up to a statement and no further until `go` is set."""

    def __init__(self, work: Callable[[], object], *, before: str = "") -> None:
        super().__init__()
        self.work = work
        self.before = re.compile(before, re.DOTALL) if before else None
        self.reached, self.go = threading.Event(), threading.Event()
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            with connection.execute_wrapper(self._held):
                self.work()
        except (DatabaseError, FalconWebError) as error:
            self.error = error
        finally:
            connection.close()

    def _held(self, execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        if self.before is not None and not self.reached.is_set() and self.before.search(sql):
            self.reached.set()
            assert self.go.wait(SOON)
        return execute(sql, *rest)


def meet(first: Callable[[], object], *, before: str, second: Callable[[], object]) -> tuple[Exception | None, ...]:
    """Let `second` come while `first` stands before a statement; return what both raised.

    The first goes on as soon as the other has ended or waits for it.
    """
    one, other = Doing(first, before=before), Doing(second)
    one.start()
    assert one.reached.wait(SOON), one.error
    other.start()
    end = time.monotonic() + SOON
    while other.is_alive() and not _somebody_waits():
        assert time.monotonic() < end
        time.sleep(0.01)
    one.go.set()
    for each in (one, other):
        each.join(SOON)
        assert not each.is_alive()
    return one.error, other.error


def _somebody_waits() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
        return bool(cursor.fetchone()[0])


def over(administrator: User, tenant: Tenant, *things: LeasablePart) -> Lease:
    """Return a lease whose end has come, and that holds these things in this order."""
    lease = lease_give(
        person=administrator, tenant=tenant, things=things[:1], starts_at=None, ends_at=timezone.now() + timedelta(1)
    )
    items_add(lease, things[1:])
    lease_acquire_pending(lease)
    pass_time(lease, days=2)
    lease_end(lease)
    return lease


def test_the_tests_of_this_module_run_on_postgresql(postgres: None, db: None) -> None:
    assert connection.vendor == "postgresql"


def test_a_draft_grows_in_one_window_while_another_applies_it(chassis: Chassis, administrator: User) -> None:
    one, two = (device_in(chassis, drawer=1, slot=slot) for slot in (1, 2))
    draft = draft_add(person=administrator, desired=DesiredState(attachments={one.pk: None}))
    applied, added = meet(
        lambda: plan_apply(person=administrator, plan=draft),
        before=ASKS,
        second=lambda: draft_add(person=administrator, desired=DesiredState(attachments={two.pk: None})),
    )
    assert applied is None
    assert isinstance(added, Conflict)
    assert Operation.objects.get().device == one


@pytest.mark.usefixtures("simulator")
def test_a_walk_finds_a_device_swapped_whose_lease_is_brought_back(
    gpu: Device, chassis: Chassis, administrator: User, tenant: Tenant
) -> None:
    lease = over(administrator, tenant, gpu)
    Device.objects.filter(pk=gpu.pk).update(serial_number="ANOTHER-ONE")
    errors = meet(lambda: lease_release_parts(lease), before=LOCKS_CHASSIS, second=lambda: mirror(chassis))
    assert errors == (None, None)
    assert not Operation.objects.exists(), "what came into its place is nobody's to detach"
    lease_release_parts(lease)
    assert fresh(lease).state == "ended"
    gpu.refresh_from_db()
    assert gpu.tenant is None


@pytest.mark.usefixtures("simulator")
def test_a_walk_finds_a_device_swapped_that_a_lease_is_about_to_take(
    gpu: Device, chassis: Chassis, administrator: User, tenant: Tenant
) -> None:
    """Who asks for a device does not get the one that came into its place."""
    start = timezone.now() + timedelta(days=1)
    lease = lease_give(person=administrator, tenant=tenant, things=[gpu], starts_at=start, ends_at=None)
    Device.objects.filter(pk=gpu.pk).update(serial_number="ANOTHER-ONE")
    Lease.objects.filter(pk=lease.pk).update(state="active", starts_at=timezone.now())
    lease.refresh_from_db()
    errors = meet(
        lambda: mirror(chassis),
        before=r'INSERT INTO "fabric_leaseevent"',
        second=lambda: lease_acquire_pending(lease),
    )
    assert errors == (None, None)
    gpu.refresh_from_db()
    assert gpu.tenant is None
    assert LeaseItem.objects.get().taken_at is None


@pytest.mark.usefixtures("simulator")  # what comes back is asked for what is attached
def test_the_clock_makes_its_plan_while_somebody_asks_for_an_operation(
    gpu: Device, chassis: Chassis, administrator: User, tenant: Tenant
) -> None:
    lease = over(administrator, tenant, gpu)
    other = device_in(chassis, drawer=2, slot=1)
    errors = meet(
        lambda: lease_release_parts(lease),
        before=LOCKS_CHASSIS,
        second=lambda: operation_request(person=administrator, device=other, target=None),
    )
    assert errors == (None, None)
    assert fresh(lease).trouble == ""
    assert Operation.objects.filter(device__in=[gpu, other]).count() == 2


def test_a_lease_frees_a_host_port_and_its_device_while_the_device_is_asked_for(
    gpu: Device, chassis: Chassis, administrator: User, tenant: Tenant
) -> None:
    """A lease lists them in another order than that in which an operation takes them."""
    Chassis.objects.update(enabled=False)
    lease = over(administrator, tenant, host_port_of(chassis, "H1"), gpu)
    errors = meet(
        lambda: lease_release_parts(lease),
        before=r'FROM "fabric_device" .*FOR (NO KEY )?UPDATE',
        second=lambda: operation_request(person=administrator, device=gpu, target=None),
    )
    assert errors == (None, None)
    assert Operation.objects.get().device == gpu
    assert fresh(lease).state == "ending"


@pytest.mark.usefixtures("simulator")  # what comes back is asked for what is attached
def test_a_chassis_is_removed_of_which_the_clock_brings_something_back(
    gpu: Device, chassis: Chassis, administrator: User, tenant: Tenant
) -> None:
    lease = over(administrator, tenant, gpu)
    brought, removed = meet(
        lambda: lease_release_parts(lease),
        before=LOCKS_CHASSIS,
        second=lambda: chassis_remove(person=administrator, chassis=chassis),
    )
    assert brought is None
    assert isinstance(removed, Conflict)


@pytest.mark.usefixtures("simulator")
def test_a_chassis_is_removed_while_somebody_notes_where_a_device_of_it_is(
    gpu: Device, chassis: Chassis, administrator: User
) -> None:
    errors = meet(
        lambda: mirror_attachments(Device.objects.filter(pk=gpu.pk), zones={}, members=[]),
        before=r'INSERT INTO "fabric_attachment"',
        second=lambda: chassis_remove(person=administrator, chassis=chassis),
    )
    assert errors == (None, None)
    assert not Chassis.objects.exists()
