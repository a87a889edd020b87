"""`python -m perf [NAME ...] [--json]`: measures the live path, prints a table, writes perf.json to the data folder."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from falconweb.config import BASE_DIR, Config
from falconweb.launch.broker import BrokerError
from perf.environment import measurement_environment
from perf.figures import PerfFigure, table

NAMES = ("fanout", "poll", "attach", "plan", "apply", "ingest", "export", "history", "predict", "recommend", "browser")


def main(arguments: list[str] | None = None) -> int:
    """Run the named measurements, each in its own process and data folder; returns the exit status.

    A site's data are not changed, except the results in perf.json of its data folder.
    """
    parser = argparse.ArgumentParser(prog="python -m perf", description="Measure the live path.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", choices=[[], *NAMES], help=f"one of {', '.join(NAMES)} (default: all)"
    )
    parser.add_argument("--json", action="store_true", help="print the contents of perf.json instead of a table")
    options = parser.parse_args(arguments)
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
        print(f"Not measured: {', '.join(failed)}.", file=sys.stderr)
    return 1 if failed else 0


def measure(name: str) -> list[PerfFigure]:
    """Return the figures of one measurement, none where it failed, which it has reported."""
    print(f"{name}...", file=sys.stderr)
    try:
        with measurement_environment() as environment:
            file = Path(environment["FALCONWEB_DATA"]) / "figures.json"
            command = [sys.executable, "-m", "perf.measurement", name, str(file)]
            answer = subprocess.run(command, cwd=BASE_DIR, env=environment, check=False)  # noqa: S603 - a module of this package
            return [PerfFigure(**plain) for plain in json.loads(file.read_text())] if answer.returncode == 0 else []
    except BrokerError as error:
        print(error, file=sys.stderr)
        return []


if __name__ == "__main__":
    sys.exit(main())
