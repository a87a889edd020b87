"""The faults of `tests/seeded_faults.toml`, each a line changed as by mistake, and whether the tests find them.

    python -m tests.seeded_faults                   check all: some ten minutes on two cores
    python -m tests.seeded_faults --only quotas     those whose file or description has this text
    python -m tests.seeded_faults --table           print the list as a Markdown table

A fault is made in a copy of the source tree, and the test that is named beside it has to fail there. What fails for
another reason (the line or the test is gone, a module cannot be imported) is an error of the list, and told as one.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from queue import SimpleQueue

from falconweb.testing.snapshots import DEFAULT_FOLDER, FOLDER
from tests.processes import ROOT

LIST = ROOT / "tests" / "seeded_faults.toml"
# Large, and changed by no fault: linked, or left out.
LINKED = (".venv", "node_modules")
LEFT_OUT = ("var", ".git", ".hypothesis", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".import_linter_cache")
PYTEST = (sys.executable, "-m", "pytest", "-x", "-q", "-rs", "--tb=short", "-p", "no:cacheprovider", "-n", "0")
SECONDS = 600.0  # of one test; pytest's own limit is shorter
LONGEST_OUTPUT = 3000  # characters that are shown of an error of the list


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A mistake in one line: `line` of `file` reads `instead`, and the test `found_by` (a node id) fails by it."""

    file: str
    line: str  # without its indentation, which stays
    instead: str
    what: str  # what goes wrong, half a sentence
    found_by: str

    def places(self, text: str) -> list[int]:
        """Return the numbers (from 0) of the lines of a file's text that are this one."""
        return [number for number, line in enumerate(text.split("\n")) if line.strip() == self.line]

    def applied(self, text: str) -> str:
        """Return a file's text with the fault; raises ValueError where its line is not there exactly once."""
        places = self.places(text)
        if len(places) != 1:
            raise ValueError(f"{self.file} has its line {len(places)} times, not once")
        lines = text.split("\n")
        (place,) = places
        lines[place] = lines[place].replace(self.line, self.instead)
        return "\n".join(lines)


class Outcome(StrEnum):
    """What became of a fault; STALE is an error of the list, not of the tests."""

    FOUND = "found"
    MISSED = "NOT FOUND"
    STALE = "STALE"


@dataclass(frozen=True)
class Checked:
    """The outcome of a fault; `detail` says why, where the list is stale."""

    fault: Fault
    outcome: Outcome
    detail: str = ""


def read_faults(path: Path = LIST) -> list[Fault]:
    """Return the faults of a list; raises TypeError for an entry with other fields than those of `Fault`."""
    return [Fault(**entry) for entry in tomllib.loads(path.read_text())["fault"]]


def markdown_table(faults: Iterable[Fault]) -> str:
    """Return faults as a Markdown table."""
    rows = [("File", "What goes wrong", "Found by"), ("---", "---", "---")]
    rows += [(f"`{fault.file}`", fault.what, f"`{fault.found_by}`") for fault in faults]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)


def copy_tree(target: Path) -> Path:
    """Copy the source tree into a folder that does not exist yet, and return that."""
    shutil.copytree(ROOT, target, ignore=shutil.ignore_patterns(*LINKED, *LEFT_OUT))
    for name in LINKED:
        if (ROOT / name).exists():
            (target / name).symlink_to((ROOT / name).resolve())
    return target


def check_fault(fault: Fault, tree: Path) -> Checked:
    """Make a fault in a copy of the source tree, run its test there, and undo the fault."""
    source, changed = ROOT / fault.file, tree / fault.file
    try:
        changed.write_text(fault.applied(source.read_text()))
    except (OSError, ValueError) as error:
        return Checked(fault, Outcome.STALE, str(error))
    try:
        status, output = _pytest(tree, [fault.found_by])
    finally:
        shutil.copy2(source, changed)
    summary = output.strip().rpartition("\n")[2]
    if status == 1 and re.search(r"\b\d+ failed\b", summary):
        return Checked(fault, Outcome.FOUND)
    if status == 0 and "skipped" not in summary:
        return Checked(fault, Outcome.MISSED)
    return Checked(fault, Outcome.STALE, output[-LONGEST_OUTPUT:])


def check_faults(faults: Sequence[Fault], *, side_by_side: int = 2) -> list[Checked]:
    """Check faults, some side by side, each in a copy of the source tree that it has to itself; prints a line each."""
    with tempfile.TemporaryDirectory(prefix="falconweb-faults-") as folder:
        trees: SimpleQueue[Path] = SimpleQueue()
        for number in range(side_by_side):
            trees.put(copy_tree(Path(folder) / str(number)))

        def check(fault: Fault) -> Checked:
            tree = trees.get()
            try:
                result = check_fault(fault, tree)
            finally:
                trees.put(tree)
            _print(f"{result.outcome:9}  {fault.file}: {fault.what}")
            if result.detail:
                _print(f"    {fault.found_by}\n{result.detail}")
            return result

        with ThreadPoolExecutor(side_by_side) as threads:
            return list(threads.map(check, faults))


def check_tests(faults: Iterable[Fault]) -> str:
    """Run the named tests of faults as the source tree is; returns '' where all pass, else what pytest says."""
    with tempfile.TemporaryDirectory(prefix="falconweb-faults-") as folder:
        status, output = _pytest(copy_tree(Path(folder) / "tree"), sorted({fault.found_by for fault in faults}))
    is_whole = status == 0 and "skipped" not in output.strip().rpartition("\n")[2]
    return "" if is_whole else output[-LONGEST_OUTPUT:]


def _pytest(tree: Path, tests: Sequence[str]) -> tuple[int, str]:
    # The programs that tests start (simulator, agent, workers) are to be those of the copy too; what they begin with is
    # made once for all.
    environment = {FOLDER: str(DEFAULT_FOLDER), **os.environ, "PYTHONPATH": str(tree)}
    try:
        done = subprocess.run(
            [*PYTEST, *tests], cwd=tree, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False, timeout=SECONDS * len(tests),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return -1, f"It did not end within {SECONDS * len(tests):.0f} s."
    return done.returncode, done.stdout


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the list, or print it; returns 1 where a fault is not found or the list is stale."""
    parser = argparse.ArgumentParser(prog="python -m tests.seeded_faults", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", metavar="TEXT", default="", help="faults whose file or description has this text")
    parser.add_argument("-j", type=int, default=2, metavar="N", help="how many at a time (2)")
    parser.add_argument("--table", action="store_true", help="print the list as a Markdown table, and check nothing")
    options = parser.parse_args(arguments)
    faults = [fault for fault in read_faults() if options.only.casefold() in f"{fault.file} {fault.what}".casefold()]
    if options.table:
        _print(markdown_table(faults))
        return 0
    if not faults:
        _print(f"No fault has '{options.only}' in its file or description.")
        return 1
    if told := check_tests(faults):
        _print(f"{told}\nThe tests that are to find the faults do not all pass without one: nothing was checked.")
        return 1
    results = check_faults(faults, side_by_side=max(1, options.j))
    found = sum(result.outcome is Outcome.FOUND for result in results)
    _print(f"{found} of {len(results)} seeded faults were found.")
    return 0 if found == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
