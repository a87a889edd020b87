"""Bad readings of a real BMC on a real site: kept out or kept right, counted, told to everybody, and over afterwards.

One chassis is sick and another well; somebody watches both all the time. What can go wrong with a report is played
once, one after the other, and then judged: by what was shown live, by what is stored, by /metrics, and by the pipeline.
"""

from __future__ import annotations

import itertools
import json
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from tests.falconweb.operating import Operator, parent_of
from tests.falconweb.playing import SICK, WELL, Stage, Values
from tests.site import RunningSite, pids_naming
from tests.telemetry.delivery.sinks import HttpSink
from tests.waiting import wait_for

pytestmark = pytest.mark.process

SERIES = 395  # of falcon-1
EXTRA = "chassis/0/other/Extra5000"
FASTEST = 32e9  # B/s, of a link of 16 lanes of the fourth generation
FULL_AT = 4096  # bytes: of no file of a database anything fits in
DROPPED = "readings_dropped_store_full"
RECEIVED_TOTAL = "falconweb_port_receive_bytes_total"
TEMPERATURE = "falconweb_device_temperature_celsius"
Samples = dict[str, float]


@dataclass
class Play:
    """When something was played (Unix s), and what /metrics had of the sick chassis meanwhile, by metric."""

    began: float
    ended: float = 0.0
    metrics: dict[str, list[Samples]] = field(default_factory=dict)


@dataclass
class Played:
    """All of it, and what was counted before it."""

    before: dict[str, int]
    plays: dict[str, Play] = field(default_factory=dict)


def pass_seconds(seconds: float) -> None:
    """Let the site read on: what it must not do shows by itself."""
    time.sleep(seconds)


def there(values: Values) -> list[float]:
    return [value for value in values if value is not None]


def ends_well(values: Values) -> bool:
    """Tell whether the newest two are there."""
    return len(values) > 1 and None not in values[-2:]


def is_read(stage: Stage) -> bool:
    """Tell whether the sick chassis is read, has rates, and its events are heard."""
    (rates,) = stage.live(stage.port("drawer1slot1", "rx_bytes_per_second"), since=time.time() - 5)
    return ends_well(rates) and stage.truth()["streams"] > 0


def has_series(operator: Operator, name: str) -> bool:
    chassis = operator.chassis(name)
    return bool(chassis["inventory_at"] and operator.get(f"chassis/{chassis['id']}/series/"))


@pytest.fixture(scope="module")
def site_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A site whose workers have little memory for readings that cannot be stored."""
    with RunningSite(tmp_path_factory.mktemp("readings"), FALCONWEB_STORE_MEMORY="0.05") as site:
        operator = Operator(site)
        wait_for(lambda: all(has_series(operator, name) for name in (SICK, WELL)), "they were not read", seconds=60)
        yield Stage(operator)


@pytest.fixture
def stage(site_stage: Stage) -> Iterator[Stage]:
    """Both chassis, well and read."""
    wait_for(lambda: is_read(site_stage), "it is not read")
    yield site_stage
    site_stage.heal()


@pytest.fixture(scope="module")
def played(site_stage: Stage) -> Played:
    """What can go wrong with a report, one after the other; what was read is stored after it."""
    stage = site_stage
    wait_for(lambda: is_read(stage), "it is not read")
    played = Played(stage.counts())
    with stage.watched():
        for play in (bad_values, clock_jumps, repeated_report, late_reports, other_unit, many_readings):
            played.plays[play.__name__] = one = Play(time.time())
            play(stage, one)
            one.ended = time.time()
    stage.heal()
    stage.be_away()
    return played


def bad_values(stage: Stage, play: Play) -> None:
    temperatures = [stage.temperature(f"drawer1slot{slot}") for slot in (1, 2, 3)]
    keys = [*temperatures, received(stage, "drawer1slot4"), stage.port("drawer1slot4", "errors/ReplayCount")]
    stage.read_on(*keys)
    for slot, value in enumerate(("nan", "null", "text"), 1):
        stage.fault("bad_values", f"drawer1_slot{slot}_temp", value=value)
    for name in ("RXBytes", "ReplayCount"):
        stage.fault("bad_values", f"drawer1_slot4_{name}", value="negative")
    wait_for(lambda: all(values.count(None) >= 3 for values in stage.live(*keys, since=play.began)), "nobody noticed")
    for name in (TEMPERATURE, RECEIVED_TOTAL, "falconweb_port_errors_total"):
        play.metrics[name] = [stage.metric(name)]
    stage.heal()
    stage.read_on(*keys)


def clock_jumps(stage: Stage, _play: Play) -> None:
    keys = received(stage, "drawer1slot1"), stage.temperature("drawer1slot1")
    stage.read_on(*keys)
    for jump in (3600.0, -7200.0, 3600.0):
        before = stage.counted("bmc_clock_jumps")
        stage.set_clock(jump)
        stage.count_on("bmc_clock_jumps", before)
    stage.read_on(*keys)


def repeated_report(stage: Stage, _play: Play) -> None:
    keys = received(stage, "drawer1slot1"), stage.temperature("drawer1slot1")
    stage.read_on(*keys)
    before = stage.counted("readings_repeated")
    stage.fault("repeated_report")
    stage.count_on("readings_repeated", before, 3 * SERIES)
    stage.heal()
    stage.read_on(*keys)


def late_reports(stage: Stage, play: Play) -> None:
    key = received(stage, "drawer1slot1")
    stage.fault("error_burst", "drawer1slot1", counter="BadTLPCount", rate=500.0)
    stage.read_on(key)
    before = stage.counted("readings_late")
    stage.fault("late_reports", delay=2)
    seen = play.metrics.setdefault(RECEIVED_TOTAL, [])

    def was_late() -> bool:
        seen.append(stage.metric(RECEIVED_TOTAL))
        pass_seconds(0.3)
        return stage.counted("readings_late") >= before + 2 * SERIES

    wait_for(was_late, "nobody noticed")
    stage.heal()
    stage.read_on(key)
    seen.append(stage.metric(RECEIVED_TOTAL))


def other_unit(stage: Stage, play: Play) -> None:
    key = stage.temperature("drawer1slot1")
    # A look at the sensor takes longer than a reading, so that there is one in between.
    stage.fault("slow", path="/Sensors/slot1_temp", delay=1.5)
    changes: list[Callable[[], None]] = [lambda: stage.fault("other_unit", "drawer1_slot1_temp"), stage.heal]
    before = stage.counts().get("units_changed", 0)
    for number, change in enumerate(changes, 1):
        change()
        wait_for(lambda of=number: stage.counts().get("units_changed", 0) == before + of, "nobody noticed")  # type: ignore[misc]
        known = time.time()
        wait_for(lambda of=known: ends_well(stage.live(key, since=of)[0]), "it is read no more")  # type: ignore[misc]


def many_readings(stage: Stage, _play: Play) -> None:
    stage.fault("many_readings", readings=5000)
    wait_for(lambda: series_of(stage) == 5000, "they are not known", seconds=20)
    stage.read_on(EXTRA)
    stage.read_on(EXTRA)


def series_of(stage: Stage) -> int:
    return len(stage.operator.get(f"chassis/{stage.ids[SICK]}/series/"))


def received(stage: Stage, slot: str) -> str:
    return stage.port(slot, "rx_bytes_per_second")


def span_of(played: Played, play: Callable[..., None]) -> dict[str, float]:
    """Return from when to when something was played."""
    one = played.plays[play.__name__]
    return {"since": one.began, "until": one.ended}


def test_what_is_no_number_or_no_count_is_a_gap_and_never_anything_else(site_stage: Stage, played: Played) -> None:
    stage, metrics = site_stage, played.plays["bad_values"].metrics
    bad = [stage.temperature(f"drawer1slot{slot}") for slot in (1, 2, 3)]
    keys = (
        *bad, stage.temperature("drawer1slot4"), received(stage, "drawer1slot4"),
        stage.port("drawer1slot4", "errors/ReplayCount"),
    )  # fmt: skip
    for told in stage.both(*keys, **span_of(played, bad_values)):
        *sick, neighbour, rates, errors = told
        for values in sick:
            assert values.count(None) >= 3
            assert len(there(values)) >= 3
            assert all(20 < value < 90 for value in there(values)), values
        assert None not in neighbour, "it is read on"
        assert rates.count(None) >= 3
        assert all(0 <= rate < FASTEST for rate in there(rates)), rates
        assert min(there(errors)) >= 0
        assert None in errors
    assert not any('drawer="1",slot="1"' in labels for labels in metrics[TEMPERATURE][0])
    assert all(
        value >= 0 for name in (RECEIVED_TOTAL, "falconweb_port_errors_total") for value in metrics[name][0].values()
    )
    stage.told("readings_not_a_number", played.before, least=9)
    stage.told("readings_negative_counter", played.before, least=6)
    assert not stage.counts(WELL).keys() & {"readings_not_a_number", "readings_negative_counter"}


def test_the_clock_of_a_bmc_that_jumps_moves_neither_times_nor_rates(site_stage: Stage, played: Played) -> None:
    span = span_of(played, clock_jumps)
    keys = received(site_stage, "drawer1slot1"), site_stage.temperature("drawer1slot1")
    for rates, temperatures in site_stage.both(*keys, **span):
        assert len(rates) > 3
        assert None not in rates
        # A jump that was taken for time that passed would make next to nothing of a second's bytes.
        assert statistics.median(there(rates)) / 100 < min(there(rates)) <= max(there(rates)) < FASTEST
        assert all(20 < value < 90 for value in there(temperatures))
    assert site_stage.told("bmc_clock_jumps", played.before, least=3) == 3


def test_a_report_that_comes_again_is_kept_once_and_the_rate_after_it_is_right(
    site_stage: Stage, played: Played
) -> None:
    keys = received(site_stage, "drawer1slot1"), site_stage.temperature("drawer1slot1")
    (shown, _), (kept, temperatures) = site_stage.both(*keys, **span_of(played, repeated_report))
    assert len(kept) <= len(shown) - 3
    for rates in (shown, kept):
        assert None not in rates
        assert all(0 < rate < FASTEST for rate in there(rates))
    assert None not in temperatures
    site_stage.told("readings_repeated", played.before, least=3 * SERIES)


def test_a_report_older_than_the_one_before_is_kept_out_and_no_counter_goes_back(
    site_stage: Stage, played: Played
) -> None:
    keys = received(site_stage, "drawer1slot1"), site_stage.port("drawer1slot1", "errors/BadTLPCount")
    for rates, totals in site_stage.both(*keys, **span_of(played, late_reports)):
        assert None not in rates
        assert all(0 < rate < FASTEST for rate in there(rates))
        assert totals == sorted(there(totals)), "errors were taken back"
        assert there(totals)[-1] > there(totals)[0]
    for earlier, later in itertools.pairwise(played.plays["late_reports"].metrics[RECEIVED_TOTAL]):
        assert all(later[labels] >= value for labels, value in earlier.items())
    site_stage.told("readings_late", played.before)


def test_a_sensor_that_changes_its_unit_is_read_on_in_the_usual_one(site_stage: Stage, played: Played) -> None:
    keys = site_stage.temperature("drawer1slot1"), site_stage.temperature("drawer1slot2")
    for values, others in site_stage.both(*keys, **span_of(played, other_unit)):
        # 70 °C are 158 °F, and 70 °F are 21 °C.
        assert max(there(values)) - min(there(values)) < 15, values
        assert None not in others
    site_stage.told("readings_in_doubt", played.before)
    assert site_stage.told("units_changed", played.before, least=2) == 2
    series = site_stage.operator.get(f"chassis/{site_stage.ids[SICK]}/series/")
    assert [one["unit"] for one in series if one["key"] == keys[0]] == ["°C"]


def test_five_thousand_readings_in_a_report_are_all_kept(site_stage: Stage, played: Played) -> None:
    span, temperature = span_of(played, many_readings), site_stage.temperature("drawer1slot1")
    (shown,) = site_stage.live(temperature, **span)
    kept, extra = site_stage.stored(temperature, EXTRA, **span)
    assert None not in shown + kept
    assert len(there(extra)) >= 2
    assert all(5000 <= value < 5001 for value in there(extra))
    # A BMC that was away is read anew; without that the rest is waited for during half a minute.
    wait_for(lambda: series_of(site_stage) == SERIES, "they are not gone")


@pytest.mark.nightly
def test_readings_that_a_report_has_no_more_are_forgotten_after_half_a_minute(stage: Stage) -> None:
    usual = series_of(stage)
    with stage.watched():
        stage.fault("many_readings", readings=5000)
        wait_for(lambda: series_of(stage) == 5000, "they are not known", seconds=20)
        stage.heal()
        wait_for(lambda: series_of(stage) == usual, "they are not gone", seconds=90)


def limit_files(pid: int, size: int | None) -> None:
    """Let the files of a process grow to a size at most, as a disk without room does."""
    most = resource.RLIM_INFINITY
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (most if size is None else size, most))


def test_live_goes_on_while_the_disk_of_a_worker_is_full_and_what_was_dropped_is_told(stage: Stage) -> None:
    operator, temperature = stage.operator, stage.temperature("drawer1slot1")
    site = operator.site
    (worker,) = (pid for pid in pids_naming(f"worker-{site.process.pid}@") if parent_of(pid) == site.process.pid)
    # Many, so that memory is full before long.
    stage.fault("many_readings", readings=15_000)
    wait_for(lambda: series_of(stage) == 15_000, "they are not known", seconds=20)
    before = stage.counts()
    with stage.watched():
        began = time.time()
        limit_files(worker, FULL_AT)
        try:
            for tries in itertools.count():
                # A chassis that is away hands over what was read of it, and does not wait until its minute is full.
                stage.be_away()
                pass_seconds(4)
                if stage.counts().get(DROPPED, 0) > before.get(DROPPED, 0):
                    break
                assert tries < 10, "nothing was dropped"
            words = [one["words"] for one in operator.get("pipeline/")["findings"]]
            assert any(text.startswith("Readings dropped") for text in words), words
            assert any(text.startswith("Failed writes of readings") for text in words), words
            assert operator.site.get("/healthz")[0] == 200
        finally:
            limit_files(worker, None)
        stage.heal()
    stage.told(DROPPED, before)
    resumed = time.time()
    pass_seconds(3)
    stage.be_away()
    (kept,) = stage.stored(temperature, since=resumed, until=resumed + 3)
    assert there(kept), "nothing is stored again"
    subject = f"series/{stage.ids[SICK]}/{temperature}"
    gaps = operator.get(f"telemetry/?subjects={subject}&since={began - 30:.0f}")["gaps"]
    assert any("The store could not write" in gap["reason"] for gap in gaps), gaps


def test_what_a_webhook_missed_while_it_was_down_comes_after_in_order(stage: Stage) -> None:
    operator = stage.operator

    def happen(first: int, last: int) -> None:
        for number in range(first, last + 1):
            operator.site.control(SICK, "POST", "/events", {"message": f"Thing {number:03}.", "severity": "Warning"})

    def came() -> list[str]:
        lines = (line for body in sink.bodies for line in body.splitlines())
        return [told for line in lines if (told := str(json.loads(line)["text"])).startswith("Thing")]

    with HttpSink() as sink:
        made = operator.post(
            "exports/",
            {
                "name": "To a collector", "format": "jsonl", "target": "webhook", "schedule": "stream",
                "from_now": True, "filter": {"q": "Thing"}, "options": {"address": sink.url, "batch": 10},
            },
        )  # fmt: skip
        happen(1, 5)
        wait_for(lambda: len(came()) == 5, lambda: f"{came()}")
        # It keeps its port, which another test might take.
        sink.mood = "hangs up"
        happen(6, 20)
        runs = f"exports/runs/?export_id={made['id']}"
        wait_for(lambda: operator.get(runs)["results"][0]["error"], "nobody noticed", seconds=20)
        happen(21, 30)
        waiting = {one["what"]: one["count"] for one in operator.get("pipeline/")["waiting"]}
        assert sum(waiting.values()) > 0, waiting
        sink.mood = "well"
        happen(31, 35)
        wait_for(lambda: len(came()) >= 35, lambda: f"{came()}", seconds=40)
        assert came() == [f"Thing {number:03}." for number in range(1, 36)]
        wait_for(lambda: operator.get(runs)["results"][0]["error"] == "", "it is still told as failing")
