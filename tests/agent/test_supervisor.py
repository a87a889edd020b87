"""The supervisor of a run, whatever the run writes: real supervisors of real processes, and what the site reads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.machine import Machine
from agent.runs import processes
from agent.runs.folder import LaunchSpec, LogWriter, RunFolder, read_log
from agent.runs.manager import RunManager
from agent.settings import Settings
from hostwire.protocol import CommandAnswer, TrainPollRequest, TrainStopRequest
from hostwire.signing import MAX_BYTES, new_key, open_answer, seal_answer
from hostwire.training import RUN_VARIABLE, PhaseStarted, RunEvent, RunUpdate, StepsCompleted, event_encoder
from tests.agent.test_runs import processes_of, trouble_of
from tests.processes import ROOT
from tests.waiting import wait_for

pytestmark = pytest.mark.process

KEY = new_key()


class SupervisedRun:
    """One run of a script of the shell, which writes what it likes where an executor tells of itself."""

    def __init__(self, state: Path, script: str, **changes: Any) -> None:
        settings = Settings(host="h", key=KEY, broker="b", site_queue="s", state=state)
        self.runs = RunManager(settings, Machine(settings.root, read_seconds=30.0, step_seconds=30.0))
        self.folder = RunFolder(state / "runs" / "run-1")
        self.folder.place.mkdir(parents=True)
        launch: dict[str, Any] = {
            "run": f"run-1-{os.getpid()}",
            "request": "",
            "title": "test",
            "command": ("/bin/bash", "-c", script),
            "environment": {"PATH": os.environ["PATH"], RUN_VARIABLE: str(self.folder.place)},
            "limit": 60.0,
            "root": "/",
            "sample": 100.0,
            **changes,
        }
        self.folder.write("order.json", LaunchSpec(**launch))
        self.supervisor = self.supervise()

    def supervise(self) -> subprocess.Popen[bytes]:
        """Start a supervisor, and wait until it supervises the run, or ends."""
        supervisor = subprocess.Popen(
            [sys.executable, "-m", "agent.runs.supervisor", str(self.folder.place)], cwd=ROOT, stdout=subprocess.PIPE
        )
        assert supervisor.stdout is not None
        supervisor.stdout.read(1)
        return supervisor

    def look(self, event: int = 0, byte: int = 0) -> RunUpdate:
        """Return what the site is told; it fits into a message, and can be read at its other end."""
        news = self.runs.poll(TrainPollRequest("run-1", event, byte))
        text = seal_answer(CommandAnswer("h", "n", "agent.train_look", "done", "", 0.0, 0.0, news=news), KEY)
        assert len(text.encode()) < MAX_BYTES
        assert open_answer(text, KEY, identity="h").news == news
        return news

    def ended(self) -> tuple[RunUpdate, list[RunEvent], str]:
        """Wait for the end; return the last news, all events and the whole log."""
        self.supervisor.wait(timeout=60)
        events: list[RunEvent] = []
        log, byte = "", 0
        while True:
            news = self.look(len(events), byte)
            events.extend(news.events)
            log, byte = log + news.log, news.next_byte
            assert news.state == "ended"
            if not news.more:
                return news, events, log


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., SupervisedRun]]:
    """A function that begins a run."""
    begun: list[SupervisedRun] = []

    def begin(script: str, **changes: Any) -> SupervisedRun:
        begun.append(SupervisedRun(tmp_path, script, **changes))
        return begun[-1]

    yield begin
    for one in begun:
        if one.supervisor.poll() is None:
            one.supervisor.terminate()
            one.supervisor.wait(timeout=60)


PHASE = event_encoder.encode(PhaseStarted(1.0, "timed")).decode()


def test_lines_that_are_no_events_are_left_out_and_harm_no_other(
    start: Callable[..., SupervisedRun], tmp_path: Path
) -> None:
    # Short enough as it comes, and too long for a message once its numbers are written out.
    growing = tmp_path / "growing"
    growing.write_text('{"kind":"result","at":1,"values":{"x":[' + "1e15," * 9000 + "1]}}\n")
    long = '{"kind":"phase","at":1,"name":"%0100000d"}'
    news, events, log = start(
        f"cd ..; echo '{PHASE}' > told.jsonl; printf 'no event\\n\\n{{}}\\n\\377\\376\\n' >> told.jsonl; "
        f"printf '{long}\\n' 1 >> told.jsonl; cat {growing} >> told.jsonl; "
        f"head -c 3000000 /dev/zero >> told.jsonl; echo >> told.jsonl; "
        f"echo '{PHASE}' >> told.jsonl; printf '%s' '{PHASE}' >> told.jsonl"
    ).ended()
    # The last one was not ended by a new line: it may be half of one.
    assert events == [PhaseStarted(1.0, "timed"), PhaseStarted(1.0, "timed")]
    assert log.count("A line that is not an event") >= 6
    assert news.exit_code == 0


def test_a_log_of_whatever_bytes_is_told_whole_and_in_order(start: Callable[..., SupervisedRun]) -> None:
    script = (
        "printf 'ä€\\0\\1\\2'; "
        "for i in $(seq 3000); do printf '%d \\1\\2\\3\\4\\5\\6 äöü€🙂\\n' $i; done; printf '\\303'"
    )
    news, _, log = start(script).ended()
    lines = log.splitlines()
    assert lines[0].startswith("ä€\ufffd\x01\x02")
    assert [int(line.split()[0]) for line in lines[1:3000]] == list(range(2, 3001))
    assert all(line.endswith("äöü€🙂") for line in lines[:3000])
    assert log.endswith("\ufffd")
    assert news.exit_code == 0


def test_a_flood_of_output_and_events_is_bounded_and_ends(start: Callable[..., SupervisedRun]) -> None:
    steps = event_encoder.encode(
        StepsCompleted(1.0, "timed", 0, tuple(0.1 + number / 7 for number in range(400)))
    ).decode()
    run = start(
        f"yes '{'x' * 1000}' | head -c 60000000; yes '{steps}' | head -n 1000 >> ../told.jsonl", log_bytes=2**17
    )
    news, events, log = run.ended()
    assert len(events) == 1000
    assert len(log) < 2**17 + 100
    assert news.next_byte == 60_000_000
    assert "bytes of the log were left out here" in log
    assert sum(piece.stat().st_size for piece in run.folder.place.glob("log.*")) <= 2**17


def test_what_a_run_leaves_may_lie_deeper_than_a_path_is_long(start: Callable[..., SupervisedRun]) -> None:
    deep = "import os; [(os.mkdir('d'), os.chdir('d')) for _ in range(2500)]"
    run = start(f'"{sys.executable}" -c "{deep}"')
    assert run.ended()[0].exit_code == 0
    assert not run.folder.home.exists()


def test_a_folder_that_was_not_deleted_to_its_end_is_no_run_and_goes(start: Callable[..., SupervisedRun]) -> None:
    run = start("echo done")
    run.ended()
    left = run.folder.place.rename(run.folder.place.with_name(".gone-run-1"))
    assert run.runs.poll(TrainPollRequest("run-1")).state == "unknown"
    assert run.runs.capabilities().running == ()
    run.runs.clean_up()
    assert not left.exists()


def test_a_run_that_closes_its_output_is_watched_all_the_same(start: Callable[..., SupervisedRun]) -> None:
    news, events, _ = start("exec >&- 2>&-; sleep 600", hang=1.0).ended()
    assert trouble_of(events) == [("hang", "It was ended: nothing happened for 1 s.")]
    assert news.exit_code == -signal.SIGTERM


def test_a_run_that_will_not_end_is_killed(start: Callable[..., SupervisedRun]) -> None:
    run = start("trap '' TERM; echo ready; while true; do sleep 0.1; done", grace=0.3)
    wait_for(lambda: "ready" in run.look().log)
    assert run.runs.stop(TrainStopRequest("run-1", grace=0.3), threading.Event().wait)[0] == "stopped"
    assert run.ended()[0].exit_code == -signal.SIGKILL
    assert processes_of(str(run.folder.place)) == []


def test_a_second_supervisor_leaves_a_run_alone(start: Callable[..., SupervisedRun]) -> None:
    run = start("echo once; sleep 600")
    second = run.supervise()
    assert second.wait(timeout=60) == 1
    assert run.look().state == "running"
    run.supervisor.terminate()
    news, events, log = run.ended()
    assert (log, [what for what, _ in trouble_of(events)], news.exit_code) == ("once\n", ["lost"], -signal.SIGTERM)
    assert run.supervise().wait(timeout=60) == 1


def test_a_run_ends_with_the_process_that_it_belongs_to(start: Callable[..., SupervisedRun]) -> None:
    with subprocess.Popen(["sleep", "600"]) as owner:
        run = start("sleep 600", parent=processes.process_identity(owner.pid))
        owner.kill()
        _, events, _ = run.ended()
    assert trouble_of(events) == [("lost", "It was ended because its parent program ended.")]


def test_half_a_line_that_a_killed_supervisor_left_is_no_event(start: Callable[..., SupervisedRun]) -> None:
    run = start(f"echo '{PHASE}' > ../told.jsonl; sleep 600")
    wait_for(lambda: run.look().events)
    run.supervisor.kill()
    run.supervisor.wait()
    with run.folder.events.open("ab") as file:
        file.write(b'{"kind":"phase","at":2.0,"na')
    news, events, _ = run.ended()
    assert events[0] == PhaseStarted(1.0, "timed")
    assert [what for what, _ in trouble_of(events)] == ["lost"]
    assert (len(events), news.exit_code) == (2, None)


def test_the_log_is_read_on_from_wherever_somebody_was(tmp_path: Path) -> None:
    log = LogWriter(tmp_path, 400)
    written = b""
    for number in range(300):
        part = f"line {number}\n".encode()
        written += part
        log.write(part)
        for byte in (0, 150, max(0, len(written) - 60), len(written)):
            seen, at = b"", byte
            while (found := read_log(tmp_path, at, ended=True)).text:
                if found.first == at:
                    seen += found.text.encode()
                else:
                    seen = found.text.partition("here]\n")[2].encode()
                assert found.next > at
                at = found.next
            assert at == max(byte, len(written))
            assert written.endswith(seen)
    assert msgspec.json.decode(msgspec.json.encode(read_log(tmp_path, 0, ended=True).text)).startswith("line 0\n")
