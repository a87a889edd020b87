"""The choice of parts for a lease out of thousands: those that are chosen, and those that match a search."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from core.text import natural_key
from fabric.leases.selectors import KIND_ORDER, LeaseCandidate

FOUND_SHOWN = 25
MAX_ADDED = 256


@dataclass(frozen=True)
class PartSearch:
    """What candidates are searched by: a text with words that each has to occur, a kind and a model ('' for any)."""

    text: str = ""
    kind: str = ""
    model: str = ""

    def matches(self, one: LeaseCandidate) -> bool:
        """Return whether a candidate has all of it."""
        model = getattr(one.thing, "model", "")
        fields = (one.name, model, getattr(one.thing, "serial_number", ""), one.attached)
        return (
            self.kind in {"", one.kind}
            and self.model in {"", model}
            and all(any(word in field.casefold() for field in fields) for word in self.text.casefold().split())
        )


@dataclass(frozen=True)
class PartChoice:
    """The chosen candidates, and the first of the `count` others that match; `models` and `kinds` to search by."""

    search: PartSearch
    chosen: Sequence[LeaseCandidate]
    found: Sequence[LeaseCandidate]
    count: int
    kinds: Mapping[str, str]
    models: Sequence[str]


def part_choice(
    candidates: Sequence[LeaseCandidate], *, ticked: Collection[str] | None, search: PartSearch, add: int = 0
) -> PartChoice:
    """Return a choice: `ticked` ones ('devices/3'; None: those proposed), and the first `add` free ones that match."""
    chosen = [one for one in candidates if (one.proposed if ticked is None else one.ticked_as in ticked)]
    known = {one.ticked_as for one in chosen}
    found = [one for one in candidates if one.ticked_as not in known and search.matches(one)]
    found.sort(key=lambda one: (bool(one.why_not), KIND_ORDER[one.kind], *_place(one)))
    taken = [one for one in found[: min(add, MAX_ADDED)] if not one.why_not]
    found = found[len(taken) :]
    return PartChoice(
        search=search,
        chosen=[*chosen, *taken],
        found=found[:FOUND_SHOWN],
        count=len(found),
        kinds={one.kind: one.kind_label for one in candidates},
        models=sorted({model for one in candidates if (model := getattr(one.thing, "model", ""))}, key=natural_key),
    )


def _place(one: LeaseCandidate) -> tuple[object, object]:
    return natural_key(one.thing.chassis.name.casefold()), natural_key(one.name.casefold())
