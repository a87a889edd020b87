"""The way back: what a lease that is over held is detached from a real simulated chassis by a plan, then free."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from accounts.audit.models import AuditEntry
from accounts.models import Role, Tenant, User
from core.errors import Conflict
from fabric.inventory.models import Chassis, Device, LeasablePart
from fabric.leases import ends
from fabric.leases.grants import device_grant
from fabric.leases.lifecycle import leases_process
from fabric.leases.models import Tenure
from fabric.leases.services import lease_give
from fabric.operations.models import Operation, Plan
from fabric.operations.services import operation_request
from fabric.plans.rules import DesiredState
from fabric.plans.services import plan_create
from falconweb.testing import SimulatorProcess, carry_out, carry_out_plan, device_in, host_port_of, mirror
from tests.fabric import outside
from tests.fabric.leases.leasing import fresh, pass_time, plan_of, story, tenant_of
from tests.fabric.walks import found

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)


@pytest.fixture
def free(chassis: Chassis, simulator: SimulatorProcess) -> Chassis:
    """A chassis of which nobody holds anything, and nothing is attached in slot 1 of drawer 1."""
    outside.put(chassis, simulator, gpu(chassis), to=None)
    found(chassis, attached={gpu(chassis): None})
    return chassis


@pytest.fixture
def others(db: None) -> User:
    """A user of another tenant."""
    tenant = Tenant.objects.create(name="Strangers")
    return User.objects.create_user("mallory", password="a-long-password-1", role=Role.USER, tenant=tenant)


def gpu(chassis: Chassis) -> Device:
    return device_in(chassis, drawer=1, slot=1)


def attached(chassis: Chassis, simulator: SimulatorProcess) -> None:
    """Let the GPU be attached to H1, as its holder does."""
    outside.put(chassis, simulator, gpu(chassis), to=host_port_of(chassis, "H1"))
    found(chassis, attached={gpu(chassis): host_port_of(chassis, "H1")})


def test_at_the_end_a_plan_detaches_what_is_attached_then_it_is_free(
    free: Chassis, simulator: SimulatorProcess, administrator: User, member: User
) -> None:
    lease = lease_give(
        person=administrator, tenant=tenant_of(member), things=[gpu(free), host_port_of(free, "H1")], starts_at=None,
        ends_at=timezone.now() + DAY,
    )  # fmt: skip
    operation = operation_request(person=member, device=gpu(free), target=host_port_of(free, "H1"))
    assert carry_out(operation).state == "done"
    pass_time(lease, days=2)
    leases_process()
    lease = fresh(lease)
    assert (lease.state, lease.get_state_display()) == ("ending", "Returning")
    assert lease.plan is not None
    assert lease.plan.by_site
    assert gpu(free).tenant == member.tenant  # nothing is freed while it is attached
    assert host_port_of(free, "H1").tenant == member.tenant
    leases_process()
    assert Plan.objects.count() == 1
    assert carry_out_plan(lease.plan).state == "done"
    leases_process()
    assert fresh(lease).state == "ended"
    assert gpu(free).tenant is None
    assert host_port_of(free, "H1").tenant is None
    assert gpu(free).host_port is None
    assert not any("drawer1slot1" in members for members in simulator.state()["zones"].values())
    assert story(lease)[-1] == "Everything that it included is returned: the lease has ended."


def test_a_return_that_fails_is_tried_again_and_frees_nothing_meanwhile(
    free: Chassis, simulator: SimulatorProcess, administrator: User, member: User
) -> None:
    lease = lease_give(
        person=administrator, tenant=tenant_of(member), things=[gpu(free), host_port_of(free, "H1")], starts_at=None,
        ends_at=timezone.now() + DAY,
    )  # fmt: skip
    attached(free, simulator)
    pass_time(lease, days=2)
    leases_process()
    plan = fresh(lease).plan
    assert plan is not None
    # As an operation ends that could not be carried out.
    Operation.objects.filter(plan=plan).update(
        state="failed", error="The BMC did not answer.", finished_at=timezone.now()
    )
    assert carry_out_plan(plan).state == "stopped"
    leases_process()
    lease = fresh(lease)
    assert (lease.state, gpu(free).tenant) == ("ending", member.tenant)
    assert "did not answer" in lease.trouble
    leases_process()
    assert fresh(lease).tries == lease.tries  # it waits before the next try
    pass_time(lease, hours=1)
    leases_process()
    assert Plan.objects.count() == 1  # the same plan goes on
    plan_after = carry_out_plan(plan_of(lease))
    assert carry_out_plan(plan_after).state == "done"
    leases_process()
    assert (fresh(lease).state, fresh(lease).trouble, gpu(free).tenant) == ("ended", "", None)


def test_while_a_chassis_does_not_answer_nobody_knows_what_is_attached_and_nothing_is_freed(
    free: Chassis, simulator: SimulatorProcess, administrator: User, member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = lease_give(
        person=administrator, tenant=tenant_of(member), things=[gpu(free)], starts_at=None, ends_at=timezone.now() + DAY
    )
    pass_time(lease, days=2)
    monkeypatch.setattr(ends, "READ_SECONDS", 0.5)
    fault = simulator.fault("hang")
    for noticed in ("", "No route to 10.0.0.5."):
        Chassis.objects.update(last_error=noticed)
        leases_process()
        assert (fresh(lease).state, gpu(free).tenant) == ("ending", member.tenant)
        assert fresh(lease).trouble == "falcon-1 is not answering."
    simulator.end_fault(fault)
    Chassis.objects.update(last_error="")
    monkeypatch.undo()
    leases_process()
    assert (fresh(lease).state, gpu(free).tenant) == ("ended", None)


def test_what_was_attached_since_the_last_walk_is_detached_before_it_is_freed(
    free: Chassis, simulator: SimulatorProcess, administrator: User, member: User
) -> None:
    lease = lease_give(
        person=administrator, tenant=tenant_of(member), things=[gpu(free)], starts_at=None, ends_at=timezone.now() + DAY
    )
    pass_time(lease, days=2)
    outside.put(free, simulator, gpu(free), to=host_port_of(free, "H1"))
    leases_process()
    assert (fresh(lease).state, gpu(free).tenant) == ("ending", member.tenant)
    assert carry_out_plan(plan_of(lease)).state == "done"
    leases_process()
    assert (fresh(lease).state, gpu(free).tenant) == ("ended", None)
    assert not any("drawer1slot1" in members for members in simulator.state()["zones"].values())


def test_what_returns_is_attached_by_the_tenant_no_more_and_detached_whoever_does(
    free: Chassis, simulator: SimulatorProcess, administrator: User, member: User
) -> None:
    lease = lease_give(
        person=administrator, tenant=tenant_of(member), things=[gpu(free), host_port_of(free, "H1")], starts_at=None,
        ends_at=timezone.now() + DAY,
    )  # fmt: skip
    attached(free, simulator)
    pass_time(lease, days=2)
    leases_process()
    carry_out_plan(plan_of(lease))
    with pytest.raises(Conflict, match="is returning"):
        operation_request(person=member, device=gpu(free), target=host_port_of(free, "H1"))
    again = DesiredState(attachments={gpu(free).pk: host_port_of(free, "H1").pk})
    with pytest.raises(Conflict, match="is returning"):
        plan_create(person=member, desired=again, title="", origin="api")
    # An administrator may, and it comes back all the same.
    operation_request(person=administrator, device=gpu(free), target=host_port_of(free, "H1"))
    Operation.objects.open().update(state="done", finished_at=timezone.now())
    attached(free, simulator)
    leases_process()
    assert (fresh(lease).state, gpu(free).tenant) == ("ending", member.tenant)
    assert Plan.objects.count() == 2
    carry_out_plan(plan_of(lease))
    leases_process()
    assert fresh(lease).state == "ended"


def test_a_host_port_takes_along_what_the_tenant_attached_to_it_and_nobody_elses(
    free: Chassis, simulator: SimulatorProcess, administrator: User, member: User, others: User
) -> None:
    port = host_port_of(free, "H1")
    lease = lease_give(
        person=administrator, tenant=tenant_of(member), things=[port], starts_at=None, ends_at=timezone.now() + DAY
    )
    device_grant(person=administrator, device=gpu(free), tenant=tenant_of(member))
    attached(free, simulator)
    strangers = Device.objects.filter(host_port=port).exclude(pk=gpu(free).pk).first()
    assert strangers is not None
    device_grant(person=administrator, device=strangers, tenant=tenant_of(others))
    pass_time(lease, days=2)
    leases_process()
    plan = fresh(lease).plan
    assert plan is not None
    assert [one.device_id for one in plan.operations.all()] == [gpu(free).pk]
    carry_out_plan(plan)
    leases_process()
    assert fresh(lease).state == "ended"
    assert gpu(free).tenant == member.tenant  # held by the grant, which is a lease of its own
    strangers.refresh_from_db()
    assert (strangers.tenant, strangers.host_port) == (others.tenant, port)


def test_a_tenant_goes_from_one_lease_to_the_next_without_a_detach(
    free: Chassis, simulator: SimulatorProcess, administrator: User, member: User
) -> None:
    things: list[LeasablePart] = [gpu(free), host_port_of(free, "H1")]
    end = timezone.now() + DAY
    first = lease_give(person=administrator, tenant=tenant_of(member), things=things, starts_at=None, ends_at=end)
    attached(free, simulator)
    second = lease_give(person=administrator, tenant=tenant_of(member), things=things, starts_at=end, ends_at=end + DAY)
    pass_time(first, days=1)
    pass_time(second, days=1)
    leases_process()
    assert (fresh(first).state, fresh(second).state) == ("ended", "active")
    assert gpu(free).host_port == host_port_of(free, "H1")
    assert Tenure.objects.filter(device=gpu(free)).count() == 1
    assert not Plan.objects.exists()


def test_who_comes_next_waits_for_what_is_still_returning(
    free: Chassis, simulator: SimulatorProcess, administrator: User, member: User, others: User
) -> None:
    things: list[LeasablePart] = [gpu(free), host_port_of(free, "H1")]
    end = timezone.now() + DAY
    first = lease_give(person=administrator, tenant=tenant_of(member), things=things, starts_at=None, ends_at=end)
    attached(free, simulator)
    second = lease_give(
        person=administrator, tenant=tenant_of(others), things=[gpu(free)], starts_at=end, ends_at=end + DAY
    )
    pass_time(first, days=1)
    pass_time(second, days=1)
    leases_process()
    assert (fresh(first).state, fresh(second).state) == ("ending", "active")
    assert gpu(free).tenant == member.tenant
    carry_out_plan(plan_of(first))
    leases_process()
    assert (fresh(first).state, gpu(free).tenant) == ("ended", others.tenant)


def test_that_the_site_may_not_make_its_plan_is_in_the_audit_log(
    free: Chassis, administrator: User, member: User
) -> None:
    nic = device_in(free, drawer=1, slot=2)
    assert nic.host_port is not None
    lease = lease_give(
        person=administrator, tenant=tenant_of(member), things=[nic], starts_at=None, ends_at=timezone.now() + DAY
    )
    pass_time(lease, days=2)
    # Found at the end of the way: the plan is made, and refused when it is applied.
    running = operation_request(person=administrator, device=nic, target=None)
    leases_process()
    trouble = fresh(lease).trouble
    assert trouble
    kept = AuditEntry.objects.filter(action__startswith="plan.").values_list("action", "outcome", "sentence")
    assert list(kept) == [("plan.apply", "refused", trouble)]
    assert not Plan.objects.exists(), "what was half made is taken back, and is not told as done"
    assert carry_out(running).state == "done"
    leases_process()
    assert fresh(lease).state == "ended"


def test_a_swapped_device_is_in_no_lease_and_nobodys(
    free: Chassis, simulator: SimulatorProcess, administrator: User, tenant: Tenant
) -> None:
    lease = lease_give(person=administrator, tenant=tenant, things=[gpu(free)], starts_at=None, ends_at=None)
    Device.objects.filter(pk=gpu(free).pk).update(serial_number="ANOTHER-ONE")
    mirror(free)
    assert gpu(free).tenant is None
    assert Tenure.objects.get().ended_at == gpu(free).tenant_since
    leases_process()
    assert fresh(lease).state == "ended"
    assert any("was replaced by another device" in line for line in story(lease))
