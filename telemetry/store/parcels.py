"""What a recorder hands to the writer: some rows of one chassis, and what it knows to be missing."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from telemetry.catalogue import Entry
from telemetry.store.format import Values, encode
from telemetry.store.intake import admitted
from telemetry.store.series import digest, is_counter, stored_order

NOTE_BYTES = 1000  # what a parcel takes besides its rows, about


class Row(NamedTuple):
    """One reading of all series, in the order of the live catalogue."""

    at: float  # Unix s by our clock
    measured_at: float  # by the BMC's; 0 where it does not say
    counted: Values


class Heading:
    """What the columns of a chassis' readings are of, and the order in which they are stored."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        order = stored_order(entries)
        self.entries = [entries[place] for place in order]
        self.order = np.array(order, dtype=np.intp)
        self.digest = digest(self.entries)
        self.counters: NDArray[np.bool_] = np.array([is_counter(entry) for entry in self.entries], dtype=bool)


@dataclass(frozen=True)
class Note:
    """A span without readings, Unix s; it still goes on where there is no `until`."""

    since: float
    until: float | None
    reason: str


@dataclass(frozen=True, eq=False)  # each is one of its own: rows are arrays, which == does not tell apart
class Parcel:
    """Rows that follow each other, and what was missing before the first or is missing after the last."""

    chassis: int
    slack: float  # s; what is missing for so long is a gap
    heading: Heading | None = None
    rows: Sequence[Row] = ()
    run: int = 0  # of rows that follow each other; a number that no other run has
    before: float | None = None  # when the row before the first was taken, where it belongs to the same run
    is_first: bool = False  # of its recorder: what the one before it left is looked at
    notes: Sequence[Note] = ()
    written: Future[None] = field(default_factory=Future)  # done once it is, or is given up

    @property
    def size(self) -> int:
        """How much memory its rows take, bytes."""
        return NOTE_BYTES + sum(row.counted.nbytes for row in self.rows)

    def done(self) -> None:
        """Tell whoever waits that no more happens to it."""
        if not self.written.done():
            self.written.set_result(None)


@dataclass(frozen=True, eq=False)
class Packed:
    """A parcel as it is stored."""

    parcel: Parcel
    since: float
    until: float
    rows: int
    data: bytes
    no_numbers: int = 0
    negative_counts: int = 0

    @property
    def size(self) -> int:
        """How much memory it takes, bytes."""
        return NOTE_BYTES + len(self.data)

    @property
    def readings(self) -> int:
        """How many readings it has."""
        return self.rows * (len(self.parcel.heading.entries) if self.parcel.heading else 0)


def moment(at: float) -> float:
    """Return a time as it is stored: in whole ms."""
    return round(at * 1000) / 1000


def packed(parcel: Parcel) -> Packed:
    """Return a parcel as it is stored."""
    rows, heading = parcel.rows, parcel.heading
    if heading is None or not rows:
        since = min((note.since for note in parcel.notes), default=0.0)
        return Packed(parcel, since, since, 0, b"")
    readings = np.array([row.counted for row in rows])[:, heading.order].T
    kept = admitted(readings, heading.counters)
    times = np.rint(np.array([[one.at for one in rows], [max(one.measured_at, 0.0) for one in rows]]) * 1000)
    return Packed(
        parcel, moment(rows[0].at), moment(rows[-1].at), len(rows),
        encode(times.astype(np.int64), [kept.values]), kept.no_numbers, kept.negative_counts,
    )  # fmt: skip
