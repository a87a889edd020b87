"""Faults of a chassis' readings on a running site: played, watched by a browser, and judged by what people are told."""

from __future__ import annotations

import csv
import html
import io
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from urllib.parse import quote

from tests.falconweb.operating import Operator
from tests.falconweb.watching import Watcher
from tests.waiting import wait_for

SICK, WELL = "falcon-1", "falcon-2"
UNEVEN = 2  # seconds that one chassis may miss more often than another: where all are late nothing is told of either
AWAY_SECONDS = 1.1  # longer than from one poll to the next
CHUNK_SECONDS = 60  # of readings are handed to the store at once
AWAY_COSTS = 5  # seconds that may be missing for it: it is tried again after one
Values = list[float | None]


class Stage:
    """Two chassis of a site: one is broken, and the other is held beside it."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.ids = {name: int(operator.chassis(name)["id"]) for name in (SICK, WELL)}
        self._failed = 0
        self._devices = operator.devices(SICK)
        self._ports = {port["device_id"]: port["id"] for port in operator.get("ports/?limit=1000")["results"]}

    def temperature(self, slot: str) -> str:
        """Return the key of the temperature of the device in a slot of the sick chassis."""
        return f"device/{self._devices[slot]['id']}/temperature_celsius"

    def port(self, slot: str, name: str) -> str:
        """Return a key of the port behind a slot of the sick chassis."""
        return f"port/{self._ports[self._devices[slot]['id']]}/{name}"

    def fault(self, kind: str, target: str = "", **more: Any) -> None:
        """Break the sick chassis."""
        self.operator.site.control(SICK, "POST", "/faults", {"kind": kind, "target": target, **more})

    def truth(self) -> dict[str, Any]:
        """Return the truth about the sick chassis."""
        found: dict[str, Any] = self.operator.site.control(SICK, "GET", "/state")
        return found

    def heal(self) -> None:
        """End every fault of it."""
        self.operator.site.control(SICK, "DELETE", "/faults")

    def be_away(self) -> None:
        """Let its BMC be away for a poll: that second is missing then, and what was read before is stored at once."""
        self._failed += 1
        self.fault("bmc_reboot", seconds=AWAY_SECONDS)

    def set_clock(self, seconds: float) -> None:
        """Set the clock of its BMC forward, or back."""
        self.operator.site.control(SICK, "POST", "/time", {"shift": seconds})

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch both: of each second of which the well one has a frame, the sick one must have one, too."""
        pks, failed = list(self.ids.values()), self._failed
        with Watcher(self.operator, pks) as watcher:
            wait_for(lambda: all(len(watcher.times(pk)) > 1 for pk in pks), "no frames came")
            yield
        sick, well = ({second for (of, second), _ in watcher.came if of == pk} for pk in pks)
        span = set(range(max(min(sick), min(well)) + 1, min(max(sick), max(well))))
        most = len(span - well) + UNEVEN + AWAY_COSTS * (self._failed - failed)
        assert len(span - sick) <= most, (sorted(span - sick), sorted(span - well))
        assert watcher.opened == 1

    def live(self, *keys: str, since: float, until: float = math.inf) -> list[Values]:
        """Return what was shown live of series of the sick chassis in a range of the last minutes (Unix s)."""
        seconds = min(600.0, max(0.1, time.time() - since))
        path = f"chassis/{self.ids[SICK]}/readings/?keys={quote(','.join(keys))}&seconds={seconds:.3f}"
        told = self.operator.get(path)
        return [
            [value for at, value in zip(told["at"], told["values"][key], strict=True) if since <= at <= until]
            for key in keys
        ]

    def stored(self, *keys: str, since: float, until: float) -> list[Values]:
        """Return every stored reading of series of the sick chassis in a range, None where another one has no gap."""
        rows: list[list[str]] = []

        def is_there() -> bool:
            rows[:] = self._rows(keys, since)
            # What is measured at all is asked for every ten seconds: a new series shows up that much later.
            return bool(rows) and len(rows[-1]) == len(keys) + 1 and _moment(rows[-1]) > until - 2.0

        # Soon after a second without an answer, and where no poll met that one: when the chunk is full.
        wait_for(is_there, "it was not stored", seconds=CHUNK_SECONDS + 20)
        told = [row for row in rows if _moment(row) <= until]
        return [[float(row[place]) if row[place] else None for row in told] for place in range(1, len(keys) + 1)]

    def both(self, *keys: str, since: float, until: float) -> list[list[Values]]:
        """Return what was shown live, and what is stored."""
        return [self.live(*keys, since=since, until=until), self.stored(*keys, since=since, until=until)]

    def _rows(self, keys: Sequence[str], since: float) -> list[list[str]]:
        subjects = quote(",".join(f"series/{self.ids[SICK]}/{key}" for key in keys))
        text = self.operator.page(f"/api/v1/telemetry/raw/?subjects={subjects}&since={since:.3f}")
        return list(csv.reader(io.StringIO(text)))[1:]

    def counts(self, name: str = SICK) -> dict[str, int]:
        """Return what was counted of a chassis, by the API."""
        rows = self.operator.get("pipeline/")["counts"]
        return {row["name"]: row["total"] for row in rows if row["chassis_id"] == self.ids[name]}

    def counted(self, name: str) -> int:
        """Return how often something was counted of the sick chassis."""
        return self.counts().get(name, 0)

    def count_on(self, name: str, before: int, more: int = 1) -> None:
        """Wait until something was counted so many times more."""
        wait_for(lambda: self.counted(name) >= before + more, lambda: f"{name}: {self.counted(name)} after {before}")

    def read_on(self, *keys: str) -> None:
        """Wait until series of the sick chassis were read twice from now on."""
        now = time.time()

        def is_read() -> bool:
            return all(len(values) > 1 and None not in values[-2:] for values in self.live(*keys, since=now))

        wait_for(is_read, "it is not read on")

    def told(self, name: str, before: dict[str, int], *, least: int = 1) -> int:
        """Wait until so many more were counted of the sick chassis, and see that all tell so; return how many more."""

        def more() -> int:
            return self.counts().get(name, 0) - before.get(name, 0)

        wait_for(lambda: more() >= least, lambda: f"{name}: {more()} of {least}", seconds=10)
        shown = next(row["words"] for row in self.operator.get("pipeline/")["counts"] if row["name"] == name)
        assert shown in html.unescape(self.operator.page("/telemetry/pipeline/"))
        sample = f'falconweb_chassis_bad_input_total{{chassis="{SICK}",what="{name}"}} '
        (line,) = (line for line in self.operator.page("/metrics").splitlines() if line.startswith(sample))
        assert float(line.removeprefix(sample)) >= before.get(name, 0) + least
        return more()

    def metric(self, name: str) -> dict[str, float]:
        """Return the samples of a metric of the sick chassis by their labels, as Prometheus gets them."""
        lines = self.operator.page(f"/metrics?chassis={SICK}").splitlines()
        found = (line.rpartition(" ") for line in lines if line.startswith(name + "{"))
        return {labels: float(value) for labels, _, value in found}


def _moment(row: list[str]) -> float:
    return datetime.fromisoformat(row[0]).timestamp()
