"""`python -m perf [NAME ...] [--json]`: measures the live path, prints a table, writes perf.json to the data folder."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import django

from falconweb.config import BASE_DIR, Config
from falconweb.launch.broker import BrokerError
from perf.environment import CannotMeasureError, measurement_environment
from perf.figures import PerfFigure, table

NAMES = (
    "fanout", "poll", "attach", "plan", "apply", "ingest", "export", "history", "predict", "recommend", "browser",
    "pages", "rest",
)  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Run the named measurements, each in its own process and data folder; returns the exit status.

    A site's data are not changed, except the results in perf.json of its data folder.
    """
    parser = argparse.ArgumentParser(prog="python -m perf", description="Measure the live path.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", choices=[[], *NAMES], help=f"one of {', '.join(NAMES)} (default: all)"
    )
    parser.add_argument("--json", action="store_true", help="print the contents of perf.json instead of a table")
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)  # of the process of one measurement
    options = parser.parse_args(arguments)
    if options.into:
        return measure_here(options.names[0], options.into)
    figures: list[PerfFigure] = []
    failed = []
    for name in options.names or NAMES:
        found = measure(name)
        figures += found
        if not found:
            failed.append(name)
    written = json.dumps([figure.for_json() for figure in figures], indent=1)
    if figures:
        data = Config.from_environment().data
        data.mkdir(parents=True, exist_ok=True)
        (data / "perf.json").write_text(written + "\n")
    print(written if options.json else table(figures))
    if failed:
        _log(f"Not measured: {', '.join(failed)}.")
    return 1 if failed else 0


def measure(name: str) -> list[PerfFigure]:
    """Return the figures of one measurement, none where it failed, which it has reported."""
    _log(f"{name}...")
    try:
        with measurement_environment() as environment:
            file = Path(environment["FALCONWEB_DATA"]) / "figures.json"
            command = [sys.executable, "-m", "perf", name, "--into", str(file)]
            answer = subprocess.run(command, cwd=BASE_DIR, env=environment, check=False)  # noqa: S603 - a module of this package
            return [PerfFigure(**plain) for plain in json.loads(file.read_text())] if answer.returncode == 0 else []
    except BrokerError as error:
        _log(str(error))
        return []


def measure_here(name: str, file: Path) -> int:
    """Measure in the environment of this process and write the figures; returns the exit status."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "falconweb.settings"
    django.setup()
    try:
        figures = importlib.import_module(f"perf.{name}").measure(_log)
    except CannotMeasureError as error:
        _log(f"{name} cannot be measured: {error}")
        return 1
    except ModuleNotFoundError as error:
        _log(f"{name} needs {error.name}, which comes with the libraries of the tests: run it as `make perf`.")
        return 1
    file.write_text(json.dumps([asdict(replace(figure, name=name)) for figure in figures]))
    return 0


def _log(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
