"""Rows of the store: readings in chunks, what they are of, what is missing, and what has yet to be rolled up.

They may lie in a database of their own, so that no row points to another room's: `chassis` is its number. Times are
Unix seconds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import zstandard
from django.db import models

from telemetry.live.catalogue import SeriesEntry
from telemetry.store.rules import Tier


class Catalogue(models.Model):
    """What the columns of chunks are of, in their order: one row for all chunks of a chassis that have the same."""

    chassis = models.BigIntegerField()
    digest = models.CharField(max_length=64)
    data = models.BinaryField()  # the entries as JSON, zstd: they tell the same of many columns

    class Meta:
        constraints = [models.UniqueConstraint(fields=["chassis", "digest"], name="one_catalogue")]

    @property
    def entries(self) -> list[SeriesEntry]:
        """What the columns are of."""
        found: list[SeriesEntry] = json.loads(zstandard.decompress(self.data))
        return found

    @staticmethod
    def packed(entries: Sequence[SeriesEntry]) -> bytes:
        """Return entries as `data` has them."""
        packed: bytes = zstandard.compress(json.dumps(entries).encode())
        return packed


class Chunk(models.Model):
    """Readings of one chassis and tier; `data` is in the form of telemetry.store.format.

    A raw chunk has the rows of about a minute, as they came: `before` is when the row before the first was taken, where
    that belongs to the same run of readings. One of a rollup has the buckets of a window, of which there is one at
    most: `since` is where the window begins.
    """

    chassis = models.BigIntegerField()
    tier = models.SmallIntegerField(choices=Tier.choices)
    catalogue = models.ForeignKey(Catalogue, on_delete=models.PROTECT, related_name="+")
    since = models.FloatField()  # raw: of the first row
    until = models.FloatField()  # raw: of the last row; a rollup: where the last bucket ends
    before = models.FloatField(null=True)
    version = models.IntegerField(default=0)  # raw: a number of its run; a rollup: how often it was made anew
    rows = models.IntegerField()
    size = models.IntegerField()  # bytes of data
    data = models.BinaryField()

    class Meta:
        indexes = [
            models.Index(fields=["chassis", "tier", "since"], name="chunk_in_time"),
            # With what is told of the store's size, so that no chunk is touched for that.
            models.Index(fields=["tier", "until", "rows", "size"], name="chunk_by_age"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["chassis", "tier", "since"], condition=models.Q(tier__gt=0), name="one_window"
            )
        ]


class Due(models.Model):
    """A span of which a rollup is not made yet: written together with what it is to be made from.

    It lies in one window of that tier.
    """

    chassis = models.BigIntegerField()
    tier = models.SmallIntegerField(choices=Tier.choices)
    since = models.FloatField()
    until = models.FloatField()

    class Meta:
        indexes = [models.Index(fields=["chassis", "tier", "since"], name="due_in_time")]


class Gap(models.Model):
    """A span of which a chassis' readings are missing, and why; without `until` as long as it goes on."""

    chassis = models.BigIntegerField()
    since = models.FloatField()
    until = models.FloatField(null=True)
    reason = models.CharField(max_length=300)

    class Meta:
        indexes = [models.Index(fields=["chassis", "since"], name="gap_in_time")]
