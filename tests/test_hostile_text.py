"""No pattern of the code takes quadratic time: each is given long texts that are made from the pattern itself."""

from __future__ import annotations

import ast
import re
import signal
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pytest
from django.urls import URLPattern, URLResolver, get_resolver

from benchmarks.records.formats import open_format
from benchmarks.records.import_files import ImportFile, ProblemLimitReached
from core.errors import Invalid
from core.text import natural_key
from fabric.bmc.events import RedfishEvent, _is_oldest_first
from fabric.bmc.readings import _follow_pointer
from fabric.bmc.values import number, trailing_number

parser: Any = import_module("re._parser")
compiler: Any = import_module("re._compiler")

ROOT: Final = Path(__file__).parents[1]
ROOMS: Final = (
    "core", "accounts", "fabric", "telemetry", "benchmarks", "falconweb", "hostwire", "agent", "simulator",
)  # fmt: skip
METHODS: Final = ("match", "search", "fullmatch", "sub", "split", "findall", "finditer")
CHARACTERS: Final = "0a A_-./:,;=(\"'\\[{#@<$\n\té"
REPEATS: Final = {parser.MAX_REPEAT, parser.MIN_REPEAT, parser.POSSESSIVE_REPEAT}
MANY: Final = 50  # a repeat of fewer cannot take long
FEW: Final = 8  # characters of a pattern whose pairs are tried
ENDINGS: Final = ("\x00", "\n\x00", "")
# A linear pattern takes some 10 ns a character: milliseconds for all of the long text. A quadratic one takes seconds.
SHORT, SUSPICIOUS_SECONDS = 2_000, 0.001
LONG, MAX_SECONDS = 40_000, 0.25
# The values of the names in patterns that are made while the code runs.
LOCAL_NAMES: Final[dict[str, object]] = {
    "address": "10.0.0.5", "pattern": "[a-z]+", "uri": "/redfish/v1/Systems/{SystemId}",
}  # fmt: skip
ADVICE: Final = (
    "Let no two neighbouring repeats take the same characters, begin no searched pattern with a repeat, make a repeat"
    " possessive (\\s*+), or use str methods (strip, partition, removesuffix)."
)


class FoundPattern(NamedTuple):
    """A pattern of the code, and the methods by which it is used."""

    place: str
    pattern: re.Pattern[str]
    methods: frozenset[str]


class TakesLong(Exception):
    """A pattern has used its CPU time."""


def code_patterns() -> Iterator[FoundPattern]:
    """Yield each pattern that a call of `re` in the code has, evaluated in its module."""
    texts = {path: path.read_text() for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))}
    used: dict[str, set[str]] = defaultdict(set)
    for name, method in re.findall(rf"(\w+)\.({'|'.join(METHODS)})\b", "\n".join(texts.values())):
        used[name].add(method)
    for path, text in texts.items():
        if not re.search(r"\bre\.|from re ", text):
            continue  # to parse all files takes seconds
        tree = ast.parse(text)
        names = {
            id(node.value): target.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == "re":
                pytest.fail(f"{path.relative_to(ROOT)} imports a name from re, where no test finds its patterns.")
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
                continue
            method = node.func.attr
            if getattr(node.func.value, "id", "") != "re" or method not in {*METHODS, "compile"}:
                continue
            place = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
            options = [*node.args[1:], *(one.value for one in node.keywords if one.arg == "flags")]
            flags = [one for one in options if not isinstance(one, ast.Call) and ast.unparse(one).startswith("re.")]
            call = ast.parse(f"re.compile({', '.join(map(ast.unparse, (node.args[0], *flags)))})", mode="eval")
            pattern = eval(compile(call, place, "eval"), {**LOCAL_NAMES, **vars(import_module(place))})  # noqa: S307
            methods = {method} if method != "compile" else used[names.get(id(node), "")] or {"match", "search"}
            yield FoundPattern(f"{place}:{node.lineno}", pattern, frozenset(methods))


def address_patterns(resolver: Any = None, prefix: str = "") -> Iterator[FoundPattern]:
    """Yield the patterns of the site's addresses."""
    for one in (resolver or get_resolver()).url_patterns:
        regex = one.pattern.regex
        yield FoundPattern(f"address {prefix}{one.pattern}", regex, frozenset({"search", "fullmatch"}))
        if isinstance(one, URLResolver):
            yield from address_patterns(one, f"{prefix}{one.pattern}")
        else:
            assert isinstance(one, URLPattern)


def accepted_characters(items: Any, flags: int) -> list[str]:
    """Return the characters that are a whole match of a part of a pattern."""
    tried = dict.fromkeys((*CHARACTERS, *(chr(value) for kind, value in items if kind is parser.LITERAL)))
    part = compiler.compile(items, flags)
    return [one for one in tried if part.fullmatch(one)]


def example(items: Any, flags: int, at_least: int = 0) -> str:
    """Return a short text that a part of a pattern matches, each repeat `at_least` as often, as far as it may."""
    text = ""
    for kind, value in items:
        if kind is parser.LITERAL:
            text += chr(value)
        elif kind in {parser.NOT_LITERAL, parser.ANY, parser.IN}:
            single = parser.SubPattern(items.state, [(kind, value)])
            usual = accepted_characters(single, flags)
            text += usual[0] if usual else _first_of(value)
        elif kind in REPEATS:
            text += example(value[2], flags, at_least) * max(value[0], min(at_least, value[1]))
        else:
            inner = next(iter(_inner(kind, value)), None)
            text += (
                "" if inner is None or kind in {parser.ASSERT, parser.ASSERT_NOT} else example(inner, flags, at_least)
            )
    return text


def _first_of(members: Any) -> str:
    """Return a character of a set that has none of the usual ones."""
    for kind, value in members:
        if kind in {parser.LITERAL, parser.RANGE}:
            return chr(value if kind is parser.LITERAL else value[0])
    return "a"


def _inner(kind: Any, value: Any) -> list[Any]:
    """Return the parts inside of a part of a pattern."""
    if kind is parser.BRANCH:
        return list(value[1])
    if kind in REPEATS:
        return [value[2]]
    if kind in {parser.SUBPATTERN, parser.ASSERT, parser.ASSERT_NOT}:
        return [value[-1]]
    if kind is parser.GROUPREF_EXISTS:
        return [one for one in value[1:] if one is not None]
    return [value] if kind is parser.ATOMIC_GROUP else []


def pumps(items: Any, flags: int, before: str = "") -> Iterator[tuple[str, str]]:
    """Yield what comes before each repeat of a pattern, and what it repeats."""
    for place, (kind, value) in enumerate(items):
        prefix = before + example(items[:place], flags)
        if kind in REPEATS and value[1] > MANY:
            pieces = accepted_characters(value[2], flags) or [""]
            for piece in {*pieces, example(value[2], flags, 1)} - {""}:
                yield prefix, piece
        for inner in _inner(kind, value):
            yield from pumps(inner, flags, prefix)


def hostile_texts(pattern: re.Pattern[str]) -> Iterator[tuple[str, str, str]]:
    """Yield texts as a beginning, what is repeated after it, and an ending."""
    parsed = parser.parse(pattern.pattern, pattern.flags)
    found = list(dict.fromkeys(pumps(parsed, pattern.flags)))
    own = list(dict.fromkeys(piece for _, piece in found if len(piece) == 1))[:FEW]
    pairs = (first + second for first, second in product(own, repeat=2) if first != second)
    begun = [("", prefix + piece) for prefix, piece in found if prefix]
    bare = [("", prefix) for prefix, _ in found if prefix]
    generic = [("", piece) for piece in (*CHARACTERS, *pairs)]
    for prefix, piece in dict.fromkeys((*found, *begun, *bare, *generic)):
        for ending in ENDINGS:
            yield prefix, piece, ending


@contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Raise TakesLong after as much CPU time of this process; `re` looks for signals while it searches."""

    def end(*_: object) -> None:
        raise TakesLong

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def cpu_seconds(pattern: re.Pattern[Any], method: str, text: str) -> float:
    """Return the CPU seconds of a pattern with a text, `MAX_SECONDS` where it was ended."""
    given: Any = text.encode() if isinstance(pattern.pattern, bytes) else text
    begin = time.thread_time()
    try:
        with cpu_limit(MAX_SECONDS):
            if method == "sub":
                pattern.sub(given[:0], given)
            else:
                list(getattr(pattern, method)(given) or ()) if method == "finditer" else getattr(pattern, method)(given)
    except TakesLong:
        return MAX_SECONDS
    return time.thread_time() - begin


def slow_texts(found: Iterable[FoundPattern]) -> Iterator[str]:
    """Yield a sentence for each pattern that takes too long with some text."""
    for place, pattern, methods in found:
        for method, (prefix, piece, ending) in product(sorted(methods), hostile_texts(pattern)):
            if cpu_seconds(pattern, method, prefix + piece * (SHORT // len(piece)) + ending) < SUSPICIOUS_SECONDS:
                continue
            if cpu_seconds(pattern, method, prefix + piece * (LONG // len(piece)) + ending) >= MAX_SECONDS:
                yield (
                    f"{place}: {method} of {pattern.pattern!r} takes more than {MAX_SECONDS} CPU s for"
                    f" {prefix!r} + {piece!r} * {LONG // len(piece)} + {ending!r}."
                )
                break


def test_no_pattern_of_the_code_takes_quadratic_time() -> None:
    found = [*code_patterns(), *address_patterns()]
    assert len(found) > 300
    slow = list(slow_texts(found))
    assert not slow, "\n".join((*slow, ADVICE))


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (r"(\d+)\s*$", "search"), (r"^# (.+?)\s*$", "match"), (r"^Device: (\d+),\s*(.+?),\s*ID", "match"),
        (r"(a+)+$", "match"), (r"\s+$", "sub"), (r"(?:x|[a-z]+)+;", "fullmatch"), (r'"[^;]*;', "findall"),
    ],
)  # fmt: skip
def test_a_quadratic_pattern_is_found(pattern: str, method: str) -> None:
    (sentence,) = slow_texts([FoundPattern("planted", re.compile(pattern), frozenset({method}))])
    assert sentence.startswith(f"planted: {method} of ")


DIGITS: Final = "9" * 40_000
SPACES: Final = " " * 80_000


@pytest.mark.parametrize(
    ("format_", "text"),
    [
        ("nccl", f"# Rank 0 Pid 1 on a device 0 [1] b{SPACES}\0"),
        ("nccl", f"# Rank {DIGITS} Pid 1 on a device 0 [1] b"),
        ("nccl", "# size count type time\n" + "8 2 float 1\n" * 5_000),
        ("nccl_json", f'{{"results": [{{"size": {DIGITS}}}]}}'),
        ("nccl_json", f'{{"results": [], "args": ["{SPACES}"]}}'),
        ("nvbandwidth", f'{{"nvbandwidth": {{"GPU Device list": ["0: {SPACES}(1"], "testcases": []}}}}'),
        ("nvbandwidth", f'{{"nvbandwidth": {{"testcases": [{{"name": "", "bandwidth_matrix": [[{DIGITS}]]}}]}}}}'),
        ("p2p", f"Device: 0,{SPACES}b"),
        ("p2p", f"Device: {DIGITS}, a, pciBusID: 1"),
        ("p2p", f"P2P Connectivity Matrix\n D\\D {DIGITS}\n"),
        ("mlperf", f":::MLLOG {DIGITS}"),
        ("record", f'{{"kind": "run", "{" - at `" * 10_000}": 1}}'),
        ("csv", DIGITS),
        ("", "{" + SPACES),
        ("", '"results"' * 8_000),
    ],
)
def test_no_file_to_import_takes_long(format_: str, text: str) -> None:
    with cpu_limit(1.0):
        try:
            found = open_format(ImportFile(data=text.encode()), format_)
            lines = list(found.lines())
        except (Invalid, ProblemLimitReached):
            return
    assert lines or found.problems.found or not text


def test_no_number_of_a_bmc_takes_long_or_ends_its_reading() -> None:
    with cpu_limit(1.0):
        assert trailing_number(f"slot{DIGITS}") is trailing_number(f"{DIGITS}x") is trailing_number("slot") is None
        assert (trailing_number("slot 3 "), trailing_number("16")) == (3, 16)
        assert number({"Reading": 10**400}, "Reading") is None
        assert max((DIGITS, "2", "10"), key=natural_key) == "10"
        assert _follow_pointer([1], (DIGITS,)) is None
        event = RedfishEvent(event_id="1", message_id="", message="", severity="OK", timestamp="", entry_uri="/E/2")
        assert _is_oldest_first([msgspec.structs.replace(event, entry_uri=f"/E/{DIGITS}"), event])
