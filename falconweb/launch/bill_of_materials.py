"""The libraries of the site as one CycloneDX document: those of Python from their lock, those of browsers from theirs.

Run by `make sbom`, in the environment of requirements/tools.txt: it imports nothing of the site.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent


def browser_components(lock: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the components of a package-lock.json that the site serves: those of development are left out."""
    for place, package in sorted(lock["packages"].items()):
        if not place or package.get("dev"):
            continue
        name = place.rpartition("node_modules/")[2]
        kind, _, digest = package["integrity"].partition("-")
        purl = f"pkg:npm/{name.replace('@', '%40')}@{package['version']}"
        yield {
            "type": "library", "bom-ref": purl, "name": name, "version": package["version"], "purl": purl,
            "hashes": [{"alg": kind.upper().replace("SHA", "SHA-"), "content": base64.b64decode(digest).hex()}],
            **({"licenses": [{"expression": package["license"]}]} if "license" in package else {}),
        }  # fmt: skip


def merged_document(python_part: dict[str, Any], lock: dict[str, Any], version: str) -> dict[str, Any]:
    """Return the document of the Python libraries, with those of browsers and the site itself."""
    site = {"type": "application", "bom-ref": "falconweb", "name": "falconweb", "version": version}
    # The tool names components by their line in the lock, and repeats that line as their description.
    python = [{**one, "bom-ref": one["purl"], "description": ""} for one in python_part["components"]]
    found = sorted([*python, *browser_components(lock)], key=lambda one: str(one["purl"]))
    # The lock is flat: it says what the site needs, not which of them needs which.
    needed = [one["bom-ref"] for one in found]
    return {
        **python_part,
        "metadata": {**python_part.get("metadata", {}), "component": site},
        "components": found,
        "dependencies": [{"ref": "falconweb", "dependsOn": needed}, *({"ref": one} for one in needed)],
    }


def site_document() -> str:
    """Return the document of this checkout as JSON; raises ValueError where it is not valid CycloneDX 1.6."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    made = subprocess.run(  # noqa: S603 - a fixed command
        [
            str(Path(sys.executable).with_name("cyclonedx-py")), "requirements", "--output-reproducible",
            "--sv", "1.6", "requirements/site.txt",
        ],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    (version,) = re.findall(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    lock = json.loads((ROOT / "package-lock.json").read_text())
    text = json.dumps(merged_document(json.loads(made.stdout), lock, version), indent=2) + "\n"
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise ValueError(f"The document is not valid: {error}")
    return text


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(site_document())
