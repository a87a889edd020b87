"""The plugin of tests/budget.py: what a small suite takes is counted, compared, and refused where it is not marked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests import budget
from tests.processes import ROOT

pytestmark = pytest.mark.process

BURN = """
    import subprocess, sys, time
    import pytest

    BURNING = "import time\\nwhile time.process_time() < {}: pass"

    def burn(seconds):
        end = time.process_time() + seconds
        while time.process_time() < end:
            pass
"""
COSTS = {
    "test_own.py": """
        @pytest.fixture(scope="session")
        def dear():
            burn(0.5)
            yield
            burn(0.1)

        def test_first(dear):
            burn(0.2)

        def test_second():
            burn(0.1)
    """,
    "test_descendants.py": """
        @pytest.mark.process
        def test_of_a_child_that_is_waited_for():
            subprocess.run([sys.executable, "-c", BURNING.format(0.3)])

        @pytest.fixture(scope="module")
        def child():
            with subprocess.Popen([sys.executable, "-c", BURNING.format(0.3) + "\\nprint(flush=True)\\ntime.sleep(60)"],
                                  stdout=subprocess.PIPE) as process:
                yield process
                process.kill()

        @pytest.mark.process
        def test_of_a_child_that_lives_on(child):
            child.stdout.readline()
    """,
}
STARTS = """
    @pytest.fixture(scope="session")
    def of_the_session():
        subprocess.run(["true"])
        yield
        subprocess.run(["true"])

    def test_of_the_session(of_the_session):
        pass

    @pytest.mark.process
    def test_marked():
        subprocess.run(["true"])

    def test_unmarked():
        subprocess.run(["true", "first"])

    def test_unmarked_and_caught():
        with pytest.raises(RuntimeError):
            subprocess.run(["true", "second"])

    def test_none():
        pass
"""


def run(folder: Path, files: dict[str, str], *options: str) -> str:
    """Run a suite without Django and return what pytest says."""
    for name, text in files.items():
        (folder / name).write_text(textwrap.dedent(BURN) + textwrap.dedent(text))
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -p tests.budget\nmarkers =\n    process\n")
    answer = subprocess.run(
        [sys.executable, "-m", "pytest", "--budget-report", *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return answer.stdout + answer.stderr


def measured(folder: Path) -> dict[str, float]:
    """Return what a run has kept."""
    found: dict[str, float] = json.loads((folder / budget.MEASURED).read_text())
    return found


@pytest.mark.parametrize(
    "options",
    [
        pytest.param((), id="alone"),
        pytest.param(("-p", "xdist", "-n", "2", "--dist", "loadfile"), id="workers", marks=pytest.mark.nightly),
    ],
)
def test_files_pay_for_their_tests_and_descendants_but_not_for_the_session(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    said = run(tmp_path, COSTS, *options)
    assert "4 passed" in said
    found = measured(tmp_path)
    assert found.keys() == {"test_own.py", "test_descendants.py", budget.SESSION, budget.CALIBRATION}
    assert 0.3 <= found["test_own.py"] < 0.6
    assert 0.6 <= found["test_descendants.py"] < 1.5
    assert 0.6 <= found[budget.SESSION] < 0.9
    assert f"{found['test_own.py']:8.1f}  test_own.py" in said


def test_a_run_that_leaves_out_tests_is_not_kept(tmp_path: Path) -> None:
    assert "1 passed, 1 deselected" in run(tmp_path, {"test_own.py": COSTS["test_own.py"]}, "-k", "second")
    assert "1 passed" in run(tmp_path, {}, "test_own.py::test_second")
    assert not (tmp_path / budget.MEASURED).exists()


def test_a_process_needs_the_marker_or_a_fixture_of_the_session(tmp_path: Path) -> None:
    said = run(tmp_path, {"test_starts.py": STARTS}, "-rA")
    assert "2 failed, 3 passed" in said
    for name, word in ("test_unmarked", "first"), ("test_unmarked_and_caught", "second"):
        assert f"FAILED test_starts.py::{name}" in said
        assert f"test_starts.py::{name} starts a process (true {word}) {budget.MARK_IT}" in said


def put(path: Path, seconds: dict[str, float]) -> None:
    """Write a record, or what was measured."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(seconds))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own with `tests` in it, which is the current one."""
    (tmp_path / "tests").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("recorded", "seconds", "calibration", "sentence", "status"),
    [
        (5.1, 14.2, 20.0, "tests/test_x.py took 14.2 CPU seconds, 5.1 are recorded. Most tests", 0),
        (5.1, 20.2, 20.0, "tests/test_x.py took 20.2 CPU seconds, 5.1 are recorded. Most tests", 1),
        (5.1, 10.0, 20.0, "", 0),
        (1.0, 5.9, 20.0, "", 0),
        (20.0, 39.0, 20.0, "", 0),
        (20.0, 59.0, 20.0, "20.0 are recorded", 0),
        (20.0, 61.0, 20.0, "20.0 are recorded", 1),
        (5.1, 14.2, 40.0, "", 0),
        (5.1, 24.2, 40.0, "took 24.2 CPU seconds, 5.1 are recorded (10.2 on a machine like this). Most tests", 0),
        (5.1, 60.0, 400.0, "(20.4 on a machine like this)", 0),
        (5.1, 62.0, 400.0, "(20.4 on a machine like this)", 1),
        (None, 5.1, 20.0, "tests/test_x.py took 5.1 CPU seconds, none are recorded. Most tests", 0),
        (None, 15.1, 20.0, "tests/test_x.py took 15.1 CPU seconds, none are recorded. Most tests", 1),
        (None, 4.9, 20.0, "", 0),
    ],
)
@pytest.mark.usefixtures("folder")
def test_what_takes_twice_its_record_is_named_and_three_times_fails(
    capsys: pytest.CaptureFixture[str],
    *,
    recorded: float | None,
    seconds: float,
    calibration: float,
    sentence: str,
    status: int,
) -> None:
    of_file = {} if recorded is None else {"tests/test_x.py": recorded}
    put(budget.RECORD, {budget.CALIBRATION: 20.0, budget.SESSION: 1.0, "tests/test_gone.py": 1.0, **of_file})
    put(budget.MEASURED, {budget.CALIBRATION: calibration, budget.SESSION: 1.0, "tests/test_x.py": seconds})
    assert budget.main(["check"]) == status
    said = capsys.readouterr().out
    assert (sentence or "1 test files took no more than is recorded.") in said


def test_a_record_is_made_of_what_was_measured_and_still_exists(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert budget.main(["check"]) == budget.main(["record"]) == budget.main([]) == 2
    assert "Nothing has been measured" in capsys.readouterr().err
    put(budget.MEASURED, {budget.CALIBRATION: 20.0, budget.SESSION: 9.87, "tests/b.py": 1.24, "tests/a.py": 2.0})
    assert budget.main(["record"]) == 0
    whole = '{\n"(calibration)": 20.0,\n"(session)": 9.9,\n"tests/a.py": 2.0,\n"tests/b.py": 1.2\n}\n'
    assert budget.RECORD.read_text() == whole
    # A run of one file, on a machine that takes twice as long.
    (folder / "tests/b.py").touch()
    put(budget.MEASURED, {budget.CALIBRATION: 40.0, budget.SESSION: 3.0, "tests/c.py": 8.0})
    assert budget.main(["record"]) == 0
    assert budget.RECORD.read_text() == whole.replace('"tests/a.py": 2.0,\n', "").replace(
        "1.2\n", '1.2,\n"tests/c.py": 4.0\n'
    )
    assert "tests/a.py no longer exists: its record is removed." in capsys.readouterr().out
