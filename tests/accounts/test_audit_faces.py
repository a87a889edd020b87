"""The audit log as administrators see it: pages, API, exports, and the command line."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.audit import exports
from accounts.audit.actions import Action, Outcome
from accounts.audit.models import AuditEntry, columns
from accounts.audit.selectors import AuditFilter, filter_entries
from accounts.audit.services import Target, audit_record
from accounts.audit.verification import audit_verify
from accounts.models import Role, Tenant, User
from accounts.services import person_edit, tenant_add, tenant_edit
from accounts.tasks import verify_audit
from accounts.urls import urlpatterns
from core import downloads
from core.errors import Invalid
from falconweb.celery import application
from falconweb.config import BASE_DIR
from tests.pages import page_text

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("fresh_log", "falconweb_static_files")]
FORMULA = '=HYPERLINK("http://evil.example")'


@pytest.fixture
def ada() -> User:
    """An administrator."""
    return User.objects.create_superuser("ada", password="x")


@pytest.fixture
def client(ada: User) -> Client:
    """Her browser."""
    client = Client()
    client.force_login(ada)
    return client


@pytest.fixture
def group(ada: User) -> Tenant:
    """Some entries: two of a tenant, one refused, one with what a spreadsheet would run."""
    tenant = tenant_add(by=ada, name="Vision group")
    tenant_edit(by=ada, tenant=tenant, name="Imaging group")
    bob = User.objects.create_user("bob", role=Role.USER, tenant=tenant)
    audit_record(
        action=Action.CHASSIS_EDIT, actor=bob, target=Target("chassis", "7", FORMULA), outcome=Outcome.REFUSED,
        sentence="This is for administrators.", request_id="0123456789abcdef", before={"name": FORMULA},
    )  # fmt: skip
    return tenant


def shown(client: Client, **given: str) -> list[str]:
    """Return the actions that the page lists, and see that the API lists the same."""
    answer = client.get(reverse("accounts:audit"), given)
    assert answer.status_code == 200
    found = [one.action for one in answer.context["page"]]
    same = {("search" if name == "q" else name): value for name, value in given.items()}
    listed = client.get(reverse("api:audit"), same).json()
    assert [one["action"] for one in listed["results"]] == found
    return found


def test_entries_are_listed_newest_first(client: Client, group: Tenant) -> None:
    assert shown(client) == ["chassis.edit", "tenant.edit", "tenant.add"]
    text = page_text(client.get(reverse("accounts:audit")))
    assert "Rename a tenant" in text
    assert "3 entries, newest first" in text
    assert "=HYPERLINK(&quot;" in text


def test_filters_keep_what_fits(client: Client, group: Tenant) -> None:
    assert shown(client, person="bob") == ["chassis.edit"]
    assert shown(client, person="BOB", q="administrators") == ["chassis.edit"]
    assert shown(client, action="tenant") == ["tenant.edit", "tenant.add"]
    assert shown(client, action="tenant.add") == ["tenant.add"]
    assert shown(client, outcome="refused") == ["chassis.edit"]
    assert shown(client, q="rename") == ["tenant.edit"]
    assert shown(client, q="imaging VISION") == []
    assert shown(client, target_kind="tenant", target_id=str(group.pk)) == ["tenant.edit", "tenant.add"]
    assert shown(client, request_id="0123456789abcdef") == ["chassis.edit"]
    tomorrow = (timezone.now() + timedelta(days=1)).strftime("%Y-%m-%d")
    assert shown(client, since=tomorrow) == []
    assert len(shown(client, until=tomorrow)) == 3
    assert shown(client, until=f"{tomorrow}T00:00", since=f"{tomorrow}T00:00") == []
    answer = client.get(reverse("accounts:audit"), {"q": "no\0such"})
    assert (answer.status_code, len(answer.context["page"])) == (200, 0)


def test_who_was_renamed_is_found_by_both_names(client: Client, ada: User, group: Tenant) -> None:
    bob = User.objects.get(username="bob")
    person_edit(
        by=ada, person=bob, username="robert", full_name="", email="", role=Role.USER, tenant=group, active=True
    )
    assert shown(client, person="robert", action="chassis.edit") == ["chassis.edit"]
    assert shown(client, person="bob", action="chassis.edit") == ["chassis.edit"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("since", "yesterday"),
        ("until", "2026-13-40"),
        ("outcome", "perhaps"),
        ("action", "a'b"),
        ("person", "x" * 300),
        ("since", "0001-01-01T00:00:00+14:00"),
        ("until", "9999-12-31T23:59:59-14:00"),
    ],
)
def test_a_filter_that_cannot_be_used_says_why(client: Client, group: Tenant, name: str, value: str) -> None:
    page = client.get(reverse("accounts:audit"), {name: value})
    assert page.status_code == 400
    assert "errorlist" in page.content.decode()
    problem = client.get(reverse("api:audit"), {name: value})
    assert problem.status_code == 400
    assert list(problem.json()["errors"]) == [name]
    assert problem.json()["errors"][name]
    assert client.get(reverse("accounts:audit_export"), {name: value}).status_code == 400


def test_pages_are_cut_on_the_server(client: Client, ada: User) -> None:
    for number in range(120):
        audit_record(action=Action.REQUEST, actor=ada, target=Target("thing", str(number)))
    page = client.get(reverse("accounts:audit"), {"page": "3", "person": "ada"}).context["page"]
    assert (page.paginator.num_pages, [one.target_id for one in page][-1]) == (3, "0")
    text = client.get(reverse("accounts:audit"), {"person": "ada"}).content.decode()
    assert "person=ada&amp;page=2" in text or "person=ada&page=2" in text
    answer = client.get(reverse("api:audit"), {"limit": "10", "offset": "110"}).json()
    assert (answer["count"], len(answer["results"])) == (120, 10)


def test_an_entry_shows_before_and_after_side_by_side(client: Client, group: Tenant) -> None:
    entry = AuditEntry.objects.get(action=Action.TENANT_EDIT)
    text = client.get(reverse("accounts:audit_entry", args=[entry.pk])).content.decode()
    for word in ("Vision group", "Imaging group", "changed", reverse("fabric:tenant", args=[group.pk]), entry.digest):
        assert word in text
    answer = client.get(reverse("api:audit_entry", args=[entry.pk])).json()
    assert list(answer) == list(columns())
    assert (answer["before"], answer["after"]) == ({"name": "Vision group"}, {"name": "Imaging group"})
    for number in (10**18, 10**30):
        assert client.get(reverse("accounts:audit_entry", args=[number])).status_code == 404
        assert client.get(reverse("api:audit_entry", args=[number])).status_code == 404


def test_every_kind_of_value_is_shown(client: Client, ada: User) -> None:
    audit_record(
        action=Action.REQUEST, actor=None, before={"a": None, "b": True, "c": [1, "x"], "d": {"e": [{}]}, "f": "<b>"},
        after={"a": [], "b": False},
    )  # fmt: skip
    text = client.get(reverse("accounts:audit_entry", args=[AuditEntry.objects.get().pk])).content.decode()
    assert "&lt;b&gt;" in text
    assert "1, x" in text
    assert "the site itself" in text


def read(answer: Any) -> str:
    assert answer.status_code == 200
    return b"".join(answer).decode()


@pytest.mark.parametrize("space", ["accounts", "api"])
def test_the_export_has_what_the_filter_keeps_and_is_told_of(client: Client, group: Tenant, space: str) -> None:
    where = reverse(f"{space}:audit_export")
    answer = client.get(where, {"as": "csv", "outcome": "refused"})
    assert answer["Content-Disposition"] == 'attachment; filename="audit.csv"'
    heads, row = list(csv.reader(io.StringIO(read(answer))))
    cells = dict(zip(heads, row, strict=True))
    assert cells["target_name"] == f"'{FORMULA}"
    assert json.loads(cells["before"]) == {"name": FORMULA}
    lines = read(client.get(where, {"as": "jsonl"})).splitlines()
    records = [json.loads(line) for line in lines]
    assert [one["sequence"] for one in records] == [1, 2, 3, 4, 5]
    told_of = records[3]
    assert (told_of["action"], told_of["actor_name"], told_of["after"]) == (
        "audit.export", "ada", {"as": "csv", "filter": {"outcome": "refused"}},
    )  # fmt: skip
    assert client.get(where, {"as": "pdf"}).status_code == 400


def test_an_export_is_streamed_in_blocks_over_asgi_too(ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(7):
        audit_record(action=Action.REQUEST, actor=ada, target=Target("thing", str(number)))
    monkeypatch.setattr(exports, "EXPORT_BATCH_ROWS", 3)
    assert [block.count("\n") for block in exports.audit_lines(filter_entries(AuditFilter()), "jsonl")] == [3, 3, 1]

    async def taken() -> list[bytes]:
        made: list[str] = []
        texts = ("a" * downloads.PART_BYTES, "b", "", "c" * downloads.PART_BYTES, "d")

        def making() -> Iterator[str]:
            for text in texts:
                made.append(text)
                yield text

        answer = downloads.Download(making())
        parts = aiter(answer)
        first = await anext(parts)
        assert made == ["a" * downloads.PART_BYTES]
        return [first, *[part async for part in parts]]

    assert [(part[:1], len(part) - downloads.PART_BYTES) for part in asyncio.run(taken())[:2]] == [(b"a", 0), (b"b", 1)]


def test_verifying_from_the_page_and_the_api_asks_a_worker(client: Client, group: Tenant) -> None:
    assert "not verified yet" in client.get(reverse("accounts:audit")).content.decode()
    assert client.get(reverse("api:audit_verification")).json() == {"at": None, "whole": None, "sentence": ""}
    answer = client.post(reverse("accounts:audit_verification"), follow=True)
    assert "is being verified" in answer.content.decode()
    assert client.post(reverse("api:audit_verification"), content_type="application/json").status_code == 202
    verify_audit(User.objects.get(username="ada").pk)
    entry = AuditEntry.objects.latest("sequence")
    assert (entry.actor_name, entry.outcome) == ("ada", "done")
    assert "The log is whole: 5 entries. Verified" in client.get(reverse("accounts:audit")).content.decode()
    assert client.get(reverse("api:audit_verification")).json()["whole"] is True


def test_a_broken_log_is_told_where_administrators_look(client: Client, group: Tenant) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE accounts_auditentry SET actor_name = 'eve' WHERE sequence = 2")
    verify_audit()
    assert "Entry 2 was changed" in client.get(reverse("accounts:audit")).content.decode()
    answer = client.get(reverse("api:audit_verification")).json()
    assert (answer["whole"], answer["sentence"][:7]) == (False, "Entry 2")


def test_a_broker_that_is_away_is_said(client: Client) -> None:
    celery: Any = application
    known = {name: celery.conf[name] for name in ("broker_url", "broker_transport_options")}
    quick = {**known["broker_transport_options"], "max_retries": 0, "interval_start": 0, "interval_step": 0}
    celery.conf.update(broker_url="redis://127.0.0.1:1/0", broker_transport_options=quick)
    celery._after_fork()  # lets go of its connections
    try:
        assert client.post(reverse("api:audit_verification"), content_type="application/json").status_code == 503
        page = client.post(reverse("accounts:audit_verification"), follow=True)
        assert "workers cannot be reached" in page.content.decode()
    finally:
        celery.conf.update(**known)
        celery._after_fork()
    assert AuditEntry.objects.latest("sequence").outcome == Outcome.FAILED


def run(*words: str) -> tuple[int, str, str]:
    """Run the command; return exit status and what it said."""
    out, err = io.StringIO(), io.StringIO()
    try:
        call_command("audit", *words, stdout=out, stderr=err)
    except SystemExit as stop:
        return int(stop.code or 0), out.getvalue(), err.getvalue()
    return 0, out.getvalue(), err.getvalue()


def test_the_command_verifies(group: Tenant) -> None:
    status, out, _ = run("verify")
    assert (status, out.splitlines()[0]) == (0, "The log is whole: 3 entries.")
    noted = out.rsplit(" ", 1)[1].strip()
    assert run("verify", "--expect", noted)[0] == 0
    status, _, err = run("verify", "--expect", f"3:{'0' * 64}")
    assert (status, "Entry 3 differs" in err) == (1, True)
    assert run("verify", "--expect", f"900:{'0' * 64}")[0] == 1
    with connection.cursor() as cursor:
        cursor.execute("UPDATE accounts_auditentry SET sentence = 'x' WHERE sequence = 2")
    status, _, err = run("verify")
    assert (status, err.strip()) == (1, "Entry 2 was changed: its content does not fit its digest.")
    assert AuditEntry.objects.latest("sequence").outcome == Outcome.FAILED


@pytest.mark.parametrize("text", ["x", "1", "1:2", ":", f"-1:{'0' * 64}"])
def test_what_is_expected_must_be_an_entry(group: Tenant, text: str) -> None:
    with pytest.raises((SystemExit, CommandError)):
        call_command("audit", "verify", "--expect", text)


def test_the_command_exports_and_verifies_a_file_without_the_database(group: Tenant, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    assert run("export", "--output", str(path))[0] == 0
    whole = path.read_text()
    assert run("verify", "--file", str(path)) == (0, "All 4 of the file are whole: entries 1 to 4.\n", "")
    path.write_text(whole.replace("Imaging", "Evil"))
    assert run("verify", "--file", str(path))[2].startswith("Entry 2 was changed")
    path.write_text("".join(whole.splitlines(keepends=True)[::2]))
    assert run("verify", "--file", str(path))[2].startswith("Entry 2 is missing")
    assert run("verify", "--file", str(path), "--gaps")[0] == 0
    status, out, _ = run("export", "--as", "csv", "--target-kind", "tenant", "--action", "tenant.edit")
    assert (status, len(out.splitlines())) == (0, 2)
    assert AuditEntry.objects.latest("sequence").after == {
        "as": "csv", "target_kind": "tenant", "action": "tenant.edit",
    }  # fmt: skip


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "{}", '{"sequence": true, "digest": "", "previous": ""}',
                                  "[" * 100_000, "\ufffe\n"])  # fmt: skip
def test_a_file_that_is_no_export_is_refused_in_a_sentence(group: Tenant, tmp_path: Path, text: str) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_text(text)
    status, _, err = run("verify", "--file", str(path))
    assert (status, len(err.splitlines())) == (2, 1)
    assert run("verify", "--file", str(tmp_path / "none"))[0] == 2
    path.write_bytes(b"\xff\xfe")
    assert run("verify", "--file", str(path))[0] == 2


def test_a_wrong_filter_of_the_command_is_told(group: Tenant) -> None:
    status, _, err = run("export", "--since", "yesterday")
    assert (status, "2026-03-02" in err) == (2, True)


def test_a_broken_seal_is_accepted_with_its_reason_alone(group: Tenant) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE accounts_audithead SET seal = 'x'")
    assert run("verify")[0] == 1
    assert run("reseal", "--reason", " ")[0] == 2
    assert run("reseal", "--reason", "The key was lost in March.")[0] == 0
    assert run("verify")[0] == 0
    assert AuditEntry.objects.get(action=Action.AUDIT_RESEAL).sentence == "The key was lost in March."


def test_the_filter_knows_no_parameter_that_it_was_not_given() -> None:
    assert AuditFilter.of({}) == AuditFilter()
    with pytest.raises(Invalid):
        AuditFilter.of({"q": "x" * 201})
    assert {one.name for one in urlpatterns if one.name and one.name.startswith("audit")} == {
        "audit", "audit_entry", "audit_export", "audit_verification",
    }  # fmt: skip


def test_the_site_verifies_once_a_day(ada: User) -> None:
    planned = {one["task"]: one["schedule"] for one in application.conf.beat_schedule.values()}
    assert planned["accounts.verify_audit"] == 86400.0
    assert {"accounts.verify_audit", "accounts.summarise_refusals"} <= set(application.tasks)
    assert audit_verify(actor=None).broken is None


@pytest.mark.process
def test_the_recipe_of_the_documentation_verifies_an_export(group: Tenant, tmp_path: Path) -> None:
    audit_record(action=Action.REQUEST, actor=None, before={"ö": "€ 😀 \n", "b": [1, None, {"a": True}]})
    path = tmp_path / "audit.jsonl"
    assert run("export", "--output", str(path))[0] == 0
    text = (BASE_DIR / "docs" / "operate.md").read_text()
    recipe = textwrap.dedent(text[text.index("    import hashlib") : text.index("## Settings")])

    def verified() -> int:
        with path.open("rb") as file:
            return subprocess.run([sys.executable, "-c", recipe], stdin=file, check=False, timeout=30,
                                  capture_output=True).returncode  # fmt: skip

    assert verified() == 0
    path.write_text(path.read_text().replace("Imaging", "Evil"))
    assert verified() == 1
