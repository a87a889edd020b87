"""The runs of this host: started once each, polled, stopped, and found again after a restart of the agent."""

from __future__ import annotations

import fcntl
import os
import select
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from agent.machine import Machine
from agent.runs import processes
from agent.runs.folder import (
    DELETED_PREFIX,
    RUN_NAME,
    RunEnd,
    RunEventFile,
    RunEventReader,
    RunFolder,
    StopRequest,
    delete_tree,
    read_log,
)
from agent.runs.launch import (
    COMMAND_WORKLOAD,
    PyTorchProbe,
    RunRefusedError,
    base_environment,
    commands_refusal,
    prepare_launch,
    request_digest,
)
from agent.settings import Settings
from agent.step_execution import CODE_ROOT, START_SECONDS
from hostwire.protocol import (
    Outcome,
    TrainDeleteRequest,
    TrainerCapabilities,
    TrainPollRequest,
    TrainRequest,
    TrainStopRequest,
)
from hostwire.training import LATER_FIELDS, Executor, RunFailed, RunUpdate

MIN_FREE_BYTES = 256 * 2**20
# The retention of a run that the site has not deleted: a site that was unreachable for so long does not ask for it.
RETENTION_SECONDS = 14 * 86400.0
# A supervisor that an agent started just before it ended may not have recorded its process yet.
STARTING_SECONDS = 10.0
LEAVING_SECONDS = 5.0
POLL_SECONDS = 0.1
LOST_SENTENCE = "Its result is unknown: its supervisor is gone, and the run's processes were ended."
NEVER_STARTED_SENTENCE = "It never began: the agent ended while it started it."


class RunManager:
    """The runs below the agent's folder. Thread-safe."""

    def __init__(self, settings: Settings, machine: Machine) -> None:
        self._settings = settings
        self._machine = machine
        self._place = settings.state / "runs"
        self._torch = PyTorchProbe(settings.python, CODE_ROOT)
        self._lock = threading.Lock()
        self._start_lock = threading.Lock()
        self._starting: set[str] = set()
        self._supervisors: list[subprocess.Popen[bytes]] = []
        self._readers: dict[str, RunEventReader] = {}

    def start(self, request: TrainRequest) -> tuple[Outcome, str]:
        """Start a run; a repeat changes nothing, another run of the same name is refused. Raises StepError."""
        try:
            folder = self._folder(request.run)
            with self._lock:
                known = folder.exists and self._existing_outcome(folder, request)
                if known:
                    return known
                self._starting.add(request.run)
            try:
                # Sequentially: each start sees the devices of the others.
                with self._start_lock:
                    return self._start_new(folder, request)
            finally:
                with self._lock:
                    self._starting.discard(request.run)
        except RunRefusedError as error:
            return "refused", str(error)
        except OSError as error:
            return "refused", f"The run cannot be stored in {self._place}: {error.strerror or error}."

    def poll(self, request: TrainPollRequest) -> RunUpdate:
        folder = self._folder(request.run)
        if not folder.exists:
            return RunUpdate(run=request.run, state="unknown", sentence="This host has no such run.")
        # First the end: all events and output before it are complete by then.
        end = self._run_end(folder)
        with self._lock:
            reader = self._readers.setdefault(request.run, RunEventReader(folder.events))
            events, more = reader.read(request.event)
        log = read_log(folder.place, request.byte, ended=end is not None)
        return RunUpdate(
            run=request.run,
            state="running" if end is None else "ended",
            exit_code=None if end is None else end.exit_code,
            sentence="" if end is None else end.sentence,
            cancelled=end is not None and end.cancelled,
            first_event=request.event,
            events=tuple(events),
            first_byte=log.first,
            log=log.text,
            next_byte=log.next,
            more=more or log.more,
        )

    def stop(self, request: TrainStopRequest, wait_for: Callable[[float], bool]) -> tuple[Outcome, str]:
        """Stop a run with all its processes; one that has not begun is cancelled.

        `wait_for(seconds)` waits and returns whether the agent must end.
        """
        folder = self._folder(request.run)
        with self._lock:
            if not folder.exists and request.run not in self._starting:
                self._create_folders(folder)
                sentence = "It was cancelled before it began."
                folder.write("end.json", RunEnd(at=time.time(), sentence=sentence, cancelled=True))
                return "stopped", sentence
        deadline = time.monotonic() + request.grace + processes.KILL_SECONDS + START_SECONDS
        while time.monotonic() < deadline:
            if (end := self._run_end(folder)) is not None:
                return "stopped", end.sentence
            with self._lock:
                if not folder.exists and request.run not in self._starting:
                    return "stopped", "It was refused, and has not begun."
            if folder.stop_request is None:
                with suppress(OSError):  # its folder is being made
                    folder.write("stop.json", StopRequest(request.grace))
            if wait_for(POLL_SECONDS):
                return "interrupted", "The agent was stopped during the wait; the run ends by itself."
        if (supervisor := folder.supervisor) is not None:
            processes.terminate_processes(lambda: [supervisor] if processes.is_alive(supervisor) else [], 0.0)
        end = self._run_end(folder)
        if end is None:
            return "timed_out", "The processes of the run cannot be ended: they are stuck in the kernel."
        return "stopped", end.sentence

    def delete(self, request: TrainDeleteRequest) -> tuple[Outcome, str]:
        folder = self._folder(request.run)
        if not folder.exists:
            return "done", "It has no files."
        if self._run_end(folder) is None:
            return "refused", "The run has not ended."
        folder.delete()
        with self._lock:
            self._readers.pop(request.run, None)
        return "done", "Its files are deleted."

    def capabilities(self) -> TrainerCapabilities:
        settings = self._settings
        running = tuple(folder.run for folder in self._running())
        if settings.most_runs == 0:
            return TrainerCapabilities(absent="This host runs no benchmarks: AGENT_MOST_RUNS is 0.", running=running)
        torch = self._torch.installation()
        executors: list[Executor] = []
        if not torch.absent:
            executors.append("torch")
        if settings.simulated:
            executors.append("simulated")
        with_cuda = torch.cuda and not settings.simulated
        return TrainerCapabilities(
            executors=tuple(executors),
            framework=f"torch {torch.version}" if torch.version else "",
            backends=() if torch.absent else (("cpu", "cuda") if with_cuda else ("cpu",)),
            account="" if commands_refusal(settings) else settings.account,
            # The drives of a simulated host are not real.
            drives=not torch.absent and not settings.simulated,
            address="" if torch.absent else settings.rendezvous,
            absent=torch.absent,
            spec_fields=tuple(sorted(LATER_FIELDS)),
            running=running,
        )

    def clean_up(self) -> None:
        """Settle runs whose supervisors are gone, and delete runs that ended two weeks ago."""
        self._supervisors = [supervisor for supervisor in self._supervisors if supervisor.poll() is None]
        for folder in self._folders():
            end = self._run_end(folder)
            # Also if the clock was that much ahead when it ended.
            if end is not None and abs(time.time() - end.at) > RETENTION_SECONDS:
                folder.delete()
        for gone in self._place.glob(f"{DELETED_PREFIX}*"):
            delete_tree(gone)
        with self._lock:
            self._readers = {run: reader for run, reader in self._readers.items() if (self._place / run).exists()}

    def _folder(self, run: str) -> RunFolder:
        if not RUN_NAME.fullmatch(run):
            raise RunRefusedError(f"'{run[:80]}' cannot be the name of a run: it may have letters, digits and hyphens.")
        return RunFolder(self._place / run)

    def _folders(self) -> list[RunFolder]:
        entries = sorted(self._place.glob("*"))
        return [RunFolder(one) for one in entries if one.is_dir() and not one.name.startswith(DELETED_PREFIX)]

    def _running(self) -> list[RunFolder]:
        # A run whose supervisor was killed keeps its devices until its processes are gone.
        return [folder for folder in self._folders() if self._run_end(folder) is None and folder.exists]

    def _existing_outcome(self, folder: RunFolder, request: TrainRequest) -> tuple[Outcome, str] | None:
        """Return the answer for a run that already exists; None for one that was never started."""
        if request.run in self._starting:
            return "started", "It is being started."
        end, launch = folder.end, folder.launch_spec
        if end is not None and launch is None:
            return "refused", end.sentence
        if launch is not None and launch.request != request_digest(request):
            return "refused", "This host has another run of that name."
        if end is not None:
            return "started", f"It was started before, and has ended: {end.sentence}"
        if folder.is_supervised or folder.supervisor is not None:
            return "started", "It was started before."
        folder.delete()
        return None

    def _start_new(self, folder: RunFolder, request: TrainRequest) -> tuple[Outcome, str]:
        settings = self._settings
        running = self._running()
        if len(running) >= settings.most_runs:
            raise RunRefusedError(
                f"This host runs {settings.most_runs} concurrent benchmarks at most (AGENT_MOST_RUNS): "
                f"{len(running)} are under way."
            )
        others = [launch for other in running if (launch := other.launch_spec) is not None]
        # Two commands of one account could access each other's processes, and may belong to two tenants.
        if request.spec.workload == COMMAND_WORKLOAD and any(launch.account for launch in others):
            raise RunRefusedError("Commands of users run one at a time on this host: another one is under way.")
        self._create_folders(folder)
        try:
            _check_disk(folder.place)
            used = {device for launch in others for device in launch.devices}
            launch = prepare_launch(
                request, folder, settings, self._machine, torch=self._torch.installation(), used=used
            )
            folder.write("order.json", launch)
            self._start_supervisor(folder)
        except BaseException:
            if not folder.is_supervised:
                folder.delete()
            raise
        end = folder.end
        return "started", "It runs." if end is None else f"It was started, and has ended: {end.sentence}"

    def _create_folders(self, folder: RunFolder) -> None:
        # An unprivileged account can traverse to the home of its run, and list nothing on the way.
        mode = 0o711 if self._settings.account else 0o700
        self._place.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.place.mkdir(mode=0o700)
        for place in (self._settings.state, self._place, folder.place):
            place.chmod(mode)

    def _start_supervisor(self, folder: RunFolder) -> None:
        environment = base_environment()
        if self._settings.simulated:
            environment["AGENT_ROOT"] = str(self._settings.root)
        if (nvml := os.environ.get("AGENT_NVML")) is not None:
            environment["AGENT_NVML"] = nvml
        with (folder.place / "keeper.log").open("ab") as log:
            supervisor = subprocess.Popen(  # noqa: S603 - a module of the agent
                [sys.executable, "-m", "agent.runs.supervisor", str(folder.place)],
                cwd=CODE_ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._supervisors.append(supervisor)
        if supervisor.stdout is None:
            raise OSError("the supervisor has no output")
        with supervisor.stdout as output:
            if not select.select([output], [], [], START_SECONDS)[0] or not output.read(1):
                supervisor.kill()
                supervisor.wait()
                # The site shows this sentence to the run's users: no paths of the host in it.
                raise OSError("its supervisor did not start in time; see its log in the agent's folder of the run")

    def _run_end(self, folder: RunFolder) -> RunEnd | None:
        """Return the end of a run, None while it runs; a run whose supervisor is gone is ended here."""
        if (end := folder.end) is not None:
            # Its supervisor ends, too, unless it is stuck in the kernel.
            return end if time.time() - end.at > LEAVING_SECONDS or not folder.is_supervised else None
        with self._lock:
            if folder.run in self._starting or not folder.exists:
                return None
            with folder.lock(fcntl.LOCK_SH) as free:
                if not free:
                    return None
                return folder.end or self._record_lost(folder)

    def _record_lost(self, folder: RunFolder) -> RunEnd | None:
        """End the processes that a killed supervisor left, and record the end."""
        if folder.supervisor is None and time.time() - folder.place.stat().st_mtime < STARTING_SECONDS:
            return None
        seen = folder.known_processes

        def left() -> list[processes.ProcessIdentity]:
            there = [one for one in seen if processes.is_alive(one)]
            return [
                *there,
                *processes.descendants(*(one.pid for one in there)),
                *processes.processes_of_run(folder.run),
            ]

        if processes.terminate_processes(left, 0.0):
            return None
        delete_tree(folder.home)
        sentence = LOST_SENTENCE if folder.supervisor is not None else NEVER_STARTED_SENTENCE
        cancelled = folder.stop_request is not None
        end = RunEnd(at=time.time(), sentence="It was cancelled." if cancelled else sentence, cancelled=cancelled)
        # A full disk must not hide the end.
        with suppress(OSError):
            if not cancelled:
                RunEventFile(folder.events).add(RunFailed(end.at, "lost", sentence))
            folder.write("end.json", end)
        return end


def _check_disk(place: Path) -> None:
    if (free := shutil.disk_usage(place).free) < MIN_FREE_BYTES:
        raise RunRefusedError(
            f"The disk with {place} has {free // 2**20} MiB left; a run needs {MIN_FREE_BYTES // 2**20} MiB to begin."
        )
