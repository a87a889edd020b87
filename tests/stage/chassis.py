"""A chassis of the stage: broken by its control address, judged by what the site shows of it and by its own truth."""

from __future__ import annotations

import csv
import html
import io
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from urllib.parse import quote

from telemetry.instrumentation.publisher import PERIOD_SECONDS
from tests.stage.operator import LOOK_SECONDS, Operator
from tests.waiting import Pauses, wait_for

CHUNK_SECONDS = 60  # of readings are given to the store at once
Values = list[float | None]


class StageChassis:
    """One chassis; `ask` sends a request to its control address."""

    def __init__(self, operator: Operator, name: str, pk: int, ask: Callable[..., Any]) -> None:
        self.operator = operator
        self.name = name
        self.pk = pk
        self.ask = ask
        self._ports: dict[int, int] = {}

    def row(self) -> dict[str, Any]:
        """Return it as the administrator sees it."""
        found: dict[str, Any] = self.operator.get(f"chassis/{self.pk}/")
        return found

    def devices(self) -> dict[str, dict[str, Any]]:
        """Return its devices, by drawer and slot as its truth names them."""
        return {
            f"drawer{drawer['number']}slot{slot['number']}": slot["device"]
            for drawer in self.row()["drawers"]
            for slot in drawer["slots"]
            if slot["device"]
        }

    def truth(self) -> dict[str, Any]:
        """Return the truth about it."""
        found: dict[str, Any] = self.ask("GET", "/state")
        return found

    def zones(self) -> dict[str, str]:
        """Return where each device is attached, by the truth."""
        return {member: zone for zone, members in self.truth()["zones"].items() for member in members}

    def is_shown(self) -> bool:
        """Tell whether the site shows it as it is."""
        return self.zones() == {
            place: f"hostport{place.removeprefix('drawer')[0]}_{device['host_port_label']}"
            for place, device in self.devices().items()
            if device["host_port_label"]
        }

    # --- what happens to it -----------------------------------------------------------------------------------------

    def fault(self, kind: str, target: str = "", **more: Any) -> None:
        """Break it."""
        self.ask("POST", "/faults", {"kind": kind, "target": target, **more})

    def heal(self) -> None:
        """End every fault of it."""
        self.ask("DELETE", "/faults")

    def set_clock(self, seconds: float) -> None:
        """Set the clock of its BMC forward, or back."""
        self.ask("POST", "/time", {"shift": seconds})

    def await_trouble(self, seconds: float = 60.0) -> str:
        """Wait until the site says what is wrong with it, and return that."""
        began = time.monotonic()
        said: str = wait_for(
            lambda: self.trouble(began), f"{self.name}: nobody noticed", seconds=seconds, every=LOOK_SECONDS
        )
        return said

    def trouble(self, since: float = math.inf) -> str:
        """Return what the site says is wrong with it; now, or at some moment after another (monotonic s)."""
        rows = self.operator.look("chassis/", since=since)
        return next(str(row["last_error"]) for row in rows if row["id"] == self.pk)

    def be_away(self) -> None:
        """Let its BMC be away until the site says so: what was read before is stored at once."""
        fault = self.ask("POST", "/faults", {"kind": "bmc_reboot", "seconds": 60})
        self.await_trouble()
        self.ask("DELETE", f"/faults/{fault['id']}")

    # --- what is read of it -----------------------------------------------------------------------------------------

    def temperature(self, slot: str) -> str:
        """Return the key of the temperature of the device in a slot."""
        return f"device/{self.devices()[slot]['id']}/temperature_celsius"

    def port(self, slot: str, name: str) -> str:
        """Return a key of the port behind a slot."""
        if not self._ports:
            ports = self.operator.get("ports/?limit=1000")["results"]
            self._ports = {port["device_id"]: port["id"] for port in ports}
        return f"port/{self._ports[self.devices()[slot]['id']]}/{name}"

    def received(self, slot: str) -> str:
        """Return the key of the bytes a second that the port behind a slot receives."""
        return self.port(slot, "rx_bytes_per_second")

    def series(self) -> list[dict[str, Any]]:
        """Return what is measured."""
        found: list[dict[str, Any]] = self.operator.get(f"chassis/{self.pk}/series/")
        return found

    def live(self, *keys: str, since: float, until: float = math.inf) -> list[Values]:
        """Return what was shown live of series in a range of the last minutes (Unix s)."""
        seconds = min(600.0, max(0.1, time.time() - since))
        path = f"chassis/{self.pk}/readings/?keys={quote(','.join(keys))}&seconds={seconds:.3f}"
        shown = self.operator.get(path)
        return [
            [value for at, value in zip(shown["at"], shown["values"][key], strict=True) if since <= at <= until]
            for key in keys
        ]

    def seconds_read(self, seconds: float) -> list[float]:
        """Return the times of the readings of the last seconds."""
        path = f"chassis/{self.pk}/readings/?keys={quote(self.series()[0]['key'])}&seconds={seconds:.0f}"
        times: list[float] = self.operator.get(path)["at"]
        return times

    def stored(self, *keys: str, since: float, until: float) -> list[Values]:
        """Return every stored reading of series in a range, None where another one has no gap."""
        rows: list[list[str]] = []

        def is_there() -> bool:
            rows[:] = self._rows(keys, since)
            # What is measured at all is asked for every ten seconds: a new series shows up that much later.
            return bool(rows) and len(rows[-1]) == len(keys) + 1 and _moment(rows[-1]) > until - 2.0

        # Soon after a second without an answer, and where no poll met that one: when the chunk is full.
        wait_for(is_there, f"{self.name}: it was not stored", seconds=CHUNK_SECONDS + 20, every=LOOK_SECONDS)
        found = [row for row in rows if _moment(row) <= until]
        return [[float(row[place]) if row[place] else None for row in found] for place in range(1, len(keys) + 1)]

    def _rows(self, keys: Sequence[str], since: float) -> list[list[str]]:
        subjects = quote(",".join(f"series/{self.pk}/{key}" for key in keys))
        text = self.operator.page(f"/api/v1/telemetry/raw/?subjects={subjects}&since={since:.3f}")
        return list(csv.reader(io.StringIO(text)))[1:]

    def read_on(self, *keys: str) -> None:
        """Wait until series were read twice from now on."""
        now = time.time()
        wait_for(lambda: all(map(ends_well, self.live(*keys, since=now))), f"{self.name} is not read on", every=0.4)

    def is_read(self) -> bool:
        """Tell whether it is read, has rates, and its events come."""
        (rates,) = self.live(self.received("drawer1slot1"), since=time.time() - 5)
        return ends_well(rates) and self.truth()["streams"] > 0

    # --- what was counted of it -------------------------------------------------------------------------------------

    def counts(self, since: float = math.inf) -> dict[str, int]:
        """Return what was counted of it, by the API; now, or at some moment after another (monotonic s)."""
        rows = self.operator.look("pipeline/", since=since)["counts"]
        return {row["name"]: row["total"] for row in rows if row["chassis_id"] == self.pk}

    def counts_at_rest(self, name: str) -> dict[str, int]:
        """Wait until a count has stayed longer than processes take to tell what they count; return all counts."""
        counts, pauses = self.counts(), Pauses(LOOK_SECONDS)
        while time.monotonic() - pauses.moved <= 2 * PERIOD_SECONDS:
            pauses.take(counts.get(name, 0))
            counts = self.counts()
        return counts

    def _await_count(self, name: str, least: int) -> int:
        began = time.monotonic()
        count: int = wait_for(
            lambda: (found := self.counts(began).get(name, 0)) >= least and found,
            lambda: f"{self.name}: {name}: {self.counts().get(name, 0)} of {least}",
            every=LOOK_SECONDS,
        )
        return count

    @contextmanager
    def counting(self, name: str, more: int = 1) -> Iterator[None]:
        """Wait until something was counted so many times more than before the block."""
        before = self.counts().get(name, 0)
        yield
        self._await_count(name, before + more)

    def counted(self, name: str, before: dict[str, int], *, least: int = 1) -> int:
        """Wait until so many more were counted, and see that everybody is told so; return how many more."""
        now = self._await_count(name, before.get(name, 0) + least)
        shown = next(row["words"] for row in self.operator.get("pipeline/")["counts"] if row["name"] == name)
        assert shown in html.unescape(self.operator.page("/telemetry/pipeline/"))
        sample = f'falconweb_chassis_bad_input_total{{chassis="{self.name}",what="{name}"}} '
        (line,) = (line for line in self.operator.page("/metrics").splitlines() if line.startswith(sample))
        assert float(line.removeprefix(sample)) >= before.get(name, 0) + least
        return now - before.get(name, 0)

    def metric(self, name: str) -> dict[str, float]:
        """Return the samples of a metric by their labels, as Prometheus gets them."""
        lines = self.operator.page(f"/metrics?chassis={self.name}").splitlines()
        found = (line.rpartition(" ") for line in lines if line.startswith(name + "{"))
        return {labels: float(value) for labels, _, value in found}


def there(values: Values) -> list[float]:
    """Return the values that there are."""
    return [value for value in values if value is not None]


def ends_well(values: Values) -> bool:
    """Tell whether the newest two are there."""
    return len(values) > 1 and None not in values[-2:]


def _moment(row: list[str]) -> float:
    return datetime.fromisoformat(row[0]).timestamp()
