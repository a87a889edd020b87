"""Rows of the store: readings in chunks, their catalogues, gaps, and pending rollups.

They may be in a database of their own, so that no foreign key points to another app: `chassis` is its id. Times are
Unix seconds.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import zstandard
from django.db import models

from telemetry.live.catalogue import SeriesEntry
from telemetry.store.rules import Tier


class Catalogue(models.Model):
    """The series of the columns of chunks, in order: one row for all chunks of a chassis with the same columns."""

    chassis = models.BigIntegerField()
    digest = models.CharField(max_length=64)
    data = models.BinaryField()  # the entries as JSON, zstd: entries of many columns are alike

    class Meta:
        constraints = [models.UniqueConstraint(fields=["chassis", "digest"], name="one_catalogue")]

    @property
    def entries(self) -> list[SeriesEntry]:
        return self.unpacked(self.data)

    @staticmethod
    def packed(entries: Sequence[SeriesEntry]) -> bytes:
        """Return entries in the form of `data`."""
        packed: bytes = zstandard.compress(msgspec.json.encode(entries))
        return packed

    @staticmethod
    def unpacked(data: bytes | memoryview) -> list[SeriesEntry]:
        """Return the entries in `data`."""
        found: list[SeriesEntry] = msgspec.json.decode(zstandard.decompress(data))
        return found


class Chunk(models.Model):
    """Readings of one chassis and tier; `data` is in the form of telemetry.store.format.

    A raw chunk has the rows of about a minute, unchanged: `before` is the time of the row before the first, where that
    belongs to the same run of readings. A rollup's chunk has the buckets of a window and is the only one of it: `since`
    is the start of the window.
    """

    chassis = models.BigIntegerField()
    tier = models.SmallIntegerField(choices=Tier.choices)
    catalogue = models.ForeignKey(Catalogue, on_delete=models.PROTECT, related_name="+")
    since = models.FloatField()  # raw: time of the first row
    until = models.FloatField()  # raw: time of the last row; rollup: end of the last bucket
    before = models.FloatField(null=True)
    version = models.IntegerField(default=0)  # raw: number of its run; rollup: how often it was replaced
    rows = models.IntegerField()
    size = models.IntegerField()  # bytes of data
    data = models.BinaryField()

    class Meta:
        indexes = [
            models.Index(fields=["chassis", "tier", "since"], name="chunk_in_time"),
            # Includes the columns that the store's size is computed from, so that no chunk is read for it.
            models.Index(fields=["tier", "until", "rows", "size"], name="chunk_by_age"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["chassis", "tier", "since"], condition=models.Q(tier__gt=0), name="one_window"
            )
        ]


class Due(models.Model):
    """A pending rollup of a span within one window of the tier; written in one transaction with its source."""

    chassis = models.BigIntegerField()
    tier = models.SmallIntegerField(choices=Tier.choices)
    since = models.FloatField()
    until = models.FloatField()

    class Meta:
        indexes = [models.Index(fields=["chassis", "tier", "since"], name="due_in_time")]


class Gap(models.Model):
    """A span without readings of a chassis, and the reason; `until` is None while it continues."""

    chassis = models.BigIntegerField()
    since = models.FloatField()
    until = models.FloatField(null=True)
    reason = models.CharField(max_length=300)

    class Meta:
        indexes = [models.Index(fields=["chassis", "since"], name="gap_in_time")]
