"""The message catalogue, and the matching of events between log and stream. Pure.

A BMC should report the severity of a message. Where it reports none, or an invalid one, the catalogue's applies. Names
and severities are those of the public registries, the texts are our own.

A BMC may number an event 5 in its stream and 1697713452_1 in its log, or give it no id at all; numbers restart when a
log is lost. So an event is identified by its content: message, arguments and time make its signature. Several events
with one signature are distinguished by id and origin or, where these are the same, by their number: a log with three
entries yields three events.

Some BMCs send their whole log again after a restart, with other ids: a connection that reports a time, message and
arguments as often as is stored has reported nothing new, whatever the ids.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fabric.bmc.events import RedfishEvent as Record
from fabric.bmc.events import parse_timestamp
from telemetry.events.fabric_messages import OK, SAME_EVENTS, SeverityName
from telemetry.events.message_registries import REGISTRIES

# Spellings of severities: of older schemas and of syslog, case-insensitive.
SEVERITY_SPELLINGS = {
    "ok": OK, "informational": OK, "info": OK, "notice": OK, "debug": OK, "normal": OK, "none": OK,
    "warning": "Warning", "warn": "Warning", "caution": "Warning", "degraded": "Warning", "minor": "Warning",
    "critical": "Critical", "error": "Critical", "err": "Critical", "fatal": "Critical", "major": "Critical",
    "alert": "Critical", "emergency": "Critical", "nonrecoverable": "Critical",
}  # fmt: skip


@dataclass(frozen=True)
class EventMessage:
    name: str  # 'Fabric.LinkDropped'
    registry: str
    severity: SeverityName
    explanation: str
    advice: str  # '' where there is nothing to do

    @property
    def key(self) -> str:
        """Its name within the registry: 'LinkDropped'."""
        return self.name.removeprefix(f"{self.registry}.")


MESSAGE_CATALOGUE = {
    f"{registry}.{key}": EventMessage(f"{registry}.{key}", registry, *words)
    for registry, messages in REGISTRIES.items()
    for key, words in messages.items()
}
_BY_FOLDED_NAME = {name.casefold(): message for name, message in MESSAGE_CATALOGUE.items()}
_SAME_EVENTS = {name.casefold(): same for name, same in SAME_EVENTS.items()}


def message_name(message_id: str) -> str:
    """Return the name of a message in the one vocabulary of the site: without its version, DMTF's name for OCP's.

    'Fabric.1.0.CableRemoved' and 'AcceleratorFabric.1.0.0.CableRemoved' are 'Fabric.CableRemoved'; unknown ones stay.
    """
    name = _unversioned(message_id)
    same = _SAME_EVENTS.get(name.casefold())
    return same.name if same else name


def _unversioned(message_id: str) -> str:
    parts = message_id.strip().split(".")
    return ".".join(part for index, part in enumerate(parts) if index in {0, len(parts) - 1} or not part.isdecimal())


def find_message(message_id: str) -> EventMessage | None:
    """Return the catalogue's entry of a message id, with or without version, in any case; None for unknown ones."""
    return _BY_FOLDED_NAME.get(message_name(message_id).casefold())


def event_severity(told: str, message_id: str) -> SeverityName:
    """Return the severity of an event: the BMC's, else the catalogue's, else OK.

    A BMC that only repeats what its registry says of an event has not judged it: registries differ, the event does not.
    """
    spelled = SEVERITY_SPELLINGS.get("".join(told.split()).casefold())
    same = _SAME_EVENTS.get(_unversioned(message_id).casefold())
    if spelled is not None and (same is None or spelled != same.own_severity):
        return spelled
    known = find_message(message_id)
    return known.severity if known else OK


# An event without a time may match one that was received within this time.
TIMELESS_WINDOW = timedelta(minutes=10)


@dataclass(frozen=True)
class KnownEvent:
    """The columns of a stored event that matching needs."""

    pk: int
    event_id: str
    entry_uri: str
    streamed: bool
    origin_uri: str
    key: str
    received_at: datetime


def event_signature(record: Record) -> int:
    """Return a hash of an event's content, 63 bits: the same for its record in the stream and its entry in a log."""
    return _digest(_time_of(record), record)


def timeless_signature(record: Record) -> int:
    """Return the signature that the event would have without a time."""
    return _digest("", record)


def is_timeless(record: Record) -> bool:
    return not _time_of(record)


def match_in_log(
    record: Record, known: Iterable[KnownEvent], unreported: Sequence[KnownEvent] = ()
) -> KnownEvent | None:
    """Return the known event with the same signature that a log entry is; None for a new event.

    `unreported` are those that this reading of the whole log has not come to: the entry may be one under a new number.
    """
    rows = list(known)
    if (same := next((row for row in rows if row.entry_uri == record.entry_uri), None)) is not None:
        return same
    # Two logs may each have an entry of one event.
    elsewhere = _best_match(record, [row for row in rows if _log_of(row.entry_uri) != _log_of(record.entry_uri)])
    return elsewhere or _best_match(record, list(unreported))


def match_in_stream(
    record: Record, known: Iterable[KnownEvent], unreported: Sequence[KnownEvent] = ()
) -> KnownEvent | None:
    """Return the known event with the same signature that a record of a stream is; None for a new event.

    `unreported` are those that this connection has not reported: the record may repeat one under another id.
    """
    rows = list(known)
    if record.event_id:
        # After a break, a stream repeats some records.
        again = next((row for row in rows if row.streamed and row.event_id == record.event_id), None)
        if again is not None and _may_match(record, again):
            return again
    rows = [row for row in rows if not row.streamed]
    if record.entry_uri:
        if (logged := next((row for row in rows if row.entry_uri == record.entry_uri), None)) is not None:
            return logged
        rows = [row for row in rows if _log_of(row.entry_uri) != _log_of(record.entry_uri)]
    return _best_match(record, rows) or _best_match(record, [row for row in unreported if row.streamed])


def unique_key_suffix(record: Record, signature: int, known: Sequence[KnownEvent], now: datetime) -> str:
    """Return a suffix for a new event's key that no known event with its signature has."""
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
    # Not the text: some BMCs format message and arguments differently in the log and in the stream.
    content = (_unversioned(record.message_id), *record.arguments) if record.message_id else ("", record.message)
    digest = hashlib.blake2b("\0".join((time, *content)).encode(errors="replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
