"""The table of dialects and cases, printed at the end of a run."""

from __future__ import annotations

import re
from typing import Any

import pytest

from fabric.bmc import settling
from fabric.execution import claims

CELL = re.compile(r"test_conformance\.py::test_conformance\[(?P<row>[\w-]+?)-(?P<case>\w+)\]$")
MARKS = {"passed": "yes", "failed": "NO", "error": "NO"}


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that is never shown is given up after 3 s, and a cancellation is seen at the next step."""
    monkeypatch.setattr(settling, "FIRST_SECONDS", 3.0)
    monkeypatch.setattr(settling, "MIN_SECONDS", 3.0)
    monkeypatch.setattr(claims, "CANCEL_CHECK_SECONDS", 0.0)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print which dialect has passed which case."""
    cells: dict[str, dict[str, str]] = {}
    for outcome, mark in MARKS.items():
        for report in terminalreporter.stats.get(outcome, []):
            if (cell := CELL.search(report.nodeid)) and (outcome != "passed" or report.when == "call"):
                cells.setdefault(cell["case"], {})[cell["row"]] = mark
    rows = list(dict.fromkeys(row for found in cells.values() for row in found))
    if rows:
        terminalreporter.write_sep("-", "dialects")
        widths = [34, *map(len, rows)]
        table = [("", *rows), *((case.replace("_", " "), *map(found.get, rows)) for case, found in cells.items())]
        for line in table:
            words = (f"{cell or '':{width}}" for cell, width in zip(line, widths, strict=True))
            terminalreporter.write_line("  ".join(words))
