"""A file that is wrong in any way is told of by line and field, and nothing of it is kept."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounts.models import Role, Tenant, User
from benchmarks.records.formats import FORMATS, FormatReader
from benchmarks.records.import_files import ImportFile, ProblemLimitReached
from benchmarks.records.services import records_check, records_import
from benchmarks.runs.models import Run, Series
from core.errors import Forbidden, Invalid
from tests.benchmarks.records.making import content, exported, lines_of, sampled_run, written

pytestmark = pytest.mark.django_db
Lines = list[dict[str, Any]]


@pytest.fixture
def lines(member: User) -> Lines:
    """The record of a run that is not here any more."""
    run = sampled_run(member.tenant)
    data = exported(member, run)
    run.delete()
    return lines_of(data)


def put(path: str, value: Any) -> Callable[[Lines], None]:
    """Return what sets a member of a line: '2.key'."""

    def change(lines: Lines) -> None:
        number, *names = path.split(".")
        target: Any = lines[int(number)]
        for name in names[:-1]:
            target = target[name]
        target[names[-1]] = value

    return change


def drop(path: str) -> Callable[[Lines], None]:
    """Return what leaves a member of a line out."""

    def change(lines: Lines) -> None:
        number, name = path.split(".")
        del lines[int(number)][name]

    return change


WRONG: list[tuple[Callable[[Lines], Any], int, str, str]] = [
    (put("0.format", "falconweb.record/2"), 1, "format", "falconweb.record/1"),
    (put("0.spec_hash", "0" * 64), 1, "spec_hash", "not the hash"),
    (put("0.spec_hash", ""), 1, "spec_hash", "missing"),
    (put("0.spec.batch", 8), 1, "spec_hash", "not the hash"),
    (put("0.spec.batch", 0), 1, "spec.batch", "less than 1"),
    (put("0.spec.shape", 1), 1, "spec.shape", "leave it out"),
    (put("0.workload", "bert_base"), 1, "workload", "resnet50"),
    (put("0.topology.cores", "many"), 1, "topology.cores", "whole number"),
    (put("0.results.step_seconds.value", None), 1, "results.step_seconds.value", "number"),
    (put("0.software.cores", 1.5), 1, "software.cores", "whole number"),
    (put("0.state", "running"), 1, "state", "running"),
    (put("0.title", ""), 1, "title", ""),
    (put("0.started_at", "yesterday"), 1, "started_at", ""),
    (put("0.ended_at", "2020-01-01T00:00:00Z"), 1, "ended_at", "before"),
    (put("0.exit_code", 2**40), 1, "exit_code", "more than"),
    (put("0.surprise", 1), 1, "surprise", "leave it out"),
    (put("0.error", "a\x00b"), 1, "error", "cannot be kept"),
    (put("0.source.chain", "abc"), 1, "source.chain", "list"),
    (put("0.source.provenance", "true"), 1, "source.provenance", "one of"),
    (put("0.source.overlaps", [{"shared": ["desk"], "seconds": 1}]), 1, "source.overlaps[0].shared[0]", "desk"),
    (put("0.source.overlaps", "all day"), 1, "source.overlaps", "list"),
    (drop("0.title"), 1, "title", "missing"),
    (put("1.values", [1, 2]), 2, "values", "3 times and 2 values"),
    (put("1.values", [1, 2, "3"]), 2, "values[2]", "number"),
    (put("1.at", None), 2, "at", "list"),
    (put("1.first", 5), 2, "first", "Number 0"),
    (put("1.key", "a\nb"), 2, "key", "cannot be shown"),
    (put("1.unit", "x" * 21), 2, "unit", "20 characters"),
    (put("1.interval", -1), 2, "interval", "less than 0"),
    (put("1.run", "another"), 2, "run", "another"),
    (put("1.kind", "sample"), 2, "kind", "one of"),
    (put("4.first", -3), 5, "first", "less than 0"),
    (put("5.lines", 9), 6, "lines", "lost"),
    (lambda lines: lines.pop(), 1, "", "cut off"),
    (lambda lines: lines.pop(1), 5, "lines", "lost"),
    (lambda lines: lines.pop(0), 1, "kind", "comes first"),
    (lambda lines: lines.extend(list(lines)), 7, "id", "came before"),
    (lambda lines: lines.insert(2, {**lines[1], "first": 3, "unit": "ms"}), 3, "unit", "as before"),
]


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_named_by_line_and_field(
    member: User, lines: Lines, case: tuple[Callable[[Lines], Any], int, str, str]
) -> None:
    change, line, where, says = case
    lines[0]["source"] = {}
    lines[0].setdefault("started_at", "2026-11-20T08:30:00Z")
    change(lines)
    data = written(lines)
    first = records_check(person=member, content=content(data), format="record").problems[0]
    assert (first.line, first.field) == (line, where)
    assert says.lower() in first.sentence.lower()
    with pytest.raises(Invalid) as refused:
        records_import(person=member, content=content(data), format="record")
    assert refused.value.details["problems"][0]["line"] == line
    assert not Run.objects.exists()
    assert not Series.objects.exists()


RAW = [
    (b'{"kind":"run","kind":"run"}\n', 1, "kind", "twice"),
    (b'{"kind":"run","exit_code":NaN}\n', 1, "", "NaN"),
    (b'{"kind":"run","exit_code":-Infinity}\n', 1, "", "Infinity"),
    (b'{"kind":"run","exit_code":1e999}\n', 1, "", "too large"),
    (b'{"kind":"run","exit_code":' + b"9" * 5000 + b"}\n", 1, "", "digits"),
    (b'{"kind":"run","a":' + b"[" * 100_000 + b"\n", 1, "", ""),
    (b'{"kind":"run","a":"\\ud800"}\n', 1, "a", "cannot be kept"),
    (b'{"kind":"run"\n', 1, "", "not valid JSON"),
    (b"[1]\n", 1, "", "object"),
    (b'\n\n{"kind":"run"}\n', 3, "id", "missing"),
    (b'{"kind":"run"}\n\xff\xfe\n', 2, "", "UTF-8"),
]


@pytest.mark.parametrize(("data", "line", "where", "says"), RAW)
def test_json_is_taken_strictly(member: User, data: bytes, line: int, where: str, says: str) -> None:
    found = records_check(person=member, content=content(data), format="record").problems
    assert any((one.line, one.field) == (line, where) and says in one.sentence for one in found), found


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (gzip.compress(b'{"kind":"run"}', mtime=0), "gzip"),
        (b"PK\x03\x04....", "zip"),
        (b"\x00\x01\x02\x03 binary", "zero bytes"),
        (b"   \n", "nothing in the file"),
        (b"Dear all, see you tomorrow.", "none of the formats"),
        (b'{"some": "json"}', "This JSON is none"),
    ],
)
def test_what_is_no_record_is_refused_as_what_it_is(member: User, data: bytes, says: str) -> None:
    with pytest.raises(Invalid) as refused:
        records_check(person=member, content=content(data))
    assert says in refused.value.sentence


def test_many_problems_are_told_up_to_a_number(member: User) -> None:
    data = b'{"kind":"run","format":"falconweb.record/1"}\n' * 100
    checked = records_check(person=member, content=content(data))
    assert len(checked.problems) == 20
    assert checked.more


def test_one_wrong_record_keeps_the_right_ones_out(member: User, lines: Lines) -> None:
    other = [{**one, "id": "b"} if "id" in one else {**one, "run": "b"} for one in lines]
    other[1] = {**other[1], "values": [1]}
    with pytest.raises(Invalid):
        records_import(person=member, content=content(written(lines + other)))
    assert not Run.objects.exists()


CSV = [
    ("run,series\n1,a\n", 1, "column 'value'"),
    ("run,series,value,surprise\n", 1, "surprise"),
    ("run,series,value,at\n1,a,x,1\n", 2, "no number"),
    ("run,series,value,at\n1,a,nan,1\n", 2, "no number"),
    ("run,series,value,at\n1,a,1\n", 2, "3 cells"),
    ("run,series,value,at\n1,,1,1\n", 2, "none is named"),
    ('run,series,value,at\n1,a,"1,1\n', 2, "no CSV"),
    ("run,series,value,record\n1,a,1,{}\n", 2, "missing"),
    ("run,series,value,provenance\n1,a,1,guessed\n", 2, "guessed"),
    ("run,series,value\n1,a,1\n2,a,1\n1,a,1\n", 4, "came before"),
]


@pytest.mark.parametrize(("text", "line", "says"), CSV)
def test_a_wrong_table_is_told_by_row(member: User, text: str, line: int, says: str) -> None:
    first = records_check(person=member, content=content(text, "a.csv"), format="csv").problems[0]
    assert first.line == line
    assert says in first.sentence


def test_a_table_of_ones_own_becomes_runs(member: User) -> None:
    text = "run,workload,series,unit,at,value\nmine,resnet50,cpu,share,1,0.5\nmine,resnet50,cpu,share,2,\n"
    (made,) = records_import(person=member, content=content(text, "mine.csv")).new
    assert (made.title, made.workload, made.source["provenance"]) == ("mine", "resnet50", "measured")


@given(st.binary(max_size=300), st.sampled_from(["", *FORMATS]))
def test_no_bytes_stop_the_reader(data: bytes, kind: str) -> None:
    reading = FormatReader(ImportFile(data=data), kind or "record")
    try:
        for _ in reading.lines():
            pass
    except ProblemLimitReached:
        assert len(reading.problems.found) == 20


def test_a_viewer_may_not(tenant: Tenant, lines: Lines) -> None:
    eve = User.objects.create_user("eve", role=Role.VIEWER, tenant=tenant)
    for service in (records_check, records_import):
        with pytest.raises(Forbidden):
            service(person=eve, content=content(json.dumps(lines[0])))
