"""What hears the readings of a chassis beside the live path: the store, the alert rules, the watch over links.

A tap lives as long as its chassis is followed by this worker, in the event loop that reads all of its chassis: each
call has to be quick, and what waits (a database) goes on in a task or a thread of the tap's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from fabric.bmc.types import Inventory
from fabric.sights import Owner
from telemetry.catalogue import Catalogue, Sample


@dataclass(frozen=True)
class Told:
    """What the readings from now on are of: `catalogue.entries[i]` and `catalogue.series[i]` name the i-th value."""

    chassis_id: int
    catalogue: Catalogue
    inventory: Inventory
    owners: Mapping[str, Owner]


class Tap(Protocol):
    """One hearer of one chassis."""

    def begin(self, told: Told) -> None:
        """Take note of what the readings are of; called again whenever that changes."""

    def take(self, sample: Sample) -> None:
        """Take one reading."""

    def lost(self, sentence: str) -> None:
        """Take note that the chassis does not answer; called at each failed try."""

    async def close(self) -> None:
        """End: what is kept in memory is brought to where it belongs."""
