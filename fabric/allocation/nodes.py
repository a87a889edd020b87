"""Values of a JSON or YAML text that know where they stand."""

from __future__ import annotations

from dataclasses import dataclass, field

from fabric.allocation.places import Problems, member_path, quoted

DEEPEST = 16
LONGEST_NUMBER = 30
LARGEST_WHOLE = 2**53
# Several times what the largest real file has: each costs time and memory, however short it is.
MOST_VALUES = 500_000
Value = None | bool | int | float | str | dict[str, "Node"] | list["Node"]


@dataclass(slots=True)
class Node:
    """A value with the offset of its first character; of an object, `keys` has the offsets of its members' names."""

    value: Value
    offset: int
    keys: dict[str, int] = field(default_factory=dict)


class Unreadable(Exception):
    """The text makes no sense from `offset` on."""

    def __init__(self, sentence: str, offset: int) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.offset = offset


def number_of(text: str, offset: int) -> int | float:
    """Return the number that a JSON number stands for, 16.0 being 16; raises Unreadable for one without end."""
    if len(text) > LONGEST_NUMBER:
        raise Unreadable("This number has too many digits.", offset)
    if text.lstrip("-").isdecimal():
        return int(text)
    number = float(text)
    return int(number) if abs(number) < LARGEST_WHOLE and number.is_integer() else number


def refuse_text(text: str, offset: int) -> str:
    """Return the text, or raise Unreadable where it has what can be neither stored nor said."""
    if "\x00" in text:
        raise Unreadable("A text has a NUL character.", offset)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Unreadable("A text has half a surrogate pair, which is no character.", offset) from None
    return text


class Budget:
    """Counts the values of a text."""

    def __init__(self) -> None:
        self.left = MOST_VALUES

    def spend(self, offset: int) -> None:
        """Take one; raises Unreadable at the first that is too many."""
        self.left -= 1
        if self.left < 0:
            raise Unreadable(f"The file has more than {MOST_VALUES:,} values.", offset)


def keep(node: Node, name: str, value: Node, *, problems: Problems, path: str, offset: int) -> None:
    """Put a member into the object at `path`; one that is there already is a problem, and changes nothing."""
    members = node.value
    assert isinstance(members, dict)  # noqa: S101 - both readers make it so
    if name in members:
        first = problems.place("", node.keys[name]).line
        problems.add(f"{quoted(name)} stands here twice: it was said in line {first}.", member_path(path, name), offset)
        return
    members[name] = value
    node.keys[name] = offset
