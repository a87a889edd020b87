"""A whole site while everything goes wrong at once, on a chassis each; then its parts are killed, one after the other.

What is waited for runs side by side (`results`); the tests judge what was seen of it. Those that kill run in order.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import resource
import signal
import sqlite3
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.postgres import PROGRAMS, PostgresServer
from tests.site import RunningSite, kill, processes_of
from tests.stage.chassis import there
from tests.stage.conftest import StageResults
from tests.stage.operator import Operator
from tests.stage.plans import PLANNED, KilledParts, PlanRun, is_in_force, kill_parts
from tests.stage.processes import broker_of
from tests.stage.scenarios import ERRORS_TOTAL, RECEIVED_TOTAL, SERIES, TEMPERATURE, Scenario
from tests.stage.soak import MOST_DATABASE_FILES, MOST_GROWTH, MOST_HANDLES, MOST_OF_THREADS, MOST_THREADS, SECONDS
from tests.stage.stage import Stage, own_chassis
from tests.stage.watcher import Listener, Watcher
from tests.waiting import wait_for

pytestmark = [pytest.mark.process, pytest.mark.timeout(SECONDS + 600)]
LONGEST_GAP = 3.0  # s between two readings of a healthy chassis, on a busy machine
UNEVEN = 2  # seconds, or one in four, that one chassis may miss more than another: where all are late nothing is said
AWAY_SECONDS = 1.1  # longer than from one poll to the next
AWAY_COSTS = 5  # seconds that may be missing of a chassis that was away: it is tried again after one
# Five where the machine has nothing else to do; here those that are taken over may all have to be read anew at once.
TAKEN_OVER_SECONDS = 15.0
FULL_AT = 4096  # bytes: of no file of a database anything fits in
DROPPED = "readings_dropped_store_full"
FASTEST = 32e9  # B/s, of a link of 16 lanes of the fourth generation


# --- a site at work -------------------------------------------------------------------------------------------------


def test_a_site_at_work_takes_no_more_as_time_goes_by(results: StageResults) -> None:
    soaked = results.soaked
    assert soaked.processes[0] == soaked.processes[1], "a process died and was started again"
    for pid, one in soaked.taken.items():
        name = soaked.processes[0][pid]
        memory, files, database_files, threads = one.growth()
        assert memory < MOST_GROWTH, (name, one.memory)
        assert files <= MOST_HANDLES + (MOST_OF_THREADS if name == "worker" else 0), (name, one.files)
        assert database_files <= MOST_DATABASE_FILES, (name, one.database_files)
        assert threads <= MOST_THREADS, (name, one.threads)


def test_no_reader_misses_a_frame_or_gets_one_twice(results: StageResults) -> None:
    soaked = results.soaked
    assert len(soaked.must_have_come) > 0.5 * len(soaked.pollers[0]) * (soaked.ended - soaked.began)
    assert soaked.given.twice() == []
    for reader in soaked.readers:
        assert reader.opened == 1
        assert reader.twice() == []
        assert soaked.must_have_come - reader.numbers == set()


def test_chassis_that_are_added_are_shared_and_stay_where_they_are(results: StageResults) -> None:
    before, *later = results.soaked.pollers
    assert [list(before.values()).count(pid) for pid in set(before.values())] == [len(before) // 2] * 2
    assert all(pollers == before for pollers in later)


def test_each_simulated_host_has_an_agent_that_takes_commands(stage: Stage) -> None:
    data = stage.site.data
    trees = {folder.name: folder for folder in (data / "simulator/hosts").iterdir()}
    assert trees.keys() == {"node-a", "node-b", "node-c"}
    log = data / "logs/agent.log"
    wait_for(lambda: "ready\n" in log.read_text(), "the agents did not get ready")
    assert "Traceback" not in log.read_text()

    def reports() -> dict[str, set[str]]:
        with contextlib.closing(sqlite3.connect(data / "falconweb.sqlite3")) as database:
            rows = database.execute("SELECT report FROM fabric_hostagent WHERE reported_at IS NOT NULL").fetchall()
        found = [json.loads(report) for (report,) in rows]
        return {one["hostname"]: {device["address"] for device in one["devices"]} for one in found}

    wait_for(lambda: reports().keys() == trees.keys(), lambda: f"reports came of {set(reports())}")
    # What is read for each is the tree of its own host.
    for host, addresses in reports().items():
        assert addresses
        assert addresses <= {entry.name for entry in (trees[host] / "sys/bus/pci/devices").iterdir()}


# --- sick BMCs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["silent", "failing", "nonsense", "broken", "rebooting"])
def test_a_sick_bmc_is_said_and_comes_back_while_the_other_is_read_each_second(
    stage: Stage, results: StageResults, name: str
) -> None:
    scenario = results[name]
    assert len(scenario.said) < 300
    assert "Traceback" not in scenario.said
    before, sick, well = scenario.known
    assert before == sick == well
    healthy(stage, scenario)


def test_a_slow_bmc_is_read_as_often_as_it_answers(stage: Stage, results: StageResults) -> None:
    scenario = results["slow"]
    assert scenario.said == ""
    assert scenario.known[0] == scenario.known[1]
    healthy(stage, scenario)


def healthy(stage: Stage, scenario: Scenario) -> None:
    """Hold that the well chassis was read each second meanwhile."""
    elapsed = scenario.ended - scenario.began
    times = [at for at in scenario.beside if at >= scenario.began - 1]
    assert len(times) >= 0.8 * elapsed - 1, (len(times), elapsed)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert max(gaps) < LONGEST_GAP, gaps
    assert stage["well"].row()["last_error"] == ""


# --- bad reports ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bad-values", "falcon-2", "repeated", "late", "other-unit", "many"])
def test_live_goes_on_whatever_a_report_has(stage: Stage, results: StageResults, name: str) -> None:
    """Of each second of which two well chassis have frames, it has one, too."""
    scenario, came = results[name], results.soaked.readers[0].numbers
    span = set(range(int(scenario.began) + 1, int(scenario.ended)))
    sick, *well = (
        span - {second for of, second in came if of == one.pk}
        for one in (scenario.chassis, stage["well"], stage["events"])
    )
    assert len(sick) <= max(map(len, well)) + max(UNEVEN, len(span) // 4), (sorted(sick), *map(sorted, well))


def test_what_is_no_number_or_no_count_is_a_gap_and_never_anything_else(stage: Stage, results: StageResults) -> None:
    scenario = results["bad-values"]
    for *sick, neighbour, rates, errors in scenario.both:
        for values in sick:
            assert values.count(None) >= 3, scenario.both
            assert len(there(values)) >= 3, values
            assert all(20 < value < 90 for value in there(values)), values
        assert None not in neighbour, "it is read on"
        assert rates.count(None) >= 3, rates
        assert all(0 <= rate < FASTEST for rate in there(rates)), rates
        assert min(there(errors)) >= 0
        assert None in errors
    assert not any('drawer="1",slot="1"' in labels for labels in scenario.metrics[TEMPERATURE][0])
    assert all(value >= 0 for name in (RECEIVED_TOTAL, ERRORS_TOTAL) for value in scenario.metrics[name][0].values())
    assert scenario.counted
    assert not stage["well"].counts().keys() & {"readings_not_a_number", "readings_negative_counter"}


def test_the_clock_of_a_bmc_that_jumps_moves_neither_times_nor_rates(results: StageResults) -> None:
    scenario = results["falcon-2"]
    for rates, temperatures in scenario.both:
        assert len(rates) > 3
        assert None not in rates
        # A jump that was taken for time that passed would make next to nothing of a second's bytes.
        assert statistics.median(there(rates)) / 100 < min(there(rates)) <= max(there(rates)) < FASTEST
        assert all(20 < value < 90 for value in there(temperatures))
    assert scenario.counted == {"bmc_clock_jumps": 3}


def test_a_report_that_comes_again_is_kept_once_and_the_rate_after_it_is_right(results: StageResults) -> None:
    scenario = results["repeated"]
    (shown, _), (kept, temperatures) = scenario.both
    assert len(kept) <= len(shown) - 3
    for rates in (shown, kept):
        assert None not in rates, scenario.both
        assert all(0 < rate < FASTEST for rate in there(rates)), scenario.both
    assert None not in temperatures
    assert scenario.counted


def test_a_report_older_than_the_one_before_is_kept_out_and_no_counter_goes_back(results: StageResults) -> None:
    scenario = results["late"]
    for rates, totals in scenario.both:
        assert None not in rates, scenario.both
        # A simulated BMC whose faults change writes a report anew between two steps of its counters: these stand still.
        assert all(0 <= rate < FASTEST for rate in there(rates)), scenario.both
        assert totals == sorted(there(totals)), "errors were taken back"
        assert there(totals)[-1] > there(totals)[0]
    for earlier, later in itertools.pairwise(scenario.metrics[RECEIVED_TOTAL]):
        assert all(later[labels] >= value for labels, value in earlier.items())
    assert scenario.counted


def test_a_sensor_that_changes_its_unit_is_read_on_in_the_usual_one(results: StageResults) -> None:
    scenario = results["other-unit"]
    for values, others in scenario.both:
        # 70 °C are 158 °F, and 70 °F are 21 °C.
        assert max(there(values)) - min(there(values)) < 15, values
        assert None not in others
    assert scenario.counted["units_changed"] == 2
    assert scenario.unit == "°C"


def test_five_thousand_readings_in_a_report_are_all_kept(results: StageResults) -> None:
    scenario = results["many"]
    assert None not in scenario.shown[0] + scenario.stored[0]
    assert len(there(scenario.stored[1])) >= 2
    assert all(5000 <= value < 5001 for value in there(scenario.stored[1]))


@pytest.mark.nightly
def test_readings_that_a_report_has_no_more_are_forgotten_after_half_a_minute(stage: Stage) -> None:
    chassis = stage["many"]
    with Watcher(stage.operator, [chassis.pk]) as watcher:
        wait_for(lambda: watcher.came, "no frames came")
        chassis.fault("many_readings", readings=5000)
        wait_for(lambda: len(chassis.series()) == 5000, "they are not known")
        chassis.heal()
        wait_for(lambda: len(chassis.series()) == SERIES, "they are not gone", seconds=90)
    seconds = {second for _, second in watcher.numbers}
    assert max(seconds) - min(seconds) + 1 - len(seconds) <= UNEVEN
    assert watcher.opened == 1


def test_what_a_webhook_missed_while_it_was_down_comes_after_in_order(results: StageResults) -> None:
    assert results.webhook.result() == [f"Thing {number:03}." for number in range(1, 36)]


# --- parts of the site that hang, or are killed ---------------------------------------------------------------------


@contextmanager
def calmed(stage: Stage) -> Iterator[Stage]:
    """The stage without faults: each of two workers reads half of the chassis, and those of plans are quick."""
    stage.heal()
    stage.wait_until_shared()
    for name in PLANNED:
        stage[name].ask("POST", "/time", {"speed": 20})
        wait_for(stage[name].is_read, f"{name} is not read", every=0.3)
    try:
        yield stage
    finally:
        for name in PLANNED:
            stage[name].ask("POST", "/time", {"speed": 1})


@pytest.fixture
def calm(stage: Stage) -> Iterator[Stage]:
    """The stage without faults."""
    with calmed(stage) as calm:
        yield calm


@pytest.fixture(scope="module")
def killed(stage: Stage) -> KilledParts:
    """Plans whose workers, beat, web and broker were killed."""
    with calmed(stage) as calm:
        return kill_parts(calm)


@pytest.mark.nightly
def test_a_broker_that_hangs_holds_nobody_up_for_long(calm: Stage) -> None:
    """It is asked for live readings and queues; what was asked for stands in the database."""
    (broker,) = processes_of(calm.site, "broker")
    gpu = calm["falcon-2"].devices()["drawer1slot1"]
    os.kill(broker, signal.SIGSTOP)
    try:
        began = time.monotonic()
        assert calm.site.get("/healthz")[0] == 503
        asked = calm.operator.post("operations/", {"device_id": gpu["id"], "target_host_port_id": None})
        # Far less than a browser, a proxy or a person waits.
        assert time.monotonic() - began < 25
    finally:
        os.kill(broker, signal.SIGCONT)
    done = f"operations/{asked['id']}/"
    wait_for(lambda: calm.operator.get(done)["state"] == "done", "it was lost", seconds=40, every=0.3)
    wait_for(lambda: calm.site.get("/healthz")[0] == 200, "the site did not come back")
    wait_for(lambda: calm["falcon-2"].seconds_read(2), "its readings did not come back", every=0.3)


@pytest.mark.nightly
@pytest.mark.parametrize("part", ["worker that detaches", "worker that attaches", "beat", "web", "broker"])
def test_a_plan_is_carried_out_to_its_end_whatever_is_killed_and_nothing_is_done_twice(
    stage: Stage, killed: KilledParts, part: str
) -> None:
    assert part in killed.killed_at
    for run, wrong_writes in killed.plans:
        assert (run.ended["state"], run.ended["sentence"]) == ("done", "")
        assert [one["state"] for one in run.ended["operations"]] == ["done"] * len(run.wanted)
        assert wrong_writes == {}
    assert killed.in_force
    for name in PLANNED:
        wait_for(stage[name].is_shown, f"{name} is not shown as it is", every=0.3)


@pytest.mark.nightly
def test_another_worker_takes_over_from_a_killed_one_and_the_others_are_not_disturbed(killed: KilledParts) -> None:
    at, until = killed.killed_at["worker that detaches"], killed.killed_at["beat"]
    before, after = killed.pollers["worker that detaches"], killed.pollers["one worker less"]
    for pk, pid in before.items():
        assert after[pk] != killed.killed
        assert pid in {after[pk], killed.killed}, "the others were disturbed"
        assert killed.watchers[0].longest_gap(pk, at, until) < TAKEN_OVER_SECONDS


@pytest.mark.nightly
def test_a_killed_broker_comes_back_and_open_sockets_go_on(stage: Stage, killed: KilledParts) -> None:
    # Redis lost its memory, the workers did not: nothing was moved about. Now and then Celery ends a worker whose
    # broker dies while it asks (kombu's issue 582), and the launcher starts another.
    before, after = killed.pollers["broker"], killed.pollers["the new broker"]
    assert all(after[pk] == pid for pk, pid in before.items() if pid in killed.outlived), (before, after)
    assert stage.site.get("/healthz")[0] == 200


@pytest.mark.nightly
def test_browsers_of_killed_web_processes_come_back_and_nobody_gets_a_frame_twice(killed: KilledParts) -> None:
    for watcher in killed.watchers:
        assert watcher.opened >= 2
        assert watcher.twice() == []


@pytest.mark.nightly
def test_a_worker_that_was_stopped_and_goes_on_says_nothing_of_what_is_anothers_by_then(calm: Stage) -> None:
    pollers = calm.pollers()
    stopped, other = set(pollers.values())
    theirs = [pk for pk, pid in pollers.items() if pid == stopped]
    _, broker = broker_of(calm.site)
    with Watcher(calm.operator, theirs) as watcher:
        os.kill(stopped, signal.SIGSTOP)
        try:
            wait_for(lambda: set(calm.pollers().values()) == {other}, "nobody took over")
            began = time.time()
            wait_for(lambda: all(watcher.times(pk)[-1:] > [began] for pk in theirs), "nobody reads them")
            with Listener(broker) as given:
                os.kill(stopped, signal.SIGCONT)
                ended = time.time() + 1.9  # before a share of them goes back to it
                wait_for(lambda: time.time() > ended, every=0.1)
        finally:
            os.kill(stopped, signal.SIGCONT)
        assert given.twice() == []
        assert max(len(given.times(pk)) for pk in theirs) <= 3
        calm.wait_until_shared()
        assert set(calm.pollers().values()) == {stopped, other}
    assert watcher.twice() == []


@pytest.mark.nightly
def test_a_plan_whose_chassis_dies_and_forgets_everything_ends_in_what_is_true(calm: Stage) -> None:
    """A simulated chassis that is started again is as at its first start: whatever was switched is undone."""
    run = PlanRun(calm).apply()
    wait_for(run.workers_at, "it did not begin", 60, every=0.1)
    before = processes_of(calm.site, "falcon-1")
    kill(before)
    wait_for(lambda: processes_of(calm.site, "falcon-1") - before, "the chassis was not started again")

    def answers() -> bool:
        with contextlib.suppress(OSError):
            return bool(calm["falcon-1"].truth())
        return False

    wait_for(answers, "the chassis did not come back")
    calm["falcon-1"].ask("POST", "/time", {"speed": 20})
    # What is neither where it was nor where it shall be was put there by others, for all that the site knows.
    ended = run.carry_out()
    assert ended["state"] == "done" or "by somebody else" in ended["sentence"], ended["sentence"]
    for name in PLANNED:
        wait_for(calm[name].is_shown, f"{name} is not shown as it is", every=0.3)
    # What was lost is no secret: the same wish leads there, by what is missing of it.
    again = PlanRun(calm, run.wanted).apply()
    assert again.carry_out()["state"] == "done"
    assert is_in_force(calm, run.wanted)


# Of one worker by itself: tests/telemetry/store/test_faults.py.
@pytest.mark.nightly
def test_live_goes_on_while_the_disks_of_workers_are_full_and_what_was_dropped_is_reported(calm: Stage) -> None:
    full, well = calm["many"], calm["well"]
    temperature = full.temperature("drawer1slot1")
    # Many, so that memory is full before long.
    full.fault("many_readings", readings=15_000)
    wait_for(lambda: len(full.series()) == 15_000, "they are not known", every=0.4)
    before, began, away = full.counts(), time.time(), 0
    with Watcher(calm.operator, [full.pk, well.pk]) as watcher:
        wait_for(lambda: watcher.times(full.pk) and watcher.times(well.pk), "no frames came")
        try:
            limit_files(calm, FULL_AT)
            while full.counts().get(DROPPED, 0) == before.get(DROPPED, 0):
                # A chassis that is away gives what was read of it, and does not wait until its minute is full.
                assert (away := away + 1) <= 10, "nothing was dropped"
                full.fault("bmc_reboot", seconds=AWAY_SECONDS)
                read = len(watcher.times(full.pk))
                wait_for(lambda of=read: len(watcher.times(full.pk)) > of + 3, "it is not read")  # type: ignore[misc]
            words = [one["words"] for one in calm.operator.get("pipeline/")["findings"]]
            assert any(text.startswith("Readings dropped") for text in words), words
            assert any(text.startswith("Failed writes of readings") for text in words), words
            assert calm.site.get("/healthz")[0] == 200
        finally:
            limit_files(calm, None)
        full.heal()
        full.counted(DROPPED, before)
        resumed = time.time()
        full.read_on(temperature)
        until, kept = time.time(), list[float]()
        for _ in range(5):
            full.be_away()
            # A writer that failed waits before it tries again, and until then goes on to drop what has no room.
            if kept := there(*full.stored(temperature, since=resumed, until=time.time())):
                break
            full.read_on(temperature)
        assert kept, "nothing is stored again"
    sick, other = ({second for of, second in watcher.numbers if of == one.pk} for one in (full, well))
    span = set(range(int(began) + 2, int(until)))
    assert len(span - sick) <= len(span - other) + UNEVEN + AWAY_COSTS * away
    assert watcher.opened == 1
    gaps = calm.operator.get(f"telemetry/?subjects=series/{full.pk}/{temperature}&since={began - 30:.0f}")["gaps"]
    assert any("The store could not write" in gap["reason"] for gap in gaps), gaps


@pytest.mark.nightly
@pytest.mark.skipif(PROGRAMS is None, reason="PostgreSQL is not installed")
def test_a_plan_waits_for_a_database_that_is_away_and_loses_nothing(tmp_path: Path) -> None:
    with PostgresServer() as server, RunningSite(tmp_path, DATABASE_URL=server.url) as site:
        operator = Operator(site)
        stage = Stage(operator, own_chassis(operator))
        for name in PLANNED:
            stage[name].ask("POST", "/time", {"speed": 20})
            wait_for(lambda of=name: len(stage[of].devices()) >= 11, f"{name} was not seen")  # type: ignore[misc]
        run = PlanRun(stage).apply()
        wait_for(lambda: {"done", "running"} <= run.states(), "the plan did not begin", 60)
        server.stop()
        time.sleep(60)
        server.start()
        ended = run.carry_out()
        assert (ended["state"], ended["sentence"]) == ("done", "")
        assert [one["state"] for one in ended["operations"]] == ["done"] * len(run.wanted)
        assert run.wrong_writes() == {}
        for name in PLANNED:
            wait_for(stage[name].is_shown, f"{name} is not shown as it is")


def limit_files(stage: Stage, size: int | None) -> None:
    """Let the files of the workers grow to a size at most, as a disk without room does."""
    most = resource.RLIM_INFINITY
    for pid in processes_of(stage.site, "worker"):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (most if size is None else size, most))
