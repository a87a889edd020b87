"""Whose devices and host ports are: the services, the tenant's page, and the page of the system."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.models import Role, Tenant, User
from core.errors import Conflict, Forbidden, NotFound
from fabric.inventory.models import Chassis, Device, Drawer, Host, HostPort, Slot
from fabric.leases.grants import device_grant, grants_set, host_port_grant
from fabric.leases.ownership_table import PARTS_A_PAGE, ownership_table
from fabric.leases.selectors import ownership_revision
from fabric.operations.models import Operation
from fabric.signals import access_changed
from tests.pages import page_text

pytestmark = pytest.mark.django_db
Commit = Callable[..., Any]


@dataclass
class Lab:
    """A chassis of one drawer with three devices and two host ports; the first of each belongs to One."""

    ada: User
    bob: User
    one: Tenant
    two: Tenant
    chassis: Chassis
    devices: list[Device]
    ports: list[HostPort]

    def holders(self) -> list[str]:
        """Return who holds what: devices, then host ports."""
        rows: list[Device | HostPort] = [*Device.objects.order_by("pk"), *HostPort.objects.order_by("pk")]
        return [row.tenant.name if row.tenant else "" for row in rows]

    def busy(self, device: Device, **more: Any) -> Operation:
        """Open an operation."""
        return Operation.objects.create(
            kind="attach", chassis=self.chassis, device=device, summary="Attach it", requested_by_name="bob", **more
        )

    def client(self, person: User) -> Client:
        client = Client()
        client.force_login(person)
        return client


@pytest.fixture
def lab() -> Lab:
    one, two = (Tenant.objects.create(name=name) for name in ("One", "Two"))
    chassis = Chassis.objects.create(
        name="falcon-9", url="https://127.0.0.1:1", model="Falcon 4016", serial_number="SN-9", firmware_version="1.2.3",
        inventory_at=timezone.now(),
    )  # fmt: skip
    drawer = Drawer.objects.create(chassis=chassis, uri="/d", name="Drawer 1", number=1)
    ports = [
        HostPort.objects.create(
            chassis=chassis, uri=f"/h{number}", name=f"H{number}", endpoint_uri=f"/e{number}", drawer=drawer,
            label=f"H{number}", number=number, host=Host.objects.create(name=f"node-{number}", identity=str(number)),
        )
        for number in (1, 2)
    ]  # fmt: skip
    devices = [
        Device.objects.create(
            chassis=chassis, uri=f"/g{number}", name=f"GPU {number}", kind="gpu",
            slot=Slot.objects.create(
                chassis=chassis, uri=f"/s{number}", name=f"slot {number}", drawer=drawer, number=number
            ),
        )
        for number in (1, 2, 3)
    ]  # fmt: skip
    for row in (devices[0], ports[0]):
        row.tenant = one
        row.save()
    ada = User.objects.create_superuser("ada", password="x")
    bob = User.objects.create_user("bob", password="x", role=Role.USER, tenant=one)
    return Lab(ada, bob, one, two, chassis, devices, ports)


@pytest.fixture
def access_changes() -> Iterator[list[object]]:
    """Collect what was said of changed access."""
    heard: list[object] = []

    def listen(sender: object, **kwargs: object) -> None:
        heard.append(sender)

    access_changed.connect(listen)
    yield heard
    access_changed.disconnect(listen)


def test_a_granted_device_is_seen_by_its_tenant_and_a_freed_one_no_more(lab: Lab) -> None:
    device = lab.devices[1]
    assert device_grant(person=lab.ada, device=device, tenant=lab.one).tenant == lab.one
    assert set(Device.objects.visible_to(lab.bob)) == set(lab.devices[:2])
    assert device_grant(person=lab.ada, device=device, tenant=None).tenant is None
    assert set(Device.objects.visible_to(lab.bob)) == {lab.devices[0]}
    assert host_port_grant(person=lab.ada, host_port=lab.ports[1], tenant=lab.one).tenant == lab.one
    assert set(HostPort.objects.visible_to(lab.bob)) == set(lab.ports)


def test_what_another_tenant_holds_must_be_taken_explicitly(lab: Lab) -> None:
    with pytest.raises(Conflict, match=r"GPU 1 \(falcon-9 Drawer 1\) is granted to One"):
        device_grant(person=lab.ada, device=lab.devices[0], tenant=lab.two)
    with pytest.raises(Conflict, match=r"Host port H1 \(falcon-9\) is granted to One"):
        host_port_grant(person=lab.ada, host_port=lab.ports[0], tenant=lab.two)
    assert lab.holders() == ["One", "", "", "One", ""]
    device_grant(person=lab.ada, device=lab.devices[0], tenant=lab.two, take=True)
    host_port_grant(person=lab.ada, host_port=lab.ports[0], tenant=lab.two, take=True)
    assert lab.holders() == ["Two", "", "", "Two", ""]


def test_a_set_of_grants_is_all_or_nothing(lab: Lab) -> None:
    with pytest.raises(Conflict, match="granted to One"):
        grants_set(person=lab.ada, tenant=lab.two, devices=lab.devices, host_ports=lab.ports, take=lab.devices)
    assert lab.holders() == ["One", "", "", "One", ""]
    take: list[Device | HostPort] = [*lab.devices, *lab.ports]
    grants_set(person=lab.ada, tenant=lab.two, devices=lab.devices, host_ports=lab.ports[:1], take=take)
    assert lab.holders() == ["Two", "Two", "Two", "Two", ""]
    grants_set(person=lab.ada, tenant=lab.two, devices=lab.devices[1:2], host_ports=[])
    assert lab.holders() == ["", "Two", "", "", ""]


def test_taking_a_device_takes_no_host_port_of_the_same_number(lab: Lab) -> None:
    port = HostPort.objects.create(
        pk=lab.devices[0].pk + 500, chassis=lab.chassis, uri="/h9", endpoint_uri="/e9", label="H9", tenant=lab.one
    )
    device = Device.objects.create(pk=port.pk, chassis=lab.chassis, uri="/g9", name="GPU 9")
    with pytest.raises(Conflict, match="H9"):
        grants_set(person=lab.ada, tenant=lab.two, devices=[device], host_ports=[port], take=[device])


def test_nothing_changes_hands_while_an_operation_on_it_is_open(lab: Lab) -> None:
    operation = lab.busy(lab.devices[0])
    with pytest.raises(Conflict, match="bob asked to 'Attach it', which has not ended"):
        device_grant(person=lab.ada, device=lab.devices[0], tenant=None)
    with pytest.raises(Conflict, match="GPU 1 cannot be granted now"):
        grants_set(person=lab.ada, tenant=lab.one, devices=[], host_ports=[])
    # What does not change hands is in nobody's way.
    grants_set(person=lab.ada, tenant=lab.one, devices=lab.devices[:2], host_ports=[])
    assert lab.holders() == ["One", "One", "", "", ""]
    Operation.objects.filter(pk=operation.pk).update(state="done")
    assert device_grant(person=lab.ada, device=lab.devices[0], tenant=None).tenant is None


@pytest.mark.parametrize("end", ["source", "target"])
def test_a_host_port_stays_while_a_device_is_on_its_way(lab: Lab, end: str) -> None:
    lab.busy(lab.devices[0], **{end: lab.ports[0]})
    with pytest.raises(Conflict, match=r"Host port H1 \(falcon-9\) cannot be granted now"):
        host_port_grant(person=lab.ada, host_port=lab.ports[0], tenant=None)
    assert host_port_grant(person=lab.ada, host_port=lab.ports[1], tenant=lab.two).tenant == lab.two


def test_only_administrators_grant(lab: Lab) -> None:
    with pytest.raises(Forbidden):
        device_grant(person=lab.bob, device=lab.devices[1], tenant=lab.one)
    with pytest.raises(Forbidden):
        host_port_grant(person=lab.bob, host_port=lab.ports[1], tenant=lab.one)
    with pytest.raises(Forbidden):
        grants_set(person=lab.bob, tenant=lab.one, devices=lab.devices, host_ports=[])
    assert lab.holders() == ["One", "", "", "One", ""]


def test_a_tenant_that_is_gone_gets_nothing(lab: Lab) -> None:
    gone = Tenant.objects.create(name="Gone")
    Tenant.objects.filter(pk=gone.pk).delete()
    with pytest.raises(NotFound):
        device_grant(person=lab.ada, device=lab.devices[1], tenant=gone)


def test_access_is_announced_after_the_commit_and_for_changes_alone(
    lab: Lab, access_changes: list[object], django_capture_on_commit_callbacks: Commit
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        grants_set(person=lab.ada, tenant=lab.one, devices=lab.devices[:1], host_ports=lab.ports[:1])
    assert access_changes == []
    with django_capture_on_commit_callbacks(execute=True):
        grants_set(person=lab.ada, tenant=lab.one, devices=lab.devices, host_ports=lab.ports)
        assert access_changes == []
    assert access_changes == [Device, HostPort]


def test_the_page_shows_who_holds_each_thing_by_drawer(lab: Lab) -> None:
    answer = lab.client(lab.ada).get(reverse("fabric:tenant", args=[lab.two.pk]))
    (group,) = answer.context["ownership"].groups
    assert (group.chassis, group.drawer) == ("falcon-9", "Drawer 1")
    taken = [thing.part.tenant not in {None, lab.two} for thing in (*group.devices, *group.host_ports)]
    assert taken == [True, False, False, True, False]
    text = page_text(answer)
    assert f'name="take_devices" value="{lab.devices[0].pk}"' in text
    assert f'name="devices" value="{lab.devices[1].pk}"' in text
    assert "Take from One: GPU 1, falcon-9 slot 1" in text
    assert "style=" not in text


def test_the_page_says_what_stands_in_the_way(lab: Lab) -> None:
    Device.objects.filter(pk=lab.devices[0].pk).update(host_port=lab.ports[1], missing_since=timezone.now())
    lab.busy(lab.devices[0])
    (group,) = ownership_table()
    assert group.devices[0].notes == ("missing", "an operation is open: Attach it", "its host port H2 is unassigned")


def test_the_page_grants_takes_and_frees(lab: Lab) -> None:
    client = lab.client(lab.ada)
    address = reverse("fabric:tenant_grants", args=[lab.two.pk])
    page = reverse("fabric:tenant", args=[lab.two.pk])
    answer = client.post(
        address,
        {"seen": client.get(page).context["seen"], "devices": [lab.devices[1].pk], "host_ports": [lab.ports[1].pk],
         "take_devices": [lab.devices[0].pk]},
        follow=True,
    )  # fmt: skip
    assert "Two now owns or leases 2 devices and 1 host port." in answer.content.decode()
    assert lab.holders() == ["Two", "Two", "", "One", "Two"]
    answer = client.post(address, {"seen": answer.context["seen"]}, follow=True)
    assert "Two now owns or leases nothing." in answer.content.decode()
    assert lab.holders() == ["", "", "", "One", ""]


def test_parts_of_the_tenant_that_are_not_on_the_page_stay_its_own(lab: Lab) -> None:
    rows = Device.objects.bulk_create(
        Device(chassis=lab.chassis, uri=f"/o{number}", name=f"Drive {number}", kind="nvme", tenant=lab.two)
        for number in range(PARTS_A_PAGE + 9)
    )
    client, page = lab.client(lab.ada), reverse("fabric:tenant", args=[lab.two.pk])
    for query in ({}, {"page": "2"}, {"q": "gpu 2"}, {"q": "nothing of the kind"}):
        shown = client.get(page, query).context["ownership"]
        ticked = [row.part.pk for group in shown.groups for row in group.devices if row.part.tenant_id == lab.two.pk]
        sent = {"seen": client.get(page).context["seen"], "devices": [*map(str, ticked), shown.kept["devices"]]}
        assert len(ticked) <= PARTS_A_PAGE
        assert client.post(reverse("fabric:tenant_grants", args=[lab.two.pk]), sent).status_code == 302
        assert Device.objects.filter(tenant=lab.two).count() == len(rows)
    found = client.get(page, {"q": "gpu 2"}).context["ownership"]
    assert [row.part.name for group in found.groups for row in group.devices] == ["GPU 2"]


def test_a_page_that_is_out_of_date_changes_nothing(lab: Lab) -> None:
    seen = ownership_revision()
    device_grant(person=lab.ada, device=lab.devices[1], tenant=lab.one)
    for tenant in (lab.one, lab.two):
        address = reverse("fabric:tenant_grants", args=[tenant.pk])
        answer = lab.client(lab.ada).post(address, {"seen": seen, "devices": [lab.devices[2].pk]}, follow=True)
        assert "Somebody changed grants since you opened the page." in answer.content.decode()
    assert lab.holders() == ["One", "One", "", "One", ""]


def test_nonsense_in_the_form_grants_nothing(lab: Lab) -> None:
    address = reverse("fabric:tenant_grants", args=[lab.two.pk])
    values = {"seen": ownership_revision(), "devices": ["x", "-1", "9" * 30, "²", "999999"]}
    assert lab.client(lab.ada).post(address, values).status_code == 302
    assert lab.holders() == ["One", "", "", "One", ""]


def test_a_tenant_is_renamed_on_its_page(lab: Lab) -> None:
    client, address = lab.client(lab.ada), reverse("fabric:tenant", args=[lab.two.pk])
    answer = client.post(address, {"name": "one"})
    assert answer.status_code == 400
    assert list(answer.context["form"].errors) == ["name"]
    assert client.post(address, {"name": "Three"}).status_code == 302
    lab.two.refresh_from_db()
    assert lab.two.name == "Three"
    assert client.get(reverse("fabric:tenant", args=[10**6])).status_code == 404


def test_every_post_is_refused_to_members(lab: Lab) -> None:
    viewer = User.objects.create_user("eve", password="x", role=Role.VIEWER, tenant=lab.one)
    for person in (lab.bob, viewer):
        for name in ("tenant", "tenant_grants", "tenant_removal"):
            values = {"name": "Mine", "seen": ownership_revision(), "take_devices": [lab.devices[0].pk]}
            assert lab.client(person).post(reverse(f"fabric:{name}", args=[lab.two.pk]), values).status_code == 403
    assert lab.holders() == ["One", "", "", "One", ""]
    assert Tenant.objects.filter(name="Two").exists()


def test_the_list_of_tenants_says_what_each_holds(lab: Lab) -> None:
    rows = lab.client(lab.ada).get(reverse("accounts:tenants")).context["rows"]
    assert [(row.tenant.name, row.people, row.assets) for row in rows] == [
        ("One", 1, ("1 device", "1 host port")),
        ("Two", 0, ()),
    ]


def test_the_system_page_shows_versions_chassis_and_sign_ins(lab: Lab) -> None:
    answer = lab.client(lab.ada).get(reverse("fabric:system"))
    text = answer.content.decode()
    database = f"{connection.display_name} "
    for word in (database, "falcon-9", "Falcon 4016", "SN-9", "1.2.3", "bob", "This is your first session"):
        assert word in text
    assert dict(answer.context["counts"]) == {
        "Hosts": 2, "Drawers": 1, "Switch chips": 0, "Host ports": 2, "Devices": 3,
    }  # fmt: skip
    assert answer.context["kinds"] == [("GPU", 3)]
    assert "from the previous session" in lab.client(lab.ada).get(reverse("fabric:system")).content.decode()
