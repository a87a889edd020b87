"""A simulator that begins anew forgets everything, and can begin with other options."""

from __future__ import annotations

import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from falconweb.testing.processes import SimulatorProcess
from tests.simulator.conftest import ENDPOINTS, Client
from tests.waiting import wait_for


@pytest.fixture
def process() -> Iterator[SimulatorProcess]:
    """One chassis, at its first start."""
    with SimulatorProcess("--speed", "20", chassis="falcon-1") as process:
        yield process


def test_a_reset_forgets_what_was_attached_broken_counted_and_who_signed_in(process: SimulatorProcess) -> None:
    client, address = Client(process), process.address
    before = process.state()
    assert client.compose("hostport1_H1", ["hostport1_H1"]).status_code == 200
    process.fault("server_error", status=503)
    process.set_clock(3600)
    session = requests.post(
        f"{address}/redfish/v1/SessionService/Sessions",
        json={"UserName": "administrator", "Password": process.password},
        verify=str(process.certificate),
        timeout=60,
    )
    assert session.status_code == 503
    process.reset()
    after = process.state()
    assert process.address == address
    for part in ("zones", "modes", "links", "devices", "sessions", "subscriptions"):
        assert after[part] == before[part], part
    assert process.ask_control("GET", "/faults") == []
    assert abs(process.ask_control("GET", "/time")["seconds"]) < before["simulated_seconds"] + 60
    assert Client(process).get(ENDPOINTS)["Members@odata.count"] > 0


def test_a_reset_takes_options_of_the_command_line(process: SimulatorProcess, tmp_path: Path) -> None:
    told = process.ask_control(
        "POST", "/reset", {"arguments": ["--chassis-count", "2", "--dialect", "blocks", "--hosts-root", str(tmp_path)]}
    )
    assert len(told["addresses"]) == 2
    assert process.state("falcon-1-2")["chassis"] == "falcon-1-2"
    assert (tmp_path / "node-a/sys/bus/pci/devices").is_dir()
    process.reset()
    assert process.state()["chassis"] == "falcon-1-1", "options stay"


@pytest.mark.process
def test_hosts_whose_folder_was_removed_stop_the_time_of_nothing_that_is_simulated_next(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    with SimulatorProcess("--hosts-root", str(first), own=True) as process:
        first.rename(tmp_path / "removed")  # at once: thirty files a second are written there
        wait_for(lambda: any("stopped" in line for line in process.output), "the simulator never says so")
        process.ask_control("POST", "/reset", {"arguments": ["--hosts-root", str(second)]})
        device = next((second / "node-a/sys/bus/pci/devices").glob("0000:4*"))
        with (device / "remove").open("a") as file:
            file.write("1\n")
        wait_for(lambda: not device.exists(), "a device stays on the bus while nobody asks the simulator")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--dialect", "klingon"], "invalid choice"),
        (["--speed", "0"], "--speed must be between"),
        (["--chassis", "falcon-9"], "the lab has no chassis 'falcon-9'"),
        (["--help"], "a reset"),
        ("--speed", "Expected `array"),
    ],
)
def test_a_reset_that_cannot_be_is_refused_and_all_goes_on(
    process: SimulatorProcess, arguments: object, sentence: str
) -> None:
    process.fault("slow", delay=0.01)
    with pytest.raises(urllib.error.HTTPError) as refused:
        process.ask_control("POST", "/reset", {"arguments": arguments})
    assert refused.value.code == 400
    assert sentence in refused.value.read().decode()
    assert len(process.ask_control("GET", "/faults")) == 1


def test_hosts_that_cannot_be_simulated_leave_nothing_until_the_next_reset(process: SimulatorProcess) -> None:
    with pytest.raises(urllib.error.HTTPError, match="400"):
        process.ask_control("POST", "/reset", {"arguments": ["--hosts-root", "/dev/null/hosts"]})
    with pytest.raises(urllib.error.HTTPError, match="404"):
        process.state()
    process.ask_control("POST", "/reset", {"arguments": []})
    assert process.state()["chassis"] == "falcon-1"


def test_who_was_connected_is_cut_off(process: SimulatorProcess) -> None:
    client = Client(process)
    client.get(ENDPOINTS)
    process.ask_control("POST", "/stop")
    with pytest.raises(requests.ConnectionError):
        client.request("GET", ENDPOINTS)


def test_a_process_that_was_released_is_used_again_and_answers_nobody_meanwhile() -> None:
    with SimulatorProcess() as first:
        pid, client = first.process.pid, Client(first)
        client.get(ENDPOINTS)
    with pytest.raises(requests.ConnectionError):
        client.request("GET", ENDPOINTS)
    with SimulatorProcess("--speed", "3") as second:
        assert second.process.pid == pid
        assert second.ask_control("GET", "/time")["speed"] == 3
    # One that died is not taken.
    second.process.kill()
    with SimulatorProcess() as third:
        assert third.process.pid != pid
