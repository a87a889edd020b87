"""One measurement in the place that the command made: `python -m falconweb.perf NAME FILE`."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import django

from falconweb.perf.figures import Figure
from falconweb.perf.place import CannotMeasureError


def main(name: str, file: Path) -> int:
    """Measure and write the figures; returns the exit status."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "falconweb.settings"
    django.setup()
    try:
        measure: Callable[[Callable[[str], None]], list[Figure]] = importlib.import_module(
            f"falconweb.perf.{name}"
        ).measure
        figures = measure(_say)
    except CannotMeasureError as error:
        _say(f"{name} cannot be measured: {error}")
        return 1
    except ModuleNotFoundError as error:
        _say(f"{name} needs {error.name}, which comes with the libraries of the tests: run it as `make perf`.")
        return 1
    file.write_text(json.dumps([asdict(figure) for figure in figures]))
    return 0


def _say(sentence: str) -> None:
    sys.stderr.write(sentence + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
