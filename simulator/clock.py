"""The simulated clock: starts at the wall's time and runs at an adjustable speed, never backwards."""

from __future__ import annotations

import time
from datetime import UTC, datetime

MAX_SPEED = 1000.0


class Clock:
    """Simulated seconds since the start, and the date that belongs to them."""

    def __init__(self, speed: float = 1.0) -> None:
        self._started = time.time()
        self._base = 0.0
        self._shift = 0.0
        self._since = time.monotonic()
        self._speed = speed

    @property
    def speed(self) -> float:
        """Simulated seconds in a second."""
        return self._speed

    def shift(self, seconds: float) -> None:
        """Set the date that is shown forward or back, as somebody does who sets a clock; the time that passes stays."""
        self._shift += seconds

    def set_speed(self, speed: float) -> None:
        """Change the speed from now on; raises ValueError outside of 0 (exclusive) to 1000."""
        if not 0 < speed <= MAX_SPEED:
            raise ValueError(f"the speed must lie between 0 and {MAX_SPEED:g}")
        self._base = self.now()
        self._since = time.monotonic()
        self._speed = speed

    def now(self) -> float:
        """Return the simulated seconds since the start."""
        return self._base + (time.monotonic() - self._since) * self._speed

    def timestamp(self, at: float | None = None) -> str:
        """Return the Redfish date and time of a simulated second (default: now)."""
        moment = datetime.fromtimestamp(self._started + self._shift + (self.now() if at is None else at), UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
