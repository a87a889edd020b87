"""Catalogues of texts: complete, with the values and elements of the English; templates: no text that is in none."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from babel.messages.catalog import Message
from babel.messages.pofile import read_po
from django.conf import settings

from falconweb.config import BASE_DIR

CATALOGUES: Final = sorted((BASE_DIR / "locale").glob("*/LC_MESSAGES/*.po"))
TEMPLATES: Final = sorted((BASE_DIR / "templates").rglob("*.html"))
# What stands for itself in every sentence: values by name, elements.
FIXED: Final = re.compile(r"%\(\w+\)s|\{\w+(?:![rsa])?(?::[^{}]*)?\}|</?[a-z][^>]*>")

# What of a template is not text for people: tags of Django's, comments, code, elements with their attributes.
TAGS: Final = r"\{%.*?%\}|\{\{.*?\}\}|\{#.*?#\}"
NO_TEXT: Final = re.compile(
    r"\{% (blocktranslate|comment)\b.*?\{% end\1|<(script|style|code|kbd|pre)\b.*?</\2>|<!--.*?-->", re.DOTALL
)
ELEMENT: Final = re.compile(rf'</?[a-zA-Z!](?:{TAGS}|"(?:{TAGS}|[^"])*"|[^<>"])*>', re.DOTALL)
SPOKEN: Final = re.compile(rf'\b(?:aria-label|data-label|title|placeholder|alt|label)="((?:{TAGS}|[^"])*)"', re.DOTALL)
# Names, units and formats are the same in all languages.
SAME: Final = re.compile(
    r"\b(?:[A-Z]{2,}\w*|[A-Z]?[a-z]?[A-Z]+[a-z]?|FalconWeb|PCIe|NVMe|GiB|MiB|Gbit|Redfish|Redis|[a-z]{1,2})\b|&\w+;"
)
ROOMS: Final = ("core", "accounts", "fabric", "telemetry", "benchmarks", "falconweb")
PLACEHOLDER: Final = re.compile(r"% ?[diouxXeEfFgGcrsa]")
SCRIPT_TEXT: Final = re.compile(r'\b_n?\(\s*("(?:[^"\\]|\\.)*")')
# Shown to those who change the site; and to programs.
OWN: Final = {"falconweb/patterns.html", "falconweb/api/docs.html"}


@pytest.mark.parametrize("catalogue", CATALOGUES, ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_every_text_is_translated_with_its_values_and_elements(catalogue: Path) -> None:
    with catalogue.open("rb") as file:
        messages = [one for one in read_po(file) if one.id]
    assert not [one.id for one in messages if one.fuzzy or not all(_forms(one.string))]
    wrong = [one.id for one in messages if not _is_faithful(one)]
    assert not wrong


def test_each_language_has_its_catalogues() -> None:
    assert {path.parts[-3] for path in CATALOGUES} == {code for code, _ in settings.LANGUAGES} - {"en"}


def test_no_template_has_a_text_that_is_in_no_catalogue() -> None:
    bare = {str(path.relative_to(BASE_DIR / "templates")): found for path in TEMPLATES if (found := _bare_texts(path))}
    assert not {name: found for name, found in bare.items() if name not in OWN}


def test_every_text_of_python_and_scripts_is_in_its_catalogue() -> None:
    """The tool that reads them out overlooks some within another text: f"{_('…')}", `${_("…")}`."""
    pages = {_forms(one.id)[0] for one in _messages("django")}
    assert not _texts_of_python() - pages
    scripts = {_forms(one.id)[0] for one in _messages("djangojs")}
    sources = [path.read_text() for path in (BASE_DIR / "static").rglob("*.js")]
    assert not {json.loads(text) for source in sources for text in SCRIPT_TEXT.findall(source)} - scripts


def test_no_percent_sign_of_a_text_is_taken_for_a_placeholder() -> None:
    """The tools of translators take '5 % slower' for '% s': the number goes to the end, or before another letter."""
    assert not {text for text in _texts_of_python() if PLACEHOLDER.search(text)}


def _texts_of_python() -> set[str]:
    return {text for room in ROOMS for path in (BASE_DIR / room).rglob("*.py") for text in _marked_texts(path)}


def _messages(domain: str) -> list[Message]:
    with (BASE_DIR / "locale" / "de" / "LC_MESSAGES" / f"{domain}.po").open("rb") as file:
        return [one for one in read_po(file) if one.id]


def _marked_texts(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Call(
                func=ast.Name(id="_" | "_n" | "gettext_lazy" | "gettext_noop"), args=[ast.Constant(str(text)), *_]
            ):
                yield text


def _forms(text: object) -> tuple[str, ...]:
    return text if isinstance(text, tuple) else (str(text),)


def _is_faithful(message: Message) -> bool:
    """Whether a translation has what is fixed in the English; a singular may say 'one' in place of its number."""
    english, theirs = _forms(message.id), _forms(message.string)
    if len(english) == 1:
        return sorted(FIXED.findall(english[0])) == sorted(FIXED.findall(theirs[0]))
    return all(set(FIXED.findall(form)) <= set(FIXED.findall(english[-1])) for form in theirs)


def _bare_texts(path: Path) -> list[str]:
    source = NO_TEXT.sub(" ", path.read_text())
    spoken = [re.sub(TAGS, " ", one) for one in SPOKEN.findall(source)]
    texts = re.split(r"\n|\x00", re.sub(TAGS, "\x00", ELEMENT.sub("\x00", source)))
    return [one.strip() for one in (*texts, *spoken) if re.search(r"[A-Za-z]{2,}", SAME.sub(" ", one))]
