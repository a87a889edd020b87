"""Redaction of secrets in a request: each is replaced by a variable before any other processing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

SECRET_NAMES = re.compile(
    r"(?:^|[_\-.\s])(?:pass(?:word|wd|phrase)?|pwd|secret|token|api[_\-.]?key|access[_\-.]?key|private[_\-.]?key|key[_\-.]?id|"
    r"credentials?|auth(?:orization)?|bearer|cookie|session[_\-.]?id)(?:$|[_\-.\s])"
    r"|(?:password|passwd|secret|token|apikey|credential)",
    re.IGNORECASE,
)  # fmt: skip
# Names that contain one of the words above, but are not secrets.
HARMLESS_NAMES = re.compile(r"token(?:s|izers?|ize|ization)(?![a-z])|max[_-]?tokens?", re.IGNORECASE)
USERINFO = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.\-]{0,30}://)(?P<user>[^/\s@'\"]{1,300})@")
# The formats of tokens of well-known services. Each `-` may begin one: the first part of a JWT has a bound.
TOKEN_PATTERN = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w\-]{16,}|AKIA[0-9A-Z]{16}|"
    r"xox[abprs]-[\w\-]{10,}|sk-[\w\-]{20,}|eyJ[\w\-]{10,2000}\.[\w\-]{10,}\.[\w\-]{5,})"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
OPTION = re.compile(r"(?P<option>--?[A-Za-z][\w.\-]{0,80})(?P<sign>=)(?P<value>.+)", re.DOTALL)
VALUE = r"'[^']*'|\"[^\"]*\"|[^\s'\"]+"
# An option with its value, or a variable that is set for a command.
PART = re.compile(
    rf"(?P<lead>^|[\s'\"])(?:(?P<option>--?[A-Za-z][\w.\-]{{0,80}})(?P<sign>=|\s+)(?P<value>{VALUE})"
    rf"|(?P<name>[A-Za-z_]\w{{0,80}})=(?P<set>{VALUE}))"
)
MIN_SCRUBBED_LENGTH: Final = 6  # characters of a value that is also searched elsewhere


@dataclass
class RedactedRequest:
    """A request without its secrets: `names` maps the variables that replace them to their pointers."""

    plain: Any = None
    names: dict[str, str] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict, repr=False)  # to the variable that stands for each

    def clean(self, text: str) -> str:
        """Return a text with each remaining secret replaced by its variable."""
        for value in sorted(self.values, key=len, reverse=True):
            if len(value) >= MIN_SCRUBBED_LENGTH:
                text = text.replace(value, f"${{{self.values[value]}}}")
        return text


def redact_secrets(plain: Any) -> RedactedRequest:
    """Return a request with each secret replaced by ${NAME}, recognised by its field, its option, or its format."""
    taken = RedactedRequest()
    taken.plain = _redact_value(plain, "", "", taken)
    # A secret value is redacted in all places, whatever the field.
    taken.plain = _scrub_value(taken.plain, taken)
    return taken


def is_secret_name(name: str) -> bool:
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return bool(SECRET_NAMES.search(spaced)) and not HARMLESS_NAMES.search(spaced)


def _redact_value(value: Any, name: str, pointer: str, taken: RedactedRequest) -> Any:
    if isinstance(value, Mapping):
        return {
            key: _redact_value(one, str(key), f"{pointer}/{escape_pointer(str(key))}", taken)
            for key, one in value.items()
        }
    if isinstance(value, list):
        if name and is_secret_name(name):
            return [_secret_reference(str(one), name, f"{pointer}/{at}", taken) for at, one in enumerate(value)]
        return _redact_words(value, name, pointer, taken)
    if value is None or isinstance(value, bool):
        return value
    if name and is_secret_name(name) and value != "":
        return _secret_reference(str(value), name, pointer, taken)
    return _redact_text(value, pointer, taken) if isinstance(value, str) else value


def _redact_words(value: list[Any], name: str, pointer: str, taken: RedactedRequest) -> list[Any]:
    """Redact a list, such as the words of a command, where the word after '--token' is a secret."""
    made: list[Any] = []
    for at, one in enumerate(value):
        before = value[at - 1] if at else ""
        is_behind = isinstance(before, str) and before.startswith("-") and "=" not in before and is_secret_name(before)
        if is_behind and isinstance(one, str) and not one.startswith("-"):
            made.append(_secret_reference(one, before.lstrip("-"), f"{pointer}/{at}", taken))
        else:
            made.append(_redact_value(one, "", f"{pointer}/{at}", taken))
    return made


def _redact_text(text: str, pointer: str, taken: RedactedRequest) -> str:
    def userinfo(found: re.Match[str]) -> str:
        if found["user"].startswith("${"):
            return found[0]
        return f"{found['scheme']}{_secret_reference(found['user'], 'URL_CREDENTIALS', pointer, taken)}@"

    def option(found: re.Match[str]) -> str:
        name, sign = found["option"] or found["name"], found["sign"] or "="
        bare = (found["value"] or found["set"]).strip("'\"")
        if not is_secret_name(name.lstrip("-")) or bare.startswith(("${", "-")):
            return found[0]
        return f"{found['lead']}{name}{sign}{_secret_reference(bare, name.lstrip('-'), pointer, taken)}"

    text = USERINFO.sub(userinfo, text)
    text = PART.sub(option, text)
    if (whole := OPTION.fullmatch(text)) and is_secret_name(whole["option"]) and not whole["value"].startswith("${"):
        text = f"{whole['option']}={_secret_reference(whole['value'], whole['option'].lstrip('-'), pointer, taken)}"
    return TOKEN_PATTERN.sub(lambda found: _secret_reference(found[0], "TOKEN", pointer, taken), text)


def _secret_reference(value: str, name: str, pointer: str, taken: RedactedRequest) -> str:
    """Return the reference that replaces a secret; a value that is a reference already is kept."""
    if re.fullmatch(r"\$\{?[A-Za-z_]\w*\}?", value):
        return f"${{{value.strip('${}')}}}"
    if value not in taken.values:
        variable = re.sub(r"\W+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)).strip("_").upper()[:80] or "SECRET"
        variable = f"SECRET_{variable}" if variable[0].isdigit() else variable
        number = 2
        base = variable
        while variable in taken.names:
            variable, number = f"{base}_{number}", number + 1
        taken.values[value] = variable
        taken.names[variable] = pointer
    variable = taken.values[value]
    return f"${{{variable}}}"


def _scrub_value(value: Any, taken: RedactedRequest) -> Any:
    if isinstance(value, str):
        return taken.clean(value)
    if isinstance(value, Mapping):
        return {taken.clean(str(key)): _scrub_value(one, taken) for key, one in value.items()}
    if isinstance(value, list):
        return [_scrub_value(one, taken) for one in value]
    return value


def escape_pointer(name: str) -> str:
    """Return a name as a token of a JSON pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")
