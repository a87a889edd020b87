"""`make up` as an operator meets it: real processes, a fresh data folder."""

from __future__ import annotations

import atexit
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import redis

from falconweb.config import SECRET_VARIABLES
from falconweb.launch import processes
from falconweb.launch.simulation import AGENT_RIGHTS
from tests.site import ADMINISTRATOR_PASSWORD, ROOT, RunningSite, kill, parent_of, processes_of
from tests.waiting import wait_for

pytestmark = pytest.mark.process


def processes_naming(text: str) -> list[str]:
    """Return the command lines of running processes whose environment holds `text`."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                if text.encode() in (folder / "environ").read_bytes():
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
    return found


def all_gone(data: Path) -> bool:
    """Wait until no process of a site is left."""
    what = f"FALCONWEB_DATA={data}"
    wait_for(lambda: not processes_naming(what), lambda: f"{processes_naming(what)}", seconds=60, every=0.2)
    return True


def started_in_vain(site: RunningSite, **environment: str) -> subprocess.CompletedProcess[str]:
    """Start another one beside a site, with its settings and these."""
    return subprocess.run(
        [sys.executable, "-m", "falconweb.launch"],
        cwd=ROOT, env={**site.environment, **environment}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site that is started, ended and started again."""
    return tmp_path_factory.mktemp("launched")


@dataclass
class FirstStart:
    """What a first start says, the environment of each of its processes, and what the broker refused to an agent."""

    said: list[str]
    environments: dict[str, dict[str, str]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


GIVEN_KEY = "a-signing-key-of-the-operator-which-is-long-enough-for-django"
# Of the kinds of what an account may not do: other keys, other hosts, and everybody.
FORBIDDEN = [
    "GET pipeline:since", "SET scheduler x", "LPUSH falconweb x", "BRPOP falconweb 1", "LRANGE host.another 0 -1",
    "LPUSH host.another x", "HGETALL unacked", "PUBLISH access x", "PSUBSCRIBE live:*", "KEYS *", "SCAN 0",
    "FLUSHALL", "FLUSHDB", "CONFIG GET *", "EVAL return(1) 0", "SCRIPT FLUSH", "ACL LIST", "ACL WHOAMI", "CLIENT LIST",
    "SHUTDOWN NOSAVE", "MONITOR", "SAVE", "INFO", "SWAPDB 0 1",
]  # fmt: skip


def environments_of(site: RunningSite) -> dict[str, dict[str, str]]:
    """Return the environment of each child of a launcher, as the kernel shows it, by the child's name and id."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and parent_of(int(folder.name)) == site.process.pid:
            words = (folder / "environ").read_bytes().decode().split("\0")
            name = f"{(folder / 'comm').read_text().strip()} {(folder / 'cmdline').read_bytes().decode()}"
            found[f"{name} {folder.name}"] = dict(word.split("=", 1) for word in words if "=" in word)
    return found


def refusals_of(address: str) -> dict[str, str]:
    """Return what the broker says to each of FORBIDDEN, as the account of an address."""
    refused = {}
    with redis.Redis.from_url(address) as client:
        assert client.ping()
        for command in FORBIDDEN:
            try:
                refused[command] = f"{client.execute_command(*command.split())}"
            except redis.exceptions.NoPermissionError:
                refused[command] = "no permission"
    return refused


@pytest.fixture(scope="module")
def first_start(data: Path) -> FirstStart:
    """A first start; it was ended as Ctrl-C does, and nothing of it is left."""
    with RunningSite(
        data, prepared=False, FALCONWEB_ADMIN_PASSWORD=ADMINISTRATOR_PASSWORD, FALCONWEB_SECRET_KEY=GIVEN_KEY
    ) as site:
        status, text = site.get("/healthz")
        assert (status, json.loads(text)["status"]) == (200, "ok")
        # Static files are collected by now, and their names known.
        status, page = site.get("/sign-in/")
        assert status == 200
        for place in re.findall(r'"(/static/[^"]+)"', page):
            assert site.get(place)[0] == 200, place
        wait_for(lambda: len(processes_naming(f"FALCONWEB_DATA={data}")) >= 6, "there are fewer processes")
        found = FirstStart(site.said)
        # The agents are started last.
        wait_for(lambda: any("\0agent\0" in name for name in environments_of(site)), "there is no agent")
        found.environments = environments_of(site)
        agent = next(one for name, one in found.environments.items() if "\0agent\0" in name)
        found.refused = refusals_of(agent["AGENT_BROKER"])
        assert site.stop() == 0
    assert all_gone(data)
    return found


@pytest.fixture(scope="module")
def later_starts(data: Path, first_start: FirstStart) -> Iterator[list[RunningSite]]:
    """Sites of the same folder, one after the other: where a test has ended the last one, the next starts another."""
    sites: list[RunningSite] = []
    yield sites
    if sites:
        sites[-1].stop()


@pytest.fixture
def site(data: Path, later_starts: list[RunningSite]) -> RunningSite:
    """The second start in the same folder, or a later one."""
    if not later_starts or later_starts[-1].process.poll() is not None:
        later_starts.append(RunningSite(data, FALCONWEB_SIMULATED="0", FALCONWEB_ADMIN_PASSWORD=""))
    return later_starts[-1]


def test_the_first_start_names_the_password_once_and_ctrl_c_ends_every_process(
    first_start: FirstStart, site: RunningSite
) -> None:
    assert any("Created the administrator with the password of" in line for line in first_start.said)
    assert not any("password" in line for line in site.said)


def test_no_process_has_the_password_of_the_administrator_in_its_environment(first_start: FirstStart) -> None:
    for name, environment in first_start.environments.items():
        assert ADMINISTRATOR_PASSWORD not in " ".join(environment.values()), name


def test_agents_simulators_and_the_broker_have_none_of_the_sites_secrets(first_start: FirstStart) -> None:
    inside = outside = 0
    for name, environment in first_start.environments.items():
        if name.split()[0].partition("-")[0] in {"web", "worker", "beat"}:
            inside += 1
        else:
            assert not [one for one in SECRET_VARIABLES if environment.get(one)], name
            assert GIVEN_KEY not in " ".join(environment.values())
            outside += 1
    assert (inside, outside >= 3) == (3, True)


def test_an_agent_has_an_account_that_reaches_its_own_queue_alone(first_start: FirstStart) -> None:
    assert first_start.refused == dict.fromkeys(FORBIDDEN, "no permission")
    rule = (ROOT / "docs" / "agent.md").read_text().split("ACL SETUSER agent-4c4c4544 reset on >PASSWORD ")[1]
    assert rule.splitlines()[0] == AGENT_RIGHTS.replace("QUEUE", "host.DIGEST")


def test_a_taken_port_is_said_in_one_sentence_and_nothing_is_started(site: RunningSite, tmp_path: Path) -> None:
    second = started_in_vain(site, FALCONWEB_DATA=str(tmp_path))
    assert second.returncode == 1
    assert f"port {site.port} is taken" in second.stdout
    assert "Traceback" not in second.stdout + second.stderr
    assert not processes_naming(f"FALCONWEB_DATA={tmp_path}")


def test_two_starts_on_one_data_folder_are_told_apart(site: RunningSite) -> None:
    second = started_in_vain(site)
    assert second.returncode == 1
    assert "another FalconWeb uses" in second.stdout


def test_a_dead_worker_is_started_again(site: RunningSite) -> None:
    before = wait_for(lambda: processes_of(site, "worker"), "there is no worker")
    kill(before)
    wait_for(lambda: processes_of(site, "worker") - before, "it was not started again", seconds=60)


def test_a_killed_launcher_takes_its_processes_with_it(data: Path, site: RunningSite) -> None:
    site.process.send_signal(signal.SIGKILL)
    site.process.wait(timeout=60)
    assert all_gone(data)


def test_a_process_whose_launcher_died_before_it_could_ask_ends_by_itself() -> None:
    script = """
import os, time
from falconweb.launch.processes import end_with_parent
ask, launcher = end_with_parent(), os.getpid()
if os.fork():
    os._exit(0)
while os.getppid() == launcher:
    time.sleep(0.01)
print("orphaned", flush=True)
ask()
print("lives on", flush=True)
"""
    found = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert (found.stdout, found.stderr) == ("orphaned\n", "")


@pytest.mark.nightly
def test_it_starts_as_the_documentation_says_for_production(tmp_path: Path) -> None:
    documentation = (ROOT / "docs" / "operate.md").read_text()
    line = next(line for line in documentation.splitlines() if line.strip().startswith("FALCONWEB_HTTPS=1 "))
    settings: dict[str, Any] = dict(word.split("=", 1) for word in line.split() if "=" in word)
    assert settings.pop("FALCONWEB_SIMULATED") == "0"
    # As `make up` starts it.
    with RunningSite(tmp_path, arguments=["--demo"], FALCONWEB_SIMULATED="0", **settings) as site:
        assert not (tmp_path / "logs" / "demo.log").exists()
        # Whoever watches it knows its address only; everybody else needs its name.
        assert site.get("/healthz")[0] == 200
        assert site.get("/sign-in/")[0] == 400


def test_https_without_a_proxy_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="FALCONWEB_HTTPS needs a reverse proxy"):
        RunningSite(tmp_path, FALCONWEB_SIMULATED="0", FALCONWEB_HTTPS="1")


def test_a_long_log_is_moved_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "MAX_LOG_BYTES", 20)
    log = tmp_path / "talker.log"
    talk = "import sys, time\nfor n in range(9): print(n, 'x' * 9, flush=True); time.sleep(0.05)\ntime.sleep(30)"
    child = processes.ChildProcess("talker", [sys.executable, "-c", talk], environment=os.environ, log=log)
    child.start()
    try:
        aside = tmp_path / "talker.log.1"
        deadline = time.monotonic() + 25  # the talker ends after thirty
        # The last line may be moved aside before it is looked for.
        while not any("8 xxx" in one.read_text() for one in (log, aside) if one.exists()):
            assert time.monotonic() < deadline
            assert child.restart_if_dead() == ""
            time.sleep(0.01)
        # What it writes after that stands at the beginning, not behind a hole.
        assert log.read_text()[:1].isdigit() or "8 xxx" in aside.read_text()
        assert log.stat().st_size < 9 * 12
        assert aside.read_text()[0].isdigit()
    finally:
        processes.terminate_all([child])


def test_a_function_goes_on_in_a_process_of_its_own_and_ends_as_a_command_does(tmp_path: Path) -> None:
    log = tmp_path / "forked.log"

    def work() -> None:
        atexit.register(os.write, 1, b"the end\n")
        os.write(1, f"{os.environ['NAME']} {Path('/proc/self/comm').read_text()}".encode())
        sys.exit(3)

    # It does not do what this process is to do at its own end.
    atexit.register(here := (lambda: os.write(1, b"of another\n")))
    child = processes.ChildProcess("forked", work, environment={"NAME": "ada"}, log=log)
    child.start()
    said = wait_for(child.restart_if_dead, "it did not end")
    assert said == f"forked ended with 3; restarting it. Its log: {log}"
    assert log.read_text() == "ada forked\nthe end\n"
    wait_for(lambda: (child.restart_if_dead(), log.read_text().count("the end"))[1] == 2, "it was not started again")
    processes.terminate_all([child])
    atexit.unregister(here)
