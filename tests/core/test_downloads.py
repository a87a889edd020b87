"""Tables for spreadsheets."""

from __future__ import annotations

import csv

from core.downloads import csv_table


def test_no_cell_is_a_formula() -> None:
    rows = [["=HYPERLINK(1)", "@x", "+1", "-1", "\tx", 'a "b", c', None, -4, 2.5]]
    (_, row) = csv.reader("".join(csv_table(["a"] * 9, rows)).splitlines())
    assert row == ["'=HYPERLINK(1)", "'@x", "'+1", "'-1", "'\tx", 'a "b", c', "", "-4", "2.5"]
