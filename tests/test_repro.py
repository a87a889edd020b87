"""The list of faults that were found: each has a name of its own, and its test is there."""

from __future__ import annotations

import ast

import pytest

from tests.processes import ROOT
from tests.repro import FoundFault, found_faults, main


def test_each_fault_has_a_name_of_its_own() -> None:
    names = [fault.name for fault in found_faults()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("fault", found_faults(), ids=lambda fault: fault.name)
def test_the_test_of_each_fault_is_there(fault: FoundFault) -> None:
    file, _, test = fault.test.partition("::")
    nodes = ast.parse((ROOT / file).read_text()).body
    there = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert test.partition("[")[0] in there


def test_without_a_name_the_list_is_shown_and_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "locked-database" in capsys.readouterr().out
    assert main(["no-such-fault"]) == 1
    assert "There is no fault 'no-such-fault'" in capsys.readouterr().out
