"""YAML with places, as far as an allocation file needs it: no aliases, no tags, values as YAML 1.2 and JSON have them.

A date, `yes` or `0x10` is the text that it looks like; nothing is made of a text but null, true, false and numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from fabric.allocation.nodes import DEEPEST, Budget, Node, Unreadable, Value, keep, number_of, refuse_text
from fabric.allocation.places import Problems, member_path, quoted

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's, where the wheel has it
WORDS = {"null": None, "Null": None, "NULL": None, "~": None, "": None, "true": True, "True": True, "TRUE": True,
         "false": False, "False": False, "FALSE": False}  # fmt: skip
NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
NOT_A_NUMBER = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
PLAIN_TAGS = {None, "tag:yaml.org,2002:str", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq", "!"}


def read_yaml(text: str, problems: Problems) -> Node:
    """Return the value of a YAML text of one document; names that come twice are noted in `problems`.

    Raises Unreadable where the text is no YAML, has an alias or a tag, or is nested more than 16 deep.
    """
    events = _Events(text)
    events.next(yaml.StreamStartEvent)
    if isinstance(events.peek(), yaml.StreamEndEvent):
        raise Unreadable("The file is empty.", 0)
    events.next(yaml.DocumentStartEvent)
    root = _value(events, problems)
    events.next(yaml.DocumentEndEvent)
    last = events.peek()
    if not isinstance(last, yaml.StreamEndEvent):
        raise Unreadable("A second document begins here; one is expected.", last.start_mark.index)
    return root


class _Events:
    """The events of a text, one by one, so that nothing is read behind what is refused."""

    def __init__(self, text: str) -> None:
        self._events: Iterator[Any] = iter(yaml.parse(text, Loader=LOADER))
        self._ahead: Any = None
        self.budget = Budget()

    def peek(self) -> Any:
        """Return the next event, to be returned again."""
        if self._ahead is None:
            try:
                self._ahead = next(self._events)
            except yaml.MarkedYAMLError as error:
                mark = error.problem_mark or error.context_mark
                said = quoted(str(error.problem or "it makes no sense"), 120).strip("'")
                raise Unreadable(f"This is no YAML: {said}.", mark.index if mark else 0) from None
            except yaml.reader.ReaderError as error:
                raise Unreadable("A character stands here that YAML does not allow.", int(error.position)) from None
            except yaml.YAMLError:
                raise Unreadable("This is no YAML.", 0) from None
        return self._ahead

    def next(self, kind: type[Any] | None = None) -> Any:
        """Return the next event; raises Unreadable unless it is of the kind."""
        event = self.peek()
        self._ahead = None
        if kind is not None and not isinstance(event, kind):
            raise Unreadable("The document does not end here.", event.start_mark.index)
        return event


def _value(events: _Events, problems: Problems, path: str = "", depth: int = 0) -> Node:
    event = events.next()
    offset = event.start_mark.index
    events.budget.spend(offset)
    if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
        raise Unreadable("Anchors and aliases are not taken: write out what they stand for.", offset)
    if event.tag not in PLAIN_TAGS:
        raise Unreadable("Tags are not taken: values are texts, numbers, true, false and null.", offset)
    if isinstance(event, yaml.ScalarEvent):
        return Node(_scalar(event, offset), offset)
    if depth >= DEEPEST:
        raise Unreadable("This is nested too deeply.", offset)
    if isinstance(event, yaml.SequenceStartEvent):
        items: list[Node] = []
        while not isinstance(events.peek(), yaml.SequenceEndEvent):
            items.append(_value(events, problems, f"{path}[{len(items)}]", depth + 1))
        events.next()
        return Node(items, offset)
    node = Node({}, offset)
    while not isinstance(events.peek(), yaml.MappingEndEvent):
        at = events.peek().start_mark.index
        name = events.next()
        if not isinstance(name, yaml.ScalarEvent) or name.anchor is not None or name.tag not in PLAIN_TAGS:
            raise Unreadable("The name of a member is expected here.", at)
        word = refuse_text(str(name.value), at)
        if word == "<<" and not name.style:
            raise Unreadable("Merging is not taken: write out what is merged.", at)
        value = _value(events, problems, member_path(path, word), depth + 1)
        keep(node, word, value, problems=problems, path=path, offset=at)
    events.next()
    return node


def _scalar(event: Any, offset: int) -> Value:
    text = refuse_text(str(event.value), offset)
    if event.style or event.tag is not None:
        return text
    if NOT_A_NUMBER.fullmatch(text):
        raise Unreadable("NaN and infinity are not taken.", offset)
    value = plain_value(text)
    return number_of(text, offset) if value is NUMBER else value


def plain_value(text: str) -> Any:
    """Return what a text without quotes stands for: None, True, False, the pattern NUMBER for a number, or itself."""
    if text in WORDS:
        return WORDS[text]
    if NUMBER.fullmatch(text) or NOT_A_NUMBER.fullmatch(text):
        return NUMBER
    return text
