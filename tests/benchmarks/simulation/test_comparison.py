"""The simulation beside the model, and the command that shows both."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from django.core.management import call_command

from benchmarks.simulation.comparison import compare, summary

TOPOLOGIES = Path("docs/topologies")


def of_command(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    call_command("simulate", *words)
    return capsys.readouterr().out


def failed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        call_command("simulate", *words)
    assert isinstance(ended.value.code, int)
    return ended.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    "count", [40, pytest.param(200, marks=pytest.mark.nightly)], ids=["daily", "as often as the docs say"]
)
def test_simulation_and_model_are_near_each_other_and_neither_copies_the_other(count: int) -> None:
    found = summary(compare(count, seed=1))
    assert found.cells == count
    assert 0.02 < found.median < 0.15
    assert found.within_20 > 0.65


def test_the_worst_cells_come_first_and_say_why_in_a_sentence_with_both_sides_terms() -> None:
    cells = compare(12, seed=2)
    sizes = [abs(cell.difference) for cell in cells]
    assert sizes == sorted(sizes, reverse=True)
    for cell in cells:
        own, steps = sum(own for own, _ in cell.terms.values()), cell.simulated.steps
        assert own == pytest.approx(sum(steps) / len(steps), rel=0.1, abs=2e-4), cell.label
        assert " than in the model (" in cell.why


def test_the_command_simulates_alone_and_beside_another_run(capsys: pytest.CaptureFixture[str]) -> None:
    place = str(TOPOLOGIES / "falconGPUs.json")
    words = ("bert_large", "--topology", place, "--steps", "3", "--json")
    alone = json.loads(of_command(capsys, *words))
    beside = json.loads(of_command(capsys, *words, "--beside", place))
    assert len(alone["steps"]) == 3
    assert beside["step_seconds"] > 1.2 * alone["step_seconds"]
    assert "GPU in use" in of_command(capsys, *words[:-1])


def test_the_command_compares(capsys: pytest.CaptureFixture[str]) -> None:
    assert of_command(capsys, "--compare", "3").startswith("3 random compositions")
    assert len(json.loads(of_command(capsys, "--compare", "3", "--seed", "5", "--json"))["worst"]) == 3


def test_the_command_refuses_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert failed(capsys)[0] == 2
    assert failed(capsys, "resnet50", "--compare", "3")[0] == 2
    assert failed(capsys, "resnet50")[0] == 2
    assert failed(capsys, "--compare", "999999")[0] == 2
    place = ("--topology", str(TOPOLOGIES / "localGPUs.json"))
    assert failed(capsys, "resnet50", "--topology", "no such file")[0] == 2
    assert failed(capsys, "no_such", *place)[0] == 3
    assert failed(capsys, "storage_read", *place)[0] == 4
    assert failed(capsys, "resnet50", *place, "--devices", "9")[0] == 4
    assert failed(capsys, "bert_large", *place, "--batch", "999")[0] == 4
