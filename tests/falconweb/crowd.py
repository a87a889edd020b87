"""People who use a site at once, by its API and signed in as in a browser, and what each was answered."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp

LONGEST_ANSWER = 60.0  # s: who waits longer takes the site for hung
FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a request was answered, and how long that took, in s."""

    who: str
    what: str
    status: int
    body: Any
    seconds: float

    @property
    def problem(self) -> str:
        """The sentence of a problem, '' where there is none."""
        return str(self.body.get("detail", "")) if isinstance(self.body, dict) else ""


@dataclass(frozen=True)
class SeenDevice:
    """A device as a person sees it: ids, the slot's number and the host port that it is attached to."""

    id: int
    slot: int
    port: int | None


@dataclass(frozen=True)
class SeenDrawer:
    """A drawer as a person sees it, with the host ports that are theirs to use (id and number)."""

    id: int
    mode: str
    devices: tuple[SeenDevice, ...]
    ports: tuple[tuple[int, int], ...]


@dataclass
class Accepted:
    """What the site said yes to: ids of operations, and of plans that were applied."""

    operations: set[str] = field(default_factory=set)
    plans: set[str] = field(default_factory=set)


class Person:
    """Somebody in front of a browser of their own; `answers` and `accepted` are the crowd's."""

    def __init__(self, address: str, name: str, password: str, answers: list[Answer], accepted: Accepted) -> None:
        self.name = name
        self.drawers: list[SeenDrawer] = []
        self.dice = random.Random(name)  # noqa: S311 - no secret
        self.plans: list[str] = []
        self.operations: list[str] = []
        self._password = password
        self._answers = answers
        self._accepted = accepted
        self._browser = aiohttp.ClientSession(
            address,
            # Less than the server keeps one: a request on a connection that is just being closed is nobody's fault.
            connector=aiohttp.TCPConnector(keepalive_timeout=2),
            cookie_jar=aiohttp.CookieJar(unsafe=True),
            timeout=aiohttp.ClientTimeout(total=LONGEST_ANSWER),
        )

    async def sign_in(self) -> None:
        """Sign in by the page."""
        await self.page("/sign-in/")
        form = {"username": self.name, "password": self._password, "csrfmiddlewaretoken": self._csrf}
        async with self._browser.post("/sign-in/", data=form, headers={"Content-Type": FORM}) as reply:
            assert reply.status == 200, await reply.text()
            assert reply.url.path != "/sign-in/", await reply.text()

    async def leave(self) -> None:
        """Close the browser."""
        await self._browser.close()

    @property
    def _csrf(self) -> str:
        return next((cookie.value for cookie in self._browser.cookie_jar if "csrf" in cookie.key), "")

    async def page(self, path: str) -> str:
        """Return a page."""
        async with self._browser.get(path) as reply:
            text = await reply.text()
            assert reply.status == 200, (path, reply.status, text)
            return text

    async def ask(self, what: str, method: str, path: str, body: Any = None, *, key: str = "") -> Answer:
        """Send a request to the API and note the answer under `what`."""
        headers = {"X-CSRFToken": self._csrf} | ({"Idempotency-Key": key} if key else {})
        begin = time.perf_counter()
        async with self._browser.request(method, f"/api/v1/{path}", json=body, headers=headers) as reply:
            text = await reply.read()
            decoded = await reply.json(content_type=None) if text else None
            answer = Answer(
                who=self.name, what=what, status=reply.status, body=decoded, seconds=time.perf_counter() - begin
            )
        self._answers.append(answer)
        return answer

    async def all_of(self, path: str) -> list[Any]:
        """Return all rows of a list."""
        rows: list[Any] = []
        while True:
            joint = "&" if "?" in path else "?"
            answer = await self.ask("list", "GET", f"{path}{joint}limit=1000&offset={len(rows)}")
            assert answer.status == 200, answer
            rows += answer.body["results"]
            if not answer.body["next"]:
                return rows

    # --- what people do ---------------------------------------------------------------------------------------------

    async def look(self) -> None:
        """Read the chassis anew."""
        answer = await self.ask("look", "GET", "chassis/")
        assert answer.status == 200, answer
        self.drawers = list(_drawers(answer.body))

    async def single(self) -> None:
        """Ask for one device to be attached, moved or detached; now and then twice at once, as by a double click."""
        drawer = self.dice.choice(self.drawers)
        device = self.dice.choice(drawer.devices)
        target = self.dice.choice([None, *(port for port, _ in drawer.ports)])
        wanted = {"device_id": device.id, "target_host_port_id": target}
        if self.dice.random() < 0.7:
            wanted["expected_host_port_id"] = device.port
        clicks = 2 if self.dice.random() < 0.15 else 1
        key = str(uuid.UUID(int=self.dice.getrandbits(128)))
        answers = await asyncio.gather(
            *(self.ask("operation", "POST", "operations/", wanted, key=key) for _ in range(clicks))
        )
        taken = {answer.body["id"] for answer in answers if answer.status == 202}
        assert len(taken) <= 1, "one key, two operations"
        self._note(taken)

    async def detach(self, device: SeenDevice) -> Answer:
        """Ask for a device to be detached."""
        wanted = {"device_id": device.id, "target_host_port_id": None}
        answer = await self.ask("operation", "POST", "operations/", wanted)
        assert answer.status == 202, answer
        self._note({answer.body["id"]})
        return answer

    async def change_mode(self) -> None:
        """Ask for another mode of a drawer."""
        drawer = self.dice.choice(self.drawers)
        mode = self.dice.choice(["StandardOneHost", "StandardTwoHosts", "Advanced"])
        answer = await self.ask("mode", "POST", f"drawers/{drawer.id}/mode/", {"mode": mode})
        self._note({answer.body["id"]} if answer.status == 202 else set())

    async def cancel_single(self) -> None:
        """Cancel the operation that was asked for last."""
        if self.operations:
            await self.ask("cancel operation", "POST", f"operations/{self.operations[-1]}/cancel/")

    async def plan(self, *, whole: bool = False) -> None:
        """Draft a plan over a drawer or two, look at it, and apply it, or think again. `whole`: of all its devices."""
        drawers = self.dice.sample(self.drawers, min(len(self.drawers), self.dice.choice([1, 1, 2])))
        made = await self.ask("draft", "POST", "plans/", self._rearranged(drawers) if whole else self._some(drawers))
        if made.status != 201:
            return
        await asyncio.sleep(self.dice.uniform(0, 0.5))
        plan = made.body["id"]
        choice = self.dice.random()
        if choice < 0.1:
            await self.ask("discard", "DELETE", f"plans/{plan}/")
            return
        if choice < 0.2:
            await self.ask("change draft", "PUT", f"plans/{plan}/", self._some(drawers))
        applied = await self._apply(plan)
        if applied.status == 409 and applied.body.get("differences"):
            # As the page offers it: planned anew on what is now.
            again = await self.ask("change draft", "PUT", f"plans/{plan}/", made.body["wanted"])
            applied = await self._apply(plan) if again.status == 200 else applied
        if applied.status != 202:
            await self.ask("discard", "DELETE", f"plans/{plan}/")
        elif self.dice.random() < 0.25:
            await asyncio.sleep(self.dice.uniform(0, 2))
            await self._cancel(plan)

    async def decide(self) -> None:
        """Look at a plan of one's own: resume one that stopped, go back, or leave it; undo one that ended."""
        if not self.plans:
            return
        plan = self.dice.choice(self.plans)
        answer = await self.ask("watch", "GET", f"plans/{plan}/")
        assert answer.status == 200, answer
        state = answer.body["state"]
        if state == "stopped":
            if self.dice.random() < 0.5:
                await self.ask("resume", "POST", f"plans/{plan}/resume/")
            else:
                await self._cancel(plan)
        elif state in {"done", "cancelled", "rolled_back", "left"}:
            self.plans.remove(plan)
            if self.dice.random() < 0.4:
                undo = await self.ask("undo", "POST", f"plans/{plan}/undo/")
                if undo.status == 201:
                    await self._apply(undo.body["id"])
        elif self.dice.random() < 0.1:
            await self._cancel(plan)

    async def live(self, until: float, pause: float, *, administrator: bool) -> None:
        """Do one thing after the other until a moment (monotonic); think up to `pause` seconds between."""
        ways = [self.look, self.single, self.single, self.plan, self.plan, self.decide, self.decide]
        ways += [self.cancel_single, self.change_mode]
        if administrator:
            ways += [self._rearrange, self._rearrange]
        await asyncio.sleep(self.dice.uniform(0, pause))
        await self.look()
        while time.monotonic() < until:
            await self.dice.choice(ways)()
            await asyncio.sleep(self.dice.uniform(0, pause))

    # --- parts of these ---------------------------------------------------------------------------------------------

    async def _rearrange(self) -> None:
        await self.plan(whole=True)

    async def _apply(self, plan: str) -> Answer:
        how = {"on_failure": self.dice.choice(["stop", "roll_back"])}
        answer = await self.ask("apply", "POST", f"plans/{plan}/apply/", how)
        if answer.status == 202:
            self._accepted.plans.add(plan)
            self.plans.append(plan)
        return answer

    async def _cancel(self, plan: str) -> None:
        how = {"roll_back": self.dice.random() < 0.5}
        await self.ask("cancel plan", "POST", f"plans/{plan}/cancel/", how)

    def _note(self, operations: set[str]) -> None:
        self._accepted.operations |= operations
        self.operations += operations

    def _some(self, drawers: list[SeenDrawer]) -> dict[str, Any]:
        """Want some devices elsewhere, as they come: rules may stand against it."""
        attachments = [
            {"device_id": device.id, "host_port_id": self.dice.choice([None, *(port for port, _ in drawer.ports)])}
            for drawer in drawers
            for device in self.dice.sample(drawer.devices, self.dice.randint(1, min(4, len(drawer.devices))))
        ]
        return {"attachments": attachments}

    def _rearranged(self, drawers: list[SeenDrawer]) -> dict[str, Any]:
        """Want drawers in some mode, and all their devices where the mode lets them be."""
        wanted: dict[str, Any] = {"attachments": [], "modes": []}
        for drawer in drawers:
            ports = [port for port, _ in sorted(drawer.ports, key=lambda one: one[1])]
            modes = ["StandardOneHost", "Advanced"] + (["StandardTwoHosts"] if len(ports) > 1 else [])
            mode = self.dice.choice(modes)
            wanted["modes"].append({"drawer_id": drawer.id, "mode": mode})
            only = self.dice.choice(ports)
            for device in drawer.devices:
                choice = {
                    "StandardOneHost": only,
                    "StandardTwoHosts": ports[0 if device.slot <= 4 else 1] if len(ports) > 1 else None,
                    "Advanced": self.dice.choice(ports),
                }[mode]
                target = None if self.dice.random() < 0.1 else choice
                wanted["attachments"].append({"device_id": device.id, "host_port_id": target})
        return wanted


def _drawers(chassis: list[dict[str, Any]]) -> Iterator[SeenDrawer]:
    """Return the drawers of which a person sees a device and a host port."""
    for one in chassis:
        for drawer in one["drawers"]:
            devices = tuple(
                SeenDevice(slot["device"]["id"], slot["number"], slot["device"]["host_port_id"])
                for slot in drawer["slots"]
                if slot["device"]
            )
            ports = tuple(
                (port["id"], int(port["label"][1:])) for port in one["host_ports"] if port["drawer_id"] == drawer["id"]
            )
            if devices and ports:
                yield SeenDrawer(drawer["id"], drawer["mode"], devices, ports)
