"""`python -m perf.measurement NAME FILE`: one measurement, in the environment that `python -m perf` created."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import django

from perf.environment import CannotMeasureError
from perf.figures import PerfFigure


def main(name: str, file: Path) -> int:
    """Measure and write the figures; returns the exit status."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "falconweb.settings"
    django.setup()
    try:
        measure: Callable[[Callable[[str], None]], list[PerfFigure]] = importlib.import_module(f"perf.{name}").measure
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
