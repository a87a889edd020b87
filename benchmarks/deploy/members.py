"""Requests read member by member: each is used, left aside with a reason, or refused at its JSON pointer."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar

from benchmarks.deploy.quoting import UnsafeError, refuse_control
from benchmarks.deploy.secrets import pointed

Treatment = Literal["used", "ignored", "refused"]
Value = TypeVar("Value")
MOST_TOLD: Final = 200
MISSING: Final = object()


@dataclass(frozen=True)
class Told:
    """What became of a field of a request: `why` says how it is used, or why not."""

    pointer: str
    treatment: Treatment
    why: str


@dataclass
class Book:
    """What became of all fields so far."""

    told: list[Told] = field(default_factory=list)

    def note(self, pointer: str, treatment: Treatment, why: str) -> None:
        """Keep what became of one."""
        if len(self.told) < MOST_TOLD:
            self.told.append(Told(pointer or "/", treatment, why))

    @property
    def errors(self) -> dict[str, str]:
        """Sentences by pointer, of those that were refused."""
        return {one.pointer: one.why for one in self.told if one.treatment == "refused"}


class Members:
    """The members of an object of a request. What was not asked for when it is left is unknown, and refused."""

    def __init__(self, plain: Mapping[str, Any], pointer: str, book: Book) -> None:
        self.plain, self.pointer, self.book = plain, pointer, book
        self.seen: set[str] = set()

    def at(self, name: str) -> str:
        """Return the pointer of a member."""
        return f"{self.pointer}/{pointed(name)}"

    def raw(self, name: str) -> Any:
        """Return a member as it is, MISSING where there is none; null and '' count as none."""
        self.seen.add(name)
        value = self.plain.get(name, MISSING)
        return MISSING if value is None or value == "" else value

    def used(self, name: str, why: str) -> None:
        """Note that a member is used."""
        self.book.note(self.at(name), "used", why)

    def refuse(self, name: str, why: str) -> None:
        """Note that a member cannot be."""
        self.seen.add(name)
        self.book.note(self.at(name), "refused", why)

    def ignore(self, name: str, why: str) -> None:
        """Leave a member aside where it is given."""
        if self.raw(name) is not MISSING:
            self.book.note(self.at(name), "ignored", why)

    def text(self, name: str, how: str, pattern: re.Pattern[str] | None = None, shape: str = "") -> str:
        """Return a text, '' without one; `shape` says what the pattern wants."""
        value = self.raw(name)
        if value is MISSING:
            return ""
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str):
            self.refuse(name, "A text is expected.")
            return ""
        value = value.strip()
        try:
            refuse_control(value)
        except UnsafeError as error:
            self.refuse(name, error.sentence)
            return ""
        if pattern is not None and value and not pattern.fullmatch(value):
            self.refuse(name, f"It is {shape}.")
            return ""
        self.used(name, how)
        return value

    def parsed(self, name: str, how: str, read: Callable[[str], Value]) -> Value | None:
        """Return a text as what `read` makes of it, which may raise UnsafeError; None without one."""
        value = self.raw(name)
        if value is MISSING:
            return None
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            self.refuse(name, "A text is expected.")
            return None
        try:
            made = read(str(value))
        except UnsafeError as error:
            self.refuse(name, error.sentence)
            return None
        self.used(name, how)
        return made

    def whole(self, name: str, how: str, *, least: int = 1, most: int = 100_000) -> int | None:
        """Return a whole number, None without one."""
        value = self.raw(name)
        if value is MISSING:
            return None
        if isinstance(value, str) and value.strip().isascii() and value.strip().isdecimal() and len(value) < 12:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self.refuse(name, f"A whole number from {least} to {most} is expected.")
            return None
        self.used(name, how)
        return value

    def flag(self, name: str, how: str = "") -> bool | None:
        """Return true or false, None without either; a use without `how` is noted by the caller."""
        value = self.raw(name)
        if value is MISSING:
            return None
        if not isinstance(value, bool):
            self.refuse(name, "true or false is expected.")
            return None
        if how:
            self.used(name, how)
        return value

    def choice(self, name: str, how: str, choices: Collection[str]) -> str:
        """Return one of some words, '' without one."""
        value = self.raw(name)
        if value is MISSING:
            return ""
        if not isinstance(value, str) or value.strip().lower() not in choices:
            self.refuse(name, f"It is one of {', '.join(choices)}.")
            return ""
        if how:
            self.used(name, how)
        return value.strip().lower()

    def inner(self, name: str, *, needed: bool = False) -> Members | None:
        """Return the members of an object within, None without one."""
        value = self.raw(name)
        if value is MISSING:
            if needed:
                self.refuse(name, "It is missing.")
            return None
        if not isinstance(value, Mapping):
            self.refuse(name, "An object is expected.")
            return None
        return Members(value, self.at(name), self.book)

    def close(self) -> None:
        """Refuse what nobody asked for: left out unsaid, it would change what the request means."""
        for name in self.plain:
            if name not in self.seen:
                self.book.note(self.at(str(name)[:80]), "refused", "Nothing here has this name: leave it out.")
