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
from typing import IO, TypeVar

from hostwire.heartbeat import PIPE

Ready = TypeVar("Ready")
STOP_SECONDS = 8.0
# A process that dies again within this time is restarted after a longer delay.
QUICK_EXIT_SECONDS = 10.0
MAX_WAIT_SECONDS = 15.0
START_SECONDS = 60.0  # to the first heartbeat
MAX_LOG_BYTES = 50 * 2**20
PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
M_ARENA_MAX, M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -8, -1, -3
KEPT_BYTES, LARGE_BYTES = 16 * 2**20, 4 * 2**20
WANTED_FILE_LIMIT = 65_536


def raise_file_limit() -> None:
    """Raise the limit of open files of this process and its children as far as possible: each socket is one."""
    if sys.platform != "win32":
        import resource

        soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        enough = WANTED_FILE_LIMIT if most == resource.RLIM_INFINITY else min(most, WANTED_FILE_LIMIT)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, enough), most))


def share_allocations() -> None:
    """Let all threads of this process and its forks take memory from one heap, where the C library has several.

    Each thread of a worker would begin one of its own, of which none gives back what it no longer needs.
    """
    library = ctypes.CDLL(None)
    if sys.platform == "linux" and hasattr(library, "mallopt"):
        library.mallopt(M_ARENA_MAX, 1)


def keep_allocations() -> None:
    """Let each heap of this process keep KEPT_BYTES that are free, and have what is below LARGE_BYTES.

    The arrays of a chart are a few MB. Given back after each request, the system has to clear the same memory for the
    next one, page by page, which takes longer than the database does to read them.
    """
    library = ctypes.CDLL(None)
    if sys.platform == "linux" and hasattr(library, "mallopt"):
        library.mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
        library.mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)


def return_memory() -> None:
    """Give back to the system what is free within the heap of this process: the C library does so at its end only."""
    library = ctypes.CDLL(None)
    if sys.platform == "linux" and hasattr(library, "malloc_trim"):
        library.malloc_trim(0)


def take_variable(name: str) -> str:
    """Return a variable of the environment ('' for none), and remove it, so that no child has it.

    On Linux it is also overwritten where the kernel shows the first environment of this process, and of its forks.
    """
    value = os.environ.get(name, "")
    if value and sys.platform == "linux":
        library = ctypes.CDLL(None)
        library.getenv.restype = ctypes.c_void_p
        if place := library.getenv(name.encode()):
            ctypes.memset(place, 0, len(os.fsencode(value)))
    os.environ.pop(name, None)
    return value


def end_with_parent(by: int = signal.SIGTERM) -> Callable[[], None]:
    """Return a function by which a child has the kernel signal it when this process dies, even by SIGKILL.

    Only on Linux; elsewhere it does nothing.
    """
    parent = os.getpid()

    def request_signal() -> None:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, by)
            if os.getppid() != parent:
                os._exit(1)  # the parent died before the request

    return request_signal


class ForkedProcess:
    """The equivalent of `subprocess.Popen` for a function in a fork of this process.

    Process lists show it as `name` (`ps -e -o pid,comm,args`); its output goes to `log`.
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
        # The fork must not run this process's exit handlers, only its own.
        atexit._clear()  # noqa: SLF001 - no public equivalent
        try:
            function()
        finally:
            atexit._run_exitfuncs()  # noqa: SLF001

    @property
    def returncode(self) -> int | None:
        """The exit status, the negative number of a signal that ended it; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Return `returncode`."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended; raises subprocess.TimeoutExpired after `timeout` seconds."""
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0.0)
        return self.returncode


class ChildProcess:
    """One process, its log file and its restarts; `orphaned` is the signal that ends it when the launcher dies.

    It runs a command, or a function in a fork, which starts fast because all modules are loaded. It hangs when it
    has sent no heartbeat (hostwire.heartbeat) for longer than `hang_seconds`; with 0, nobody watches it. With `once`
    it is not started again.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str] | Callable[[], object],
        *,
        environment: Mapping[str, str],
        log: Path,
        orphaned: int = signal.SIGTERM,
        hang_seconds: float = 0.0,
        once: bool = False,
    ) -> None:
        self.name = name
        self.command = command
        self.environment = dict(environment)
        self.hang_seconds = hang_seconds
        self.once = once
        self.silence = 0.0  # s since the last heartbeat, as far as this process was there to hear it
        self._is_heard = False
        self._pipe: tuple[int, int] | None = None
        if hang_seconds:
            self._pipe = os.pipe()
            for end in self._pipe:
                os.set_blocking(end, False)
            self.environment[PIPE] = str(self._pipe[1])
        self.log = log
        self.orphaned = orphaned
        self.standard_input = b""  # at each start
        self.restarts = 0
        self._process: subprocess.Popen[bytes] | ForkedProcess | None = None
        self._started_at = 0.0
        self._start_again_at = 0.0

    def start(self) -> None:
        """Start it in a new session, so that Ctrl-C reaches only the launcher."""
        with self.log.open("ab") as log:
            if callable(self.command):
                self._process = ForkedProcess(self.name, self.command, self.environment, log, self.orphaned)
            else:
                self._process = self._start_command(self.command, log)
        self._started_at = time.monotonic()
        self._read_heartbeats()  # of the one before
        self.silence, self._is_heard = 0.0, False

    def _start_command(self, command: Sequence[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(  # noqa: S603 - our own commands
            command,
            env=self.environment,
            stdin=subprocess.PIPE if self.standard_input else subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=self._pipe[1:] if self._pipe else (),
            preexec_fn=end_with_parent(self.orphaned),  # noqa: PLW1509 - the launcher has one thread
        )
        if process.stdin:
            process.stdin.write(self.standard_input)
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

    def is_heard_within(self, seconds: float) -> bool:
        """Return whether it runs and its newest heartbeat is no older than that."""
        return self.alive and self._is_heard and self.silence <= seconds

    def heard(self) -> None:
        """Record a sign of life."""
        self.silence, self._is_heard = 0.0, True

    def kill_if_hung(self, elapsed: float) -> str:
        """Kill it if it hangs, `elapsed` s after the last call; returns a sentence about that, or ''."""
        if not self.hang_seconds or not self.alive:
            return ""
        self.silence += elapsed
        if self._read_heartbeats():
            self.heard()
        if self.silence <= (self.hang_seconds if self._is_heard else max(self.hang_seconds, START_SECONDS)):
            return ""
        self._signal(signal.SIGKILL)
        silent, self.silence, self._is_heard = self.silence, 0.0, False
        return f"{self.name} hangs: no heartbeat for {silent:.0f} s. It was killed."

    def _read_heartbeats(self) -> bytes:
        try:
            return os.read(self._pipe[0], 2**16) if self._pipe else b""
        except BlockingIOError:
            return b""

    def restart_if_dead(self) -> str:
        """Restart it if it died, at growing intervals; returns a sentence about that, or ''."""
        self._rotate_log()
        now = time.monotonic()
        if self.alive or self._process is None or self.once:
            return ""
        if self._start_again_at == 0.0:
            quick = now - self._started_at < QUICK_EXIT_SECONDS
            self.restarts = self.restarts + 1 if quick else 1
            wait = min(2.0 ** (self.restarts - 1) - 1.0, MAX_WAIT_SECONDS)
            self._start_again_at = now + wait
            return f"{self.name} ended with {self._process.returncode}; restarting it. Its log: {self.log}"
        if now >= self._start_again_at:
            self._start_again_at = 0.0
            self.start()
        return ""

    def _rotate_log(self) -> None:
        """Rotate a long log, with one older part. The process continues at the start of the truncated file."""
        if self.log.exists() and self.log.stat().st_size > MAX_LOG_BYTES:
            shutil.copyfile(self.log, self.log.with_suffix(".log.1"))
            os.truncate(self.log, 0)

    def send_terminate(self) -> None:
        """Send SIGTERM to it and its children."""
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


def wait_until_ready(child: ChildProcess, ready: Callable[[], Ready | None], seconds: float) -> Ready:
    """Return the first result of `ready` that is not None.

    Raises TimeoutError after `seconds`, or when the child has ended.
    """
    deadline = time.monotonic() + seconds
    while (result := ready()) is None:
        if not child.alive or time.monotonic() > deadline:
            raise TimeoutError(f"{child.name} did not start. Its log: {child.log}")
        time.sleep(0.05)
    return result


def terminate_all(children: Sequence[ChildProcess], *, last: Sequence[ChildProcess] = ()) -> None:
    """End the children in parallel, then `last`: ending workers still use the broker."""
    for group in ([child for child in children if child not in last], last):
        deadline = time.monotonic() + STOP_SECONDS
        for child in reversed(group):
            child.send_terminate()
        for child in reversed(group):
            child.end(deadline)
