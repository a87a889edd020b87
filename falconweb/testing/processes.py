"""Real processes for tests, and their termination."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from falconweb.config import BASE_DIR
from falconweb.testing.people import PASSWORD

_shared_start: ContextVar[bool] = ContextVar("shared_start", default=False)


@contextmanager
def shared_start() -> Iterator[None]:
    """Mark processes that start in the context as reusable, for suites that watch which test starts a process."""
    before = _shared_start.set(True)
    try:
        yield
    finally:
        _shared_start.reset(before)


def is_shared_start() -> bool:
    """Return whether a process that starts now is reusable by later tests."""
    return _shared_start.get()


class OwnProcess:
    """A process of one test; a context manager that ends it."""

    process: subprocess.Popen[Any]

    def kill(self) -> None:
        """End it by SIGKILL, as in a crash."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """End it, by SIGKILL if SIGTERM has no effect; idempotent."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


START_SECONDS = 60.0
# Proxy settings of the environment must not apply to a process on this machine.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
# Released simulators, with their control addresses.
_idle: list[tuple[subprocess.Popen[str], str]] = []


class SimulatorProcess(OwnProcess):
    """A simulated chassis in its initial state, on free ports; a context manager that releases it for reuse.

    `address` is the base URL (`addresses` all of them with `--chassis-count`), `control` the control
    address, `fingerprint` the certificate's SHA-256 as `AA:BB:..`, `certificate` its PEM file. The
    accounts administrator, operator and viewer share `password`. Raises RuntimeError with the
    program's output where it is not ready within 60 s.

    A released process is reset and reused, since a start takes fifty times as long; `own=True` starts one that ends
    with its context, for tests that kill it, freeze it or check its start and its `output`, the lines that it has
    printed. An explicit password or port has the same effect.

        def test_a_second_chassis():
            with SimulatorProcess("--speed", "20", chassis="falcon-2") as process:
                assert process.state()["chassis"] == "falcon-2"
    """

    def __init__(
        self,
        *options: str,
        chassis: str | None = None,
        certificate_directory: Path | None = None,
        password: str = PASSWORD,
        port: int = 0,
        own: bool = False,
    ) -> None:
        self.password = password
        self.addresses: list[str] = []
        self.control = ""
        self.fingerprint = ""
        self.certificate = Path()
        # The options that affect a walk, without the folder of the hosts' files.
        hosts = options.index("--hosts-root") if "--hosts-root" in options else len(options)
        self.options = (*options[:hosts], *options[hosts + 2 :], chassis or "")
        self._own = own or port != 0 or password != PASSWORD
        arguments = ["--port", str(port), *options]
        if chassis is not None:
            arguments += ["--chassis", chassis]
        if certificate_directory is not None:
            arguments += ["--certificate-directory", str(certificate_directory)]
        if self._own or not self._reuse_released(arguments):
            self._start(arguments)

    @property
    def address(self) -> str:
        """The base URL of the (first) chassis."""
        return self.addresses[0]

    def stop(self) -> None:
        """Release it, or end it if it was started with `own`; idempotent."""
        if self._own or self.process.poll() is not None:
            super().stop()
            return
        self._own = True
        try:
            self.ask_control("POST", "/stop")
            _idle.append((self.process, self.control))
        except OSError:
            super().stop()

    def _reuse_released(self, arguments: list[str]) -> bool:
        """Take a released process, and reset it; False where there is none."""
        while _idle:
            self.process, self.control = _idle.pop()
            try:
                answer = self.ask_control("POST", "/reset", {"arguments": arguments})
            except urllib.error.HTTPError as error:
                super().stop()
                raise RuntimeError(f"the simulator was not reset: {error.read().decode()}") from error
            except OSError:
                self.kill()
            else:
                self.addresses, self.fingerprint = answer["addresses"], answer["fingerprint"]
                self.certificate = Path(answer["certificate"])
                return True
        return False

    def _start(self, arguments: list[str]) -> None:
        output: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        with contextlib.nullcontext() if self._own else shared_start():
            self.process = subprocess.Popen(
                [sys.executable, "-m", "simulator", "--control-port", "0", *arguments],
                cwd=BASE_DIR,
                env={**os.environ, "SIMULATOR_PASSWORD": self.password, "PYTHONUNBUFFERED": "1"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        self.output: list[str] = []
        threading.Thread(target=_drain, args=(self.process, output, self.output), daemon=True).start()
        try:
            self._wait_until_ready(output)
        except BaseException:
            super().stop()
            raise

    def _wait_until_ready(self, output: queue.SimpleQueue[str | None]) -> None:
        while True:
            try:
                line = output.get(timeout=START_SECONDS)
            except queue.Empty:
                line = None
            if line is None:
                raise RuntimeError("the simulator did not get ready: " + "\n".join(self.output))
            key, _, value = line.partition(" ")
            if key == "address":
                self.addresses.append(value)
            elif key == "control":
                self.control = value
            elif key == "fingerprint":
                self.fingerprint = value
            elif key == "certificate":
                self.certificate = Path(value)
            elif key == "ready":
                return

    def ask_control(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Send a request to the control address and return its JSON (None where there is none).

        Raises urllib.error.HTTPError where the control address refuses.
        """
        request = urllib.request.Request(
            self.control + path, method=method, data=None if body is None else json.dumps(body).encode()
        )
        with _opener.open(request, timeout=60) as reply:
            content = reply.read()
        return json.loads(content) if content else None

    def reset(self) -> None:
        """Reset: discard attachments, faults and counters; addresses stay."""
        self.ask_control("POST", "/reset", {})

    def state(self, chassis: str | None = None) -> dict[str, Any]:
        """Return the true state of a chassis: zones, modes, links, requests."""
        answer: dict[str, Any] = self.ask_control("GET", f"/state?chassis={chassis}" if chassis else "/state")
        return answer

    def fault(self, kind: str, target: str = "", **more: Any) -> str:
        """Activate a fault and return its Id."""
        body = {"kind": kind, "target": target, **more}
        return str(self.ask_control("POST", "/faults", body)["id"])

    def end_fault(self, fault: str) -> None:
        """End a fault; one that has ended by itself is not an error."""
        try:
            self.ask_control("DELETE", f"/faults/{fault}")
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise

    def clear_faults(self) -> None:
        """End every fault."""
        self.ask_control("DELETE", "/faults")

    def hold(self, host: str, device: str, **more: Any) -> dict[str, Any]:
        """Have a process use a device (`drawer1slot1`, or an address) on a host; returns it with its pid and address.

        `more`: `command`, `owner`, `seconds` after which it ends, `hangs`. Needs `--hosts-root`.
        """
        answer: dict[str, Any] = self.ask_control("POST", f"/hosts/{host}/processes", {"device": device, **more})
        return answer

    def release(self, host: str, pid: int) -> None:
        """End a process that uses a device."""
        self.ask_control("DELETE", f"/hosts/{host}/processes/{pid}")

    def mount(self, host: str, device: str, path: str = "/data") -> None:
        """Mount a drive on a host."""
        self.ask_control("POST", f"/hosts/{host}/mounts", {"device": device, "path": path})

    def unmount(self, host: str, device: str) -> None:
        """Unmount a drive on a host."""
        self.ask_control("DELETE", f"/hosts/{host}/mounts/{device}")

    def add_events(self, count: int = 1, **more: Any) -> None:
        """Create events; `more`: `message_id`, `message` with `{n}` for the number, `severity`, `origin`."""
        self.ask_control("POST", "/events", {"count": count, **more})

    def events(self) -> list[dict[str, Any]]:
        """Return all events, as in the stream, also those that are no longer in the log."""
        answer: list[dict[str, Any]] = self.ask_control("GET", "/events")
        return answer

    def change_log(self, **how: Any) -> None:
        """Change the log of events: `clear=True`, `begin_anew=True` (numbers too), `limit=100` entries."""
        self.ask_control("POST", "/events/log", how)

    def set_clock(self, seconds: float) -> None:
        """Set the chassis' clock forward, or back, by some seconds."""
        self.ask_control("POST", "/time", {"shift": seconds})

    def set_speed(self, speed: float) -> None:
        """Set the number of simulated seconds per second."""
        self.ask_control("POST", "/time", {"speed": speed})


def _drain(process: subprocess.Popen[str], output: queue.SimpleQueue[str | None], lines: list[str]) -> None:
    if process.stdout is not None:
        for line in process.stdout:
            lines.append(line.rstrip())
            output.put(lines[-1])
    output.put(None)


@atexit.register
def _end_idle() -> None:
    """End the released processes in parallel."""
    for process, _ in _idle:
        process.terminate()
    for process, _ in _idle:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
