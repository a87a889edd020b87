"""An event is of whoever held the thing when it happened, however late it comes to be known."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from accounts.models import Role, Tenant, User
from fabric.bmc.events import RedfishEvent as Record
from fabric.history.models import Attachment
from fabric.inventory.models import Chassis, Device, Drawer, Host, HostPort, Port, Slot, Switch
from fabric.inventory.selectors import ReadingOwner
from fabric.leases.models import Tenure
from telemetry.events.ingestion import log_records_ingest, stream_records_ingest
from telemetry.events.models import Event
from telemetry.events.services import event_record

pytestmark = pytest.mark.django_db
R = "/redfish/v1"
DRAWER = f"{R}/Chassis/drawer1"
SLOT = f"{DRAWER}/PCIeSlots#/Slots/0"
DOWN = f"{R}/Fabrics/PCIe/Switches/s/Ports/P1"
UP = f"{R}/Fabrics/PCIe/Switches/s/Ports/H1"
OLD, NEW = f"{DRAWER}/PCIeDevices/old", f"{DRAWER}/PCIeDevices/new"


@dataclass
class Past:
    """A slot in which a device of One was until an hour ago; since then there is one that Two holds since long ago."""

    chassis: Chassis
    drawer: Drawer
    slot: Slot
    down: Port
    up: Port
    host_port: HostPort
    host: Host
    old: Device
    new: Device
    one: User
    two: User
    now: datetime = field(default_factory=timezone.now)

    @property
    def before(self) -> datetime:
        """When the old device was in the slot."""
        return self.now - timedelta(hours=3)

    @property
    def moved(self) -> datetime:
        """When the new one came."""
        return self.now - timedelta(hours=1)

    def tells(self, *records: tuple[str, datetime], owners: dict[str, ReadingOwner] | None = None) -> list[Event]:
        """Let the log tell of resources at moments, read just now; returns the events."""
        told = [
            Record(
                event_id=str(number), message_id="Test.1.0.Told", message=f"Told {number}.", severity="Warning",
                timestamp=at.isoformat(), origin_uri=uri, entry_uri=f"/log/{number}",
            )
            for number, (uri, at) in enumerate(records)
        ]  # fmt: skip
        log_records_ingest(chassis_id=self.chassis.pk, records=told, owners=owners or {}, ahead=timedelta(0))
        return list(Event.objects.order_by("pk"))


@pytest.fixture
def past() -> Past:
    """See Past."""
    now = timezone.now()
    one, two = (Tenant.objects.create(name=name) for name in ("One", "Two"))
    chassis = Chassis.objects.create(name="falcon", url="https://127.0.0.1:1", uri=f"{R}/Chassis/falcon")
    drawer = Drawer.objects.create(chassis=chassis, uri=DRAWER, name="Drawer 1", number=1)
    switch = Switch.objects.create(chassis=chassis, uri=f"{R}/Fabrics/PCIe/Switches/s", name="Switch", drawer=drawer)
    down, up = (Port.objects.create(chassis=chassis, uri=uri, name=uri[-2:], switch=switch) for uri in (DOWN, UP))
    slot = Slot.objects.create(chassis=chassis, uri=SLOT, name="Slot 1", drawer=drawer, port=down, number=1)
    Slot.objects.create(chassis=chassis, uri=f"{DRAWER}/PCIeSlots#/Slots/1", name="Slot 2", drawer=drawer, number=2)
    host = Host.objects.create(identity="node-2", name="node-2")
    host_port = HostPort.objects.create(
        chassis=chassis, uri=f"{R}/Fabrics/PCIe/Zones/H1", name="H1", label="H1", endpoint_uri=f"{R}/E/H1", port=up,
        drawer=drawer, host=host, tenant=two, tenant_since=now - timedelta(minutes=90),
    )  # fmt: skip
    old = Device.objects.create(chassis=chassis, uri=OLD, name="GPU old", tenant=one, endpoint_uri=f"{R}/E/D1",
                                tenant_since=now - timedelta(days=9), missing_since=now)  # fmt: skip
    new = Device.objects.create(chassis=chassis, uri=NEW, name="GPU new", tenant=two, endpoint_uri=f"{R}/E/D1",
                                tenant_since=now - timedelta(days=9), slot=slot, host_port=host_port)  # fmt: skip
    ann, bob = (
        User.objects.create_user(name, password="x", role=Role.USER, tenant=tenant)
        for name, tenant in (("ann", one), ("bob", two))
    )
    found = Past(chassis, drawer, slot, down, up, host_port, host, old, new, ann, bob, now)
    common: dict[str, Any] = {"chassis": chassis, "origin": "found", "host_port": host_port, "host_port_label": "H1"}
    days = now - timedelta(days=9)
    Attachment.objects.create(device=old, device_name="GPU old", slot=slot, host_name="node-1", tenant=one,
                              since=days, until=found.moved, **common)  # fmt: skip
    Attachment.objects.create(device=new, device_name="GPU new", since=days, until=found.moved, origin="found",
                              chassis=chassis)  # fmt: skip
    Attachment.objects.create(device=new, device_name="GPU new", slot=slot, host_name="node-2", tenant=two,
                              since=found.moved, **common)  # fmt: skip
    for device, tenant in ((old, one), (new, two)):
        Tenure.objects.create(device=device, tenant=tenant, tenant_name=tenant.name, kind="gpu", name="x",
                              began_at=days)  # fmt: skip
    Tenure.objects.create(host_port=host_port, tenant=one, tenant_name="One", kind="host_port", name="x",
                          began_at=days, ended_at=now - timedelta(hours=2))  # fmt: skip
    return found


@pytest.mark.parametrize("uri", [DOWN, SLOT, f"{R}/E/D1"])
def test_what_the_log_tells_late_of_a_slot_is_of_the_device_that_was_in_it_then(past: Past, uri: str) -> None:
    then, since = past.tells((uri, past.before), (uri, past.now))
    assert (then.device_id, then.tenant_name) == ((past.old.pk, "One") if "/E/" not in uri else (None, ""))
    assert (since.device_id, since.tenant_name) == (past.new.pk, "Two")
    assert {one.drawer_id for one in (then, since)} <= {past.drawer.pk, None}
    assert list(Event.objects.visible_to(past.two)) == [since]
    assert set(Event.objects.visible_to(past.one)) == ({then} if "/E/" not in uri else set())


def test_a_device_is_found_by_its_own_resource_wherever_it_was_then(past: Past) -> None:
    old, before, after = past.tells((OLD, past.before), (NEW, past.before), (NEW, past.now))
    assert (old.device_id, old.port_id, old.tenant_name) == (past.old.pk, past.down.pk, "One")
    assert (before.device_id, before.port_id, before.tenant_name) == (past.new.pk, None, "Two")
    assert (after.device_id, after.port_id, after.drawer_id) == (past.new.pk, past.down.pk, past.drawer.pk)


def test_a_host_port_is_of_the_tenant_and_of_the_host_that_had_it_then(past: Past) -> None:
    ones, nobodys, late, now = past.tells(
        (UP, past.before),
        (UP, past.now - timedelta(minutes=100)),
        (UP, past.now - timedelta(minutes=80)),
        (UP, past.now),
    )
    assert [one.tenant_name for one in (ones, nobodys, late, now)] == ["One", "", "Two", "Two"]
    assert [one.host_id for one in (ones, nobodys, late, now)] == [None, None, None, past.host.pk]
    assert set(Event.objects.visible_to(past.two)) == {late, now}
    assert past.tells((f"{R}/E/H1", past.now - timedelta(minutes=30)))[-1].host_id == past.host.pk


def test_where_no_history_tells_it_is_nobodys(past: Past) -> None:
    long_ago = past.now - timedelta(days=20)
    rows = past.tells((DOWN, long_ago), (UP, long_ago), (NEW, long_ago))
    assert [row.tenant_id for row in rows] == [None, None, None]
    assert rows[0].device_id is None
    Tenure.objects.all().delete()
    Device.objects.update(tenant_since=None)
    row = past.tells((NEW, past.now - timedelta(minutes=10)))[-1]
    assert (row.device_id, row.tenant_id) == (past.new.pk, None)


def test_a_device_that_was_swapped_in_its_place_leaves_the_events_of_the_one_before_behind(past: Past) -> None:
    Tenure.objects.filter(device=past.old).update(ended_at=past.moved)
    Device.objects.filter(pk=past.old.pk).update(tenant=past.two.tenant, tenant_since=past.moved)
    before, after = past.tells((OLD, past.before), (OLD, past.now))
    assert (before.tenant_name, after.tenant_name) == ("One", "Two")


def test_what_the_site_itself_says_of_a_port_is_of_who_had_it_then(past: Past) -> None:
    named: dict[str, Any] = {"source": "site", "message_id": "FalconWeb.1.0.LinkWorse", "severity": "Warning",
                             "text": "x", "chassis_id": past.chassis.pk}  # fmt: skip
    found = [event_record(port_id=past.down.pk, at=at, **named) for at in (past.before, past.now)]
    assert [one and (one.device_id, one.tenant_name) for one in found] == [(past.old.pk, "One"), (past.new.pk, "Two")]
    found = [event_record(port_id=past.up.pk, at=at, **named) for at in (past.before, past.now)]
    assert [one and (one.host_id, one.tenant_name) for one in found] == [(None, "One"), (past.host.pk, "Two")]
    found = [event_record(device_id=past.new.pk, at=at, **named) for at in (past.before, past.now)]
    # In no slot that the chassis names it was in no drawer that is known: so the log is read, too.
    assert [one and (one.drawer_id, one.port_id) for one in found] == [(None, None), (past.drawer.pk, past.down.pk)]
    told = past.tells((NEW, past.before), (NEW, past.now))[-2:]
    assert [(one.drawer_id, one.port_id) for one in told] == [(None, None), (past.drawer.pk, past.down.pk)]


@pytest.mark.parametrize(
    ("related", "is_device"),
    [
        ((SLOT,), True), ((NEW,), True), ((DOWN,), True), ((f"{NEW}/PCIeFunctions/0",), True),
        ((NEW, f"{NEW}/PCIeFunctions/0"), True), ((DRAWER,), False), ((), False), (("/redfish/v1/Nowhere/1",), False),
        ((NEW, UP), False), ((f"{DRAWER}/Sensors/temp",), False), ((f"{R}/E/D1",), True),
    ],
)  # fmt: skip
def test_an_event_of_a_sensor_is_of_the_device_that_it_measures(
    past: Past, related: tuple[str, ...], is_device: bool
) -> None:
    sensor = f"{DRAWER}/Sensors/temp"
    owners = {sensor: ReadingOwner("drawer", past.drawer.pk, "Slot 1 temperature", related)}
    (row,) = past.tells((sensor, past.now), owners=owners)
    assert row.drawer_id == past.drawer.pk
    assert row.subject_name.endswith(": Slot 1 temperature")
    assert (row.device_id, row.tenant_name) == ((past.new.pk, "Two") if is_device else (None, ""))


def test_a_sensor_of_a_slot_that_the_stream_told_late_is_of_the_device_of_then(past: Past) -> None:
    sensor = f"{DRAWER}/Thermal#/Temperatures/0"
    owners = {sensor: ReadingOwner("drawer", past.drawer.pk, "Slot 1", (SLOT,))}
    record = Record(event_id="1", message_id="Test.1.0.Hot", message="Hot.", severity="Critical",
                    timestamp=past.before.isoformat(), origin_uri=sensor, stream_id="1")  # fmt: skip
    stream_records_ingest(
        chassis_id=past.chassis.pk, stream_uri="/sse", records=[record], owners=owners, ahead=timedelta(0), live=False
    )
    row = Event.objects.get()
    assert (row.device_id, row.tenant_name, row.subject_name) == (past.old.pk, "One", "GPU old: Slot 1")


def test_sensors_that_name_each_other_end_nowhere(past: Past) -> None:
    sensors = [f"{DRAWER}/Sensors/{name}" for name in "ab"]
    owners = {
        one: ReadingOwner("drawer", past.drawer.pk, "x", (other,))
        for one, other in zip(sensors, sensors[::-1], strict=True)
    }
    (row,) = past.tells((sensors[0], past.now), owners=owners)
    assert (row.drawer_id, row.device_id) == (past.drawer.pk, None)
