"""Imports belong to whoever makes them, are made once, and leave a trace."""

from __future__ import annotations

import pytest

from accounts.audit.actions import Action
from accounts.models import AuditEntry, Role, Tenant, User
from benchmarks.records.exporting import Wanted, records_download, runs_wanted
from benchmarks.records.importing import records_check, records_import
from benchmarks.records.staging import MOST_KEPT, staged, staged_again
from benchmarks.runs.models import Run
from falconweb.errors import Conflict, Forbidden, Invalid, NotFound, TooLarge
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
    token, kept = staged(member, [b"abc", b"def"], "a.txt")
    assert staged_again(member, token, "a.txt").text() == "abcdef"
    for person, word in ((stranger, token), (member, "../../etc/passwd"), (member, "0" * 64)):
        with pytest.raises(NotFound):
            staged_again(person, word, "")
    for number in range(MOST_KEPT):
        staged(member, [str(number).encode()], "")
    assert kept.path is not None
    assert not kept.path.exists()


def test_too_large_a_file_leaves_nothing_behind(member: User) -> None:
    token, kept = staged(member, [b"small"], "")
    assert kept.path is not None
    before = set(kept.path.parent.iterdir())
    with pytest.raises(TooLarge):
        staged(member, (b"x" * 2**20 for _ in range(40)), "")
    assert set(kept.path.parent.iterdir()) == before
    assert token


def test_only_runs_that_have_ended_are_exported(member: User, stranger: User) -> None:
    done, going = sampled_run(member.tenant), ended_run(member.tenant, state="running")
    with pytest.raises(Conflict, match="has not ended"):
        exported(member, going)
    assert list(runs_wanted(member, Wanted())) == [done]
    with pytest.raises(NotFound):
        exported(stranger, done)
    for wanted in (Wanted(runs=("x",)), Wanted(provenance="guessed"), Wanted(sweep="y")):
        with pytest.raises(Invalid):
            runs_wanted(member, wanted)


def test_a_table_of_runs_has_their_medians_and_units(member: User) -> None:
    sampled_run(member.tenant)
    ended_run(member.tenant, results={}, spec={}, topology={}, spec_hash="", title="@bare")
    text = b"".join(records_download(person=member, wanted=Wanted(), kind="summary")).decode()
    head, first, second = text.splitlines()
    row = dict(zip(head.split(","), first.split(","), strict=True))
    assert (row["step_seconds"], row["step_seconds_p95"], row["global_batch"]) == ("0.25", "0.3", "8")
    assert row["host"] == "node-1"
    assert ",'@bare," in second
