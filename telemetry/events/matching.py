"""Which of the events that a BMC tells are known already: its stream and its log tell of the same things.

A BMC may call an event 5 in its stream and 1697713452_1 in its log, or give it no id at all; numbers begin anew when a
log is lost. So an event is known by what it says: its message, arguments and time make its signature. Of several with
one signature, which are those of one moment, ids and origins say which is which, and where they do not, the count does:
a log that has three is told of three.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fabric.bmc.eventlog import instant
from fabric.bmc.types import Event as Record
from telemetry.events.messages import message_of

# An event without a time may be one that was told so long ago.
TIMELESS = timedelta(minutes=10)


@dataclass(frozen=True)
class Known:
    """What is kept of an event that is known."""

    pk: int
    event_id: str
    entry_uri: str
    streamed: bool
    origin_uri: str
    key: str
    received_at: datetime


def signature_of(record: Record) -> int:
    """Return what is the same wherever a BMC tells of one event, and of hardly another; 63 bits."""
    return _digest(_time_of(record), record)


def timeless_of(record: Record) -> int:
    """Return the signature that the event would have if its time had not been told."""
    return _digest("", record)


def is_timeless(record: Record) -> bool:
    """Tell whether an event comes without a time that can be read."""
    return not _time_of(record)


def known_in_log(record: Record, known: Iterable[Known]) -> Known | None:
    """Return which of the events with its signature an entry of a log is; None for one that was not known."""
    rows = list(known)
    if (same := next((row for row in rows if row.entry_uri == record.entry_uri), None)) is not None:
        return same
    # Two logs may tell of one event, each in its own entry.
    return _best(record, [row for row in rows if _log_of(row.entry_uri) != _log_of(record.entry_uri)])


def known_in_stream(record: Record, known: Iterable[Known]) -> Known | None:
    """Return which of the events with its signature a record of a stream is; None for one that was not known."""
    rows = list(known)
    if record.event_id:
        # The stream tells some again that it told before a break.
        again = next((row for row in rows if row.streamed and row.event_id == record.event_id), None)
        if again is not None and _may_be(record, again):
            return again
    rows = [row for row in rows if not row.streamed]
    if record.entry_uri:
        if (logged := next((row for row in rows if row.entry_uri == record.entry_uri), None)) is not None:
            return logged
        rows = [row for row in rows if _log_of(row.entry_uri) != _log_of(record.entry_uri)]
    return _best(record, rows)


def number_of(record: Record, signature: int, known: Sequence[Known], now: datetime) -> str:
    """Return what tells a new event from the others of its signature: the key of none of them ends so."""
    taken = {row.key.rpartition("/")[2] for row in known}
    stem = f"{signature:x}" + (f"@{now.timestamp():.6f}" if is_timeless(record) else "")
    return next(key for number in range(len(taken) + 1) if (key := f"{stem}.{number}") not in taken)


def _best(record: Record, rows: list[Known]) -> Known | None:
    rows = [row for row in rows if _may_be(record, row)]
    by_id = next((row for row in rows if record.event_id and row.event_id == record.event_id), None)
    by_origin = next((row for row in rows if row.origin_uri == record.origin_uri), None)
    return by_id or by_origin or (rows[0] if rows else None)


def _may_be(record: Record, row: Known) -> bool:
    return not record.origin_uri or not row.origin_uri or record.origin_uri == row.origin_uri


def _log_of(entry_uri: str) -> str:
    return entry_uri.rpartition("/")[0]


def _time_of(record: Record) -> str:
    moment = instant(record.timestamp)
    return f"{moment.timestamp():.3f}" if moment is not None else ""


def _digest(time: str, record: Record) -> int:
    # A text is put together from message and arguments, by some in other words in the log than in the stream.
    said = (message_of(record.message_id), *record.arguments) if record.message_id else ("", record.message)
    digest = hashlib.blake2b("\0".join((time, *said)).encode(errors="replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
