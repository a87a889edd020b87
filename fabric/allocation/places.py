"""Where in a file something is, and what is wrong there."""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass

MOST_PROBLEMS = 100


@dataclass(frozen=True, kw_only=True)
class Place:
    """A place in a file: its path such as `chassis[0].drawers[1].mode`, line and column counted from 1; 0: nowhere."""

    path: str = ""
    line: int = 0
    column: int = 0


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What is wrong with a file, in a sentence, and where."""

    sentence: str
    place: Place = Place()

    def as_json(self) -> dict[str, str | int]:
        """Return it as the API says it."""
        place = self.place
        return {"path": place.path, "line": place.line, "column": place.column, "sentence": self.sentence}


class TooManyProblems(Exception):
    """More is wrong than anybody reads; the search ends."""


class Problems:
    """The problems of a text, found one after the other; told in the order of their places."""

    def __init__(self, text: str = "") -> None:
        self._breaks = [found.end() for found in re.finditer(r"\r\n|\r|\n", text)]
        self.found: list[Problem] = []

    def place(self, path: str, offset: int) -> Place:
        """Return the place of a character."""
        line = bisect.bisect_right(self._breaks, offset)
        return Place(path=path, line=line + 1, column=offset - (self._breaks[line - 1] if line else 0) + 1)

    def add(self, sentence: str, path: str, offset: int) -> None:
        """Note a problem; raises TooManyProblems when there are enough."""
        self.add_at(sentence, self.place(path, offset))

    def add_at(self, sentence: str, place: Place) -> None:
        """Note a problem at a known place; raises TooManyProblems when there are enough."""
        if len(self.found) >= MOST_PROBLEMS:
            raise TooManyProblems
        self.found.append(Problem(sentence=sentence, place=place))

    def add_last(self, sentence: str, offset: int) -> None:
        """Note what ends the search, however many there are."""
        self.found = [*self.found[: MOST_PROBLEMS - 1], Problem(sentence=sentence, place=self.place("", offset))]

    def told(self) -> tuple[Problem, ...]:
        """Return them from the top of the file to its end."""
        return tuple(sorted(self.found, key=lambda one: (one.place.line, one.place.column)))


def quoted(text: str, longest: int = 60) -> str:
    """Return a text of a file as a sentence shows it: short, and without what would steer a terminal or a line."""
    shown = "".join(character if character.isprintable() else "�" for character in text[:longest])
    return f"'{shown}…'" if len(text) > longest else f"'{shown}'"


def member_path(path: str, name: str) -> str:
    """Return the path of a member of an object."""
    if not re.fullmatch(r"\w+", name[:61]):
        return f"{path}[{quoted(name)}]"
    return f"{path}.{name[:60]}" if path else name[:60]
