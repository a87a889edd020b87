"""The list of seeded faults names lines and tests that there are; `python -m tests.seeded_faults` tries them."""

from __future__ import annotations

import ast
from functools import cache

from tests.processes import ROOT
from tests.seeded_faults import Fault, markdown_table, read_faults

FEWEST = 80
FAULTS = read_faults()


@cache
def names_of(file: str) -> frozenset[str]:
    """Return the functions of a file of tests, those of a class as 'class::function'."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    names = set()
    for node in ast.parse((ROOT / file).read_text()).body:
        if isinstance(node, functions):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names |= {f"{node.name}::{inner.name}" for inner in node.body if isinstance(inner, functions)}
    return frozenset(names)


def lost_line(fault: Fault) -> str:
    """Return '' where a fault's line occurs exactly once in its file, else a sentence that says what to do."""
    path = ROOT / fault.file
    count = len(fault.places(path.read_text())) if path.is_file() else 0
    if count == 1:
        return ""
    return (
        f"{fault.file}: the line of '{fault.what}' is there {count} times. Write it as it is now in "
        f"tests/seeded_faults.toml, or put another fault of this part in its place: {fault.line}"
    )


def lost_test(fault: Fault) -> str:
    """Return '' where the test that finds a fault exists, else a sentence that says what to do."""
    file, _, name = fault.found_by.partition("::")
    if (ROOT / file).is_file() and name.partition("[")[0] in names_of(file):
        return ""
    return (
        f"{fault.found_by} is gone. Name the test that finds '{fault.what}' ({fault.file}) now in "
        "tests/seeded_faults.toml; if none does, write one: python -m tests.seeded_faults tells"
    )


def test_each_line_that_a_fault_changes_is_there_exactly_once() -> None:
    lost = [sentence for fault in FAULTS if (sentence := lost_line(fault))]
    assert not lost, "\n".join(lost)


def test_each_test_that_finds_a_fault_exists() -> None:
    lost = [sentence for fault in FAULTS if (sentence := lost_test(fault))]
    assert not lost, "\n".join(lost)


def test_each_fault_is_another_one_and_changes_its_line() -> None:
    changes = [(fault.file, fault.line, fault.instead) for fault in FAULTS]
    assert len(set(changes)) == len(changes), "A fault is in tests/seeded_faults.toml twice: take one of them out."
    assert all(line != instead for _, line, instead in changes), "A fault leaves its line as it is: change it."


def test_the_list_stays_long_enough_to_tell_something() -> None:
    assert len(FAULTS) >= FEWEST, f"There are {len(FAULTS)} seeded faults: add some, so that there are {FEWEST}."


def test_a_fault_keeps_the_indentation_and_is_a_row_of_the_table() -> None:
    fault = Fault(file="a.py", line="b = 1", instead="b = 2", what="x|y", found_by="tests/test_a.py::test_b")
    assert fault.applied("def a():\n    b = 1\n") == "def a():\n    b = 2\n"
    assert markdown_table([fault]).endswith("\n| `a.py` | x\\|y | `tests/test_a.py::test_b` |")
