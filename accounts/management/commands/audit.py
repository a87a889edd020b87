"""`manage.py audit`: verify the audit log or an export of it, export it, accept a broken seal."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from accounts.audit import chain
from accounts.audit.actions import Action
from accounts.audit.exports import FORMATS, audit_lines, read_audit_lines
from accounts.audit.selectors import AUDIT_FILTERS, AuditFilter, filter_entries
from accounts.audit.services import audit_record
from accounts.audit.verification import AUDIT_LOG_TARGET, audit_reseal, audit_verify
from core.commands import ExitCodeCommand
from core.errors import Invalid

BROKEN, USAGE = 1, 2
EXIT_CODES = """\
exit codes of verify:
  0  the log is whole
  1  it is broken; the sentence names the first entry that is, and what is wrong with it
  2  wrong usage, or a file that cannot be read

A JSON Lines export can be verified without the database: see docs/operate.md.
"""


class Command(ExitCodeCommand):
    """Verifies and exports the audit log."""

    help = "Verify or export the audit log."
    exit_codes = EXIT_CODES

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the arguments."""
        verbs = parser.add_subparsers(dest="verb", required=True)
        verify = verbs.add_parser("verify", help="check every entry, and record the result in the log")
        verify.add_argument(
            "--expect", type=sequence_and_digest, help="SEQUENCE:DIGEST of an entry that was noted elsewhere"
        )
        verify.add_argument("--file", type=Path, help="verify an export as JSON Lines, without the database")
        verify.add_argument("--gaps", action="store_true", help="the file is a filtered export")
        export = verbs.add_parser("export", help="write entries, oldest first")
        export.add_argument("--as", dest="format", choices=sorted(FORMATS), default="jsonl")
        export.add_argument("--output", type=Path, help="file to write; the terminal when not given")
        for name in AUDIT_FILTERS:
            export.add_argument(f"--{name.replace('_', '-')}", default="", help="filters, as on the page")
        reseal = verbs.add_parser("reseal", help="accept a broken seal or a truncated log")
        reseal.add_argument("--reason", required=True, help="the reason, such as: the backup of 2 March was restored")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Run, and exit with the code."""
        run: Callable[[dict[str, Any]], None] = getattr(self, f"_{options['verb']}")
        try:
            run(options)
        except Invalid as error:
            self.stderr.write(" ".join([error.sentence, *error.details.get("errors", {}).values()]))
            sys.exit(USAGE)
        except (OSError, UnicodeDecodeError) as error:
            self.stderr.write(f"{error}.")
            sys.exit(USAGE)

    def _verify(self, options: dict[str, Any]) -> None:
        if options["file"]:
            self._verify_file(options["file"], gaps=options["gaps"])
            return
        verdict = audit_verify(actor=None, expected=options["expect"])
        if verdict.broken is not None:
            self.stderr.write(verdict.sentence)
            sys.exit(BROKEN)
        self.stdout.write(verdict.sentence)
        self.stdout.write(f"Note its end elsewhere to compare with it later: {verdict.entries}:{verdict.digest}")

    def _verify_file(self, path: Path, *, gaps: bool) -> None:
        count = last = 0

        def counted(records: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
            nonlocal count, last
            for record in records:
                count, last = count + 1, record["sequence"]
                yield record

        with path.open(encoding="utf-8") as file:
            records = counted(read_audit_lines(file))
            first = next(records, None)
            if first is None:
                raise Invalid("The file has no entries.")
            every = itertools.chain([first], records)
            found = chain.chain_breaks(every, first=first["sequence"], previous=str(first["previous"]), gaps=gaps)
            broken = next(found, None)
        if broken is not None:
            self.stderr.write(broken.sentence)
            sys.exit(BROKEN)
        self.stdout.write(f"All {count} of the file are whole: entries {first['sequence']} to {last}.")

    def _export(self, options: dict[str, Any]) -> None:
        rows = filter_entries(AuditFilter.of({name: options[name] or "" for name in AUDIT_FILTERS}))
        audit_record(
            action=Action.AUDIT_EXPORT,
            actor=None,
            target=AUDIT_LOG_TARGET,
            after={"as": options["format"], **{name: options[name] for name in AUDIT_FILTERS if options[name]}},
        )
        if options["output"] is None:
            for block in audit_lines(rows, options["format"]):
                self.stdout.write(block, ending="")
            return
        with options["output"].open("w", encoding="utf-8", newline="") as file:
            file.writelines(audit_lines(rows, options["format"]))

    def _reseal(self, options: dict[str, Any]) -> None:
        if not options["reason"].strip():
            raise Invalid("Give a reason.")
        audit_reseal(actor=None, reason=options["reason"].strip())
        self.stdout.write("Accepted, with the reason in the log.")


def sequence_and_digest(text: str) -> tuple[int, str]:
    """Return the number and digest of an entry; raises the error argparse turns into usage."""
    sequence, _, digest = text.partition(":")
    if not (sequence.isascii() and sequence.isdecimal()) or len(digest) != len(chain.GENESIS_DIGEST):
        raise argparse.ArgumentTypeError("a number and a digest are needed, such as 17:9f86d0...")
    return int(sequence), digest
