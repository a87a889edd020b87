"""The documentation leads to what there is: by its links, and by the files that it names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.processes import ROOT

DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
FILE = re.compile(r"`((?:[\w.-]+/)+[\w-]+\.(?:py|js|html|toml))`")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_links_lead_to_files(document: Path) -> None:
    missing = [link for link in LINK.findall(document.read_text()) if not (document.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_files_that_are_named_exist(name: str) -> None:
    missing = [file for file in FILE.findall((ROOT / name).read_text()) if not (ROOT / file).exists()]
    assert not missing, "name where it is now"
