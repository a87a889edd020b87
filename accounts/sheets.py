"""Tables as CSV, streamed, safe to open in a spreadsheet."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator

# A cell that begins so is a formula to a spreadsheet (OWASP, CSV injection), to some with the wide signs of East Asia.
FORMULA_BEGINS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


class _Echo:
    """A file that hands each line back."""

    @staticmethod
    def write(line: str) -> str:
        return line


def lines(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> Iterator[str]:
    """Yield the lines of a table."""
    writer = csv.writer(_Echo())
    yield writer.writerow(list(columns))
    for row in rows:
        yield writer.writerow([safe(cell) for cell in row])


def safe(cell: object) -> str:
    """Return a cell that no spreadsheet takes for a formula."""
    text = "" if cell is None else str(cell)
    begins = text.lstrip(" ").startswith(FORMULA_BEGINS)
    return f"'{text}" if begins and not isinstance(cell, int | float) else text
