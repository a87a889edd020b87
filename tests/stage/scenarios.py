"""What goes wrong with one chassis each, all at once: BMCs that are sick, reports that are bad, and a receiver."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from tests.stage.chassis import StageChassis, Values
from tests.stage.operator import LOOK_SECONDS
from tests.stage.stage import Stage
from tests.telemetry.delivery.sinks import HttpSink
from tests.waiting import wait_for

SERIES = 395  # of a chassis such as falcon-1
EXTRA = "chassis/0/other/Extra5000"
RECEIVED_TOTAL = "falconweb_port_receive_bytes_total"
TEMPERATURE = "falconweb_device_temperature_celsius"
ERRORS_TOTAL = "falconweb_port_errors_total"
Known = dict[str, tuple[Any, ...]]


@dataclass
class Scenario:
    """What happened to a chassis from when to when (Unix s), what was counted before, and what was seen of it.

    `shown` and `stored` are readings of series, live and from the store; `beside` is when the well chassis was read
    meanwhile, `least` how often things must have been counted, `counting` how often they were once all was over, `unit`
    what the first series is measured in at last.
    """

    chassis: StageChassis
    before: dict[str, int] = field(default_factory=dict)
    began: float = 0.0
    ended: float = 0.0
    said: str = ""
    known: list[Known] = field(default_factory=list)
    metrics: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    shown: list[Values] = field(default_factory=list)
    stored: list[Values] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    least: dict[str, int] = field(default_factory=dict)
    counting: Future[dict[str, int]] = field(default_factory=Future)
    unit: str = ""

    def count(self, name: str, *, least: int = 1) -> None:
        """Have it counted how often something happened, so often at least: some of it shows when it is stored."""
        self.least[name] = least

    def look(self) -> dict[str, int]:
        """Return how often things were counted since the beginning; raises AssertionError for what was not enough."""
        return {name: self.chassis.counted(name, self.before, least=least) for name, least in self.least.items()}

    @property
    def counted(self) -> dict[str, int]:
        """How often things were counted, as `look` says."""
        return self.counting.result()

    @property
    def both(self) -> tuple[list[Values], list[Values]]:
        """What was shown live, and what is stored."""
        return self.shown, self.stored


ScenarioSteps = Callable[[Scenario], tuple[str, ...]]  # returns the series to look at afterwards


def run_scenario(stage: Stage, name: str, act: ScenarioSteps) -> Scenario:
    """Run a scenario on a chassis that is well and read, and return what was seen."""
    scenario = Scenario(stage[name])
    wait_for(
        lambda: scenario.chassis.series() and scenario.chassis.is_read(), f"{name} is not read", 60, every=LOOK_SECONDS
    )
    scenario.before, scenario.began = scenario.chassis.counts(), time.time()
    keys = act(scenario)
    scenario.ended = time.time()
    scenario.beside = stage["well"].seconds_read(scenario.ended - scenario.began + 1)
    if keys:
        scenario.chassis.heal()
        span = {"since": scenario.began, "until": scenario.ended}
        scenario.shown = scenario.chassis.live(*keys, **span)
        scenario.chassis.be_away()
        scenario.stored = scenario.chassis.stored(*keys, **span)
    return scenario


# --- sick BMCs ------------------------------------------------------------------------------------------------------


def known(chassis: StageChassis) -> Known:
    """Return what must not be lost of devices."""
    columns = ("id", "kind", "model", "serial_number", "host_port_label", "missing_since")
    return {place: tuple(device[column] for column in columns) for place, device in chassis.devices().items()}


def sick(**trouble: Any) -> ScenarioSteps:
    """Return what makes a BMC sick until the site says so, and well again."""

    def act(scenario: Scenario) -> tuple[str, ...]:
        chassis = scenario.chassis
        scenario.known = [known(chassis)]
        with chassis.counting("polls_failed", 3):
            chassis.fault(**trouble)
            scenario.said = chassis.await_trouble(seconds=90)
            scenario.known.append(known(chassis))
        chassis.heal()
        healed = time.monotonic()
        wait_for(lambda: not chassis.trouble(healed), "it did not come back", every=LOOK_SECONDS)
        wait_for(lambda: chassis.seconds_read(2), "its readings did not come back", every=LOOK_SECONDS)
        scenario.known.append(known(chassis))
        return ()

    return act


def slow_bmc(scenario: Scenario) -> tuple[str, ...]:
    """Let a BMC answer late, and wait until it was read so for a while."""
    chassis = scenario.chassis
    scenario.known = [known(chassis)]
    chassis.fault("slow", delay=1.5)

    def is_read() -> bool:
        return len([at for at in chassis.seconds_read(20) if at > scenario.began + 2]) >= 2

    wait_for(is_read, "it is not read", seconds=60, every=LOOK_SECONDS)
    scenario.said = chassis.trouble()
    scenario.known.append(known(chassis))
    chassis.heal()
    return ()


# --- bad reports ----------------------------------------------------------------------------------------------------


def bad_values(scenario: Scenario) -> tuple[str, ...]:
    """Report what is no number, and counters below zero."""
    chassis = scenario.chassis
    sick = [chassis.temperature(f"drawer1slot{slot}") for slot in (1, 2, 3)]
    rates, errors = chassis.received("drawer1slot4"), chassis.port("drawer1slot4", "errors/ReplayCount")
    chassis.read_on(*sick, rates, errors)
    for slot, value in enumerate(("nan", "null", "text"), 1):
        chassis.fault("bad_values", f"drawer1_slot{slot}_temp", value=value)
    for name in ("RXBytes", "ReplayCount"):
        chassis.fault("bad_values", f"drawer1_slot4_{name}", value="negative")

    def noticed() -> bool:
        # More than are asked for: what comes again, since the BMC is late, is shown again and stored once.
        return all(values.count(None) >= 5 for values in chassis.live(*sick, rates, errors, since=scenario.began))

    wait_for(noticed, "nobody noticed", every=LOOK_SECONDS)
    for name in (TEMPERATURE, RECEIVED_TOTAL, ERRORS_TOTAL):
        scenario.metrics[name] = [chassis.metric(name)]
    chassis.heal()
    chassis.read_on(*sick, rates, errors)
    scenario.count("readings_not_a_number", least=9)
    scenario.count("readings_negative_counter", least=6)
    return *sick, chassis.temperature("drawer1slot4"), rates, errors


def clock_jumps(scenario: Scenario) -> tuple[str, ...]:
    """Set the clock of a BMC forward, back and forward."""
    chassis = scenario.chassis
    keys = chassis.received("drawer1slot1"), chassis.temperature("drawer1slot1")
    # Its time may have gone faster until a moment ago, by jumps that are not told of yet.
    scenario.before, scenario.began = chassis.counts_at_rest("bmc_clock_jumps"), time.time()
    chassis.read_on(*keys)
    for jump in (3600.0, -7200.0, 3600.0):
        with chassis.counting("bmc_clock_jumps"):
            chassis.set_clock(jump)
    chassis.read_on(*keys)
    scenario.count("bmc_clock_jumps", least=3)
    return keys


def repeated_report(scenario: Scenario) -> tuple[str, ...]:
    """Let one report come again and again."""
    chassis = scenario.chassis
    keys = chassis.received("drawer1slot1"), chassis.temperature("drawer1slot1")
    chassis.read_on(*keys)
    with chassis.counting("readings_repeated", 3 * SERIES):
        chassis.fault("repeated_report")
    chassis.heal()
    chassis.read_on(*keys)
    scenario.count("readings_repeated", least=3 * SERIES)
    return keys


def late_reports(scenario: Scenario) -> tuple[str, ...]:
    """Let reports come that are older than those before, while an error counter climbs."""
    chassis = scenario.chassis
    rates, errors = chassis.received("drawer1slot1"), chassis.port("drawer1slot1", "errors/BadTLPCount")
    chassis.fault("error_burst", "drawer1slot1", counter="BadTLPCount", rate=500.0)
    chassis.read_on(rates)
    before, began = chassis.counts().get("readings_late", 0), time.monotonic()
    chassis.fault("late_reports", delay=2)
    seen = scenario.metrics.setdefault(RECEIVED_TOTAL, [])

    def was_late() -> bool:
        seen.append(chassis.metric(RECEIVED_TOTAL))
        return chassis.counts(began).get("readings_late", 0) >= before + 2 * SERIES

    wait_for(was_late, "nobody noticed", every=0.3)
    chassis.heal()
    chassis.read_on(rates)
    seen.append(chassis.metric(RECEIVED_TOTAL))
    scenario.count("readings_late")
    return rates, errors


def other_unit(scenario: Scenario) -> tuple[str, ...]:
    """Let a sensor measure in another unit, and in the usual one again."""
    chassis = scenario.chassis
    key = chassis.temperature("drawer1slot1")
    # A look at the sensor takes longer than a reading, so that there is one in between.
    chassis.fault("slow", path="/Sensors/slot1_temp", delay=1.5)
    changes: tuple[Callable[[], None], ...] = (
        lambda: chassis.fault("other_unit", "drawer1_slot1_temp"), chassis.heal,
    )  # fmt: skip
    for change in changes:
        with chassis.counting("units_changed"):
            change()
        chassis.read_on(key)
    scenario.count("readings_in_doubt")
    scenario.count("units_changed", least=2)
    (scenario.unit,) = (one["unit"] for one in chassis.series() if one["key"] == key)
    return key, chassis.temperature("drawer1slot2")


def many_readings(scenario: Scenario) -> tuple[str, ...]:
    """Let a report be as long as can be."""
    chassis = scenario.chassis
    chassis.fault("many_readings", readings=5000)
    wait_for(lambda: len(chassis.series()) == 5000, "they are not known", every=LOOK_SECONDS)
    for _ in range(2):
        chassis.read_on(EXTRA)
    return chassis.temperature("drawer1slot1"), EXTRA


SCENARIOS: dict[str, ScenarioSteps] = {
    "silent": sick(kind="hang"),
    "failing": sick(kind="server_error", status=503),
    "nonsense": sick(kind="server_error", status=200),  # answers of no use, politely given
    "broken": sick(kind="reset_connections"),
    "rebooting": sick(kind="bmc_reboot", seconds=6),
    "slow": slow_bmc,
    "bad-values": bad_values,
    "falcon-2": clock_jumps,  # of a process of its own: those of another have one clock
    "repeated": repeated_report,
    "late": late_reports,
    "other-unit": other_unit,
    "many": many_readings,
}


# --- a receiver that is down ----------------------------------------------------------------------------------------


def webhook_down(stage: Stage) -> list[str]:
    """Let events happen before, while and after a webhook is down; return what came to it, in order."""
    operator = stage.operator

    def happen(first: int, last: int) -> None:
        for number in range(first, last + 1):
            stage["events"].ask("POST", "/events", {"message": f"Thing {number:03}.", "severity": "Warning"})

    def came() -> list[str]:
        lines = (line for body in sink.bodies for line in body.splitlines())
        return [text for line in lines if (text := str(json.loads(line)["text"])).startswith("Thing")]

    def until(true: Callable[[], Any], what: Callable[[], str]) -> None:
        wait_for(true, what, seconds=60, every=LOOK_SECONDS)

    with HttpSink() as sink:
        made = operator.post(
            "exports/",
            {
                "name": "To a collector", "format": "jsonl", "target": "webhook", "schedule": "stream",
                "from_now": True, "filter": {"q": "Thing"}, "options": {"address": sink.url, "batch": 10},
            },
        )  # fmt: skip
        runs = f"exports/runs/?export_id={made['id']}"
        happen(1, 5)
        until(lambda: len(came()) == 5, lambda: f"{came()}")
        # It keeps its port, which another test might take.
        sink.mood = "hangs up"
        happen(6, 20)
        until(lambda: operator.get(runs)["results"][0]["error"], lambda: "nobody noticed")
        happen(21, 30)
        waiting = {one["what"]: one["count"] for one in operator.get("pipeline/")["waiting"]}
        assert sum(waiting.values()) > 0, waiting
        sink.mood = "well"
        happen(31, 35)
        until(lambda: len(came()) >= 35, lambda: f"{came()}")
        until(lambda: operator.get(runs)["results"][0]["error"] == "", lambda: "it is still told as failing")
        return came()
