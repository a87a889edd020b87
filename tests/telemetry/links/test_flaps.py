"""What counts as a flap."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from telemetry.links.models import LinkSpan
from telemetry.links.verdicts import count_flaps

BEGIN = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


def was(at: float, status: str, *, asked: bool = False, drops: int = 0) -> LinkSpan:
    """Return a state that began so many seconds after BEGIN."""
    return LinkSpan(since=BEGIN + timedelta(seconds=at), status=status, asked=asked, drops=drops)


@pytest.mark.parametrize(
    ("states", "flaps"),
    [
        ([was(0, "LinkUp")], 0),
        ([was(0, "LinkUp"), was(5, "LinkDown"), was(6, "Training"), was(8, "LinkUp")], 1),
        ([was(0, "LinkUp"), was(5, "LinkDown"), was(6, "LinkUp"), was(9, "LinkDown"), was(10, "LinkUp")], 2),
        ([was(0, "LinkUp"), was(5, "LinkDown")], 0),  # it did not come back
        ([was(0, "LinkUp"), was(5, "LinkDown"), was(70, "LinkUp")], 0),  # too long for a flap
        ([was(0, "LinkUp"), was(5, "LinkDown", asked=True), was(8, "LinkUp")], 0),  # moved by an operation
        ([was(0, "LinkUp"), was(5, "LinkDown"), was(6, "Training", asked=True), was(8, "LinkUp")], 0),
        ([was(0, "LinkUp"), was(5, "LinkUp")], 0),  # only narrower
        ([was(0, "LinkUp"), was(5, "Training"), was(8, "LinkUp")], 0),  # it retrained, and was not down
        ([was(0, "LinkDown"), was(3, "LinkUp")], 0),  # it came up for the first time
        ([was(-50, "LinkUp"), was(-40, "LinkDown"), was(-30, "LinkUp")], 0),  # before the hour
        ([was(0, "LinkUp"), was(5, "Flapping", drops=40)], 40),
        ([], 0),
    ],
)
def test_flaps_are_counted(states: list[LinkSpan], flaps: int) -> None:
    assert count_flaps(states, since=BEGIN) == flaps
