"""Workers, broker and web processes that die under a site that people watch: what their sockets get, and how soon.

Several of each, as a large site has them; every fault is a signal to a real process.
"""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Iterator

import pytest

from tests.falconweb.operating import Operator, parent_of
from tests.falconweb.watching import Watcher, broker_of, poller_of
from tests.processes import SimulatorProcess
from tests.site import RunningSite, pids_naming
from tests.waiting import wait_for

pytestmark = pytest.mark.process

TAKEN_OVER_SECONDS = 5.0
CHASSIS = ("falcon-1", "falcon-2")


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """The administrator of a site of two workers and two web processes, each worker with a chassis."""
    data = tmp_path_factory.mktemp("pollers")
    with RunningSite(data, FALCONWEB_WORKERS="2", FALCONWEB_WEB_PROCESSES="2") as site:
        yield Operator(site)


@pytest.fixture
def chassis(operator: Operator) -> list[int]:
    """Both chassis' numbers, once both are read, by a worker each."""
    _, broker = broker_of(operator.site)
    wait_for(lambda: all(operator.chassis(name)["inventory_at"] for name in CHASSIS), "they were not seen", seconds=60)
    numbers = [int(operator.chassis(name)["id"]) for name in CHASSIS]
    wait_for(lambda: len({poller_of(broker, pk) for pk in numbers} - {0}) == 2, "they were not shared", seconds=40)
    return numbers


@pytest.fixture
def watcher(operator: Operator, chassis: list[int]) -> Iterator[Watcher]:
    """Somebody who watches both."""
    with Watcher(operator, chassis) as watcher:
        wait_for(lambda: all(len(watcher.times(pk)) >= 3 for pk in chassis), "no frames came")
        yield watcher


def longest_gap(watcher: Watcher, chassis: int, since: float) -> float:
    """Return the longest time without a frame of a chassis around and after a moment, in s."""
    times = [at for at in watcher.times(chassis) if at > since - 2]
    return max(later - earlier for earlier, later in itertools.pairwise(times))


def test_another_worker_takes_over_from_a_killed_one_within_five_seconds(
    operator: Operator, chassis: list[int], watcher: Watcher
) -> None:
    _, broker = broker_of(operator.site)
    killed, spared = (poller_of(broker, pk) for pk in chassis)
    began = time.time()
    os.kill(killed, signal.SIGKILL)
    wait_for(lambda: any(at > began + 1.5 for at in watcher.times(chassis[0])), "nobody took over", seconds=15)
    assert longest_gap(watcher, chassis[0], began) < TAKEN_OVER_SECONDS
    assert poller_of(broker, chassis[0]) != killed
    wait_for(lambda: len([at for at in watcher.times(chassis[1]) if at > began]) > 3, "the other was disturbed")
    assert watcher.twice() == []
    assert poller_of(broker, chassis[1]) == spared


def test_a_worker_that_was_stopped_and_goes_on_says_nothing_of_what_is_anothers_by_then(
    operator: Operator, chassis: list[int], watcher: Watcher
) -> None:
    _, broker = broker_of(operator.site)
    stopped, other = (poller_of(broker, pk) for pk in chassis)
    os.kill(stopped, signal.SIGSTOP)
    try:
        began = time.time()
        wait_for(lambda: poller_of(broker, chassis[0]) == other, "nobody took over", seconds=15)
        wait_for(lambda: [at for at in watcher.times(chassis[0]) if at > began + 1.5], "nobody reads it", seconds=15)
        with broker.pubsub() as heard:  # type: ignore[no-untyped-call]
            heard.subscribe(f"live:{chassis[0]}")
            os.kill(stopped, signal.SIGCONT)
            frames = []
            end = time.monotonic() + 1.9  # before a share of them goes back to it
            while time.monotonic() < end:
                if message := heard.get_message(ignore_subscribe_messages=True, timeout=0.1):
                    frames.append(message["data"][8:12])
        assert len(frames) == len(set(frames)) <= 3
    finally:
        os.kill(stopped, signal.SIGCONT)
    wait_for(lambda: {poller_of(broker, pk) for pk in chassis} == {stopped, other}, "it was not shared again")
    assert watcher.twice() == []


def test_a_killed_broker_comes_back_and_open_sockets_go_on(
    operator: Operator, chassis: list[int], watcher: Watcher
) -> None:
    pid, before = broker_of(operator.site)
    holders = [poller_of(before, pk) for pk in chassis]
    os.kill(pid, signal.SIGKILL)
    killed = time.time()
    wait_for(
        lambda: all(len([at for at in watcher.times(pk) if at > killed + 1]) >= 3 for pk in chassis), "live stayed away"
    )
    new, after = broker_of(operator.site)
    assert new != pid
    # Redis lost its memory, the workers did not: nothing was moved about.
    assert [poller_of(after, pk) for pk in chassis] == holders
    assert watcher.twice() == []
    assert operator.site.get("/healthz")[0] == 200


def test_browsers_of_a_killed_web_process_come_back(operator: Operator, chassis: list[int]) -> None:
    parents = {pid for pid in pids_naming("falconweb.asgi:application") if parent_of(pid) == operator.site.process.pid}
    # What uvicorn starts for each process has another command line, but is its child; so is its tracker.
    with Watcher(operator, chassis) as one, Watcher(operator, chassis) as two:
        wait_for(lambda: one.times(chassis[0]) and two.times(chassis[0]), "no frames came")
        for pid in [pid for pid in pids_naming("multiprocessing.spawn") if parent_of(pid) in parents]:
            os.kill(pid, signal.SIGKILL)
        killed = time.time()
        for watcher in (one, two):
            wait_for(lambda of=watcher: [at for at in of.times(chassis[0]) if at > killed + 1], "it stayed away")  # type: ignore[misc]
            assert watcher.opened >= 2


def test_chassis_that_are_added_are_shared_and_stay_where_they_are(operator: Operator, chassis: list[int]) -> None:
    _, broker = broker_of(operator.site)
    with SimulatorProcess("--chassis-count", "6") as more:
        made = [
            operator.post(
                "chassis/",
                {
                    "name": f"more-{number}", "url": url, "username": "administrator", "password": more.password,
                    "fingerprint": more.fingerprint,
                },
            )["id"]
            for number, url in enumerate(more.addresses)
        ]  # fmt: skip
        everything = [*chassis, *made]
        wait_for(lambda: all(poller_of(broker, pk) for pk in everything), "some are read by nobody", seconds=20)
        before = {pk: poller_of(broker, pk) for pk in everything}
        shares = sorted(list(before.values()).count(pid) for pid in set(before.values()))
        assert shares == [4, 4]
        time.sleep(3)
        assert {pk: poller_of(broker, pk) for pk in everything} == before
        with Watcher(operator, everything) as watcher:
            wait_for(lambda: all(len(watcher.times(pk)) >= 3 for pk in everything), "no frames came")
            assert watcher.twice() == []
