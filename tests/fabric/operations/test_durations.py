"""How long things usually take, from the site's own history."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from fabric.inventory.models import Chassis
from fabric.operations.models import Operation
from fabric.operations.selectors import DurationRange, format_duration_range, longest_drawer_duration, usual_durations
from tests.fabric.plans.pages import done_before


def test_how_long_is_the_tenth_to_the_ninetieth_percentile_of_this_chassis_else_of_all(chassis: Chassis) -> None:
    other = Chassis.objects.create(name="falcon-9", url="https://127.0.0.1:9")
    done_before(chassis, "attach", *range(1, 12))
    done_before(chassis, "detach", 1, 2)
    usual = usual_durations({("attach", chassis.pk), ("attach", other.pk), ("detach", chassis.pk), ("mode", other.pk)})
    assert usual["attach", chassis.pk] == DurationRange(low=pytest.approx(2), high=pytest.approx(10))  # type: ignore[arg-type]
    assert usual["attach", other.pk] == usual["attach", chassis.pk]
    assert set(usual) == {("attach", chassis.pk), ("attach", other.pk)}, "of two, nobody can say what is usual"


def test_only_the_newest_200_that_were_done_are_looked_at(chassis: Chassis) -> None:
    done_before(chassis, "attach", *[900] * 50)
    Operation.objects.update(
        finished_at=timezone.now() - timedelta(days=9), started_at=timezone.now() - timedelta(days=10)
    )
    done_before(chassis, "attach", *[4] * 200)
    failed = timezone.now()
    Operation.objects.create(
        kind="attach", state="failed", chassis=chassis, summary="failed", requested_by_name="ada",
        started_at=failed, finished_at=failed + timedelta(hours=9),
    )  # fmt: skip
    assert usual_durations({("attach", chassis.pk)})["attach", chassis.pk].words == "usually 4 s"


def test_a_plan_takes_as_long_as_its_longest_drawer() -> None:
    usual = {("attach", 1): DurationRange(low=4, high=9), ("mode", 1): DurationRange(low=1, high=2)}
    one, two = (1, 1), (1, 2)
    total = longest_drawer_duration([(one, "attach"), (one, "mode"), (two, "attach"), (two, "attach")], usual)
    assert total == DurationRange(low=8, high=18)
    assert longest_drawer_duration([(one, "attach"), (one, "cable")], usual) is None
    assert longest_drawer_duration([], usual) is None


@pytest.mark.parametrize(
    ("low", "high", "told"),
    [
        (4.2, 9.1, "4 to 9 s"),
        (0.41, 0.93, "0.4 to 0.9 s"),
        (3.9, 4.1, "4 s"),
        (100, 250, "2 to 4 min"),
        (0, 0, "0.0 s"),
    ],
)
def test_durations_are_told_in_few_digits(low: float, high: float, told: str) -> None:
    assert format_duration_range(low, high) == told
