"""A running site whose clock is set by an hour: operations, polling and periodic work go on, and nothing is done twice."""

from __future__ import annotations

import mmap
import os
import re
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from falconweb.launch.commands import beat_arguments, celery_command
from falconweb.scheduler import STANDSTILL_SECONDS, TURN_KEY
from tests.site import ROOT, RunningSite, kill, processes_of
from tests.stage.operator import Operator
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        shutil.which("cc") is None, reason="the clock of a site is set by a library: install a C compiler"
    ),
]
HOUR = 3600
BOUND = 60.0  # s, until everything goes on after the clock was set
# Each of them has a period of some seconds.
PERIODIC = {
    "telemetry.keep_polling", "fabric.recover_operations", "exports.tend", "alerts.notify", "alerts.watch_chassis",
    "sweeps.tend", "runs.tend",
}  # fmt: skip
SLOW: dict[str, Any] = {"kind": "slow", "path": "/Zones/", "method": "PATCH", "delay": 4.0}


class JumpingSite:
    """A site with one chassis, whose processes all have a clock that `set_clock` sets (s from the real time)."""

    def __init__(self, folder: Path) -> None:
        library, offset = folder / "clock.so", folder / "offset"
        source = str(Path(__file__).with_name("jumping_clock.c"))
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), source], check=True)
        offset.write_bytes(struct.pack("l", 0))
        with offset.open("r+b") as file:
            self._offset = mmap.mmap(file.fileno(), 0)
        self.environment = {"LD_PRELOAD": str(library), "CLOCK_OFFSET_FILE": str(offset)}
        self.site = RunningSite(folder / "data", FALCONWEB_SIMULATED="1", **self.environment)
        self.operator = Operator(self.site)
        (web,) = processes_of(self.site, "web")
        password = (self.site.data / "secrets" / "broker_password").read_text().strip()
        (broker,) = processes_of(self.site, "broker")
        log = (self.site.data / "logs" / "broker.log").read_text()
        port = re.findall(r"port=(\d+)|Port: (\d+)", log)
        del web, broker
        self.url = f"redis://:{password}@127.0.0.1:{next(filter(None, port[-1]))}/0"
        self.broker = redis.Redis.from_url(self.url)

    def set_clock(self, seconds: int) -> None:
        self._offset[:] = struct.pack("l", seconds)

    def turn(self) -> tuple[str, int]:
        """Return the name of the scheduler at work, and its count."""
        raw = self.broker.get(TURN_KEY)
        assert isinstance(raw, bytes)
        name, _, count = raw.decode().partition(" ")
        return name, int(count)

    def device(self, slot: int) -> dict[str, Any]:
        """Return a device of the first drawer."""
        (chassis,) = self.operator.get("chassis/")["results"]
        drawers = self.operator.get(f"chassis/{chassis['id']}/")["drawers"]
        found: dict[str, Any] = next(one["device"] for one in drawers[0]["slots"] if one["number"] == slot)
        return found

    def end(self) -> None:
        self.broker.close()
        self.site.stop()


@pytest.fixture(scope="module")
def jumping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JumpingSite]:
    site = JumpingSite(tmp_path_factory.mktemp("jumping"))
    try:
        yield site
    finally:
        site.end()


def test_it_starts(jumping: JumpingSite) -> None:
    for hours in (-1, 1):
        jumping.set_clock(3600 * hours)
        print(jumping.broker.get(TURN_KEY), jumping.broker.time(), time.time(), jumping.device(1))
        print(jumping.operator.get("chassis/"))
