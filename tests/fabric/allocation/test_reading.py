"""What is wrong with an allocation file is told with its place, all at once; nothing in a file breaks the reader."""

from __future__ import annotations

import copy
import itertools
import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from core.documents import MAX_PROBLEMS
from fabric.allocation.document import (
    NOT_SPECIFIED,
    AllocationDocument,
    ChassisEntry,
    DeviceEntry,
    DrawerEntry,
    Format,
    HostEntry,
    HostPortEntry,
    SlotEntry,
)
from fabric.allocation.reader import MAX_FILE_BYTES, parse_file
from fabric.allocation.schema import KINDS, MAX_LANES, SCHEMA

HEAD = '{"format": "falconweb-allocation", "version": 1, "chassis": '
VALIDATOR = Draft202012Validator(SCHEMA)


def problems_of(raw: str | bytes, format: Any = "") -> list[tuple[int, int, str, str]]:  # noqa: A002 - as parse_file
    """Return line, column, path and sentence of every problem."""
    read = parse_file(raw.encode() if isinstance(raw, str) else raw, format)
    assert (read.document is None) == bool(read.problems)
    return [(one.place.line, one.place.column, one.place.path, one.sentence) for one in read.problems]


@pytest.mark.parametrize(
    ("raw", "line", "column", "words"),
    [
        ("", 1, 1, "empty"),
        (" \r\n\t", 1, 1, "empty"),
        ("hello", 1, 1, "not a text"),
        ("[]", 1, 1, "not a list"),
        ("null", 1, 1, "not nothing"),
        ("12", 1, 1, "not a number"),
        ("{}", 1, 1, "no 'format'"),
        ('{"format": "other"}', 1, 12, "not an allocation file"),
        ('{"format": "falconweb-allocation"}', 1, 1, "without a version"),
        ('{"format": "falconweb-allocation",\n "version": 2, "chasis": []}', 2, 13, "understands version 1"),
        ('{"format": "falconweb-allocation",\n "version": true}', 2, 13, "understands version 1"),
        ('{"a": 1,\n "b" 2}', 2, 6, "A colon is expected here, not '2'"),
        ('{"a": 1,\n}', 2, 1, "A name in double quotes is expected"),
        ('{"a": 1', 1, 8, "ends too early"),
        ('{"a": [1, 2', 1, 12, "ends too early"),
        ("{'a': 1}", 1, 2, "double quotes"),
        ('{"a": 1} {}', 1, 10, "continues after its end"),
        ('{"a": "x\ny"}', 1, 7, "does not end on its line"),
        ('{"a": "\\x"}', 1, 7, "invalid escape"),
        ('{"a": NaN}', 1, 7, "NaN"),
        ('{"a": -Infinity}', 1, 7, "NaN and Infinity"),
        ('{"a": 01}', 1, 7, "'01' has no meaning"),
        ('{"a": True}', 1, 7, "'True' has no meaning"),
        ('{\n  "a": 1 // one\n}', 2, 10, "no comments"),
        ('{"a": 1,\r\n "a": 2}', 2, 2, "twice: first in line 1"),
        ('{"a": "\\ud800"}', 1, 7, "surrogate"),
        ('{"a": "\\u0000"}', 1, 7, "NUL"),
        ('{"a": ' + "9" * 100_000 + "}", 1, 7, "too many digits"),
        ("a: &x [1]\nb: *x", 1, 4, "aliases"),
        ("a: !!python/object:os.system ls", 1, 4, "Tags"),
        ("a: 1\n<<: {b: 1}", 2, 1, "Merge keys"),
        ("a: .inf", 1, 4, "infinity"),
        ("a: 1\n---\nb: 2", 2, 1, "second document"),
        ("a: 1\n b: 2", 2, 3, "not valid YAML"),
        ("a: 'x", 1, 6, "not valid YAML"),
        ("a: 1\nb: 2\na: 3", 3, 1, "twice: first in line 1"),
        ("? [a]\n: 1", 1, 3, "name of a member"),
        ("a: \x00", 1, 4, "does not allow"),
    ],
)
def test_what_makes_no_sense_is_told_with_line_and_column(raw: str, line: int, column: int, words: str) -> None:
    found = problems_of(raw)
    assert [(at[0], at[1]) for at in found if words in at[3]] == [(line, column)], found


def test_bytes_that_are_no_utf8_are_told_with_their_place() -> None:
    assert problems_of(b'{"a":\n "\xff"}') == [(2, 3, "", "This is not UTF-8 text. Save the file as UTF-8.")]
    assert "UTF-8" in problems_of('{"format"'.encode("utf-16"))[0][3]


def test_a_byte_order_mark_and_line_breaks_of_other_systems_are_taken() -> None:
    plain = HEAD + "[]\n}"
    for text in ("\ufeff" + plain, plain.replace("\n", "\r\n"), plain.replace("\n", "\r")):
        assert problems_of(text) == []
    for text in ("format: falconweb-allocation\r\nversion: 1\r\nchassis: []\r\n", "\ufeffformat: x\n"):
        assert not [one for one in problems_of(text) if "YAML" in one[3]]


def test_all_problems_are_told_at_once_from_top_to_bottom() -> None:
    raw = (
        HEAD
        + """[{"name": "",
  "drawrs": [],
  "uuid": 12,
  "drawers": [
    {"number": -1, "mode": "Fast", "host_ports": [{"host": []}],
     "slots": [
       {"slot": 1, "attached_to": 7, "lanes": 65},
       {"slot": 1, "device": {"kind": "fpga", "serial_number": "S1"}},
       {"slot": 2.5, "device": {"serial_number": "S1"}, "tenant": 1e999},
       {"slot": null}
     ]}]},
 {"name": "x"}, {"name": "x"}]}"""
    )
    assert [(line, path, sentence) for line, _, path, sentence in problems_of(raw)] == [
        (1, "chassis[0].name", "'name' must not be empty."),
        (2, "chassis[0].drawrs", "'drawrs' is not known here. Is 'drawers' meant?"),
        (3, "chassis[0].uuid", "'uuid' must be text, not 12. Put it in quotes."),
        (5, "chassis[0].drawers[0].number", "'number' must be from 0 to 2147483647, not -1."),
        (5, "chassis[0].drawers[0].mode",
         "'mode' must be one of StandardOneHost, StandardTwoHosts, Advanced, Unknown, not 'Fast'."),
        (5, "chassis[0].drawers[0].host_ports[0]", "'host_ports'[0] has no 'label'."),
        (5, "chassis[0].drawers[0].host_ports[0].host", "'host' must be an object, not a list."),
        (7, "chassis[0].drawers[0].slots[0].attached_to",
         "'attached_to' must be text or null, not 7. Put it in quotes."),
        (7, "chassis[0].drawers[0].slots[0].lanes", "'lanes' must be from 1 to 64, not 65."),
        (8, "chassis[0].drawers[0].slots[1]",
         "Slot 1 is listed twice: first in line 7 (chassis[0].drawers[0].slots[0])."),
        (8, "chassis[0].drawers[0].slots[1].device.kind", "'kind' must be one of gpu, nvme, nic, custom, not 'fpga'."),
        (9, "chassis[0].drawers[0].slots[2]",
         "The device with serial number 'S1' is listed twice: first in line 8 (chassis[0].drawers[0].slots[1])."),
        (9, "chassis[0].drawers[0].slots[2].slot", "'slot' must be a whole number or null, not 2.5."),
        (9, "chassis[0].drawers[0].slots[2].tenant", "'tenant' must be text or null, not inf. Put it in quotes."),
        (10, "chassis[0].drawers[0].slots[3]", "Neither a slot nor a device is named here."),
        (12, "chassis[2]", "The chassis 'x' is listed twice: first in line 12 (chassis[1])."),
    ]  # fmt: skip


def test_no_more_than_a_hundred_problems_are_told() -> None:
    read = parse_file((HEAD + "[]," + ",".join(f'"key {at}": 0' for at in range(500)) + "}").encode())
    assert (len(read.problems), read.more) == (MAX_PROBLEMS, True)
    many_twice = "{" + ",".join('"a": 0' for _ in range(500)) + "}"
    assert len(problems_of(many_twice)) == MAX_PROBLEMS
    # What ends the search is told, however much is wrong before it.
    assert "has no meaning" in problems_of("{" + ",".join('"a": 0' for _ in range(101)) + " x")[-1][3]


def test_a_file_beyond_the_limit_is_refused_without_a_look() -> None:
    (line, _, _, sentence), *others = problems_of(b"\x00" * (MAX_FILE_BYTES + 1))
    assert (line, others) == (0, [])
    assert "larger than 5 MiB" in sentence
    assert "NUL" in problems_of(b'"\\u0000"' + b" " * (MAX_FILE_BYTES - 10))[0][3]


BOMBS = {
    "brackets": "[" * 2_000_000,
    "braces": '{"a":' * 500_000,
    "flow": "{a: " * 500_000,
    "block": "- " * 1_000_000,
    "keys": "? " * 1_000_000,
    "laughs": "a: &a [x]\n" + "".join(f"b{at}: &b{at} [*a, *a]\n" for at in range(1000)),
    "anchors": "[" + "&a x, " * 500_000 + "]",
    "text": '"' + "a" * 4_000_000,
    "escapes": '"' + "\\" * 4_000_001,
    "digits": "9" * 4_000_000,
    "exponent": '{"version": 1e' + "9" * 4_000_000 + "}",
    "white": " " * 4_000_000 + "x",
    "breaks": "\n" * 1_000_000 + "@",
    "comments": "#" * 4_000_000,
    "directives": "%YAML 1.2\n" * 400_000,
    "key": '{"' + "k" * 4_000_000 + '": 1}',
    "unknown": HEAD + '[], "' + "k" * 4_000_000 + '": 1}',
    "value": HEAD + '[{"name": "' + "n" * 4_000_000 + '"}]}',
    "entries": HEAD + "[" + "{}," * 250_000 + "{}]}",
    "repeated": HEAD + '[{"name": "a", "drawers": [' + ",".join(['{"number": 1}'] * 25_000) + "]}]}",
    "document ends": "...\n" * 500_000,
}


@pytest.mark.parametrize("name", BOMBS)
def test_no_bomb_is_taken_or_told_at_length(name: str) -> None:
    found = problems_of(BOMBS[name])
    assert found
    assert len(json.dumps(found)) < 100_000


@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_no_bytes_break_the_reader(raw: bytes) -> None:
    for format_ in ("", "json", "yaml"):
        assert problems_of(raw, format_)


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30) | st.sampled_from(
    ["1e5", "0123", "089", "yes", "null", "~", "", "true", "1.0", "-0", ".nan", "0x10", "2024-01-01", "12:30:45", "<<",
     "=", "a: b", "- a", "#x", "é\u2028\u0085", "x ", " x", "'\"", "\ufeff", "a\r\nb", "\x1b[31m", "😀", "1_000", "*a"]
)  # fmt: skip
NAME = TEXT.filter(bool)
LANES = st.none() | st.integers(1, MAX_LANES)


@st.composite
def documents(draw: Any) -> AllocationDocument:
    """Any document that names nothing twice."""
    counter = itertools.count()

    def device() -> DeviceEntry:
        return DeviceEntry(
            name=draw(TEXT), kind=draw(st.sampled_from(KINDS)), manufacturer=draw(TEXT), model=draw(TEXT),
            serial_number=f"{draw(TEXT)}{next(counter)}",
        )  # fmt: skip

    def drawer(number: int) -> DrawerEntry:
        labels = [f"{number}{one}" for one in draw(st.lists(NAME, unique=True, max_size=2))]
        hosts = st.sampled_from([NOT_SPECIFIED, None]) | st.builds(HostEntry, name=TEXT, identity=TEXT)
        slots = draw(st.lists(st.integers(0, 20), unique=True, max_size=3))
        return DrawerEntry(
            number=number, name=draw(TEXT), mode=draw(st.sampled_from(["", "Advanced", "Unknown"])),
            host_ports=tuple(
                HostPortEntry(label=one, host=draw(hosts), port_type=draw(TEXT), lanes=draw(LANES), tenant=draw(TEXT))
                for one in labels
            ),
            slots=tuple(
                SlotEntry(
                    slot=one, device=device(), attached_to=draw(st.sampled_from([NOT_SPECIFIED, None]) | NAME),
                    port_type=draw(TEXT), lanes=draw(LANES), tenant=draw(TEXT),
                )
                for one in slots
            ),
        )  # fmt: skip

    names = draw(st.lists(NAME, unique=True, max_size=2))
    return AllocationDocument(
        scope=draw(st.sampled_from(["", "everything"])),
        chassis=tuple(
            ChassisEntry(
                name=name, uuid=f"u{at}", manufacturer=draw(TEXT), model=draw(TEXT), serial_number=draw(TEXT),
                drawers=tuple(drawer(number) for number in range(draw(st.integers(0, 2)))),
            )
            for at, name in enumerate(names)
        ),
    )  # fmt: skip


@given(documents(), st.sampled_from(["json", "yaml"]))
def test_what_is_written_is_read_as_the_same_and_written_as_the_same_bytes(
    document: AllocationDocument, format_: Format
) -> None:
    text = document.text(format_)
    read = parse_file(text.encode(), format_)
    assert read.problems == ()
    assert read.document == document
    assert read.document is not None
    assert read.document.text(format_) == text
    VALIDATOR.validate(json.loads(document.text("json")))


@given(documents())
def test_other_readers_find_the_same_in_what_is_written(document: AllocationDocument) -> None:
    assert json.loads(document.text("json")) == document.plain()
    assert yaml.safe_load(document.text("yaml")) == document.plain()


# As JSON: a value that is changed further must not be the next example's.
ODD = ("null", "true", "0", "-1", "1", "1.0", "2.5", "1e30", '""', f'"{"x" * 3000}"', '"Advanced"', '"gpu"', "[]", "{}",
       "[[]]", '{"a": 1}')  # fmt: skip


@given(documents(), st.data())
def test_a_changed_document_is_refused_by_the_reader_when_by_the_published_schema(
    document: AllocationDocument, data: st.DataObject
) -> None:
    plain = copy.deepcopy(document.plain())
    for _ in range(data.draw(st.integers(1, 3))):
        change_somewhere(plain, data)
    found = parse_file(json.dumps(plain).encode(), "json").problems
    if not VALIDATOR.is_valid(plain):
        assert found
    else:
        # What a schema cannot say: that something is named twice, or not at all.
        assert not [one for one in found if "twice" not in one.sentence and "Neither" not in one.sentence], found


def change_somewhere(plain: Any, data: st.DataObject) -> None:
    """Put something odd in the place of something, add it, or take something out."""
    here = plain
    while isinstance(here, dict | list) and here:
        key = data.draw(st.sampled_from(sorted(here) if isinstance(here, dict) else range(len(here))))
        if not isinstance(here[key], dict | list) or not here[key] or data.draw(st.integers(0, 3)) == 0:
            action = data.draw(st.sampled_from(["put", "add", "drop"]))
            if action == "drop":
                del here[key]
            elif action == "add" and isinstance(here, dict):
                name = data.draw(st.sampled_from(["slot", "device", "host", "lanes", "unknown", "mode", "name"]))
                here[name] = json.loads(data.draw(st.sampled_from(ODD)))
            else:
                here[key] = json.loads(data.draw(st.sampled_from(ODD)))
            return
        here = here[key]


def test_the_published_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)


def test_a_serial_number_without_quotes_in_yaml_is_not_taken_for_another() -> None:
    head = "format: falconweb-allocation\nversion: 1\nchassis:\n- name: a\n"
    raw = head + "  serial_number: 1234\n  uuid: 0123\n  model: yes"
    assert problems_of(raw) == [
        (5, 18, "chassis[0].serial_number", "'serial_number' must be text, not 1234. Put it in quotes.")
    ]
