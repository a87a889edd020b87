"""Figures as people read them: as many digits as they are worth, units that fit, names instead of codes."""

from __future__ import annotations

import pytest

from benchmarks.runs.detail import result_tables, single_results
from benchmarks.runs.quantities import format_number, value_text
from benchmarks.runs.results import Statistic, Summary
from benchmarks.runs.templatetags.run_words import counted, interval_words, option_label


@pytest.mark.parametrize(
    ("value", "words"),
    [(0, "0"), (427.04, "427"), (9.996, "10.0"), (999.6, "1,000"), (0.0923, "0.0923"), (1673.4, "1,673"),
     (16, "16"), (421_642, "421,642"), (-3.456, "-3.46"), (1e-9, "1.00e-09")],
)  # fmt: skip
def test_a_number_has_three_significant_digits_and_whole_ones_stay_whole(value: float, words: str) -> None:
    assert format_number(value) == words


def test_an_interval_has_the_unit_and_the_decimals_of_its_value() -> None:
    figure = Statistic(value=0.006009, low=0.0007752, high=0.01722, unit="s", count=5)
    assert interval_words(figure) == "0.78 to 17.22 ms"
    assert value_text(1_506_888, "B") == "1.44 MiB"


def test_sizes_and_devices_are_told_by_their_names() -> None:
    assert option_label("image", "resnet50") == "Image side, px"
    assert option_label("image", "a workload of elsewhere") == "Image"
    assert counted(["V100", "V100", "P100"]) == "2 × V100, P100"


def test_single_results_are_no_tables_and_a_matrix_says_which_row_is_whose() -> None:
    summary = Summary(
        tables={"gradient_bytes": 1_506_888, "parameters": 376_722, "bandwidth": [[702.0, 19.1], [19.2, 703.0]]},
        units={"gradient_bytes": "B", "bandwidth": "GB/s"},
    )
    assert single_results(summary) == [("Gradient", "1.44 MiB"), ("Parameters", "376,722")]
    ((name, table),) = result_tables(summary)
    assert name == "Bandwidth, GB/s"
    assert table.heads == ("", "0", "1")
    assert table.rows == (("0", "702", "19.1"), ("1", "19.2", "703"))
