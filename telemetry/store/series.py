"""What is kept of what is measured: the order of columns in chunks, and the series that readings are shown as.

The BMC counts bytes and errors without end. Kept raw is what it counts; shown, and rolled up, are
    bytes: their rate under the key of the live catalogue ('port/5/rx_bytes_per_second', B/s)
    errors: the total under that key ('port/5/errors/ReplayCount') and its rate under key + '/rate' (1/s)
    all else: the reading itself
A series is told from others by its key and its unit: what is measured in another unit from some day on is another one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fabric.bmc.types import Quantity
from telemetry.catalogue import RATES as COUNTED
from telemetry.catalogue import Entry

BYTES = frozenset(COUNTED.values())
ERRORS = Quantity.ERRORS.value
ERROR_RATE = "errors_per_second"
RATE_SUFFIX = "/rate"
RATES = BYTES | {ERROR_RATE}  # what is read as a rate

Identity = tuple[str, str]  # key and unit


@dataclass(frozen=True)
class Shown:
    """A series made of a raw column: what it counts as it is, or its rate."""

    entry: Entry
    source: Entry  # of the raw column
    column: int
    is_rate: bool


def identity(entry: Entry) -> Identity:
    """Return what tells a series from others."""
    return entry["key"], entry["unit"]


def stored_order(entries: Sequence[Entry]) -> list[int]:
    """Return the places of entries in the order in which they are stored: those of a quantity stand together.

    They are alike, so that they take less room, and who asks for one of them mostly asks for the others, too.
    """
    return sorted(range(len(entries)), key=lambda place: entries[place]["quantity"])


def is_counter(entry: Entry) -> bool:
    """Tell whether the BMC counts without end what is behind an entry of the live catalogue."""
    return entry["quantity"] in BYTES or entry["quantity"] == ERRORS


def shown(entries: Iterable[Entry]) -> list[Shown]:
    """Return the series that are made of raw columns."""
    found = []
    for column, entry in enumerate(entries):
        found.append(Shown(entry, entry, column, is_rate=entry["quantity"] in BYTES))
        if entry["quantity"] == ERRORS:
            found.append(Shown(rate_of(entry), entry, column, is_rate=True))
    return found


def rate_of(entry: Entry) -> Entry:
    """Return the rate of an error counter."""
    return {
        **entry, "key": entry["key"] + RATE_SUFFIX, "quantity": ERROR_RATE, "label": f"{entry['label']}, a second",
        "unit": "1/s",
    }  # fmt: skip


def digest(entries: Sequence[Entry]) -> str:
    """Return what a catalogue is known by: SHA-256 in hex."""
    lines = (
        "\0".join((one["key"], one["object"], str(one["id"]), one["quantity"], one["label"], one["unit"]))
        for one in entries
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
