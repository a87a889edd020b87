"""What is wrong with a file that somebody wants to import, by line and field."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from falconweb.errors import Invalid

MOST_PROBLEMS: Final = 20
LONGEST_FIELD: Final = 120


@dataclass(frozen=True)
class Problem:
    """Something that is wrong: `line` counts from 1, 0 for the file as a whole; `field` is '' for all of a line."""

    line: int
    field: str
    sentence: str

    @property
    def words(self) -> str:
        """All of it as one sentence."""
        place = ", ".join(part for part in (f"line {self.line}" if self.line else "", self.field) if part)
        return f"{place[:1].upper()}{place[1:]}: {self.sentence}" if place else self.sentence


class TooManyError(Exception):
    """So much is wrong that reading on tells nothing new."""


@dataclass
class Problems:
    """What was found so far, so much at most."""

    found: list[Problem] = field(default_factory=list)
    more: bool = False

    def note(self, line: int, where: str, sentence: str) -> None:
        """Keep one; raises TooManyError where there is no room for it."""
        if len(self.found) >= MOST_PROBLEMS:
            self.more = True
            raise TooManyError
        self.found.append(Problem(line, where[:LONGEST_FIELD], sentence))


def refuse_problems(found: tuple[Problem, ...], more: bool) -> None:
    """Raise Invalid where there are any, with each of them by its place."""
    if not found:
        return
    count = f"More than {len(found)}" if more else str(len(found))
    raise Invalid(
        f"{count} problem{'' if len(found) == 1 and not more else 's'} in the file: {found[0].words} "
        "Nothing was imported.",
        problems=[{"line": one.line, "path": one.field, "sentence": one.sentence} for one in found],
        more_problems=more,
    )
