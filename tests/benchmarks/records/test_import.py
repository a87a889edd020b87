"""Imports belong to whoever makes them, are made once, and leave a trace."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.audit.actions import Action
from accounts.audit.models import AuditEntry
from accounts.models import Role, Tenant, User
from benchmarks.records.import_files import MAX_STAGED_FILES, stage_file, staged_file_get
from benchmarks.records.services import ExportFilter, export_run_list, records_check, records_download, records_import
from benchmarks.runs.models import Run
from benchmarks.runs.recording import series_append
from benchmarks.runs.results import summary_of
from core.errors import Conflict, Forbidden, Invalid, NotFound, TooLarge
from tests.benchmarks.records.making import content, ended_run, exported, lines_of, sampled_run, written

pytestmark = pytest.mark.django_db


@pytest.fixture
def stranger() -> User:
    """Somebody of another tenant."""
    return User.objects.create_user("mallory", role=Role.USER, tenant=Tenant.objects.create(name="Elsewhere"))


def test_the_run_that_a_record_came_from_is_that_record(member: User) -> None:
    run = sampled_run(member.tenant)
    again = records_import(person=member, content=content(exported(member, run)))
    assert again.known == [run]
    assert again.new == []
    # Under its id, but with other values, it is another record.
    lines = lines_of(exported(member, run))
    lines[1]["values"][0] = 9.0
    (other,) = records_import(person=member, content=content(written(lines))).new
    assert other.pk != run.pk
    # And by CSV, which has no log, it is the same one.
    assert records_import(person=member, content=content(exported(member, run, kind="csv"), "a.csv")).known == [run]


def test_each_tenant_imports_for_itself(member: User, stranger: User) -> None:
    run = sampled_run(member.tenant)
    data = exported(member, run)
    (theirs,) = records_import(person=stranger, content=content(data)).new
    assert theirs.tenant == stranger.tenant
    assert not Run.objects.visible_to(member).filter(pk=theirs.pk).exists()
    assert records_import(person=stranger, content=content(data)).known == [theirs]
    # That somebody else has it is told to nobody.
    run.delete()
    assert records_check(person=member, content=content(data)).new


def test_a_file_with_one_record_twice_makes_it_once(member: User) -> None:
    run = sampled_run(member.tenant)
    lines = lines_of(exported(member, run))
    twin = [{**one, "id": "b"} if "id" in one else {**one, "run": "b"} for one in lines]
    run.delete()
    imported = records_import(person=member, content=content(written(lines + twin)))
    assert len(imported.new) == 1
    assert imported.runs[1] == (imported.runs[0][0], False)
    assert [one.count for one in imported.runs[0][0].series.all()] == [3, 3, 3]


def test_an_import_is_in_the_audit_log_done_or_refused(member: User, viewer: User) -> None:
    run = sampled_run(member.tenant)
    data = exported(member, run)
    run.delete()
    (made,) = records_import(person=member, content=content(data, "theirs.jsonl")).new
    entry = AuditEntry.objects.get(action=Action.RECORDS_IMPORT)
    assert (entry.outcome, entry.target_name) == ("done", "theirs.jsonl")
    assert entry.after is not None
    assert entry.after["runs"] == [str(made.pk)]
    with pytest.raises(Forbidden):
        records_import(person=viewer, content=content(data))
    assert AuditEntry.objects.filter(action=Action.RECORDS_IMPORT, outcome="refused").count() == 1


def test_what_is_staged_is_for_who_brought_it(member: User, stranger: User) -> None:
    token, kept = stage_file(member, [b"abc", b"def"], "a.txt")
    assert staged_file_get(member, token, "a.txt").text() == "abcdef"
    for person, word in ((stranger, token), (member, "../../etc/passwd"), (member, "0" * 64)):
        with pytest.raises(NotFound):
            staged_file_get(person, word, "")
    for number in range(MAX_STAGED_FILES):
        stage_file(member, [str(number).encode()], "")
    assert kept.path is not None
    assert not kept.path.exists()


def test_too_large_a_file_leaves_nothing_behind(member: User) -> None:
    token, kept = stage_file(member, [b"small"], "")
    assert kept.path is not None
    before = set(kept.path.parent.iterdir())
    with pytest.raises(TooLarge):
        stage_file(member, (b"x" * 2**20 for _ in range(40)), "")
    assert set(kept.path.parent.iterdir()) == before
    assert token


def test_only_runs_that_have_ended_are_exported(member: User, stranger: User) -> None:
    done, going = sampled_run(member.tenant), ended_run(member.tenant, state="running")
    with pytest.raises(Conflict, match="has not ended"):
        exported(member, going)
    assert list(export_run_list(member, ExportFilter())) == [done]
    with pytest.raises(NotFound):
        exported(stranger, done)
    for wanted in (ExportFilter(runs=("x",)), ExportFilter(provenance="guessed"), ExportFilter(sweep="y")):
        with pytest.raises(Invalid):
            export_run_list(member, wanted)


def test_a_table_of_runs_has_their_medians_and_units(member: User) -> None:
    sampled_run(member.tenant)
    ended_run(member.tenant, results={}, spec={}, topology={}, spec_hash="", title="@bare")
    text = b"".join(records_download(person=member, wanted=ExportFilter(), kind="summary")).decode()
    head, first, second = text.splitlines()
    row = dict(zip(head.split(","), first.split(","), strict=True))
    assert (row["step_seconds"], row["step_seconds_p95"], row["global_batch"]) == ("0.25", "0.3", "8")
    assert row["host"] == "node-1"
    assert ",'@bare," in second


def test_what_is_known_of_a_file_is_asked_once_however_many_records_it_has(member: User) -> None:
    def checked(count: int) -> tuple[int, int]:
        runs = [ended_run(member.tenant, title=f"{count} of {number}") for number in range(count)]
        data = exported(member, *runs)
        Run.objects.filter(pk__in=[run.pk for run in runs]).delete()
        records_import(person=member, content=content(data))
        with CaptureQueriesContext(connection) as queries:
            found = records_check(person=member, content=content(data))
        return len(queries), len([one for one in found.runs if one.known])

    assert checked(2) == (1, 2)
    assert checked(25) == (1, 25)


def test_samples_without_results_are_summed_up_and_go_on_as_they_came(member: User, stranger: User) -> None:
    run = ended_run(member.tenant, results={})
    series_append(run, "steps/timed/seconds", at=[1.0, 2.0, 3.0], values=[0.5, 0.25, 0.75], unit="s")
    data = exported(member, run)
    (theirs,) = records_import(person=stranger, content=content(data)).new
    step = summary_of(theirs).step_seconds
    assert step is not None
    assert (step.value, step.count) == (0.5, 3)
    # It is the same record still, here and at the next site.
    again = exported(stranger, theirs)
    assert lines_of(again)[0]["results"] == {}
    assert records_import(person=stranger, content=content(again)).known == [theirs]
    assert records_import(person=member, content=content(again)).new


def test_the_names_of_gpus_come_along(member: User, stranger: User) -> None:
    names: dict[str, Any] = {"addresses": {"0000:41:00.0": "GPU 1"}}
    (theirs,) = records_import(
        person=stranger, content=content(exported(member, sampled_run(member.tenant, source=names)))
    ).new
    assert theirs.source["addresses"] == names["addresses"]
