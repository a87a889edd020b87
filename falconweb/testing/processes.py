"""Real processes that tests talk to: the simulated chassis."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from falconweb.config import BASE_DIR
from falconweb.testing.ending import OwnProcess
from falconweb.testing.people import PASSWORD

START_SECONDS = 30.0


class SimulatorProcess(OwnProcess):
    """A simulated chassis in a process of its own, on free ports; a context manager that ends it.

    `address` is the base URL (`addresses` all of them with `--chassis-count`), `control` the control
    address, `fingerprint` the certificate's SHA-256 as `AA:BB:..`, `certificate` its PEM file. The
    accounts administrator, operator and viewer share `password`. Raises RuntimeError with the
    program's own words where it does not get ready within 30 s.

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
    ) -> None:
        self.password = password
        self.addresses: list[str] = []
        self.control = ""
        self.fingerprint = ""
        self.certificate = Path()
        self._output: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        command = [sys.executable, "-m", "simulator", "--port", str(port), "--control-port", "0", *options]
        if chassis is not None:
            command += ["--chassis", chassis]
        if certificate_directory is not None:
            command += ["--certificate-directory", str(certificate_directory)]
        self.process = subprocess.Popen(
            command,
            cwd=BASE_DIR,
            env={**os.environ, "SIMULATOR_PASSWORD": password, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        threading.Thread(target=self._drain, daemon=True).start()
        try:
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise

    @property
    def address(self) -> str:
        """The base URL of the (first) chassis."""
        return self.addresses[0]

    def _drain(self) -> None:
        if self.process.stdout is not None:
            for line in self.process.stdout:
                self._output.put(line.rstrip())
        self._output.put(None)

    def _wait_until_ready(self) -> None:
        said: list[str] = []
        while True:
            try:
                line = self._output.get(timeout=START_SECONDS)
            except queue.Empty:
                line = None
            if line is None:
                raise RuntimeError("the simulator did not get ready: " + "\n".join(said))
            said.append(line)
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
        # A proxy of the environment has no business with a process on this machine.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=10) as reply:
            content = reply.read()
        return json.loads(content) if content else None

    def state(self, chassis: str | None = None) -> dict[str, Any]:
        """Return the truth about a chassis: zones, modes, links, requests."""
        answer: dict[str, Any] = self.ask_control("GET", f"/state?chassis={chassis}" if chassis else "/state")
        return answer

    def fault(self, kind: str, target: str = "", **more: Any) -> str:
        """Put a fault in force and return its Id."""
        body = {"kind": kind, "target": target, **more}
        return str(self.ask_control("POST", "/faults", body)["id"])

    def end_fault(self, fault: str) -> None:
        """End a fault; one that ended by itself meanwhile is no error."""
        try:
            self.ask_control("DELETE", f"/faults/{fault}")
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise

    def clear_faults(self) -> None:
        """End every fault."""
        self.ask_control("DELETE", "/faults")

    def hold(self, host: str, device: str, **more: Any) -> dict[str, Any]:
        """Let a process hold a device (`drawer1slot1`, or an address) on a host; return it with its pid and address.

        `more`: `command`, `owner`, `seconds` after which it ends, `hangs`. Needs `--hosts-root`.
        """
        answer: dict[str, Any] = self.ask_control("POST", f"/hosts/{host}/processes", {"device": device, **more})
        return answer

    def release(self, host: str, pid: int) -> None:
        """End a process that holds a device."""
        self.ask_control("DELETE", f"/hosts/{host}/processes/{pid}")

    def mount(self, host: str, device: str, path: str = "/data") -> None:
        """Mount a drive on a host."""
        self.ask_control("POST", f"/hosts/{host}/mounts", {"device": device, "path": path})

    def unmount(self, host: str, device: str) -> None:
        """Unmount a drive on a host."""
        self.ask_control("DELETE", f"/hosts/{host}/mounts/{device}")

    def add_events(self, count: int = 1, **more: Any) -> None:
        """Make events at once; `more`: `message_id`, `message` with `{n}` for the number, `severity`, `origin`."""
        self.ask_control("POST", "/events", {"count": count, **more})

    def events(self) -> list[dict[str, Any]]:
        """Return every event that there was, as the stream tells them, whatever became of the log."""
        answer: list[dict[str, Any]] = self.ask_control("GET", "/events")
        return answer

    def change_log(self, **how: Any) -> None:
        """Change the log of events: `clear=True`, `begin_anew=True` (numbers too), `limit=100` entries."""
        self.ask_control("POST", "/events/log", how)

    def set_clock(self, seconds: float) -> None:
        """Set the chassis' clock forward, or back, by so many seconds."""
        self.ask_control("POST", "/time", {"shift": seconds})

    def set_speed(self, speed: float) -> None:
        """Set how many simulated seconds pass in a second."""
        self.ask_control("POST", "/time", {"speed": speed})
