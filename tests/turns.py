"""What `make test` tries a part of and `make nightly` all of: products of many addresses with many values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

import hypothesis

Thing = TypeVar("Thing")

NIGHTLY = hypothesis.settings.default is not None and hypothesis.settings.default.max_examples > 100


def in_turn(things: Iterable[Thing], turn: int, *, of: int) -> Iterator[Thing]:
    """Yield one in so many of the things, at each turn (0, 1, ...) others, so that all come within `of` turns.

    With as many turns as there are values, each thing meets some values and each value some things. In the nightly
    profile it yields all things at every turn: each meets each.
    """
    return iter(things) if NIGHTLY else islice(things, turn % of, None, of)


def at_night(*things: Thing) -> tuple[Thing, ...]:
    """Return the things in the nightly profile, and none in others."""
    return things if NIGHTLY else ()
