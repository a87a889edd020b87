"""The period at which a worker reads its chassis: the one that is set, or as much more as the worker needs to keep up.

What a reading costs is measured by what it causes: how late the loop is. A worker that is late reads all its chassis
half as often, evenly, in place of some on time and others late. Once it has been on time for a while it tries twice as
often again, and again soon where it bears that, and waits ever longer before it does where that was too much. While
first walks wait for their turn, readings give way, however late the loop is: a chassis that was never walked has none.
"""

from __future__ import annotations

import asyncio
import logging
import math
import statistics
import sys
from collections.abc import Callable

from django.conf import settings

from fabric.bmc.readings import MAX_PERIOD
from fabric.bmc.walk_turns import WalkTurns
from telemetry.instrumentation import metrics

logger = logging.getLogger(__name__)

# How long a thread keeps the interpreter while the loop waits for it. Where many first walks are stored, each hand-over
# for a reading costs them: with the longer time walks take a twentieth less of the CPU.
SWITCH_SECONDS, WALKS_SWITCH_SECONDS = 0.0005, 0.005
LOOK_SECONDS = 0.5
LOOKS = 8  # from whose median the loop is judged: one pause of the whole process is no load
LATE_SECONDS = 0.2
EASY_SHARE = 0.3  # of the time from which it is late
# Of chassis, a second: no more of them are not what makes a worker late, nor what makes walks wait.
FEW_READINGS = 20
MIN_PATIENCE, MAX_PATIENCE = 4, 128  # judgements on time before readings are made more often


class ReadingPace:
    """The pace of all readings of one event loop; `turns` are those of its walks, `count` returns how many it reads."""

    def __init__(self, turns: WalkTurns, count: Callable[[], int]) -> None:
        self._turns = turns
        self._count = count
        self._stretch = 1
        self._on_time = 0
        self._patience = MIN_PATIENCE
        self._was_lowered = False
        self._bears_more = False  # it was on time since it was lowered
        self._gives_way = 1  # how much longer the period is beside first walks that wait
        self._walks_waited = False
        self._publish()

    @property
    def period(self) -> float:
        """The least period of readings now, s."""
        own = settings.CONFIG.reading_period
        return max(own, min(own * max(self._stretch, self._gives_way), MAX_PERIOD))

    @property
    def is_stretched(self) -> bool:
        """Whether it is longer than the one that is set."""
        return max(self._stretch, self._gives_way) > 1

    async def watch(self) -> None:
        """Judge the loop again and again, until cancelled."""
        now = asyncio.get_running_loop().time
        while True:
            delays = []
            for _ in range(LOOKS):
                due = now() + LOOK_SECONDS
                await asyncio.sleep(LOOK_SECONDS)
                delays.append(now() - due)
            self.judge(statistics.median(delays))
            sys.setswitchinterval(WALKS_SWITCH_SECONDS if self._gives_way > 1 else SWITCH_SECONDS)

    def judge(self, delay: float) -> None:
        """Adapt to a loop that runs what is due after this delay, s."""
        self._give_way_to_walks()
        if self._gives_way > 1:
            return  # what makes it late now says nothing of readings
        if delay > LATE_SECONDS and self._count() > FEW_READINGS * self.period:
            self._on_time, self._bears_more = 0, False
            if self._was_lowered:
                self._patience = min(self._patience * 2, MAX_PATIENCE)
            if self.period < MAX_PERIOD:
                self._set(self._stretch * 2)
            self._was_lowered = False
        elif delay > LATE_SECONDS * EASY_SHARE and self._count() > FEW_READINGS:
            self._on_time, self._bears_more = 0, False
        else:
            self._on_time += 1
            if self.is_stretched and self._on_time >= (1 if self._bears_more else self._patience):
                self._on_time = 0
                self._was_lowered = self._bears_more = True
                self._set(self._stretch // 2)
            elif not self.is_stretched and self._on_time >= MAX_PATIENCE:
                self._was_lowered, self._patience = False, MIN_PATIENCE

    def _give_way_to_walks(self) -> None:
        """Lengthen the period, as long as first walks wait, so that readings are few."""
        waits = self._turns.waiting > 0
        # A single one that waits has its turn soon.
        share = self._count() / FEW_READINGS / settings.CONFIG.reading_period if waits and self._walks_waited else 1.0
        self._walks_waited = waits
        gives_way = 2 ** math.ceil(math.log2(max(1.0, share)))
        if gives_way != self._gives_way:
            self._gives_way, self._on_time = gives_way, 0
            logger.info("chassis are read every %g s from now on, beside walks", self.period)
            self._publish()

    def _set(self, stretch: int) -> None:
        self._stretch = stretch
        logger.info("chassis are read every %g s from now on: that is what this worker bears", self.period)
        self._publish()

    def _publish(self) -> None:
        metrics.set_gauge("stretched_period_seconds", self.period if self.is_stretched else 0.0)
