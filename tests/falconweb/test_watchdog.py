"""What hangs is restarted, and systemd is told how the site is: processes of a started site, stopped by SIGSTOP."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from core.sqlite_damage import files_set_aside
from falconweb.launch.processes import ChildProcess, terminate_all
from falconweb.launch.watchdog import KINDS, ServiceManager
from hostwire import heartbeat
from tests.site import RunningSite, kill, pids_naming, processes_of
from tests.stage.processes import broker_of
from tests.waiting import eventually, wait_for

pytestmark = pytest.mark.process
HANG_SECONDS = 4
WATCHDOG_SECONDS = 2.0
PARTS = ["worker", "beat", "web", "agent", "broker"]  # agents connect anew after the last
STOPPED: list[str] = []  # by the tests of this module


class NotifySocket:
    """systemd's end of $NOTIFY_SOCKET: what it was told."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.setblocking(False)
        self._taken: list[str] = []

    def take(self) -> list[str]:
        """Return what was told since the last call."""
        found = []
        while True:
            try:
                found.append(self._socket.recv(4096).decode())
            except BlockingIOError:
                self._taken += found
                return found

    def take_all(self) -> list[str]:
        """Return what was told since the beginning."""
        self.take()
        return self._taken


@pytest.fixture(scope="module")
def systemd(tmp_path_factory: pytest.TempPathFactory) -> NotifySocket:
    return NotifySocket(tmp_path_factory.mktemp("run") / "notify")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, systemd: NotifySocket) -> Iterator[RunningSite]:
    """A site that systemd watches, with one simulated chassis and the agents of its hosts."""
    with RunningSite(
        tmp_path_factory.mktemp("watched"),
        FALCONWEB_SIMULATED="1",
        FALCONWEB_STORE_SECONDS="1",
        FALCONWEB_WEB_HANG_SECONDS=str(HANG_SECONDS),
        FALCONWEB_HANG_SECONDS=str(HANG_SECONDS),
        NOTIFY_SOCKET=str(systemd.path),
        WATCHDOG_USEC=str(round(WATCHDOG_SECONDS * 1e6)),
    ) as running:
        wait_until_whole(running)
        yield running
        assert "READY=1" in systemd.take_all()
        assert running.stop() == 0
        assert systemd.take()[-1] == "STOPPING=1"
        said = (running.process.stdout.read() if running.process.stdout else "").splitlines()
        sentence = re.compile(r"(\w+)\S* hangs: no heartbeat for \d+ s\. It was killed\.")
        told = {found[1] for line in said if (found := sentence.fullmatch(line))}
        assert set(STOPPED) <= told


def wait_until_whole(site: RunningSite) -> None:
    """Wait until the site says that all its parts have heartbeats."""

    wait_for(lambda: parts_of(site).get("status") == "ok", lambda: f"{parts_of(site)}", seconds=120, every=0.5)


def parts_of(site: RunningSite) -> dict[str, str]:
    """Return what the site says of its parts, nothing while it does not answer."""
    try:
        found: dict[str, str] = json.loads(site.get("/readyz")[1])
    except (OSError, ValueError):
        return {}
    return found


def pids(site: RunningSite, part: str) -> set[int]:
    if part == "agent":
        return pids_naming("\0-m\0agent\0") & children_of(site.process.pid)
    return processes_of(site, part)


def children_of(pid: int) -> set[int]:
    return {int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_hangs_is_restarted_and_the_site_works_again(
    site: RunningSite, systemd: NotifySocket, part: str
) -> None:
    hung = min(wait_for(lambda: pids(site, part), f"there is no {part}"))
    os.kill(hung, signal.SIGSTOP)
    STOPPED.append(part)
    try:
        began = time.monotonic()
        wait_for(lambda: hung not in pids(site, part), "it still hangs", seconds=60, every=0.1)
        # Not at the first sign, either: a busy process is no hung one.
        assert time.monotonic() - began > HANG_SECONDS - 2
        wait_for(lambda: pids(site, part), "it was not started again", seconds=60)
    finally:
        kill({hung} & pids(site, part))
    wait_until_whole(site)
    _, broker = broker_of(site)
    counter = f"restarts_{KINDS[part]}"
    wait_for(lambda: broker.hget("pipeline:counts", counter), "it was not counted", seconds=30, every=0.5)


def test_systemd_hears_of_a_site_that_works_and_nothing_while_its_web_process_hangs(
    site: RunningSite, systemd: NotifySocket
) -> None:
    systemd.take()
    wait_for(lambda: "WATCHDOG=1" in systemd.take(), "no sign of life", seconds=30)
    (web,) = processes_of(site, "web")
    os.kill(web, signal.SIGSTOP)
    stopped = time.monotonic()
    signs = []
    # The last beat may be of just before.
    while web in processes_of(site, "web"):
        signs += [time.monotonic() - stopped for _ in systemd.take()]
        assert time.monotonic() - stopped < 60
        time.sleep(0.05)
    assert all(at < WATCHDOG_SECONDS for at in signs), signs
    wait_for(lambda: "WATCHDOG=1" in systemd.take(), "no sign of life of the new one", seconds=60)


def test_a_pause_of_the_launcher_or_the_machine_is_no_hang(site: RunningSite) -> None:
    before = {part: pids(site, part) for part in PARTS}
    os.kill(site.process.pid, signal.SIGSTOP)
    until = time.monotonic() + 2 * HANG_SECONDS
    wait_for(lambda: time.monotonic() > until, "", seconds=60)
    os.kill(site.process.pid, signal.SIGCONT)
    until = time.monotonic() + 1.5
    wait_for(lambda: time.monotonic() > until, "", seconds=60)
    assert {part: pids(site, part) for part in PARTS} == before


def test_readings_that_are_damaged_while_the_site_runs_begin_anew(site: RunningSite) -> None:
    wait_until_whole(site)
    file = site.data / "readings.sqlite3"

    def stored() -> int:
        with closing(sqlite3.connect(file)) as database:
            return int(database.execute("SELECT count(*) FROM store_chunk").fetchone()[0])

    wait_for(stored, "the worker stores nothing", seconds=120, every=0.5)
    for one in (file, site.data / "readings.sqlite3-wal"):
        if one.exists():
            with one.open("r+b") as opened:
                opened.write(os.urandom(one.stat().st_size))
    # Who asks whether the site is ready meets the damage, a worker mends it, and all follow to the new file.
    wait_for(lambda: parts_of(site).get("readings") == "set aside", "it stays", seconds=120, every=0.5)
    (aside,) = files_set_aside(file)
    wait_for(stored, "the worker stores nothing in the new file", seconds=120, every=0.5)
    aside.unlink()
    wait_until_whole(site)


def test_ready_is_told_once_the_site_answers_and_only_to_who_asked(tmp_path: Path) -> None:
    systemd = NotifySocket(tmp_path / "notify")
    environment = {"NOTIFY_SOCKET": str(systemd.path), "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1", "HOME": "/"}
    manager = ServiceManager(environment)
    assert environment == {"HOME": "/"}, "children speak for nobody"
    assert manager.watchdog_seconds == 3.0
    manager.tell("READY=1")
    assert systemd.take() == ["READY=1"]
    assert ServiceManager({}).watchdog_seconds == 0.0
    ServiceManager({}).tell("READY=1")
    ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "gone")}).tell("READY=1")
    assert systemd.take() == []


def test_of_two_loops_both_must_turn_and_one_that_waits_need_not(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    monkeypatch.setenv(heartbeat.PIPE, str(writing))
    monkeypatch.setattr(heartbeat, "_beats", {})
    monkeypatch.setattr(heartbeat, "_turned", set())

    def heard() -> bytes:
        try:
            return os.read(reading, 100)
        except BlockingIOError:
            return b""

    assert heartbeat.silence() is None
    heartbeat.beat("polling")
    heartbeat.beat("tasks")
    assert heard() == b"+", "the first of two was alone"
    heartbeat.beat("polling")
    assert heard() == b"+"
    heartbeat.beat("polling")
    assert heard() == b"", "the other hangs"
    heartbeat.beat("tasks")
    assert heard() == b"+"
    heartbeat.pause("tasks")
    heartbeat.beat("polling")
    assert heard() == b"+"
    for end in (reading, writing):
        os.close(end)
    heartbeat.beat("polling")  # a launcher that has ended is nobody's trouble


def test_one_that_beats_is_let_be_and_one_that_never_began_has_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("falconweb.launch.processes.START_SECONDS", 5.0)
    once = "import time\nfrom hostwire.heartbeat import beat\nbeat('it')\nprint('begun', flush=True)\n"
    children = []
    for name, then in (("hangs", "time.sleep(600)"), ("turns", "while True: beat('it'); time.sleep(0.001)")):
        command = [sys.executable, "-c", once + then]
        log = tmp_path / f"{name}.log"
        children.append(ChildProcess(name, command, environment=os.environ, log=log, hang_seconds=2.0))
        children[-1].start()
    sleeps = [sys.executable, "-c", "import time; time.sleep(60)"]
    children.append(ChildProcess("mute", sleeps, environment=os.environ, log=tmp_path / "mute.log", hang_seconds=2.0))
    children[-1].start()
    try:
        for child in children[:2]:
            eventually(child.log.read_text, lambda text: "begun" in text, 30)
        for child in children:
            assert child.kill_if_hung(0.0) == ""
        assert children[1]._pipe is not None
        select.select(children[1]._pipe[:1], [], [], 30)
        assert [bool(child.kill_if_hung(3.0)) for child in children] == [True, False, False]
        assert children[2].kill_if_hung(3.0).startswith("mute hangs: no heartbeat for 6 s.")
        assert [child.is_heard_within(2.0) for child in children] == [False, True, False]
        assert wait_for(children[0].restart_if_dead, "it lives").startswith("hangs ended with -9; restarting it.")
    finally:
        terminate_all(children)
