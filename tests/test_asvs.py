"""The table of security requirements: each number of the standard once, and nothing named that does not exist."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# The requirements of levels 1 and 2 of version 4.0.3, by section; what is missing is of level 3 or was removed.
NUMBERS = """
    2.1.1-12 2.2.1-3 2.3.1-3 2.4.1-5 2.5.1-7 2.6.1-3 2.7.1-6 2.8.1-7 2.9.1-3 2.10.1-4 3.1.1 3.2.1-4 3.3.1-4 3.4.1-5
    3.5.1-3 3.7.1 4.1.1-3,5 4.2.1-2 4.3.1-3 5.1.1-5 5.2.1-8 5.3.1-10 5.4.1-3 5.5.1-4 7.1.1-4 7.2.1-2 7.3.1,3-4 7.4.1-3
    8.1.1-4 8.2.1-3 8.3.1-8 9.1.1-3 9.2.1-4 11.1.1-8 12.1.1-3 12.2.1 12.3.1-6 12.4.1-2 12.5.1-2 12.6.1 13.1.1,3-5
    13.2.1-3,5-6 13.3.1-2 13.4.1-2 14.1.1-4 14.2.1-6 14.3.2-3 14.4.1-7 14.5.1-4
"""
SECOND_LEVEL = """
    2.3.2-3 2.4.1-5 2.5.7 2.6.1-3 2.7.5-6 2.8.2-7 2.9.1-3 2.10.1-4 3.2.4 3.3.3-4 3.5.1-3 4.3.3 5.4.1-3 7.1.3-4 7.2.1-2
    7.3.1,3-4 7.4.2-3 8.1.1-4 8.3.5-8 9.2.1-4 11.1.6-8 12.1.2-3 12.2.1 12.3.6 13.1.4-5 13.2.5-6 13.3.2 13.4.1-2
    14.1.1-4 14.2.4-6 14.5.4
"""
CHECK = "(check)"  # what is named there is compared with the code later
NAMED = re.compile(r"`([\w./-]+\.(?:py|js|txt|json|toml|md)|[\w.-]+(?:/[\w.-]+)*/|Makefile|\.ci/run)(?:::(\w+))?`")


def numbers(text: str) -> set[str]:
    found = set()
    for word in text.split():
        chapter, section, items = word.split(".")
        for item in items.split(","):
            first, _, last = item.partition("-")
            found |= {f"{chapter}.{section}.{one}" for one in range(int(first), int(last or first) + 1)}
    return found


@cache
def rows() -> list[list[str]]:
    text = (ROOT / "docs/asvs.md").read_text()
    return [
        [cell.strip() for cell in line[1:-1].split("|")] for line in text.splitlines() if line[:3].strip("| ").isdigit()
    ]


def test_each_requirement_has_one_row_with_its_level() -> None:
    found = [row[0] for row in rows()]
    assert sorted(found) == sorted(numbers(NUMBERS))
    assert {row[0] for row in rows() if row[1] == "2"} == numbers(SECOND_LEVEL)
    assert {row[1] for row in rows()} == {"1", "2"}
    assert all(len(row) == 5 and row[2] and row[3] for row in rows())


@pytest.mark.parametrize("column", [3, 4], ids=["where", "test"])
def test_what_the_table_names_exists(column: int) -> None:
    missing = []
    for row in rows():
        if CHECK in row[3] or CHECK in row[4]:
            continue
        for path, test in NAMED.findall(row[column]):
            there = (ROOT / path).exists()
            if not there or (test and f"def {test}(" not in (ROOT / path).read_text()):
                missing.append((row[0], path, test))
    assert not missing


def test_tests_are_named_in_the_column_of_tests_alone() -> None:
    wrong = [row[0] for row in rows() if CHECK not in row[4] and row[4] and not NAMED.search(row[4])]
    assert not wrong
    assert not [row[0] for row in rows() if "`tests/" in row[3]]
