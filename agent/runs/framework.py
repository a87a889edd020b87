"""Which PyTorch the host has: found without importing it, which takes seconds and a gigabyte."""

from __future__ import annotations

import subprocess
import threading
import time
from pathlib import Path

import msgspec

SECONDS = 20.0
KEPT_SECONDS = 600.0
# Run by the Python that is asked: it need not be the agent's.
_LOOK = """
import importlib.metadata, importlib.util, json, re, sys
found = {"missing": [name for name in ("torch", "msgspec") if importlib.util.find_spec(name) is None]}
if not found["missing"]:
    place = importlib.metadata.distribution("torch").locate_file("torch/version.py")
    text = open(place).read()
    found["version"] = "".join(re.findall(r"^__version__ = '([^']*)'", text, re.M)[:1])
    found["cuda"] = "".join(re.findall(r"^cuda\\b[^=]*= '([^']*)'", text, re.M)[:1])
json.dump(found, sys.stdout)
"""


class Framework(msgspec.Struct, frozen=True):
    """The version of PyTorch and of the CUDA that it was built with, '' for none; `absent` says why there is none."""

    version: str = ""
    cuda: str = ""
    absent: str = ""


class _Found(msgspec.Struct, frozen=True):
    missing: list[str] = []
    version: str = ""
    cuda: str = ""


class Frameworks:
    """Looks, and remembers what it saw for ten minutes."""

    def __init__(self, python: str, code: Path) -> None:
        self._python = python
        self._code = code
        self._lock = threading.Lock()
        self._seen: Framework | None = None
        self._until = 0.0

    def look(self) -> Framework:
        """Return what there is."""
        with self._lock:
            if self._seen is None or time.monotonic() > self._until:
                self._seen, self._until = self._look(), time.monotonic() + KEPT_SECONDS
            return self._seen

    def _look(self) -> Framework:
        if not (self._code / "trainer/__main__.py").is_file():
            return Framework(absent=f"The program that trains is not installed: there is no {self._code / 'trainer'}.")
        try:
            said = subprocess.run(  # noqa: S603 - the Python of a setting
                [self._python, "-I", "-c", _LOOK], capture_output=True, timeout=SECONDS, check=True, cwd="/"
            ).stdout
            found = msgspec.json.decode(said, type=_Found)
        except (OSError, subprocess.SubprocessError, msgspec.MsgspecError) as error:
            return Framework(absent=f"{self._python} (AGENT_PYTHON) cannot be asked for PyTorch: {error}")
        if found.missing:
            return Framework(absent=f"{self._python} (AGENT_PYTHON) has no {' and no '.join(found.missing)}.")
        return Framework(found.version, found.cuda)
