"""The audit log as a file: JSON Lines, which anybody can verify by the recipe of `chain`, and CSV for spreadsheets."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

from django.db.models import QuerySet
from django.http import StreamingHttpResponse

from accounts.audit import chain
from accounts.audit.actions import Action
from accounts.audit.models import AuditEntry, columns
from accounts.audit.selectors import Filter, entries_found
from accounts.audit.services import Target, audit_record
from accounts.models import User
from accounts.sheets import lines
from falconweb.errors import Invalid
from falconweb.threads import in_thread

FORMATS = {"csv": "text/csv; charset=utf-8", "jsonl": "application/jsonl; charset=utf-8"}
ROWS_AT_ONCE = 1000
# What is sent at a time: to go to a thread for each line of a table costs more than the line.
PART_BYTES = 65_536
PART_SECONDS = 0.2


class Download(StreamingHttpResponse):
    """A file made on the way: a log of millions of entries is never held as a whole."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the parts, each made in a thread; Django's own would make all of them first."""
        parts: Iterator[bytes] = iter(self)
        while part := await in_thread(_gathered, parts):
            yield part


def _gathered(parts: Iterator[bytes]) -> bytes:
    """Return what comes next, as much as is sent at a time; b'' at the end."""
    gathered: list[bytes] = []
    size, late = 0, time.monotonic() + PART_SECONDS
    for part in parts:
        gathered.append(part)
        size += len(part)
        if size >= PART_BYTES or (size and time.monotonic() > late):
            break
    return b"".join(gathered)


def audit_export(*, by: User, wanted: Filter, kind: str) -> Download:
    """Return the entries that fit as a file; who took it is kept. Raises Forbidden, and Invalid."""
    rows = entries_found(by, wanted)
    if kind not in FORMATS:
        raise Invalid(f"'{kind[:20]}' is no format of an export.", errors={"as": f"One of {', '.join(FORMATS)}."})
    audit_record(
        action=Action.AUDIT_EXPORT,
        actor=by,
        target=Target(kind="audit", name="The audit log"),
        after={"as": kind, "filter": wanted.told()},
    )
    answer = Download(exported(rows, kind), content_type=FORMATS[kind])
    answer["Content-Disposition"] = f'attachment; filename="audit.{kind}"'
    return answer


def exported(rows: QuerySet[AuditEntry], kind: str) -> Iterator[str]:
    """Yield the lines of entries as CSV or JSON Lines, oldest first, in blocks that are each read anew."""
    names = list(columns())
    if kind == "csv":
        yield from lines(names, [])
    last = 0
    while block := list(rows.order_by("sequence").filter(sequence__gt=last)[:ROWS_AT_ONCE]):
        last = block[-1].sequence
        if kind == "csv":
            yield "".join(list(lines(names, (_cells(row, names) for row in block)))[1:])
        else:
            yield "".join(f"{chain.canonical(row.record()).decode()}\n" for row in block)


def read_lines(texts: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the entries of a file of JSON Lines; raises Invalid with the line that is none."""
    for number, text in enumerate(texts, 1):
        if not text.strip():
            continue
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise Invalid(f"Line {number} is no JSON.") from error
        whole = isinstance(record, dict) and type(record.get("sequence")) is int
        if not whole or not {"previous", "digest"} <= set(record):
            raise Invalid(f"Line {number} is no entry of an audit log.")
        yield record


def _cells(row: AuditEntry, names: list[str]) -> list[object]:
    record = row.record()
    return [
        chain.canonical(record[name]).decode() if isinstance(record[name], dict) else record[name] for name in names
    ]
