"""`manage.py inventory` prints what a service has, or one sentence that says why it cannot, and needs no database."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from fabric.management.commands.inventory import Command
from falconweb.testing.processes import SimulatorProcess
from tests.bmc.nonsense import ROOT as REDFISH
from tests.bmc.nonsense import NonsenseServer, Reply, chassis, service_root
from tests.processes import ROOT

LISTS = {
    "chassis", "drawers", "slots", "devices", "functions", "switches", "ports", "port_metrics", "zones", "endpoints",
    "connections", "virtual_switches", "resource_blocks", "systems", "sensors", "fans", "components", "metrics",
    "log_services", "problems",
}  # fmt: skip


@dataclass
class Done:
    """How a command ended, and what it printed."""

    returncode: int
    stdout: str
    stderr: str


def run(*arguments: str) -> Done:
    """Run the command as manage.py does, in this process."""
    out, errors = io.StringIO(), io.StringIO()
    code: object = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.StringIO())
        try:
            Command().run_from_argv(["manage.py", "inventory", *arguments])
        except SystemExit as end:
            code = end.code
    return Done(int(str(code or 0)), out.getvalue(), errors.getvalue())


@pytest.fixture
def password_file(chassis: SimulatorProcess, tmp_path: Path) -> str:
    file = tmp_path / "password"
    file.write_text(chassis.password + "\n")
    return str(file)


@pytest.mark.process
def test_a_falcon_is_printed_as_json(chassis: SimulatorProcess, password_file: str, tmp_path: Path) -> None:
    signing = ("--user", "viewer", "--password-file", password_file, "--ca", str(chassis.certificate))
    empty = tmp_path / "data"
    done = subprocess.run(
        [sys.executable, "manage.py", "inventory", chassis.address, *signing, "--json"],
        cwd=ROOT, env={**os.environ, "FALCONWEB_DATA": str(empty), "DATABASE_URL": ""},
        capture_output=True, text=True, check=False, timeout=60, input="",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert printed.keys() >= LISTS
    assert all(entry["uri"] and entry["name"] for name in LISTS - {"problems"} for entry in printed[name])
    assert (len(printed["drawers"]), len(printed["slots"]), len(printed["devices"])) == (2, 16, 12)
    assert printed["problems"] == []
    assert printed["dialect"] == "zone_patch"
    assert not list(empty.rglob("*.sqlite*")), "the database is not touched"
    assert chassis.password not in done.stdout


def test_a_falcon_is_printed_as_tables(chassis: SimulatorProcess, password_file: str) -> None:
    trust = ("--fingerprint", chassis.fingerprint)
    done = run(chassis.address, "--user", "viewer", "--password-file", password_file, *trust)
    assert done.returncode == 0, done.stderr
    assert "attach and detach: zone patch\n  Zone hostport1_H1 allows PATCH.\n" in done.stdout
    assert "slots (16)" in done.stdout
    assert "devices (12)" in done.stdout
    assert "problems (0)" in done.stdout
    assert "0x10DE" in done.stdout


def test_each_failure_has_its_sentence_and_its_exit_code(
    chassis: SimulatorProcess, password_file: str, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("not the password")
    pin = ("--fingerprint", chassis.fingerprint)
    user = ("--user", "viewer", "--password-file")
    cases = [
        (2, ("ftp://somewhere",), "not a URL"),
        (2, (chassis.address, "--fingerprint", "AB:CD"), "SHA-256"),
        (2, (chassis.address, "--ca", str(tmp_path / "missing.pem")), "missing.pem"),
        (2, (chassis.address, "--ca", str(wrong)), "PEM"),
        (3, ("https://127.0.0.1:9",), "does not answer"),
        (4, (chassis.address, *pin, *user, str(wrong)), "refuses this name and password"),
        (6, (chassis.address, *user, password_file), chassis.fingerprint),
        (6, (chassis.address, "--fingerprint", "AB" * 32), chassis.fingerprint),
    ]
    for code, arguments, sentence in cases:
        done = run(*arguments)
        assert (done.returncode, done.stdout) == (code, ""), (arguments, done.stderr)
        assert sentence in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr


def test_what_is_no_redfish_exits_with_5() -> None:
    with NonsenseServer({REDFISH: {"hello": "world"}}) as server:
        done = run(server.url)
    assert done.returncode == 5
    assert "not as a Redfish service" in done.stderr


def test_problems_are_listed_and_are_no_failure() -> None:
    one = f"{REDFISH}/Chassis/one"
    evil = "\x1b]0;owned\x07 chassis"
    routes = {
        REDFISH: service_root(Chassis={"@odata.id": one}),
        one: chassis(one, Name=evil, Sensors={"@odata.id": f"{one}/Sensors"}),
        f"{REDFISH}/SessionService/Sessions": Reply(403),
    }
    with NonsenseServer(routes) as server:
        tables, printed = run(server.url), run(server.url, "--json")
    assert tables.returncode == printed.returncode == 0
    assert "problems (2)" in tables.stdout
    assert "\x1b" not in tables.stdout, "a service does not steer the terminal"
    assert json.loads(printed.stdout)["chassis"][0]["name"] == evil


def test_what_a_service_lacks_of_a_profile_is_told_in_text_and_json(
    chassis: SimulatorProcess, password_file: str, tmp_path: Path
) -> None:
    trust = ("--user", "viewer", "--password-file", password_file, "--fingerprint", chassis.fingerprint)
    whole = run(chassis.address, *trust, "--profile").stdout
    assert "lacks of the profile FalconWebPCIeFabric 1.0.0 (0)" in whole
    assert all(f"  {purpose}: nothing" in whole for purpose in ("Monitoring", "Health", "Composing"))
    assert json.loads(run(chassis.address, *trust, "--profile", "--json").stdout)["gaps"] == []

    own = tmp_path / "own.json"
    port = {"PropertyRequirements": {"PortName": {"Purpose": "People look for it."}, "Width": {}}}
    own.write_text(
        json.dumps({"ProfileName": "Own", "ProfileVersion": "2.0.0", "Resources": {"Port": port, "Cable": {}}})
    )
    told, printed = (run(chassis.address, *trust, "--profile", str(own), *more) for more in ((), ("--json",)))
    ports = f"{REDFISH}/Fabrics/PCIe/Switches/drawer1_switch/Ports"
    assert f"    mandatory: Port has no PortName. People look for it. ({ports}/H1, {ports}/H2, " in told.stdout
    assert "    mandatory: There is no Cable.\n" in told.stdout
    gap = json.loads(printed.stdout)["gaps"][0]
    assert (gap["resource"], gap["property"], gap["kind"], gap["missing"]) == (
        "Port",
        "PortName",
        "property",
        gap["of"],
    )

    refused = run(chassis.address, *trust, "--profile", str(tmp_path / "none.json"))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "is no file, and none of the profiles FalconWebPCIeFabric" in refused.stderr


def test_a_service_without_a_fabric_lacks_a_way_to_attach() -> None:
    one = f"{REDFISH}/Chassis/one"
    routes = {REDFISH: service_root(Chassis={"@odata.id": one}), one: chassis(one)}
    with NonsenseServer(routes) as server:
        told = run(server.url, "--profile").stdout
    assert "    mandatory: There is no Port. The ends of the links.\n" in told
    assert "    mandatory: There is no known way to attach devices. None of the known ways was found" in told


def test_the_help_tells_the_exit_codes() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert "exit codes:" in done.stdout
    assert run().returncode == 2
    assert run("https://127.0.0.1:9", "--timeout", "-1").returncode == 2
    assert run("https://127.0.0.1:9", "--ca", "x", "--fingerprint", "y").returncode == 2
