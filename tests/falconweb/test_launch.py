"""`make up` as an operator meets it: real processes, a fresh data folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from falconweb.launch import processes
from tests.site import ROOT, RunningSite, pids_naming

pytestmark = pytest.mark.process


def processes_naming(text: str) -> list[str]:
    """Return the command lines of running processes whose environment holds `text`."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                if text.encode() in (folder / "environ").read_bytes():
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
    return found


def wait_until_gone(text: str, seconds: float = 12.0) -> list[str]:
    """Return what still runs after at most `seconds`."""
    deadline = time.monotonic() + seconds
    while (left := processes_naming(text)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return left


def test_the_first_start_prints_a_password_once_and_ctrl_c_ends_every_process(tmp_path: Path) -> None:
    with RunningSite(tmp_path, prepared=False, FALCONWEB_ADMIN_PASSWORD="") as site:
        assert any("Sign in as administrator with the password" in line for line in site.said)
        status, text = site.get("/healthz")
        assert (status, json.loads(text)["status"]) == (200, "ok")
        assert len(processes_naming(f"FALCONWEB_DATA={tmp_path}")) >= 6
        assert site.stop() == 0
    assert wait_until_gone(f"FALCONWEB_DATA={tmp_path}") == []
    with RunningSite(tmp_path, FALCONWEB_ADMIN_PASSWORD="") as second:
        assert not any("password" in line for line in second.said)


def test_a_killed_launcher_takes_its_processes_with_it(tmp_path: Path) -> None:
    with RunningSite(tmp_path, FALCONWEB_SIMULATED="0") as site:
        site.process.send_signal(signal.SIGKILL)
        site.process.wait(timeout=10)
        assert wait_until_gone(f"FALCONWEB_DATA={tmp_path}") == []


def test_a_taken_port_is_said_in_one_sentence_and_nothing_is_started(tmp_path: Path) -> None:
    with RunningSite(tmp_path / "first", FALCONWEB_SIMULATED="0") as site:
        environment = {**site.environment, "FALCONWEB_DATA": str(tmp_path / "second")}
        second = subprocess.run(
            [sys.executable, "-m", "falconweb.launch"],
            cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert second.returncode == 1
    assert f"port {site.port} is taken" in second.stdout
    assert "Traceback" not in second.stdout + second.stderr


def test_two_starts_on_one_data_folder_are_told_apart(tmp_path: Path) -> None:
    with RunningSite(tmp_path, FALCONWEB_SIMULATED="0") as site:
        second = subprocess.run(
            [sys.executable, "-m", "falconweb.launch"],
            cwd=ROOT, env=site.environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert second.returncode == 1
    assert "another FalconWeb uses" in second.stdout


def test_a_dead_worker_is_started_again(tmp_path: Path) -> None:
    with RunningSite(tmp_path, FALCONWEB_SIMULATED="0") as site:
        worker = f"worker-{site.process.pid}@"

        before = pids_naming(worker)
        assert before
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while not (pids_naming(worker) - before) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert pids_naming(worker) - before


def test_it_starts_as_the_documentation_says_for_production(tmp_path: Path) -> None:
    documentation = (ROOT / "docs" / "operate.md").read_text()
    line = next(line for line in documentation.splitlines() if line.strip().startswith("FALCONWEB_HTTPS=1 "))
    settings: dict[str, Any] = dict(word.split("=", 1) for word in line.split() if "=" in word)
    assert settings.pop("FALCONWEB_SIMULATED") == "0"
    with RunningSite(tmp_path, FALCONWEB_SIMULATED="0", **settings) as site:
        # Whoever watches it knows its address only; everybody else needs its name.
        assert site.get("/healthz")[0] == 200
        assert site.get("/sign-in/")[0] == 400


def test_https_without_a_proxy_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="FALCONWEB_HTTPS needs a reverse proxy"):
        RunningSite(tmp_path, FALCONWEB_SIMULATED="0", FALCONWEB_HTTPS="1")


def test_a_long_log_is_moved_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "LONGEST_LOG", 20)
    log = tmp_path / "talker.log"
    talk = "import sys, time\nfor n in range(9): print(n, 'x' * 9, flush=True); time.sleep(0.05)\ntime.sleep(30)"
    child = processes.Child("talker", [sys.executable, "-c", talk], environment=os.environ, log=log)
    child.start()
    try:
        aside = tmp_path / "talker.log.1"
        deadline = time.monotonic() + 10
        # The last line may be moved aside before it is looked for.
        while not any("8 xxx" in one.read_text() for one in (log, aside) if one.exists()):
            assert time.monotonic() < deadline
            assert child.look_after() == ""
            time.sleep(0.01)
        # What it writes after that stands at the beginning, not behind a hole.
        assert log.read_text()[:1].isdigit() or "8 xxx" in aside.read_text()
        assert log.stat().st_size < 9 * 12
        assert aside.read_text()[0].isdigit()
    finally:
        processes.end_all([child])
