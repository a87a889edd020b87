"""Child processes that end with their parent and are started again when they die."""

from __future__ import annotations

import atexit
import ctypes
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

STOP_SECONDS = 8.0
# A process that dies again within this time waits longer before its next start.
QUICK_EXIT_SECONDS = 10.0
MAX_WAIT_SECONDS = 15.0
MAX_LOG_BYTES = 50 * 2**20
PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
WANTED_FILE_LIMIT = 65_536


def raise_file_limit() -> None:
    """Let this process and its children have many open files, as far as the system lets them: each socket is one."""
    if sys.platform != "win32":
        import resource

        soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        enough = WANTED_FILE_LIMIT if most == resource.RLIM_INFINITY else min(most, WANTED_FILE_LIMIT)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, enough), most))


def end_with_parent(by: int = signal.SIGTERM) -> Callable[[], None]:
    """Return what a child of this process calls to be ended by a signal when this one dies, even by SIGKILL.

    Linux does that; elsewhere nothing happens.
    """
    parent = os.getpid()

    def ask() -> None:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, by)
            if os.getppid() != parent:
                os._exit(1)  # it died before Linux was asked

    return ask


class ForkedProcess:
    """What `subprocess.Popen` is for a command, for a function that has all that this process has loaded.

    It stands under `name` in lists of processes (`ps -e -o pid,comm,args`); what it says goes to `log`.
    """

    def __init__(
        self, name: str, function: Callable[[], object], environment: Mapping[str, str], log: IO[bytes], orphaned: int
    ) -> None:
        arguments = (name, function, environment, log.fileno(), end_with_parent(orphaned))
        self._process = multiprocessing.get_context("fork").Process(target=self._run, args=arguments, name=name)
        self._process.start()
        self.pid = self._process.pid or 0

    @staticmethod
    def _run(
        name: str,
        function: Callable[[], object],
        environment: Mapping[str, str],
        log: int,
        when_orphaned: Callable[[], None],
    ) -> None:
        os.setsid()
        when_orphaned()
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode())
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for standard in (1, 2):
            os.dup2(log, standard)
        os.environ.clear()
        os.environ.update(environment)
        # What was to be done at the end of this process is not its own to do; what it registers itself is.
        atexit._clear()  # noqa: SLF001 - a fork is no business of the module
        try:
            function()
        finally:
            atexit._run_exitfuncs()  # noqa: SLF001

    @property
    def returncode(self) -> int | None:
        """Its exit status, minus a signal's number where that ended it; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Return `returncode`."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it ended; raises subprocess.TimeoutExpired after so many seconds."""
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0.0)
        return self.returncode


class ChildProcess:
    """One process, its log file and its restarts; `orphaned` is the signal that ends it when the launcher dies.

    What runs is a command, or a function: it begins at once, with all that this process has loaded.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str] | Callable[[], object],
        *,
        environment: Mapping[str, str],
        log: Path,
        orphaned: int = signal.SIGTERM,
    ) -> None:
        self.name = name
        self.command = command
        self.environment = dict(environment)
        self.log = log
        self.orphaned = orphaned
        self.restarts = 0
        self._process: subprocess.Popen[bytes] | ForkedProcess | None = None
        self._started_at = 0.0
        self._start_again_at = 0.0

    def start(self, *, standard_input: bytes = b"") -> None:
        """Start it in a session of its own, so that Ctrl-C reaches only the launcher."""
        self._standard_input = standard_input
        with self.log.open("ab") as log:
            if callable(self.command):
                self._process = ForkedProcess(self.name, self.command, self.environment, log, self.orphaned)
            else:
                self._process = self._start_command(self.command, log)
        self._started_at = time.monotonic()

    def _start_command(self, command: Sequence[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(  # noqa: S603 - our own commands
            command,
            env=self.environment,
            stdin=subprocess.PIPE if self._standard_input else subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=end_with_parent(self.orphaned),  # noqa: PLW1509 - the launcher has one thread
        )
        if process.stdin:
            process.stdin.write(self._standard_input)
            process.stdin.close()
        return process

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Its process id; 0 where it was never started."""
        return 0 if self._process is None else self._process.pid

    def restart_if_dead(self) -> str:
        """Start it again if it died, at growing intervals; return a sentence about that, or ''."""
        self._rotate_log()
        now = time.monotonic()
        if self.alive or self._process is None:
            return ""
        if self._start_again_at == 0.0:
            quick = now - self._started_at < QUICK_EXIT_SECONDS
            self.restarts = self.restarts + 1 if quick else 1
            wait = min(2.0 ** (self.restarts - 1) - 1.0, MAX_WAIT_SECONDS)
            self._start_again_at = now + wait
            return f"{self.name} ended with {self._process.returncode}; starting it again. Its log: {self.log}"
        if now >= self._start_again_at:
            self._start_again_at = 0.0
            self.start(standard_input=self._standard_input)
        return ""

    def _rotate_log(self) -> None:
        """Move a long log aside: one older part is kept. The process writes on at the end of what is then empty."""
        if self.log.exists() and self.log.stat().st_size > MAX_LOG_BYTES:
            shutil.copyfile(self.log, self.log.with_suffix(".log.1"))
            os.truncate(self.log, 0)

    def send_terminate(self) -> None:
        """Send SIGTERM to it and what it started."""
        self._signal(signal.SIGTERM)

    def end(self, deadline: float) -> None:
        """Wait until `deadline` (monotonic seconds), then end it by force."""
        if self._process is None:
            return
        try:
            self._process.wait(timeout=max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait()

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            try:
                os.killpg(self._process.pid, number)
            except ProcessLookupError:
                return


def terminate_all(children: Sequence[ChildProcess], *, last: Sequence[ChildProcess] = ()) -> None:
    """End the children side by side, then `last`: a worker that ends has things to give back to its broker."""
    for group in ([child for child in children if child not in last], last):
        deadline = time.monotonic() + STOP_SECONDS
        for child in reversed(group):
            child.send_terminate()
        for child in reversed(group):
            child.end(deadline)
