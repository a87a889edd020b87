"""The surroundings of a test run, made before Django reads its settings: a data folder and a Valkey of their own.

Loaded by `-p` (see pyproject.toml), because pytest-django reads the settings before any conftest. Each pytest-xdist
worker gets its own server: publish and subscribe know no databases, so that a shared one would let tests hear each
other.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from falconweb.launch.broker import start_broker

DATA = Path(tempfile.mkdtemp(prefix="falconweb-tests-"))
os.environ["FALCONWEB_DATA"] = str(DATA)
(DATA / "logs").mkdir()
_broker = start_broker(DATA, os.environ)
os.environ["REDIS_URL"] = _broker.url


def _end() -> None:
    _broker.child.ask_to_end()
    _broker.child.end(deadline=0.0)
    shutil.rmtree(DATA, ignore_errors=True)


atexit.register(_end)
