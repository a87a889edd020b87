"""Notices that the clock was set: what has lasted too long by the time of day may have lasted for a moment only."""

from __future__ import annotations

import math
import time
from typing import Final

STEP_SECONDS: Final = 5.0  # a clock that is adjusted slowly moves by less between two looks


class ClockWatch:
    """Compares the time of day with the monotonic clock whenever it is asked."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()
        self._set_at = -math.inf

    def was_set_within(self, seconds: float) -> bool:
        """Return whether the clock was set, or the machine suspended, in the last `seconds` since it was noticed."""
        now = time.monotonic()
        offset = time.time() - now
        if abs(offset - self._offset) > STEP_SECONDS:
            self._set_at = now
        self._offset = offset
        return now - self._set_at < seconds


process_clock: Final = ClockWatch()
