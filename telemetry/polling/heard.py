"""Who hears the readings of each chassis, in the order in which they do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from telemetry.alerts.watch import AlertWatch
from telemetry.catalogue import Sample
from telemetry.links.watch import LinkWatch
from telemetry.pipeline import tally
from telemetry.store.recorder import Recorder
from telemetry.taps import Tap, Told

logger = logging.getLogger(__name__)

# Each is made with the chassis' number.
TAPS: tuple[Callable[[int], Tap], ...] = (Recorder, LinkWatch, AlertWatch)


class Hearers:
    """The taps of one chassis: what goes wrong in one is logged and stops neither the others nor the live path."""

    def __init__(self, chassis_id: int) -> None:
        self._chassis = chassis_id
        self._taps = [make(chassis_id) for make in TAPS]
        self._failing: set[str] = set()

    def begin(self, told: Told) -> None:
        """See `Tap.begin`."""
        for tap in self._taps:
            self._ask(tap.begin, told)

    def take(self, sample: Sample) -> None:
        """See `Tap.take`."""
        for tap in self._taps:
            self._ask(tap.take, sample)

    def lost(self, sentence: str) -> None:
        """See `Tap.lost`."""
        for tap in self._taps:
            self._ask(tap.lost, sentence)

    async def close(self) -> None:
        """See `Tap.close`."""
        await asyncio.gather(*(tap.close() for tap in self._taps), return_exceptions=True)

    def _ask(self, do: Callable[[Any], None], what: Any) -> None:
        name = getattr(do, "__qualname__", repr(do))
        try:
            do(what)
        except Exception:
            tally.add("tap_failures", chassis=self._chassis)
            # Once: a tap that fails at each reading must not fill the log.
            if name not in self._failing:
                logger.exception("%s of chassis %s", name, self._chassis)
            self._failing.add(name)
        else:
            self._failing.discard(name)
