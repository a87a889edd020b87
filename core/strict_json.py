"""Strict JSON: no duplicate names, no NaN or Infinity, no text that a database refuses; errors name their field."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final, TypeVar

import msgspec

from core.language import _, gettext_noop
from core.text import split_location

Shape = TypeVar("Shape")

MAX_NUMBER_LENGTH: Final = 40  # digits; a float has 17
TYPE_NAMES: Final = {
    "str": gettext_noop("a text"), "int": gettext_noop("a whole number"), "float": gettext_noop("a number"),
    "bool": gettext_noop("true or false"), "null": gettext_noop("nothing"), "object": gettext_noop("an object"),
    "array": gettext_noop("a list"), "int | float": gettext_noop("a number"),
    "float | null": gettext_noop("a number or null"), "datetime": gettext_noop("a time"),
    "datetime | null": gettext_noop("a time or null"), "int | null": gettext_noop("a whole number or null"),
}  # fmt: skip
EXPECTED = re.compile(r"Expected `([^`]+)`, got `([^`]+)`")
NAMED = re.compile(r"Object (missing required|contains unknown) field `([^`]+)`")
LENGTH = re.compile(r"Expected `(str|array)` of length <= (\d+)")
BOUND = re.compile(r"Expected `(int|float)` (>=|<=) (-?[\d.e+]+)")


class InvalidDocument(Exception):
    """An invalid value: the problem, and the field that it concerns ('' for the whole value)."""

    def __init__(self, sentence: str, where: str = "") -> None:
        super().__init__(sentence)
        self.sentence, self.where = sentence, where


def loads_strict(text: str) -> Any:
    """Return the value of a JSON text; raises InvalidDocument."""
    try:
        value = json.loads(
            text,
            object_pairs_hook=_unique_members,
            parse_constant=_refuse_constant,
            parse_float=_parse_float,
            parse_int=_parse_int,
        )
    except json.JSONDecodeError as error:
        if error.lineno == 1:
            sentence = _("This is not valid JSON, from character {character} on.", character=error.colno)
        else:
            sentence = _(
                "This is not valid JSON, from line {line}, character {character} on.",
                line=error.lineno, character=error.colno,
            )  # fmt: skip
        raise InvalidDocument(sentence) from error
    except RecursionError as error:
        raise InvalidDocument(_("This is nested too deeply.")) from error
    _refuse_unstorable(value)
    return value


def convert_value(value: Any, shape: type[Shape] | Any, under: str = "") -> Shape:
    """Return a value converted to a type; raises InvalidDocument with the field, its name prefixed with `under`."""
    try:
        made: Shape = msgspec.convert(value, shape)
    except (msgspec.ValidationError, OverflowError) as error:
        sentence, where = describe_error(str(error))
        raise InvalidDocument(sentence, ".".join(part for part in (under, where) if part)) from error
    return made


def describe_error(message: str) -> tuple[str, str]:
    """Return msgspec's error as one of our sentences, and the field that it concerns."""
    plain, where = split_location(message)
    if named := NAMED.search(plain):
        whole = f"{where}.{named[2]}" if where else named[2]
        is_missing = named[1] == "missing required"
        known = _("It is missing.") if is_missing else _("No field has this name: leave it out.")
        return known, whole
    if long := LENGTH.search(plain):
        if long[1] == "str":
            return _("It has more than {count} characters.", count=long[2]), where
        return _("It has more than {count} entries.", count=long[2]), where
    if bound := BOUND.search(plain):
        if bound[2] == ">=":
            return _("It is less than {limit}.", limit=bound[3]), where
        return _("It is more than {limit}.", limit=bound[3]), where
    if kinds := EXPECTED.search(plain):
        expected, got = (_(TYPE_NAMES[one]) if one in TYPE_NAMES else one for one in kinds.groups())
        begin = expected[0].upper() + expected[1:]
        return _("{expected} is expected, and this is {got}.", expected=begin, got=got), where
    return f"{plain.replace('`', chr(39)).rstrip('.')}.", where


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        for name, _value in pairs:
            if name in seen:
                raise InvalidDocument(_("This name comes twice in one object."), name)
            seen.add(name)
    return made


def _refuse_constant(text: str) -> Any:
    raise InvalidDocument(_("{text} is not a number in JSON; use null for a missing value.", text=text))


def _parse_float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise InvalidDocument(_("{number} is too large a number.", number=text[:MAX_NUMBER_LENGTH]))
    return number


def _parse_int(text: str) -> int:
    if len(text) > MAX_NUMBER_LENGTH:
        raise InvalidDocument(_("{number}… has too many digits.", number=text[:MAX_NUMBER_LENGTH]))
    return int(text)


def _refuse_unstorable(value: Any, where: str = "") -> None:
    """Raise InvalidDocument for text with NUL or half a surrogate pair, in names of objects too."""
    if isinstance(value, str):
        if "\x00" in value or not _is_encodable(value):
            raise InvalidDocument(_("The text has a character that cannot be kept."), where)
    elif isinstance(value, dict):
        for name, one in value.items():
            _refuse_unstorable(name, where)
            _refuse_unstorable(one, f"{where}.{name}" if where else name)
    elif isinstance(value, list) and not all(type(one) is float for one in value):
        for place, one in enumerate(value):
            if isinstance(one, str | dict | list):
                _refuse_unstorable(one, f"{where}[{place}]")


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
