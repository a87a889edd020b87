"""`python -m perf [NAME ...] [--json]`: measures the live path, prints a table, writes perf.json to the data folder.

`--short` measures a little of what is compared with something else in the same run, in under two minutes on two idle
cores, and names ratios that are more than a third worse than on record (perf.ratios): it measures those once more, and
fails where one is still twice as bad.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path

import django

from falconweb.config import BASE_DIR, Config
from falconweb.launch.broker import BrokerError
from perf import ratios
from perf.environment import CannotMeasureError, measurement_environment
from perf.figures import PerfFigure, table

NAMES = (
    "fanout", "poll", "attach", "plan", "apply", "ingest", "export", "history", "predict", "recommend", "browser",
    "pages", "rest", "busy",
)  # fmt: skip
# Each has SHORT: what its constants are then.
SHORT_NAMES = ("plan", "export", "poll")


def main(arguments: list[str] | None = None) -> int:
    """Run the named measurements, each in its own process and data folder; returns the exit status.

    A site's data are not changed, except the results in perf.json of its data folder.
    """
    parser = argparse.ArgumentParser(prog="python -m perf", description="Measure the live path.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", choices=[[], *NAMES], help=f"one of {', '.join(NAMES)} (default: all)"
    )
    parser.add_argument("--json", action="store_true", help="print the contents of perf.json instead of a table")
    parser.add_argument("--short", action="store_true", help="compare short measurements with the ratios on record")
    parser.add_argument("--record", action="store_true", help="with --short: make its ratios the record")
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)  # of the process of one measurement
    options = parser.parse_args(arguments)
    if options.into:
        return measure_here(options.names[0], options.into, short=options.short)
    if options.short:
        return measure_short(record=options.record)
    figures, failed = measure_all(options.names or NAMES)
    written = json.dumps([figure.for_json() for figure in figures], indent=1)
    if figures:
        data = Config.from_environment().data
        data.mkdir(parents=True, exist_ok=True)
        (data / "perf.json").write_text(written + "\n")
    print(written if options.json else table(figures))
    if failed:
        _log(f"Not measured: {', '.join(failed)}.")
    return 1 if failed else 0


def measure_all(names: Iterable[str], *, short: bool = False) -> tuple[list[PerfFigure], list[str]]:
    """Return the figures of measurements, and the names of those that failed."""
    found = {name: measure(name, short=short) for name in names}
    return [one for figures in found.values() for one in figures], [name for name in found if not found[name]]


def measure_short(*, record: bool) -> int:
    """Compare short measurements with the ratios on record, or make them the record; returns the exit status."""
    figures, failed = measure_all(SHORT_NAMES, short=True)
    if record:
        ratios.write_record(figures)
    before = ratios.read_record()
    worse = ratios.losses(figures, before)
    if worse:
        _log(f"{len(worse)} ratios are worse than on record: once more.")
        again, _ = measure_all(dict.fromkeys(one.name for one in figures if ratios.key(one) in worse), short=True)
        figures += again
        worse = ratios.losses(figures, before)
    print(table(figures))
    for name, loss in worse.items():
        _log(f"{loss:.1f} times as bad as on record: {name}")
    failed += ratios.missing(figures, before)
    if failed:
        _log(f"Not measured: {', '.join(failed)}.")
    return 1 if failed or any(loss > ratios.FAILED for loss in worse.values()) else 0


def measure(name: str, *, short: bool = False) -> list[PerfFigure]:
    """Return the figures of one measurement, none where it failed, which it has reported."""
    _log(f"{name}...")
    try:
        with measurement_environment() as environment:
            file = Path(environment["FALCONWEB_DATA"]) / "figures.json"
            command = [sys.executable, "-m", "perf", name, "--into", str(file), *["--short"] * short]
            answer = subprocess.run(command, cwd=BASE_DIR, env=environment, check=False)  # noqa: S603 - a module of this package
            return [PerfFigure(**plain) for plain in json.loads(file.read_text())] if answer.returncode == 0 else []
    except BrokerError as error:
        _log(str(error))
        return []


def measure_here(name: str, file: Path, *, short: bool) -> int:
    """Measure in the environment of this process and write the figures; returns the exit status."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "falconweb.settings"
    django.setup()
    try:
        module = importlib.import_module(f"perf.{name}")
        if short:
            vars(module).update(module.SHORT)
        figures = module.measure(_log)
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
