"""Which series are made of what the BMC counts."""

from __future__ import annotations

import numpy as np
import pytest

from fabric.bmc.series import Quantity, ReadingSeries
from telemetry.live.catalogue import SeriesCatalogue
from telemetry.store.batches import ColumnLayout, ReadingBatch, ReadingRow, encode_batches
from telemetry.store.rules import catalogue_digest, derived_series, series_identity, storage_order
from tests.telemetry.store.feeding import ERROR_RATE, ERRORS, KEYS, OWNERS, RECEIVED, SERIES


def test_bytes_are_shown_as_a_rate_and_errors_as_a_total_and_a_rate() -> None:
    found = {one.entry["key"]: one for one in derived_series(SeriesCatalogue(SERIES, OWNERS).entries)}
    assert sorted(found) == sorted(KEYS)
    assert found[RECEIVED].is_rate
    assert not found[ERRORS].is_rate
    assert found[ERROR_RATE].is_rate
    assert found[ERROR_RATE].column == found[ERRORS].column
    assert series_identity(found[ERROR_RATE].entry) == (ERROR_RATE, "1/s")


def test_series_of_a_quantity_stand_together() -> None:
    entries = SeriesCatalogue([*SERIES, *SERIES], OWNERS).entries
    order = storage_order(entries)
    quantities = [entries[place]["quantity"] for place in order]
    assert sorted(order) == list(range(len(entries)))
    assert quantities == sorted(quantities)


def test_a_catalogue_is_known_by_all_that_it_says() -> None:
    entries = SeriesCatalogue(SERIES, OWNERS).entries
    known = catalogue_digest(entries)
    assert known == catalogue_digest([entry.copy() for entry in entries])
    others = {catalogue_digest([*entries[1:], {**entries[0], name: "x"}]) for name in entries[0]}  # type: ignore[misc]
    assert len(others | {known}) == len(entries[0]) + 1


def test_a_sensor_that_measures_in_another_unit_than_usual_is_shown_in_its_own() -> None:
    def unit(quantity: Quantity, unit: str) -> str:
        return SeriesCatalogue(
            [ReadingSeries(property="/t#/Reading", owner_uri="/t", quantity=quantity, unit=unit)], OWNERS
        ).entries[0]["unit"]

    assert unit(Quantity.TEMPERATURE, "Cel") == unit(Quantity.TEMPERATURE, "") == "°C"
    assert unit(Quantity.TEMPERATURE, "[degF]") == "[degF]"
    assert unit(Quantity.POWER, "mW") == "mW"
    assert unit(Quantity.FAN_RPM, "RPM") == unit(Quantity.FAN_RPM, "{rev}/min") == "rpm"
    assert unit(Quantity.FAN_PERCENT, "Percent") == "%"


def test_rows_of_more_values_than_there_are_series_are_refused() -> None:
    layout = ColumnLayout(SeriesCatalogue(SERIES, OWNERS).entries)
    for more in (0, 1):
        rows = [ReadingRow(1e9 + second, 0.0, np.ones(len(SERIES) + more)) for second in range(2)]
        batch = ReadingBatch(1, 5.0, layout, rows)
        if more:
            with pytest.raises(ValueError, match="reshape"):
                encode_batches([batch])
        else:
            assert encode_batches([batch])[0].readings == 2 * len(SERIES)
