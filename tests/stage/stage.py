"""One site, and one simulator with many chassis, each with its own fault: all that waits runs here at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from falconweb.testing.processes import SimulatorProcess
from simulator.lab import DEFAULT_LAB
from tests.site import RunningSite, processes_of
from tests.stage.chassis import StageChassis
from tests.stage.operator import Operator
from tests.stage.processes import broker_of, poller_of
from tests.stage.watcher import Frames
from tests.waiting import wait_for

OWN = ("falcon-1", "falcon-2")  # of the site: their hosts have agents, and the launcher starts them again
# What happens to it names each other chassis: nothing to the first two, something small now and then to the third.
MORE = (
    "well", "events", "busy",
    "silent", "failing", "nonsense", "broken", "rebooting", "slow",
    "bad-values", "repeated", "late", "other-unit", "many",
)  # fmt: skip
# Those that go on while parts of the site are killed.
FEW = {*OWN, "well", "events", "busy", "many"}
SETTINGS: dict[str, Any] = {
    "FALCONWEB_WORKERS": "2",
    "FALCONWEB_WEB_PROCESSES": "2",
    # Enough for what many chassis give at once, and full before long where nothing can be stored.
    "FALCONWEB_STORE_MEMORY": "0.1",
    # What is stored is looked at soon after.
    "FALCONWEB_STORE_SECONDS": "10",
}


class Stage:
    """The site, its administrator, and chassis by name."""

    def __init__(self, operator: Operator, chassis: list[StageChassis]) -> None:
        self.site = operator.site
        self.operator = operator
        self.chassis = {one.name: one for one in chassis}

    def __getitem__(self, name: str) -> StageChassis:
        return self.chassis[name]

    @property
    def numbers(self) -> list[int]:
        """The ids of all chassis."""
        return [one.pk for one in self.chassis.values()]

    def pollers(self) -> dict[int, int]:
        """Return which worker process reads each chassis, 0 where none does."""
        _, broker = broker_of(self.site)
        with contextlib.closing(broker):
            return {pk: poller_of(broker, pk) for pk in self.numbers}

    def missing(self, readers: Sequence[Frames]) -> list[str]:
        """Return what is known of each chassis of which somebody has hardly a frame."""
        pollers = self.pollers()
        return [
            f"{name}: {[len(one.times(chassis.pk)) for one in readers]} frames, read by {pollers[chassis.pk]},"
            f" at fault: {chassis.row()['last_error'] or 'nothing'}"
            for name, chassis in self.chassis.items()
            if any(len(one.times(chassis.pk)) < 3 for one in readers)
        ]

    def wait_until_shared(self) -> dict[int, int]:
        """Wait until each of two workers reads half of the chassis; return who reads which."""

        def shared() -> dict[int, int] | None:
            found = self.pollers()
            # A lease of one that was killed stays for a while.
            counts = [list(found.values()).count(pid) for pid in processes_of(self.site, "worker")]
            return found if counts == [len(found) // 2] * 2 else None

        found: dict[int, int] = wait_for(shared, lambda: f"not shared: {self.pollers()}", 120, every=0.2)
        return found

    def keep_few(self) -> None:
        """Have no more chassis read than the tests of killed parts look at: each costs the machine its share."""
        for name in self.chassis.keys() - FEW:
            self.operator.patch(f"chassis/{self.chassis.pop(name).pk}/", {"enabled": False})

    def heal(self) -> None:
        """End every fault."""
        for one in self.chassis.values():
            with contextlib.suppress(OSError):
                one.heal()


def own_chassis(operator: Operator) -> list[StageChassis]:
    """Return the chassis that a site brings."""
    rows = {row["name"]: int(row["id"]) for row in operator.get("chassis/")}
    return [StageChassis(operator, name, rows[name], partial(operator.site.control, name)) for name in OWN]


@contextmanager
def set_up(data: Path) -> Iterator[Stage]:
    """A stage on which each chassis is read."""
    lab = data.parent / f"{data.name}-lab.json"
    # Hosts without agents: of those with one, what is attached has to show up there, too.
    lab.write_text(DEFAULT_LAB.read_text().replace('"node-', '"stage-'))
    options = "--lab", str(lab), "--chassis-count", str(len(MORE))
    with RunningSite(data, **SETTINGS) as site, SimulatorProcess(*options) as simulated:
        operator = Operator(site)

        def added(number: int) -> StageChassis:
            row = operator.post("chassis/", {
                "name": MORE[number], "url": simulated.addresses[number], "username": "administrator",
                "password": simulated.password, "fingerprint": simulated.fingerprint,
            })  # fmt: skip

            def ask(method: str, path: str, body: dict[str, Any] | None = None) -> Any:
                return simulated.ask_control(method, f"{path}?chassis=falcon-1-{number + 1}", body)

            return StageChassis(operator, MORE[number], int(row["id"]), ask)

        chassis = own_chassis(operator)
        with ThreadPoolExecutor(4) as pool:
            chassis += pool.map(added, range(len(MORE)))
        wait_for(
            lambda: all(one["inventory_at"] for one in operator.get("chassis/")), "not seen", seconds=180, every=0.5
        )
        yield Stage(operator, chassis)
