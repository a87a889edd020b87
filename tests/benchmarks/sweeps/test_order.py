"""The order of runs: as few moves as any order needs, on few compositions; little on many."""

from __future__ import annotations

import itertools
import random

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.sweeps.placement import MAX_EXACT, CompositionCost, cheapest_order, composition_cost

compositions = st.dictionaries(st.integers(1, 5), st.integers(1, 3), max_size=4)


def composed(order: list[int], wanted: list[dict[int, int]], now: dict[int, int | None]) -> CompositionCost:
    """Return what an order costs."""
    return composition_cost([wanted[number] for number in order], now)


@given(st.lists(compositions, max_size=5), st.dictionaries(st.integers(1, 5), st.none() | st.integers(1, 3)))
def test_no_order_of_few_compositions_costs_less(wanted: list[dict[int, int]], now: dict[int, int | None]) -> None:
    order = cheapest_order(wanted, now)
    assert sorted(order) == list(range(len(wanted)))
    brute = min(composed(list(other), wanted, now) for other in itertools.permutations(range(len(wanted))))
    assert composed(order, wanted, now) == brute


@given(st.lists(compositions, min_size=8, max_size=30), st.integers())
def test_on_many_compositions_it_costs_no_more_than_the_order_that_was_given(
    wanted: list[dict[int, int]], seed: int
) -> None:
    order = cheapest_order(wanted, {})
    assert sorted(order) == list(range(len(wanted)))
    shuffled = random.Random(seed).sample(range(len(wanted)), len(wanted))  # noqa: S311 - nothing secret
    assert composed(order, wanted, {}) <= composed(shuffled, wanted, {})


def test_runs_of_one_composition_stay_together_in_their_order() -> None:
    one, other = {1: 1}, {1: 2}
    assert cheapest_order([one, other, one, other, one], {}) in ([0, 2, 4, 1, 3], [1, 3, 0, 2, 4])


def test_the_largest_comes_first_so_that_the_smaller_ones_find_their_devices() -> None:
    wanted = [{1: 1}, {1: 1, 2: 1}, {1: 1, 2: 1, 3: 1, 4: 1}]
    assert cheapest_order(wanted, {})[0] == 2
    assert composed(cheapest_order(wanted, {}), wanted, {}) == CompositionCost(moves=4, compositions=1)
    assert composed([0, 1, 2], wanted, {}) == CompositionCost(moves=4, compositions=3)


def test_what_is_composed_already_costs_nothing_and_comes_first() -> None:
    wanted = [{1: 2}, {1: 1}]
    assert cheapest_order(wanted, {1: 1}) == [1, 0]
    assert composed([1, 0], wanted, {1: 1}) == CompositionCost(moves=1, compositions=1)


def test_more_compositions_than_are_searched_exactly_come_close_to_the_best() -> None:
    # Two ports that share four devices, and many subsets at each: whoever changes port as seldom as can be moves eight.
    subsets = [set(some) for size in (1, 2, 3, 4) for some in itertools.combinations(range(1, 5), size)]
    wanted = [dict.fromkeys(some, port) for port in (1, 2) for some in subsets]
    random.Random(7).shuffle(wanted)  # noqa: S311
    assert len(wanted) > MAX_EXACT
    assert composed(cheapest_order(wanted, {}), wanted, {}) == CompositionCost(moves=8, compositions=2)


def test_nothing_to_order_is_no_order() -> None:
    assert cheapest_order([], {}) == []
    assert composition_cost([], {}) == CompositionCost()
