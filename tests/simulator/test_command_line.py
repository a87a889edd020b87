"""The command line and lab files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from falconweb.testing.processes import SimulatorProcess
from simulator.lab import DEFAULT_LAB, LabError, load_lab
from tests.processes import ROOT
from tests.simulator.conftest import V1, Client

pytestmark = pytest.mark.process


def run(*arguments: str, password: str = "long enough") -> subprocess.CompletedProcess[str]:
    """Run the program to its end."""
    return subprocess.run(
        [sys.executable, "-m", "simulator", *arguments],
        cwd=ROOT, env={**os.environ, "SIMULATOR_PASSWORD": password}, capture_output=True, text=True, timeout=30,
        check=False,
    )  # fmt: skip


def test_help_explains_every_option() -> None:
    said = run("--help")
    assert said.returncode == 0
    for option in ("--port", "--control-port", "--seed", "--lab", "--chassis-count", "--no-expand", "--dialect"):
        assert option in said.stdout


@pytest.mark.parametrize(
    ("arguments", "password", "word"),
    [
        (["--chassis", "falcon-9"], "long enough", "falcon-1, falcon-2"),
        (["--lab", "/nowhere.json"], "long enough", "cannot read the lab file"),
        (["--port", "0"], "short", "8 to 64 characters"),
        (["--speed", "0"], "long enough", "--speed"),
    ],
)
def test_a_wrong_start_ends_with_one_sentence(arguments: list[str], password: str, word: str) -> None:
    done = run(*arguments, password=password)
    assert done.returncode == 2
    assert word in done.stderr
    assert "Traceback" not in done.stderr


def test_a_taken_port_ends_with_one_sentence() -> None:
    with SimulatorProcess() as process:
        done = run("--port", process.address.rpartition(":")[2])
    assert done.returncode == 1
    assert "cannot listen" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_lab_file_is_simulated(tmp_path: Path) -> None:
    lab = {
        "hosts": {"tiny": {"cpus": 1, "gpus": 0}},
        "devices": {
            "CARD": {
                "kind": "Custom", "manufacturer": "We", "model": "Our card", "part_number": "1", "vendor_id": "0x1234",
                "device_id": "0x5678", "subsystem_vendor_id": "0x1234", "subsystem_id": "0x0001",
                "class_code": "0x120000", "generation": "Gen4", "lanes": 8,
            }
        },
        "chassis": {
            "one": {
                "drawers": [{"host_ports": {"H2": "tiny"}, "slots": {"3": {"device": "CARD", "attached_to": "H2"}}}]
            }
        },
    }  # fmt: skip
    file = tmp_path / "lab.json"
    file.write_text(json.dumps(lab))
    with SimulatorProcess("--lab", str(file)) as process:
        client = Client(process)
        assert process.state()["zones"] == {"hostport1_H2": ["drawer1slot3"]}
        device = client.get(f"{V1}/Chassis/drawer1/PCIeDevices/slot3")
        assert device["Model"] == "Our card"
        port = client.get(f"{V1}/Fabrics/PCIe/Switches/drawer1_switch/Ports/slot3")
        assert (port["ActiveWidth"], port["CurrentSpeedGbps"]) == (8, 128)


@pytest.mark.parametrize(
    ("place", "value", "word"),
    [
        (["drawers", 0, "slots", "1", "attached_to"], "H4", "not cabled there"),
        (["drawers", 0, "slots", "1", "device"], "TPU", "unknown"),
        (["drawers", 0, "host_ports", "H1"], "node-z", "not described"),
        (["drawers", 0, "mode"], "StandardOneHost", "StandardOneHost"),
        (["drawers", 1, "host_ports", "H1"], "node-a", "cabled twice"),
        (["drawers", 0, "colour"], "red", "colour"),
        (["drawers", 0, "slots", "9"], {"device": "ALVEO-U250"}, "no slot 9"),
    ],
)
def test_a_lab_that_cannot_exist_is_refused(tmp_path: Path, place: list[Any], value: object, word: str) -> None:
    lab = json.loads(DEFAULT_LAB.read_text())
    inner = lab["chassis"]["falcon-1"]
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    file = tmp_path / "lab.json"
    file.write_text(json.dumps(lab))
    with pytest.raises(LabError, match=word):
        load_lab(file)
