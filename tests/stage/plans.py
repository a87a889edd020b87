"""Plans over ten devices of two chassis, and parts of the site that are killed in the middle of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from fabric.bmc.addresses import BmcAddress, CertificateTrust
from fabric.bmc.client import BmcClient
from fabric.bmc.log_search import read_log_entries
from tests.site import RunningSite, kill, processes_of
from tests.stage.operator import LOOK_SECONDS
from tests.stage.processes import workers_at
from tests.stage.stage import Stage
from tests.stage.watcher import Watcher
from tests.waiting import wait_for

# A drawer of each chassis in which any host port reaches any slot.
PLANNED = {"falcon-1": (1, (1, 2, 3, 4, 5, 6), ("H1", "H2", "H3")), "falcon-2": (2, (1, 2, 3, 4), ("H3", "H4"))}
SLOW: dict[str, Any] = {"kind": "slow", "path": "/Zones/", "method": "PATCH", "delay": 0.6}
Wanted = dict[tuple[str, str], dict[str, Any]]  # by chassis and slot


def elsewhere(stage: Stage) -> Wanted:
    """Return a wanted place, other than that of now, for ten devices of two chassis."""
    wanted = {}
    for name, (drawer, slots, labels) in PLANNED.items():
        ports, devices = stage[name].row()["host_ports"], stage[name].devices()
        for number, slot in enumerate(slots):
            place = f"drawer{drawer}slot{slot}"
            free = [label for label in labels if label != devices[place]["host_port_label"]]
            label = free[number % len(free)]
            port = next(port["id"] for port in ports if port["label"] == label)
            zone = f"hostport{drawer}_{label}"
            # It is taken out of one zone, where it is in one, and put into another, once.
            writes = 2 if devices[place]["host_port_label"] else 1
            wanted[name, place] = {"device": devices[place]["id"], "port": port, "zone": zone, "writes": writes}
    return wanted


def is_in_force(stage: Stage, wanted: Wanted) -> bool:
    """Tell whether each device is where it shall be, by the chassis themselves."""
    zones = {name: stage[name].zones() for name in PLANNED}
    return all(zones[name].get(place) == one["zone"] for (name, place), one in wanted.items())


def zone_writes(site: RunningSite, name: str) -> int:
    """Return how often the site has changed a zone of a chassis, as the chassis' own log has it."""
    port = json.loads((site.data / "simulator" / "ports.json").read_text())[name][0]
    log = dict(line.partition(" ")[::2] for line in (site.data / "logs" / f"{name}.log").read_text().splitlines())
    address = BmcAddress(
        url=f"https://127.0.0.1:{port}",
        username="administrator",
        password=(site.data / "secrets" / "simulator_password").read_text().strip(),
        trust=CertificateTrust(fingerprint=log["fingerprint"]),
    )

    async def counted() -> int:
        async with BmcClient(address) as bmc:
            entries = await read_log_entries(bmc, datetime.fromtimestamp(0, UTC), most=5000)
        return sum(one.originator == "administrator" and "ZoneModified" in one.message_id for one in entries)

    return asyncio.run(counted())


@dataclass
class PlanRun:
    """A plan that is carried out while zones change slowly; `ended` is how it ended."""

    stage: Stage
    wanted: Wanted = field(default_factory=dict)
    writes: dict[str, int] = field(default_factory=dict)
    pk: str = ""
    ended: dict[str, Any] = field(default_factory=dict)

    def apply(self) -> PlanRun:
        """Plan and apply that devices go elsewhere, or where they were wanted before."""
        operator = self.stage.operator
        for name in PLANNED:
            self.stage[name].heal()
            self.stage[name].fault(**SLOW)
        self.wanted = self.wanted or elsewhere(self.stage)
        self.writes = {name: zone_writes(self.stage.site, name) for name in PLANNED}
        attachments = [{"device_id": one["device"], "host_port_id": one["port"]} for one in self.wanted.values()]
        plan = operator.post("plans/", {"attachments": attachments})
        assert plan["objections"] == []
        self.pk = str(operator.post(f"plans/{plan['id']}/apply/", {})["id"])
        return self

    def workers_at(self, *steps: str) -> set[int]:
        """Return the workers that are at one of these steps (default: either), once an operation is done."""
        with contextlib.suppress(OSError):
            found = self.stage.operator.get(f"plans/{self.pk}/")
            if found["finished_at"]:
                self.ended = found
            elif "done" in {one["state"] for one in found["operations"]}:
                return workers_at(self.stage.site, *(steps or ("Detach", "Attach")))
        return set()

    def states(self) -> set[str]:
        """Return the states of its operations."""
        return {one["state"] for one in self.stage.operator.get(f"plans/{self.pk}/")["operations"]}

    def carry_out(self) -> dict[str, Any]:
        """Wait until it has ended, whatever does not answer meanwhile; one that stops is resumed, at last left."""
        end = time.monotonic() + 110
        decisions = ["resume", "resume", "cancel"]
        while not self.ended:
            assert time.monotonic() < end, "the plan did not end"
            with contextlib.suppress(OSError):
                found = self.stage.operator.get(f"plans/{self.pk}/")
                if found["finished_at"]:
                    self.ended = found
                elif found["state"] == "stopped":
                    self.stage.operator.post(f"plans/{self.pk}/{decisions[0]}/", {})
                    decisions.pop(0)
            time.sleep(LOOK_SECONDS)
        return self.ended

    def wrong_writes(self) -> dict[str, int]:
        """Return how often zones were changed since it was applied, where that is not once for each change."""
        more = {name: zone_writes(self.stage.site, name) - before for name, before in self.writes.items()}
        right = Counter(dict.fromkeys(PLANNED, 0))
        for (name, _), one in self.wanted.items():
            right[name] += one["writes"]
        return {name: writes for name, writes in more.items() if writes != right[name]}


@dataclass
class KilledParts:
    """What became of plans while parts of the site were killed in the middle of them, and who watched.

    `plans` come with what `wrong_writes` found, `in_force` is whether the last one was in the end. `killed_at` is when
    each part was killed (Unix s), `pollers` who read which chassis right before, `killed` the worker that was killed
    first, `outlived` the workers that were there before the broker was killed and after it came back.
    """

    plans: list[tuple[PlanRun, dict[str, int]]] = field(default_factory=list)
    in_force: bool = False
    watchers: list[Watcher] = field(default_factory=list)
    killed_at: dict[str, float] = field(default_factory=dict)
    pollers: dict[str, dict[int, int]] = field(default_factory=dict)
    killed: int = 0
    outlived: set[int] = field(default_factory=set)

    def read_since(self, part: str, seconds: float, times: int = 1) -> bool:
        """Tell whether each chassis was read so often, so many seconds after a part was killed."""
        since = self.killed_at[part] + seconds
        read = ([at for at in self.watchers[0].times(pk) if at > since] for pk in self.pollers[part])
        return all(len(times_read) >= times for times_read in read)


def kill_parts(stage: Stage) -> KilledParts:
    """Kill one part of the site after the other while plans are carried out: each in the middle, and it comes back."""
    site, found = stage.site, KilledParts()
    run = PlanRun(stage).apply()

    def at_work(*steps: str) -> set[int]:
        nonlocal run
        if run.ended:
            found.plans.append((run, run.wrong_writes()))
            run = PlanRun(stage).apply()
        return run.workers_at(*steps)

    def killed(part: str, *steps: str) -> None:
        of = partial(processes_of, site, "worker" if steps else part)
        workers: set[int] = wait_for(partial(at_work, *steps), f"no plan is at work to kill {part}", 90)
        before, found.pollers[part] = of(), stage.pollers()
        found.killed = found.killed or next(iter(workers))
        found.killed_at[part] = time.time()
        kill({next(iter(workers))} if steps else before)
        wait_for(lambda: of() - before, f"{part} was not started again", every=0.1)

    def taken_over() -> dict[int, int] | None:
        now = stage.pollers()
        return None if {0, found.killed} & set(now.values()) else now

    with contextlib.ExitStack() as stack:
        found.watchers = [stack.enter_context(Watcher(stage.operator, stage.numbers)) for _ in range(2)]
        wait_for(
            lambda: all(len(one.times(pk)) >= 3 for one in found.watchers for pk in stage.numbers),
            lambda: f"no frames: {stage.missing(found.watchers)}",
        )
        killed("worker that detaches", "Detach")
        found.pollers["one worker less"] = wait_for(taken_over, "nobody took over")
        wait_for(lambda: found.read_since("worker that detaches", 1.5), "nobody reads them")
        killed("beat")
        killed("worker that attaches", "Attach")
        killed("web")
        stage.wait_until_shared()
        killed("broker")
        wait_for(lambda: found.read_since("broker", 1.0, times=3), "live stayed away")
        found.pollers["the new broker"] = stage.pollers()
        found.outlived = processes_of(site, "worker") & set(found.pollers["broker"].values())
        run.carry_out()
    found.plans.append((run, run.wrong_writes()))
    found.in_force = is_in_force(stage, run.wanted)
    return found
