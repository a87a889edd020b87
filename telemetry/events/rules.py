"""The message catalogue, and how an event is recognised in log and stream. Pure.

A BMC says how much a message matters, or should. Where it says nothing, or something that is no severity, what stands
here counts. Facts are those of the public registries, words are our own.

A BMC may call an event 5 in its stream and 1697713452_1 in its log, or give it no id at all; numbers begin anew when a
log is lost. So an event is known by what it says: its message, arguments and time make its signature. Of several with
one signature, which are those of one moment, ids and origins say which is which, and where they do not, the count does:
a log that has three is told of three.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fabric.bmc.events import parse_timestamp
from fabric.bmc.types import RedfishEvent as Record
from telemetry.events import message_registries
from telemetry.events.message_registries import OK, MessageText, SeverityName

# What services write for a severity: those of older schemas, of syslog, and in any case.
SEVERITY_SPELLINGS = {
    "ok": OK, "informational": OK, "info": OK, "notice": OK, "debug": OK, "normal": OK, "none": OK,
    "warning": "Warning", "warn": "Warning", "caution": "Warning", "degraded": "Warning", "minor": "Warning",
    "critical": "Critical", "error": "Critical", "err": "Critical", "fatal": "Critical", "major": "Critical",
    "alert": "Critical", "emergency": "Critical", "nonrecoverable": "Critical",
}  # fmt: skip


@dataclass(frozen=True)
class EventMessage:
    """One message of the catalogue."""

    name: str  # 'Fabric.LinkDropped'
    registry: str
    severity: SeverityName
    explanation: str
    advice: str  # what to do, '' where there is nothing to do

    @property
    def key(self) -> str:
        """Its name within the registry: 'LinkDropped'."""
        return self.name.removeprefix(f"{self.registry}.")


def _build_catalogue(registries: Sequence[Mapping[str, Mapping[str, MessageText]]]) -> dict[str, EventMessage]:
    return {
        f"{registry}.{key}": EventMessage(f"{registry}.{key}", registry, *words)
        for registries_of in registries
        for registry, messages in registries_of.items()
        for key, words in messages.items()
    }


MESSAGE_CATALOGUE: dict[str, EventMessage] = _build_catalogue(
    [message_registries.SITE_REGISTRIES, message_registries.FABRIC_REGISTRIES, message_registries.SERVICE_REGISTRIES]
)
_BY_FOLDED_NAME = {name.casefold(): message for name, message in MESSAGE_CATALOGUE.items()}


def message_name(message_id: str) -> str:
    """Return a message's name without its version: 'Fabric.1.0.LinkDropped' is 'Fabric.LinkDropped'."""
    parts = message_id.strip().split(".")
    return ".".join(part for index, part in enumerate(parts) if index in {0, len(parts) - 1} or not part.isdecimal())


def find_message(message_id: str) -> EventMessage | None:
    """Return what the catalogue has of a message, with or without its version, in any case; None for a stranger."""
    return _BY_FOLDED_NAME.get(message_name(message_id).casefold())


def event_severity(told: str, message_id: str) -> SeverityName:
    """Return how much an event matters: as its BMC says, else as the catalogue does, else not at all."""
    spelled = SEVERITY_SPELLINGS.get("".join(told.split()).casefold())
    if spelled is not None:
        return spelled
    known = find_message(message_id)
    return known.severity if known else OK


# An event without a time may be one that was told so long ago.
TIMELESS_WINDOW = timedelta(minutes=10)


@dataclass(frozen=True)
class KnownEvent:
    """What is kept of an event that is known."""

    pk: int
    event_id: str
    entry_uri: str
    streamed: bool
    origin_uri: str
    key: str
    received_at: datetime


def event_signature(record: Record) -> int:
    """Return what is the same wherever a BMC tells of one event, and of hardly another; 63 bits."""
    return _digest(_time_of(record), record)


def timeless_signature(record: Record) -> int:
    """Return the signature that the event would have if its time had not been told."""
    return _digest("", record)


def is_timeless(record: Record) -> bool:
    """Tell whether an event comes without a time that can be read."""
    return not _time_of(record)


def match_in_log(record: Record, known: Iterable[KnownEvent]) -> KnownEvent | None:
    """Return which of the events with its signature an entry of a log is; None for one that was not known."""
    rows = list(known)
    if (same := next((row for row in rows if row.entry_uri == record.entry_uri), None)) is not None:
        return same
    # Two logs may tell of one event, each in its own entry.
    return _best_match(record, [row for row in rows if _log_of(row.entry_uri) != _log_of(record.entry_uri)])


def match_in_stream(record: Record, known: Iterable[KnownEvent]) -> KnownEvent | None:
    """Return which of the events with its signature a record of a stream is; None for one that was not known."""
    rows = list(known)
    if record.event_id:
        # The stream tells some again that it told before a break.
        again = next((row for row in rows if row.streamed and row.event_id == record.event_id), None)
        if again is not None and _may_match(record, again):
            return again
    rows = [row for row in rows if not row.streamed]
    if record.entry_uri:
        if (logged := next((row for row in rows if row.entry_uri == record.entry_uri), None)) is not None:
            return logged
        rows = [row for row in rows if _log_of(row.entry_uri) != _log_of(record.entry_uri)]
    return _best_match(record, rows)


def unique_key_suffix(record: Record, signature: int, known: Sequence[KnownEvent], now: datetime) -> str:
    """Return what tells a new event from the others of its signature: the key of none of them ends so."""
    taken = {row.key.rpartition("/")[2] for row in known}
    stem = f"{signature:x}" + (f"@{now.timestamp():.6f}" if is_timeless(record) else "")
    return next(key for number in range(len(taken) + 1) if (key := f"{stem}.{number}") not in taken)


def _best_match(record: Record, rows: list[KnownEvent]) -> KnownEvent | None:
    rows = [row for row in rows if _may_match(record, row)]
    by_id = next((row for row in rows if record.event_id and row.event_id == record.event_id), None)
    by_origin = next((row for row in rows if row.origin_uri == record.origin_uri), None)
    return by_id or by_origin or (rows[0] if rows else None)


def _may_match(record: Record, row: KnownEvent) -> bool:
    return not record.origin_uri or not row.origin_uri or record.origin_uri == row.origin_uri


def _log_of(entry_uri: str) -> str:
    return entry_uri.rpartition("/")[0]


def _time_of(record: Record) -> str:
    moment = parse_timestamp(record.timestamp)
    return f"{moment.timestamp():.3f}" if moment is not None else ""


def _digest(time: str, record: Record) -> int:
    # A text is put together from message and arguments, by some in other words in the log than in the stream.
    said = (message_name(record.message_id), *record.arguments) if record.message_id else ("", record.message)
    digest = hashlib.blake2b("\0".join((time, *said)).encode(errors="replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
