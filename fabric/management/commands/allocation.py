"""`manage.py allocation`: export attachments to a file, and import them through a plan."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, Literal

from django.core.management.base import CommandParser

from accounts.models import Tenant, User
from core.commands import ExitCodeCommand
from core.errors import FalconWebError, NotFound
from fabric.allocation.document import FORMATS
from fabric.allocation.reader import MAX_FILE_BYTES, AllocationFile
from fabric.allocation.rules import MAPPING_MODES, AllocationReport, ReportLine
from fabric.allocation.services import allocation_check, allocation_export, allocation_plan
from fabric.inventory.models import Chassis
from fabric.operations.models import Plan
from fabric.plans.services import plan_apply

OK, USAGE, PROBLEMS, MISFITS, REFUSED, NOT_DONE = 0, 2, 3, 4, 5, 6
EVERY = 0.5  # seconds between two reads of a running plan
EXIT_CODES = """\
exit codes:
  0  done: exported, checked with --dry-run and it fits, a plan created, or nothing to change
  2  wrong usage: a file that cannot be read, an unknown user, chassis or tenant
  3  the file has problems; each is listed with its line
  4  something of the file does not fit here, and --partial was not given
  5  the site refuses it: rules, permissions, or a concurrent change
  6  the plan was applied, and did not succeed

Everything is done as the user of --as, with the visibility and permissions of that user on the pages. An import creates
a plan and changes nothing, unless --wait applies it.
"""


class Command(ExitCodeCommand):
    """Exports and imports allocation files."""

    help = "Export or import an allocation file."
    exit_codes = EXIT_CODES

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the arguments."""
        doings = parser.add_subparsers(dest="doing", required=True)
        export = doings.add_parser("export", help="write which device is attached to which host")
        scope = export.add_mutually_exclusive_group()
        scope.add_argument("--chassis", default="", help="name of the only chassis to export")
        scope.add_argument("--tenant", default="", help="name of the tenant whose parts to export")
        export.add_argument("--format", choices=FORMATS, default="json")
        export.add_argument("--output", type=Path, help="file to write; standard output by default")
        entry = doings.add_parser("import", help="create a plan from a file")
        entry.add_argument("file", help="file to read, - for standard input")
        entry.add_argument(
            "--by", choices=list(MAPPING_MODES), default="exact", help="how to map entries that are not the same here"
        )
        entry.add_argument("--onto", default="", help="name of the chassis to map a file with one chassis to")
        entry.add_argument("--partial", action="store_true", help="leave out entries that do not fit")
        entry.add_argument("--dry-run", action="store_true", help="check the file, and create nothing")
        entry.add_argument("--json", action="store_true", help="print the report as one JSON object")
        entry.add_argument("--wait", action="store_true", help="apply the plan, and wait until it has ended")
        for one in (export, entry):
            one.add_argument("--as", dest="person", required=True, help="name of the user who does it")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Run, and exit with the code."""
        try:
            person = _named(User.objects.filter(is_active=True), "username", options["person"], "active person")
            code = self._export(person, options) if options["doing"] == "export" else self._import(person, options)
        except NotFound as error:
            self.stderr.write(error.sentence)
            sys.exit(USAGE)
        except FalconWebError as error:
            self.stderr.write(error.sentence)
            sys.exit(REFUSED)
        except OSError as error:
            self.stderr.write(f"{error.filename} cannot be used: {error.strerror}.")
            sys.exit(USAGE)
        if code:
            sys.exit(code)

    def _export(self, person: User, options: dict[str, Any]) -> int:
        seen = Chassis.objects.visible_to(person)
        chassis = _named(seen, "name", options["chassis"], "chassis").pk if options["chassis"] else None
        tenants = Tenant.objects.all()
        tenant = _named(tenants, "name", options["tenant"], "tenant").pk if options["tenant"] else None
        text = allocation_export(person=person, chassis_id=chassis, tenant_id=tenant).text(options["format"])
        if options["output"]:
            options["output"].write_bytes(text.encode())
        else:
            self.stdout.write(text, ending="")
        return OK

    def _import(self, person: User, options: dict[str, Any]) -> int:
        onto = None
        if options["onto"]:
            onto = _named(Chassis.objects.visible_to(person), "name", options["onto"], "chassis").pk
        checked = allocation_check(
            person=person,
            raw=_bytes(options["file"]),
            format=_format(options["file"]),
            by=options["by"],
            onto=onto,
        )
        report = checked.report
        if report is None:
            return self._print_problems(checked, as_json=options["json"])
        stuck = bool(report.misfits) and not options["partial"]
        plan = None
        if not options["dry_run"] and not stuck:
            name = "" if options["file"] == "-" else Path(options["file"]).name
            plan = allocation_plan(person=person, checked=checked, name=name, partial=options["partial"])
            if plan is not None and options["wait"]:
                plan = self._carry_out(person, plan)
        self._print_report(report, plan, options)
        if stuck:
            return MISFITS
        return NOT_DONE if plan is not None and plan.state not in {Plan.State.DRAFT, Plan.State.DONE} else OK

    def _print_problems(self, file: AllocationFile, *, as_json: bool) -> int:
        if as_json:
            told = {"problems": [one.as_json() for one in file.problems], "more_problems": file.more}
            self.stdout.write(json.dumps(told, indent=2))
            return PROBLEMS
        for one in file.problems:
            place = f"line {one.place.line}, column {one.place.column}: " if one.place.line else ""
            where = f" ({one.place.path})" if one.place.path else ""
            self.stderr.write(f"{place}{one.sentence}{where}")
        if file.more:
            self.stderr.write("There are more problems than these.")
        return PROBLEMS

    def _print_report(self, report: AllocationReport, plan: Plan | None, options: dict[str, Any]) -> None:
        if options["json"]:
            made = {"plan_id": plan and str(plan.pk), "plan_state": plan and plan.state}
            self.stdout.write(json.dumps({**report.as_json(), **made}, indent=2))
            return
        counts = f"{len(report.exact)} the same, {len(report.mapped)} mapped, {len(report.misfits)} not fitting"
        self.stdout.write(f"{counts}, {len(report.changes)} with changes")
        for title, lines, words in (
            ("does not fit", report.misfits, "sentence"),
            ("mapped", report.mapped, "sentence"),
            ("changes", report.changes, "change"),
            ("to know", report.notes, "note"),
        ):
            self._list(title, lines, words)
        if plan is not None:
            self.stdout.write(f"plan {plan.pk}: {plan.title}, {plan.get_state_display().lower()}")
            if plan.sentence:
                self.stdout.write(plan.sentence)
        elif report.is_empty:
            self.stdout.write("nothing to change")

    def _list(self, title: str, lines: tuple[ReportLine, ...], words: str) -> None:
        for line in lines:
            text = f"{title}, line {line.place.line}: {line.what}: {getattr(line, words)}"
            self.stdout.write("".join(one if one.isprintable() else "?" for one in text))

    def _carry_out(self, person: User, plan: Plan) -> Plan:
        """Apply a plan and wait until it has ended, or stopped for a decision."""
        plan_apply(person=person, plan=plan)
        while True:
            plan = Plan.objects.get(pk=plan.pk)
            if plan.is_final or plan.state == Plan.State.STOPPED:
                return plan
            time.sleep(EVERY)


def _named(rows: Any, field: str, name: str, what: str) -> Any:
    row = rows.filter(**{field: name}).first()
    if row is None:
        raise NotFound(f"There is no {what} '{name}'.")
    return row


def _bytes(file: str) -> bytes:
    """Return the file, or enough of it to show that it is too large."""
    if file == "-":
        return sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
    with Path(file).open("rb") as stream:
        return stream.read(MAX_FILE_BYTES + 1)


def _format(file: str) -> Literal["", "json", "yaml"]:
    ending = Path(file).suffix.lower()
    return "json" if ending == ".json" else "yaml" if ending in {".yaml", ".yml"} else ""
