"""Strict JSON and YAML readers that record the position of each value, and the problems found there.

Unquoted YAML is text, also a date, `yes` or `0x10`; only null, true, false and decimal numbers are converted.
"""

from __future__ import annotations

import bisect
import difflib
import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from core.language import _, gettext_noop

MAX_PROBLEMS = 100


@dataclass(frozen=True, kw_only=True)
class DocumentPosition:
    """A place in a file: its path such as `chassis[0].drawers[1].mode`, line and column counted from 1; 0: nowhere."""

    path: str = ""
    line: int = 0
    column: int = 0


@dataclass(frozen=True, kw_only=True)
class DocumentProblem:
    """A problem of a file as a sentence, with its position."""

    sentence: str
    place: DocumentPosition = DocumentPosition()

    def as_json(self) -> dict[str, str | int]:
        """Return the problem as the API shows it."""
        place = self.place
        return {"path": place.path, "line": place.line, "column": place.column, "sentence": self.sentence}


class TooManyProblemsError(Exception):
    """The file has more problems than are reported; reading stops."""


class DocumentProblems:
    """The problems of a text, collected while reading and listed by position."""

    def __init__(self, text: str = "") -> None:
        self._breaks = [found.end() for found in re.finditer(r"\r\n|\r|\n", text)]
        self.found: list[DocumentProblem] = []

    def place(self, path: str, offset: int) -> DocumentPosition:
        """Return the position of a character."""
        line = bisect.bisect_right(self._breaks, offset)
        return DocumentPosition(path=path, line=line + 1, column=offset - (self._breaks[line - 1] if line else 0) + 1)

    def add(self, sentence: str, path: str, offset: int) -> None:
        """Add a problem; raises TooManyProblemsError at the limit."""
        self.add_at(sentence, self.place(path, offset))

    def add_at(self, sentence: str, place: DocumentPosition) -> None:
        """Add a problem at a known position; raises TooManyProblemsError at the limit."""
        if len(self.found) >= MAX_PROBLEMS:
            raise TooManyProblemsError
        self.found.append(DocumentProblem(sentence=sentence, place=place))

    def add_last(self, sentence: str, offset: int) -> None:
        """Add the problem that ends the reading, regardless of the limit."""
        self.found = [*self.found[: MAX_PROBLEMS - 1], DocumentProblem(sentence=sentence, place=self.place("", offset))]

    def in_order(self) -> tuple[DocumentProblem, ...]:
        """Return the problems in the order of the file."""
        return tuple(sorted(self.found, key=lambda one: (one.place.line, one.place.column)))


def quoted(text: str, longest: int = 60) -> str:
    """Return a text of a file quoted for a sentence: shortened, and without control characters."""
    shown = "".join(character if character.isprintable() else "�" for character in text[:longest])
    return f"'{shown}…'" if len(text) > longest else f"'{shown}'"


def member_path(path: str, name: str) -> str:
    """Return the path of a member of an object."""
    if not re.fullmatch(r"\w+", name[:61]):
        return f"{path}[{quoted(name)}]"
    return f"{path}.{name[:60]}" if path else name[:60]


MAX_DEPTH = 16
MAX_NUMBER_DIGITS = 30
MAX_EXACT_INTEGER = 2**53
# Several times the number in the largest real file: each value costs time and memory, however short it is.
MAX_VALUES = 500_000
NodeValue = None | bool | int | float | str | dict[str, "DocumentNode"] | list["DocumentNode"]


@dataclass(slots=True)
class DocumentNode:
    """A value with the offset of its first character; of an object, `keys` has the offsets of its members' names."""

    value: NodeValue
    offset: int
    keys: dict[str, int] = field(default_factory=dict)


class DocumentSyntaxError(Exception):
    """The text is invalid from `offset` on."""

    def __init__(self, sentence: str, offset: int) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.offset = offset


def parse_number(text: str, offset: int) -> int | float:
    """Return the value of a JSON number, 16 for 16.0; raises DocumentSyntaxError for one with too many digits."""
    if len(text) > MAX_NUMBER_DIGITS:
        raise DocumentSyntaxError(_("This number has too many digits."), offset)
    if text.lstrip("-").isdecimal():
        return int(text)
    number = float(text)
    return int(number) if abs(number) < MAX_EXACT_INTEGER and number.is_integer() else number


def check_text(text: str, offset: int) -> str:
    """Return the text; raises DocumentSyntaxError for characters that can be neither stored nor encoded."""
    if "\x00" in text:
        raise DocumentSyntaxError(_("A text has a NUL character."), offset)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise DocumentSyntaxError(_("A text has half a surrogate pair, which is not a character."), offset) from None
    return text


class ValueBudget:
    """Limits the number of values in a text."""

    def __init__(self) -> None:
        self.left = MAX_VALUES

    def spend(self, offset: int) -> None:
        """Count a value; raises DocumentSyntaxError beyond the limit."""
        self.left -= 1
        if self.left < 0:
            raise DocumentSyntaxError(_("The file has more than {count:,} values.", count=MAX_VALUES), offset)


def add_member(
    node: DocumentNode, name: str, value: DocumentNode, *, problems: DocumentProblems, path: str, offset: int
) -> None:
    """Add a member to the object at `path`; a duplicate is a problem, and changes nothing."""
    members = node.value
    assert isinstance(members, dict)  # noqa: S101 - both readers pass an object
    if name in members:
        first = problems.place("", node.keys[name]).line
        sentence = _("{name} appears twice: first in line {line}.", name=quoted(name), line=first)
        problems.add(sentence, member_path(path, name), offset)
        return
    members[name] = value
    node.keys[name] = offset


# Possessive quantifiers throughout: no text makes it backtrack.
JSON_TOKEN = re.compile(
    r"""[ \t\r\n]*+(?:
    (?P<sign>[{}\[\]:,])
    |(?P<text>"[^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+")
    |(?P<number>-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?)(?![\w.+-])
    |(?P<word>true|false|null)(?!\w)
    |(?P<end>\Z)
    )""",
    re.VERBOSE,
)
JSON_LITERALS = {"true": True, "false": False, "null": None}
JSON_WHITESPACE = re.compile(r"[ \t\r\n]*")


class _JsonTokens:
    """The tokens of a text, read one at a time."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.budget = ValueBudget()
        self.at = 0
        self.kind = ""
        self.shown = ""
        self.offset = 0
        self.step()

    def at_sign(self, signs: str) -> bool:
        """Return whether one of these signs is next."""
        return self.kind == "sign" and self.shown in signs

    def step(self) -> None:
        """Advance to the next token."""
        found = JSON_TOKEN.match(self.text, self.at)
        if found is None:
            white = JSON_WHITESPACE.match(self.text, self.at)
            raise _syntax_error(self.text, white.end() if white else self.at)
        self.kind = found.lastgroup or ""
        self.shown = found[self.kind]
        self.offset, self.at = found.start(self.kind), found.end()

    def expected(self, what: str) -> DocumentSyntaxError:
        """Return an error that names the expected token."""
        known = _(what)
        if self.kind == "end":
            return DocumentSyntaxError(_("The file ends too early: {what} is missing.", what=known), self.offset)
        begin, found = known[0].upper() + known[1:], quoted(self.shown, 20)
        return DocumentSyntaxError(_("{what} is expected here, not {found}.", what=begin, found=found), self.offset)


def _syntax_error(text: str, offset: int) -> DocumentSyntaxError:
    rest = text[offset : offset + 20]
    if rest.startswith('"'):
        return DocumentSyntaxError(_("This text does not end on its line, or has an invalid escape."), offset)
    if re.match(r"-?(?:NaN|Infinity)", rest):
        return DocumentSyntaxError(_("NaN and Infinity are not allowed in JSON."), offset)
    if rest.startswith("'"):
        return DocumentSyntaxError(_("In JSON, strings use double quotes."), offset)
    if rest.startswith(("//", "/*", "#")):
        return DocumentSyntaxError(_("JSON has no comments."), offset)
    found = re.match(r"[\w.+-]+", rest)
    shown = quoted(found[0] if found else rest[:1])
    return DocumentSyntaxError(_("{found} has no meaning in JSON.", found=shown), offset)


def read_json(text: str, problems: DocumentProblems) -> DocumentNode:
    """Return the value of a JSON text; duplicate names are added to `problems`, and the first one counts.

    Raises DocumentSyntaxError where the text is not JSON, or is nested more than 16 deep.
    """
    tokens = _JsonTokens(text)
    root = _json_value(tokens, problems)
    if tokens.kind != "end":
        raise DocumentSyntaxError(
            _("The file continues after its end: one object is expected, and nothing else."), tokens.offset
        )
    return root


def _json_value(tokens: _JsonTokens, problems: DocumentProblems, path: str = "", depth: int = 0) -> DocumentNode:
    offset = tokens.offset
    tokens.budget.spend(offset)
    if tokens.at_sign("{["):
        if depth >= MAX_DEPTH:
            raise DocumentSyntaxError(_("This is nested too deeply."), offset)
        read = _json_object if tokens.shown == "{" else _json_list
        tokens.step()
        node = read(tokens, problems, path, depth)
    elif tokens.kind == "text":
        node = DocumentNode(_json_text(tokens.shown, offset), offset)
    elif tokens.kind == "number":
        node = DocumentNode(parse_number(tokens.shown, offset), offset)
    elif tokens.kind == "word":
        node = DocumentNode(JSON_LITERALS[tokens.shown], offset)
    else:
        raise tokens.expected(gettext_noop("a value"))
    tokens.step()
    node.offset = offset
    return node


def _json_items(tokens: _JsonTokens, closing: str, expected: str) -> Iterator[None]:
    """Yield before each item up to the closing sign, and step over the commas between them."""
    if tokens.at_sign(closing):
        return
    yield
    while not tokens.at_sign(closing):
        if not tokens.at_sign(","):
            raise tokens.expected(expected)
        tokens.step()
        yield


def _json_object(tokens: _JsonTokens, problems: DocumentProblems, path: str, depth: int) -> DocumentNode:
    node = DocumentNode({}, 0)
    for _item in _json_items(tokens, "}", gettext_noop("a comma or the closing brace")):
        if tokens.kind != "text":
            raise tokens.expected(gettext_noop("a name in double quotes"))
        name, offset = _json_text(tokens.shown, tokens.offset), tokens.offset
        tokens.step()
        if not tokens.at_sign(":"):
            raise tokens.expected(gettext_noop("a colon"))
        tokens.step()
        value = _json_value(tokens, problems, member_path(path, name), depth + 1)
        add_member(node, name, value, problems=problems, path=path, offset=offset)
    return node


def _json_list(tokens: _JsonTokens, problems: DocumentProblems, path: str, depth: int) -> DocumentNode:
    items: list[DocumentNode] = []
    for _item in _json_items(tokens, "]", gettext_noop("a comma or the closing bracket")):
        items.append(_json_value(tokens, problems, f"{path}[{len(items)}]", depth + 1))
    return DocumentNode(items, 0)


def _json_text(quoted_text: str, offset: int) -> str:
    if "\\" not in quoted_text:
        return check_text(quoted_text[1:-1], offset)
    try:
        text: str = json.loads(quoted_text)
    except ValueError:
        raise DocumentSyntaxError(_("A text has an invalid escape."), offset) from None
    return check_text(text, offset)


YAML_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's, where the wheel includes it
YAML_LITERALS: dict[str, bool | None] = {
    **dict.fromkeys(("null", "Null", "NULL", "~", "")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
YAML_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
YAML_NOT_A_NUMBER = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
YAML_PLAIN_TAGS = {None, "tag:yaml.org,2002:str", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq", "!"}


def read_yaml(text: str, problems: DocumentProblems) -> DocumentNode:
    """Return the value of a YAML text of one document; duplicate names are added to `problems`.

    Raises DocumentSyntaxError where the text is not YAML, has an alias or a tag, or is nested more than 16 deep.
    """
    events = _YamlEvents(text)
    events.next(yaml.StreamStartEvent)
    if isinstance(events.peek(), yaml.StreamEndEvent):
        raise DocumentSyntaxError(_("The file is empty."), 0)
    events.next(yaml.DocumentStartEvent)
    root = _yaml_value(events, problems)
    events.next(yaml.DocumentEndEvent)
    last = events.peek()
    if not isinstance(last, yaml.StreamEndEvent):
        raise DocumentSyntaxError(_("A second document begins here; one is expected."), last.start_mark.index)
    return root


class _YamlEvents:
    """The YAML events of a text, read one at a time, so that nothing after a refused event is parsed."""

    def __init__(self, text: str) -> None:
        self._events: Iterator[Any] = iter(yaml.parse(text, Loader=YAML_LOADER))
        self._ahead: Any = None
        self.budget = ValueBudget()

    def peek(self) -> Any:
        """Return the next event without consuming it."""
        if self._ahead is None:
            try:
                self._ahead = next(self._events)
            except yaml.MarkedYAMLError as error:
                mark = error.problem_mark or error.context_mark
                reason = quoted(str(error.problem or "invalid syntax"), 120).strip("'")
                raise DocumentSyntaxError(
                    _("This is not valid YAML: {reason}.", reason=reason), mark.index if mark else 0
                ) from None
            except yaml.reader.ReaderError as error:
                raise DocumentSyntaxError(_("YAML does not allow this character."), int(error.position)) from None
            except yaml.YAMLError:
                raise DocumentSyntaxError(_("This is not valid YAML."), 0) from None
        return self._ahead

    def next(self, kind: type[Any] | None = None) -> Any:
        """Consume the next event; raises DocumentSyntaxError unless it is of the kind."""
        event = self.peek()
        self._ahead = None
        if kind is not None and not isinstance(event, kind):
            raise DocumentSyntaxError(_("The document does not end here."), event.start_mark.index)
        return event


def _yaml_value(events: _YamlEvents, problems: DocumentProblems, path: str = "", depth: int = 0) -> DocumentNode:
    event = events.next()
    offset = event.start_mark.index
    events.budget.spend(offset)
    if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
        raise DocumentSyntaxError(_("Anchors and aliases are not supported: write out their values."), offset)
    if event.tag not in YAML_PLAIN_TAGS:
        raise DocumentSyntaxError(_("Tags are not supported: values are texts, numbers, true, false and null."), offset)
    if isinstance(event, yaml.ScalarEvent):
        return DocumentNode(_yaml_scalar(event, offset), offset)
    if depth >= MAX_DEPTH:
        raise DocumentSyntaxError(_("This is nested too deeply."), offset)
    if isinstance(event, yaml.SequenceStartEvent):
        items: list[DocumentNode] = []
        while not isinstance(events.peek(), yaml.SequenceEndEvent):
            items.append(_yaml_value(events, problems, f"{path}[{len(items)}]", depth + 1))
        events.next()
        return DocumentNode(items, offset)
    node = DocumentNode({}, offset)
    while not isinstance(events.peek(), yaml.MappingEndEvent):
        at = events.peek().start_mark.index
        name = events.next()
        if not isinstance(name, yaml.ScalarEvent) or name.anchor is not None or name.tag not in YAML_PLAIN_TAGS:
            raise DocumentSyntaxError(_("The name of a member is expected here."), at)
        word = check_text(str(name.value), at)
        if word == "<<" and not name.style:
            raise DocumentSyntaxError(_("Merge keys are not supported: write out the merged members."), at)
        value = _yaml_value(events, problems, member_path(path, word), depth + 1)
        add_member(node, word, value, problems=problems, path=path, offset=at)
    events.next()
    return node


def _yaml_scalar(event: Any, offset: int) -> NodeValue:
    text = check_text(str(event.value), offset)
    if event.style or event.tag is not None:
        return text
    if YAML_NOT_A_NUMBER.fullmatch(text):
        raise DocumentSyntaxError(_("NaN and infinity are not allowed."), offset)
    value = yaml_plain_value(text)
    return parse_number(text, offset) if value is YAML_NUMBER else value


def yaml_plain_value(text: str) -> Any:
    """Return the meaning of unquoted text: None, True, False, the pattern NUMBER for a number, or the text itself."""
    if text in YAML_LITERALS:
        return YAML_LITERALS[text]
    if YAML_NUMBER.fullmatch(text) or YAML_NOT_A_NUMBER.fullmatch(text):
        return YAML_NUMBER
    return text


def json_type(value: object) -> str:
    """Return the JSON Schema type of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, dict) else "array"


def unknown_name_sentence(word: str, known: Collection[str]) -> str:
    """Return the sentence for an unknown name, with the nearest known name, or else with all of them."""
    near = difflib.get_close_matches(word[:60], known, n=1)
    if near:
        return _("{word} is not known here. Is '{near}' meant?", word=quoted(word), near=near[0])
    return _("{word} is not known here. Known here: {known}.", word=quoted(word), known=", ".join(known) or _("none"))
