"""A worker that dies at any moment of the clock's work: whoever tends next ends in the same state, nothing twice."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from accounts.models import Tenant, User
from fabric.inventory.models import Chassis, Device, Host, HostPort
from fabric.leases.lifecycle import leases_process
from fabric.leases.models import Lease, Tenure
from fabric.leases.services import lease_give
from tests.fabric.leases.leasing import fresh, pass_time, story
from tests.turns import NIGHTLY

pytestmark = pytest.mark.django_db
EVERY = 1 if NIGHTLY else 11  # statement at which it dies
DAY = timedelta(days=1)


class KilledError(BaseException):
    """No Exception, so that nothing on the way can take it for an error and go on."""


def dying_after(statements: int) -> Callable[..., Any]:
    left = [statements]

    def wrapper(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        # The end of a transaction is the database's own work, done or undone as a whole.
        if not sql.startswith(("RELEASE", "ROLLBACK")):
            left[0] -= 1
            if left[0] == -1:
                raise KilledError
        return execute(sql, *rest)

    return wrapper


@pytest.fixture
def things(db: None) -> tuple[Device, HostPort]:
    # Switched off: nobody asks it, and it is as its rows say.
    chassis = Chassis.objects.create(name="falcon-1", url="https://127.0.0.1:1", enabled=False)
    host = Host.objects.create(name="node-1", identity="1")
    port = HostPort.objects.create(
        chassis=chassis, uri="/h", name="H1", endpoint_uri="/e", label="H1", number=1, host=host
    )
    return Device.objects.create(chassis=chassis, uri="/g", name="V100", kind="gpu"), port


def test_whenever_a_worker_dies_the_next_one_finishes_its_work(things: tuple[Device, HostPort]) -> None:
    """One lease is over, the next of another tenant is due: all that the clock does, cut off at every statement."""
    ada = User.objects.create_superuser("ada", password="x")
    first, second = (Tenant.objects.create(name=name) for name in ("First", "Second"))
    end = timezone.now() + DAY
    one = lease_give(person=ada, tenant=first, things=things, starts_at=None, ends_at=end)
    two = lease_give(person=ada, tenant=second, things=[things[0]], starts_at=end, ends_at=end + 9 * DAY)
    pass_time(one, days=2)
    pass_time(two, days=2)
    deaths = 0
    for statement in range(0, 2000, EVERY):
        with transaction.atomic():
            try:
                with connection.execute_wrapper(dying_after(statement)):
                    leases_process()
                died = False
            except KilledError:
                died = True
            for _ in range(3):
                leases_process()
            things[0].refresh_from_db()
            things[1].refresh_from_db()
            assert (fresh(one).state, fresh(two).state) == ("ended", "active"), statement
            assert (things[0].tenant, things[1].tenant) == (second, None)
            assert Tenure.objects.filter(device=things[0]).count() == 2
            assert sum("the lease has ended" in line for line in story(one)) == 1
            assert story(two).count("Started.") == 1
            assert Lease.objects.count() == 2
            transaction.set_rollback(True)
        deaths += died
        if not died:
            break
    assert deaths > 10
