"""Quoting of request values in generated scripts: each stays one word, whatever its content.

A word may refer to variables of the environment as ${NAME}; nothing else in it means anything to a shell.
"""

from __future__ import annotations

import json
import re
import shlex
import unicodedata
from collections.abc import Iterable
from typing import Final

from core.language import _

VARIABLE_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]{0,99})\}")
MAX_WORD_LENGTH: Final = 4096
# Shell operators, which a requester may expect to work.
SHELL_OPERATORS = re.compile(r"^(?:&&?|\|\|?|;|<|>|>>|2>&1)$|\$\(|`")


class UnsafeError(ValueError):
    """A text is unsafe in a script; the sentence gives the reason without repeating the text."""

    def __init__(self, sentence: str) -> None:
        self.sentence = sentence
        super().__init__(sentence)


def refuse_control_characters(text: str) -> str:
    """Return the text; raises UnsafeError for line breaks, control and invisible characters, and excess length."""
    if len(text) > MAX_WORD_LENGTH:
        raise UnsafeError(_("It is longer than {MAX_WORD_LENGTH} characters.", MAX_WORD_LENGTH=MAX_WORD_LENGTH))
    if "\n" in text or "\r" in text or "\u2028" in text or "\u2029" in text:
        raise UnsafeError(_("It has a line break, which would start another line of the script."))
    # Cc and Cf: control characters, and those that reorder or hide text.
    if any(unicodedata.category(one) in {"Cc", "Cf", "Cs", "Co", "Cn"} for one in text):
        raise UnsafeError(_("It has a control character or an invisible one."))
    return text


def split_words(text: str) -> tuple[str, ...]:
    """Return a command line as its words, as a shell would split it; raises UnsafeError."""
    # A backslash at the end of a line joins it with the next.
    whole = re.sub(r"\\\r?\n", " ", text).strip()
    refuse_control_characters(whole.replace("\t", " "))
    try:
        return tuple(shlex.split(whole))
    except ValueError as error:
        raise UnsafeError(_("A quotation mark or a backslash in it is not closed.")) from error


def shell_word(text: str) -> str:
    """Return a text as one word of bash; references to variables are expanded when the script runs."""
    refuse_control_characters(text)
    parts: list[str] = []
    end = 0
    for found in VARIABLE_REFERENCE.finditer(text):
        if found.start() > end:
            parts.append(shlex.quote(text[end : found.start()]))
        parts.append(f'"${{{found[1]}}}"')
        end = found.end()
    if end < len(text) or not parts:
        parts.append(shlex.quote(text[end:]))
    return "".join(parts)


def shell_words(texts: Iterable[str]) -> str:
    return " ".join(shell_word(one) for one in texts)


def comment_text(text: str) -> str:
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())


def docker_value(text: str) -> str:
    """Return a text as the value of an ENV of a Dockerfile; variables in it are not expanded."""
    refuse_control_characters(text)
    escaped = re.sub(r'([\\"$])', r"\\\1", text)
    return f'"{escaped}"'


def docker_exec(texts: Iterable[str]) -> str:
    """Return words in the exec form of a Dockerfile, which uses no shell."""
    return json.dumps(list(texts), ensure_ascii=True)


def variable_references(texts: Iterable[str]) -> list[str]:
    """Return the variables that words refer to, each once, in order."""
    return list(dict.fromkeys(name for text in texts for name in VARIABLE_REFERENCE.findall(text)))
