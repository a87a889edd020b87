"""Traces imported and deleted."""

from __future__ import annotations

import hashlib
from typing import Final

import zstandard

from accounts.access import require_composer
from accounts.audit.actions import Action
from accounts.audit.services import Target, attempt, audited, target_of
from accounts.models import User
from benchmarks.simulation.chakra import MAX_TRACE_BYTES, Trace, TraceError, read_trace
from benchmarks.traces.models import ImportedTrace
from benchmarks.traces.selectors import trace_get
from core.errors import Conflict, Forbidden, Invalid, TooLarge
from core.language import _

MAX_STORED_BYTES: Final = 8 * 2**20  # of a trace, compressed
MAX_TRACES: Final = 50  # of a tenant
DEFAULT_TITLE: Final = "Chakra trace"


def trace_check(person: User, content: bytes) -> Trace:
    """Read a trace without storing it. Raises Forbidden for read-only users, TooLarge and Invalid."""
    require_composer(person, "import traces")
    if len(content) > MAX_TRACE_BYTES:
        raise TooLarge(_("The trace is larger than {size} MiB.", size=MAX_TRACE_BYTES // 2**20))
    try:
        return read_trace(content)
    except TraceError as error:
        raise Invalid(error.sentence, errors={"file": error.sentence}) from error


def trace_import(*, person: User, content: bytes, title: str = "") -> tuple[ImportedTrace, bool]:
    """Store a trace for the person's tenant; return it, and whether it is new: a file is stored once.

    Raises as `trace_check`, and Conflict for a tenant with as many traces as it may have.
    """
    title = "".join(one for one in title if one.isprintable()).strip()[:200] or DEFAULT_TITLE
    with attempt(Action.TRACE_IMPORT, actor=person, target=Target("trace", name=title)) as act:
        trace = trace_check(person, content)
        packed = zstandard.compress(content)
        if len(packed) > MAX_STORED_BYTES:
            raise TooLarge(_("The trace has more than {size} MiB compressed: cut it.", size=MAX_STORED_BYTES // 2**20))
        sha256 = hashlib.sha256(content).hexdigest()
        with act.change():
            own = ImportedTrace.objects.filter(tenant=person.tenant).exclude(sha256=sha256)
            if own.count() >= MAX_TRACES:
                raise Conflict(_("Your tenant has {count} traces: delete one first.", count=MAX_TRACES))
            row, is_new = ImportedTrace.objects.get_or_create(
                tenant=person.tenant,
                sha256=sha256,
                defaults={
                    "title": title, "size": len(content), "content": packed, "nodes": trace.counts,
                    "collective_bytes": trace.collective_bytes, "compute_seconds": trace.compute_seconds,
                    "imported_by": person, "imported_by_name": person.username,
                },
            )  # fmt: skip
            act.after = {"trace": str(row.pk), "sha256": sha256, "known": not is_new}
    return row, is_new


def trace_delete(*, person: User, trace: ImportedTrace) -> None:
    """Delete a trace. Raises NotFound, and Forbidden for others' traces."""
    with audited(Action.TRACE_DELETE, actor=person, target=target_of(trace, trace.title)) as act:
        row = trace_get(person, trace.pk)
        if not person.is_administrator and row.imported_by_id != person.pk:
            raise Forbidden(_("Only who imported a trace or an administrator may delete it."))
        require_composer(person)
        act.before = {"sha256": row.sha256}
        row.delete()
