"""Which commands an agent obeys, and what becomes of them when something dies: real processes, a real broker."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from falconweb.launch.broker import free_port, server_command
from falconweb.testing import AgentProcess
from hostwire.protocol import DeviceSelector, DrainRequest, HostReport, ReportRequest
from hostwire.signing import new_command, new_key, queue_name, reply_queue_name, seal_command, seal_report
from tests.agent.conftest import Lab
from tests.processes import ROOT
from tests.waiting import eventually

pytestmark = pytest.mark.process


def sealed_drain(agent: AgentProcess, address: str, *, key: str = "", **more: float) -> tuple[str, str]:
    """Return the nonce and the text of a drain."""
    command = new_command(agent.identity, DrainRequest(DeviceSelector(address)), **more)
    return command.nonce, seal_command(command, key or agent.key)


def test_nobody_without_the_key_of_the_host_commands_it(lab: Lab) -> None:
    address = lab.shown["drawer1slot1"]
    _, forged = sealed_drain(lab.agent, address, key=new_key())
    _, genuine = sealed_drain(lab.agent, address)
    other = seal_command(new_command("another-host", DrainRequest(DeviceSelector(address))), lab.agent.key)
    report = seal_report(HostReport(lab.agent.identity, 1, 0.0, time.time(), "1"), lab.agent.key)
    changed = genuine.replace("0000:40", "0000:41")
    for text in (forged, other, report, changed, genuine[:-1], "", "x" * 300_000, 5, None, {"a": [1]}, "1.a.b.c"):
        lab.agent.send_text("agent.drain", text)
    # A genuine command, but as another task than it says.
    lab.agent.send_text("agent.report", genuine)
    refused = lab.agent.report(lambda seen: len(seen.problems) == 5)
    assert all("refused" in problem for problem in refused.problems)
    assert lab.agent.ask(ReportRequest()).outcome == "done"
    assert len(lab.shown) == 9


def test_an_expired_command_is_refused_and_says_so(lab: Lab) -> None:
    command = new_command(
        lab.agent.identity, DrainRequest(DeviceSelector(lab.shown["drawer1slot1"])), now=time.time() - 100
    )
    lab.agent.send_text(command.task, seal_command(command, lab.agent.key))
    answer = lab.agent.answer(command)
    assert answer.outcome == "refused"
    assert "expired" in answer.sentence
    ahead = new_command(lab.agent.identity, ReportRequest(), now=time.time() + 400)
    lab.agent.send_text(ahead.task, seal_command(ahead, lab.agent.key))
    assert "compare the clocks" in lab.agent.answer(ahead).sentence
    assert len(lab.shown) == 9


def test_a_repeated_command_answers_the_earlier_result_and_is_not_done_twice(lab: Lab) -> None:
    command = new_command(lab.agent.identity, DrainRequest(DeviceSelector(lab.shown["drawer1slot1"])))
    text = seal_command(command, lab.agent.key)
    lab.agent.send_text(command.task, text)
    first = lab.agent.answer(command)
    assert first.outcome == "removed", first
    lab.reset()
    lab.agent.send_text(command.task, text)
    assert lab.agent.answer(command) == first
    assert "drawer1slot1" in lab.shown


def test_a_repeated_command_is_known_after_a_restart_too(lab: Lab) -> None:
    command = lab.agent.send(DrainRequest(DeviceSelector(lab.shown["drawer1slot1"])))
    first = lab.agent.answer(command)
    lab.agent.kill()
    lab.agent.start()
    lab.reset()
    lab.agent.send_text(command.task, seal_command(command, lab.agent.key))
    assert lab.agent.answer(command) == first
    assert "drawer1slot1" in lab.shown


def test_an_agent_that_is_killed_midway_says_so_when_it_is_back(lab: Lab) -> None:
    held = lab.falcon.hold("node-a", "drawer1slot1")
    command = lab.agent.send(DrainRequest(DeviceSelector(held["address"]), wait=60))
    eventually(lab.agent.log.read_text, lambda said: f"{command.nonce} begins" in said)
    lab.agent.kill()
    lab.agent.start()
    answer = lab.agent.answer(command)
    assert answer.outcome == "interrupted"
    lab.falcon.release("node-a", held["pid"])
    # Nothing was half done: it can be asked again.
    answer = lab.agent.ask(DrainRequest(DeviceSelector(held["address"])))
    assert answer.outcome == "removed", answer


def test_an_agent_that_is_asked_to_end_answers_what_it_was_at(lab: Lab) -> None:
    held = lab.falcon.hold("node-a", "drawer1slot1")
    command = lab.agent.send(DrainRequest(DeviceSelector(held["address"]), wait=60))
    eventually(lab.agent.log.read_text, lambda said: f"{command.nonce} begins" in said)
    lab.agent.stop()
    assert lab.agent.process.returncode == 0
    assert lab.agent.answer(command).outcome == "interrupted"
    lab.agent.start()


def test_a_killed_agent_leaves_no_process_behind(lab: Lab) -> None:
    lab.falcon.fault("host_read_hangs", "drawer1slot4")
    lab.agent.report(lambda seen: any(found.problems for found in seen.devices))
    root = str(lab.hosts / "node-a")

    def steps() -> list[str]:
        return [
            folder.name
            for folder in Path("/proc").iterdir()
            if folder.name.isdigit()
            and "agent.step_worker" in _text(folder / "cmdline")
            and f"AGENT_ROOT={root}\0" in _text(folder / "environ")
        ]

    assert steps()
    lab.agent.kill()
    eventually(steps, lambda left: left == [])
    lab.agent.start()


def _text(file: Path) -> str:
    try:
        return file.read_bytes().decode(errors="replace")
    except OSError:
        return ""


class Broker:
    """A Valkey of the test's own, which it may kill."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"redis://:secret@127.0.0.1:{self.port}/0"
        self._folder = folder
        self.start()

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.process = subprocess.Popen(
            [server_command(), "--port", str(self.port), "--bind", "127.0.0.1", "--requirepass", "secret",
             "--save", "", "--dir", str(self._folder)],
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        client = redis.Redis.from_url(self.url)
        eventually(lambda: _answers(client), lambda so: so)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send it a signal."""
        self.process.send_signal(number)
        if number == signal.SIGKILL:
            self.process.wait()


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False


@pytest.mark.nightly
def test_a_broker_that_dies_and_comes_back_finds_the_answer_and_the_agent_there(
    make_lab: Callable[..., Lab], tmp_path: Path
) -> None:
    broker = Broker(tmp_path)
    try:
        lab = make_lab(broker=broker.url)
        held = lab.falcon.hold("node-a", "drawer1slot1", seconds=1.5)
        command = lab.agent.send(DrainRequest(DeviceSelector(held["address"]), wait=30))
        eventually(lab.agent.log.read_text, lambda said: f"{command.nonce} begins" in said)
        broker.kill()
        eventually(lambda: lab.shown, lambda shown: "drawer1slot1" not in shown)
        broker.start()
        assert lab.agent.answer(command).outcome == "removed"
        assert lab.agent.ask(ReportRequest()).outcome == "done"
        assert lab.agent.report().number
    finally:
        broker.kill()


def test_an_agent_with_the_documented_rights_works_and_reads_nobody_elses_queue(
    make_lab: Callable[..., Lab], tmp_path: Path
) -> None:
    broker = Broker(tmp_path)
    try:
        admin = redis.Redis.from_url(broker.url)
        lines = [line.strip() for line in (ROOT / "docs/agent.md").read_text().splitlines()]
        rule = next(line for line in lines if line.startswith("ACL SETUSER "))
        identity = "0f9619ff-8b86-d011-b42d-00cf4fc964ff"
        words = rule.replace("host.DIGEST", queue_name(identity)).replace("PASSWORD", "word").split()
        admin.execute_command(*words)  # type: ignore[no-untyped-call]
        lab = make_lab(
            broker=f"redis://{words[2]}:word@127.0.0.1:{broker.port}/0",
            site_queue=reply_queue_name(identity),
            AGENT_HOST=identity,
        )
        lab.agent.identity = identity
        command = new_command(identity, DrainRequest(DeviceSelector(lab.shown["drawer1slot1"])))
        admin_side = AgentProcess.sender(broker.url)
        admin_side.send_task(command.task, args=[seal_command(command, lab.agent.key)], queue=queue_name(identity))
        lab.agent.broker = broker.url  # the site's own rights, to read what it was told
        assert lab.agent.answer(command).outcome == "removed"
        limited = redis.Redis.from_url(f"redis://{words[2]}:word@127.0.0.1:{broker.port}/0")
        for forbidden in (
            ("BRPOP", "falconweb", "1"),
            ("LRANGE", "falconweb", "0", "-1"),
            ("LPUSH", "falconweb", "x"),
            ("EVAL", "return 1", "0"),  # a script without end would stop the broker for everybody
            ("PUBLISH", "changed:1", "x"),
            ("LPUSH", "host.another", "x"),
            ("BRPOP", "host.another", "1"),
            ("HGETALL", "unacked"),
            ("SUBSCRIBE", "hub"),
            ("KEYS", "*"),
            ("FLUSHALL",),
            ("CONFIG", "GET", "*"),
            ("GET", ":1:session"),
        ):
            with pytest.raises(redis.exceptions.NoPermissionError):
                limited.execute_command(*forbidden)  # type: ignore[no-untyped-call]
        lab.agent.stop()  # while there is a broker to take leave of
    finally:
        broker.kill()


def test_without_nvml_a_gpu_is_drained_all_the_same(make_lab: Callable[..., Lab], tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    try:
        lab = make_lab(broker=broker.url, AGENT_NVML="")
        assert lab.agent.report().nvml.startswith("no NVML")
        answer = lab.agent.ask(DrainRequest(DeviceSelector(lab.shown["drawer1slot1"])))
        assert answer.outcome == "removed"
        assert ("stop new use by NVML", "skipped") in [(step.name, step.outcome) for step in answer.steps]
        lab.agent.stop()  # while there is a broker to take leave of
    finally:
        broker.kill()


@pytest.mark.parametrize(
    ("setting", "value", "sentence"),
    [
        ("AGENT_KEY", "", "AGENT_KEY is missing"),
        ("AGENT_KEY", "short", "AGENT_KEY cannot be used"),
        ("AGENT_BROKER", "", "AGENT_BROKER is missing"),
        ("AGENT_PERIOD", "soon", "AGENT_PERIOD is 'soon'"),
        ("AGENT_KEY_FILE", "/nowhere", "AGENT_KEY_FILE names /nowhere"),
        ("AGENT_STATE", "/dev/null/state", "cannot be used"),
    ],
)
def test_a_setting_that_cannot_be_used_is_one_sentence(tmp_path: Path, setting: str, value: str, sentence: str) -> None:
    environment = {
        "AGENT_HOST": "a", "AGENT_KEY": "" if setting == "AGENT_KEY_FILE" else new_key(),
        "AGENT_BROKER": "redis://127.0.0.1:1/0", "AGENT_STATE": str(tmp_path), setting: value,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "agent"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_a_second_agent_with_the_same_journal_does_not_start(lab: Lab) -> None:
    second = subprocess.run(
        [sys.executable, "-m", "agent"], cwd=ROOT, env=lab.agent.environment, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert second.returncode == 1
    assert "another agent uses" in second.stderr
