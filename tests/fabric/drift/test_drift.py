"""What differs from the approved allocation: noticed once, told who did it, never mistaken for what nobody could read.

The change is made behind the site's back, on a real simulated chassis, by another account of its BMC.
"""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.models import Tenant, User
from fabric.bmc.errors import BmcError
from fabric.bmc.types import DrawerMode
from fabric.drift.approvals import operation_result_approve
from fabric.drift.models import Drift
from fabric.drift.selectors import drift_rows, drift_views
from fabric.inventory.models import Chassis, Device, Drawer, HostPort, Port
from fabric.inventory.sync import inventory_apply
from fabric.operations.models import Operation
from fabric.operations.services import mode_request, operation_request
from falconweb.testing import SimulatorProcess, carry_out, device_in, host_port_of, mirror
from tests.fabric.inventory.test_sync import walked
from tests.fabric.outside import configure, explain, put, recable, turn
from tests.fabric.walks import found, last_walk, with_device
from tests.turns import in_turn

Kind = Drift.Kind


def open_drift() -> list[tuple[str, str, str]]:
    """Return what is not as approved: kind, found, approved."""
    rows = Drift.objects.filter(ended_at=None).order_by("kind", "uri")
    return [(row.kind, row.found_words, row.expected_words) for row in rows]


def only() -> Drift:
    row: Drift = Drift.objects.get()
    return row


# --- what is approved ---------------------------------------------------------------------------------------------


def test_what_is_found_at_first_is_approved(chassis: Chassis) -> None:
    assert open_drift() == []
    for device in Device.objects.all():
        assert device.approved_at is not None
        assert device.approved_host_port == device.host_port
    for drawer in Drawer.objects.all():
        assert (drawer.approved_mode, drawer.approved_at is not None) == (drawer.mode, True)
    for host_port in HostPort.objects.all():
        assert host_port.approved_host == host_port.host
    for port in Port.objects.exclude(port_type=""):
        assert (port.approved_type, port.approved_width) == (port.port_type, port.configured_width)


def test_a_site_of_before_approves_what_its_next_walk_finds(chassis: Chassis) -> None:
    for model in (Device, Drawer, HostPort, Port):
        model.objects.update(approved_at=None)
    Device.objects.update(approved_host_port=None)
    found(chassis)
    assert open_drift() == []
    assert device_in(chassis, drawer=1, slot=1).approved_host_port == host_port_of(chassis, "H1")


@pytest.mark.usefixtures("simulator")
def test_what_an_operation_did_is_approved(chassis: Chassis, administrator: User) -> None:
    card = device_in(chassis, drawer=1, slot=7)
    target = host_port_of(chassis, "H2")
    operation = operation_request(person=administrator, device=card, target=target)
    done = carry_out(operation)
    assert done.state == "done"
    operation_result_approve(done)
    card.refresh_from_db()
    assert card.approved_host_port == target
    assert card.approved_at == done.finished_at
    mirror(chassis)
    operation_result_approve(done)
    assert not Drift.objects.exists()


@pytest.mark.usefixtures("simulator")
def test_the_end_of_an_operation_that_nobody_told_is_found_by_the_walk(chassis: Chassis, administrator: User) -> None:
    card, target = device_in(chassis, drawer=1, slot=7), host_port_of(chassis, "H2")
    drawer = Drawer.objects.get(number=2)
    mode = DrawerMode.STANDARD_TWO_HOSTS if drawer.mode == DrawerMode.ADVANCED else DrawerMode.ADVANCED
    for operation in (
        operation_request(person=administrator, device=card, target=target),
        mode_request(person=administrator, drawer=drawer, mode=mode),
    ):
        assert carry_out(operation).state == "done"
    # As if the worker had died right after it.
    Device.objects.filter(pk=card.pk).update(approved_host_port=None, approved_at=chassis.inventory_at)
    Drawer.objects.filter(pk=drawer.pk).update(approved_mode=drawer.mode, approved_at=chassis.inventory_at)
    mirror(chassis)
    card.refresh_from_db()
    drawer.refresh_from_db()
    assert (card.approved_host_port, drawer.approved_mode) == (target, mode)
    assert not Drift.objects.exists()


# --- what differs -------------------------------------------------------------------------------------------------


def test_a_device_that_is_moved_behind_the_sites_back_is_noticed_by_the_next_walk(
    chassis: Chassis, simulator: SimulatorProcess
) -> None:
    gpu, before = device_in(chassis, drawer=1, slot=1), timezone.now()
    put(chassis, simulator, gpu, to=host_port_of(chassis, "H2"))
    mirror(chassis)
    drift = only()
    assert (drift.kind, drift.device, drift.expected_words, drift.found_words) == (
        Kind.ATTACHMENT, gpu, "node-a (H1)", "node-b (H2)",
    )  # fmt: skip
    assert drift.not_before is not None
    assert drift.not_before < before < drift.noticed_at
    explain(chassis)
    drift.refresh_from_db()
    assert (drift.cause, drift.originator, drift.origin_address) == (Drift.Cause.LOG, "operator", "127.0.0.1")
    assert drift.changed_at is not None
    assert "Zone" in drift.log_message


def test_who_moved_a_device_is_found_although_the_clock_of_the_bmc_was_set_forward_since(
    chassis: Chassis, simulator: SimulatorProcess
) -> None:
    put(chassis, simulator, device_in(chassis, drawer=1, slot=1), to=host_port_of(chassis, "H2"))
    mirror(chassis)
    simulator.set_clock(3600)
    explain(chassis)
    assert (only().cause, only().originator) == (Drift.Cause.LOG, "operator")


def test_it_is_noticed_once_and_asked_about_once(chassis: Chassis, simulator: SimulatorProcess) -> None:
    put(chassis, simulator, device_in(chassis, drawer=1, slot=1), to=None)
    mirror(chassis)
    explain(chassis)
    first = only()
    found(chassis)
    explain(chassis)
    again = only()
    assert (again.pk, again.noticed_at, again.log_asked_at) == (first.pk, first.noticed_at, first.log_asked_at)


def test_what_is_as_approved_again_has_gone_away(chassis: Chassis) -> None:
    gpu, home = device_in(chassis, drawer=1, slot=1), host_port_of(chassis, "H1")
    found(chassis, attached={gpu: host_port_of(chassis, "H2")})
    found(chassis, attached={gpu: None})
    # Elsewhere again: one drift ended and another began, so that each says what was found when.
    assert open_drift() == [(Kind.ATTACHMENT, "no host", "node-a (H1)")]
    assert Drift.objects.get(found_words="node-b (H2)").end == Drift.End.SUPERSEDED
    found(chassis, attached={gpu: home})
    assert open_drift() == []
    assert Drift.objects.get(found_words="no host").end == Drift.End.WENT_AWAY


def test_a_mode_that_was_changed_is_noticed_and_explained(chassis: Chassis, simulator: SimulatorProcess) -> None:
    drawer = Drawer.objects.get(number=2)
    was = drawer.mode
    turn(
        chassis, simulator, drawer, DrawerMode.ADVANCED if was != DrawerMode.ADVANCED else DrawerMode.STANDARD_TWO_HOSTS
    )
    mirror(chassis)
    explain(chassis)
    drift = only()
    assert (drift.kind, drift.drawer, drift.expected, drift.originator) == (Kind.MODE, drawer, was, "operator")


def test_a_cable_that_was_moved_is_noticed_and_when(chassis: Chassis, simulator: SimulatorProcess) -> None:
    # What somebody does with a device of that host port is no word about its cable.
    put(chassis, simulator, device_in(chassis, drawer=1, slot=7), to=host_port_of(chassis, "H2"))
    recable(simulator, "H2", "node-c")
    mirror(chassis)
    explain(chassis)
    drift = Drift.objects.get(kind=Kind.CABLE)
    Drift.objects.exclude(pk=drift.pk).delete()
    Device.objects.update(approved_at=None)
    assert (drift.kind, drift.expected_words, drift.found_words) == (Kind.CABLE, "node-b", "node-c")
    # Hands in the lab sign in nowhere.
    assert (drift.cause, drift.originator) == (Drift.Cause.LOG, "")
    recable(simulator, "H2", None)
    mirror(chassis)
    assert open_drift() == [(Kind.CABLE, "no host", "node-b")]
    recable(simulator, "H2", "node-b")
    mirror(chassis)
    assert open_drift() == []


def test_a_port_that_was_configured_is_noticed_and_explained(chassis: Chassis, simulator: SimulatorProcess) -> None:
    port = device_in(chassis, drawer=1, slot=7).slot.port  # type: ignore[union-attr]
    assert port is not None
    configure(chassis, simulator, port, PortType="UnconfiguredPort")
    mirror(chassis)
    explain(chassis)
    drift = Drift.objects.get(kind=Kind.PORT)
    assert (drift.port, drift.device, drift.originator) == (port, device_in(chassis, drawer=1, slot=7), "operator")
    assert drift.found.startswith("UnconfiguredPort")


def test_a_device_that_was_swapped_is_told_as_such(chassis: Chassis, tenant: Tenant) -> None:
    gpu = device_in(chassis, drawer=1, slot=1)
    Device.objects.filter(pk=gpu.pk).update(tenant=tenant)
    inventory = last_walk(chassis)
    swapped = with_device(inventory, gpu.uri, serial_number="ANOTHER")
    for _ in range(2):
        inventory_apply(chassis=chassis, inventory=swapped)
    drift = only()
    assert (drift.kind, drift.expected, drift.found) == (Kind.DEVICE, gpu.serial_number, "ANOTHER")
    inventory_apply(chassis=chassis, inventory=with_device(inventory, gpu.uri, serial_number="A THIRD"))
    assert Drift.objects.get(ended_at=None).expected == gpu.serial_number
    inventory_apply(chassis=chassis, inventory=inventory)
    assert open_drift() == []
    assert Drift.objects.get(found="A THIRD").end == Drift.End.WENT_AWAY


def test_a_missing_device_is_missing_and_drifts_when_it_comes_back_elsewhere(
    chassis: Chassis, simulator: SimulatorProcess
) -> None:
    removal = simulator.fault("surprise_removal", "drawer1slot1")
    for _ in range(2):
        mirror(chassis)
    assert not Drift.objects.exists()
    simulator.end_fault(removal)
    mirror(chassis)
    assert open_drift() == [(Kind.ATTACHMENT, "no host", "node-a (H1)")]
    simulator.fault("surprise_removal", "drawer1slot1")
    mirror(chassis)
    assert only().end == Drift.End.SUPERSEDED


# --- operations at the same time ----------------------------------------------------------------------------------


def test_what_an_operation_is_about_is_judged_when_it_has_ended(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    card, gpu = device_in(chassis, drawer=1, slot=7), device_in(chassis, drawer=1, slot=1)
    operation = operation_request(person=administrator, device=card, target=host_port_of(chassis, "H2"))
    for device in (card, gpu):
        put(chassis, simulator, device, to=host_port_of(chassis, "H3"))
    found(chassis, attached=dict.fromkeys((card, gpu), host_port_of(chassis, "H3")))
    # The other device is nobody's to wait for.
    assert [row.device for row in Drift.objects.all()] == [gpu]
    assert carry_out(operation).state == "failed"
    found(chassis)
    assert open_drift() == [
        (Kind.ATTACHMENT, "node-c (H3)", "node-a (H1)"),
        (Kind.ATTACHMENT, "node-c (H3)", "no host"),
    ]
    assert Drift.objects.get(device=card).cause == Drift.Cause.UNKNOWN  # the operation did not put it there


@pytest.mark.usefixtures("simulator")
def test_a_walk_that_began_before_an_operation_ended_judges_nothing_of_it(
    chassis: Chassis, administrator: User
) -> None:
    card = device_in(chassis, drawer=1, slot=7)
    begun, old = timezone.now(), walked(chassis)
    operation = operation_request(person=administrator, device=card, target=host_port_of(chassis, "H2"))
    done = carry_out(operation)
    operation_result_approve(done)
    inventory_apply(chassis=chassis, inventory=old, begun_at=begun)
    assert not Drift.objects.exists()
    mirror(chassis)
    assert not Drift.objects.exists()


def test_what_a_failed_operation_left_is_told_with_the_operation(
    chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    gpu = device_in(chassis, drawer=1, slot=1)
    operation = operation_request(person=administrator, device=gpu, target=host_port_of(chassis, "H2"))
    put(chassis, simulator, gpu, to=None)
    # As it is when a worker dies between detach and attach, and the BMC stays away until the operation is given up.
    now = timezone.now()
    Operation.objects.filter(pk=operation.pk).update(
        state="failed", started_at=now, finished_at=now, error="The chassis did not answer."
    )
    mirror(chassis)
    drift = only()
    assert (drift.cause, drift.operation, drift.found_words) == (Drift.Cause.OPERATION, operation, "no host")
    explain(chassis)
    assert only().log_asked_at is None
    (view,) = drift_views(administrator, drift_rows(administrator))
    assert view.because.startswith(f"‘{operation.summary}’, requested by ada, did not finish")


def test_an_operation_that_failed_long_ago_is_not_blamed(chassis: Chassis, administrator: User) -> None:
    gpu = device_in(chassis, drawer=1, slot=1)
    operation = operation_request(person=administrator, device=gpu, target=host_port_of(chassis, "H2"))
    then = timezone.now() - timedelta(hours=1)
    Device.objects.update(approved_at=then - timedelta(hours=1))
    Operation.objects.filter(pk=operation.pk).update(state="failed", started_at=then, finished_at=then)
    found(chassis, attached={gpu: None})
    assert only().cause == Drift.Cause.UNKNOWN


# --- what cannot be read ------------------------------------------------------------------------------------------


UNREAD = (
    "/Chassis/drawer1",
    "/Systems",
    "/Systems/node-a",
    "/Fabrics/PCIe",
    "/Switches/drawer1_switch/Ports",
    "/Fabrics/PCIe/Zones",
    "/Zones/hostport1_H1",
    "/Zones/hostport2_H2",
    "/Endpoints/hostport1_H1",
    "/Endpoints/drawer1slot1",
)


def test_what_could_not_be_read_neither_drifts_nor_ends_a_drift(chassis: Chassis, simulator: SimulatorProcess) -> None:
    put(chassis, simulator, device_in(chassis, drawer=1, slot=1), to=host_port_of(chassis, "H2"))
    mirror(chassis)
    before = list(Drift.objects.values())
    for path in in_turn(UNREAD, 0, of=2):
        fault = simulator.fault("server_error", path=path)
        with contextlib.suppress(BmcError):
            mirror(chassis)
        assert list(Drift.objects.values()) == before, path
        simulator.end_fault(fault)
    mirror(chassis)
    assert list(Drift.objects.values()) == before


def test_a_mode_that_is_not_told_for_a_moment_is_no_drift(chassis: Chassis) -> None:
    told = {drawer: DrawerMode(drawer.mode) for drawer in Drawer.objects.all()}
    found(chassis, modes=dict.fromkeys(told, DrawerMode.UNKNOWN))
    assert not Drift.objects.exists()
    found(chassis, modes=told)
    assert not Drift.objects.exists()


def test_a_bmc_that_is_away_is_asked_again_and_one_without_a_log_is_not(
    chassis: Chassis, simulator: SimulatorProcess
) -> None:
    gpu = device_in(chassis, drawer=1, slot=1)
    put(chassis, simulator, gpu, to=None)
    found(chassis, attached={gpu: None})
    away = simulator.fault("server_error", path="/Managers")
    explain(chassis)
    assert only().log_asked_at is None
    simulator.end_fault(away)
    explain(chassis)
    assert (only().cause, only().originator) == (Drift.Cause.LOG, "operator")


def test_what_somebody_else_did_before_is_no_answer(chassis: Chassis, simulator: SimulatorProcess) -> None:
    gpu, other = device_in(chassis, drawer=1, slot=1), device_in(chassis, drawer=1, slot=7)
    put(chassis, simulator, other, to=host_port_of(chassis, "H3"))
    found(chassis, attached={other: host_port_of(chassis, "H3")})
    # A change of another zone tells nothing about this device.
    put(chassis, simulator, gpu, to=None)
    found(chassis, attached={gpu: None})
    explain(chassis)
    told = Drift.objects.get(device=gpu)
    assert "hostport1_H1" in told.log_message


# --- what it costs ------------------------------------------------------------------------------------------------


def queries_of(chassis: Chassis, inventory: Any) -> int:
    with CaptureQueriesContext(
        connection,
    ) as asked:
        inventory_apply(chassis=chassis, inventory=inventory)
    return sum("drift" in one["sql"] or "fabric_attachment" in one["sql"] for one in asked.captured_queries)


def test_a_walk_without_news_asks_two_questions_more(chassis: Chassis) -> None:
    inventory = last_walk(chassis)
    inventory_apply(chassis=chassis, inventory=inventory)
    assert queries_of(chassis, inventory) == 2
