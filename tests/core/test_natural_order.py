"""The natural order of names in the database."""

from __future__ import annotations

import pytest

from accounts.models import Tenant
from core.database import natural
from fabric.inventory.models import Chassis, Drawer

pytestmark = pytest.mark.django_db


def test_numbers_inside_names_are_ordered_as_numbers_in_any_case() -> None:
    names = ["Big-1", "big-2", "BIG-10", "big-100", "big-100a", "falcon"]
    Tenant.objects.bulk_create(Tenant(name=name) for name in reversed(names))
    assert list(Tenant.objects.values_list("name", flat=True)) == names
    assert list(Tenant.objects.order_by(natural("name").desc()).values_list("name", flat=True)) == names[::-1]


def test_parts_are_in_the_order_of_their_chassis() -> None:
    for number in (10, 9):
        chassis = Chassis.objects.create(name=f"falcon-{number}", url=f"https://127.0.0.1:{number}")
        Drawer.objects.create(chassis=chassis, uri="/d", name=f"Drawer of {number}")
    assert list(Drawer.objects.values_list("name", flat=True)) == ["Drawer of 9", "Drawer of 10"]
