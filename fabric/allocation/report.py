"""What a file comes to on this site: entry by entry, and altogether."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from fabric.allocation.places import Place
from fabric.planning import Wanted

By = Literal["exact", "slot", "serial", "kind"]
WAYS: Final[dict[By, str]] = {
    "exact": "Only what is the same here: the same chassis, slot and device",
    "serial": "By serial number: the device, wherever it is now",
    "slot": "By slot: whatever is in the same slot",
    "kind": "By kind: a device of the same kind and model, as near as possible",
}
Fit = Literal["exact", "mapped", "does_not_fit"]


@dataclass(frozen=True, kw_only=True)
class Line:
    """What one entry of the file comes to: how it fits, why, what it would change, and what there is to know of it."""

    place: Place
    what: str
    fit: Fit
    sentence: str = ""
    change: str = ""
    note: str = ""

    def as_json(self) -> dict[str, str | int]:
        """Return it as the API says it."""
        return {
            "path": self.place.path,
            "line": self.place.line,
            "column": self.place.column,
            "what": self.what,
            "fit": self.fit,
            "sentence": self.sentence,
            "change": self.change,
            "note": self.note,
        }


@dataclass(frozen=True, kw_only=True)
class Report:
    """All entries of a file, and what is wanted of this site after it: of those that fit."""

    by: By
    lines: tuple[Line, ...] = ()
    wanted: Wanted = field(default_factory=Wanted)

    def count(self, fit: Fit) -> int:
        """Return how many entries fit like this."""
        return sum(line.fit == fit for line in self.lines)

    @property
    def exact(self) -> int:
        """How many entries are the same here."""
        return self.count("exact")

    @property
    def mapped(self) -> tuple[Line, ...]:
        """The entries that something else stands in for."""
        return tuple(line for line in self.lines if line.fit == "mapped")

    @property
    def misfits(self) -> tuple[Line, ...]:
        """The entries that do not fit."""
        return tuple(line for line in self.lines if line.fit == "does_not_fit")

    @property
    def changes(self) -> tuple[Line, ...]:
        """The entries that would change something."""
        return tuple(line for line in self.lines if line.change)

    @property
    def notes(self) -> tuple[Line, ...]:
        """The entries of which there is something to know, and that are told nowhere else."""
        return tuple(line for line in self.lines if line.note)

    @property
    def is_empty(self) -> bool:
        """Whether nothing would change."""
        wanted = self.wanted
        return not (wanted.attachments or wanted.modes or wanted.cables or wanted.settings)

    def as_json(self) -> dict[str, Any]:
        """Return it as the API says it."""
        return {
            "by": self.by,
            "exact": self.exact,
            "mapped": len(self.mapped),
            "does_not_fit": len(self.misfits),
            "changes": len(self.changes),
            "nothing_to_change": self.is_empty,
            "entries": [line.as_json() for line in self.lines],
        }
