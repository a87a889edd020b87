"""Leases: asked for, decided, given, extended, started and ended, with every device attached nowhere."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.utils import timezone

from accounts.models import Role, Tenant, User
from core.errors import Conflict, Forbidden, Invalid, NotFound
from fabric.inventory.models import Chassis, Device, Drawer, Host, HostPort, Slot
from fabric.leases.ends import lease_extend, lease_extension_decline, lease_extension_request, lease_return
from fabric.leases.grants import device_grant, grants_set, host_port_grant
from fabric.leases.lifecycle import leases_process
from fabric.leases.models import Lease, LeaseItem, Tenure
from fabric.leases.quotas import QuotaLimits, quotas_set
from fabric.leases.rules import RequestedParts
from fabric.leases.services import (
    lease_approve,
    lease_decline,
    lease_give,
    lease_request,
    lease_withdraw,
    request_objections,
)
from falconweb.testing import device_in, host_port_of
from tests.fabric.leases.leasing import fresh, pass_time, story, tenant_of

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)
GPU = [RequestedParts("gpu", 1)]


@pytest.fixture
def free(db: None) -> Chassis:
    """A chassis of which nobody holds anything: two GPUs in drawer 1, attached nowhere, and host port H1."""
    # Switched off: nobody asks it, and it is as its rows say.
    chassis = Chassis.objects.create(name="falcon-1", url="https://127.0.0.1:1", dialect="zone_patch", enabled=False)
    drawer = Drawer.objects.create(chassis=chassis, uri="/d", name="Drawer 1", number=1, mode="Advanced")
    host = Host.objects.create(name="node-1", identity="1")
    HostPort.objects.create(
        chassis=chassis, uri="/h1", name="H1", endpoint_uri="/e1", drawer=drawer, label="H1", number=1, host=host
    )
    for number in (1, 2):
        slot = Slot.objects.create(
            chassis=chassis, uri=f"/s{number}", name=f"Slot {number}", drawer=drawer, number=number
        )
        Device.objects.create(
            chassis=chassis, uri=f"/g{number}", name="V100", kind="gpu", slot=slot, endpoint_uri=f"/e/g{number}"
        )
    return chassis


@pytest.fixture
def others(db: None) -> User:
    """A user of another tenant."""
    tenant = Tenant.objects.create(name="Strangers")
    return User.objects.create_user("mallory", password="a-long-password-1", role=Role.USER, tenant=tenant)


def gpu(chassis: Chassis) -> Device:
    return device_in(chassis, drawer=1, slot=1)


def requested(member: User, **more: object) -> Lease:
    values: dict[str, object] = {"wishes": GPU, "starts_at": None, "ends_at": timezone.now() + DAY, **more}
    return lease_request(person=member, **values)  # type: ignore[arg-type]


def test_a_request_becomes_an_approved_lease_and_the_tenant_holds_it(
    free: Chassis, administrator: User, member: User
) -> None:
    lease = requested(member, note="For the paper")
    assert (lease.state, gpu(free).tenant) == ("requested", None)
    done = lease_approve(
        person=administrator, lease=lease, things=[gpu(free)], starts_at=None, ends_at=timezone.now() + DAY
    )
    assert (done.state, done.decided_by_name) == ("active", "ada")
    assert gpu(free).tenant == member.tenant
    assert [one.ended_at for one in Tenure.objects.filter(device=gpu(free))] == [None]
    assert story(done)[0].startswith("Requested 1 GPU, from ")
    assert story(done)[1].startswith("Approved: ")


def test_a_lease_that_starts_later_starts_by_the_clock(free: Chassis, administrator: User, member: User) -> None:
    lease = requested(member)
    start = timezone.now() + timedelta(hours=2)
    lease = lease_approve(person=administrator, lease=lease, things=[gpu(free)], starts_at=start, ends_at=start + DAY)
    leases_process()
    assert (fresh(lease).state, gpu(free).tenant) == ("approved", None)
    pass_time(lease, hours=3)
    leases_process()
    leases_process()
    assert (fresh(lease).state, gpu(free).tenant) == ("active", member.tenant)
    assert story(lease).count("Started.") == 1


def test_the_tenant_returns_early_all_of_it_or_a_part(
    free: Chassis, administrator: User, member: User, viewer: User
) -> None:
    lease = lease_give(
        person=administrator, tenant=tenant_of(member), things=[gpu(free), host_port_of(free, "H1")], starts_at=None,
        ends_at=None,
    )  # fmt: skip
    with pytest.raises(Forbidden):
        lease_return(person=viewer, lease=lease)
    part = lease_return(person=member, lease=lease, items=list(lease.items.filter(device__isnull=False)))
    assert part != lease
    leases_process()
    assert (fresh(part).state, fresh(lease).state) == ("ended", "active")
    assert (gpu(free).tenant, host_port_of(free, "H1").tenant) == (None, member.tenant)
    assert lease_return(person=member, lease=lease) == lease
    leases_process()
    assert (fresh(lease).state, host_port_of(free, "H1").tenant) == ("ended", None)
    with pytest.raises(Conflict):
        lease_return(person=member, lease=lease)


def test_a_grant_is_a_lease_without_an_end_and_freeing_ends_it(
    free: Chassis, administrator: User, tenant: Tenant
) -> None:
    grants_set(person=administrator, tenant=tenant, devices=[gpu(free)], host_ports=[host_port_of(free, "H1")])
    lease = Lease.objects.get()
    assert (lease.state, lease.ends_at, lease.tenant, lease.items.count()) == ("active", None, tenant, 2)
    grants_set(person=administrator, tenant=tenant, devices=[gpu(free)], host_ports=[])
    assert fresh(lease).state == "active"
    device_grant(person=administrator, device=gpu(free), tenant=None)
    assert fresh(lease).state == "ended"
    assert not Tenure.objects.filter(ended_at=None).exists()


def test_taking_a_device_ends_the_lease_that_held_it(
    free: Chassis, administrator: User, tenant: Tenant, others: User
) -> None:
    device_grant(person=administrator, device=gpu(free), tenant=tenant)
    device_grant(person=administrator, device=gpu(free), tenant=tenant_of(others), take=True)
    first, second = Lease.objects.order_by("pk")
    assert (first.state, second.state, second.tenant) == ("ended", "active", others.tenant)
    ended, begun = Tenure.objects.order_by("pk")
    assert ended.ended_at == begun.began_at == gpu(free).tenant_since


def test_what_is_promised_is_not_granted_to_anybody_for_longer(
    free: Chassis, administrator: User, tenant: Tenant, others: User
) -> None:
    start = timezone.now() + DAY
    promised = lease_give(person=administrator, tenant=tenant, things=[gpu(free)], starts_at=start, ends_at=start + DAY)
    with pytest.raises(Conflict, match=f"promised to Vision group .*lease {promised.pk}"):
        device_grant(person=administrator, device=gpu(free), tenant=tenant_of(others))
    assert gpu(free).tenant is None
    until_then = lease_give(
        person=administrator, tenant=tenant_of(others), things=[gpu(free)], starts_at=None, ends_at=start
    )
    assert until_then.state == "active"


@pytest.mark.parametrize(("begin", "end"), [(0, 5), (0, 2), (3, 9), (2, 3), (0, None)])
def test_two_leases_of_one_device_never_overlap(
    free: Chassis, administrator: User, tenant: Tenant, begin: int, end: int | None
) -> None:
    now = timezone.now() + DAY
    first = lease_give(
        person=administrator, tenant=tenant, things=[gpu(free)], starts_at=now + DAY, ends_at=now + 4 * DAY
    )
    second = Tenant.objects.create(name="Second")
    with pytest.raises(Conflict, match=f"lease {first.pk}"):
        lease_give(
            person=administrator, tenant=second, things=[gpu(free)], starts_at=now + begin * DAY,
            ends_at=None if end is None else now + end * DAY,
        )  # fmt: skip
    assert Lease.objects.count() == 1


def test_an_extension_is_asked_for_and_decided(free: Chassis, administrator: User, member: User) -> None:
    end = timezone.now() + DAY
    lease = lease_give(person=administrator, tenant=tenant_of(member), things=[gpu(free)], starts_at=None, ends_at=end)
    with pytest.raises(Invalid, match="must come after"):
        lease_extension_request(person=member, lease=lease, ends_at=end)
    lease_extension_request(person=member, lease=lease, ends_at=end + DAY, note="One more day")
    assert fresh(lease).extension_to == end + DAY
    lease_extension_decline(person=administrator, lease=lease, reason="Others wait.")
    assert (fresh(lease).extension_to, fresh(lease).ends_at) == (None, end)
    with pytest.raises(Forbidden):
        lease_extend(person=member, lease=lease, ends_at=end + DAY)
    lease_extension_request(person=member, lease=lease, ends_at=end + DAY)
    lease_extend(person=administrator, lease=lease, ends_at=end + 2 * DAY)
    assert (fresh(lease).extension_to, fresh(lease).ends_at) == (None, end + 2 * DAY)


def test_who_asks_for_more_time_is_not_told_whose_it_is_then(
    free: Chassis, administrator: User, member: User, others: User
) -> None:
    end = timezone.now() + DAY
    lease = lease_give(person=administrator, tenant=tenant_of(member), things=[gpu(free)], starts_at=None, ends_at=end)
    next_one = lease_give(
        person=administrator, tenant=tenant_of(others), things=[gpu(free)], starts_at=end + DAY, ends_at=end + 2 * DAY
    )
    with pytest.raises(Conflict) as refused:
        lease_extension_request(person=member, lease=lease, ends_at=end + 2 * DAY)
    assert "is in use from" in refused.value.sentence
    assert "Strangers" not in refused.value.sentence
    assert refused.value.details == {}
    with pytest.raises(Conflict, match=f"Strangers .*lease {next_one.pk}"):
        lease_extend(person=administrator, lease=lease, ends_at=end + 2 * DAY)


def test_a_quota_is_told_at_the_request_and_holds_at_the_approval(
    free: Chassis, administrator: User, member: User
) -> None:
    assert member.tenant is not None
    quotas_set(person=administrator, tenant=tenant_of(member), limits={"gpu": QuotaLimits(most_at_once=0)})
    assert request_objections(member.tenant, GPU, None, None) == [
        "Vision group would hold 1 GPU at once; its quota is 0."
    ]
    lease = requested(member)
    end = timezone.now() + DAY
    with pytest.raises(Conflict, match="its quota is 0") as refused:
        lease_approve(person=administrator, lease=lease, things=[gpu(free)], starts_at=None, ends_at=end)
    assert refused.value.details["quota"]
    assert fresh(lease).state == "requested"
    done = lease_approve(
        person=administrator, lease=lease, things=[gpu(free)], starts_at=None, ends_at=end, override=True
    )
    assert done.state == "active"
    assert "Over the quota on ada's word" in story(done)[-1]


def test_hours_of_a_month_are_limited_by_what_was_held_and_is_promised(
    free: Chassis, administrator: User, tenant: Tenant
) -> None:
    quotas_set(person=administrator, tenant=tenant, limits={"gpu": QuotaLimits(most_hours_a_month=100)})
    now = timezone.now()
    begin = datetime(now.year + 1, 3, 20, tzinfo=UTC)
    lease_give(
        person=administrator, tenant=tenant, things=[gpu(free)], starts_at=begin, ends_at=begin + timedelta(hours=90)
    )
    other = device_in(free, drawer=1, slot=2)
    with pytest.raises(Conflict, match=f"GPUs for 162 hours in {begin.year}-03; its quota is 100 a month"):
        lease_give(person=administrator, tenant=tenant, things=[other], starts_at=begin, ends_at=begin + 3 * DAY)
    ten = timedelta(hours=10)
    lease_give(person=administrator, tenant=tenant, things=[other], starts_at=begin, ends_at=begin + ten)


def test_who_may_do_what(free: Chassis, administrator: User, member: User, viewer: User, others: User) -> None:
    with pytest.raises(Forbidden):
        requested(viewer)
    with pytest.raises(Forbidden):
        requested(administrator)
    lease = requested(member)
    end = timezone.now() + DAY
    with pytest.raises(Forbidden):
        lease_approve(person=member, lease=lease, things=[gpu(free)], starts_at=None, ends_at=end)
    with pytest.raises(Forbidden):
        lease_decline(person=member, lease=lease)
    with pytest.raises(NotFound):
        lease_withdraw(person=others, lease=lease)
    with pytest.raises(Forbidden):
        lease_withdraw(person=viewer, lease=lease)
    assert lease_withdraw(person=member, lease=lease).state == "withdrawn"
    with pytest.raises(Conflict, match="already"):
        lease_approve(person=administrator, lease=lease, things=[gpu(free)], starts_at=None, ends_at=end)


@pytest.mark.parametrize(
    "wrong",
    [
        {"wishes": []},
        {"wishes": [RequestedParts("gpu", 0)]},
        {"wishes": [RequestedParts("gpu", 1001)]},
        {"wishes": [RequestedParts("toaster", 1)]},
        {"starts_at": datetime(2020, 1, 1, tzinfo=UTC)},
        {"ends_at": datetime(2020, 1, 1, tzinfo=UTC)},
        {"ends_at": datetime(9999, 12, 31, tzinfo=UTC)},
        {"starts_at": datetime(9999, 12, 30, tzinfo=UTC), "ends_at": datetime(9999, 12, 31, tzinfo=UTC)},
        {"note": "x" * 2001},
    ],
)
def test_nonsense_is_refused_with_its_place(free: Chassis, member: User, wrong: dict[str, object]) -> None:
    with pytest.raises(Invalid):
        requested(member, **wrong)
    assert not Lease.objects.exists()


def test_a_chassis_that_the_tenant_does_not_see_is_not_asked_for(free: Chassis, member: User) -> None:
    with pytest.raises(NotFound):
        requested(member, wishes=[RequestedParts("gpu", 1, free.pk)])


def test_requests_that_wait_are_limited(free: Chassis, member: User) -> None:
    for _ in range(20):
        requested(member)
    with pytest.raises(Conflict, match="Withdraw one first"):
        requested(member)


@pytest.mark.usefixtures("transactional_db")
def test_two_who_tend_at_once_start_and_end_each_lease_once(free: Chassis, administrator: User, tenant: Tenant) -> None:
    start = timezone.now() + timedelta(hours=1)
    lease = lease_give(person=administrator, tenant=tenant, things=[gpu(free)], starts_at=start, ends_at=start + DAY)
    pass_time(lease, hours=2)
    _at_once(leases_process, 3)
    assert (fresh(lease).state, story(lease).count("Started.")) == ("active", 1)
    pass_time(lease, days=2)
    _at_once(leases_process, 3)
    leases_process()
    assert fresh(lease).state == "ended"
    assert sum("the lease has ended" in line for line in story(lease)) == 1
    assert Tenure.objects.filter(device=gpu(free)).count() == 1


@pytest.mark.usefixtures("transactional_db")
def test_two_administrators_who_give_one_device_at_once_give_it_once(
    free: Chassis, administrator: User, tenant: Tenant, others: User
) -> None:
    refused: list[str] = []
    tenants = [tenant, others.tenant]

    def give() -> None:
        mine = tenants.pop()
        assert mine is not None
        try:
            lease_give(person=administrator, tenant=mine, things=[gpu(free)], starts_at=None, ends_at=None)
        except Conflict as error:
            refused.append(error.sentence)

    _at_once(give, 2)
    assert len(refused) == 1
    assert Lease.objects.filter(state="active").count() == LeaseItem.objects.count() == 1


def test_a_lease_whose_whole_time_passed_while_nobody_looked_takes_nothing(
    free: Chassis, administrator: User, tenant: Tenant
) -> None:
    start = timezone.now() + timedelta(hours=1)
    lease = lease_give(person=administrator, tenant=tenant, things=[gpu(free)], starts_at=start, ends_at=start + DAY)
    pass_time(lease, days=9)
    leases_process()
    assert (fresh(lease).state, gpu(free).tenant) == ("ended", None)
    assert not Tenure.objects.exists()


def test_rows_that_something_wrote_by_itself_are_put_right(
    free: Chassis, administrator: User, tenant: Tenant, others: User
) -> None:
    device_grant(person=administrator, device=gpu(free), tenant=tenant)
    Device.objects.filter(pk=gpu(free).pk).update(tenant=tenant_of(others))
    HostPort.objects.filter(label="H1").update(tenant=tenant, tenant_since=timezone.now() - DAY)
    leases_process()
    leases_process()
    held = {lease.tenant_name: lease for lease in Lease.objects.filter(state="active")}
    assert set(held) == {"Vision group", "Strangers"}
    assert held["Strangers"].items.get().device == gpu(free)
    assert Tenure.objects.get(device=gpu(free), ended_at=None).tenant == others.tenant
    assert Lease.objects.count() == 3


def test_a_clock_that_was_set_back_makes_no_time_twice(
    free: Chassis, administrator: User, tenant: Tenant, others: User
) -> None:
    device_grant(person=administrator, device=gpu(free), tenant=tenant)
    ahead = timezone.now() + timedelta(hours=3)
    Tenure.objects.update(began_at=ahead)
    device_grant(person=administrator, device=gpu(free), tenant=tenant_of(others), take=True)
    first, second = Tenure.objects.order_by("pk")
    assert first.ended_at == ahead == second.began_at


def test_a_removed_chassis_ends_what_was_held_of_it(free: Chassis, administrator: User, tenant: Tenant) -> None:
    from fabric.inventory.services import chassis_remove

    lease = lease_give(person=administrator, tenant=tenant, things=[gpu(free)], starts_at=None, ends_at=None)
    host_port_grant(person=administrator, host_port=host_port_of(free, "H1"), tenant=tenant)
    chassis_remove(person=administrator, chassis=free)
    assert set(Lease.objects.values_list("state", flat=True)) == {"ended"}
    assert not Tenure.objects.filter(ended_at=None).exists()
    assert any("was removed from the site" in line for line in story(lease))


def _at_once(what: object, times: int) -> None:
    failed: list[BaseException] = []

    def run() -> None:
        try:
            what()  # type: ignore[operator]
        except BaseException as error:  # noqa: BLE001 - told by the test
            failed.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=run) for _ in range(times)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
