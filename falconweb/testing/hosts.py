"""Agents of simulated hosts, in separate processes, and their control in tests.

def test_a_held_gpu_is_not_drained(simulated_falcon, host_agent):
    agent = host_agent("node-a")
    held = simulated_falcon.hold("node-a", "drawer1slot1", owner="maria")
    answer = agent.ask(Drain(DeviceWanted(address=held["address"])))
    assert (answer.outcome, answer.holders[0].owner) == ("in_use", "maria")
"""

from __future__ import annotations

import atexit
import base64
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
import redis
from celery import Celery

from falconweb.config import BASE_DIR
from falconweb.launch.processes import end_with_parent
from falconweb.launch.simulation import SimulatedHost, agent_environment, host_identity
from falconweb.testing.processes import OwnProcess, shared_start
from hostwire.protocol import Command, CommandAnswer, HostReport, ReportRequest, Request
from hostwire.signing import (
    ANSWER_TASK,
    REPORT_TASK,
    ExpiredError,
    new_command,
    new_key,
    open_answer,
    open_report,
    queue_name,
    seal_command,
)

START_SECONDS = 60.0
# Options that prevent the reuse of an agent by later tests.
UNSHARED_OPTIONS = frozenset({"broker", "key", "site_queue"})
T = TypeVar("T")


class AgentProcess(OwnProcess):
    """`python -m agent` over the tree of a simulated host; a context manager that ends it.

    It writes to a separate list, which `ask`, `answer` and `report` read; `delivering` replaces the site's worker.
    Raises RuntimeError with the program's output where it is not ready within 60 s.

        def test_an_agent_reports(simulated_falcon, simulated_hosts, tmp_path):
            with AgentProcess(simulated_hosts / "node-a", state=tmp_path) as agent:
                assert agent.report().hostname == "node-a"
    """

    def __init__(
        self,
        root: Path,
        *,
        state: Path,
        key: str = "",
        broker: str = "",
        site_queue: str = "",
        period: float = 0.5,
        step_seconds: float = 2.0,
        **environment: str,
    ) -> None:
        self.root = root
        self.identity = host_identity(root)
        self.key = key or new_key()
        self.broker = broker or os.environ["REDIS_URL"]
        self.site_queue = site_queue or f"site-{secrets.token_hex(4)}"
        self.log = state / "agent.log"
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "REDIS_URL"},
            **agent_environment(SimulatedHost(root.name, self.identity, self.key, str(root)), self.broker, state),
            "AGENT_SITE_QUEUE": self.site_queue,
            "AGENT_PERIOD": str(period),
            "AGENT_STEP_SECONDS": str(step_seconds),
            **environment,
        }
        self._first_environment = dict(self.environment)
        self._site = self.sender(self.broker)
        self._waiting: list[tuple[str, str]] = []
        state.mkdir(parents=True, exist_ok=True)
        self.start()

    @staticmethod
    def sender(broker: str) -> Celery:
        """Return a Celery application that sends tasks as the site does."""
        site = Celery("site", broker=broker, set_as_current=False, fixups=[])
        site.conf.broker_transport_options = {"socket_timeout": 3.0, "socket_connect_timeout": 3.0}
        return site

    def start(self) -> None:
        """Start or restart it, and wait until it accepts commands."""
        _agent_pool.end(self.identity)
        with self.log.open("ab") as log:
            offset = log.tell()
            self.process = subprocess.Popen(
                [sys.executable, "-m", "agent"],
                cwd=BASE_DIR,
                env=self.environment,
                stdout=log,
                stderr=log,
                # A suspended agent cannot notice that this process was killed.
                preexec_fn=end_with_parent(signal.SIGKILL),  # noqa: PLW1509
            )
        deadline = time.monotonic() + START_SECONDS
        while "ready\n" not in (output := self.log.read_text()[offset:]):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"the agent did not get ready: {output}")
            time.sleep(0.02)

    def suspend(self) -> bool:
        """Suspend it for a later test; False where it has ended, or has other options."""
        fit = self.process.poll() is None and self.environment == self._first_environment
        if fit:
            self.process.send_signal(signal.SIGSTOP)
        return fit

    def resume(self) -> bool:
        """Resume it for a test that must not see its earlier state; False where that is not possible."""
        with redis.Redis.from_url(self.broker) as broker:
            broker.delete(self.site_queue, queue_name(self.identity))
        os.truncate(self.log, 0)
        self.process.send_signal(signal.SIGCONT)
        try:
            # Of the next two reports, one may have been queued, and one begun, when it was suspended.
            before = self.report().number
            for _ in range(2):
                self.ask(ReportRequest())
            seen = self.report(lambda report: report.number > before + 1)
        except (TimeoutError, ExpiredError):
            # Messages from before the suspension may be too old to be accepted.
            return False
        self._waiting.clear()
        # An unreadable device is not read again for some time, and refusals stay in reports for long.
        return not (seen.problems or seen.busy or any(device.problems for device in seen.devices))

    def send(self, request: Request, *, life: float = 60.0) -> Command:
        """Send it a command, as the site does, and return the command."""
        command = new_command(self.identity, request, life=life)
        self.send_text(command.task, seal_command(command, self.key))
        return command

    def send_text(self, task: str, text: object) -> None:
        """Send any text to its queue."""
        self._site.send_task(task, args=[text], queue=queue_name(self.identity), ignore_result=True)

    def ask(self, request: Request, *, seconds: float = 60.0) -> CommandAnswer:
        """Send it a command and return its answer."""
        return self.answer(self.send(request), seconds=seconds)

    def answer(self, command: Command, *, seconds: float = 60.0) -> CommandAnswer:
        """Return its answer to a command; raises TimeoutError without one. Each answer is returned once."""

        def matching(task: str, text: str) -> CommandAnswer | None:
            if task != ANSWER_TASK:
                return None
            answer = open_answer(text, self.key, identity=self.identity)
            return answer if answer.nonce == command.nonce else None

        return self._await(matching, seconds)

    def report(self, fits: Callable[[HostReport], bool] = lambda _: True, *, seconds: float = 60.0) -> HostReport:
        """Return the next matching report; raises TimeoutError without one. Earlier reports are dropped."""
        self._waiting = [(task, text) for task, text in self._waiting if task != REPORT_TASK]

        def matching(task: str, text: str) -> HostReport | None:
            if task != REPORT_TASK:
                return None
            report = open_report(text, self.key, identity=self.identity)
            return report if fits(report) else None

        return self._await(matching, seconds)

    @contextmanager
    def delivering(self) -> Iterator[None]:
        """Deliver each message to the site's handlers, in place of its worker."""
        from django.db import connection

        from fabric.agents.inbox import MESSAGE_HANDLERS

        ended = threading.Event()

        def deliver() -> None:
            try:
                while not ended.is_set():
                    for task, text in self._messages(0.1):
                        MESSAGE_HANDLERS[task](text)
            finally:
                connection.close()

        thread = threading.Thread(target=deliver, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _await(self, matching: Callable[[str, str], T | None], seconds: float) -> T:
        deadline = time.monotonic() + seconds
        while True:
            for message in list(self._waiting):
                if (found := matching(*message)) is not None:
                    self._waiting.remove(message)
                    return found
            self._waiting = [(task, text) for task, text in self._waiting if task != REPORT_TASK]
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"the agent sent no matching message: {self.log.read_text()[-2000:]}")
            self._waiting += self._messages(min(left, 1.0))

    def _messages(self, seconds: float) -> list[tuple[str, str]]:
        """Return the messages to the site, oldest first, as (task, text); waits for the first one."""
        found = []
        with redis.Redis.from_url(self.broker, socket_timeout=seconds + 5.0) as client:
            raw: Any = client.blpop([self.site_queue], timeout=seconds)
            while raw is not None:
                message = json.loads(raw[1])
                if message["headers"]["task"] in (ANSWER_TASK, REPORT_TASK):
                    found.append((message["headers"]["task"], _text(message)))
                raw = client.blpop([self.site_queue], timeout=0.01) if client.llen(self.site_queue) else None
        return found


def folder_of_hosts() -> Path:
    """Return a new folder for the trees of simulated hosts, deleted when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="falconweb-hosts-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _text(message: dict[str, Any]) -> str:
    return str(json.loads(base64.b64decode(message["body"]))[0][0])


class _AgentPool:
    """Resources that the tests of this process reuse: a folder of hosts, and a suspended agent of each."""

    def __init__(self) -> None:
        self._made: list[Path] = []
        self._suspended: dict[str, tuple[dict[str, Any], AgentProcess]] = {}
        atexit.register(lambda: self.end(*self._suspended))

    @property
    def folder(self) -> Path:
        """Return a folder without runs that an earlier test has left behind."""
        if not self._made or any(not (run / "end.json").exists() for run in self._made[-1].glob("agent-*/runs/*")):
            self.end(*self._suspended)
            self._made.append(folder_of_hosts())
        return self._made[-1]

    def take(self, host: str, options: dict[str, Any]) -> AgentProcess:
        """Return the suspended agent, if it has these options, or a new one."""
        folder = self._made[-1]
        root = folder / "hosts" / host
        had, agent = self._suspended.pop(host_identity(root), ({}, None))
        if agent is not None:
            if had == options and agent.resume():
                return agent
            agent.kill()
        with shared_start():
            return AgentProcess(root, state=Path(tempfile.mkdtemp(prefix=f"agent-{host}-", dir=folder)), **options)

    def release(self, options: dict[str, Any], agent: AgentProcess) -> None:
        """Suspend an agent, or end it where no other test can reuse it."""
        if agent.suspend():
            self.end(agent.identity)
            self._suspended[agent.identity] = (options, agent)
        else:
            agent.stop()

    def end(self, *identities: str) -> None:
        """End suspended agents: they might take another command from their host's queue."""
        for identity in identities:
            if identity in self._suspended:
                self._suspended.pop(identity)[1].kill()


_agent_pool = _AgentPool()


@pytest.fixture
def simulated_hosts() -> Path:
    """The folder of the hosts of `simulated_falcon`: what each sees is in `node-a`, `node-b`, `node-c`.

    def test_a_host_sees_its_devices(simulated_falcon, simulated_hosts):
        assert (simulated_hosts / "node-a/sys/bus/pci/devices/0000:40:00.0").exists()
    """
    hosts = _agent_pool.folder / "hosts"
    shutil.rmtree(hosts, ignore_errors=True)
    return hosts


@pytest.fixture
def host_agent(simulated_hosts: Path, tmp_path: Path) -> Iterator[Callable[..., AgentProcess]]:
    """A function that starts the agent of a host of `simulated_falcon`; options as of `AgentProcess`.

    The agent of an earlier test with the same options is suspended in between and resumed: a start takes a second. With
    an explicit `broker`, `key` or `site_queue` it is always a new one.

    def test_an_agent_says_what_its_host_sees(simulated_falcon, host_agent):
        assert host_agent("node-b").report().devices
    """
    started: list[tuple[dict[str, Any], AgentProcess]] = []

    def start(host: str = "node-a", **options: Any) -> AgentProcess:
        if UNSHARED_OPTIONS & options.keys():
            agent = AgentProcess(simulated_hosts / host, state=tmp_path / f"agent-{host}", **options)
        else:
            agent = _agent_pool.take(host, options)
        started.append((options, agent))
        return agent

    yield start
    for options, agent in started:
        if UNSHARED_OPTIONS & options.keys():
            agent.stop()
        else:
            _agent_pool.release(options, agent)


__all__ = ["AgentProcess", "host_agent", "simulated_hosts"]
