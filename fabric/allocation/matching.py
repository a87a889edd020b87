"""Which of many goes to which of many, at the lowest cost altogether: the Hungarian method."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

IMPOSSIBLE = 1e12


def cheapest(costs: Sequence[Sequence[float]], unmatched: Sequence[float]) -> list[int | None]:
    """Return for each row its column, None where it has none; every column is given once.

    `costs[row][column]` is IMPOSSIBLE or more where the two do not go together; `unmatched[row]` is what it costs to
    leave a row out. Source of the method: Kuhn 1955 and Munkres 1957, with potentials; of equal sums always the same.
    """
    rows = len(costs)
    if not rows:
        return []
    real = len(costs[0])
    # A column of its own for each row that is left out: then there is always a complete matching.
    table = np.full((rows, real + rows), IMPOSSIBLE)
    if real:
        table[:, :real] = costs
    table[np.arange(rows), real + np.arange(rows)] = unmatched
    holder = _assign(table)
    found: list[int | None] = [None] * rows
    for column in range(real):
        row = int(holder[column])
        if row >= 0 and table[row, column] < IMPOSSIBLE:
            found[row] = column
    return found


def _assign(table: np.ndarray) -> np.ndarray:
    """Return for each column the row that holds it, -1 for none: one shortest augmenting path a row."""
    rows, columns = table.shape
    of_row, of_column = np.zeros(rows), np.zeros(columns)
    holder = np.full(columns, -1)
    for first in range(rows):
        least = np.full(columns, np.inf)
        before = np.full(columns, -1)
        done = np.zeros(columns, dtype=bool)
        row, column = first, -1
        while row >= 0:
            if column >= 0:
                done[column] = True
            reduced = table[row] - of_row[row] - of_column
            better = ~done & (reduced < least)
            least[better], before[better] = reduced[better], column
            nearest = int(np.argmin(np.where(done, np.inf, least)))
            step = least[nearest]
            held = holder[done]
            of_row[held] += step
            of_row[first] += step
            of_column[done] -= step
            least[~done] -= step
            column, row = nearest, int(holder[nearest])
        while column >= 0:
            previous = int(before[column])
            holder[column] = holder[previous] if previous >= 0 else first
            column = previous
    return holder
