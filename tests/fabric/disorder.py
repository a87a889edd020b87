"""What tests of any order of events have in common: faults to choose from, patience made short, workers that die."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, Self
from uuid import UUID

import hypothesis
import pytest
from django.conf import settings as django_settings
from django.db import connection
from hypothesis import HealthCheck, Phase

from core.failpoints import Failpoint, set_failpoint_handler
from fabric.bmc import client, settling
from fabric.execution import link_steps, services
from fabric.inventory import access
from fabric.inventory.models import Device
from fabric.operations.models import Operation
from tests.failpoints.loop import in_no_loop
from tests.processes import ROOT
from tests.turns import NIGHTLY

MODES = ("StandardOneHost", "StandardTwoHosts", "Advanced")
# Those that keep a walk from reading everything, and end by themselves.
OF_REQUESTS: tuple[dict[str, Any], ...] = (
    {"kind": "slow", "delay": 0.3, "seconds": 2},
    {"kind": "server_error", "seconds": 1.5},
    {"kind": "server_error", "status": 503, "method": "PATCH", "count": 2},
    {"kind": "server_error", "path": "Endpoints", "seconds": 2},
    {"kind": "reset_connections", "seconds": 1.5},
    {"kind": "reset_connections", "method": "PATCH", "count": 2},
    {"kind": "hang", "path": "Zones", "seconds": 2},
    {"kind": "hang", "method": "PATCH", "seconds": 2},
    {"kind": "bmc_reboot", "seconds": 1},
)
OF_HARDWARE: tuple[dict[str, Any], ...] = (
    {"kind": "half_applied_bind", "answer": "partial"},
    {"kind": "half_applied_bind", "answer": "error"},
    {"kind": "surprise_removal"},
    {"kind": "link_downgrade"},
    {"kind": "link_flap", "period": 0.3},
    {"kind": "error_burst"},
    {"kind": "overheat"},
)
REQUEST_KINDS = frozenset(fault["kind"] for fault in OF_REQUESTS)


def settings_of(*, examples: int, steps: int) -> hypothesis.settings:
    """Return how a state machine is run."""
    return hypothesis.settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        # What takes real time is not worth shrinking, and a test that everybody runs must not differ from run to run.
        phases=(Phase.generate,),
        derandomize=not NIGHTLY,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def shorten_patience(scale: float, change: Callable[[Any, str, Any], None] = setattr) -> None:
    """Let everybody wait as they do, at a fraction of its length; 0.1 is a tenth."""
    change(services, "REQUEST_SECONDS", 10.0 * scale)
    change(access, "REQUEST_SECONDS", 10.0 * scale)
    change(client, "OUTAGE_SECONDS", 60.0 * scale)
    change(link_steps, "LINK_SECONDS", 30.0 * scale)
    change(link_steps, "RETRAIN_SECONDS", 5.0 * scale)
    change(services, "READ_BACK_SECONDS", 50.0 * scale)
    change(settling, "FIRST_SECONDS", 5.0 * scale)
    change(settling, "MIN_SECONDS", 5.0 * scale)


@contextlib.contextmanager
def short_outages() -> Iterator[None]:
    """Give a BMC up soon that does not answer; one answer of a good one has 2 s still."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "OUTAGE_SECONDS", 1.0)
        patch.setattr(services, "REQUEST_SECONDS", 2.0)
        patch.setattr(services, "READ_BACK_SECONDS", 1.0)
        patch.setattr(access, "REQUEST_SECONDS", 2.0)
        yield


def endpoint_of(device: Device) -> str:
    """Return a device's name on the control address."""
    drawer, _, slot = device.uri.rpartition("/Chassis/")[2].partition("/PCIeDevices/")
    return drawer + slot


def database_url() -> str:
    """Return the address of the database of this run, for another process."""
    name = str(connection.settings_dict["NAME"])
    if connection.vendor == "sqlite":
        return f"sqlite:///{name}"
    return f"{django_settings.CONFIG.database_url.rpartition('/')[0]}/{name}"


@contextlib.contextmanager
def at_step(operation: object, step: str, happen: Callable[[], None]) -> Iterator[None]:
    """Let something happen at the moment at which a step of an operation (its id) has begun; once."""
    left = [happen]

    def reached(name: Failpoint, about: object) -> None:
        if name == "operation.step.begun" and about == wanted and left:
            in_no_loop(left.pop())

    wanted = (UUID(str(operation)), step)
    set_failpoint_handler(reached)
    try:
        yield
    finally:
        set_failpoint_handler(None)


class MortalWorkers:
    """Workers in processes of their own, each of which is there to be killed; a context manager."""

    def __init__(self, scale: float) -> None:
        environment = {**os.environ, "DATABASE_URL": database_url(), "DJANGO_SETTINGS_MODULE": "falconweb.settings"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fabric.mortal_worker", str(scale)],
            cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._said() == "ready"

    def take(self, operation: Operation, *, seconds: float = 60.0, step: str = "") -> bool:
        """Let a worker take an operation and die of SIGKILL after `seconds`, or as soon as a step has begun.

        Returns whether it died; one that ended before has let the plan go on, too.
        """
        if self._process.stdin is None:
            raise RuntimeError("the workers have no pipes")
        order = {"operation": str(operation.pk), "seconds": seconds, "step": step}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        said = self._said()
        assert said in {"died", "ended"}, said
        return said == "died"

    def _said(self) -> str:
        if self._process.stdout is None:
            raise RuntimeError("the workers have no pipes")
        return self._process.stdout.readline().strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
