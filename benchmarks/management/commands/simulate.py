"""`manage.py simulate`: steps of a workload on a topology, played by events; and the simulation beside the model."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandParser

from benchmarks.management.commands.predict import CANNOT, PROBLEMS, USAGE, spec_of_options
from benchmarks.management.commands.predict import Command as PredictCommand
from benchmarks.model import ModelError, TopologyError, fits
from benchmarks.simulation import simulate_step
from benchmarks.simulation.chakra import TraceError, read_trace
from benchmarks.simulation.comparison import compare
from benchmarks.simulation.reports import comparison_json, comparison_text, simulation_text, trace_text
from benchmarks.simulation.trace import simulate_trace
from benchmarks.workloads.validation import SpecError

EXIT_CODES = """\
exit codes:
  0  simulated
  2  wrong usage: a file that cannot be read
  3  the topology file, the trace or the run's settings have problems; each is reported with its field
  4  it cannot run there: too few devices, or too little memory, with the numbers

No database is read. `--compare 200` compares the simulation with the performance model on random compositions.
"""
MAX_STEPS, MAX_COMPARED = 1000, 5000


class Command(PredictCommand):
    """Takes workloads and topology files as `manage.py predict` does."""

    help = "Simulate steps of a workload on a topology, alone or beside other runs."
    exit_codes = EXIT_CODES

    def add_arguments(self, parser: CommandParser) -> None:
        self.add_run_arguments(parser)
        parser.add_argument("--steps", type=int, default=20, help="steps to simulate (default: 20)")
        parser.add_argument("--seed", type=int, default=0, help="seed of all that varies (default: 0)")
        parser.add_argument("--cold", action="store_true", help="read the samples from the drive, as in a first pass")
        parser.add_argument(
            "--beside", metavar="FILE", action="append", default=[], help="the same workload runs there meanwhile"
        )
        parser.add_argument(
            "--trace",
            metavar="FILE",
            help="play a trace of Chakra on all devices, or on --devices, in place of a workload",
        )
        parser.add_argument("--compare", metavar="N", type=int, default=0, help="compare N random compositions")
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *_args: Any, **options: Any) -> None:
        if sum(bool(options[name]) for name in ("compare", "trace", "workload")) != 1:
            self.stop(USAGE, "Name a workload, or give --trace or --compare.")
        if not (1 <= options["steps"] <= MAX_STEPS and 0 <= options["compare"] <= MAX_COMPARED):
            self.stop(USAGE, f"--steps takes 1 to {MAX_STEPS}, --compare 1 to {MAX_COMPARED}.")
        if options["compare"]:
            cells = compare(options["compare"], options["seed"])
            self.print_result(comparison_json(cells) if options["json"] else comparison_text(cells))
            return
        try:
            if options["trace"]:
                self._play(options)
            else:
                self._simulate(options)
        except TraceError as error:
            self.stop(PROBLEMS, f"{options['trace']}: {error.sentence}")
        except SpecError as error:
            self.stop(PROBLEMS, *(f"{field}: {sentence}" for field, sentence in error.errors.items()))
        except TopologyError as error:
            self.stop(PROBLEMS, error.sentence)
        except ModelError as error:
            self.stop(CANNOT, error.sentence)

    def _play(self, options: dict[str, Any]) -> None:
        topology = self._topology(options)
        devices = str(options["devices"] or len(topology.accelerators))
        if not devices.isdecimal():
            self.stop(USAGE, "--devices takes a whole number.")
        trace = read_trace(self.read_file(options["trace"]))
        found = simulate_trace(trace, topology, int(devices))
        self.print_result(asdict(found) if options["json"] else trace_text(trace, found))

    def _simulate(self, options: dict[str, Any]) -> None:
        settings = self.settings_given(options["given"])
        topology = self._topology(options)
        others = [self.read_topology_file(name) for name in options["beside"]]
        spec = spec_of_options(options, topology, settings)
        found = simulate_step(
            spec,
            topology,
            seed=options["seed"],
            steps=options["steps"],
            neighbours=[(spec_of_options(options, other, settings), other) for other in others],
            cold=options["cold"],
        )
        self.print_result(asdict(found) if options["json"] else simulation_text(spec, found))
        if problem := fits(spec, topology):
            self.stop(CANNOT, problem)
