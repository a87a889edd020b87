"""Finds columns that change as another one of their block does: see bit 6 of telemetry.store.format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from telemetry.store.format import EXACT_LIMIT, NOTHING, Integers, Values

Places = NDArray[np.intp]

MIN_RANGE = 16  # of the differences of a column for which another is searched
MIN_STEPS = 8
MAX_UNEXPLAINED = 0.05  # of their variance; with more, what names the other column takes as much as it saves
NO_PAIRS = np.empty((2, 0), np.intp)
PAIRS_USED = 15  # chunks, then they are searched anew: that takes as long as all else


class KnownPairs:
    """Which columns of a catalogue moved as others did in an earlier chunk: mostly they do in the next ones, too."""

    def __init__(self) -> None:
        self.own: Places = NOTHING
        self.others: Places = NOTHING
        self.left = 0  # chunks for which they are used

    def use(self) -> Places:
        """Return them for the next chunk, [2, pairs]."""
        self.left -= 1
        return np.stack((self.own, self.others))

    def judge(self, told: int) -> None:
        """Note how many columns were told from their others: where few are, what moved together does so no more."""
        if 2 * told < len(self.own):
            self.left = 0


class ChangingColumns(NamedTuple):
    """Columns that change: their indices, ascending, and the steps from row to row, with the least and the greatest."""

    moving: Places
    steps: Integers
    least: Integers
    most: Integers
    fit: NDArray[np.bool_]  # those that may follow


def find_followers(
    columns: ChangingColumns, ends: Sequence[int], known: Mapping[int, KnownPairs | None]
) -> tuple[Places, Places, Values]:
    """Return which columns follow, ascending, which ones they follow, and how many times as much they change.

    They are told by their places among those that change. A column that another follows follows none. `ends` are those
    of the blocks; `known` are of the chunks, by the column where each begins.
    """
    moving, steps = columns.moving, columns.steps
    least, most = (one.astype(np.float64) for one in (columns.least, columns.most))
    largest = np.maximum(np.abs(least), np.abs(most))
    fit = columns.fit & (most - least > MIN_RANGE) & (largest < EXACT_LIMIT / 2)
    if steps.shape[1] < MIN_STEPS or not fit.any():
        return NOTHING, NOTHING, np.empty(0)
    fitting = np.flatnonzero(fit)
    place = np.full(ends[-1], -1)
    place[moving[fitting]] = fitting
    pairs: list[tuple[Places, Places]] = []
    for begin, end in pairwise([*known, ends[-1]]):
        one = known[begin]
        if one is not None and one.left:
            own, others = place[one.use() + begin]
            are_fit = (own >= 0) & (others >= 0)
            pairs.append((own[are_fit], others[are_fit]))
            continue
        cuts = np.searchsorted(moving[fitting], [block for block in ends if begin <= block <= end])
        found = [_pairs_among(steps, fitting[slice(*cut)]) for cut in pairwise(cuts.tolist())]
        pairs += found
        if one is not None:
            one.own, one.others = (moving[np.concatenate(side)] - begin for side in zip(*found, strict=True))
            one.left = PAIRS_USED
    own, others = (np.concatenate(side) for side in zip(*pairs, strict=True))
    moved, told_by = (_from_mean(steps[some]) for some in (own, others))
    squares = (told_by * told_by).sum(axis=1)
    slopes = (moved * told_by).sum(axis=1) / squares
    explained = slopes * slopes * squares / (moved * moved).sum(axis=1)
    held = (explained > 1 - MAX_UNEXPLAINED) & (largest[others] * np.abs(slopes) < EXACT_LIMIT)
    own, others, slopes = own[held], others[held], slopes[held]
    for one, count in zip(known.values(), np.diff(np.searchsorted(moving[own], [*known, ends[-1]])), strict=True):
        if one is not None:
            one.judge(int(count))
    return own, others, slopes


def _from_mean(steps: Integers) -> Values:
    found: Values = steps - steps.mean(axis=1)[:, None]
    return found


def _pairs_among(steps: Integers, some: Places) -> tuple[Places, Places]:
    """Return which of some columns of a block follow another, ascending, and which one."""
    if len(some) < 2:
        return NOTHING, NOTHING
    own = _from_mean(steps[some])
    products = own @ own.T
    squares = products.diagonal()
    explained = products * products
    explained /= squares
    explained /= squares[:, None]
    np.fill_diagonal(explained, 0.0)
    best = explained.argmax(axis=1).tolist()
    gain = explained.max(axis=1)
    taken: dict[int, int] = {}
    given: set[int] = set()
    order = np.argsort(-gain, kind="stable").tolist()
    for one in order[: int((gain > 1 - MAX_UNEXPLAINED).sum())]:
        if one not in given and best[one] not in taken:
            taken[one] = best[one]
            given.add(best[one])
    following = sorted(taken)
    return some[following], some[[taken[one] for one in following]]
