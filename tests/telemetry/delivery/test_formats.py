"""CEF, CSV and JSON Lines, read back by parsers that know the formats alone."""

from __future__ import annotations

import csv
import io
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from telemetry.delivery.formats import (
    BIDI_CONTROLS,
    cef_line,
    csv_rows,
    csv_rows_block,
    json_lines,
    json_lines_block,
    one_line,
)
from tests.telemetry.delivery.readers import read_cef

TEXTS = st.text(alphabet=st.characters(codec=None), max_size=60)
UNICODE = st.text(max_size=60)
HOSTILE = "a|b\\|c=d \\n msg=x\r\n\0\ud800 cs1=1\\"


@given(
    st.tuples(TEXTS, TEXTS, TEXTS, TEXTS, TEXTS),
    st.dictionaries(st.from_regex(r"[A-Za-z0-9]{1,12}", fullmatch=True), TEXTS),
)
@example((HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE), {"msg": HOSTILE, "cs1": HOSTILE})
def test_what_anybody_writes_comes_out_of_cef_as_it_was(
    fields: tuple[str, str, str, str, str], extension: dict[str, str]
) -> None:
    vendor, product, version, signature, name = fields
    line = cef_line(
        vendor=vendor, product=product, version=version, signature=signature, name=name, severity="Critical",
        extension=extension,
    )  # fmt: skip
    header, found = read_cef(line)
    assert header == ["0", *(one_line(one) for one in fields), "9"]
    kept = {"\n": "\n", "\r": "\r"}
    wanted = {
        key: "".join(kept.get(letter) or one_line(letter) for letter in value)
        for key, value in extension.items()
        if value
    }
    assert found == wanted


def test_cef_says_which_version_it_is() -> None:
    made = cef_line(
        vendor="v", product="p", version="1", signature="s", name="n", severity=0, extension={"act": 1}, cef_version=1
    )
    assert made == "CEF:1|v|p|1|s|n|0|act=1"


def test_cef_takes_no_key_that_would_be_two() -> None:
    with pytest.raises(ValueError, match="no key"):
        cef_line(vendor="v", product="p", version="1", signature="s", name="n", severity=0, extension={"a b": "x"})


@given(st.lists(st.lists(UNICODE, min_size=2, max_size=4), min_size=1, max_size=5))
def test_csv_holds_no_formula_and_nothing_else_changes(rows: list[list[str]]) -> None:
    text = b"".join(csv_rows(rows)).decode()
    for given_row, found in zip(rows, csv.reader(io.StringIO(text, newline="")), strict=True):
        for cell, shown in zip(given_row, found, strict=True):
            assert not shown.lstrip(" ").startswith(("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠"))
            assert shown in {cell, f"'{cell}"}


CELLS = st.one_of(UNICODE, st.sampled_from(["", " =1", "＋1", "-1", "a,b"]), st.integers(), st.none(), st.floats())


@given(
    st.integers(1, 3).flatmap(
        lambda width: st.lists(st.lists(CELLS, min_size=width, max_size=width), min_size=1, max_size=5)
    )
)
@example([[-1, "text", None], [-1.5, " @a", "-"]])
@example([["a", 'b"c', "d\re"], ["%s", "f,g", "h\ni"]])
@example([[""], ["a"]])
def test_a_block_of_csv_is_its_rows(rows: list[list[object]]) -> None:
    assert csv_rows_block(list(zip(*rows, strict=True))) == b"".join(csv_rows(rows))


@given(st.dictionaries(TEXTS, st.one_of(TEXTS, st.integers(), st.none(), st.booleans()), min_size=1))
@example({"text": "a\nb\u2028\ud800"})
@example({"a\u2029b": "\u202eexe.txt\u2066\x85"})
def test_a_json_line_is_one_line_and_says_the_same(values: dict[str, object]) -> None:
    (line,) = json_lines({name: [value] for name, value in values.items()})
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert len(line.decode().splitlines()) == 1
    assert not BIDI_CONTROLS & set(line.decode())
    found = json.loads(line)
    assert list(found.values()) == [
        one.encode(errors="replace").decode() if isinstance(one, str) else one for one in _last_of_each(values).values()
    ]
    assert json_lines_block({name: [value, None, "="] for name, value in values.items()}).startswith(line)


def _last_of_each(values: dict[str, object]) -> dict[str, object]:
    return {name.encode(errors="replace").decode(): one for name, one in values.items()}


@pytest.mark.parametrize("letter", sorted(BIDI_CONTROLS))
def test_what_turns_the_direction_of_a_text_is_shown_for_what_it_is(letter: str) -> None:
    text = f"port {letter}nwod\u2028si\u2029it"
    line = cef_line(
        vendor=text,
        product="p",
        version="1",
        signature="s",
        name="n",
        severity="OK",
        extension={"msg": text, "act": "x"},
    )
    header, found = read_cef(line)
    assert (header[1], found["msg"]) == ("port \ufffdnwod si it",) * 2
    assert line.isprintable()


def test_what_json_has_no_word_for_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_lines({"value": [1.5, float("nan")]})
