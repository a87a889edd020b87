"""`python -m tests.repro NAME`: the test that shows a fault which was found once; without a name, the list of them.

The list is `tests/repro.toml`. A fault of a seed needs its number, too, and the commit on which it was found.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.processes import ROOT

LIST: Final = ROOT / "tests" / "repro.toml"
SEED: Final = "FALCONWEB_SEED"


@dataclass(frozen=True, kw_only=True)
class FoundFault:
    """A fault that was found: its name, half a sentence, and the node id of its test."""

    name: str
    what: str
    test: str


def found_faults() -> list[FoundFault]:
    """Return the faults of the list."""
    return [FoundFault(**entry) for entry in tomllib.loads(LIST.read_text())["fault"]]


def commit() -> str:
    """Return the commit of this tree, '-dirty' where it was changed since; '' outside of a repository."""
    asked = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    return subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the test of a fault, or print the list; returns the exit status of pytest."""
    parser = argparse.ArgumentParser(prog="python -m tests.repro", description=__doc__.partition("\n")[0])
    parser.add_argument("name", nargs="?", default="", help="the name of a fault")
    parser.add_argument("--seed", default="", help="the number of a seed, for a fault that has one")
    options = parser.parse_args(arguments)
    faults = {fault.name: fault for fault in found_faults()}
    if (fault := faults.get(options.name)) is None:
        lines = [f"{name:20} {one.what}" for name, one in faults.items()]
        sys.stdout.write("\n".join([*([f"There is no fault '{options.name}':"] if options.name else []), *lines, ""]))
        return 1 if options.name else 0
    command = [sys.executable, "-m", "pytest", "-q", "-m", "nightly or not nightly", fault.test]
    environment = {**os.environ, **({SEED: options.seed} if options.seed else {})}
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
