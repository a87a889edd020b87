"""The whole site while its parts fail: a worker that is killed in the middle, a BMC that is slow, silent or mad.

Everything is done and seen as an operator does: over HTTP, and by the simulated chassis' own truth.
"""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.falconweb.operating import Operator, parent_of
from tests.site import RunningSite, pids_naming
from tests.waiting import wait_for

pytestmark = pytest.mark.process

LONGEST_GAP = 3.0  # s between two readings of a healthy chassis, on a busy machine


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """The administrator of a site of this module's own, which has seen both chassis."""
    with RunningSite(tmp_path_factory.mktemp("faults")) as site:
        operator = Operator(site)
        for name in ("falcon-1", "falcon-2"):
            site.control(name, "POST", "/time", {"speed": 20})
            wait_for(lambda name=name: len(operator.devices(name)) >= 11, f"{name} was not seen")  # type: ignore[misc]
            wait_for(lambda name=name: operator.seconds_read(name, 10), f"{name} was not read")  # type: ignore[misc]
        yield operator


@pytest.fixture(autouse=True)
def no_fault_stays(operator: Operator) -> Iterator[None]:
    yield
    for name in ("falcon-1", "falcon-2"):
        operator.site.control(name, "DELETE", "/faults")


def worker_processes(site: RunningSite) -> set[int]:
    return pids_naming(f"worker-{site.process.pid}@")


@pytest.mark.parametrize("step", ["Detach", "Attach"])
def test_an_operation_whose_worker_is_killed_ends_without_help(operator: Operator, step: str) -> None:
    site = operator.site
    chassis = operator.chassis("falcon-1")
    gpu = operator.devices("falcon-1")["drawer1slot1"]
    now = next(port for port in chassis["host_ports"] if port["id"] == gpu["host_port_id"])
    to = next(port for port in chassis["host_ports"] if port["label"] == ("H2" if now["label"] != "H2" else "H3"))
    site.control("falcon-1", "POST", "/faults", {"kind": "slow", "path": "/Zones/", "method": "PATCH", "delay": 2.5})
    wanted = {"device_id": gpu["id"], "target_host_port_id": to["id"], "expected_host_port_id": now["id"]}
    asked = operator.post("operations/", wanted)

    def operation() -> dict[str, Any]:
        found: dict[str, Any] = operator.get(f"operations/{asked['id']}/")
        return found

    def state_of_step() -> str:
        return next(str(one["state"]) for one in operation()["steps"] if one["name"] == step)

    wait_for(lambda: state_of_step() == "running", f"{step} did not begin")
    before = worker_processes(site)
    assert before
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: operation()["state"] in {"done", "failed"}, "it did not end", seconds=35)
    ended = operation()
    zones = site.control("falcon-1", "GET", "/state")["zones"]
    truth = [zone for zone, members in zones.items() if "drawer1slot1" in members]
    assert worker_processes(site) - before
    assert ended["state"] == "done", ended
    assert truth == [f"hostport1_{to['label']}"]
    assert operator.devices("falcon-1")["drawer1slot1"]["host_port_label"] == to["label"]


def known(devices: dict[str, dict[str, Any]]) -> dict[str, tuple[Any, ...]]:
    """What must not be lost of devices."""
    columns = ("id", "kind", "model", "serial_number", "host_port_label", "missing_since")
    return {place: tuple(device[column] for column in columns) for place, device in devices.items()}


@pytest.mark.parametrize(
    "trouble",
    [
        {"kind": "hang"},
        {"kind": "server_error", "status": 503},
        {"kind": "server_error", "status": 200},  # answers of no use, politely given
        {"kind": "reset_connections"},
        {"kind": "bmc_reboot", "seconds": 6},
    ],
    ids=["silent", "failing", "nonsense", "broken", "rebooting"],
)
def test_a_sick_bmc_is_said_and_comes_back_while_the_other_is_read_each_second(
    operator: Operator, trouble: dict[str, Any]
) -> None:
    before = known(operator.devices("falcon-1"))
    began = time.time()
    operator.site.control("falcon-1", "POST", "/faults", trouble)
    said = wait_for(lambda: operator.chassis("falcon-1")["last_error"], "nobody said so", seconds=45)
    assert len(said) < 300
    assert "Traceback" not in said
    assert known(operator.devices("falcon-1")) == before
    if time.time() - began < 5:
        time.sleep(3)
    operator.site.control("falcon-1", "DELETE", "/faults")
    wait_for(lambda: operator.chassis("falcon-1")["last_error"] == "", "it did not come back")
    wait_for(lambda: operator.seconds_read("falcon-1", 2), "its readings did not come back")
    assert known(operator.devices("falcon-1")) == before
    healthy(operator, "falcon-2", began)
    assert operator.chassis("falcon-2")["last_error"] == ""


def test_a_slow_bmc_is_read_as_often_as_it_answers(operator: Operator) -> None:
    before = known(operator.devices("falcon-1"))
    began = time.time()
    operator.site.control("falcon-1", "POST", "/faults", {"kind": "slow", "delay": 1.5})
    time.sleep(10)
    assert len(operator.seconds_read("falcon-1", 8)) >= 2
    healthy(operator, "falcon-2", began)
    assert operator.chassis("falcon-1")["last_error"] == ""
    assert known(operator.devices("falcon-1")) == before


def healthy(operator: Operator, name: str, since: float) -> None:
    """Hold that a chassis was read each second since a moment."""
    elapsed = time.time() - since
    times = [at for at in operator.seconds_read(name, elapsed + 1) if at >= since - 1]
    assert len(times) >= 0.8 * elapsed - 1, (len(times), elapsed)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert max(gaps) < LONGEST_GAP, gaps


def test_a_broker_that_hangs_holds_nobody_up_for_long(operator: Operator) -> None:
    """It is asked for live readings and queues; what was asked for stands in the database."""
    (broker,) = [pid for pid in pids_naming("server 127.0.0.1:") if parent_of(pid) == operator.site.process.pid]
    gpu = operator.devices("falcon-2")["drawer1slot1"]
    os.kill(broker, signal.SIGSTOP)
    try:
        began = time.monotonic()
        assert operator.site.get("/healthz")[0] == 503
        asked = operator.post("operations/", {"device_id": gpu["id"], "target_host_port_id": None})
        # Far less than a browser, a proxy or a person waits.
        assert time.monotonic() - began < 25
    finally:
        os.kill(broker, signal.SIGCONT)
    wait_for(lambda: operator.get(f"operations/{asked['id']}/")["state"] == "done", "it was lost", seconds=40)
    wait_for(lambda: operator.site.get("/healthz")[0] == 200, "the site did not come back")
    wait_for(lambda: operator.seconds_read("falcon-2", 2), "its readings did not come back")
