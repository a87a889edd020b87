"""A running site whose clock is set, all of its processes at once: work goes on, and nothing is done twice."""

from __future__ import annotations

import json
import mmap
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from falconweb.scheduler import TURN_KEY
from telemetry.live.frames import decode_key
from tests.site import RunningSite, processes_of
from tests.stage.operator import Operator
from tests.stage.plans import zone_writes
from tests.stage.processes import broker_of
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.process,
    pytest.mark.nightly,
    pytest.mark.skipif(shutil.which("cc") is None, reason="a library sets the clock of a site: install a C compiler"),
]
HOUR, DAY = 3600, 86400
PARTS = ("worker", "beat", "web", "broker")
SLOW: dict[str, Any] = {"kind": "slow", "path": "/Zones/", "method": "PATCH", "delay": 4.0}


class ClockedSite:
    """A site with one chassis, whose processes all have a clock that `set_clock` sets."""

    def __init__(self, folder: Path) -> None:
        library, offset = folder / "clock.so", folder / "offset"
        source = str(Path(__file__).with_name("jumping_clock.c"))
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), source], check=True)
        offset.write_bytes(struct.pack("l", 0))
        with offset.open("r+b") as file:
            self._offset = mmap.mmap(file.fileno(), 0)
        self.site = RunningSite(
            folder / "data",
            FALCONWEB_SIMULATED="1",
            FALCONWEB_SESSION_IDLE_MINUTES="0",  # sessions follow the clock
            LD_PRELOAD=str(library),
            CLOCK_OFFSET_FILE=str(offset),
        )
        self.operator = Operator(self.site)
        self.broker: Any = broker_of(self.site)[1]

    def set_clock(self, seconds: int) -> None:
        """Set it to so many seconds after the real time."""
        self._offset[:] = struct.pack("l", seconds)

    def turn(self) -> tuple[str, int]:
        """Return the name of the scheduler at work, and its count."""
        raw = self.broker.get(TURN_KEY)
        assert isinstance(raw, bytes)
        name, _, count = raw.decode().partition(" ")
        return name, int(count)

    def frame_at(self) -> float:
        """Return the time of the newest readings of the chassis; 0 for none."""
        raw = self.broker.get("live:frame:1")
        return decode_key(raw).at if isinstance(raw, bytes) else 0.0

    def move(self) -> str:
        """Ask for the device in the first slot to be attached, or detached; return the id of the operation."""
        found = self.operator.get("chassis/1/")
        device = next(slot["device"] for slot in found["drawers"][0]["slots"] if slot["device"])
        port = next(one["id"] for one in found["host_ports"] if one["label"] == "H1")
        asked = {"device_id": device["id"], "target_host_port_id": None if device["host_port_id"] else port}
        return str(self.operator.post("operations/", asked)["id"])

    def steps_under_way(self, operation: str) -> set[str]:
        steps = self.operator.get(f"operations/{operation}/")["steps"]
        return {one["name"] for one in steps if one["state"] == "running"}

    def wait_until_whole(self) -> None:
        def parts() -> dict[str, str]:
            return dict(json.loads(self.site.get("/readyz")[1]))

        wait_for(lambda: parts()["status"] == "ok", lambda: f"{parts()}", seconds=120, every=0.5)

    def wait_for_end(self, operation: str, seconds: float) -> None:
        done = f"operations/{operation}/"
        wait_for(
            lambda: self.operator.get(done)["state"] == "done", lambda: f"{self.operator.get(done)}", seconds, every=0.3
        )


@pytest.fixture(scope="module")
def clocked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClockedSite]:
    found = ClockedSite(tmp_path_factory.mktemp("clocked"))
    try:
        found.wait_until_whole()
        wait_for(found.frame_at, "no readings", seconds=120, every=0.5)
        yield found
    finally:
        found.broker.close()
        found.site.stop()


@pytest.mark.parametrize("seconds", [HOUR, -HOUR, -30 * DAY, 2 * HOUR], ids=str)
def test_a_clock_that_is_set_stops_nothing_and_does_nothing_twice(clocked: ClockedSite, seconds: int) -> None:
    site = clocked.site
    processes, name = {part: processes_of(site, part) for part in PARTS}, clocked.turn()[0]
    site.control("falcon-1", "POST", "/faults", SLOW)
    writes, under_way = zone_writes(site, "falcon-1"), clocked.move()
    # A command that is on its way to a host while the clock is set back is one of the future, and refused.
    wait_for(lambda: clocked.steps_under_way(under_way) & {"Attach", "Detach"}, "it does not begin", every=0.1)
    clocked.set_clock(seconds)
    begun = clocked.turn()[1]
    clocked.wait_for_end(under_way, seconds=90)
    assert zone_writes(site, "falcon-1") == writes + 1
    site.control("falcon-1", "DELETE", "/faults")
    clocked.wait_for_end(clocked.move(), seconds=60)
    wait_for(lambda: clocked.turn()[1] > begun + 2, "nothing is scheduled", seconds=60, every=0.5)
    clocked.wait_until_whole()
    # Readings have the time that the site has now.
    wait_for(lambda: abs(clocked.frame_at() - time.time() - seconds) < 10, "no readings", seconds=60, every=0.5)
    assert clocked.broker.llen("falconweb") < 20, "nobody does what is scheduled"
    # None hung, and the same scheduler is at work.
    assert {part: processes_of(site, part) for part in PARTS} == processes
    assert clocked.turn()[0] == name
