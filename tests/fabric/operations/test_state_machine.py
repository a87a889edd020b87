"""Any order of changes, faults, deaths of the worker and looks: the chassis' own truth and the site never part.

Each example has a simulated chassis in a process of its own; a worker that is killed is a process, too.
"""

from __future__ import annotations

import contextlib
import itertools
import tempfile
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from accounts.models import User
from core.errors import Conflict, FalconWebError
from fabric.bmc.errors import BmcError
from fabric.execution.services import execute, runnable_operations
from fabric.inventory.models import Chassis, Device, Drawer, HostPort
from fabric.operations.models import Operation
from fabric.operations.services import mode_request, operation_request
from falconweb.testing import SimulatorProcess, add_mirrored, mirror
from tests.fabric.disorder import (
    MODES,
    OF_HARDWARE,
    OF_REQUESTS,
    REQUEST_KINDS,
    MortalWorkers,
    endpoint_of,
    settings_of,
    shorten_patience,
)
from tests.waiting import wait_for

pytestmark = [pytest.mark.process, pytest.mark.django_db(transaction=True)]

SETTINGS = settings_of(examples=40, steps=20)
PATIENCE = 0.1  # of what it is
SLOTS = tuple([(1, slot) for slot in range(1, 8)] + [(2, slot) for slot in range(1, 6)])


class Composing(RuleBasedStateMachine):
    """One chassis, one administrator, and everything that can happen to both."""

    certificates: Path
    workers: MortalWorkers

    def __init__(self) -> None:
        super().__init__()
        self.stack = contextlib.ExitStack()
        self.simulator = self.stack.enter_context(
            SimulatorProcess(chassis="falcon-1", certificate_directory=self.certificates)
        )
        self.simulator.set_speed(50)
        Chassis.objects.all().delete()
        self.chassis = add_mirrored(self.simulator)
        self.person, _ = User.objects.get_or_create(username="ada", defaults={"role": "administrator"})
        self.at_start: dict[str, str] = self.simulator.state()["devices"]
        # Whether the mirror may be behind the truth, and which devices it may rightly miss.
        self.behind = False
        self.may_miss: set[str] = set()
        self.down_until = 0.0

    def teardown(self) -> None:
        """Let every fault end: then the site shows the whole truth."""
        try:
            self.simulator.clear_faults()
            self.look_until_true()
        finally:
            self.stack.close()

    # --- what people do ---------------------------------------------------------------------------------------------

    @rule(place=st.sampled_from(SLOTS), port=st.sampled_from([None, "H1", "H2", "H3"]))
    def change(self, place: tuple[int, int], port: str | None) -> None:
        """Attach, detach or move."""
        operation = self.ask(place, port)
        if operation is not None:
            obstructed = self.obstructed()
            execute(str(operation.pk), worker="first")
            self.judge(operation, obstructed=obstructed)

    @rule(
        place=st.sampled_from(SLOTS),
        port=st.sampled_from([None, "H1", "H2", "H3"]),
        seconds=st.sampled_from([0.1, 0.3, 0.6, 1.0, 1.5]),
    )
    def change_with_a_death(self, place: tuple[int, int], port: str | None, seconds: float) -> None:
        """Attach, detach or move, and the worker dies in the middle; another one carries on."""
        operation = self.ask(place, port)
        if operation is None:
            return
        obstructed = self.obstructed()
        slow = self.simulator.fault("slow", path="/Zones/", method="PATCH", delay=0.4)
        self.workers.take(operation, seconds=seconds)
        self.simulator.end_fault(slow)
        # Its claim is released; nobody need wait here for that.
        past = timezone.now() - timedelta(seconds=5)
        Operation.objects.open().filter(lease_until__isnull=False).update(lease_until=None)
        Operation.objects.open().filter(lease_until=None).update(requested_at=past)
        operation.refresh_from_db()
        assert runnable_operations() == ([str(operation.pk)] if operation.is_open else [])
        for pk in runnable_operations():
            execute(pk, worker="second")
        self.judge(operation, obstructed=obstructed)

    @rule(number=st.sampled_from([1, 2]), mode=st.sampled_from(MODES))
    def change_mode(self, number: int, mode: str) -> None:
        """Change a drawer's mode."""
        try:
            operation = mode_request(
                person=self.person, drawer=Drawer.objects.get(number=number, chassis=self.chassis), mode=mode
            )
        except Conflict:
            return
        obstructed = self.obstructed()
        execute(str(operation.pk), worker="first")
        self.judge(operation, obstructed=obstructed)

    # --- what happens -----------------------------------------------------------------------------------------------

    @rule(fault=st.sampled_from(OF_REQUESTS))
    def trouble_with_the_bmc(self, fault: dict[str, Any]) -> None:
        """The BMC answers late, wrongly or not at all for a while."""
        self.simulator.ask_control("POST", "/faults", fault)
        if fault["kind"] == "bmc_reboot":
            # To end the fault makes no boot faster.
            self.down_until = time.monotonic() + fault["seconds"] + 0.5

    @rule(fault=st.sampled_from(OF_HARDWARE), place=st.sampled_from(SLOTS))
    def trouble_with_the_hardware(self, fault: dict[str, Any], place: tuple[int, int]) -> None:
        """Something happens to a device or its link, until the trouble ends."""
        name = f"drawer{place[0]}slot{place[1]}"
        if fault["kind"] == "surprise_removal":
            if name not in self.simulator.state()["present"]:
                return
            self.may_miss.add(name)
            self.behind = True
        self.simulator.ask_control("POST", "/faults", {**fault, "target": name})

    @precondition(lambda self: self.simulator.ask_control("GET", "/faults"))
    @rule()
    def trouble_ends(self) -> None:
        """Every fault ends; devices that were taken out are put back."""
        self.behind = self.behind or bool(self.may_miss)
        self.simulator.clear_faults()

    @rule()
    def look(self) -> None:
        """The mirror is refreshed, as it is every few seconds."""
        obstructed = self.obstructed()
        try:
            mirror(self.chassis)
        except BmcError:
            assert obstructed
        if not obstructed:
            self.behind = False
            self.may_miss &= set(self.at_start) - set(self.simulator.state()["present"])

    # --- what must be true ------------------------------------------------------------------------------------------

    @invariant()
    def no_device_is_in_two_zones_and_none_is_lost(self) -> None:
        """By the chassis' truth, and by the site's rows."""
        truth = self.simulator.state()
        assert truth["devices"] == self.at_start
        members = Counter(itertools.chain.from_iterable(truth["zones"].values()))
        assert all(count == 1 for count in members.values()), members
        rows = {endpoint_of(device): device for device in Device.objects.filter(chassis=self.chassis)}
        assert {name: device.serial_number for name, device in rows.items()} == self.at_start
        missed = {name for name, device in rows.items() if device.missing_since is not None}
        assert missed <= self.may_miss
        if not self.behind:
            self.compare(truth)

    @invariant()
    def every_operation_has_ended(self) -> None:
        """Done or failed, with a time, and a sentence where it failed."""
        assert not Operation.objects.open().exists()
        for operation in Operation.objects.all():
            assert operation.finished_at is not None
            assert (operation.state == "failed") == bool(operation.error)

    def compare(self, truth: dict[str, Any]) -> None:
        """Hold the mirror against the truth."""
        zone_of = {member: zone for zone, members in truth["zones"].items() for member in members}
        for device in Device.objects.filter(chassis=self.chassis).select_related("host_port"):
            name = endpoint_of(device)
            shown = device.host_port.uri.rpartition("/")[2] if device.host_port else None
            assert (device.missing_since is None) == (name in truth["present"]), name
            assert shown == zone_of.get(name), name
        for drawer in Drawer.objects.filter(chassis=self.chassis):
            assert drawer.mode == truth["modes"][f"drawer{drawer.number}"]

    # --- helpers ----------------------------------------------------------------------------------------------------

    def obstructed(self) -> bool:
        """Tell whether something may keep a walk from reading everything."""
        kinds = {fault["kind"] for fault in self.simulator.ask_control("GET", "/faults")}
        return bool(kinds & REQUEST_KINDS) or time.monotonic() < self.down_until

    def ask(self, place: tuple[int, int], port: str | None) -> Operation | None:
        """Ask for a change; None where the site refuses, which changes nothing."""
        device = Device.objects.get(uri__endswith=f"/drawer{place[0]}/PCIeDevices/slot{place[1]}", chassis=self.chassis)
        label = "H4" if port and place[0] == 2 else port
        target = HostPort.objects.get(chassis=self.chassis, label=label) if label else None
        before = self.simulator.state()["zones"]
        known = set(Operation.objects.values_list("pk", flat=True))
        try:
            operation = operation_request(person=self.person, device=device, target=target)
        except FalconWebError:
            assert self.simulator.state()["zones"] == before
            return None
        assert operation.pk not in known
        return operation

    def judge(self, operation: Operation, *, obstructed: bool) -> None:
        """Hold an operation that has ended against the truth."""
        operation = Operation.objects.select_related("device__host_port", "target").get(pk=operation.pk)
        truth = self.simulator.state()
        assert operation.state in {"done", "failed"}
        if operation.state == "done":
            # No agent runs on the hosts: their part is left out.
            assert {step["state"] for step in operation.steps} <= {"done", "skipped"}
            # What is done was read back, whatever was in force.
            if operation.kind == Operation.Kind.MODE:
                assert operation.drawer is not None
                assert truth["modes"][f"drawer{operation.drawer.number}"] == operation.mode
            elif operation.device is not None:
                name, wanted = endpoint_of(operation.device), operation.target.uri if operation.target else ""
                zones = [zone for zone, members in truth["zones"].items() if name in members]
                assert zones == ([wanted.rpartition("/")[2]] if wanted else [])
                assert operation.device.host_port == operation.target
        # One that failed has read back the truth as well, if it could.
        self.behind = self.behind or obstructed

    def look_until_true(self) -> None:
        """Refresh until the BMC is back, then hold the mirror against the truth."""

        def is_back() -> bool:
            self.look()
            return not (self.obstructed() or self.behind)

        if self.obstructed() or self.behind:
            wait_for(is_back, "the chassis did not come back")
        mirror(self.chassis)
        self.compare(self.simulator.state())


@pytest.mark.nightly
def test_whatever_happens_the_site_shows_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_patience(PATIENCE, monkeypatch.setattr)
    with tempfile.TemporaryDirectory() as folder, MortalWorkers(PATIENCE) as workers:
        monkeypatch.setattr(Composing, "certificates", Path(folder), raising=False)
        monkeypatch.setattr(Composing, "workers", workers, raising=False)
        run_state_machine_as_test(Composing, settings=SETTINGS)
