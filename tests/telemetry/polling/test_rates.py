"""Rates, and what is kept of live readings: whatever a BMC counts, and whatever its clock says."""

from __future__ import annotations

import math

import pytest

from fabric.bmc.series import ChassisReading, Quantity, ReadingSeries
from fabric.inventory.selectors import ReadingOwner
from telemetry.live.catalogue import LATE_SECONDS, Sample, SeriesCatalogue

RECEIVED, ERRORS, TEMPERATURE = range(3)


@pytest.fixture
def catalogue() -> SeriesCatalogue:
    """The bytes and errors of a port, and a temperature."""
    return SeriesCatalogue(
        [
            ReadingSeries(property="/p/Metrics#/RXBytes", owner_uri="/p", quantity=Quantity.RX_BYTES),
            ReadingSeries(property="/p/Metrics#/E", owner_uri="/p", quantity=Quantity.ERRORS, detail="E"),
            ReadingSeries(property="/t#/Reading", owner_uri="/t", quantity=Quantity.TEMPERATURE, unit="Cel"),
        ],
        {"/p": ReadingOwner("port", 5)},
    )


def take(catalogue: SeriesCatalogue, at: float, *values: float, measured_at: float = 0.0) -> Sample:
    return catalogue.sample(ChassisReading(at=at, values=values, measured_at=measured_at))


def rates(samples: list[Sample]) -> list[float | None]:
    found = [sample.values[RECEIVED] for sample in samples]
    return [None if math.isnan(rate) else round(rate, 3) for rate in found]


def test_a_counter_below_zero_is_a_gap_and_nothing_rises_from_it(catalogue: SeriesCatalogue) -> None:
    samples = [take(catalogue, at, 1e12 * sign + at, 7 * sign, -20.5) for at, sign in enumerate((1, 1, -1, 1, 1))]
    assert rates(samples) == [None, 1.0, None, None, 1.0]
    assert [math.isnan(sample.values[ERRORS]) for sample in samples] == [False, False, True, False, False]
    assert {sample.values[TEMPERATURE] for sample in samples} == {-20.5}
    assert math.isnan(samples[2].byte_counters[0])
    assert samples[2].counted[ERRORS] == -7.0, "whoever counts what is no good has to see it"


@pytest.mark.parametrize("jump", [3600.0, -3600.0, 1e9, -1e9])
def test_a_clock_that_is_set_changes_no_rate(catalogue: SeriesCatalogue, jump: float) -> None:
    samples = [
        take(catalogue, at, 100.0 * at, at, 20.0, measured_at=2e9 + at + (jump if at > 2 else 0)) for at in range(6)
    ]
    assert rates(samples) == [None, *[100.0] * 5]
    assert not any(sample.is_late for sample in samples)


def test_a_clock_that_stands_still_changes_no_rate(catalogue: SeriesCatalogue) -> None:
    samples = [take(catalogue, at, 100.0 * at, at, 20.0, measured_at=5.0) for at in range(4)]
    assert rates(samples) == [None, 100.0, 100.0, 100.0]


def test_a_report_that_is_renewed_more_rarely_has_the_rate_of_the_whole_time(catalogue: SeriesCatalogue) -> None:
    samples = [
        take(catalogue, at, 100.0 * (at // 10 * 10), 0, 20.0, measured_at=1000 + at // 10 * 10) for at in range(25)
    ]
    assert rates(samples) == [None] * 10 + [100.0] * 15


def test_a_report_from_before_the_newest_is_kept_out_and_that_one_is_shown_on(catalogue: SeriesCatalogue) -> None:
    times = (0, 1, 2, 0, 4, 1, 6)  # of the BMC; ours go on
    samples = [
        take(catalogue, at, 100.0 * time, time, 20.0 + time, measured_at=1000 + time) for at, time in enumerate(times)
    ]
    assert [sample.is_late for sample in samples] == [False, False, False, True, False, True, False]
    assert rates(samples) == [None, 100.0, 100.0, 100.0, 100.0, 100.0, 100.0]
    assert [sample.values[TEMPERATURE] for sample in samples] == [20, 21, 22, 22, 24, 24, 26]
    assert [sample.byte_counters[0] for sample in samples] == [0, 100, 200, 200, 400, 400, 600]
    assert [sample.at for sample in samples] == [0, 1, 2, 3, 4, 5, 6]


def test_a_bmc_that_begins_anew_with_an_old_clock_is_not_kept_out_for_long(catalogue: SeriesCatalogue) -> None:
    take(catalogue, 0, 1e9, 50, 20.0, measured_at=2e9)
    anew = [take(catalogue, at, 100.0 * at, 0, 20.0, measured_at=at) for at in range(1, 61)]
    late = [sample.is_late for sample in anew]
    assert late == [at <= LATE_SECONDS for at in range(1, 61)]
    assert rates(anew)[-1] == 100.0


def test_what_is_told_in_another_unit_is_converted() -> None:
    series = ReadingSeries(
        property="/t#/Reading", owner_uri="/t", quantity=Quantity.TEMPERATURE, unit="Cel", factor=5 / 9, zero=-160 / 9
    )
    catalogue = SeriesCatalogue([series], {})
    assert catalogue.entries[0]["unit"] == "°C"
    sample = take(catalogue, 0, 212.0)
    assert sample.values[0] == sample.counted[0] == pytest.approx(100.0)
