"""What a worker keeps between operations of a chassis: one session serves them, and ends soon after the last one."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from django.db import connections

from accounts.models import User
from fabric.execution import lanes as lanes_module
from fabric.execution.claims import OperationClaim
from fabric.execution.lanes import OperationLane, WarmLanes
from fabric.execution.services import carry_out
from fabric.inventory.models import Chassis, Device, HostPort
from fabric.operations.models import Operation
from fabric.operations.services import operation_request
from falconweb.testing import SimulatorProcess
from tests.waiting import wait_for


@pytest.fixture
def lanes(chassis: Chassis) -> Iterator[WarmLanes]:
    """Lanes as those of a worker, whose sessions have all ended in the end."""
    opened = WarmLanes()
    opened.open()
    yield opened
    opened.close()
    assert all(thread.name != "lanes" for thread in threading.enumerate())


def sessions(simulator: SimulatorProcess) -> Counter[str]:
    """Return how many sessions the BMC was asked to create (POST) and to delete."""
    counted = simulator.state()["requests"]
    return Counter({method: counted.get(method, 0) for method in ("POST", "DELETE")})


def attach(lanes: WarmLanes, person: User, label: str) -> Operation:
    """Have a device attached by another thread of the worker."""
    device = Device.objects.get(uri__endswith="drawer1/PCIeDevices/slot1")
    asked = operation_request(person=person, device=device, target=HostPort.objects.get(label=label))

    def work() -> None:
        try:
            claim = OperationClaim.take(str(asked.pk), "worker")
            assert claim is not None
            with lanes.lane(claim.operation.chassis_id) as lane:
                carry_out(lane, claim)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(work).result()
    asked.refresh_from_db()
    return asked


def test_one_session_serves_operations_until_the_password_changes(
    lanes: WarmLanes, chassis: Chassis, simulator: SimulatorProcess, administrator: User
) -> None:
    before = sessions(simulator)
    for label in ("H3", "H2"):
        asked = attach(lanes, administrator, label)
        assert (asked.state, asked.error) == ("done", "")
    assert sessions(simulator) - before == Counter(POST=1)
    chassis.refresh_from_db()
    chassis.set_password("another one")
    chassis.save()
    asked = attach(lanes, administrator, "H3")
    assert (asked.state, "refuses this name and password" in asked.error) == ("failed", True)
    assert (sessions(simulator) - before)["DELETE"] == 1, "the session of the old password has ended"


def test_what_is_put_off_is_begun_in_order_by_the_next_operation_and_the_end() -> None:
    lane, done, begun = OperationLane(), list[int](), threading.Event()

    def first() -> None:
        done.append(1)
        begun.set()

    with lane.in_use():
        lane.run(partial(lane.put_off, first))
        assert not done, "the thread is free for what the next operation waits for"
        lane.run(partial(asyncio.to_thread, begun.wait, 10))
        assert begun.is_set()
        for number in (2, 3):
            lane.run(partial(lane.put_off, partial(done.append, number)))
    lane.close()
    assert done == [1, 2, 3]


def test_a_session_that_nobody_needs_any_more_ends(
    lanes: WarmLanes, simulator: SimulatorProcess, administrator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes_module, "IDLE_SECONDS", 0.0)
    before = sessions(simulator)
    assert attach(lanes, administrator, "H3").state == "done"
    wait_for(lambda: sessions(simulator) - before == Counter(POST=1, DELETE=1))
    assert attach(lanes, administrator, "H2").state == "done", "the next one begins another"
    assert (sessions(simulator) - before)["POST"] == 2


def test_a_session_for_which_there_is_no_use_or_no_place_ends_with_its_operation(
    lanes: WarmLanes, simulator: SimulatorProcess, administrator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulator.fault("server_error", method="PATCH", path="Zones/hostport1_H3", status=400)
    before = sessions(simulator)
    assert attach(lanes, administrator, "H3").state == "failed"
    asked = sessions(simulator) - before
    assert asked["POST"] == asked["DELETE"] == 2, "that of the read-back ends, too"
    monkeypatch.setattr(lanes_module, "MOST_KEPT", 0)
    assert attach(lanes, administrator, "H2").state == "done"
    assert sessions(simulator) - before == Counter(POST=3, DELETE=3)
