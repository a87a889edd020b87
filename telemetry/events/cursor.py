"""The numbers of events as a cursor: whoever has read up to `horizon()` has missed nothing, and never will.

A number is given when a row is written, and the row is seen when its transaction commits. SQLite has one writer at a
time, so both orders are the same. PostgreSQL has many: event 7 may be seen while 6 is still being written. There each
writer first takes a shared lock whose name is the last number given by then; all that it writes has greater ones. The
least of the locks that are held is where sure knowledge ends. Nobody waits for anybody, and a writer that dies lets go.
"""

from __future__ import annotations

from collections.abc import Iterator

from django.db import connection
from django.db.models import Max

from telemetry.events.models import Event, EventQuerySet

# Of the 64 bits of a lock's name the upper 24 are this room's, the lower 40 the number.
NAMESPACE = 0x45_5645
BITS = 40
ROWS_AT_ONCE = 1000

_GIVEN = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM events_event_id_seq"
_HELD = """
SELECT min(((classid::bigint << 32) | objid::bigint) & %s) FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 1
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
AND ((classid::bigint << 32) | objid::bigint) >> %s = %s
"""


def announce() -> None:
    """Say that this transaction writes events from now on; called in the transaction, before the first is written."""
    if connection.vendor != "postgresql":
        return
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT pg_advisory_xact_lock_shared((%s::bigint << %s) | ({_GIVEN}))", [NAMESPACE, BITS])


def horizon() -> int:
    """Return the greatest number up to which no event can appear any more; 0 before the first.

    Call it outside a transaction: rows are to be read after it.
    """
    if connection.vendor != "postgresql":
        return Event.objects.aggregate(last=Max("pk"))["last"] or 0
    with connection.cursor() as cursor:
        # First the number, then the locks: whoever locks later gets greater numbers than this.
        cursor.execute(_GIVEN)
        given = int(cursor.fetchone()[0])
        cursor.execute(_HELD, [(1 << BITS) - 1, BITS, NAMESPACE])
        held = cursor.fetchone()[0]
    return given if held is None else min(given, int(held))


def events_after(
    rows: EventQuerySet, cursor: int, *, until: int | None = None, at_once: int = ROWS_AT_ONCE
) -> Iterator[list[Event]]:
    """Yield the events of a queryset with numbers behind `cursor`, in their order, in blocks that are each read anew.

    Ends at `until`, or at the horizon of the call. The next cursor is the number of the last event of a block; where a
    whole pass yields nothing, `until` itself is a good one.
    """
    end = horizon() if until is None else until
    while block := list(rows.order_by("pk").filter(pk__gt=cursor, pk__lte=end)[:at_once]):
        cursor = block[-1].pk
        yield block
