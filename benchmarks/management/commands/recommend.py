"""`manage.py recommend`: a composition for a training job, from a pool in a file or the resources of a person."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from django.core.management.base import CommandParser

from accounts.models import User
from benchmarks.model.calibration import Observation
from benchmarks.recommend.answer import Recommendation, recommend
from benchmarks.recommend.explanation import format_share
from benchmarks.recommend.pool import PoolError, RecommendationPool, read_pool
from benchmarks.recommend.reports import amount_text, recommendation_json
from benchmarks.recommend.request import OBJECTIVE_LABELS, parse_recommendation_request
from benchmarks.recommend.selectors import recommendation_pool
from benchmarks.recommend.study import RUNS_A_TRIAL, TRUTHS, Trial, run_study
from benchmarks.runs.results import observations
from core.commands import ExitCodeCommand
from core.errors import Invalid

OK, USAGE, PROBLEMS, IMPOSSIBLE = 0, 2, 3, 4
EXIT_CODES = """\
exit codes:
  0  answered, also where nothing is recommended yet
  2  wrong usage: a file that cannot be read, an unknown person
  3  the pool file or the request has problems; each is reported with its field
  4  impossible: the conflicting constraint is named

With --pool no database is read, and the answer uses only published rates and data sheets. docs/recommend.md describes
the format of a pool file.
"""


class Command(ExitCodeCommand):
    """Recommends a composition, or measures by a study how good recommendations are."""

    help = "Recommend a composition for a training job."
    exit_codes = EXIT_CODES
    requires_system_checks = ()  # with a file it answers without a database

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("workload", nargs="?", default="", help="name of the workload: resnet50, bert_large, ...")
        parser.add_argument("--pool", metavar="FILE", help="pool file: hosts, drawers and devices to choose from")
        parser.add_argument("--as", dest="person", default="", help="choose from what this person may use now")
        parser.add_argument("--preset", default="paper", help="tiny, paper or custom (default: paper)")
        parser.add_argument("--objective", default="time", help=f"{', '.join(OBJECTIVE_LABELS)} (default: time)")
        parser.add_argument("--samples", default="", help="how much the job trains on (default: a million)")
        parser.add_argument("--epochs", default="", help="how often (default: once)")
        parser.add_argument("--precision", action="append", default=[], help="that may be tried; more than once")
        parser.add_argument("--strategy", action="append", default=[], help="that may be tried; more than once")
        parser.add_argument("--batch", action="append", default=[], help="a GPU, that may be tried; more than once")
        parser.add_argument("--global-batch", default="", help="over all GPUs")
        parser.add_argument(
            "--limit", metavar="NAME=VALUE", action="append", default=[],
            help="a constraint as the API has it: most_devices=8, most_hours=12, storage=any, one_model=true",
        )  # fmt: skip
        parser.add_argument("--study", action="store_true", help="regret over random pools and truths, five runs each")
        parser.add_argument("--truth", choices=TRUTHS, default=TRUTHS[0], help="of the study (default: events)")
        parser.add_argument("--trials", type=int, default=100, help="of the study (default: 100)")
        parser.add_argument("--seed", type=int, default=1, help="of the study (default: 1)")
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *_args: Any, **options: Any) -> None:
        if options["study"]:
            self._study(options)
        if not options["workload"]:
            self.stop(USAGE, "Name a workload, or request the study with --study.")
        pool, known = self._pool(options)
        try:
            answer = recommend(pool, parse_recommendation_request(self._plain(options), pool), known)
        except Invalid as error:
            errors = error.details.get("errors") or {"request": error.sentence}
            self.stop(PROBLEMS, *(f"{name}: {words}" for name, words in errors.items()))
        self.stdout.write(json.dumps(recommendation_json(pool, answer), indent=1) if options["json"] else _text(answer))
        self.stop(IMPOSSIBLE if answer.impossible is not None else OK)

    def _pool(self, options: dict[str, Any]) -> tuple[RecommendationPool, list[Observation]]:
        if bool(options["pool"]) == bool(options["person"]):
            self.stop(USAGE, "Give either --pool FILE, or --as PERSON.")
        if options["pool"]:
            try:
                return read_pool(Path(options["pool"]).read_bytes()), []
            except OSError as error:
                self.stop(USAGE, f"{options['pool']} cannot be read: {error.strerror}.")
            except PoolError as error:
                self.stop(PROBLEMS, str(error))
        person = User.objects.filter(username=options["person"]).first()
        if person is None:
            self.stop(USAGE, f"There is no person '{options['person']}'.")
        return recommendation_pool(person), observations(person)

    def _plain(self, options: dict[str, Any]) -> dict[str, Any]:
        limits: dict[str, Any] = {}
        for one in options["limit"]:
            name, is_given, value = one.partition("=")
            if not is_given:
                self.stop(USAGE, f"'{one}' is not a constraint: write NAME=VALUE.")
            limits[name] = value.split(",") if name in {"models", "host_ids"} else value
        plain: dict[str, Any] = {
            "precisions": options["precision"],
            "strategies": options["strategy"],
            "batches": options["batch"],
            "limits": limits,
        }
        names = ("workload", "preset", "objective", "samples", "epochs", "global_batch")
        return plain | {name: options[name] for name in names if options[name]}

    def _study(self, options: dict[str, Any]) -> NoReturn:
        if options["trials"] < 1:
            self.stop(USAGE, "A study has one trial at least.")
        summary = summary_of(run_study(options["trials"], seed=options["seed"], truth=options["truth"]))
        if options["json"]:
            self.stdout.write(json.dumps(summary, indent=1))
            raise SystemExit(OK)
        lines = [
            f"{summary['trials']} trials, each a random pool, workload and truth ({options['truth']}), a median of",
            f"{summary['candidates']} candidates; true regret of what is recommended, composing time included:",
            "",
            f"{'runs':>4} {'median':>12} {'95th perc.':>12} {'worst':>12} {'the best':>12}",
        ]
        lines += [
            f"{after['runs']:>4} {format_share(after['median']):>12} {format_share(after['percentile_95']):>12} "
            f"{format_share(after['worst']):>12} {format_share(after['best']):>12}"
            for after in summary["after"]
        ]
        self.stdout.write("\n".join(lines))
        raise SystemExit(OK)


def summary_of(trials: list[Trial]) -> dict[str, Any]:
    """Return the summary of a study: regrets as shares of the true best cost, by the number of runs."""
    regrets = np.array([one.regrets for one in trials])
    return {
        "trials": len(trials),
        "runs": RUNS_A_TRIAL,
        "candidates": int(np.median([one.candidates for one in trials])),
        "provenance": "simulated",
        "after": [
            {
                "runs": runs,
                "median": round(float(np.median(regrets[:, runs])), 4),
                "percentile_95": round(float(np.quantile(regrets[:, runs], 0.95)), 4),
                "worst": round(float(regrets[:, runs].max()), 4),
                "best": round(float((regrets[:, runs] <= 0.0).mean()), 4),
            }
            for runs in range(regrets.shape[1])
        ],
    }


def _text(answer: Recommendation) -> str:
    lines = [answer.sentence]
    for rank, line in enumerate(answer.lines, 1):
        lines += [
            "",
            f"{rank}. {line.words}",
            f"   {amount_text(answer, line.objective)} with {line.variant}",
            f"   best with {format_share(line.probability)}, expected regret {format_share(line.regret)}, {line.basis}",
            *(f"   - {one}" for one in line.reasons),
        ]
    if answer.deciding is not None:
        lines += ["", answer.deciding.sentence]
    if answer.impossible is not None:
        lines += [f"- without {name}: {words}" for name, words in answer.impossible.relaxed]
    return "\n".join([*lines, "", *(f"- {one}" for one in (*answer.notes, *answer.unfit[:10])), answer.search_words])
