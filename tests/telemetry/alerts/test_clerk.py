"""The thread between engines and database: nothing that turned is lost while the database is away, nor out of order."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from django.db import connection
from django.utils import timezone

from fabric.bmc.series import LINK_STATUSES, ChassisReading, Quantity, ReadingSeries
from fabric.bmc.types import Inventory
from fabric.inventory.models import Device
from fabric.inventory.selectors import ReadingOwner
from falconweb.sqlite.base import limit_lock_wait
from telemetry.alerts import services
from telemetry.alerts import watch as module
from telemetry.alerts.models import Alert, Rule
from telemetry.alerts.services import NOT_ABOUT_IT
from telemetry.alerts.watch import AlertWatch, AlertWriter
from telemetry.live.catalogue import ReadingContext, SeriesCatalogue
from tests.telemetry.alerts.conftest import Lab, check_of, turn
from tests.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def watch(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[AlertWatch]:
    """A watch over the lab's chassis with a clerk of its own."""
    own = AlertWriter()
    monkeypatch.setattr("telemetry.alerts.watch.alert_writer", lambda: own)
    monkeypatch.setattr(module, "RETRY_DELAYS", (0.1,))
    made = AlertWatch(lab.chassis.pk)
    yield made
    thread = own._thread
    own.remove(made)
    assert own.flush(10)
    if thread is not None:
        thread.join(60)  # it lets go of its connection after it has written: a test after this one may allow none


@pytest.mark.skipif("connection.vendor != 'sqlite'", reason="SQLite is locked by whoever writes")
def test_what_turns_while_the_database_is_locked_is_kept_afterwards_in_order(
    lab: Lab, watch: AlertWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = services.transitions_record
    tries: list[object] = []

    def hurried(**values: object) -> None:
        tries.append(values)
        with limit_lock_wait(0.2):
            patient(**values)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "transitions_record", hurried)
    hot, warm = check_of(lab.device), check_of(lab.other)
    own = watch._writer
    with closing(sqlite3.connect(str(connection.settings_dict["NAME"]), isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        own.queue(lab.chassis.pk, [turn(hot, "pending", at=1000.0), turn(warm, "pending", at=1000.0)])
        own.queue(lab.chassis.pk, [turn(hot, "firing", at=1003.0), turn(warm, "gone", at=1003.0)])
        own.queue(lab.chassis.pk, [turn(warm, "firing", at=1010.0), turn(hot, "resolved", at=1020.0)])
        wait_for(lambda: len(tries) > 2)
        assert not own.flush(0)
    assert own.flush(10)
    rows = Alert.objects.order_by("device").values_list("state", "device")
    assert list(rows) == [("resolved", lab.device.pk), ("firing", lab.other.pk)]
    row = Alert.objects.get(device=lab.device)
    assert row.fired_at is not None
    assert row.resolved_at is not None
    assert (row.fired_at.timestamp(), row.resolved_at.timestamp()) == (1003.0, 1020.0)


def test_what_comes_without_end_is_bounded(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 10)
    idle = AlertWriter()  # without a watch it has no thread
    idle.queue(lab.chassis.pk, [turn(check_of(lab.device, key=str(number)), "firing") for number in range(50)])
    assert len(idle._transitions) == 10
    assert not idle.flush(0)


def test_a_watch_of_a_chassis_that_is_gone_harms_nobody(lab: Lab, watch: AlertWatch) -> None:
    lab.chassis.delete()
    watch.lost("It is away.")
    assert watch._writer.flush(5)
    watch.lost("It is away.")
    assert watch._writer.flush(5)


def test_the_thread_ends_with_the_last_watch_and_comes_back_with_the_next(lab: Lab, watch: AlertWatch) -> None:
    own = watch._writer
    own.remove(watch)
    wait_for(lambda: own._thread is None)
    own.add(watch)
    own.queue(lab.chassis.pk, [turn(check_of(lab.device), "firing")])
    assert own.flush(5)
    assert Alert.objects.count() == 1


class Links:
    """A watch that is told the state of one port's link, again and again."""

    def __init__(self, watch: AlertWatch, port: int) -> None:
        self.watch, self.at = watch, time.time() - 600
        series = [
            ReadingSeries(property="/p#/LinkStatus", owner_uri="/p", quantity=Quantity.LINK_STATUS),
            ReadingSeries(property="/p#/Width", owner_uri="/p", quantity=Quantity.LINK_WIDTH),
        ]
        self.catalogue = SeriesCatalogue(series, {"/p": ReadingOwner("port", port)})
        watch.begin(ReadingContext(watch.chassis_id, self.catalogue, Inventory(), {}))

    def take(self, after: float) -> None:
        """Tell that it is down and has 4 lanes, so many seconds after the last time."""
        self.at += after
        self.watch.take(self.catalogue.sample(ChassisReading(at=self.at, values=(LINK_STATUSES["LinkDown"], 4.0))))

    def states(self, after: float) -> list[str]:
        """Tell it once more, and return the states of the alerts that are kept by then."""
        self.take(after)
        assert self.watch._writer.flush(5)
        return list(Alert.objects.values_list("state", flat=True))


@pytest.fixture
def links(lab: Lab, watch: AlertWatch, monkeypatch: pytest.MonkeyPatch) -> Links:
    """The link of the lab's device."""
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(module, "REPLAN_SECONDS", 0.1)
    assert lab.device.slot is not None
    assert lab.device.slot.port_id is not None
    return Links(watch, lab.device.slot.port_id)


def test_a_rule_for_what_a_tenant_holds_lets_go_of_what_changes_hands(lab: Lab, links: Links) -> None:
    rule = Rule.objects.create(
        name="Own links", metric="link_status", condition="differs", value=4.0, scope="tenant", tenant=lab.tenant
    )
    wait_for(lambda: links.states(0.01) == ["firing"])
    assert Alert.objects.get().rule == rule
    Device.objects.filter(pk=lab.device.pk).update(tenant=lab.others, tenant_since=timezone.now())
    wait_for(lambda: links.states(0.01) == ["resolved"])
    assert Alert.objects.get().resolved_because == NOT_ABOUT_IT
