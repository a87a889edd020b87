"""A clock that is set is noticed, one that is adjusted slowly is not."""

from __future__ import annotations

import time

import pytest

from core.clock import ClockWatch


@pytest.mark.parametrize("step", [-3600.0, 3600.0])
def test_a_clock_that_was_set_is_noticed_for_a_while(monkeypatch: pytest.MonkeyPatch, step: float) -> None:
    day, steady = [1_800_000_000.0], [1000.0]
    monkeypatch.setattr(time, "time", lambda: day[0])
    monkeypatch.setattr(time, "monotonic", lambda: steady[0])
    watch = ClockWatch()
    for _ in range(100):  # 1% too fast, as while it is adjusted
        day[0], steady[0] = day[0] + 10.1, steady[0] + 10.0
        assert not watch.was_set_within(60.0)
    day[0] += step
    assert watch.was_set_within(60.0)
    day[0], steady[0] = day[0] + 59.0, steady[0] + 59.0
    assert watch.was_set_within(60.0)
    day[0], steady[0] = day[0] + 2.0, steady[0] + 2.0
    assert not watch.was_set_within(60.0)
