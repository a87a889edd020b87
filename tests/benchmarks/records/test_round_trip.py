"""What is exported comes back as it was, by JSON Lines and by CSV, whatever is in it."""

from __future__ import annotations

import csv
import io
import json
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from accounts.models import Role, Tenant, User
from benchmarks.records.schema import VALUES_A_LINE
from benchmarks.records.services import records_check, records_import
from benchmarks.runs.models import LogPart, Run
from benchmarks.runs.recording import series_append, series_values
from tests.benchmarks.records.making import content, ended_run, exported, lines_of, sampled_run, without_path

NUMBERS = st.floats(allow_infinity=False, width=64)
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)
KEYS = st.text(st.characters(categories=["L", "N", "P"], exclude_characters="'"), min_size=1, max_size=40)
SERIES = st.dictionaries(
    KEYS,
    st.tuples(
        st.lists(st.tuples(st.floats(0, 2e9), NUMBERS), max_size=30), TEXTS, TEXTS, st.floats(0, 100, allow_nan=False)
    ),
    max_size=4,
)


class AnyRecordComesBack(TestCase):
    """Hypothesis on the database."""

    tenant: Tenant
    other: Tenant
    person: User
    stranger: User

    @classmethod
    def setUpTestData(cls) -> None:
        """Make one tenant with a person, and another one elsewhere."""
        cls.tenant = Tenant.objects.create(name="Here")
        cls.other = Tenant.objects.create(name="Elsewhere")
        cls.person = User.objects.create_user("bob", role=Role.USER, tenant=cls.tenant)
        cls.stranger = User.objects.create_user("mallory", role=Role.USER, tenant=cls.other)

    @settings(max_examples=20)
    @given(
        series=SERIES,
        log=st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), max_size=4),
        title=TEXTS,
    )
    def test_by_json_lines(self, series: dict[str, Any], log: list[str], title: str) -> None:
        before = exported(self.person, self.made(series, title, log))
        made = records_import(person=self.stranger, content=content(before)).new
        after = exported(self.stranger, *made)
        assert without_path(lines_of(after)) == without_path(lines_of(before))

    @settings(max_examples=20)
    @given(series=SERIES, title=TEXTS)
    def test_by_csv(self, series: dict[str, Any], title: str) -> None:
        run = self.made(series, title, [])
        before = exported(self.person, run, kind="csv")
        (made,) = records_import(person=self.stranger, content=content(before, "runs.csv")).new
        after = exported(self.stranger, made, kind="csv")
        assert self.cells(after) == self.cells(before)
        # And what makes a record that record is the same by both ways.
        assert [
            one.known for one in records_check(person=self.stranger, content=content(exported(self.person, run))).runs
        ] == [made]

    def made(self, series: dict[str, Any], title: str, log: list[str]) -> Run:
        run = ended_run(self.tenant, title=title or "a run")
        for key, (pairs, unit, source, interval) in series.items():
            at, values = [one for one, _ in pairs], [one for _, one in pairs]
            series_append(run, key, at=at, values=values, unit=unit, source=source, interval=interval)
        first = 0
        for text in log:
            if text:
                LogPart.objects.create(run=run, first=first, text=text)
                first += len(text.encode())
        return run

    def cells(self, data: bytes) -> list[dict[str, str]]:
        gone = {"run", "provenance", "record"}
        return [{k: v for k, v in row.items() if k not in gone} for row in csv.DictReader(io.StringIO(data.decode()))]


@pytest.mark.django_db
def test_an_imported_run_keeps_what_it_was_and_shows_as_imported(tenant: Tenant, member: User) -> None:
    run = sampled_run(None)
    boss = User.objects.create_superuser("boss")
    (made,) = records_import(person=member, content=content(exported(boss, run), "theirs.jsonl")).new
    assert (made.provenance, made.executor, made.tenant, made.requested_by) == ("imported", "", tenant, member)
    assert made.source["provenance"] == "measured"
    assert made.source["chain"] == [{"id": str(run.pk), "provenance": "measured", "executor": "torch"}]
    assert made.source["file"] == "theirs.jsonl"
    # Over a second site it is still known what it was, and every place that it was at.
    again = exported(member, made)
    run.delete()
    made.delete()
    (third,) = records_import(person=member, content=content(again)).new
    assert third.source["provenance"] == "measured"
    assert [one["provenance"] for one in third.source["chain"]] == ["measured", "imported"]


@pytest.mark.django_db
def test_that_a_run_was_not_alone_goes_along_without_whom_it_met(tenant: Tenant, member: User) -> None:
    met = {"shared": ["host", "switch"], "seconds": 12.5}
    run = ended_run(tenant, overlaps=[{**met, "run": str(uuid4())}])
    header = lines_of(exported(member, run))[0]
    assert header["source"] == {"overlaps": [met]}
    assert "overlaps" not in lines_of(exported(member, ended_run(tenant)))[0]["source"]
    # A record that names one of this site's runs is believed that it was not alone, and nothing else.
    header |= {"id": "theirs", "title": "Theirs"}
    header["source"]["overlaps"][0]["run"] = str(run.pk)
    end = {"kind": "end", "run": "theirs", "lines": 1}
    (made,) = records_import(person=member, content=content("\n".join(map(json.dumps, (header, end))))).new
    made.refresh_from_db()
    assert made.overlaps == [met]
    assert lines_of(exported(member, made))[0]["source"]["overlaps"] == [met]


@pytest.mark.django_db
def test_lines_are_the_same_wherever_the_database_breaks_a_series(member: User) -> None:
    rng = np.random.default_rng(4)
    values = rng.normal(size=3 * VALUES_A_LINE + 7)
    at = np.arange(len(values)) * 0.5
    boss = User.objects.create_superuser("boss")
    whole, pieces = ended_run(None), ended_run(None)
    series_append(whole, "cpu", at=at, values=values)
    for begin in range(0, len(values), 333):
        series_append(pieces, "cpu", at=at[begin : begin + 333], values=values[begin : begin + 333])
    one, other = (lines_of(exported(boss, run)) for run in (whole, pieces))
    assert without_path(one) == without_path(other)
    assert [len(line["values"]) for line in one[1:-1]] == [VALUES_A_LINE] * 3 + [7]
    (made,) = records_import(person=member, content=content(exported(boss, pieces))).new
    assert np.array_equal(series_values(made, ["cpu"])["cpu"][1], values)


@pytest.mark.django_db
def test_what_json_cannot_say_is_no_value(member: User) -> None:
    run = ended_run(member.tenant)
    series_append(run, "loss", at=[1.0, 2.0, 3.0], values=[float("inf"), float("nan"), -0.0])
    (line,) = [one for one in lines_of(exported(member, run)) if one["kind"] == "series"]
    assert line["values"] == [None, None, -0.0]


@pytest.mark.django_db
def test_a_cell_is_no_formula_and_comes_back(member: User) -> None:
    boss = User.objects.create_superuser("boss")
    run = ended_run(None, title="=cmd()")
    series_append(run, "=SUM(A1)", at=[1.0], values=[-3.5], unit="@x")
    text = exported(boss, run, kind="csv").decode()
    assert "'=SUM(A1)" in text
    assert "'@x" in text
    assert ",-3.5," in text
    (made,) = records_import(person=member, content=content(text, "a.csv")).new
    assert made.title == "=cmd()"
    assert series_values(made, ["=SUM(A1)"])["=SUM(A1)"][1].tolist() == [-3.5]
