"""Rollups: windows of buckets, each made from the tier before it.

What has to be made is written down (Due) in the transaction that stores what it is made from, and struck off in the one
that stores the rollup: a death in between, at any moment, leaves nothing unmade and nothing made twice. A late reading
makes its buckets due again. Two who make the same window do not harm each other: the second finds that it has changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Min

from telemetry.catalogue import Entry
from telemetry.pipeline import tally
from telemetry.store import chunks
from telemetry.store.buckets import Buckets, Places, appended, together
from telemetry.store.catalogues import catalogue_keep, forget
from telemetry.store.format import DamagedError
from telemetry.store.models import Chunk, Due, Tier
from telemetry.store.queries import Stored
from telemetry.store.series import Identity, identity, stored_order
from telemetry.store.tiers import ROLLUPS, SHAPES, window_of

SETTLED = 90_000  # ms; by then the last chunk of a window is there


class ChangedMeanwhile(Exception):
    """Somebody else has made the same window; what is due stays due."""


@dataclass(frozen=True)
class Made:
    """Buckets of some series."""

    entries: dict[Identity, Entry]
    buckets: Buckets
    places: Places


def due_chassis(tier: Tier, *, now: float) -> list[int]:
    """Return the chassis of which enough is there to make more of a rollup."""
    rows = Due.objects.filter(tier=tier).values_list("chassis").annotate(first=Min("since")).order_by("first")
    return [chassis for chassis, first in rows if first * 1000 < ripe_until(chassis, tier, now=now)]


def ripe_until(chassis: int, tier: Tier, *, now: float) -> float:
    """Return up to when (ms) a rollup is made now: in whole portions, some time after their end.

    That is another time for each chassis, so that not all are made at once.
    """
    portion = SHAPES[tier].portion
    wait = SETTLED + portion // 3 * (chassis * 7919 % 60) // 60
    return (now * 1000 - wait) // portion * portion


def chassis_roll(chassis: int, tier: Tier, *, now: float | None = None) -> int:
    """Make what is due of a tier; `now=inf` for all of it. Returns how many windows were made."""
    ripe = ripe_until(chassis, tier, now=time.time() if now is None else now) if now != np.inf else np.inf
    due = Due.objects.filter(chassis=chassis, tier=tier, since__lt=ripe / 1000).values_list("pk", "since", "until")
    windows: dict[int, list[tuple[int, float, float]]] = {}
    for row in due:
        windows.setdefault(window_of(tier, round(row[1] * 1000)), []).append(row)
    made = 0
    for window, rows in sorted(windows.items()):
        try:
            _window_make(chassis, tier, window, rows)
        except (ChangedMeanwhile, IntegrityError):
            # The other one's window is there now, or the catalogue was removed: what is due is made next time.
            forget()
            continue
        made += 1
    return made


def _window_make(chassis: int, tier: Tier, window: int, due: Sequence[tuple[int, float, float]]) -> None:
    step = SHAPES[tier].step
    since = round(min(row[1] for row in due) * 1000) // step * step
    until = -(-round(max(row[2] for row in due) * 1000) // step) * step
    before = next(iter(chunks.stored(chassis, tier, window, window + 1)), None)
    kept = None
    if before is not None:
        try:
            kept = _kept(before)
        except DamagedError:
            # What it is made from may still be there.
            tally.add("chunks_damaged", chassis=chassis)
            since, until = window, window + SHAPES[tier].window
    fresh = _from_raw(chassis, tier, since, until) if tier is ROLLUPS[0] else _from_rollup(chassis, tier, since, until)
    made = _spliced(kept, fresh, since, until) if kept is not None else _tidied(fresh)
    # Nothing to make it from: it is older than that is kept, or damaged. What was made before stays.
    is_there = len(fresh.buckets.at) > 0
    catalogue = _catalogue(chassis, tuple(made.entries.values()), before) if is_there else 0
    with transaction.atomic(using=settings.READINGS_DATABASE):
        if is_there:
            _store(Chunk(chassis=chassis, tier=tier, since=window / 1000, catalogue_id=catalogue), made, before)
        Due.objects.filter(pk__in=[row[0] for row in due]).delete()
        if is_there and tier is not ROLLUPS[-1]:
            following = ROLLUPS[ROLLUPS.index(tier) + 1]
            Due.objects.create(chassis=chassis, tier=following, since=since / 1000, until=until / 1000)


def _kept(row: Stored) -> Made:
    entries = {identity(entry): entry for entry in chunks.entries_of(row.catalogue)}
    return Made(entries, *chunks.rollup_buckets(row, list(entries)))


def _from_raw(chassis: int, tier: Tier, since: int, until: int) -> Made:
    rows = chunks.stored(chassis, Tier.RAW, since, until)
    catalogues = dict.fromkeys(row.catalogue for row in rows)
    entries = {found: one.entry for pk in catalogues for found, one in chunks.raw_columns(pk).items()}
    rows += chunks.before_them(chassis, rows)
    read, damaged = chunks.raw_rows(rows, list(entries), since, until)
    tally.add("chunks_damaged", len(damaged), chassis=chassis)
    return Made(entries, Buckets.single(read.at, read.values).in_steps(SHAPES[tier].step), read.places)


def _from_rollup(chassis: int, tier: Tier, since: int, until: int) -> Made:
    rows = chunks.stored(chassis, ROLLUPS[ROLLUPS.index(tier) - 1], since, until)
    catalogues = dict.fromkeys(row.catalogue for row in rows)
    entries = {identity(entry): entry for pk in catalogues for entry in chunks.entries_of(pk)}
    parts = [Buckets.none(len(entries))]
    places = np.zeros(len(entries), np.int8)
    for row in rows:
        try:
            buckets, own = chunks.rollup_buckets(row, list(entries))
        except DamagedError:
            tally.add("chunks_damaged", chassis=chassis)
            continue
        parts.append(buckets.between(since, until))
        places = together([places, own])
    return Made(entries, appended(parts).in_steps(SHAPES[tier].step), places)


def _spliced(kept: Made, fresh: Made, since: int, until: int) -> Made:
    """Return what was kept with the buckets of a span made anew."""
    entries = {**kept.entries, **fresh.entries}
    place = {one: number for number, one in enumerate(entries)}
    parts, places = [], []
    for made, buckets in ((kept, kept.buckets.without(since, until)), (fresh, fresh.buckets)):
        own = [place[one] for one in made.entries]
        parts.append(buckets.spread(own, len(entries)))
        wide = np.zeros(len(entries), np.int8)
        wide[own] = made.places
        places.append(wide)
    return _tidied(Made(entries, appended(parts), together(places)))


def _tidied(made: Made) -> Made:
    """Return it in the order in which series are stored, without those of which there is nothing."""
    entries = list(made.entries.values())
    some = made.buckets.count.sum(axis=1) > 0
    order = [place for place in stored_order(entries) if some[place]]
    buckets = made.buckets
    return Made(
        {identity(entries[place]): entries[place] for place in order},
        buckets.picked(order),
        made.places[order],
    )


def _catalogue(chassis: int, entries: tuple[Entry, ...], before: Stored | None) -> int:
    """Return the catalogue of a window, mostly that of the one before; written in a transaction of its own."""
    if before is not None and entries == chunks.entries_of(before.catalogue):
        return before.catalogue
    return catalogue_keep(chassis, entries) if entries else 0


def _store(row: Chunk, made: Made, before: Stored | None) -> None:
    """Write a window, in the place of the one that was there before."""
    mine = Chunk.objects.filter(pk=before.pk, version=before.version) if before is not None else Chunk.objects.none()
    if not made.entries:
        if before is not None and not mine.delete()[0]:
            raise ChangedMeanwhile
        return
    row.data = chunks.rollup_bytes(made.buckets, made.places)
    row.rows, row.size = len(made.buckets.at), len(row.data)
    row.until = (int(made.buckets.at[-1]) + SHAPES[Tier(row.tier)].step) / 1000
    if before is None:
        row.save(force_insert=True)
        return
    values = {name: getattr(row, name) for name in ("catalogue_id", "until", "rows", "size", "data")}
    if not mine.update(version=before.version + 1, **values):
        raise ChangedMeanwhile


def roll_all(*, seconds: float = 50.0, breath: Callable[[], None] = lambda: None) -> int:
    """Make what is due of all chassis, for so long at most; returns how many windows. `breath` comes before each."""
    end = time.monotonic() + seconds
    made = 0
    for tier in ROLLUPS:
        for chassis in due_chassis(tier, now=time.time()):
            if time.monotonic() > end:
                return made
            breath()
            made += chassis_roll(chassis, tier)
    return made
