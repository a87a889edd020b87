"""Requests in both forms, and what they come to without a database."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

import pytest

from benchmarks.deploy.deployment import Deployment, DeploymentRequestError, deploy
from benchmarks.deploy.request import DeploymentTarget
from benchmarks.model.calibration import PAPER_TOPOLOGIES, Observation
from benchmarks.model.topology import Topology
from core.errors import NotFound

SHORT: dict[str, Any] = {
    "name": "resnet50", "command": "python train.py --batch-size {batch} --amp {precision}", "workload": "resnet50",
    "scheduler": "slurm", "time": "12:00:00", "gpus": 4, "framework_version": "2.4.0", "data": "/data/imagenet",
    "host": "node-1",
}  # fmt: skip
MODAK: dict[str, Any] = {
    "job": {
        "job_options": {
            "job_name": "squad", "wall_time_limit": "12:00:00 ", "node_count": 1, "request_gpus": 2,
            "process_count_per_node": 40, "standard_output_file": "squad.out", "combine_stdout_stderr": True,
            "request_event_notification": "abe", "email_address": "carol@lab.example",
        },
        "target": {"name": "node-1", "job_scheduler_type": "torque"},
        "application": {
            "app_tag": "bert-large", "app_type": "python", "executable": "python3 run_squad.py",
            "arguments": "--data ${DATA}/squad --note 'two words'",
        },
        "optimisation": {
            "enable_opt_build": True, "enable_autotuning": True, "app_type": "ai_training",
            "opt_build": {"cpu_type": "x86", "acc_type": "nvidia"},
            "autotuning": {"tuner": "cresta", "input": "x"},
            "app_type-ai_training": {
                "config": {"ai_framework": "pytorch", "layers": 24}, "data": {"location": "/data", "size": 3},
                "ai_framework-pytorch": {"version": "2.4", "glow": True},
            },
        },
    }
}  # fmt: skip


def known(place: DeploymentTarget) -> Topology:
    """Return the topology of the only host that there is."""
    if place.host not in {"node-1", ""}:
        raise NotFound("There is no such host.")
    return PAPER_TOPOLOGIES["falconGPUs"]


def made(request: dict[str, Any] | str, runs: Sequence[Observation] = ()) -> Deployment:
    """Return what a request comes to, with the runs that somebody sees."""
    text = request if isinstance(request, str) else json.dumps(request)
    return deploy(text, find_topology=known, find_observations=lambda: runs)


def refused(request: dict[str, Any] | str) -> dict[str, str]:
    """Return the errors of a request by their pointers."""
    with pytest.raises(DeploymentRequestError) as error:
        made(request)
    return error.value.errors


def changed(request: dict[str, Any], pointer: str, value: Any) -> dict[str, Any]:
    """Return a request with another value at a place, such as '/job/target/name'; the value itself without one."""
    whole = copy.deepcopy(request)
    *path, last = pointer.strip("/").split("/")
    target: Any = whole
    for name in path:
        target = target.setdefault(name, {})
    if value is None:
        target.pop(last, None)
    else:
        target[last] = value
    return whole


def text_of(deployment: Deployment, kind: str) -> str:
    """Return one of the files."""
    return next(one.text for one in deployment.files if one.kind == kind)
