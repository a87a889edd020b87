"""The documentation leads to what there is: by its links, and by the files that it names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.processes import ROOT

DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
CHANGE = re.compile(r"^`([^`\n]+)`\n\n```diff\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"`((?:[\w.-]+/)+[\w-]+\.(?:py|js|html|toml))`")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_links_lead_to_files(document: Path) -> None:
    missing = [link for link in LINK.findall(document.read_text()) if not (document.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_files_that_are_named_exist(name: str) -> None:
    missing = [file for file in FILE.findall((ROOT / name).read_text()) if not (ROOT / file).exists()]
    assert not missing, "name where it is now"


def test_lines_around_the_changes_of_recipes_are_there_once() -> None:
    changes = CHANGE.findall((ROOT / "docs" / "recipes.md").read_text())
    assert len(changes) > 40
    lost = []
    for name, change in changes:
        for part in change.split("...\n"):
            around = "".join(line[1:] + "\n" for line in part.strip("\n").splitlines() if not line.startswith("+"))
            if around and (ROOT / name).read_text().count(around) != 1:
                lost.append(f"{name}: {around.strip()}")
    assert not lost, "correct the recipes, whose changes no longer fit"
