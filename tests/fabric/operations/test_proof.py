"""What an operation proves where others are at work around it."""

from __future__ import annotations

import threading
import time

from django.db import connection

from accounts.models import User
from fabric.execution.services import execute
from fabric.inventory.models import Chassis
from fabric.operations.models import Operation, Proof
from fabric.operations.services import operation_request
from falconweb.testing import SimulatorProcess, carry_out, device_in


def test_what_another_operation_did_while_the_chassis_was_being_read_is_explained(
    chassis: Chassis, administrator: User, simulator: SimulatorProcess
) -> None:
    """The zones are read first, then the links, which takes long here: by then a device has left its zone."""
    long = operation_request(
        person=administrator, device=device_in(chassis, drawer=2, slot=1), target=None, idempotency_key="long"
    )
    short = operation_request(
        person=administrator, device=device_in(chassis, drawer=1, slot=5), target=None, idempotency_key="short"
    )
    simulator.fault("slow", path="/Switches/drawer1_switch/Ports", delay=3, count=1)
    before = simulator.state()["requests"].get("GET", 0)

    def carried_out() -> None:
        try:
            execute(str(long.pk), worker="first")
        finally:
            connection.close()

    worker = threading.Thread(target=carried_out)
    worker.start()
    while simulator.ask_control("GET", "/faults"):
        time.sleep(0.01)
    assert simulator.state()["requests"]["GET"] > before
    ended = carry_out(short)
    worker.join()
    proof = Proof.objects.get(operation=long)
    assert (ended.state, Operation.objects.get(pk=long.pk).state) == ("done", "done")
    assert (
        proof.before["zones"]["/redfish/v1/Fabrics/PCIe/Zones/hostport1_H2"]
        != (proof.after["zones"]["/redfish/v1/Fabrics/PCIe/Zones/hostport1_H2"])
    )
    assert {one["because"] for one in proof.differences} == {ended.summary}
    assert proof.untouched
