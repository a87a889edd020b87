"""What counts as a flap."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from telemetry.links.counters import count_flaps

BEGIN = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


@dataclass
class Was:
    """A state that began so many seconds after BEGIN."""

    at: float
    status: str
    asked: bool = False
    drops: int = 0

    @property
    def since(self) -> datetime:
        return BEGIN + timedelta(seconds=self.at)


@pytest.mark.parametrize(
    ("states", "flaps"),
    [
        ([Was(0, "LinkUp")], 0),
        ([Was(0, "LinkUp"), Was(5, "LinkDown"), Was(6, "Training"), Was(8, "LinkUp")], 1),
        ([Was(0, "LinkUp"), Was(5, "LinkDown"), Was(6, "LinkUp"), Was(9, "LinkDown"), Was(10, "LinkUp")], 2),
        ([Was(0, "LinkUp"), Was(5, "LinkDown")], 0),  # it did not come back
        ([Was(0, "LinkUp"), Was(5, "LinkDown"), Was(70, "LinkUp")], 0),  # too long for a flap
        ([Was(0, "LinkUp"), Was(5, "LinkDown", asked=True), Was(8, "LinkUp")], 0),  # moved by an operation
        ([Was(0, "LinkUp"), Was(5, "LinkDown"), Was(6, "Training", asked=True), Was(8, "LinkUp")], 0),
        ([Was(0, "LinkUp"), Was(5, "LinkUp")], 0),  # only narrower
        ([Was(0, "LinkUp"), Was(5, "Training"), Was(8, "LinkUp")], 0),  # it retrained, and was not down
        ([Was(0, "LinkDown"), Was(3, "LinkUp")], 0),  # it came up for the first time
        ([Was(-50, "LinkUp"), Was(-40, "LinkDown"), Was(-30, "LinkUp")], 0),  # before the hour
        ([Was(0, "LinkUp"), Was(5, "Flapping", drops=40)], 40),
        ([], 0),
    ],
)
def test_flaps_are_counted(states: list[Was], flaps: int) -> None:
    assert count_flaps(states, since=BEGIN) == flaps
