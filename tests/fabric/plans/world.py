"""Two simulated chassis, three tenants, and what must be true of both whatever happens: the site under its plans.

What a part of a chassis is like is kept as bytes, by its name on the control address, and compared after every rule:
whatever changed must be what an operation, or a hand that the site knows nothing of, was about.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from django.db.models import Q, QuerySet
from django.utils import timezone

from accounts.audit.verification import chain_check
from accounts.models import Role, Tenant, User
from core.errors import FalconWebError
from fabric.execution.services import runnable_operations
from fabric.history.models import Attachment
from fabric.inventory.models import Chassis, Device, Drawer, HostPort, Port
from fabric.leases.grants import grants_set
from fabric.leases.models import Lease, LeaseItem, Tenure
from fabric.operations.models import Operation, Plan
from fabric.plans.rules import DesiredState
from falconweb.testing import SimulatorProcess, add_mirrored
from tests.fabric.disorder import OF_HARDWARE, REQUEST_KINDS, endpoint_of

NAMES = ("falcon-1", "falcon-2")
# (chassis, drawer): its slots with devices, and its host ports.
DRAWERS: dict[tuple[str, int], tuple[tuple[int, ...], tuple[str, ...]]] = {
    ("falcon-1", 1): ((1, 2, 3, 4, 5, 6, 7), ("H1", "H2", "H3")),
    ("falcon-1", 2): ((1, 2, 3, 4, 5), ("H4",)),
    ("falcon-2", 1): ((1, 2, 3, 5, 6, 7), ("H1", "H2")),
    ("falcon-2", 2): ((1, 2, 3, 4, 5, 6), ("H3", "H4")),
}
PLACES = [(name, drawer, slot) for (name, drawer), (slots, _) in DRAWERS.items() for slot in slots]
# Who holds what at the start: slots and host ports of a drawer. The rest is in the pool.
HOLDINGS: dict[str, tuple[tuple[str, int], tuple[int, ...], tuple[str, ...]]] = {
    "Ants": (("falcon-1", 1), (5, 6, 7), ("H2",)),
    "Bees": (("falcon-1", 2), (1, 2, 3, 4, 5), ("H4",)),
    "Cats": (("falcon-2", 2), (1, 2, 5), ("H3",)),
}
SPEED = 200.0  # simulated seconds a second: a link trains within 15 ms
HARDWARE_KINDS = frozenset(fault["kind"] for fault in OF_HARDWARE)
Part = tuple[str, str]  # a chassis, and the name of a slot, host port or drawer of it on the control address
Answered = TypeVar("Answered")


class World:
    """Everything that a plan is about, and the looks at it."""

    def __init__(self, certificates: Path) -> None:
        self._stack = contextlib.ExitStack()
        self.began = datetime.now(UTC)
        self.refused: Counter[str] = Counter()
        for rows in (Lease, Plan, Operation, Tenure, Attachment, Chassis):
            rows.objects.all().delete()
        self.simulators = {
            name: self._stack.enter_context(
                SimulatorProcess("--speed", str(SPEED), chassis=name, certificate_directory=certificates / name)
            )
            for name in NAMES
        }
        for name, simulator in self.simulators.items():
            add_mirrored(simulator, name=name)
        self.people = {"ada": _person("ada", Role.ADMINISTRATOR, None)}
        for tenant, name in zip(HOLDINGS, ("ann", "ben", "cyd"), strict=True):
            self.people[name] = _person(name, Role.USER, tenant)
            self._hold(tenant)
        self.at_start = {name: simulator.state()["devices"] for name, simulator in self.simulators.items()}
        # What hands that the site knows nothing of were put to since the last look, and how often since the start.
        self.handled: set[Part] = set()
        self.disturbed: Counter[str] = Counter()
        self.handled_once: set[Part] = set()
        self.back: set[int] = set()
        self.booting: dict[str, float] = dict.fromkeys(NAMES, 0.0)
        self.parts, self.faulty = self._seen()
        self.seen_at = timezone.now()
        self.ended: dict[object, tuple[str, datetime | None]] = {}
        self.applied: dict[object, dict[Part, tuple[bytes, int]]] = {}
        # How often what was to be changed, by the plan that did (None: a single operation, or no operation at all).
        self.moved: Counter[tuple[Part, object]] = Counter()

    def close(self) -> None:
        """End the chassis."""
        self._stack.close()

    def _hold(self, tenant: str) -> None:
        (chassis, drawer), slots, labels = HOLDINGS[tenant]
        grants_set(
            person=self.people["ada"],
            tenant=Tenant.objects.get(name=tenant),
            devices=[self.device(chassis, drawer, slot) for slot in slots],
            host_ports=[self.host_port(chassis, label) for label in labels],
        )

    # --- rows by their places ---------------------------------------------------------------------------------------

    def device(self, chassis: str, drawer: int, slot: int) -> Device:
        """Return a device of the start, missing or not."""
        row: Device = Device.objects.select_related("slot__port", "host_port", "chassis").get(
            chassis__name=chassis, uri__endswith=f"/drawer{drawer}/PCIeDevices/slot{slot}"
        )
        return row

    def host_port(self, chassis: str, label: str) -> HostPort:
        """Return a host port."""
        return HostPort.objects.get(chassis__name=chassis, label=label)

    def drawer(self, chassis: str, number: int) -> Drawer:
        """Return a drawer."""
        row: Drawer = Drawer.objects.select_related("chassis").get(chassis__name=chassis, number=number)
        return row

    # --- looks at the chassis ---------------------------------------------------------------------------------------

    def obstructed(self, name: str) -> bool:
        """Tell whether something may keep a walk of a chassis from reading everything."""
        kinds = {fault["kind"] for fault in self.simulators[name].ask_control("GET", "/faults")}
        return bool(kinds & REQUEST_KINDS) or time.monotonic() < self.booting[name]

    def strike(self, name: str, fault: dict[str, Any], target: str) -> None:
        """Put a fault in force; hardware is hit at `target`. One that cannot be there does nothing."""
        simulator = self.simulators[name]
        if fault["kind"] in HARDWARE_KINDS:
            fault = {**fault, "target": target}
        if fault["kind"] == "surprise_removal":
            if target not in simulator.state()["present"]:
                return
            self.touch(name, target)
        if fault["kind"] == "bmc_reboot":
            # To end the fault makes no boot faster.
            self.booting[name] = time.monotonic() + fault["seconds"] + 0.5
        simulator.ask_control("POST", "/faults", fault)

    def touch(self, chassis: str, *names: str) -> None:
        """Note that something outside of the site changes parts of a chassis."""
        self.handled |= {(chassis, name) for name in names}
        self.moved.update(((chassis, name), None) for name in names)
        self.handled_once |= self.handled
        self.disturbed[chassis] += 1

    def _seen(self) -> tuple[dict[Part, dict[str, Any]], set[Part]]:
        """Return each part of the chassis as it is now, and those that a fault of the hardware is about."""
        parts: dict[Part, dict[str, Any]] = {}
        faulty: set[Part] = set()
        for name, simulator in self.simulators.items():
            faults = simulator.ask_control("GET", "/faults")
            faulty |= {(name, fault["target"]) for fault in faults if fault.get("target")}
            truth = simulator.state()
            assert truth["devices"] == self.at_start.get(name, truth["devices"]), "a device is another"
            members = Counter(itertools.chain.from_iterable(truth["zones"].values()))
            assert all(count == 1 for count in members.values()), f"{name}: in two zones: {members}"
            zone_of = {member: zone for zone, inside in truth["zones"].items() for member in inside}
            for one, link in truth["links"].items():
                parts[name, one] = {"port": truth["ports"][one], "link": link, "zone": zone_of.get(one)}
            for zone, inside in truth["zones"].items():
                parts[name, zone] |= {"members": inside, "cable": truth["cabling"][zone]}
            parts |= {(name, drawer): {"mode": mode} for drawer, mode in truth["modes"].items()}
        return parts, faulty

    def attempted(self) -> QuerySet[Operation]:
        """Return the operations that may have changed something since the last look."""
        rows = Operation.objects.filter(Q(finished_at__gte=self.seen_at) | Q(finished_at=None), attempts__gt=0)
        return rows.select_related("chassis", "device", "drawer", "port__slot")

    def look(self) -> None:
        """Hold everything that nothing was to change against how it was at the last look, byte by byte."""
        parts, faulty = self._seen()
        attempted = list(self.attempted())
        own = {part for operation in attempted for part in parts_of(operation)}
        allowed = own | self.handled
        blurred = allowed | faulty | self.faulty
        for part, found in parts.items():
            then, now = self._comparable(self.parts[part], found, part, allowed, blurred)
            assert _bytes(then) == _bytes(now), f"{part} changed, and nobody was to do that: {then} {now}"
        self.moved.update((part, operation.plan_id) for operation in attempted for part in parts_of(operation))
        # What a hand did, or a fault, may go on for a moment: until then its link is nobody's witness.
        self.parts, self.faulty, self.handled = parts, faulty | self.handled | own, set()
        self.seen_at = timezone.now()

    @staticmethod
    def _comparable(
        then: dict[str, Any], now: dict[str, Any], part: Part, allowed: set[Part], blurred: set[Part]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return of a part what must be the same: all of it, but for what others of the same chassis were to change."""
        found = []
        moving = {one["link"]["status"] for one in (then, now) if "link" in one} & {"Training", "Starting"}
        for one in (then, now):
            kept = {} if part in allowed else dict(one)
            if part in blurred or moving:
                kept.pop("link", None)
            if "members" in one:
                kept["members"] = [member for member in one["members"] if (part[0], member) not in allowed]
            found.append(kept)
        return found[0], found[1]

    def mirror_is_true(self, name: str) -> None:
        """Hold the rows of a chassis against the chassis."""
        truth = self.simulators[name].state()
        zone_of = {member: zone for zone, inside in truth["zones"].items() for member in inside}
        for device in Device.objects.filter(chassis__name=name).select_related("host_port"):
            one = endpoint_of(device)
            shown = device.host_port.uri.rpartition("/")[2] if device.host_port else None
            assert (device.missing_since is None) == (one in truth["present"]), one
            assert shown == zone_of.get(one), f"{name} {one}: {shown}, and it is {zone_of.get(one)}"
        for drawer in Drawer.objects.filter(chassis__name=name):
            assert drawer.mode == truth["modes"][f"drawer{drawer.number}"]
        for port in Port.objects.filter(chassis__name=name, slot__isnull=False).select_related("slot__drawer"):
            setting = truth["ports"][_slot_name(port)]
            assert port.configured_width == setting["configured_lanes"], f"{name} {port.name}"

    # --- looks at the site ------------------------------------------------------------------------------------------

    def held_up(self, call: Callable[[], Answered]) -> Answered | None:
        """Do what somebody asks for; None where the site refuses, which changes nothing at all."""
        before, parts = self._rows(), self._seen()[0]
        refused = ""
        try:
            return call()
        except FalconWebError as error:
            refused = error.sentence or "without a word"
        assert refused != "without a word"
        self.refused[" ".join(refused.split()[:12])] += 1
        assert self._rows() == before, f"refused, and changed all the same: {refused}"
        now = self._seen()[0]
        assert all(parts[one].get("members") == now[one].get("members") for one in parts)
        return None

    @staticmethod
    def _rows() -> tuple[list[Any], list[Any], list[Any]]:
        return (
            list(Plan.objects.order_by("pk").values_list("pk", "state", "round", "wanted")),
            list(Operation.objects.order_by("pk").values_list("pk", "state", "plan", "cancel_requested_at")),
            list(Lease.objects.order_by("pk").values_list("pk", "state", "starts_at", "ends_at", "extension_to")),
        )

    def operations_are_in_order(self) -> None:
        """Each has ended once, with a time and a sentence, or waits for its turn; plans are where they may be."""
        for operation in Operation.objects.select_related("plan"):
            assert (operation.finished_at is None) == operation.is_open
            assert bool(operation.error) == (operation.state in {"failed", "cancelled"}), operation.state
            if operation.is_open:
                assert operation.plan is None or operation.plan.is_active, f"open, of a plan {operation.plan.state}"
            self._stays(operation.pk, operation.state if not operation.is_open else "", operation.finished_at)
        open_rows = list(Operation.objects.open().filter(lease_until=None))
        heads = set(runnable_operations())
        for operation in open_rows:
            others = Operation.objects.open().filter(chassis=operation.chassis_id, drawer=operation.drawer_id)
            first = others.in_turn().first()
            assert first is not None
            assert first.pk != operation.pk or str(operation.pk) in heads, "nobody would ever take it up"
        for plan in Plan.objects.all():
            assert (plan.finished_at is not None) == plan.is_final, plan.state
            assert plan.state != "stopped" or plan.sentence
            assert plan.state != "draft" or not plan.operations.exists()
            positions = list(plan.operations.values_list("position", flat=True))
            assert len(positions) == len(set(positions))
            if plan.is_final:
                if plan.pk not in self.ended:
                    self._has_ended(plan)
                self._stays(plan.pk, plan.state, plan.finished_at)

    def leases_are_in_order(self) -> None:
        """Who holds what is told once, by the rows and by their history; nothing came back that is attached."""
        for model, name in ((Device, "device"), (HostPort, "host_port")):
            held = dict(model.objects.exclude(tenant=None).values_list("pk", "tenant"))
            told = Tenure.objects.filter(ended_at=None, **{f"{name}__isnull": False})
            assert held == dict(told.values_list(name, "tenant"))
        released = LeaseItem.objects.filter(released_at__isnull=False, taken_at__isnull=False, device__tenant=None)
        for item in released.exclude(pk__in=self.back).exclude(device=None).select_related("device__chassis"):
            self.back.add(item.pk)
            assert item.device is not None
            part = item.device.chassis.name, endpoint_of(item.device)
            at = self.parts[part]["zone"]
            if part not in self.handled_once:
                assert at is None, f"{item.device} is in the pool, and attached to {at}"

    def _stays(self, pk: object, state: str, at: datetime | None) -> None:
        if pk in self.ended:
            assert self.ended[pk] == (state, at), "what has ended does not end again"
        elif state:
            self.ended[pk] = (state, at)

    def _has_ended(self, plan: Plan) -> None:
        """Hold a plan that has just ended against the chassis, and everybody whom it does not name against before."""
        wanted, base = DesiredState.from_json(plan.wanted), DesiredState.from_json(plan.base)
        if plan.state == "rolled_back":
            # What became meanwhile of that to which it never came is the work of others.
            begun = {part for one in plan.operations.filter(attempts__gt=0) for part in parts_of(one)}
            self._is_so(wanted, base, plan, begun)
        elif plan.state == "done" and not self._disturbed_since(plan):
            self._is_so(wanted, wanted, plan)
        if plan.pk in self.applied:
            for part, before in self.applied.pop(plan.pk).items():
                now = self._unnamed(part, plan)
                assert before[1] != now[1] or before[0] == now[0], f"a plan does not name {part}, and it changed"

    def _is_so(self, named: DesiredState, state: DesiredState, plan: Plan, only: set[Part] | None = None) -> None:
        for pk in named.attachments:
            device = Device.objects.select_related("chassis").get(pk=pk)
            if only is not None and (device.chassis.name, endpoint_of(device)) not in only:
                continue
            target = HostPort.objects.filter(pk=state.attachments.get(pk) or 0).first()
            expected = target.uri.rpartition("/")[2] if target is not None else None
            found = self.parts[device.chassis.name, endpoint_of(device)]["zone"]
            assert found == expected, f"{plan.state}, but {device} is at {found}, not {expected}"
        for pk in named.modes:
            drawer = Drawer.objects.select_related("chassis").get(pk=pk)
            if only is not None and (drawer.chassis.name, f"drawer{drawer.number}") not in only:
                continue
            found = self.parts[drawer.chassis.name, f"drawer{drawer.number}"]["mode"]
            assert found == state.modes[pk], f"{plan.state}, but the mode is {found}, not {state.modes[pk]}"
        for pk in named.settings:
            port = Port.objects.select_related("chassis", "slot__drawer").get(pk=pk)
            if only is not None and (port.chassis.name, _slot_name(port)) not in only:
                continue
            lanes = self.parts[port.chassis.name, _slot_name(port)]["port"]["configured_lanes"]
            wanted = state.settings[pk].configured_width
            assert lanes == wanted, f"{plan.state}, but {port} is set to x{lanes}, not x{wanted}"

    def _disturbed_since(self, plan: Plan) -> bool:
        """Tell whether anything else was done to what a plan names since its application."""
        others = Operation.objects.exclude(plan=plan).filter(attempts__gt=0)
        rows = others.filter(Q(finished_at=None) | Q(finished_at__gte=plan.applied_at)).select_related(
            "chassis", "device", "drawer", "port__slot"
        )
        by_others = {part for operation in rows for part in parts_of(operation)}
        return bool(by_others) or any(self.disturbed.values())

    def was_applied(self, plan: Plan) -> None:
        """Keep how everything is that belongs to tenants whom a plan does not name."""
        named = set(DesiredState.from_json(plan.wanted).attachments)
        tenants = set(Device.objects.filter(pk__in=named).values_list("tenant", flat=True))
        theirs = Device.objects.exclude(tenant=None).exclude(tenant__in=[one for one in tenants if one is not None])
        parts = [(device.chassis.name, endpoint_of(device)) for device in theirs.select_related("chassis")]
        self.applied[plan.pk] = {part: self._unnamed(part, plan) for part in parts}

    def _unnamed(self, part: Part, plan: Plan) -> tuple[bytes, int]:
        """Return the zone and the port of a part that a plan does not name, and how often others changed it by now."""
        moved = sum(count for (one, by), count in self.moved.items() if one == part and by != plan.pk)
        return _bytes({"zone": self.parts[part]["zone"], "port": self.parts[part]["port"]}), moved

    def audit_is_whole(self) -> None:
        """Verify the chain of the audit log."""
        verdict = chain_check()
        assert verdict.broken is None, verdict.sentence


def parts_of(operation: Operation) -> set[Part]:
    """Return what an operation is to change."""
    name = operation.chassis.name
    if operation.device is not None:
        return {(name, endpoint_of(operation.device))}
    if operation.port is not None:
        return {(name, _slot_name(operation.port))}
    return {(name, f"drawer{operation.drawer.number}")} if operation.drawer is not None else set()


def _slot_name(port: Port) -> str:
    drawer = port.slot.drawer
    return f"drawer{drawer.number if drawer is not None else 0}slot{port.slot.number}"


def _person(name: str, role: Role, tenant: str | None) -> User:
    of = Tenant.objects.get_or_create(name=tenant)[0] if tenant else None
    return User.objects.get_or_create(username=name, defaults={"role": role, "tenant": of})[0]


def _bytes(part: dict[str, Any]) -> bytes:
    return json.dumps(part, sort_keys=True, separators=(",", ":")).encode()
