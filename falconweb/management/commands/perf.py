"""How fast the live path is on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from falconweb.config import BASE_DIR
from falconweb.launch.broker import BrokerError
from falconweb.perf.figures import Figure, table
from falconweb.perf.place import place

NAMES = ("fanout", "poll", "attach", "plan", "apply", "ingest", "export", "history", "predict", "recommend", "browser")


class Command(BaseCommand):
    """Runs measurements, each in a place of its own, and keeps what they found in perf.json of the data folder."""

    help = "Measure the live path: a table on the screen, perf.json in the data folder. It touches no site's data."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take names and the form of the output."""
        parser.add_argument(
            "names", nargs="*", metavar="NAME", help=f"what to measure: {', '.join(NAMES)} (default: all)"
        )
        parser.add_argument("--json", action="store_true", help="print what perf.json holds instead of a table")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run."""
        names = options["names"] or NAMES
        if unknown := [name for name in names if name not in NAMES]:
            raise CommandError(f"There is no measurement '{unknown[0]}'; there are {', '.join(NAMES)}.")
        figures: list[Figure] = []
        failed = []
        for name in names:
            found = self._measure(name)
            figures += found
            if not found:
                failed.append(name)
        written = json.dumps([figure.for_json() for figure in figures], indent=1)
        if figures:
            (settings.CONFIG.data / "perf.json").write_text(written + "\n")
        self.stdout.write(written if options["json"] else table(figures))
        if failed:
            raise CommandError(f"Not measured: {', '.join(failed)}.")

    def _measure(self, name: str) -> list[Figure]:
        self.stderr.write(f"{name}...")
        try:
            with place() as environment:
                file = Path(environment["FALCONWEB_DATA"]) / "figures.json"
                command = [sys.executable, "-m", "falconweb.perf", name, str(file)]
                answer = subprocess.run(command, cwd=BASE_DIR, env=environment, check=False)  # noqa: S603 - our own
                return [Figure(**plain) for plain in json.loads(file.read_text())] if answer.returncode == 0 else []
        except BrokerError as error:
            raise CommandError(str(error)) from error
