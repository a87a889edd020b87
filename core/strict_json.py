"""Strict JSON: no duplicate names, no NaN or Infinity, no text that a database refuses; errors name their field."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final, TypeVar

import msgspec

Shape = TypeVar("Shape")

MAX_NUMBER_LENGTH: Final = 40  # digits; a float has 17
TYPE_NAMES: Final = {
    "str": "a text", "int": "a whole number", "float": "a number", "bool": "true or false", "null": "nothing",
    "object": "an object", "array": "a list", "int | float": "a number", "float | null": "a number or null",
    "datetime": "a time", "datetime | null": "a time or null", "int | null": "a whole number or null",
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
        place = f"character {error.colno}" if error.lineno == 1 else f"line {error.lineno}, character {error.colno}"
        raise InvalidDocument(f"This is not valid JSON, from {place} on.") from error
    except RecursionError as error:
        raise InvalidDocument("This is nested too deeply.") from error
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


def split_location(message: str) -> tuple[str, str]:
    """Return msgspec's sentence and its field: 'cores' of 'Expected `int`, got `str` - at `$.cores`', '' for none."""
    sentence, at, field = message.partition(" - at `")
    if not at or not field.endswith("`"):
        return message, ""
    return sentence, field.removesuffix("`").removeprefix("key in ").removeprefix("$").removeprefix(".")


def describe_error(message: str) -> tuple[str, str]:
    """Return msgspec's error as one of our sentences, and the field that it concerns."""
    plain, where = split_location(message)
    if named := NAMED.search(plain):
        whole = f"{where}.{named[2]}" if where else named[2]
        known = "It is missing." if named[1] == "missing required" else "No field has this name: leave it out."
        return known, whole
    if long := LENGTH.search(plain):
        return f"It has more than {long[2]} {'characters' if long[1] == 'str' else 'entries'}.", where
    if bound := BOUND.search(plain):
        return f"It is {'less' if bound[2] == '>=' else 'more'} than {bound[3]}.", where
    if kinds := EXPECTED.search(plain):
        expected, got = (TYPE_NAMES.get(one, one) for one in kinds.groups())
        return f"{expected.capitalize()} is expected, and this is {got}.", where
    return f"{plain.replace('`', chr(39)).rstrip('.')}.", where


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise InvalidDocument("This name comes twice in one object.", name)
            seen.add(name)
    return made


def _refuse_constant(text: str) -> Any:
    raise InvalidDocument(f"{text} is not a number in JSON; use null for a missing value.")


def _parse_float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise InvalidDocument(f"{text[:MAX_NUMBER_LENGTH]} is too large a number.")
    return number


def _parse_int(text: str) -> int:
    if len(text) > MAX_NUMBER_LENGTH:
        raise InvalidDocument(f"{text[:MAX_NUMBER_LENGTH]}… has too many digits.")
    return int(text)


def _refuse_unstorable(value: Any, where: str = "") -> None:
    """Raise InvalidDocument for text with NUL or half a surrogate pair, in names of objects too."""
    if isinstance(value, str):
        if "\x00" in value or not _is_encodable(value):
            raise InvalidDocument("The text has a character that cannot be kept.", where)
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
