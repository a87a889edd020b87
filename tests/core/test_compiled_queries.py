"""Queries whose SQL is made once, beside those that Django makes anew."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import transaction
from django.utils import timezone

from accounts.models import Tenant
from core.database import CompiledQuery, find_row, lock_row
from fabric.inventory.models import Chassis, Device, Drawer, Slot
from fabric.operations.models import Operation

pytestmark = pytest.mark.django_db


@pytest.fixture
def chassis() -> Chassis:
    return Chassis.objects.create(name="falcon", url="https://127.0.0.1:1", inventory_at=timezone.now())


def _values(row: object) -> dict[str, object]:
    return {name: value for name, value in vars(row).items() if name != "_state"}


def test_a_row_is_as_django_reads_it_with_its_related_rows_and_without(chassis: Chassis) -> None:
    drawer = Drawer.objects.create(chassis=chassis, uri="/d", name="Drawer")
    slot = Slot.objects.create(chassis=chassis, drawer=drawer, uri="/s", name="Slot", number=1)
    inside = Device.objects.create(chassis=chassis, uri="/1", name="GPU", slot=slot)
    outside = Device.objects.create(chassis=chassis, uri="/2", name="NIC")
    for one in (inside, outside):
        found = find_row(Device, one.pk, "slot__drawer", "chassis", "tenant")
        assert found is not None
        assert not found._state.adding
        wanted = Device.objects.select_related("slot__drawer", "chassis", "tenant").get(pk=one.pk)
        assert found._state.fields_cache.keys() == wanted._state.fields_cache.keys()
        assert _values(found) == _values(wanted)
        assert _values(found.chassis) == _values(chassis)
        assert found.slot == one.slot
        assert found.slot is None or (found.slot.drawer is not None and _values(found.slot.drawer) == _values(drawer))
    assert find_row(Device, outside.pk + 1) is None
    assert find_row(Device, None) is None


def test_values_of_every_type_are_given_beside_constants(chassis: Chassis) -> None:
    done, running = (
        Operation.objects.create(chassis=chassis, kind=Operation.Kind.MODE, state=state, setting={"a": [1]})
        for state in (Operation.State.DONE, Operation.State.RUNNING)
    )
    since_then = Operation.objects.open().only("setting", "requested_at")
    query = CompiledQuery(lambda since, pk: since_then.filter(pk=pk, requested_at__gte=since))
    before = running.requested_at
    found = query.first(before, running.pk)
    assert found is not None
    assert (found.pk, found.setting, found.requested_at) == (running.pk, {"a": [1]}, before)
    assert found.get_deferred_fields() >= {"state", "summary"}
    assert found.state == Operation.State.RUNNING
    assert query.first(before, done.pk) is None
    assert query.first(before + timedelta(microseconds=1), running.pk) is None


def test_a_row_is_locked_as_often_as_it_is_read(chassis: Chassis) -> None:
    for _ in range(2):
        with transaction.atomic():
            assert lock_row(Chassis, chassis.pk) == chassis
            assert lock_row(Chassis, chassis.pk + 1) is None


def test_no_query_takes_another_number_of_values_or_makes_objects_of_values() -> None:
    names = CompiledQuery(lambda pk: Tenant.objects.filter(pk=pk).values_list("name"))
    tenant = Tenant.objects.create(name="blue")
    with pytest.raises(TypeError):
        names.rows()
    assert names.rows(tenant.pk) == [["blue"]]
    with pytest.raises(TypeError):
        names.objects(tenant.pk)
