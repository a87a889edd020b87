"""The simulated chassis of `make up`: stable ports and certificates, so that a second start is the same lab."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from falconweb.config import kept_secret
from falconweb.launch.broker import free_port
from falconweb.launch.processes import Child

NAMES = ("falcon-1", "falcon-2")
START_SECONDS = 30.0


@dataclass(frozen=True)
class SimulatedChassis:
    """A started simulator and what the site needs to reach it."""

    name: str
    child: Child
    url: str
    control: str
    fingerprint: str
    password: str


def start_simulated(
    data: Path, count: int, hosts: Path, environment: Mapping[str, str], children: list[Child]
) -> Callable[[], list[SimulatedChassis]]:
    """Start up to two chassis; what it returns waits until each answers.

    That raises TimeoutError with the log's path where one does not. What their hosts see lies in the folder `hosts`.
    Each is appended to `children` as it starts, so that it is ended whatever becomes of the others.
    """
    password = kept_secret(data, "simulator_password")
    ports = _ports(data / "simulator" / "ports.json", NAMES[:count])
    started = []
    for name in NAMES[:count]:
        log = data / "logs" / f"{name}.log"
        # The lines of this start are read from the log's end.
        offset = log.stat().st_size if log.exists() else 0
        port, control = ports[name]
        child = Child(
            name,
            [
                sys.executable, "-m", "simulator", "--chassis", name,
                "--port", str(port), "--control-port", str(control),
                "--certificate-directory", str(data / "simulator" / name), "--hosts-root", str(hosts),
            ],
            environment={**environment, "SIMULATOR_PASSWORD": password, "PYTHONUNBUFFERED": "1"},
            log=log,
        )  # fmt: skip
        child.start()
        children.append(child)
        started.append((name, child, log, offset))
    return lambda: [_ready(name, child, log, offset, password) for name, child, log, offset in started]


def _ready(name: str, child: Child, log: Path, offset: int, password: str) -> SimulatedChassis:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and child.alive:
        with log.open() as file:
            file.seek(offset)
            said = dict(line.partition(" ")[::2] for line in file.read().splitlines())
        if "ready" in said:
            return SimulatedChassis(name, child, said["address"], said["control"], said["fingerprint"], password)
        time.sleep(0.05)
    raise TimeoutError(f"The simulated chassis {name} did not start. Its log: {log}")


def _ports(file: Path, names: tuple[str, ...]) -> dict[str, tuple[int, int]]:
    """Return (service, control) ports, those of the last start where they are still free."""
    try:
        kept = {name: tuple(pair) for name, pair in json.loads(file.read_text()).items()}
    except (FileNotFoundError, ValueError):
        kept = {}
    ports: dict[str, tuple[int, int]] = {}
    for name in names:
        service, control = kept.get(name, (0, 0))
        ports[name] = (service if _is_free(service) else free_port(), control if _is_free(control) else free_port())
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(ports))
    return ports


def _is_free(port: int) -> bool:
    if port == 0:
        return False
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
