"""Exports into files: what is in them, one at a time, resumed after deaths, on full disks, out of nobody's reach."""

from __future__ import annotations

import csv
import fcntl
import gzip
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from accounts.models import User
from core.claims import ClaimLost
from core.errors import Conflict, Invalid
from telemetry.delivery.formats import SYSLOG_SEVERITIES
from telemetry.events.models import Event
from telemetry.exports.execution import exports_begin_due, exports_delete_expired
from telemetry.exports.files import file_name, files_delete_expired, parts_delete_abandoned, run_file
from telemetry.exports.formats import rfc3339
from telemetry.exports.models import ExportDefinition, ExportRun
from telemetry.exports.options import ExportOptions, ExportSpec
from telemetry.exports.services import (
    ExportRunClaim,
    export_edit,
    export_remove,
    run_cancel,
    run_request,
    run_resume,
    target_check,
)
from tests.fabric.disorder import database_url
from tests.processes import ROOT
from tests.telemetry.delivery.readers import read_cef, read_syslog
from tests.telemetry.exports.conftest import BEGIN, FORMULA, events_make, turn
from tests.turns import at_night

pytestmark = pytest.mark.django_db(transaction=True)
Define = Callable[..., ExportDefinition]


def worker_process(run: ExportRun, folder: Path, end: str, size: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "DATABASE_URL": database_url(), "DJANGO_SETTINGS_MODULE": "falconweb.settings"}
    command = [sys.executable, "-m", "tests.telemetry.exports.one_run", str(run.pk), str(folder), end, size]
    return subprocess.Popen(command, cwd=ROOT, env=environment)


def text_of(run: ExportRun) -> str:
    return run_file(run).read_text()


def test_a_file_has_every_event_once_and_its_checksum(define: Define, falconweb_administrator: User) -> None:
    made = events_make(2500)
    run = turn(run_request(by=falconweb_administrator, definition=define()))
    assert (run.state, run.counted, run.total, run.percent) == ("done", 2500, 2500, 100)
    content = run_file(run).read_bytes()
    assert run.bytes == len(content)
    assert run.checksum == hashlib.sha256(content).hexdigest()
    rows = list(csv.DictReader(io.StringIO(content.decode(), newline="")))
    assert [int(row["id"]) for row in rows] == [event.pk for event in made]
    assert rows[0]["at"] == "2026-03-02T09:30:01.000000Z"
    assert not list(run_file(run).parent.glob("*.part"))


@pytest.mark.parametrize("format_", ["csv", "jsonl", "syslog", "cef"])
def test_each_format_says_what_was_told(define: Define, falconweb_administrator: User, format_: str) -> None:
    Event.objects.bulk_create([
        Event(
            at=BEGIN, told_at=BEGIN.replace(microsecond=70), source="sign_in", severity="Critical",
            message_id="FalconWeb.1.0.SignInRefused",
            message="FalconWeb.SignInRefused", text=f'{FORMULA}|a=b\\c\n"]', person_name="ada", arguments=["x", "y"],
        )
    ])  # fmt: skip
    columns = ("id", "at", "told_at", "severity", "text", "person", "arguments")
    run = turn(run_request(by=falconweb_administrator, definition=define(format=format_, columns=columns)))
    text, told = text_of(run), f'{FORMULA}|a=b\\c\n"]'
    if format_ == "csv":
        (row,) = csv.DictReader(io.StringIO(text, newline=""))
        assert row["text"] == f"'{told}"
        assert (row["arguments"], row["told_at"]) == ('["x", "y"]', rfc3339(BEGIN.replace(microsecond=70)))
    elif format_ == "jsonl":
        found = json.loads(text)
        assert (found["text"], found["person"], found["arguments"]) == (told, "ada", ["x", "y"])
    elif format_ == "syslog":
        message = read_syslog(text.rstrip("\n").encode())
        assert (message.severity, message.text) == (SYSLOG_SEVERITIES["Critical"], told.replace("\n", " "))
        assert ("person", "ada") in message.data["falconweb@32473"]
    else:
        header, extension = read_cef(text.rstrip("\n"))
        assert header[4:] == ["FalconWeb.1.0.SignInRefused", "FalconWeb.SignInRefused", "9"]
        assert (extension["msg"], extension["suser"]) == (told, "ada")
        assert extension["rt"] == str(int(BEGIN.timestamp() * 1000))


def test_a_filter_keeps_what_fits(define: Define, falconweb_administrator: User) -> None:
    events_make(9)
    events_make(3, source="site")
    run = turn(
        run_request(by=falconweb_administrator, definition=define(filter={"severity": ["Critical"], "source": "bmc"}))
    )
    assert run.counted == 3
    assert text_of(run).count("Critical") == 3


def test_a_gzip_file_is_the_same_inside(define: Define, falconweb_administrator: User) -> None:
    events_make(1500)
    plain = turn(run_request(by=falconweb_administrator, definition=define("plain")))
    packed = turn(run_request(by=falconweb_administrator, definition=define("packed", gzip=True)))
    assert run_file(packed).name.endswith(".csv.gz")
    assert gzip.decompress(run_file(packed).read_bytes()) == run_file(plain).read_bytes()


@pytest.mark.process
@pytest.mark.parametrize("packed", [*at_night(False), True])
def test_a_run_that_was_killed_goes_on_to_the_same_file_byte_for_byte(
    define: Define, falconweb_administrator: User, folder: Path, packed: bool
) -> None:
    events_make(3_000)
    whole = turn(run_request(by=falconweb_administrator, definition=define("whole", gzip=packed)))
    run = run_request(by=falconweb_administrator, definition=define("killed", gzip=packed))
    assert worker_process(run, folder, "killed", str(whole.bytes // 2)).wait(60) == -signal.SIGKILL
    run.refresh_from_db()
    assert run.state == "running"
    assert 0 < run.counted < 3_000
    # What the dead worker wrote after the last moment that it kept is cut off.
    assert (folder / f"{run.file}.part").stat().st_size > run.bytes
    # Its claim is released; nobody takes the run before that.
    assert exports_begin_due() == []
    ExportRun.objects.filter(pk=run.pk).update(lease_until=None)
    assert exports_begin_due() == [run.pk]
    run = turn(run)
    assert (run.state, run.counted) == ("done", 3_000)
    assert run_file(run).read_bytes() == run_file(whole).read_bytes()
    assert run.checksum == whole.checksum


def test_a_file_that_is_gone_is_begun_anew(define: Define, falconweb_administrator: User, folder: Path) -> None:
    events_make(1200)
    run = run_request(by=falconweb_administrator, definition=define())
    turn(run)
    run_file(run).unlink()
    ExportRun.objects.filter(pk=run.pk).update(state="running", ended_at=None)
    run = turn(run)
    assert (run.state, run.counted) == ("done", 1200)
    assert len(text_of(run).splitlines()) == 1201


def test_a_worker_that_died_after_the_last_byte_leaves_a_file_that_is_taken_as_it_is(
    define: Define, falconweb_administrator: User
) -> None:
    events_make(1200)
    run = turn(run_request(by=falconweb_administrator, definition=define()))
    before = run_file(run).read_bytes()
    ExportRun.objects.filter(pk=run.pk).update(state="running", ended_at=None, cursor=0, counted=0, bytes=0)
    assert run_file(turn(run)).read_bytes() == before


def test_two_never_write_one_file(define: Define, falconweb_administrator: User, folder: Path) -> None:
    """A worker that was stopped for longer than its claim lasts still has the lock of the file."""
    events_make(1500)
    run = run_request(by=falconweb_administrator, definition=define())
    path = folder / f"{file_name(run)}.part"
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        run = turn(run)
        assert (run.state, run.worker, run.retry_at is not None) == ("running", "", True)
        assert path.read_bytes() == b""
    ExportRun.objects.filter(pk=run.pk).update(retry_at=None)
    run = turn(run)
    assert (run.state, run.counted, len(text_of(run).splitlines())) == ("done", 1500, 1501)


def test_a_worker_whose_claim_ran_out_writes_nothing_more(define: Define, falconweb_administrator: User) -> None:
    run = run_request(by=falconweb_administrator, definition=define())
    first = ExportRunClaim.claim(run.pk, "first")
    assert first is not None
    first.write(counted=1)
    ExportRun.objects.filter(pk=run.pk).update(lease_until=None)
    assert turn(run, worker="second").state == "done"
    with pytest.raises(ClaimLost):
        first.write(counted=7)
    with pytest.raises(ClaimLost):
        first.end(ExportRun.State.FAILED, "too late")
    run.refresh_from_db()
    assert (run.state, run.counted) == ("done", 1)


@pytest.mark.nightly
@pytest.mark.process
def test_a_full_disk_is_told_and_the_run_goes_on_where_it_stopped(
    define: Define, falconweb_administrator: User, folder: Path
) -> None:
    events_make(3000)
    whole = turn(run_request(by=falconweb_administrator, definition=define("whole")))
    run = run_request(by=falconweb_administrator, definition=define("full"))
    assert worker_process(run, folder, "full", str(whole.bytes // 2)).wait(60) == 0
    run.refresh_from_db()
    assert run.state == "failed"
    assert "of the exports is full" in run.error
    assert 0 < run.counted < 3000
    assert Event.objects.filter(message="FalconWeb.ExportFailed", link=f"/exports/runs/{run.pk}/").count() == 1
    run = turn(run_resume(by=falconweb_administrator, run=run))
    assert run.state == "done"
    assert run_file(run).read_bytes() == run_file(whole).read_bytes()


def test_of_two_who_press_run_now_one_is_told_that_it_goes_on(define: Define, falconweb_administrator: User) -> None:
    definition = define()
    both = threading.Barrier(2)
    answers: list[str] = []

    def press() -> None:
        try:
            both.wait()
            answers.append(str(run_request(by=falconweb_administrator, definition=definition).state))
        except Conflict as error:
            answers.append(error.sentence)
        finally:
            connection.close()

    threads = [threading.Thread(target=press) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == ["A run of this export is in progress. Wait for its end, or cancel it.", "queued"]
    assert definition.runs.count() == 1


def test_of_two_workers_one_has_the_run(define: Define, falconweb_administrator: User) -> None:
    events_make(10)
    run = run_request(by=falconweb_administrator, definition=define())
    assert ExportRunClaim.claim(run.pk, "one") is not None
    assert ExportRunClaim.claim(run.pk, "two") is None
    assert exports_begin_due() == []


def test_a_run_is_cancelled_at_once_or_by_its_worker_and_resumed(
    define: Define, falconweb_administrator: User, folder: Path
) -> None:
    events_make(3000)
    run = run_request(by=falconweb_administrator, definition=define())
    assert run_cancel(by=falconweb_administrator, run=run).state == "cancelled"
    with pytest.raises(Conflict, match="has ended"):
        run_cancel(by=falconweb_administrator, run=run)
    run = run_resume(by=falconweb_administrator, run=run)
    ExportRun.objects.filter(pk=run.pk).update(cancel_requested_at=timezone.now())
    run = turn(run)
    assert (run.state, run.error) == ("cancelled", "It was cancelled.")
    run = turn(run_resume(by=falconweb_administrator, run=run))
    assert (run.state, run.counted) == ("done", 3000)
    with pytest.raises(Conflict, match="failed or cancelled run"):
        run_resume(by=falconweb_administrator, run=run)


def test_a_run_that_takes_too_long_fails_and_can_be_resumed(define: Define, falconweb_administrator: User) -> None:
    events_make(2000)
    run = run_request(by=falconweb_administrator, definition=define(minutes=1))
    ExportRun.objects.filter(pk=run.pk).update(started_at=timezone.now() - timedelta(minutes=2))
    run = turn(run)
    assert (run.state, "longer than its 1 minutes" in run.error) == ("failed", True)
    assert turn(run_resume(by=falconweb_administrator, run=run)).state == "done"


def test_new_events_alone_are_in_the_next_file(define: Define, falconweb_administrator: User) -> None:
    events_make(5)
    definition = define(span="new")
    first = turn(run_request(by=falconweb_administrator, definition=definition))
    events_make(3, first=6)
    second = turn(run_request(by=falconweb_administrator, definition=definition))
    assert (first.counted, second.counted) == (5, 3)
    assert "number 6" in text_of(second)
    assert "number 5" not in text_of(second)
    assert turn(run_request(by=falconweb_administrator, definition=definition)).counted == 0


def test_a_file_that_failed_is_not_skipped_by_the_next(define: Define, falconweb_administrator: User) -> None:
    events_make(5)
    definition = define(span="new")
    run = run_request(by=falconweb_administrator, definition=definition)
    run_cancel(by=falconweb_administrator, run=run)
    assert turn(run_request(by=falconweb_administrator, definition=definition)).counted == 5
    with pytest.raises(Conflict, match="later run"):
        run_resume(by=falconweb_administrator, run=run)


def test_what_happened_before_is_left_out_where_that_is_wanted(define: Define, falconweb_administrator: User) -> None:
    events_make(5)
    definition = define(span="new", from_now=True)
    events_make(2, first=6)
    assert turn(run_request(by=falconweb_administrator, definition=definition)).counted == 2


@pytest.mark.parametrize(
    "name", ["../up", "/etc", "a/../../b", "a//b", ".hidden", "", "a\\b", "ä", "a b", "x" * 80, "a\0b"]
)
def test_no_folder_is_outside(define: Define, name: str) -> None:
    with pytest.raises(Invalid) as raised:
        define(target="directory", folder=name)
    assert "folder" in raised.value.details["errors"]


def test_no_link_leads_outside(define: Define, falconweb_administrator: User, folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    folder.mkdir()
    (folder / "siem").symlink_to(outside)
    events_make(2)
    run = turn(run_request(by=falconweb_administrator, definition=define(target="directory", folder="siem")))
    assert run.state == "failed"
    assert list(outside.iterdir()) == []


def test_a_link_in_place_of_the_file_is_not_followed(
    define: Define, falconweb_administrator: User, folder: Path, tmp_path: Path
) -> None:
    events_make(2)
    run = run_request(by=falconweb_administrator, definition=define(target="directory", folder="siem"))
    (folder / "siem").mkdir(parents=True)
    (folder / f"{file_name(run)}.part").symlink_to(tmp_path / "victim")
    assert turn(run).state == "failed"
    assert not (tmp_path / "victim").exists()


def test_the_name_of_an_export_cannot_choose_a_path(
    define: Define, falconweb_administrator: User, folder: Path
) -> None:
    run = turn(run_request(by=falconweb_administrator, definition=define("../../etc/passwd; rm -rf ~ é")))
    assert run.file.startswith("downloads/etc-passwd-rm-rf-")
    assert run_file(run).parent == folder / "downloads"


def test_a_folder_that_cannot_be_written_is_told(define: Define, falconweb_administrator: User, folder: Path) -> None:
    folder.mkdir()
    (folder / "siem").write_text("a file, not a folder")
    run = turn(run_request(by=falconweb_administrator, definition=define(target="directory", folder="siem")))
    assert run.state == "failed"
    assert "cannot be created" in run.error


def test_files_over_their_number_or_age_go_and_the_record_stays(
    define: Define, falconweb_administrator: User, folder: Path
) -> None:
    definition = define(keep_files=2)
    runs = [turn(run_request(by=falconweb_administrator, definition=definition)) for _ in range(3)]
    assert len(list((folder / "downloads").iterdir())) == 2
    runs[0].refresh_from_db()
    assert (runs[0].state, runs[0].has_file) == ("done", False)
    ExportRun.objects.filter(pk=runs[1].pk).update(ended_at=timezone.now() - timedelta(days=91))
    assert exports_delete_expired() == 1
    assert len(list((folder / "downloads").iterdir())) == 1
    assert definition.runs.count() == 3
    assert files_delete_expired(definition) == 0


def test_half_a_file_that_nobody_resumes_goes_after_a_week(
    define: Define, falconweb_administrator: User, folder: Path
) -> None:
    run = turn(run_request(by=falconweb_administrator, definition=define()))
    path = run_file(run)
    path.rename(path.with_name(path.name + ".part"))
    ExportRun.objects.filter(pk=run.pk).update(state="failed", ended_at=timezone.now() - timedelta(days=8))
    assert parts_delete_abandoned(timezone.now()) == 1
    assert list((folder / "downloads").iterdir()) == []
    with pytest.raises(Conflict):
        run_resume(by=falconweb_administrator, run=run)


def test_an_export_is_removed_with_its_files_and_the_record_of_its_runs_stays(
    define: Define, falconweb_administrator: User, folder: Path
) -> None:
    definition = define()
    turn(run_request(by=falconweb_administrator, definition=definition))
    going = run_request(by=falconweb_administrator, definition=definition)
    ExportRun.objects.filter(pk=going.pk).update(state="running", lease_until=timezone.now() + timedelta(seconds=9))
    with pytest.raises(Conflict, match="is in progress"):
        export_remove(by=falconweb_administrator, definition=definition)
    ExportRun.objects.filter(pk=going.pk).update(lease_until=None)
    export_remove(by=falconweb_administrator, definition=definition)
    assert list((folder / "downloads").iterdir()) == []
    left: set[Any] = set(ExportRun.objects.values_list("name", "definition", "state"))
    assert left == {
        ("Everything", None, "done"), ("Everything", None, "cancelled"),
    }  # fmt: skip


def test_a_change_while_a_run_goes_on_is_for_the_next(define: Define, falconweb_administrator: User) -> None:
    events_make(3)
    definition = define()
    run = run_request(by=falconweb_administrator, definition=definition)
    changed = ExportSpec("Other", format="jsonl", target="download", columns=("id",))
    export_edit(by=falconweb_administrator, definition=definition, spec=changed)
    assert text_of(turn(run)).startswith("id,at,severity,text")


def test_the_target_is_tried_before_anything_is_kept(falconweb_administrator: User, folder: Path) -> None:
    wanted = ExportSpec("x", format="csv", target="directory", options=ExportOptions(folder="siem"))
    assert str(folder / "siem") in target_check(by=falconweb_administrator, spec=wanted)
    assert list((folder / "siem").iterdir()) == []
