"""Drift accepted and re-applied: by whom it may be, all or none, by two at once, and when it has changed meanwhile."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.audit.models import AuditEntry
from accounts.models import Tenant, User
from core.errors import Conflict, FalconWebError, Forbidden, NotFound
from fabric.bmc.types import DrawerMode
from fabric.drift.approvals import operation_result_approve
from fabric.drift.models import Drift
from fabric.drift.selectors import drift_rows, drift_views
from fabric.drift.services import ReapplyEffects, drifts_accept, drifts_reapply, drifts_reapply_effects
from fabric.inventory.labels import FOREIGN_HOST_PORT, part_name
from fabric.inventory.models import Chassis, Device, Drawer, HostPort, Port, Slot
from fabric.leases.grants import device_grant, host_port_grant
from fabric.operations.models import Operation, Plan
from fabric.operations.services import operation_request
from falconweb.testing import SimulatorProcess, carry_out, device_in, host_port_of, mirror
from tests.fabric.outside import explain, put, recable, turn
from tests.fabric.walks import found
from tests.pages import page_text

Act = Callable[..., Any]


@pytest.fixture
def theirs(chassis: Chassis, administrator: User, tenant: Tenant) -> tuple[Device, HostPort, HostPort]:
    """A GPU that is attached to the tenant's host port, and another host port of the tenant's."""
    gpu, home, other = device_in(chassis, drawer=1, slot=1), host_port_of(chassis, "H1"), host_port_of(chassis, "H2")
    device_grant(person=administrator, device=gpu, tenant=tenant)
    for port in (home, other):
        host_port_grant(person=administrator, host_port=port, tenant=tenant)
    return gpu, home, other


def signed_in(person: User) -> Client:
    client = Client()
    client.force_login(person)
    return client


def work_off(plan: Plan) -> None:
    """Do the workers' part of a plan."""
    while (operation := Operation.objects.open().filter(plan=plan).in_turn().first()) is not None:
        operation_result_approve(carry_out(operation))


# --- accept -------------------------------------------------------------------------------------------------------


def test_what_is_accepted_is_approved_from_then_on(chassis: Chassis, administrator: User) -> None:
    gpu, there = device_in(chassis, drawer=1, slot=1), host_port_of(chassis, "H2")
    found(chassis, attached={gpu: there})
    (ended,) = drifts_accept(person=administrator, drifts=[Drift.objects.get().pk])
    assert (ended.end, ended.ended_by_name) == (Drift.End.ACCEPTED, "ada")
    gpu.refresh_from_db()
    assert gpu.approved_host_port == there
    found(chassis)
    assert Drift.objects.count() == 1
    entry = AuditEntry.objects.get(action="drift.accept")
    assert (entry.actor_name, entry.outcome) == ("ada", "done")
    assert list((entry.after or {}).values()) == ["node-b (H2)"]


def test_a_mode_a_cable_and_a_swapped_device_are_accepted(chassis: Chassis, administrator: User) -> None:
    drawer = Drawer.objects.get(number=2)
    mode = DrawerMode.STANDARD_TWO_HOSTS if drawer.mode == DrawerMode.ADVANCED else DrawerMode.ADVANCED
    found(
        chassis,
        modes={drawer: mode},
        cables={host_port_of(chassis, "H2"): host_port_of(chassis, "H3")},
        devices={device_in(chassis, drawer=1, slot=1): {"serial_number": "ANOTHER"}},
    )
    drifts = list(Drift.objects.values_list("pk", flat=True))
    assert len(drifts) == 3
    drifts_accept(person=administrator, drifts=drifts)
    found(chassis)
    assert not Drift.objects.filter(ended_at=None).exists()
    drawer.refresh_from_db()
    assert (drawer.approved_mode, host_port_of(chassis, "H2").approved_host) == (
        mode, host_port_of(chassis, "H3").host,
    )  # fmt: skip


@pytest.mark.usefixtures("transactional_db")
def test_of_two_who_accept_at_once_one_is_told_that_the_other_did(chassis: Chassis, administrator: User) -> None:
    found(chassis, attached={device_in(chassis, drawer=1, slot=1): None})
    drift, outcomes = Drift.objects.get(), []
    together = threading.Barrier(2)

    def accept() -> None:
        try:
            together.wait()
            drifts_accept(person=administrator, drifts=[drift.pk])
            outcomes.append("done")
        except Conflict as error:
            outcomes.append(error.sentence)
        finally:
            connection.close()

    threads = [threading.Thread(target=accept) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    refused = next(one for one in outcomes if one != "done")
    assert outcomes.count("done") == 1
    assert "ada accepted it at" in refused


def test_what_has_changed_again_is_not_accepted_and_nothing_beside_it(chassis: Chassis, administrator: User) -> None:
    first, second = device_in(chassis, drawer=1, slot=1), device_in(chassis, drawer=1, slot=2)
    found(chassis, attached=dict.fromkeys((first, second), host_port_of(chassis, "H2")))
    seen = list(Drift.objects.values_list("pk", flat=True))
    found(chassis, attached={first: host_port_of(chassis, "H3")})
    with pytest.raises(Conflict, match="has changed again") as refused:
        drifts_accept(person=administrator, drifts=seen)
    assert len(refused.value.details["differences"]) == 1
    assert Drift.objects.filter(end=Drift.End.ACCEPTED).count() == 0


def test_what_an_operation_has_read_back_since_is_not_accepted(chassis: Chassis, administrator: User) -> None:
    gpu = device_in(chassis, drawer=1, slot=1)
    found(chassis, attached={gpu: host_port_of(chassis, "H2")})
    operation = operation_request(person=administrator, device=gpu, target=host_port_of(chassis, "H3"))
    seen = [Drift.objects.get().pk]
    with pytest.raises(Conflict, match="is being changed: ada asked to 'Move"):
        drifts_accept(person=administrator, drifts=seen)
    Operation.objects.filter(pk=operation.pk).update(state="failed", finished_at=timezone.now())
    Device.objects.filter(pk=gpu.pk).update(host_port=host_port_of(chassis, "H3"))
    with pytest.raises(Conflict, match=r"it is node-c \(H3\) now, not node-b \(H2\)"):
        drifts_accept(person=administrator, drifts=seen)


# --- re-apply -----------------------------------------------------------------------------------------------------


def test_what_is_re_applied_is_as_it_was_approved(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    first, second = device_in(chassis, drawer=1, slot=1), device_in(chassis, drawer=1, slot=2)
    put(chassis, simulator, first, to=host_port_of(chassis, "H2"))
    put(chassis, simulator, second, to=None)
    mirror(chassis)
    plan = drifts_reapply(person=administrator, drifts=list(Drift.objects.values_list("pk", flat=True)))
    assert (plan.origin, plan.state, plan.requested_by) == ("drift", "running", administrator)
    work_off(plan)
    assert {one.end for one in Drift.objects.all()} == {Drift.End.REAPPLIED}
    assert {one.ended_by_name for one in Drift.objects.all()} == {"ada"}
    zone = simulator.state()["zones"]["hostport1_H1"]
    assert {"drawer1slot1", "drawer1slot2"} <= set(zone)
    mirror(chassis)
    assert not Drift.objects.filter(ended_at=None).exists()


def test_a_mode_is_re_applied(chassis: Chassis, simulator: SimulatorProcess, administrator: User) -> None:
    drawer = Drawer.objects.get(number=2)
    was = drawer.mode
    turn(
        chassis, simulator, drawer, DrawerMode.STANDARD_TWO_HOSTS if was == DrawerMode.ADVANCED else DrawerMode.ADVANCED
    )
    mirror(chassis)
    work_off(drifts_reapply(person=administrator, drifts=[Drift.objects.get().pk]))
    mirror(chassis)
    drawer.refresh_from_db()
    assert (drawer.mode, Drift.objects.get().end) == (was, Drift.End.REAPPLIED)


def test_a_swapped_device_is_for_hands_in_the_lab(chassis: Chassis, administrator: User) -> None:
    gpu = device_in(chassis, drawer=1, slot=1)
    found(chassis, devices={gpu: {"serial_number": "ANOTHER"}})
    with pytest.raises(Conflict, match="reinstall the approved device"):
        drifts_reapply(person=administrator, drifts=[Drift.objects.get().pk])
    assert not Plan.objects.exists()


def test_what_cannot_be_re_applied_leaves_no_plan_behind(chassis: Chassis, administrator: User) -> None:
    gpu = device_in(chassis, drawer=1, slot=1)
    found(chassis, attached={gpu: host_port_of(chassis, "H2")})
    operation_request(person=administrator, device=gpu, target=None)
    with pytest.raises(FalconWebError):
        drifts_reapply(person=administrator, drifts=[Drift.objects.get().pk])
    assert not Plan.objects.exists()


# --- who may ------------------------------------------------------------------------------------------------------


def test_a_tenant_sees_what_differs_of_its_own_and_names_no_host_of_others(
    chassis: Chassis,
    member: User,
    theirs: tuple[Device, HostPort, HostPort],
) -> None:
    found(chassis, attached={theirs[0]: host_port_of(chassis, "H3"), device_in(chassis, drawer=1, slot=2): None})
    Drift.objects.update(cause=Drift.Cause.LOG, originator="operator", origin_address="127.0.0.1")
    (view,) = drift_views(member, drift_rows(member))
    assert (view.expected, view.found) == ("node-a (H1)", FOREIGN_HOST_PORT)
    assert view.because.startswith("An account of the site’s operators changed it")
    assert (view.may_accept, view.may_reapply) == (False, False)
    pages = ["/", "/drift/", f"/drift/{view.id}/", "/fabric/", f"/devices/{theirs[0].pk}/"]
    for page in [*pages, "/api/v1/drift/"]:
        text = signed_in(member).get(page).content.decode()
        assert FOREIGN_HOST_PORT in text or page == "/fabric/"
        assert "node-c" not in text
        assert "127.0.0.1" not in text


def test_to_read_much_takes_no_more_queries_than_to_read_little(
    chassis: Chassis, member: User, tenant: Tenant, django_assert_max_num_queries: Callable[..., Any]
) -> None:
    Device.objects.update(tenant=tenant)
    HostPort.objects.update(tenant=tenant)
    about: list[tuple[str, str, Any]] = [
        *(("attachment", "device", one) for one in Device.objects.all()),
        *(("cable", "host_port", one) for one in HostPort.objects.all()),
        *(("mode", "drawer", one) for one in Drawer.objects.all()),
        *(("port", "port", one.port) for one in Slot.objects.filter(device__isnull=False)),
    ]
    for kind, name, part in about:
        Drift.objects.create(
            chassis=chassis, kind=kind, uri=part.uri, what=str(part), noticed_at=timezone.now(), **{name: part},
            **({"device": part.slot.device} if kind == "port" else {}),
        )  # fmt: skip
    with django_assert_max_num_queries(8):
        views = drift_views(member, drift_rows(member))
    assert len(views) == len(about) > 8
    assert all(view.may_accept for view in views if view.kind != "cable")


def test_a_tenant_does_not_see_what_differed_before_it_held_the_device(
    chassis: Chassis, administrator: User, member: User, tenant: Tenant
) -> None:
    gpu = device_in(chassis, drawer=1, slot=1)
    found(chassis, attached={gpu: host_port_of(chassis, "H3")})
    device_grant(person=administrator, device=gpu, tenant=tenant)
    assert not drift_rows(member).exists()
    assert drift_rows(administrator).count() == 1


@pytest.mark.parametrize("act", [drifts_accept, drifts_reapply])
def test_who_may_accept_and_re_apply(
    act: Act,
    chassis: Chassis,
    member: User,
    viewer: User,
    theirs: tuple[Device, HostPort, HostPort],
) -> None:
    gpu, _, other = theirs
    found(
        chassis,
        attached={gpu: other},
        modes={Drawer.objects.get(number=2): DrawerMode.ADVANCED},
        cables={host_port_of(chassis, "H2"): host_port_of(chassis, "H3")},
    )
    stranger = User.objects.create_user("mallory", role="user", tenant=Tenant.objects.create(name="Strangers"))
    own = Drift.objects.get(device=gpu)
    with pytest.raises(NotFound):
        act(person=stranger, drifts=[own.pk])
    with pytest.raises(Forbidden):
        act(person=viewer, drifts=[own.pk])
    for drift in drift_rows(member).exclude(pk=own.pk):
        with pytest.raises(Forbidden):
            act(person=member, drifts=[own.pk, drift.pk])
    act(person=member, drifts=[own.pk])


def test_a_tenant_brings_its_device_back_from_where_it_may_compose_alone(
    chassis: Chassis,
    administrator: User,
    member: User,
    theirs: tuple[Device, HostPort, HostPort],
) -> None:
    gpu, home, other = theirs
    found(chassis, attached={gpu: other})
    host_port_grant(person=administrator, host_port=home, tenant=None)
    drift = Drift.objects.get(device=gpu)
    with pytest.raises(Forbidden, match="approved for a host port that is not granted to your tenant"):
        drifts_reapply(person=member, drifts=[drift.pk])
    drifts_accept(person=member, drifts=[drift.pk])


# --- faces --------------------------------------------------------------------------------------------------------


def test_the_pages_say_what_differs_and_change_it_by_one_click(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    gpu, drawer = device_in(chassis, drawer=1, slot=1), Drawer.objects.get(number=2)
    client = signed_in(administrator)
    assert "Nothing has drifted" in client.get("/drift/").content.decode()
    put(chassis, simulator, gpu, to=host_port_of(chassis, "H2"))
    turn(chassis, simulator, drawer, DrawerMode.STANDARD_TWO_HOSTS if drawer.mode == DrawerMode.ADVANCED
         else DrawerMode.ADVANCED)  # fmt: skip
    recable(simulator, "H4", None)
    mirror(chassis)
    explain(chassis)
    for page in (
        "/drift/", "/fabric/", "/fabric/?view=list", reverse("fabric:chassis", args=[chassis.pk]),
        reverse("fabric:device", args=[gpu.pk]), reverse("fabric:slot", args=[gpu.slot_id]),
        reverse("fabric:drawer", args=[drawer.pk]), reverse("fabric:port", args=[host_port_of(chassis, "H4").port_id]),
    ):  # fmt: skip
        assert "≠" in client.get(page).content.decode(), page
    assert f"{gpu.name} (Drawer 1 slot 1) is attached to node-b (H2), approved is node-a (H1)." in (
        client.get("/").content.decode()
    )
    text = client.get("/drift/").content.decode()
    assert "The account ‘operator’ from 127.0.0.1 changed it" in text
    drift = Drift.objects.get(device=gpu)
    answer = client.post(reverse("fabric:drift_accept"), {"only": drift.pk, "next": f"/devices/{gpu.pk}/"})
    assert (answer.status_code, answer["Location"]) == (302, f"/devices/{gpu.pk}/")
    answer = client.post(reverse("fabric:drift_accept"), {"only": drift.pk, "next": "https://elsewhere.example/"})
    assert answer["Location"] == "/drift/"
    assert "ada accepted it at" in client.get("/drift/").content.decode()
    assert "Accepted by ada" in client.get("/drift/?show=ended").content.decode()
    answer = client.post(reverse("fabric:drift_reapply"), {"drift": [Drift.objects.get(drawer=drawer).pk]})
    assert answer["Location"] == reverse("fabric:plan", args=[Plan.objects.get().pk])


def agreed_to(answer: Any) -> dict[str, Any]:
    """Return what the page that asks before anything is done sends when its button is pressed."""
    fields = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', page_text(answer))
    return {name: [value for other, value in fields if other == name] for name, _ in fields}


def test_before_a_cable_is_re_applied_the_page_says_what_is_taken_out_and_that_hands_are_needed(
    chassis: Chassis, administrator: User
) -> None:
    port = host_port_of(chassis, "H2")
    attached = list(Device.objects.filter(host_port=port))
    assert attached, "the lab has devices at node-b"
    found(chassis, cables={host_port_of(chassis, "H2"): host_port_of(chassis, "H3")})
    drift, client = Drift.objects.get(), signed_in(administrator)
    assert "somebody must move the cable at the chassis" in page_text(client.get(f"/drift/{drift.pk}/"))
    answer = client.post(reverse("fabric:drift_reapply"), {"only": drift.pk})
    text = page_text(answer)
    assert answer.status_code == 200
    assert "Somebody must move a cable at the chassis." in text
    assert f"The cable of Host port H2 of {chassis.name}, from node-c to node-b" in text
    assert "The plan waits 10 minutes for it." in text
    assert f"{len(attached)} devices are detached immediately." in text
    assert all(f"<li>{part_name(device)}</li>" in text for device in attached)
    assert part_name(device_in(chassis, drawer=1, slot=1)) not in text, "it is at H1"
    assert not Plan.objects.exists()
    answer = client.post(reverse("fabric:drift_reapply"), agreed_to(answer))
    plan = Plan.objects.get()
    assert answer["Location"] == reverse("fabric:plan", args=[plan.pk])
    out = plan.operations.filter(kind="detach").values_list("device", flat=True)
    assert set(out) == {device.pk for device in attached}


def test_what_somebody_agreed_to_is_not_done_when_other_devices_would_go_out(
    chassis: Chassis, administrator: User
) -> None:
    gpu, port = device_in(chassis, drawer=1, slot=1), host_port_of(chassis, "H2")
    found(chassis, cables={host_port_of(chassis, "H2"): host_port_of(chassis, "H3")})
    drift, client = Drift.objects.get(), signed_in(administrator)
    fields = agreed_to(client.post(reverse("fabric:drift_reapply"), {"only": drift.pk}))
    assert gpu.name not in drifts_reapply_effects(person=administrator, drifts=[drift.pk]).detached
    Device.objects.filter(pk=gpu.pk).update(host_port=port, approved_host_port=port)
    with pytest.raises(Conflict, match="Re-applying would detach other devices"):
        drifts_reapply(person=administrator, drifts=[drift.pk], agreed=fields["agreed"][0])
    again = client.post(reverse("fabric:drift_reapply"), fields)
    assert again.status_code == 200
    assert "Drawer 1 slot 1" in again.content.decode()
    assert not Plan.objects.exists()
    client.post(reverse("fabric:drift_reapply"), agreed_to(again))
    assert gpu.pk in set(Plan.objects.get().operations.filter(kind="detach").values_list("device", flat=True))


def test_a_port_that_is_re_applied_names_the_device_that_it_takes_out(chassis: Chassis, administrator: User) -> None:
    gpu = device_in(chassis, drawer=1, slot=1)
    port = Port.objects.get(slot__device=gpu)
    found(chassis, ports={port: {"configured_width": 8}})
    ahead = drifts_reapply_effects(person=administrator, drifts=[Drift.objects.get(kind="port").pk])
    assert ahead.detached == (part_name(gpu),)
    assert not ahead.cables


def test_who_may_not_re_apply_is_told_nothing_of_what_is_ahead_and_the_attempt_is_on_record(
    chassis: Chassis, member: User, theirs: tuple[Device, HostPort, HostPort]
) -> None:
    found(chassis, cables={host_port_of(chassis, "H2"): host_port_of(chassis, "H3")})
    drift = Drift.objects.get()
    assert drifts_reapply_effects(person=member, drifts=[drift.pk]) == ReapplyEffects()
    assert signed_in(member).post(reverse("fabric:drift_reapply"), {"only": drift.pk}).status_code == 403
    assert AuditEntry.objects.get(action="drift.reapply").outcome == "refused"
    assert not Plan.objects.exists()


def test_all_of_a_chassis_is_accepted_at_once(chassis: Chassis, administrator: User) -> None:
    found(chassis, attached={device_in(chassis, drawer=1, slot=slot): None for slot in (1, 2, 3)})
    client = signed_in(administrator)
    client.post(reverse("fabric:drift_accept"), {"chassis": chassis.pk})
    assert Drift.objects.filter(end=Drift.End.ACCEPTED).count() == 3
    answer = client.post("/api/v1/drift/re-application/", {"chassis_id": chassis.pk}, content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")


def test_the_api_accepts_re_applies_and_tells_the_difference(chassis: Chassis, administrator: User) -> None:
    first, second = device_in(chassis, drawer=1, slot=1), device_in(chassis, drawer=1, slot=2)
    found(chassis, attached={first: None, second: None})
    client, json = signed_in(administrator), "application/json"
    listed = {one["device_id"]: one for one in client.get("/api/v1/drift/?state=open").json()["results"]}
    assert (listed[first.pk]["expected"], listed[first.pk]["found"]) == ("node-a (H1)", "no host")
    accept = {"drift_ids": [listed[first.pk]["id"]]}
    assert client.post("/api/v1/drift/acceptance/", accept, content_type=json).json()[0]["end"] == "accepted"
    again = client.post("/api/v1/drift/acceptance/", accept, content_type=json)
    assert (again.status_code, len(again.json()["differences"])) == (409, 1)
    answer = client.post("/api/v1/drift/re-application/", {"drift_ids": [listed[second.pk]["id"]]}, content_type=json)
    assert (answer.status_code, answer.json()["origin"]) == (202, "drift")
    assert answer["Location"].endswith(f"/api/v1/plans/{answer.json()['id']}/")
    ended = client.get(f"/api/v1/drift/?state=ended&chassis_id={chassis.pk}").json()["results"]
    assert [one["ended_by_name"] for one in ended] == ["ada"]


@pytest.mark.parametrize(
    "body",
    [{}, {"drift_ids": []}, {"drift_ids": ["x"]}, {"drift_ids": [1], "chassis_id": 1}, {"drift_ids": [0]}, [], 1],
)
def test_nonsense_is_refused_with_its_place(chassis: Chassis, administrator: User, body: Any) -> None:
    client = signed_in(administrator)
    for name in ("drift_accept", "drift_reapply"):
        answer = client.post(reverse(f"api:{name}"), body, content_type="application/json")
        assert answer.status_code == 400
        assert client.post(reverse(f"fabric:{name}"), {"drift": "x"}).status_code == 404
        assert client.post(reverse(f"fabric:{name}"), {}).status_code == 400
