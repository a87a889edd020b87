"""In which order runs compose as seldom as possible: pure.

What a run brought to its host stays there for the next. So only what the next run needs elsewhere is moved, and devices
that wait unused stay where they are until the end. The order counts moves first, then how often something is moved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

Places = Mapping[int, int | None]  # device to host port; None: to none
MOST_EXACT: Final = 7  # compositions: each order of so many is looked at
MOST_IMPROVED: Final = 40  # compositions: more are left as the first search finds them


class Cost(NamedTuple):
    """How many devices are moved, and in how many goes."""

    moves: int = 0
    compositions: int = 0

    def plus(self, moved: int) -> Cost:
        """Return it with a composition that moves so many devices; one that moves none is none."""
        return Cost(self.moves + moved, self.compositions + bool(moved))


def order_of(wanted: Sequence[Mapping[int, int]], now: Places) -> list[int]:
    """Return the runs' numbers in an order of little cost; `wanted` is what each needs, device to host port.

    Runs of one composition stay together and in their order. Of up to 7 compositions no order costs less.
    """
    groups: dict[frozenset[tuple[int, int]], list[int]] = {}
    for number, places in enumerate(wanted):
        groups.setdefault(frozenset(places.items()), []).append(number)
    compositions = [dict(key) for key in groups]
    if len(compositions) <= MOST_EXACT:
        best = _exact(compositions, now)
    else:
        best = _improved(_greedy(compositions, now), compositions, now)
    members = list(groups.values())
    return [number for group in best for number in members[group]]


def cost_of(wanted: Sequence[Mapping[int, int]], now: Places) -> Cost:
    """Return what it costs to compose these one after the other; giving back is not counted: it costs all the same."""
    at, cost = dict(now), Cost()
    for places in wanted:
        cost = cost.plus(_moved(places, at))
        at.update(places)
    return cost


def _moved(places: Mapping[int, int], at: Places) -> int:
    return sum(at.get(device) != port for device, port in places.items())


def _exact(compositions: Sequence[Mapping[int, int]], now: Places) -> list[int]:
    """Return the cheapest order, the first of several; orders that are dearer already are not followed."""
    best: tuple[Cost, list[int]] | None = None
    dearest: dict[tuple[frozenset[int], frozenset[tuple[int, int | None]]], Cost] = {}

    def follow(left: tuple[int, ...], at: dict[int, int | None], cost: Cost, done: list[int]) -> None:
        nonlocal best
        if best is not None and cost >= best[0]:
            return
        if not left:
            best = cost, done
            return
        here = frozenset(left), frozenset(at.items())
        if here in dearest and dearest[here] <= cost:
            return
        dearest[here] = cost
        for group in left:
            rest = tuple(one for one in left if one != group)
            after = cost.plus(_moved(compositions[group], at))
            follow(rest, {**at, **compositions[group]}, after, [*done, group])

    follow(tuple(range(len(compositions))), dict(now), Cost(), [])
    return best[1] if best is not None else []


def _greedy(compositions: Sequence[Mapping[int, int]], now: Places) -> list[int]:
    """Return an order in which what is composed already comes next, else what takes fewest from where runs had them.

    Among those the largest: what needs fewer of its devices then finds them in place.
    """
    left, at, brought, order = list(range(len(compositions))), dict(now), set[int](), list[int]()
    while left:

        def key(group: int) -> tuple[bool, int, int]:
            moving = {device for device, port in compositions[group].items() if at.get(device) != port}
            return bool(moving), len(moving & brought), -len(moving)  # noqa: B023 - called at once

        chosen = min(left, key=key)
        left.remove(chosen)
        order.append(chosen)
        at.update(compositions[chosen])
        brought |= set(compositions[chosen])
    return order


def _improved(order: list[int], compositions: Sequence[Mapping[int, int]], now: Places) -> list[int]:
    """Return an order in which no single composition would cost less elsewhere."""
    if len(order) > MOST_IMPROVED:
        return order
    best = cost_of([compositions[one] for one in order], now)
    better = True
    while better:
        better = False
        for place in range(len(order)):
            rest = order[:place] + order[place + 1 :]
            for other in range(len(order)):
                tried = [*rest[:other], order[place], *rest[other:]]
                if (cost := cost_of([compositions[one] for one in tried], now)) < best:
                    order, best, better = tried, cost, True
                    break
            if better:
                break
    return order
