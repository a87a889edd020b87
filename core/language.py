"""Texts in the language of whoever reads them: gettext, with values by name, and the English that logs keep."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache, wraps
from string import Formatter
from typing import Any, Final, ParamSpec, Self, TypeVar

try:
    from django.apps import apps
    from django.utils import translation

    HAS_DJANGO = True
except ImportError:  # a machine without the site, that prints a specification
    HAS_DJANGO = False

Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")

SOURCE_LANGUAGE: Final = "en"  # the language of the code: of logs, files, mails to an account without a choice


class Text(str):
    """A text in the reader's language; `english` is the same in the language of logs."""

    __slots__ = ("english",)
    english: str

    def __new__(cls, shown: str, english: str = "") -> Self:
        text = super().__new__(cls, shown)
        text.english = english
        return text

    def __str__(self) -> Text:
        """Return itself: what asks for a text, as messages of pages do, keeps its English."""
        return self


def _(message: str, /, **values: Any) -> Text:
    """Return a message in the reader's language, with its values: `_("{size} is free on {host}.", size=…, host=…)`."""
    if isinstance(message, Text) and not values:
        return message  # translated before, such as a label in an error
    return _text(translation.gettext(message) if _has_languages() else message, message, values)


def _n(one: str, many: str, count: int, /, **values: Any) -> Text:
    """Return a message for a number of things, its value `count`: `_n("{count} GPU", "{count} GPUs", 4)`."""
    english = one if count == 1 else many
    found = translation.ngettext(one, many, count) if _has_languages() else english
    return _text(found, english, {"count": count, **values})


# As Django's, but what it becomes keeps its English: labels of states stand in sentences that are logged.
if HAS_DJANGO:
    from django.utils.functional import lazy

    gettext_lazy = lazy(_, str)


def gettext_noop(message: str) -> str:
    """Mark a message that is made once, and translated where it is read; Django's own asks for settings."""
    return message


def english(text: str) -> str:
    """Return a text as logs and the database keep it."""
    return text.english if isinstance(text, Text) else text


def joined(texts: Iterable[str], between: str = " ") -> Text:
    """Return several texts as one."""
    parts = list(texts)
    return Text(between.join(parts), english(between).join(map(english, parts)))


def join_words(names: list[str]) -> str:
    """Return 'a', 'a and b' or 'a, b and c'."""
    *others, last = names
    return _("{others} and {last}", others=joined(others, ", "), last=last) if others else last


def values_in(stored: str, words: str) -> dict[str, str] | None:
    """Return the values in a text that was made of these words; None for any other text."""
    values: dict[str, str] = {}
    name, rest = "", stored
    for literal, field, *__ in Formatter().parse(words):
        if literal:
            value, between, rest = rest.partition(literal)
            if not between or bool(value) != bool(name):
                return None
            values[name] = value
        name = field or ""
    if bool(rest) != bool(name):
        return None
    values[name] = rest
    values.pop("", None)
    return values


def cache_by_language(function: Callable[Arguments, Returned]) -> Callable[Arguments, Returned]:
    """Return a function that keeps its answers, whose texts are in a language, for each language apart."""

    @lru_cache(maxsize=64)
    def kept(_language: str | None, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Returned:
        return function(*args, **kwargs)

    @wraps(function)
    def answer(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Returned:
        language = translation.get_language() if _has_languages() else None
        return kept(language, *args, **kwargs)  # type: ignore[arg-type]  # lru_cache asks for hashable ones

    return answer


def _has_languages() -> bool:
    """Whether the site is set up; all is English before, and where only a command of it runs."""
    return HAS_DJANGO and apps.ready


def _text(found: str, message: str, values: dict[str, Any]) -> Text:
    if not values:
        return Text(found, message)
    shown = found.format_map(values)
    if found == message and not any(isinstance(value, Text) for value in values.values()):
        return Text(shown, shown)
    kept = {name: english(value) if isinstance(value, str) else value for name, value in values.items()}
    return Text(shown, message.format_map(kept))
