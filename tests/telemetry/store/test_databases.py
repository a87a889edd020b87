"""What depends on the database: one that goes away, and two that write the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connections

from telemetry.store import selectors, services
from telemetry.store.models import Due
from telemetry.store.rollups import SeriesBuckets, combined
from telemetry.store.rules import Tier
from tests.postgres import PostgresServer
from tests.telemetry.store.feeding import TEMPERATURE, Feed, moments
from tests.waiting import wait_for

pytestmark = [pytest.mark.process, pytest.mark.django_db(transaction=True, databases="__all__")]
NewFeed = Callable[..., Feed]


def test_two_that_roll_the_same_window_up_do_not_count_anything_twice(
    database: str, feed: NewFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = feed()
    some.run(range(1200))
    some.flush()
    some.roll()
    some.run(range(1200, 1300))
    some.flush()
    make, entered = combined, list[bool]()

    def slowly(*arguments: Any) -> SeriesBuckets:
        """Let another one make it meanwhile."""
        if not entered:
            entered.append(True)
            assert services.chassis_roll_up(some.chassis, Tier.TEN_SECONDS, now=float("inf")) == 1
        return make(*arguments)

    monkeypatch.setattr(services, "combined", slowly)
    assert services.chassis_roll_up(some.chassis, Tier.TEN_SECONDS, now=float("inf")) == 0
    found = selectors.read_series(some.chassis, [TEMPERATURE], since=some.since, until=some.since + 1300, points=130)
    assert found.count.sum() == 1300
    assert not Due.objects.filter(chassis=some.chassis, tier=Tier.TEN_SECONDS).exists()


def test_a_postgresql_that_goes_away_and_comes_back_is_written_to_again(
    postgres: PostgresServer, feed: NewFeed
) -> None:
    some = feed()
    some.run(range(130))
    some.stored()
    postgres.stop()
    try:
        some.run(range(130, 400))
        some.recorder._submit_rows()
        wait_for(lambda: some.writer._failures > 0)
    finally:
        postgres.start()
        connections["readings"].close()
    some.run(range(400, 500))
    some.flush()
    assert len(moments(some.chassis)) == 500
