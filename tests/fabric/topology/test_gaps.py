"""What a BMC lacks is on the page of its chassis, for administrators, in the words of the profile."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from accounts.models import Tenant, User
from fabric.bmc.gaps import ProfileGap
from fabric.bmc.types import Inventory
from fabric.inventory.models import Chassis, Walk
from fabric.inventory.sync import inventory_apply

pytestmark = pytest.mark.django_db
LACK = ProfileGap(
    purpose="Health", resource="Port", property="LinkStatus", missing=3, of=16, examples=("/redfish/v1/F/<b>/Ports/1",),
    reason="It says whether a link is up: without it a device is attached, its link unknown.",
)  # fmt: skip


@pytest.fixture
def chassis() -> Chassis:
    row = Chassis.objects.create(name="box", url="https://127.0.0.1:2")
    inventory_apply(chassis=row, inventory=Inventory(gaps=(LACK,)))
    return row


def page(client: Client, person: User, chassis: Chassis) -> str:
    client.force_login(person)
    return client.get(reverse("fabric:chassis", args=[chassis.pk])).content.decode()


def test_an_administrator_reads_what_is_missing_where_and_why(
    chassis: Chassis, administrator: User, client: Client
) -> None:
    text = page(client, administrator, chassis)
    for words in (
        "Missing: 1 for health",
        "3 of 16: Port has no LinkStatus.",
        LACK.reason,
        "/F/&lt;b&gt;/Ports/1",
        "and 2 more",
    ):
        assert words in text
    assert text.count("Nothing is missing.") == 2
    client.cookies["django_language"] = "de"
    assert "LinkStatus" in page(client, administrator, chassis)


@pytest.mark.parametrize("found", [{}, {"gaps": None}])
def test_a_walk_that_was_not_judged_says_nothing_of_it(
    chassis: Chassis, administrator: User, client: Client, found: dict[str, None]
) -> None:
    Walk.objects.update(found=found)
    assert 'id="gaps"' not in page(client, administrator, chassis)


def test_a_tenant_reads_nothing_of_it(chassis: Chassis, client: Client) -> None:
    ann = User.objects.create_user("ann", password="x", tenant=Tenant.objects.create(name="One"))
    assert "LinkStatus" not in page(client, ann, chassis)
