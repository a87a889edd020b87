"""Catalogues: written once, known by what is in them."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

from telemetry.catalogue import Entry
from telemetry.store import chunks
from telemetry.store.models import Catalogue
from telemetry.store.series import digest

MOST_KNOWN = 10_000

_lock = Lock()
_known: dict[tuple[int, str], int] = {}


def catalogue_keep(chassis: int, entries: Sequence[Entry], known_as: str = "") -> int:
    """Return the number of the row that has these entries, written where there is none; `known_as` is their digest."""
    name = (chassis, known_as or digest(entries))
    with _lock:
        known = _known.get(name)
    if known is not None:
        return known
    row, _ = Catalogue.objects.get_or_create(
        chassis=chassis, digest=name[1], defaults={"data": Catalogue.packed(entries)}
    )
    with _lock:
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        _known[name] = row.pk
    return row.pk


def forget() -> None:
    """Ask the database again: a transaction was rolled back, or somebody removed what nothing pointed to."""
    with _lock:
        _known.clear()
    for cached in (chunks.entries_of, chunks.raw_columns, chunks.rollup_columns):
        cached.cache_clear()
