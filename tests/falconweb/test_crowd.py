"""Many people compose at once on four chassis: what is accepted is done once, in some order; the rest is told why.

A whole site, in processes of its own, that people use as browsers and scripts do: over HTTP alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sqlite3
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from statistics import quantiles
from typing import Any

import pytest

from falconweb.testing import SimulatorProcess
from tests.falconweb.crowd import Accepted, Answer, Person
from tests.falconweb.replay import Paper, places_of
from tests.site import ADMINISTRATOR_PASSWORD, RunningSite

pytestmark = [pytest.mark.process, pytest.mark.nightly]

CHASSIS = 4
SECONDS = 120.0
ADMINISTRATORS, VIEWERS, USERS = 6, 2, 42
PAUSE = 2.0  # s that somebody thinks at most
SETTLE_SECONDS = 600.0
OPEN = ("requested", "running", "verifying")
ACTIVE = ("running", "cancelling", "resuming", "rolling_back")
FAULTS: tuple[dict[str, Any], ...] = (
    {"kind": "server_error", "status": 409, "method": "PATCH", "count": 1},  # a step fails: its plan stops
    {"kind": "server_error", "status": 503, "method": "PATCH", "count": 2},
    {"kind": "reset_connections", "method": "PATCH", "count": 1},
    {"kind": "slow", "delay": 0.3, "seconds": 2},
)
EXPECTED = {
    "look": {200}, "list": {200}, "watch": {200},
    "operation": {202, 403, 404, 409},
    "mode": {202, 403, 409},
    "draft": {201, 403, 404, 409},
    "change draft": {200, 403, 404, 409},
    "discard": {204, 409},
    "apply": {202, 403, 404, 409},
    "cancel operation": {202, 409},
    "cancel plan": {202, 409},
    "resume": {202, 409},
    "undo": {201, 403, 404, 409},
    "viewer": {403},
    "stranger": {404},
    "set up": {200, 201},
    "settle": {200, 202, 409},
}  # fmt: skip


def lab_of(folder: Path) -> Path:
    """Write a lab in which every mode has something to say: four hosts at the first drawer, two at the second."""
    gpu = "V100-PCIE-16GB"
    ports = ["H1"] * 4 + ["H2"] * 2 + [None] * 2
    others = ["H5"] * 4 + ["H6"] * 3 + [None]
    drawers = [
        {"host_ports": {"H1": "node-a", "H2": "node-b", "H3": "node-c", "H4": "node-d"}, "slots": _slots(gpu, ports)},
        {"host_ports": {"H5": "node-a", "H6": "node-b"}, "slots": _slots(gpu, others)},
    ]
    lab = {"hosts": {f"node-{letter}": {} for letter in "abcd"}, "chassis": {"falcon": {"drawers": drawers}}}
    file = folder / "lab.json"
    file.write_text(json.dumps(lab))
    return file


def _slots(device: str, ports: list[str | None]) -> dict[str, dict[str, str | None]]:
    return {str(slot): {"device": device, "attached_to": port} for slot, port in enumerate(ports, 1)}


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatorProcess]:
    """Four simulated chassis in a process of their own."""
    lab = lab_of(tmp_path_factory.mktemp("lab"))
    with SimulatorProcess("--lab", str(lab), "--chassis-count", str(CHASSIS)) as process:
        process.set_speed(20)
        yield process


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSite]:
    """A whole site without chassis."""
    with RunningSite(tmp_path_factory.mktemp("crowd"), FALCONWEB_SIMULATED="0", DATABASE_URL="") as site:
        yield site


@pytest.mark.timeout(1500)
def test_a_crowd_composes_at_once_and_what_was_accepted_is_done_once_in_some_order(
    site: RunningSite, simulated: SimulatorProcess
) -> None:
    asyncio.run(Crowd(site, simulated).run())


class Crowd:
    """The people of a site, what they were answered, and what must be true of it."""

    def __init__(self, site: RunningSite, simulated: SimulatorProcess) -> None:
        self.site = site
        self.simulated = simulated
        self.answers: list[Answer] = []
        self.accepted = Accepted()
        self.names = [f"falcon-{number}" for number in range(1, CHASSIS + 1)]

    async def run(self) -> None:
        """Let them come, compose and end, then look."""
        async with contextlib.AsyncExitStack() as room:
            first = await room.enter_async_context(self._person("administrator", ADMINISTRATOR_PASSWORD))
            await self._chassis(first)
            people = await self._people(first, room)
            before = Paper(self._truths())
            users = [person for person, role in people if role == "user"]
            administrators = [person for person, role in people if role == "administrator"]
            viewers = [person for person, role in people if role == "viewer"]
            until = time.monotonic() + SECONDS
            await asyncio.gather(
                *(person.live(until, PAUSE, administrator=False) for person in users),
                *(person.live(until, PAUSE, administrator=True) for person in administrators),
                *(self._only_looks(person, until) for person in viewers),
                self._minds_others_business(users[0], until),
                self._watches_queues(first, until),
                self._breaks_things(until),
            )
            await asyncio.to_thread(self._mend)
            await self._settled(first)
            await self._queue_is_told(first)
            await self._settled(first)
            self._report()
            self._answers_were_kind()
            await self._all_is_one_order(first, before)

    # --- who they are -----------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _person(self, name: str, password: str) -> AsyncIterator[Person]:
        person = Person(self.site.address, name, password, self.answers, self.accepted)
        try:
            await person.sign_in()
            yield person
        finally:
            await person.leave()

    async def _chassis(self, first: Person) -> None:
        """Add the chassis and wait until each was read."""
        for name, address in zip(self.names, self.simulated.addresses, strict=True):
            body = {
                "name": name, "url": address, "username": "administrator", "password": self.simulated.password,
                "fingerprint": self.simulated.fingerprint,
            }  # fmt: skip
            assert (await first.ask("set up", "POST", "chassis/", body)).status == 201
        end = time.monotonic() + 60
        while True:
            await first.look()
            if sum(len(drawer.devices) for drawer in first.drawers) == CHASSIS * 16:
                return
            assert time.monotonic() < end, "the chassis were not read"
            await asyncio.sleep(0.5)

    async def _people(self, first: Person, room: contextlib.AsyncExitStack) -> list[tuple[Person, str]]:
        """Add tenants that share drawers and chassis, and their people, and sign these in."""
        devices, ports = await first.all_of("devices/"), await first.all_of("host-ports/")
        slots = {row["id"]: row for row in await first.all_of("slots/")}
        drawers = {row["id"]: row["number"] for row in await first.all_of("drawers/")}
        chassis = {row["id"]: row["name"] for row in (await first.ask("look", "GET", "chassis/")).body}

        def held(number: int, labels: set[str], places: Iterable[int], names: list[str]) -> dict[str, list[int]]:
            at = set(places)
            return {
                "device_ids": [
                    row["id"]
                    for row in devices
                    if (slot := slots[row["slot_id"]])["number"] in at
                    and drawers[slot["drawer_id"]] == number
                    and chassis[row["chassis_id"]] in names
                ],
                "host_port_ids": [
                    row["id"] for row in ports if row["label"] in labels and chassis[row["chassis_id"]] in names
                ],
            }

        grants = {
            "robots": held(1, {"H1"}, range(1, 5), self.names),
            "genome": held(1, {"H2", "H3"}, range(5, 9), self.names),
            "vision": held(2, {"H5", "H6"}, range(1, 9), self.names[:2]),
            "speech": held(2, {"H5", "H6"}, range(1, 9), self.names[2:]),
        }
        tenants = {}
        for name, grant in grants.items():
            made = await first.ask("set up", "POST", "tenants/", {"name": name})
            tenants[name] = made.body["id"]
            granted = await first.ask("set up", "PUT", f"tenants/{made.body['id']}/grants/", grant)
            assert granted.status == 200, granted
        roles: list[tuple[str, int | None]] = [("administrator", None)] * ADMINISTRATORS
        roles += [("user", list(tenants.values())[number % len(tenants)]) for number in range(USERS)]
        roles += [("viewer", tenants["vision"])] * VIEWERS
        return [
            (await room.enter_async_context(await self._added(first, f"{role}-{number}", role, tenant)), role)
            for number, (role, tenant) in enumerate(roles)
        ]

    async def _added(
        self, first: Person, name: str, role: str, tenant: int | None
    ) -> contextlib.AbstractAsyncContextManager[Person]:
        body = {"username": name, "role": role, "tenant_id": tenant}
        made = await first.ask("set up", "POST", "people/", body)
        assert made.status == 201, made
        return self._person(name, made.body["password"])

    # --- what else goes on ------------------------------------------------------------------------------------------

    async def _only_looks(self, viewer: Person, until: float) -> None:
        while time.monotonic() < until:
            await viewer.look()
            device = viewer.dice.choice(viewer.dice.choice(viewer.drawers).devices)
            wanted = {"device_id": device.id, "target_host_port_id": None}
            await viewer.ask("viewer", "POST", "operations/", wanted)
            await viewer.ask(
                "viewer", "POST", "plans/", {"attachments": [{"device_id": device.id, "host_port_id": None}]}
            )
            await asyncio.sleep(viewer.dice.uniform(0, PAUSE))

    async def _minds_others_business(self, user: Person, until: float) -> None:
        async with self._person("administrator", ADMINISTRATOR_PASSWORD) as first:
            await first.look()
            await user.look()
            own = {device.id for drawer in user.drawers for device in drawer.devices}
            others = [device.id for drawer in first.drawers for device in drawer.devices if device.id not in own]
        while time.monotonic() < until:
            device = user.dice.choice(others)
            wanted = {"device_id": device, "target_host_port_id": None}
            await user.ask("stranger", "POST", "operations/", wanted)
            await asyncio.sleep(PAUSE)

    async def _watches_queues(self, first: Person, until: float) -> None:
        """Look at the page of something that waits: it says behind what."""
        while time.monotonic() < until:
            await asyncio.sleep(1)
            rows = [row for state in OPEN for row in await first.all_of(f"operations/?state={state}")]
            heads = {row["drawer_id"]: row for row in rows if row["state"] != "requested"}
            for row in rows:
                head = heads.get(row["drawer_id"])
                if row["state"] != "requested" or head is None or head["requested_at"] >= row["requested_at"]:
                    continue
                await self._waits(first, row, head)
                break

    async def _waits(self, first: Person, row: dict[str, Any], head: dict[str, Any]) -> bool:
        """Look whether the pages of what waits say so; False where it waits no more."""
        page = await first.page(f"/operations/{row['id']}/")
        plan = await first.page(f"/plans/{row['plan_id']}/") if row["plan_id"] else ""
        before, now = [await first.ask("watch", "GET", f"operations/{one['id']}/") for one in (head, row)]
        if before.body["state"] not in OPEN or now.body["state"] != "requested":
            return False
        assert "It waits for" in page, row
        assert not plan or "waits behind" in plan, row
        return True

    async def _queue_is_told(self, first: Person) -> None:
        """Have two devices of one drawer detached, by a BMC that takes its time: the second waits for the first."""
        for name in self.names:
            fault = {"kind": "slow", "path": "/Zones/", "method": "PATCH", "delay": 3, "count": 1}
            await asyncio.to_thread(self.simulated.ask_control, "POST", f"/faults?chassis={name}", fault)
        await first.look()
        attached = ([one for one in drawer.devices if one.port is not None] for drawer in first.drawers)
        devices = next(found for found in attached if len(found) > 1)
        asked = [await first.detach(device) for device in devices[:2]]
        end = time.monotonic() + 20
        while not await self._waits(first, asked[1].body, asked[0].body):
            assert time.monotonic() < end, "nothing was seen to wait"
        await asyncio.to_thread(self._mend)

    async def _breaks_things(self, until: float) -> None:
        dice = random.Random("faults")  # noqa: S311 - no secret
        while time.monotonic() < until:
            await asyncio.sleep(dice.uniform(1, 4))
            where = f"/faults?chassis={dice.choice(self.names)}"
            await asyncio.to_thread(self.simulated.ask_control, "POST", where, dice.choice(FAULTS))

    def _mend(self) -> None:
        for name in self.names:
            self.simulated.ask_control("DELETE", f"/faults?chassis={name}")

    async def _settled(self, first: Person) -> None:
        """Wait until nothing is open any more; what stopped stays so."""
        end = time.monotonic() + SETTLE_SECONDS
        while True:
            counts = [
                (await first.ask("settle", "GET", f"{what}/?state={state}&limit=1")).body["count"]
                for what, states in (("operations", OPEN), ("plans", ACTIVE))
                for state in states
            ]
            if not sum(counts):
                return
            assert time.monotonic() < end, f"not ended: {counts}"
            await asyncio.sleep(1)

    # --- what must be true ------------------------------------------------------------------------------------------

    def _answers_were_kind(self) -> None:
        """Hold that each answer is one that was meant, and that who was refused was told why."""
        for answer in self.answers:
            assert answer.status in EXPECTED[answer.what], answer
            if answer.status >= 400:
                assert answer.problem.endswith((".", "?")), answer
                assert answer.body["code"] in {403: {"forbidden"}, 404: {"not_found"}}.get(
                    answer.status, {"conflict", "rule", "in_use"}
                ), answer
        counts = Counter((answer.what, answer.status) for answer in self.answers)
        for met in (("operation", 202), ("operation", 409), ("apply", 202), ("apply", 409), ("draft", 201)):
            assert counts[met], f"nobody met {met}: the crowd was too thin"

    async def _all_is_one_order(self, first: Person, before: Paper) -> None:
        operations, plans = await first.all_of("operations/"), await first.all_of("plans/")
        alone = {row["id"] for row in operations if row["plan_id"] is None}
        applied = {row["id"] for row in plans if row["state"] != "draft"}
        # None is lost, none is doubled, and what was refused left nothing.
        assert alone == self.accepted.operations
        assert applied == self.accepted.plans
        assert {row["state"] for row in operations} <= {"done", "failed", "cancelled"}
        assert {row["state"] for row in plans} <= {"draft", "done", "stopped", "cancelled", "rolled_back", "left"}
        self._ended_once(operations)
        self._in_turn(operations)
        truths = self._truths()
        places = places_of((await first.ask("look", "GET", "chassis/")).body)
        before.replay(sorted(operations, key=lambda row: row["finished_at"]), places)
        assert before.state() == Paper(truths).state()
        await self._site_shows(first, truths)

    def _ended_once(self, operations: list[dict[str, Any]]) -> None:
        """Hold against the audit log that what a worker began has one end there, and what nobody began at most one."""
        with contextlib.closing(sqlite3.connect(self.site.data / "falconweb.sqlite3")) as database:
            found = database.execute("SELECT target_id FROM accounts_auditentry WHERE action = 'operation.end'")
            ends = Counter(row[0] for row in found)
            touched = database.execute("SELECT operation_id, sentence FROM fabric_proof WHERE untouched = 0").fetchall()
        for row in operations:
            assert ends[row["id"]] == 1 if row["started_at"] else ends[row["id"]] <= 1, row
        assert not touched, touched

    def _in_turn(self, operations: list[dict[str, Any]]) -> None:
        """Hold that each drawer had one operation at a time, in the order in which they were asked for."""
        of_drawer = defaultdict(list)
        for row in operations:
            if row["started_at"]:
                of_drawer[row["drawer_id"]].append(row)
        for rows in of_drawer.values():
            rows.sort(key=lambda row: row["started_at"])
            for earlier, later in pairwise(rows):
                assert earlier["finished_at"] <= later["started_at"], (earlier, later)
                assert earlier["requested_at"] <= later["requested_at"], (earlier, later)

    async def _site_shows(self, first: Person, truths: dict[str, Any]) -> None:
        """Hold what the site shows against the truth, and that it takes nothing of it for drift."""
        shown = {}
        for one in (await first.ask("look", "GET", "chassis/")).body:
            for drawer in one["drawers"]:
                devices = {
                    slot["number"]: slot["device"]["host_port_label"] for slot in drawer["slots"] if slot["device"]
                }
                attached = {number: label for number, label in devices.items() if label}
                shown[one["name"], drawer["number"]] = (drawer["mode"], attached)
        assert shown == Paper(truths).state()
        # What an operation left that did not get to its end is one; nothing else is.
        unended = {row["id"] for row in await first.all_of("operations/") if row["state"] != "done"}
        for drift in await first.all_of("drift/?state=open"):
            assert drift["cause"] == "operation", drift
            assert drift["operation_id"] in unended, drift

    def _truths(self) -> dict[str, Any]:
        return {name: self.simulated.state(name) for name in self.names}

    def _report(self) -> None:
        """Write how long answers took, in ms, beside the site's database; `pytest -s` shows it, too."""
        took = defaultdict(list)
        for answer in self.answers:
            took[answer.what].append(answer.seconds * 1000)
        statuses = Counter((answer.what, answer.status) for answer in self.answers)
        lines = []
        for what, times in sorted(took.items()):
            points = quantiles(times, n=100, method="inclusive") if len(times) > 1 else times * 100
            counts = ", ".join(
                f"{count} x {status}" for (one, status), count in sorted(statuses.items()) if one == what
            )
            lines.append(
                f"{what:17} {len(times):5}  p50 {points[49]:6.0f}  p95 {points[94]:6.0f}  p99 {points[98]:6.0f}"
                f"  most {max(times):6.0f} ms   {counts}\n"
            )
        (self.site.data / "answers.txt").write_text("".join(lines))
        sys.stdout.writelines(lines)
