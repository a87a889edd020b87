"""The audit log as a file: JSON Lines, verifiable with the algorithm of `chain`, and CSV for spreadsheets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from django.db.models import QuerySet

from accounts.audit import chain
from accounts.audit.actions import Action
from accounts.audit.models import AuditEntry, columns
from accounts.audit.selectors import AuditFilter, find_entries
from accounts.audit.services import Target, audit_record
from accounts.models import User
from core.downloads import Download, csv_table
from core.errors import Invalid
from core.language import _

FORMATS = {"csv": "text/csv; charset=utf-8", "jsonl": "application/jsonl; charset=utf-8"}
EXPORT_BATCH_ROWS = 1000


def audit_export(*, by: User, filters: AuditFilter, kind: str) -> Download:
    """Return the matching entries as a file, and record the export. Raises Forbidden, and Invalid."""
    rows = find_entries(by, filters)
    if kind not in FORMATS:
        raise Invalid(
            _("'{kind}' is not an export format.", kind=kind[:20]),
            errors={"as": _("One of {names}.", names=", ".join(FORMATS))},
        )
    audit_record(
        action=Action.AUDIT_EXPORT,
        actor=by,
        target=Target(kind="audit", name="The audit log"),
        after={"as": kind, "filter": filters.description()},
    )
    answer = Download(audit_lines(rows, kind), content_type=FORMATS[kind])
    answer["Content-Disposition"] = f'attachment; filename="audit.{kind}"'
    return answer


def audit_lines(rows: QuerySet[AuditEntry], kind: str) -> Iterator[str]:
    """Yield the lines of entries as CSV or JSON Lines, oldest first, with a query per block."""
    names = list(columns())
    if kind == "csv":
        yield from csv_table(names, [])
    last = 0
    while block := list(rows.order_by("sequence").filter(sequence__gt=last)[:EXPORT_BATCH_ROWS]):
        last = block[-1].sequence
        if kind == "csv":
            yield "".join(list(csv_table(names, (_cells(row, names) for row in block)))[1:])
        else:
            yield "".join(f"{chain.canonical(row.record()).decode()}\n" for row in block)


def read_audit_lines(texts: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the entries of a file of JSON Lines; raises Invalid with the number of an invalid line."""
    for number, text in enumerate(texts, 1):
        if not text.strip():
            continue
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise Invalid(f"Line {number} is not JSON.") from error
        whole = isinstance(record, dict) and type(record.get("sequence")) is int
        if not whole or not {"previous", "digest"} <= set(record):
            raise Invalid(f"Line {number} is not an entry of an audit log.")
        yield record


def _cells(row: AuditEntry, names: list[str]) -> list[object]:
    record = row.record()
    return [
        chain.canonical(record[name]).decode() if isinstance(record[name], dict) else record[name] for name in names
    ]
