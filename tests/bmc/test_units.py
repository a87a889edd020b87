"""What a reading in another unit is in the usual one, by physics rather than by the table's own factors."""

from __future__ import annotations

import pytest

from fabric.bmc.sensors import UNIT_CONVERSIONS, unit_conversion

# told, in which unit, and the same in the usual one
SAME = [
    (212.0, "[degF]", 100.0, "Cel"), (-40.0, "[degF]", -40.0, "Cel"), (273.15, "K", 0.0, "Cel"),
    (75_000.0, "mW", 75.0, "W"), (0.3, "kW", 300.0, "W"), (3_600_000.0, "J", 1.0, "kW.h"), (3600.0, "kJ", 1.0, "kW.h"),
    (1500.0, "W.h", 1.5, "kW.h"), (12_000.0, "mV", 12.0, "V"), (500.0, "mA", 0.5, "A"),
]  # fmt: skip


@pytest.mark.parametrize(("told", "unit", "usual", "wanted"), SAME)
def test_a_reading_in_another_unit_becomes_the_same_in_the_usual_one(
    told: float, unit: str, usual: float, wanted: str
) -> None:
    conversion = unit_conversion(unit)
    assert conversion.unit == wanted
    assert conversion.of(told) == pytest.approx(usual)


def test_each_unit_of_the_table_is_tried() -> None:
    assert {unit for _, unit, _, _ in SAME} == set(UNIT_CONVERSIONS)


@pytest.mark.parametrize("unit", ["Cel", "%", "furlong", ""])
def test_a_unit_that_is_usual_or_unknown_stays_as_it_is(unit: str) -> None:
    conversion = unit_conversion(unit)
    assert (conversion.unit, conversion.of(7.0), conversion.of(None)) == (unit, 7.0, None)
