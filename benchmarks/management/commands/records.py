"""`manage.py records`: export runs as records, and import files of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from accounts.models import User
from benchmarks.records.formats import FORMATS
from benchmarks.records.import_files import MAX_DISK_BYTES, ImportFile
from benchmarks.records.services import (
    EXPORT_KINDS,
    ExportFilter,
    records_check,
    records_download,
    records_import,
)
from core.commands import ExitCodeCommand
from core.errors import FalconWebError

USAGE, PROBLEMS, REFUSED = 2, 3, 5


class Command(ExitCodeCommand):
    """Exports and imports records of runs."""

    help = "Export runs as records, or import a file of them or the output of a tool."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        export = actions.add_parser("export", help="write the records of runs that have ended")
        export.add_argument("--run", action="append", default=[], help="id of a run; may come several times")
        export.add_argument("--sweep", default="", help="id of a sweep")
        export.add_argument("--workload", default="")
        export.add_argument("--kind", choices=list(EXPORT_KINDS), default="jsonl")
        export.add_argument("--output", type=Path, help="file to write (default: standard output)")
        entry = actions.add_parser("import", help="import runs from a file, all or nothing")
        entry.add_argument("file", type=Path)
        entry.add_argument("--kind", choices=list(FORMATS), default="", help="format of the file (default: detected)")
        entry.add_argument("--dry-run", action="store_true", help="check the file without importing it")
        for one in (export, entry):
            one.add_argument("--as", dest="person", required=True, help="name of the acting person")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Run; exits with 2 for wrong usage, 3 for a file with problems, 5 if the site refuses it."""
        person = User.objects.filter(is_active=True, username=options["person"]).first()
        if person is None:
            self.stop(USAGE, f"There is no active person '{options['person']}'.")
        try:
            if options["action"] == "export":
                self._export(person, options)
            else:
                self._import(person, options)
        except FalconWebError as error:
            self.stop(REFUSED, error.sentence)
        except OSError as error:
            self.stop(USAGE, f"{error.filename} cannot be used: {error.strerror}.")

    def _export(self, person: User, options: dict[str, Any]) -> None:
        chosen = ExportFilter(runs=tuple(options["run"]), sweep=options["sweep"], workload=options["workload"])
        answer = records_download(person=person, wanted=chosen, kind=options["kind"])
        if options["output"] is None:
            for part in answer:
                self.stdout.write(part.decode(), ending="")
            return
        with options["output"].open("wb") as file:
            file.writelines(answer)

    def _import(self, person: User, options: dict[str, Any]) -> None:
        path: Path = options["file"]
        content = ImportFile(path=path, name=path.name)
        checked = records_check(person=person, content=content, format=options["kind"], largest=MAX_DISK_BYTES)
        if checked.problems:
            self.stop(PROBLEMS, *(one.words for one in checked.problems), "Nothing was imported.")
        self.stdout.write(f"{checked.format_name}: {len(checked.runs)} records, {len(checked.new)} of them new.")
        for note in checked.notes:
            self.stdout.write(note)
        if not options["dry_run"]:
            imported = records_import(person=person, content=content, format=checked.format, largest=MAX_DISK_BYTES)
            for run, is_new in imported.runs:
                self.stdout.write(f"{run.pk}  {'imported' if is_new else 'here already'}  {run.title}")
