"""What happens to a composition when a device, its link, its switch or its host fails."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.test import Client
from django.utils import timezone

from accounts.approvals.models import ApprovalPolicy, ApprovalRequest, Danger
from accounts.approvals.services import approval_approve
from accounts.audit.models import AuditEntry
from accounts.models import Role, Tenant, User
from core.errors import Conflict, Forbidden, NotFound
from fabric.bmc.types import Inventory
from fabric.failures import services
from fabric.failures.models import Failure, FailurePolicy
from fabric.failures.selectors import failure_get, spares_of
from fabric.failures.services import failure_keep, failure_policy_set, failure_replace, failures_process
from fabric.inventory.models import Chassis, Device, LeasablePart
from fabric.inventory.sync import inventory_apply
from fabric.leases.models import Lease, LeaseItem
from fabric.leases.services import lease_give
from fabric.operations.models import Operation, Plan
from fabric.operations.services import operation_request
from fabric.topology.problems import present_problems
from falconweb.testing import SimulatorProcess, carry_out, carry_out_plan, device_in, host_port_of, mirror
from tests.fabric.walks import found, last_walk

State, End, Cause, Choice = Failure.State, Failure.End, Failure.Cause, FailurePolicy.Choice
CRITICAL = {"health": "Critical"}


def gpu(chassis: Chassis, slot: int) -> Device:
    return device_in(chassis, drawer=1, slot=slot)


@pytest.fixture
def failed(chassis: Chassis) -> Callable[..., Failure]:
    """Let the GPU of slot 1 fail a while ago, with the GPUs of these slots free; returns its failure."""

    def fail(*free: int) -> Failure:
        found(chassis, attached=dict.fromkeys(gpu(chassis, slot) for slot in free))
        found(chassis, devices={gpu(chassis, 1): CRITICAL})
        Failure.objects.update(noticed_at=timezone.now() - timedelta(minutes=2))
        return Failure.objects.get()

    return fail


@pytest.fixture
def member(tenant: Tenant, chassis: Chassis) -> User:
    """A user of a tenant without grants."""
    user: User = User.objects.create_user("vera", role=Role.USER, tenant=tenant)
    return user


@pytest.fixture
def free_gpu(simulator: SimulatorProcess, chassis: Chassis, administrator: User) -> Device:
    """The GPU of slot 2, detached on the chassis itself."""
    carry_out(operation_request(person=administrator, device=gpu(chassis, 2), target=None))
    mirror(chassis)
    return gpu(chassis, 2)


def leased(chassis: Chassis, person: User, tenant: Tenant | None) -> Lease:
    """Lease the GPU of slot 1 and host port H1 to a tenant."""
    assert tenant is not None
    things: list[LeasablePart] = [gpu(chassis, 1), host_port_of(chassis, "H1")]
    lease: Lease = lease_give(person=person, tenant=tenant, things=things, starts_at=None, ends_at=None)
    return lease


def state_of(failure: Failure) -> tuple[str, str]:
    failure.refresh_from_db()
    return failure.state, failure.end


# --- noticing -----------------------------------------------------------------------------------------------------


def device_fails(inventory: Inventory, device: Device) -> Inventory:
    parts = (msgspec.structs.replace(one, health="Critical") if one.uri == device.uri else one
             for one in inventory.devices)  # fmt: skip
    return msgspec.structs.replace(inventory, devices=tuple(parts))


def device_vanishes(inventory: Inventory, device: Device) -> Inventory:
    return msgspec.structs.replace(inventory, devices=tuple(one for one in inventory.devices if one.uri != device.uri))


def link_fails(inventory: Inventory, device: Device) -> Inventory:
    assert device.slot is not None
    assert device.slot.port is not None
    uri = device.slot.port.uri
    parts = (msgspec.structs.replace(one, link_status="LinkDown") if one.uri == uri else one for one in inventory.ports)
    return msgspec.structs.replace(inventory, ports=tuple(parts))


def switch_fails(inventory: Inventory, device: Device) -> Inventory:
    assert device.slot is not None
    assert device.slot.port is not None
    assert device.slot.port.switch is not None
    uri = device.slot.port.switch.uri
    parts = (msgspec.structs.replace(one, health="Critical") if one.uri == uri else one for one in inventory.switches)
    return msgspec.structs.replace(inventory, switches=tuple(parts))


def host_fails(inventory: Inventory, device: Device) -> Inventory:
    parts = (msgspec.structs.replace(one, health="Critical") if one.name == "node-a" else one
             for one in inventory.systems)  # fmt: skip
    return msgspec.structs.replace(inventory, systems=tuple(parts))


@pytest.mark.parametrize(
    ("fail", "cause"),
    [
        (device_fails, Cause.DEVICE),
        (device_vanishes, Cause.DEVICE),
        (link_fails, Cause.LINK),
        (switch_fails, Cause.SWITCH),
        (host_fails, Cause.HOST),
    ],
)
def test_a_failure_of_what_a_device_depends_on_is_noticed_once_and_ends_when_it_works_again(
    chassis: Chassis, fail: Callable[[Inventory, Device], Inventory], cause: Failure.Cause
) -> None:
    device, well = gpu(chassis, 1), last_walk(chassis)
    for _walk in range(2):
        inventory_apply(chassis=chassis, inventory=fail(well, gpu(chassis, 1)))
    (failure,) = Failure.objects.filter(device=device)
    assert (failure.cause, failure.host_name, state_of(failure)) == (cause, "node-a", (State.NOTICED, ""))
    inventory_apply(chassis=chassis, inventory=well)
    assert state_of(failure) == (State.ENDED, End.RECOVERED)


def test_of_a_link_that_comes_and_goes_for_months_the_last_failures_are_kept(
    chassis: Chassis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "MAX_ENDED", 2)
    for _time in range(3):
        found(chassis, devices={gpu(chassis, 1): CRITICAL})
        found(chassis, devices={gpu(chassis, 1): {"health": "OK"}})
    assert Failure.objects.count() == 2


def test_a_device_that_is_attached_to_nothing_does_not_fail_a_composition(chassis: Chassis) -> None:
    found(chassis, attached={gpu(chassis, 1): None})
    found(chassis, devices={gpu(chassis, 1): CRITICAL})
    assert not Failure.objects.exists()


def test_a_failed_device_that_somebody_detached_is_over(chassis: Chassis, failed: Callable[..., Failure]) -> None:
    failure = failed()
    found(chassis, attached={gpu(chassis, 1): None})
    assert state_of(failure) == (State.ENDED, End.DETACHED)


# --- proposing ----------------------------------------------------------------------------------------------------


def test_a_replacement_is_proposed_after_a_minute_and_waits_for_consent(
    chassis: Chassis, administrator: User, failed: Callable[..., Failure]
) -> None:
    failure = failed(2)
    Failure.objects.update(noticed_at=timezone.now())
    failures_process()
    assert state_of(failure) == (State.NOTICED, "")
    Failure.objects.update(noticed_at=timezone.now() - timedelta(minutes=2))
    failures_process()
    assert (*state_of(failure), failure.spare) == (State.PROPOSED, "", gpu(chassis, 2))
    assert gpu(chassis, 1).host_port == host_port_of(chassis, "H1")
    (problem,) = (one for one in present_problems(administrator) if one.page == "fabric:failure")
    assert problem.sentence == f"{failure.device_name} could be replaced by {failure.spare_name}."
    # One that is no longer free is no proposal.
    found(chassis, attached={gpu(chassis, 2): host_port_of(chassis, "H2")})
    failures_process()
    assert (*state_of(failure), failure.spare, failure.why[:9]) == (State.NOTICED, "", None, "No device")


def test_only_a_device_that_could_serve_replaces_it(
    chassis: Chassis, tenant: Tenant, failed: Callable[..., Failure]
) -> None:
    failure = failed(2, 3, 4, 5)
    Device.objects.filter(pk=gpu(chassis, 2).pk).update(health="Warning")
    Device.objects.filter(pk=gpu(chassis, 3).pk).update(tenant=tenant)
    assert spares_of(failure) == [gpu(chassis, 4)]  # another model, another tenant's and an unwell one are none
    Failure.objects.update(tenant=tenant)
    failure.refresh_from_db()
    assert spares_of(failure) == [gpu(chassis, 3), gpu(chassis, 4)]  # the tenant's own first


def test_of_a_failed_host_no_device_is_replaced(chassis: Chassis) -> None:
    inventory_apply(chassis=chassis, inventory=host_fails(last_walk(chassis), gpu(chassis, 1)))
    Failure.objects.update(noticed_at=timezone.now() - timedelta(minutes=2))
    failures_process()
    assert {(one.state, one.why) for one in Failure.objects.all()} == {
        (State.KEPT, "Its host has failed: another device would not help.")
    }


def test_by_policy_or_by_decision_it_is_kept(
    administrator: User, failed: Callable[..., Failure], client: Client
) -> None:
    failure = failed(2)
    client.force_login(administrator)
    client.post(f"/failures/{failure.pk}/keeping/")
    failures_process()
    assert (*state_of(failure), failure.decided_by_name) == (State.KEPT, "", "ada")
    listed, none = (
        client.get(f"/failures.csv{query}").getvalue().decode().splitlines()[1:] for query in ("", "?show=ended")
    )
    assert (len(listed), none) == (1, [])
    assert ",kept,,ada," in listed[0]
    Failure.objects.update(state=State.NOTICED, decided_by=None, decided_by_name="")
    failure_policy_set(person=administrator, tenant=None, choice="keep")
    failures_process()
    assert (*state_of(failure), failure.decided_by_name) == (State.KEPT, "", "FalconWeb")
    # A policy counts for open failures, too; what a person has decided stays.
    failure_policy_set(person=administrator, tenant=None, choice="ask")
    failures_process()
    assert (*state_of(failure), failure.decided_by_name) == (State.PROPOSED, "", "")
    failure_keep(person=administrator, failure=failure)
    failure_policy_set(person=administrator, tenant=None, choice="replace")
    failures_process()
    assert (*state_of(failure), failure.decided_by_name) == (State.KEPT, "", "ada")


def test_nothing_is_done_before_a_walk_has_shown_it_for_a_minute(
    chassis: Chassis, failed: Callable[..., Failure]
) -> None:
    failure = failed(2)
    Chassis.objects.update(inventory_at=timezone.now() - timedelta(minutes=2))  # the BMC has not answered since
    failures_process()
    assert state_of(failure) == (State.NOTICED, "")


def test_a_device_that_fails_while_its_host_does_is_replaced_once_the_host_works_again(chassis: Chassis) -> None:
    device, well = gpu(chassis, 1), last_walk(chassis)
    inventory_apply(chassis=chassis, inventory=host_fails(well, device))
    Failure.objects.update(noticed_at=timezone.now() - timedelta(minutes=2))
    failures_process()
    inventory_apply(chassis=chassis, inventory=device_fails(well, device))
    failure = Failure.objects.open().get()
    assert (failure.cause, *state_of(failure), failure.why) == (Cause.DEVICE, State.NOTICED, "", "")
    assert failure.noticed_at > timezone.now() - timedelta(minutes=1)


def test_who_gets_a_failed_device_decides_from_then_on(administrator: User, failed: Callable[..., Failure]) -> None:
    failure = failed(2)
    Device.objects.filter(pk=failure.device_id).update(tenant=Tenant.objects.create(name="Elsewhere"))
    for decide in (failure_keep, failure_replace):
        with pytest.raises(Conflict, match="tenant of the device has changed"):
            decide(person=administrator, failure=failure)
    failures_process()
    assert state_of(failure) == (State.ENDED, End.REASSIGNED)
    following = Failure.objects.open().get()
    assert (following.device_id, str(following.tenant), following.state) == (
        failure.device_id, "Elsewhere", State.NOTICED,
    )  # fmt: skip


def test_a_replacement_that_is_refused_is_tried_ever_more_rarely(
    administrator: User, failed: Callable[..., Failure]
) -> None:
    failure = failed(2)
    failure_policy_set(person=administrator, tenant=None, choice="replace")
    Device.objects.filter(pk=failure.device_id).update(endpoint_uri="")

    def refusals() -> int:
        failures_process()
        return AuditEntry.objects.filter(action="failure.replace", outcome="refused").count()

    assert [refusals(), refusals()] == [1, 1]
    assert state_of(failure) == (State.NOTICED, "")
    assert failure.why
    Failure.objects.update(tried_at=timezone.now() - timedelta(hours=1))
    assert refusals() == 2


# --- replacing ----------------------------------------------------------------------------------------------------


def test_with_consent_given_before_a_spare_of_the_pool_takes_its_place_in_the_lease(
    simulator: SimulatorProcess, free_gpu: Device, administrator: User, member: User, failed: Callable[..., Failure]
) -> None:
    chassis = free_gpu.chassis
    tenant, lease = member.tenant, leased(chassis, administrator, member.tenant)
    failure = failed()
    failure_policy_set(person=member, tenant=tenant, choice="replace")
    failures_process()
    assert state_of(failure) == (State.REPLACING, "")
    assert failure.plan is not None
    assert carry_out_plan(failure.plan).state == "done"
    failures_process()
    assert state_of(failure) == (State.ENDED, End.REPLACED)
    broken, spare = gpu(chassis, 1), gpu(chassis, 2)
    assert (broken.host_port, broken.tenant) == (None, None)
    assert (spare.host_port, spare.tenant) == (host_port_of(chassis, "H1"), tenant)
    held = LeaseItem.objects.filter(lease=lease, released_at=None, device__isnull=False)
    assert [item.device for item in held] == [spare]
    assert AuditEntry.objects.get(action="failure.replace").actor_id is None
    assert "drawer1slot1" not in simulator.state()["zones"]["hostport1_H1"]
    assert "drawer1slot2" in simulator.state()["zones"]["hostport1_H1"]


def test_a_device_that_is_gone_is_replaced_once(chassis: Chassis, administrator: User) -> None:
    found(chassis, attached={gpu(chassis, 2): None, gpu(chassis, 4): None})
    gone = device_vanishes(last_walk(chassis), gpu(chassis, 1))
    inventory_apply(chassis=chassis, inventory=gone)
    failure = Failure.objects.get()
    failure_replace(person=administrator, failure=failure, spare=gpu(chassis, 2).pk)
    Operation.objects.update(state=Operation.State.DONE)
    Plan.objects.update(state=Plan.State.DONE)
    failures_process()
    assert state_of(failure) == (State.ENDED, End.REPLACED)
    inventory_apply(chassis=chassis, inventory=gone)
    assert not Failure.objects.open().exists()


@pytest.mark.usefixtures("short_retraining")
def test_a_replacement_that_fails_leaves_everything_as_it_was(
    simulator: SimulatorProcess, free_gpu: Device, administrator: User, member: User, failed: Callable[..., Failure]
) -> None:
    chassis = free_gpu.chassis
    tenant, _lease = member.tenant, leased(chassis, administrator, member.tenant)
    failure = failed()
    simulator.fault("link_downgrade", "drawer1slot2", lanes=1)
    failure_replace(person=member, failure=failure, spare=gpu(chassis, 2).pk)
    failure.refresh_from_db()
    assert failure.plan is not None
    assert carry_out_plan(failure.plan).state == "rolled_back"
    failures_process()
    assert state_of(failure) == (State.KEPT, "")
    assert failure.why
    assert (gpu(chassis, 1).host_port, gpu(chassis, 1).tenant) == (host_port_of(chassis, "H1"), tenant)
    assert (gpu(chassis, 2).host_port, gpu(chassis, 2).tenant) == (None, None)


def test_consent_is_the_tenants_and_counts_once(
    chassis: Chassis, administrator: User, member: User, client: Client, failed: Callable[..., Failure]
) -> None:
    stranger = User.objects.create_user("mallory", role=Role.USER, tenant=Tenant.objects.create(name="Elsewhere"))
    viewer = User.objects.create_user("vic", role=Role.VIEWER, tenant=member.tenant)
    Device.objects.filter(pk=gpu(chassis, 1).pk).update(tenant=member.tenant)
    failure = failed(2)
    with pytest.raises(NotFound):
        failure_get(stranger, failure.pk)
    for person, status in ((stranger, 404), (viewer, 403)):
        client.force_login(person)
        for act in ("replacement", "keeping"):
            assert client.post(f"/failures/{failure.pk}/{act}/", {"spare": gpu(chassis, 2).pk}).status_code == status
    client.force_login(viewer)
    assert "Replace now" not in client.get(f"/failures/{failure.pk}/").content.decode()
    with pytest.raises(Conflict, match="no longer free"):
        failure_replace(person=administrator, failure=failure, spare=gpu(chassis, 5).pk)
    failure_replace(person=administrator, failure=failure, spare=gpu(chassis, 2).pk)
    with pytest.raises(Conflict, match="being replaced already"):
        failure_replace(person=administrator, failure=failure, spare=gpu(chassis, 2).pk)
    with pytest.raises(Conflict, match="being replaced already"):
        failure_keep(person=administrator, failure=failure)


def test_a_policy_is_set_by_its_tenant_and_administrators(administrator: User, member: User, client: Client) -> None:
    other = Tenant.objects.create(name="Elsewhere")
    with pytest.raises(Forbidden):
        failure_policy_set(person=member, tenant=other, choice="replace")
    with pytest.raises(Forbidden):
        failure_policy_set(person=member, tenant=None, choice="replace")
    client.force_login(member)
    assert client.post("/failures/policy/", {"tenant": other.pk, "choice": "replace"}).status_code == 404
    assert client.post("/failures/policy/", {"tenant": member.tenant_id, "choice": "burn"}).status_code == 400
    assert client.post("/failures/policy/", {"tenant": member.tenant_id, "choice": "replace"}).status_code == 302
    assert "Elsewhere" not in client.get("/failures/").content.decode()
    client.force_login(administrator)
    body: dict[str, Any] = {"tenant_id": None, "choice": "keep"}
    answer = client.put("/api/v1/failure-policies/", body, content_type="application/json")
    found_choices = {row["tenant_id"]: row["choice"] for row in answer.json()}
    assert found_choices == {None: "keep", other.pk: "ask", member.tenant_id: "replace"}


def test_the_api_lists_replaces_and_keeps(
    chassis: Chassis, administrator: User, client: Client, failed: Callable[..., Failure]
) -> None:
    failure = failed(2)
    failures_process()
    client.force_login(administrator)
    address = f"/api/v1/failures/{failure.pk}/"
    (row,) = client.get("/api/v1/failures/?state=open").json()["results"]
    assert (row["cause"], row["state"], row["spare_id"]) == ("device", "proposed", gpu(chassis, 2).pk)
    kept = client.post(f"{address}keeping/", {}, content_type="application/json")
    assert (kept.status_code, kept.json()["state"]) == (200, "kept")
    answer = client.post(f"{address}replacement/", {}, content_type="application/json")
    assert (answer.status_code, answer.json()["state"]) == (202, "replacing")
    assert client.get(f"/api/v1/plans/{answer.json()['plan_id']}/").json()["title"].startswith("Replace ")
    assert client.post(f"{address}replacement/", {}, content_type="application/json").status_code == 409


def test_where_two_people_are_needed_a_replacement_waits_for_the_other_one(
    chassis: Chassis, administrator: User, tenant: Tenant, client: Client, failed: Callable[..., Failure]
) -> None:
    Device.objects.filter(pk=gpu(chassis, 1).pk).update(tenant=tenant)
    failure = failed(2)
    failures_process()
    ApprovalPolicy.objects.create(pk=1, dangers=[Danger.TENANT])
    client.force_login(administrator)
    answer = client.post(f"/api/v1/failures/{failure.pk}/replacement/", {}, content_type="application/json")
    approval = ApprovalRequest.objects.get(pk=answer.json()["id"])
    assert (answer.status_code, approval.state, *state_of(failure)) == (202, "waiting", State.PROPOSED, "")
    approval_approve(by=User.objects.create_superuser("ben"), approval=approval)
    assert state_of(failure) == (State.REPLACING, "")
    assert failure.decided_by == administrator
