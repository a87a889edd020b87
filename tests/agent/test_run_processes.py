"""Runs on this machine itself: users' commands as an unprivileged account, and PyTorch."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from agent.machine import Machine
from agent.runs.folder import RunFolder
from agent.runs.manager import RunManager
from agent.settings import Settings, SettingsError
from hostwire.protocol import DeviceSelector, TrainDeleteRequest, TrainPollRequest, TrainRequest, TrainStopRequest
from hostwire.signing import new_key
from hostwire.training import (
    LATER_FIELDS,
    NodePart,
    RunEvent,
    RunFailed,
    RunReading,
    RunResult,
    RunStarted,
    RunUpdate,
    Spec,
    StepsCompleted,
)
from tests.agent.test_runs import processes_of, trouble_of
from tests.agent.test_supervisor import SupervisedRun
from tests.waiting import wait_for
from tests.without import NO_TORCH

pytestmark = pytest.mark.process

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="Only root can run something as another account.")
ACCOUNT = "nobody"


class Here:
    """The runs of this machine."""

    def __init__(self, state: Path, **changes: object) -> None:
        given: dict[str, object] = {
            "host": "this-machine",
            "key": new_key(),
            "broker": "unused",
            "site_queue": "unused",
            "state": state,
            "account": ACCOUNT,
            "sample_seconds": 0.2,
            "parent": os.getpid(),
        }
        self.settings = Settings(**{**given, **changes})  # type: ignore[arg-type]
        self.machine = Machine(self.settings.root, read_seconds=30.0, step_seconds=30.0)
        self.runs = RunManager(self.settings, self.machine)

    def begin(self, spec: Spec, *, limit: float = 60.0, devices: tuple[DeviceSelector, ...] = ()) -> str:
        """Begin a run and return its name."""
        run = f"run-{secrets.token_hex(4)}"
        answer = self.runs.start(TrainRequest(run=run, spec=spec, executor="torch", limit=limit, devices=devices))
        assert answer == ("started", answer[1]), answer
        return run

    def command(self, script: str, *, limit: float = 60.0) -> str:
        """Begin a user's command, a script of the shell, and return the name of the run."""
        return self.begin(Spec(workload="command", command=("/bin/sh", "-c", script)), limit=limit)

    def ended(self, run: str, seconds: float = 60.0) -> tuple[RunUpdate, list[RunEvent], str]:
        """Wait until a run has ended, and return the last news, all events and the log."""
        wait_for(lambda: self.runs.poll(TrainPollRequest(run)).state == "ended", lambda: self.log(run), seconds)
        events: list[RunEvent] = []
        log, byte = "", 0
        while (news := self.runs.poll(TrainPollRequest(run, len(events), byte))).more or news.events or news.log:
            events.extend(news.events)
            log, byte = log + news.log, news.next_byte
        return news, events, log

    def log(self, run: str) -> str:
        """Return what a run has written so far."""
        return self.runs.poll(TrainPollRequest(run)).log


@pytest.fixture
def state() -> Iterator[Path]:
    """A folder of an agent below /tmp, which every account can pass through; those of pytest are closed."""
    folder = Path(tempfile.mkdtemp(prefix="agent-"))
    folder.chmod(0o755)
    yield folder / "agent"
    shutil.rmtree(folder)


@pytest.fixture
def here(state: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    """The runs of this machine, of an agent that has secrets in its environment."""
    monkeypatch.setenv("AGENT_KEY", "the-secret-of-the-agent")
    monkeypatch.setenv("FALCONWEB_COMMIT", "of-this-host")
    monkeypatch.setenv("AGENT_BROKER", "redis://agent:the-secret-of-the-agent@127.0.0.1/0")
    made = Here(state)
    yield made
    made.machine.close()


@as_root
def test_a_users_command_runs_as_the_unprivileged_account_and_learns_no_secret(here: Here, state: Path) -> None:
    run = here.command(
        "id -un; pwd; umask; env; grep -E 'NoNewPrivs|^Groups' /proc/self/status; ls -a; echo hello > own; cat own; "
        f"ls {state}; cat /proc/$PPID/environ; cat {state}/runs/$FALCONWEB_RUN/order.json; exit 0"
    )
    news, events, log = here.ended(run)
    assert (news.exit_code, trouble_of(events)) == (0, [])
    lines = log.splitlines()
    assert lines[:3] == [ACCOUNT, str(state / "runs" / run / "home"), "0077"]
    assert "NoNewPrivs:\t1" in lines
    assert "hello" in lines
    assert log.count("Permission denied") == 3
    assert "the-secret-of-the-agent" not in log
    environment = {line.partition("=")[0] for line in lines if "=" in line}
    assert environment <= {
        "PATH", "LANG", "HOME", "TMPDIR", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "SHLVL", "_", "FALCONWEB_RUN",
        "CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES",
    }  # fmt: skip
    assert [event.units for event in events if isinstance(event, RunResult)] == [{"seconds": "s"}]
    assert {name for event in events if isinstance(event, RunReading) for name in event.values} <= {
        "cpu", "memory", "disk_read", "disk_write"
    }  # fmt: skip
    # What it left in its home is gone, and with the rest the run.
    assert not (state / "runs" / run / "home").exists()
    assert here.runs.delete(TrainDeleteRequest(run))[0] == "done"
    assert not (state / "runs" / run).exists()


@as_root
def test_the_supervisor_of_a_command_knows_no_secret_either(here: Here) -> None:
    run = here.command("sleep 600")
    environments = [Path(f"/proc/{pid}/environ").read_bytes() for pid in processes_of(run)]
    assert len(environments) >= 2
    assert not any(b"the-secret-of-the-agent" in one for one in environments)
    assert here.runs.stop(TrainStopRequest(run), threading.Event().wait)[0] == "stopped"


@as_root
def test_no_two_commands_run_at_once_as_they_are_one_account(here: Here) -> None:
    run = here.command("sleep 600")
    other = TrainRequest(run="run-2", spec=Spec(workload="command", command=("id",)), executor="torch", limit=9.0)
    outcome, sentence = here.runs.start(other)
    assert (outcome, "one at a time" in sentence) == ("refused", True)
    assert here.runs.stop(TrainStopRequest(run), threading.Event().wait)[0] == "stopped"
    assert here.runs.start(other)[0] == "started"
    here.ended("run-2")


@as_root
def test_a_command_that_hides_its_processes_leaves_none(here: Here) -> None:
    # Of a session of its own, of another parent, deaf to being asked, and without the mark in its environment.
    deaf = 'trap "" TERM; while true; do sleep 0.2; done'
    run = here.command(f"(setsid env -i /bin/sh -c '{deaf}' hidden-{os.getpid()} &) ; echo away; sleep 600")
    wait_for(lambda: "away" in here.log(run))

    def hidden() -> list[int]:
        return processes_of(f"hidden-{os.getpid()}")

    wait_for(hidden)
    assert here.runs.stop(TrainStopRequest(run, grace=0.3), threading.Event().wait)[0] == "stopped"
    assert (processes_of(run), hidden()) == ([], [])


@as_root
def test_hidden_processes_of_a_command_end_with_it_and_with_a_killed_supervisor(here: Here) -> None:
    name = f"orphan-{os.getpid()}"
    hide = f"(setsid env -i /bin/sh -c 'while true; do sleep 0.2; done' {name} &)"
    here.ended(here.command(hide))
    assert processes_of(name) == []
    run = here.command(f"{hide}; sleep 600")
    folder = RunFolder(here.settings.state / "runs" / run)
    wait_for(lambda: set(processes_of(name)) & {one.pid for one in folder.known_processes})
    supervisor = folder.supervisor
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    wait_for(lambda: not folder.is_supervised)
    # Nor does the next command, perhaps of another tenant, meet them.
    other = here.command("id")
    assert (processes_of(run), processes_of(name)) == ([], [])
    news, events, _ = here.ended(run)
    assert (news.exit_code, [what for what, _ in trouble_of(events)]) == (None, ["lost"])
    assert here.ended(other)[0].exit_code == 0


# Of few processes, whatever goes wrong: one that forks without end, and one that is another at each moment.
FEW = "import os, resource; resource.setrlimit(resource.RLIMIT_NPROC, (40, 40)); os.nice(19); print('lit', flush=True)"
BOMB = f"""{FEW}
while True:
    try: os.fork()
    except OSError: pass
"""
HOPPER = f"""{FEW}
while True:
    if os.fork(): os._exit(0)
    os.setsid()
"""


@as_root
@pytest.mark.parametrize("script", [BOMB, HOPPER])
def test_a_command_that_begets_processes_as_quickly_as_they_are_killed_ends(state: Path, script: str) -> None:
    # An account of its own: all of its processes are ended.
    here = Here(state, account="games")
    run = here.begin(Spec(workload="command", command=("/usr/bin/python3", "-c", script)), limit=20.0)
    wait_for(lambda: "lit" in here.log(run), lambda: here.log(run))
    assert here.runs.stop(TrainStopRequest(run, grace=0.1), threading.Event().wait)[0] == "stopped"
    user = pwd.getpwnam("games").pw_uid
    assert [place for place in Path("/proc").iterdir() if place.name.isdigit() and owner_of(place) == user] == []
    here.machine.close()


def owner_of(place: Path) -> int:
    """Return whose process it is, -1 where there is none."""
    try:
        return place.stat().st_uid
    except OSError:
        return -1


@as_root
def test_a_command_with_a_character_that_none_may_have_is_refused(here: Here) -> None:
    spec = Spec(workload="command", command=("echo", "a\0b"))
    outcome, sentence = here.runs.start(TrainRequest(run="run-1", spec=spec, executor="torch", limit=9.0))
    assert (outcome, "NUL" in sentence) == ("refused", True)


@as_root
@pytest.mark.parametrize(
    ("script", "code", "says"),
    [("exit 3", 3, "exit code 3"), ("kill -SEGV $$", -11, "SIGSEGV"), ("no-such-program-here", 127, "exit code 127")],
)
def test_a_command_that_fails_says_how(here: Here, script: str, code: int, says: str) -> None:
    news, events, _ = here.ended(here.command(script))
    assert news.exit_code == code
    assert [(what, says in sentence) for what, sentence in trouble_of(events)] == [("crash", True)]


@as_root
def test_a_program_that_is_not_there_is_refused(here: Here) -> None:
    run = here.begin(Spec(workload="command", command=("/no/such/program",)))
    _, events, _ = here.ended(run)
    assert [what for what, _ in trouble_of(events)] == ["refused"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"account": ""}, "names no account"),
        ({"account": "root"}, "is root"),
        ({"account": "no-such-account"}, "no such account"),
        ({"root": Path("/tmp")}, "A simulated host runs no commands"),  # noqa: S108 - nothing is written there
        ({"most_runs": 0}, "AGENT_MOST_RUNS"),
    ],
)
def test_commands_run_as_nobody_but_an_unprivileged_account(state: Path, changes: dict[str, object], says: str) -> None:
    here = Here(state, **changes)
    request = TrainRequest(run="run-1", spec=Spec(workload="command", command=("id",)), executor="torch", limit=9.0)
    outcome, sentence = here.runs.start(request)
    assert (outcome, says in sentence) == ("refused", True), sentence
    assert here.runs.poll(TrainPollRequest("run-1")).state == "unknown"
    assert not here.runs.capabilities().account or says == "AGENT_MOST_RUNS"
    here.machine.close()


@as_root
def test_the_closed_folder_of_an_account_that_cannot_reach_its_home_is_named(here: Here, state: Path) -> None:
    state.parent.chmod(0o700)
    _, events, _ = here.ended(here.command("id"))
    assert [(what, f"{state.parent} is closed to it" in sentence) for what, sentence in trouble_of(events)] == [
        ("refused", True)
    ]


def test_a_python_without_torch_is_reported(state: Path) -> None:
    here = Here(state, python="/no/such/python")
    told = here.runs.capabilities()
    assert (told.executors, "AGENT_PYTHON" in told.absent) == ((), True)
    request = TrainRequest(run="run-1", spec=Spec(workload="mnist_cnn"), executor="torch", limit=9.0)
    assert here.runs.start(request) == ("refused", told.absent)
    here.machine.close()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AGENT_MOST_RUNS", "-1"),
        ("AGENT_HANG_SECONDS", "soon"),
        ("AGENT_LOG_MIB", "nan"),
        ("AGENT_RENDEZVOUS", "node-a"),
        ("AGENT_RENDEZVOUS", "0.0.0.0"),
    ],
)
def test_a_setting_that_cannot_be_is_named(name: str, value: str) -> None:
    given = {"AGENT_HOST": "h", "AGENT_KEY": new_key(), "AGENT_BROKER": "b", name: value}
    with pytest.raises(SettingsError, match=f"{name} is '{value}'"):
        Settings.from_environment(given)


TINY = Spec(workload="mnist_cnn", devices=2, batch=8, steps=3, warmup=1, backend="cpu", options={})


def test_a_part_of_a_run_that_would_listen_elsewhere_is_refused(state: Path) -> None:
    pytest.importorskip("torch", reason=NO_TORCH)
    over_two = msgspec.structs.replace(TINY, hosts=2)
    for own, address, rendezvous, says in (
        ("", "", "", "AGENT_RENDEZVOUS names no address"), ("127.0.0.2", "0.0.0.0", "0.0.0.0", "than 127.0.0.2"),
        ("127.0.0.2", "127.0.0.2", "0.0.0.0", "than 127.0.0.2"),
    ):  # fmt: skip
        part = NodePart(first_rank=0, ranks=1, address=address, rendezvous=rendezvous, port=20000, token="t")
        wanted = TrainRequest(run="run-1", spec=over_two, executor="torch", limit=60.0, node=part)
        outcome, sentence = Here(state, rendezvous=own).runs.start(wanted)
        assert (outcome, says in sentence) == ("refused", True), sentence


def test_pytorch_runs_with_two_ranks(here: Here) -> None:
    pytest.importorskip("torch", reason=NO_TORCH)
    told = here.runs.capabilities()
    assert told.executors == ("torch",)
    assert set(told.spec_fields) == LATER_FIELDS
    assert told.framework.startswith("torch 2.")
    assert told.backends[0] == "cpu"
    run = here.begin(TINY)
    news, events, log = here.ended(run)
    assert (news.exit_code, trouble_of(events)) == (0, []), log
    steps = [
        one for event in events if isinstance(event, StepsCompleted) and event.phase == "timed" for one in event.seconds
    ]
    assert len(steps) == 3
    assert [event.software.commit for event in events if isinstance(event, RunStarted)] == ["of-this-host"]
    assert {event.source for event in events if isinstance(event, RunReading)} == {"procfs"}
    assert processes_of(run) == []


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_ranks_of_pytorch_end_with_their_run(here: Here, how: str) -> None:
    pytest.importorskip("torch", reason=NO_TORCH)
    run = here.begin(Spec(workload="mnist_cnn", devices=2, batch=8, steps=10**6, loader_workers=1, backend="cpu"))
    wait_for(
        lambda: any(isinstance(event, StepsCompleted) for event in here.runs.poll(TrainPollRequest(run)).events),
        seconds=60,
    )
    assert len(processes_of(run)) >= 6  # supervisor, trainer, two ranks, their loaders
    if how == "stop":
        assert here.runs.stop(TrainStopRequest(run, grace=3), threading.Event().wait)[0] == "stopped"
        assert here.ended(run)[0].cancelled
    else:
        supervisor = RunFolder(here.settings.state / "runs" / run).supervisor
        assert supervisor is not None
        os.kill(supervisor.pid, signal.SIGKILL)
        _, events, _ = here.ended(run)
        assert [event.what for event in events if isinstance(event, RunFailed)] == ["lost"]
    assert processes_of(run) == []


def test_the_python_of_the_agent_is_the_one_that_trains_unless_another_is_named() -> None:
    assert Settings(host="a", key=new_key(), broker="b", site_queue="c").python == sys.executable


@pytest.fixture
def small_disk(state: Path) -> Iterator[Path]:
    """A disk of 100 MiB, at the agent's place."""
    state.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=100m", "tmpfs", str(state)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False).returncode:
        pytest.skip("Only root can make a small disk.")
    yield state
    subprocess.run(["umount", "--lazy", str(state)], check=True)


def test_no_run_begins_where_the_disk_is_nearly_full(small_disk: Path) -> None:
    here = Here(small_disk)
    request = TrainRequest(run="run-1", spec=Spec(workload="command", command=("id",)), executor="torch", limit=9.0)
    outcome, sentence = here.runs.start(request)
    assert (outcome, "100 MiB left; a run needs 256 MiB" in sentence) == ("refused", True), sentence
    assert list((small_disk / "runs").iterdir()) == []
    here.machine.close()


def test_a_run_that_fills_the_disk_is_ended_and_its_end_is_kept(small_disk: Path) -> None:
    kept = SupervisedRun(small_disk, "head -c 60000000 /dev/zero > file; sleep 600")
    news, events, _ = kept.ended()
    assert trouble_of(events) == [("crash", "It was ended: the disk of the host is full.")]
    assert news.state == "ended"
    assert not kept.folder.home.exists()
