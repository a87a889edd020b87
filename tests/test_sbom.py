"""The list of the site's libraries: complete by the locks, and valid by the schema where `make sbom` has its tools."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from falconweb.launch.bill_of_materials import browser_components, merged_document

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / ".venv/tools/bin/python"
LOCK = json.loads((ROOT / "package-lock.json").read_text())
# A library may be there twice, for older and newer Pythons.
SITE = {
    (name.lower(), version)
    for name, version in re.findall(
        r"^([A-Za-z0-9][\w.-]*)(?:\[.*?\])?==([^\s;\\]+)", (ROOT / "requirements/site.txt").read_text(), re.MULTILINE
    )
}


def test_what_browsers_get_is_listed_with_its_hash_and_what_only_tests_need_is_not() -> None:
    found = {one["name"]: one for one in browser_components(LOCK)}
    assert set(found) == {"plotly.js-basic-dist-min"}
    (hashed,) = found["plotly.js-basic-dist-min"]["hashes"]
    assert (hashed["alg"], len(hashed["content"])) == ("SHA-512", 128)


def test_a_scope_is_written_as_package_urls_have_it() -> None:
    lock = {"packages": {"node_modules/@a/b": {"version": "1.0.0", "integrity": "sha512-AAAA"}}}
    assert [one["purl"] for one in browser_components(lock)] == ["pkg:npm/%40a/b@1.0.0"]


def test_both_parts_become_one_document_about_the_site() -> None:
    part: dict[str, Any] = {
        "bomFormat": "CycloneDX", "specVersion": "1.6", "dependencies": [{"ref": "requirements-L1"}],
        "components": [{"bom-ref": "requirements-L1", "name": "x", "purl": "pkg:pypi/x@1", "type": "library"}],
    }  # fmt: skip
    document = merged_document(part, LOCK, "1.2.3")
    refs = [one["bom-ref"] for one in document["components"]]
    assert document["metadata"]["component"]["version"] == "1.2.3"
    assert "pkg:pypi/x@1" in refs
    assert [one["ref"] for one in document["dependencies"]] == ["falconweb", *refs]
    assert document["dependencies"][0]["dependsOn"] == refs


@pytest.mark.process
@pytest.mark.skipif(not TOOLS.exists(), reason="Its tools are not installed: make sbom")
def test_the_document_of_this_checkout_is_valid_and_has_every_library_of_the_locks(tmp_path: Path) -> None:
    made = tmp_path / "sbom.json"
    # It validates what it writes, with the schema of its own library, and fails otherwise.
    subprocess.run([TOOLS, "-P", "falconweb/launch/bill_of_materials.py", made], cwd=ROOT, check=True, timeout=120)
    components = json.loads(made.read_text())["components"]
    made_of = {(one["name"].lower(), one["version"]) for one in components if one["purl"].startswith("pkg:pypi/")}
    assert made_of == SITE
    assert len(components) == len(made_of) + 1
