"""`python -m agent.runs.supervisor FOLDER`: starts a run's executor, watches it, and ends it with all its processes.

The supervisor outlives the agent. It is the only writer of the run's events: it validates the executor's event file
line by line and merges it with its own readings. So the sequence has one order, invalid output of the run's processes
cannot damage it, and the supervisor notices when the run hangs.
"""

from __future__ import annotations

import fcntl
import os
import platform
import queue
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from agent.runs import processes
from agent.runs.folder import MAX_EVENT_LINE_BYTES, LaunchSpec, LogWriter, RunEnd, RunEventFile, RunFolder, delete_tree
from agent.runs.processes import AccountError, UnixAccount, account_of, limit_own_resources, require_access
from agent.runs.sampling import Sampler
from hostwire.training import (
    PhaseStarted,
    RunEvent,
    RunFailed,
    RunResult,
    RunStarted,
    Software,
    event_decoder,
    event_encoder,
)

TICK_SECONDS = 0.1
CHECK_SECONDS = 1.0
# The time limit for reading the remaining output once the processes have ended.
DRAIN_SECONDS = 10.0
# A check for a supervisor takes the lock for a moment.
LOCK_SECONDS = 3.0
SAMPLER_SECONDS = 3.0
SUPERVISOR_PRIORITY = -10
MAX_EVENT_FILE_BYTES = 64 * 2**20
MIN_FREE_BYTES = 64 * 2**20


class RunSupervisor:
    def __init__(self, folder: RunFolder, launch: LaunchSpec) -> None:
        self._folder = folder
        self._launch = launch
        self._log = LogWriter(folder.place, launch.log_bytes)
        self._events = RunEventFile(folder.events)
        self._account: UnixAccount | None = None
        self._events_offset = 0  # bytes of the executor's event file that were read
        self._trouble: RunFailed | None = None
        self._cancelled = False
        self._is_terminated = False
        self._known_processes: list[processes.ProcessIdentity] = []
        self._last_event = time.monotonic()
        self._dropped_events = 0

    def run(self) -> None:
        """Carry out the launch specification and record the end. Raises OSError where that cannot be written."""
        processes.become_subreaper()
        signal.signal(signal.SIGTERM, self._handle_terminate)
        try:
            process = self._start()
        except (OSError, ValueError, AccountError, subprocess.SubprocessError) as error:
            self._announce_start()
            self._record_end(None, RunFailed(time.time(), "refused", f"It could not be started: {error}"))
            return
        if process.stdout is None:
            raise OSError("the run has no output")
        self._output = process.stdout.fileno()
        os.set_blocking(self._output, False)
        launch = self._launch
        self._sampler = Sampler(Path(launch.root), simulated=launch.simulated, gpus=launch.gpus, interval=launch.sample)
        self._sampler.start()
        self._process = process
        if launch.account:
            with suppress(OSError):  # it must be scheduled despite thousands of processes
                os.setpriority(os.PRIO_PROCESS, 0, SUPERVISOR_PRIORITY)
        self._announce_start()
        began = time.monotonic()
        trouble = None
        try:
            if launch.account:
                self._record_command_start()
            trouble = self._watch(began)
        except OSError as error:
            trouble = RunFailed(time.time(), "crash", f"Its record could not be written: {error.strerror or error}.")
        code = self._terminate_all(trouble)
        self._sampler.ended.set()
        # The sampler must have no device open once the run counts as ended; a hanging one is abandoned.
        self._sampler.join(SAMPLER_SECONDS)
        if launch.account and code == 0 and trouble is None and not self._cancelled:
            seconds = round(time.monotonic() - began, 3)
            self._add(RunResult(time.time(), {"seconds": seconds}, {"seconds": "s"}))
        self._record_end(code, trouble)

    def _start(self) -> subprocess.Popen[bytes]:
        launch, account = self._launch, None
        if launch.account:
            self._account = account = account_of(launch.account)
        self._folder.home.mkdir(mode=0o700, exist_ok=True)
        if account is not None:
            os.chown(self._folder.home, account.uid, account.gid)
            require_access(account, self._folder.home)

        def prepare() -> None:
            processes.kill_with_parent()
            if account is not None:
                limit_own_resources()

        return subprocess.Popen(  # noqa: S603 - the agent's own command, or a user's as an unprivileged account
            launch.command,
            cwd=self._folder.home,
            env=dict(launch.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            user=None if account is None else account.uid,
            group=None if account is None else account.gid,
            extra_groups=None if account is None else account.groups,
            umask=0o077,
            preexec_fn=prepare,  # noqa: PLW1509 - only one thread is running yet
        )

    def _announce_start(self) -> None:
        self._folder.write("keeper.json", processes.process_identity(os.getpid()))
        # The agent, which reads this, may have ended.
        with suppress(OSError):
            os.write(1, b"begun\n")

    def _record_command_start(self) -> None:
        uname = platform.uname()
        software = Software(
            operating_system=f"{uname.system} {uname.release}", processor=uname.machine, cores=os.cpu_count() or 0
        )
        self._add(RunStarted(time.time(), software))
        self._add(PhaseStarted(time.time(), "timed"))

    def _watch(self, began: float) -> RunFailed | None:
        """Wait until the run has ended by itself (None), or must be ended (the failure, or None if cancelled)."""
        launch = self._launch
        tracked = 0.0
        while not self._has_ended():
            self._collect(TICK_SECONDS)
            now = time.monotonic()
            if now - tracked >= CHECK_SECONDS:
                tracked = now
                self._track_processes()
                if shutil.disk_usage(self._folder.place).free < MIN_FREE_BYTES:
                    return RunFailed(time.time(), "crash", "It was ended: the disk of the host is full.")
            if self._folder.stop_request is not None:
                self._cancelled = True
                return None
            if self._is_terminated or (launch.parent is not None and not processes.is_alive(launch.parent)):
                return RunFailed(time.time(), "lost", "It was ended because its parent program ended.")
            if now - began > launch.limit:
                return RunFailed(time.time(), "limit", f"It was ended at its time limit of {launch.limit:g} s.")
            if launch.hang and now - self._last_event > launch.hang:
                return RunFailed(time.time(), "hang", f"It was ended: nothing happened for {launch.hang:g} s.")
        return None

    def _has_ended(self) -> bool:
        """Return whether the first process of the run has ended, without reaping it."""
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _collect(self, seconds: float) -> None:
        """Read output, events and samples of the run, waiting for output for at most `seconds`."""
        if select.select([self._output], [], [], seconds)[0]:
            self._read_output()
        self._read_events()
        with suppress(queue.Empty):
            while True:
                self._add(self._sampler.readings.get_nowait())

    def _read_output(self) -> bool:
        """Copy some output to the log; False at its end."""
        try:
            part = os.read(self._output, 2**16)
        except BlockingIOError:
            return True
        self._log.write(part)
        if not part:
            time.sleep(TICK_SECONDS)  # closed by a run that continues: it stays readable
        return bool(part)

    def _read_events(self) -> bool:
        """Read some of the executor's events; False where there are no more."""
        try:
            with self._folder.executor_events.open("rb") as file:
                file.seek(self._events_offset)
                data = file.read(2**20)
        except OSError:
            return False
        complete = data.rfind(b"\n") + 1
        if not complete and len(data) == 2**20:
            complete = len(data)  # no event is so long
        self._events_offset += complete
        for line in data[:complete].split(b"\n"):
            self._add_line(line)
        return complete > 0

    def _add_line(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            event = event_decoder.decode(line) if len(line) <= MAX_EVENT_LINE_BYTES else None
            # Re-encoded it may be longer: an event that fits into no message could never be sent.
            if event is not None and len(event_encoder.encode(event)) > MAX_EVENT_LINE_BYTES:
                event = None
        except (msgspec.MsgspecError, UnicodeDecodeError):
            event = None
        if event is None:
            self._log.write(b"\n[A line that is not an event, or is too long, was left out of the record]\n")
            return
        self._last_event = time.monotonic()
        if isinstance(event, RunFailed):
            self._trouble = self._trouble or event
        self._add(event)

    def _add(self, event: RunEvent) -> None:
        if self._events.size > MAX_EVENT_FILE_BYTES:
            self._dropped_events += 1
            return
        self._events.add(event)

    def _track_processes(self) -> None:
        processes.reap_orphans(self._process.pid)
        now = processes.descendants(os.getpid())
        if now != self._known_processes:
            self._known_processes = now
            self._folder.write("family.json", now)

    def _terminate_all(self, trouble: RunFailed | None) -> int | None:
        """End every process of the run, read its remaining output and events, and return its exit code."""
        stop = self._folder.stop_request
        by_itself = trouble is None and not self._cancelled
        grace = 0.5 if by_itself else (stop.grace if stop is not None else self._launch.grace)

        def find() -> list[processes.ProcessIdentity]:
            return processes.descendants(os.getpid())

        def collect() -> None:
            processes.reap_orphans(self._process.pid)
            with suppress(OSError):
                self._collect(0.0)

        left = processes.terminate_processes(find, grace, collect)
        code = self._process.wait() if self._has_ended() else None
        deadline = time.monotonic() + processes.KILL_SECONDS
        while code is not None and not processes.has_no_children() and time.monotonic() < deadline:
            if self._account is not None:
                processes.kill_processes_of_user(self._account.uid, self._account.gid)
            left = processes.terminate_processes(find, 0.0)
        deadline = time.monotonic() + DRAIN_SECONDS
        with suppress(OSError):
            while select.select([self._output], [], [], 0.0)[0] and time.monotonic() < deadline:
                if not self._read_output():
                    break
        with suppress(OSError):
            self._collect(0.0)
            while self._read_events() and time.monotonic() < deadline:
                pass
        if left:
            with suppress(OSError):
                self._log.write(f"\n[{len(left)} processes of the run cannot be ended]\n".encode())
        return code

    def _record_end(self, code: int | None, trouble: RunFailed | None) -> None:
        reported = self._trouble
        if trouble is None and not self._cancelled and code != 0 and reported is None:
            trouble = RunFailed(time.time(), "crash", _exit_sentence(code))
        with suppress(OSError):  # only the end itself must be recorded
            if trouble is not None:
                self._events.add(trouble)
            if self._dropped_events:
                self._log.write(f"\n[{self._dropped_events} events were left out: the record is full]\n".encode())
        failure = trouble or reported
        sentence = "It was cancelled." if self._cancelled else (failure.sentence if failure else "It ended.")
        delete_tree(self._folder.home)
        end = RunEnd(at=time.time(), exit_code=code, sentence=sentence, cancelled=self._cancelled)
        self._folder.write("end.json", end)

    def _handle_terminate(self, *_: object) -> None:
        self._is_terminated = True


def _exit_sentence(code: int | None) -> str:
    if code is None:
        return "Its processes could not be ended."
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
        more = " Perhaps the host's memory was full." if -code == signal.SIGKILL else ""
        return f"It ended with the signal {name}; see its log.{more}"
    return f"It ended with the exit code {code}; see its log."


def main() -> int:
    """Supervise the run of a folder, unless another supervisor does."""
    os.umask(0o077)
    folder = RunFolder(Path(sys.argv[1]))
    launch = folder.launch_spec
    deadline = time.monotonic() + LOCK_SECONDS
    while launch is not None and folder.end is None:
        with folder.lock(fcntl.LOCK_EX) as mine:
            if mine:
                RunSupervisor(folder, launch).run()
                # The lock is released with the process, so that a free lock means no process; and a hanging thread
                # does not delay the exit.
                os._exit(0)
        if time.monotonic() > deadline:
            break
        time.sleep(TICK_SECONDS)
    return 1


if __name__ == "__main__":
    sys.exit(main())
