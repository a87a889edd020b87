"""The simulated chassis and their hosts' agents of `make up`: stable ports and certificates, and a first fault."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from falconweb.config import BASE_DIR, stored_secret
from falconweb.launch.broker import account_add, free_port
from falconweb.launch.commands import bind_listener
from falconweb.launch.processes import ChildProcess, wait_until_ready
from hostwire.signing import queue_name

NAMES = ("falcon-1", "falcon-2")
PORTS_FILE = "simulator/ports.json"
DEMO_LAB = BASE_DIR / "simulator" / "demo_lab.json"
# The chassis, and what a newcomer finds wrong in it.
DEMO_FAULT = ("falcon-1", {"kind": "link_downgrade", "target": "drawer2slot3", "lanes": 8})
START_SECONDS = 30.0


@dataclass(frozen=True)
class SimulatedChassis:
    """A started simulator with its address and the fingerprint of its certificate."""

    name: str
    url: str
    fingerprint: str
    password: str


def start_simulated(
    data: Path, count: int, hosts: Path, environment: Mapping[str, str], children: list[ChildProcess], *, demo: bool
) -> Callable[[], list[SimulatedChassis]]:
    """Start up to two chassis in one process, a child; returns a function that waits until each responds.

    That raises TimeoutError with the log's path where one does not. The trees of their hosts are in the folder `hosts`.
    With `demo` some of their GPUs are detached.
    """
    password = stored_secret(data, "simulator_password")
    ports = _ports(data / PORTS_FILE, NAMES[:count])
    if not ports:
        return list
    log = data / "logs" / "simulator.log"
    # The lines of this start follow the log's present end.
    offset = log.stat().st_size if log.exists() else 0
    options: list[str] = []
    for name, (port, control) in ports.items():
        options += [
            *(("and",) if options else ()), "--chassis", name, "--port", str(port), "--control-port", str(control),
            "--certificate-directory", str(data / "simulator" / name), "--hosts-root", str(hosts),
            *(("--lab", str(DEMO_LAB)) if demo else ()),
        ]  # fmt: skip
    child = ChildProcess(
        "simulator",
        [sys.executable, "-m", "simulator", *options],
        environment={**environment, "SIMULATOR_PASSWORD": password, "PYTHONUNBUFFERED": "1"},
        log=log,
    )
    child.start()
    children.append(child)
    return lambda: _ready(child, offset, list(ports), password)


def _ready(child: ChildProcess, offset: int, names: Sequence[str], password: str) -> list[SimulatedChassis]:
    def ready() -> list[SimulatedChassis] | None:
        with child.log.open() as file:
            file.seek(offset)
            lines = [line.partition(" ")[::2] for line in file.read().splitlines()]
        addresses, prints = ([value for key, value in lines if key == name] for name in ("address", "fingerprint"))
        if ("ready", "") not in lines:
            return None
        return [SimulatedChassis(*own, password) for own in zip(names, addresses, prints, strict=True)]

    try:
        return wait_until_ready(child, ready, START_SECONDS)
    except TimeoutError as error:
        raise TimeoutError(f"The {error}") from None


def simulated_addresses(data: Path) -> set[str]:
    """Return the addresses of the simulated chassis of a data folder; none where there never were any."""
    try:
        ports = json.loads((data / PORTS_FILE).read_text())
    except FileNotFoundError:
        return set()
    return {f"https://127.0.0.1:{service}" for service, _ in ports.values()}


def inject_demo_fault(data: Path) -> None:
    """Let the simulated chassis have the fault of a first start, which ends with the simulator."""
    name, fault = DEMO_FAULT
    control = json.loads((data / PORTS_FILE).read_text())[name][1]
    address = f"http://127.0.0.1:{control}/faults"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    opener.open(urllib.request.Request(address, json.dumps(fault).encode()), timeout=START_SECONDS).close()


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
    try:
        bind_listener("127.0.0.1", port).close()
    except OSError:
        return False
    return port != 0


@dataclass(frozen=True)
class SimulatedHost:
    """A simulated host, its identity in the BMC, and the key that its agent shares with the site."""

    name: str
    identity: str
    key: str
    root: str


def hosts_root(data: Path) -> Path:
    """Return the folder of the simulated hosts, emptied of the hosts of an earlier start."""
    folder = data / "simulator" / "hosts"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def simulated_hosts(data: Path, root: Path) -> list[SimulatedHost]:
    """Return the hosts of the chassis, each with a persistent key."""
    found = []
    for folder in sorted(root.iterdir()):
        key = stored_secret(data, f"agent_{folder.name}")
        found.append(SimulatedHost(folder.name, host_identity(folder), key, str(folder)))
    return found


def host_identity(root: Path) -> str:
    """Return the identity of a simulated host in the BMC of a chassis."""
    return (root / "sys/class/dmi/id/product_uuid").read_text().strip()


def agent_environment(host: SimulatedHost, broker: str, state: Path) -> dict[str, str]:
    """Return the environment variables of the agent of a simulated host."""
    return {
        "AGENT_HOST": host.identity,
        "AGENT_KEY": host.key,
        "AGENT_BROKER": broker,
        "AGENT_ROOT": host.root,
        "AGENT_STATE": str(state),
        "AGENT_NVML": "simulator.nvml",
        "AGENT_RENDEZVOUS": "127.0.0.1",  # all simulated hosts are on this machine
        # Runs survive a restart of their agent, but end with this process.
        "AGENT_PARENT": str(os.getpid()),
    }


# As docs/agent.md has them for the hosts of a real site; `QUEUE` is the host's.
AGENT_RIGHTS = (
    "~QUEUE* ~_kombu.binding*.QUEUE +@read +@write +@transaction +@connection -@dangerous -@scripting -scan -randomkey"
    " -dbsize"
)


def agents_account(url: str, hosts: Sequence[SimulatedHost], data: Path, broker: ChildProcess | None) -> str:
    """Create the account of the agents of these hosts, and return its address; raises BrokerError."""
    rights = " ".join(AGENT_RIGHTS.replace("QUEUE", queue_name(host.identity)) for host in hosts)
    return account_add(url, "agents", stored_secret(data, "agents_broker"), rights, broker)


def start_agents(
    data: Path,
    hosts: Sequence[SimulatedHost],
    broker: str,
    environment: Mapping[str, str],
    children: list[ChildProcess],
    *,
    hang_seconds: float = 0.0,
) -> None:
    """Start the agents of hosts, in one process, without waiting for it; `broker` is the address of their account."""
    first, *others = (agent_environment(host, broker, data / "simulator" / "agents" / host.name) for host in hosts)
    child = ChildProcess(
        "agent",
        [sys.executable, "-m", "agent"],
        environment={**environment, **first, "AGENT_ALSO": json.dumps(others)},
        log=data / "logs" / "agent.log",
        # A terminated agent would wait for the broker, which is ending too; its journal tolerates a kill.
        orphaned=signal.SIGKILL,
        hang_seconds=hang_seconds,
    )
    child.start()
    children.append(child)
