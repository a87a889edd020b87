"""`manage.py predict`: the time of a step on a topology, with its interval and its reasons."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from benchmarks.model import (
    Belief,
    ModelError,
    TopologyError,
    paper_rows,
    predict,
    prediction_json,
    prediction_text,
    prior,
    read_topology,
    refit,
    topology_schema,
)
from benchmarks.model.infragraph import infragraph
from benchmarks.model.left_out import HeldOutFigure, leave_one_out
from benchmarks.model.observations import judge_left_out, judge_observations
from benchmarks.model.reports import held_out_text, observation_json, observations_text, paper_text
from benchmarks.model.topology import Topology
from benchmarks.workloads.catalogue import spec_of
from benchmarks.workloads.validation import SpecError
from core.commands import ExitCodeCommand
from hostwire.training import Spec

USAGE, PROBLEMS, CANNOT = 2, 3, 4
EXIT_CODES = """\
exit codes:
  0  predicted
  2  wrong usage: a file that cannot be read, an unknown person
  3  the topology file or the run's settings have problems; each is reported with its field
  4  it cannot run there: too few devices, or too little memory, with the numbers

A topology file is JSON; `--schema` prints its schema, and docs/topologies has examples. Without --as, predictions use
only published rates, steps measured on an H100 and data sheets, and no database is read.
"""


class Command(ExitCodeCommand):
    help = "Predict the step time and PCIe traffic of a workload on a topology."
    exit_codes = EXIT_CODES
    requires_system_checks = ()  # it answers without a database

    def add_run_arguments(self, parser: CommandParser) -> None:
        """Add what names a run: its workload, its topology, and its settings."""
        parser.add_argument("workload", nargs="?", default="", help="name of the workload: resnet50, bert_large, ...")
        parser.add_argument("--topology", metavar="FILE", help="topology file, - for standard input")
        parser.add_argument("--preset", default="paper", help="tiny, paper or custom (default: paper)")
        parser.add_argument("--batch", help="samples a device and batch")
        parser.add_argument("--devices", help="number of devices (default: the preset's, or all of the topology)")
        parser.add_argument("--precision", help="fp32, fp16 or bf16")
        parser.add_argument("--strategy", help="single, dp, ddp or sharded")
        parser.add_argument(
            "--set", dest="given", metavar="FIELD=VALUE", action="append", default=[], help="any other setting"
        )

    def add_arguments(self, parser: CommandParser) -> None:
        self.add_run_arguments(parser)
        parser.add_argument("--as", dest="person", default="", help="learn from the runs that this person sees")
        parser.add_argument(
            "--paper", action="store_true", help="the published experiment: 5 workloads, 5 configurations"
        )
        parser.add_argument(
            "--check",
            action="store_true",
            help="each published figure, predicted from all others; with --paper, each observation",
        )
        parser.add_argument(
            "--infragraph", action="store_true", help="print the --topology as InfraGraph, for simulators of networks"
        )
        parser.add_argument("--schema", action="store_true", help="print the JSON Schema of topology files")
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *_args: Any, **options: Any) -> None:
        modes = [name for name in ("paper", "check", "infragraph", "schema") if options[name]]
        if (modes != ["paper", "check"] or options["workload"]) and len(modes) + bool(options["workload"]) != 1:
            self.stop(
                USAGE, "Name a workload, or give one of --paper, --check, both of them, --infragraph and --schema."
            )
        try:
            self._run("-".join(modes), options)
        except SpecError as error:
            self.stop(PROBLEMS, *(f"{field}: {sentence}" for field, sentence in error.errors.items()))
        except TopologyError as error:
            self.stop(PROBLEMS, f"{options['topology']}: {error.sentence}")
        except ModelError as error:
            self.stop(CANNOT, error.sentence)

    def _run(self, what: str, options: dict[str, Any]) -> None:
        if what == "schema":
            self.print_result(topology_schema())
        elif what == "infragraph":
            self.print_result(infragraph(self._topology(options)))
        elif what == "check":
            found = leave_one_out()
            self.print_result([_left_out_json(one) for one in found] if options["json"] else held_out_text(found))
        elif what == "paper-check":
            judged, found = judge_observations(self._paper_belief(options["person"])), leave_one_out()
            others = judge_left_out()
            if options["json"]:
                plain = [observation_json(one, others.get(one.observation.key)) for one in judged]
                self.print_result({"observations": plain, "left_out": [_left_out_json(one) for one in found]})
            else:
                self.print_result(f"{observations_text(judged, others)}\n\n{held_out_text(found)}")
        elif what == "paper":
            rows = paper_rows(self._paper_belief(options["person"]))
            self.print_result([row.for_json() for row in rows] if options["json"] else paper_text(rows))
        else:
            self._predict(options)

    def _predict(self, options: dict[str, Any]) -> None:
        topology = self._topology(options)
        spec = spec_of_options(options, topology, self.settings_given(options["given"]))
        found = predict(spec, topology, self._belief(options["person"]))
        self.print_result(prediction_json(found) if options["json"] else prediction_text(found))
        if found.fits:
            self.stop(CANNOT, *([found.fits] if options["json"] else []))

    def _topology(self, options: dict[str, Any]) -> Topology:
        if not options["topology"]:
            self.stop(USAGE, "Give the topology: --topology FILE.")
        return self.read_topology_file(options["topology"])

    def read_topology_file(self, name: str) -> Topology:
        return read_topology(self.read_file(name))

    def read_file(self, name: str) -> bytes:
        try:
            return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        except OSError as error:
            self.stop(USAGE, f"{name} cannot be read: {error.strerror or error}.")

    def settings_given(self, given: list[str]) -> dict[str, str]:
        settings = {}
        for pair in given:
            name, equals, value = pair.partition("=")
            if not equals or not name:
                self.stop(USAGE, f"--set takes FIELD=VALUE, not '{pair}'.")
            settings[name.removeprefix("options.")] = value
        return settings

    def _paper_belief(self, username: str) -> Belief | None:
        return self._belief(username) if username else None

    def _belief(self, username: str) -> Belief:
        if not username:
            return prior()
        from accounts.models import User
        from benchmarks.runs.results import observations

        person = User.objects.filter(is_active=True, username=username).first()
        if person is None:
            self.stop(USAGE, f"There is no active person '{username}'.")
        return refit(observations(person=person))

    def print_result(self, what: Any) -> None:
        self.stdout.write(what if isinstance(what, str) else json.dumps(what, indent=1))


def spec_of_options(options: dict[str, Any], topology: Topology, settings: dict[str, str]) -> Spec:
    """Return the specification, by default on as many of the preset's devices as are available."""
    named = {name: options[name] for name in ("batch", "devices", "precision", "strategy") if options[name] is not None}
    given: dict[str, Any] = {**named, **settings}
    workload, preset = options["workload"], options["preset"]
    if "devices" not in given:
        spec = spec_of(workload, preset, {**given, "strategy": "ddp"} if given.get("strategy") == "single" else given)
        there = len(topology.accelerators)
        if given.get("strategy") == "single":
            given["devices"] = 1
        elif spec.backend == "cuda" and 0 < there < spec.devices:
            given["devices"] = there
            if there == 1 and "strategy" not in given:
                given["strategy"] = "single"
    return spec_of(workload, preset, given)


def _left_out_json(one: HeldOutFigure) -> dict[str, Any]:
    return {
        "figure": one.name,
        "unit": {"step": "times" if one.is_ratio else "s", "traffic": "B/s"}.get(one.quantity, "share"),
        "bound": one.bound,
        "published": one.published,
        "measured": one.is_measured,
        "predicted": one.predicted,
        "error": one.error,
        "interval": [one.low, one.high],
        "inside": one.inside,
    }
