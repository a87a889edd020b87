"""The agents of the simulated hosts of `make up`: one process a host, over the tree that its chassis keep for it."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from falconweb.config import kept_secret
from falconweb.launch.processes import Child


@dataclass(frozen=True)
class SimulatedHost:
    """A host that is played, its identity as the BMC knows it, and the key that its agent shares with the site."""

    name: str
    identity: str
    key: str
    root: Path


def hosts_root(data: Path) -> Path:
    """Return the folder of the simulated hosts, emptied: what hosts an earlier start had is nobody's."""
    folder = data / "simulator" / "hosts"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def simulated_hosts(data: Path, root: Path) -> list[SimulatedHost]:
    """Return the hosts that the chassis made, each with a key that stays."""
    found = []
    for folder in sorted(root.iterdir()):
        identity = (folder / "sys/class/dmi/id/product_uuid").read_text().strip()
        found.append(SimulatedHost(folder.name, identity, kept_secret(data, f"agent_{folder.name}"), folder))
    return found


def start_agents(data: Path, hosts: list[SimulatedHost], environment: Mapping[str, str], children: list[Child]) -> None:
    """Start the agent of each host; nothing waits for them."""
    for host in hosts:
        state = data / "simulator" / "agents" / host.name
        child = Child(
            f"agent-{host.name}",
            [sys.executable, "-m", "agent"],
            environment={
                **environment,
                "AGENT_HOST": host.identity,
                "AGENT_KEY": host.key,
                "AGENT_BROKER": environment["REDIS_URL"],
                "AGENT_ROOT": str(host.root),
                "AGENT_STATE": str(state),
                "AGENT_NVML": "simulator.nvml",
                # Runs outlive their agent, which is started again, and not this site.
                "AGENT_PARENT": str(os.getpid()),
            },
            log=data / "logs" / f"agent-{host.name}.log",
            # An agent that is asked to end waits for a broker that is ending, too; its journal is made for a kill.
            orphaned=signal.SIGKILL,
        )
        child.start()
        children.append(child)
