"""JSON with places: the standard parser tells neither where a value stands nor that a name came twice."""

from __future__ import annotations

import json
import re

from fabric.allocation.nodes import DEEPEST, Budget, Node, Unreadable, keep, number_of, refuse_text
from fabric.allocation.places import Problems, member_path, quoted

# Possessive throughout: no text makes it try twice.
TOKEN = re.compile(
    r"""[ \t\r\n]*+(?:
    (?P<sign>[{}\[\]:,])
    |(?P<text>"[^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+")
    |(?P<number>-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?)(?![\w.+-])
    |(?P<word>true|false|null)(?!\w)
    |(?P<end>\Z)
    )""",
    re.VERBOSE,
)
WORDS = {"true": True, "false": False, "null": None}
WHITE = re.compile(r"[ \t\r\n]*")


class _Tokens:
    """The tokens of a text, one by one."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.budget = Budget()
        self.at = 0
        self.kind = ""
        self.shown = ""
        self.offset = 0
        self.step()

    def at_sign(self, signs: str) -> bool:
        """Tell whether one of these signs is next."""
        return self.kind == "sign" and self.shown in signs

    def step(self) -> None:
        """Go on to the next one."""
        found = TOKEN.match(self.text, self.at)
        if found is None:
            white = WHITE.match(self.text, self.at)
            raise _nonsense(self.text, white.end() if white else self.at)
        self.kind = found.lastgroup or ""
        self.shown = found[self.kind]
        self.offset, self.at = found.start(self.kind), found.end()

    def expected(self, what: str) -> Unreadable:
        """Return the error that says what should stand here."""
        if self.kind == "end":
            return Unreadable(f"The file ends too early: {what} is missing.", self.offset)
        return Unreadable(f"{what.capitalize()} is expected here, not {quoted(self.shown, 20)}.", self.offset)


def _nonsense(text: str, offset: int) -> Unreadable:
    rest = text[offset : offset + 20]
    if rest.startswith('"'):
        return Unreadable("A text begins here that does not end on its line, or has a wrong escape.", offset)
    if re.match(r"-?(?:NaN|Infinity)", rest):
        return Unreadable("NaN and Infinity are no numbers in JSON.", offset)
    if rest.startswith("'"):
        return Unreadable("In JSON a text stands in double quotes.", offset)
    if rest.startswith(("//", "/*", "#")):
        return Unreadable("JSON has no comments.", offset)
    found = re.match(r"[\w.+-]+", rest)
    return Unreadable(f"{quoted(found[0] if found else rest[:1])} has no meaning in JSON.", offset)


def read_json(text: str, problems: Problems) -> Node:
    """Return the value of a JSON text; names that come twice are noted in `problems`, the first one counts.

    Raises Unreadable where the text is no JSON, and where it is nested more than 16 deep.
    """
    tokens = _Tokens(text)
    root = _value(tokens, problems)
    if tokens.kind != "end":
        raise Unreadable("The file goes on after its end: one object is expected, and nothing else.", tokens.offset)
    return root


def _value(tokens: _Tokens, problems: Problems, path: str = "", depth: int = 0) -> Node:
    offset = tokens.offset
    tokens.budget.spend(offset)
    if tokens.at_sign("{["):
        if depth >= DEEPEST:
            raise Unreadable("This is nested too deeply.", offset)
        read = _object if tokens.shown == "{" else _list
        tokens.step()
        node = read(tokens, problems, path, depth)
    elif tokens.kind == "text":
        node = Node(_text(tokens.shown, offset), offset)
    elif tokens.kind == "number":
        node = Node(number_of(tokens.shown, offset), offset)
    elif tokens.kind == "word":
        node = Node(WORDS[tokens.shown], offset)
    else:
        raise tokens.expected("a value")
    tokens.step()
    node.offset = offset
    return node


def _object(tokens: _Tokens, problems: Problems, path: str, depth: int) -> Node:
    """Read the members up to the closing brace."""
    node = Node({}, 0)
    if tokens.at_sign("}"):
        return node
    while True:
        if tokens.kind != "text":
            raise tokens.expected("a name in double quotes")
        name, offset = _text(tokens.shown, tokens.offset), tokens.offset
        tokens.step()
        if not tokens.at_sign(":"):
            raise tokens.expected("a colon")
        tokens.step()
        value = _value(tokens, problems, member_path(path, name), depth + 1)
        keep(node, name, value, problems=problems, path=path, offset=offset)
        if tokens.at_sign("}"):
            return node
        if not tokens.at_sign(","):
            raise tokens.expected("a comma or the closing brace")
        tokens.step()


def _list(tokens: _Tokens, problems: Problems, path: str, depth: int) -> Node:
    """Read the items up to the closing bracket."""
    items: list[Node] = []
    if tokens.at_sign("]"):
        return Node(items, 0)
    while True:
        items.append(_value(tokens, problems, f"{path}[{len(items)}]", depth + 1))
        if tokens.at_sign("]"):
            return Node(items, 0)
        if not tokens.at_sign(","):
            raise tokens.expected("a comma or the closing bracket")
        tokens.step()


def _text(quoted_text: str, offset: int) -> str:
    if "\\" not in quoted_text:
        return refuse_text(quoted_text[1:-1], offset)
    try:
        text: str = json.loads(quoted_text)
    except ValueError:
        raise Unreadable("A text has a wrong escape.", offset) from None
    return refuse_text(text, offset)
