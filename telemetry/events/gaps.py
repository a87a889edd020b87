"""What a log that was overwritten, emptied or begun anew does not have any more: told as an event of its own."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from django.urls import reverse
from django.utils import timezone

from fabric.bmc.eventlog import LogReading, Mark
from telemetry.events.models import Source
from telemetry.events.services import event_record

LOST = "FalconWeb.EventsLost"
MAY_BE_LOST = "FalconWeb.EventsMayBeLost"


@dataclass(frozen=True)
class Gap:
    """Events that nobody will read any more, or may be so; `key` is the same for one gap, however often it is met."""

    message_id: str
    sentence: str
    key: str


def gap_of(mark: Mark, reading: LogReading, *, known: int, heard: bool) -> Gap | None:
    """Return what is missing between the mark and what a log has now, None where nothing is.

    `known` is how many of the entries were known already: the log then reaches back to where somebody listened.
    `heard` tells that the stream was open without a break since the mark, so that whatever is gone was heard.
    """
    if reading.continuous or heard or known:
        return None
    since = f"entry {_number(mark.entry_uri)} of {mark.told or 'an unknown time'}"
    if not reading.events:
        sentence = f"The BMC's log was emptied while nobody listened: what happened after {since} may be lost."
        return Gap(MAY_BE_LOST, sentence, _key(mark, ""))
    first = reading.events[0]
    last, next_number = _number(mark.entry_uri), _number(first.entry_uri)
    until = f"entry {next_number} of {first.timestamp or 'an unknown time'}"
    key = _key(mark, f"{first.entry_uri} {first.timestamp}")
    if last.isdecimal() and next_number.isdecimal():
        missing = int(next_number) - int(last) - 1
        if missing == 0:
            return None
        if missing > 0:
            why = "there were more than are read at a time" if reading.cut else "the log of the BMC was overwritten"
            return Gap(LOST, f"{missing} events between {since} and {until} are lost: {why}.", key)
        sentence = f"The numbers in the BMC's log began anew: what happened between {since} and {until} may be lost."
        return Gap(MAY_BE_LOST, sentence, key)
    return Gap(LOST, f"Events between {since} and {until} are lost: the log of the BMC was overwritten.", key)


def gap_record(*, chassis_id: int, entries_uri: str, gap: Gap) -> None:
    """Keep a gap as an event of its chassis."""
    event_record(
        source=Source.BMC,
        message_id=gap.message_id,
        severity="Warning",
        text=gap.sentence,
        at=timezone.now(),
        chassis_id=chassis_id,
        key=f"gap {gap.key}",
        arguments=[entries_uri],
        link=reverse("fabric:chassis", args=[chassis_id]),
    )


def _number(entry_uri: str) -> str:
    return entry_uri.rpartition("/")[2]


def _key(mark: Mark, until: str) -> str:
    return hashlib.blake2b(f"{mark.entry_uri} {mark.told} {until}".encode(), digest_size=16).hexdigest()
