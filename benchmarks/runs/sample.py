"""A file of a run that a person can ask for as it stands: its ids are those of this site."""

from __future__ import annotations

import json
from typing import Any, Final

from benchmarks.runs.choosing import DeviceLine, host_part
from benchmarks.runs.offered import Offered
from benchmarks.runs.placing import HostChoice

ON_GPU: Final = {"workload": "resnet50", "preset": "custom", "spec": {"steps": 30, "batch": 16}}
ON_CPU: Final = {"workload": "mnist_cnn", "preset": "tiny", "spec": {"steps": 30}}
HOUR: Final = 3600


def sample_of(offered: Offered) -> str:
    """Return a file of a run that can be had now, JSON: on a GPU of a chassis, else one of a host's own, else a CPU.

    '' where no host can run anything.
    """
    hosts = [host for host in offered.hosts if not host.why_not]
    samples = [_sample(host, offered) for host in hosts]
    samples.sort(key=lambda one: (one["composition"]["cpu"], not one["composition"]["devices"]))
    return json.dumps(samples[0], indent=2) if samples else ""


def _sample(host: HostChoice, offered: Offered) -> dict[str, Any]:
    gpu = _gpu(host, offered)
    has_gpus = _runs_on_gpus(host) and (gpu is not None or host.local_gpus > 0)
    devices = []
    if has_gpus and gpu is not None:
        devices = [{"device_id": gpu.device.id, "host_port_id": gpu.port}]
    return {
        **(ON_GPU if has_gpus else ON_CPU),
        "composition": {
            "host_id": host.id,
            "local_gpus": int(has_gpus and gpu is None),
            "devices": devices,
            "storage_device_id": None,
            "own_drive": False,
            "cpu": not has_gpus,
        },
        "executor": "simulated" if "simulated" in host.executors else "torch",
        "limit_seconds": HOUR,
    }


def _gpu(host: HostChoice, offered: Offered) -> DeviceLine | None:
    """Return the GPU of a chassis that a host has soonest."""
    lines = [line for line in host_part(host, offered, {}, chosen=True).gpus if not line.standing.why_not]
    return min(lines, key=lambda line: line.rank, default=None)


def _runs_on_gpus(host: HostChoice) -> bool:
    backends = host.trainer.backends if host.trainer is not None else ()
    return "simulated" in host.executors or "cuda" in backends
