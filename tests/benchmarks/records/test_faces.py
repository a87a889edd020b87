"""The pages and the API of records: a look first, then the import; exports as files."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from accounts.models import Role, User
from benchmarks.records.schema import record_schema
from benchmarks.runs.models import Run
from tests.benchmarks.records.making import exported, lines_of, sampled_run, written
from tests.benchmarks.records.outputs import NCCL, P2P

pytestmark = pytest.mark.django_db
PAGE = "/benchmarks/records/import/"
API = "/api/v1/benchmarks/records/"


@pytest.fixture
def client(member: User) -> Client:
    """A browser of somebody who may compose."""
    made = Client()
    made.force_login(member)
    return made


def file(data: bytes, name: str = "runs.jsonl") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, data)


def test_a_file_is_looked_at_then_imported(client: Client, member: User) -> None:
    run = sampled_run(member.tenant)
    data = exported(member, run)
    run.delete()
    looked = client.post(PAGE, {"file": file(data, "theirs.jsonl")})
    assert looked.status_code == 200
    assert "1 run would be imported." in looked.content.decode()
    assert "theirs.jsonl" in looked.content.decode()
    assert not Run.objects.exists()
    staged = looked.context["staged"]
    answer = client.post(PAGE, {"staged": staged, "name": "theirs.jsonl", "format": "record", "make": "1"})
    made = Run.objects.get()
    assert answer["Location"] == reverse("runs:run", args=[made.pk])
    assert made.source["file"] == "theirs.jsonl"
    # A second time it is not there any more; and looked at again, it is known.
    assert client.post(PAGE, {"staged": staged, "make": "1"}).status_code == 400
    assert "here already" in client.post(PAGE, {"file": file(data)}).content.decode()


def test_problems_are_shown_with_line_and_field_and_the_text_comes_back(client: Client) -> None:
    answer = client.post(PAGE, {"text": NCCL.replace("12.40", "12,40").replace("\n", "\r\n")})
    shown = answer.content.decode()
    assert answer.status_code == 400
    assert "out_of_place.time" in shown
    assert "12,40" in answer.context["text"]
    assert client.post(PAGE, {"text": NCCL.replace("12.40", "12,40"), "make": "1"}).status_code == 400
    assert not Run.objects.exists()


@pytest.mark.parametrize(
    "given", [{}, {"text": " "}, {"text": "hello"}, {"staged": "../x"}, {"text": P2P, "format": "x"}]
)
def test_what_cannot_be_read_is_refused_on_the_page(client: Client, given: dict[str, str]) -> None:
    answer = client.post(PAGE, given)
    assert answer.status_code == 400
    assert "Nothing was imported." in answer.content.decode()


def test_what_is_in_a_file_is_text_on_the_page(client: Client) -> None:
    hostile = P2P.replace("Tesla", "<script>alert(1)</script>").replace("(us)", "(<b>us</b>)")
    shown = client.post(PAGE, {"text": hostile, "name": '"><script>'}).content.decode()
    assert "<script>alert" not in shown
    assert "<b>us" not in shown


def test_the_api_looks_imports_and_knows_again(client: Client) -> None:
    looked = client.post(f"{API}?preview=true", P2P.encode(), content_type="text/plain")
    assert (looked.status_code, looked.json()["format"], looked.json()["imported"]) == (200, "p2p", 1)
    assert looked.json()["records"][0]["run_id"] is None
    assert not Run.objects.exists()
    made = client.post(f"{API}?name=p2p.txt", P2P.encode(), content_type="text/plain")
    assert (made.status_code, made.json()["imported"]) == (201, 1)
    again = client.post(API, P2P.encode(), content_type="text/plain")
    assert (again.status_code, again.json()["known"]) == (200, 1)
    assert again.json()["records"][0]["run_id"] == str(Run.objects.get().pk)


def test_the_api_names_problems_and_unknown_parameters(client: Client) -> None:
    wrong = client.post(API, NCCL.replace("12.40", "fast").encode(), content_type="text/plain")
    assert wrong.status_code == 400
    assert wrong.json()["problems"][0] == {"line": 14, "path": "out_of_place.time", "sentence": "'fast' is no number."}
    for query in ("previw=1", "kind=x", "preview=perhaps"):
        assert client.post(f"{API}?{query}", P2P.encode(), content_type="text/plain").status_code == 400
    assert client.get(f"{API}?runs=1").status_code == 400
    assert client.get(f"{API}?as=pdf").status_code == 400
    assert client.post(API, b"", content_type="text/plain").status_code == 400
    assert not Run.objects.exists()


def test_exports_are_files(client: Client, member: User) -> None:
    run, other = sampled_run(member.tenant), sampled_run(member.tenant, title="Ünîcode/../x")
    one = client.get(f"/benchmarks/records/{run.pk}.jsonl")
    data = one.getvalue()
    assert lines_of(data)[0]["id"] == str(run.pk)
    assert one["Content-Type"] == "application/jsonl; charset=utf-8"
    assert "/" not in client.get(f"/benchmarks/records/{other.pk}.csv")["Content-Disposition"]
    both = client.get(f"/benchmarks/records/runs.jsonl?run={run.pk}&run={other.pk}").getvalue()
    assert len([line for line in lines_of(both) if line["kind"] == "run"]) == 2
    assert client.get(f"{API}?run={run.pk}").getvalue() == data
    table = client.get("/benchmarks/records/runs.csv").getvalue().decode()
    assert len(table.splitlines()) == 3
    samples = client.get(f"/benchmarks/records/runs.csv?as=samples&run={run.pk}").getvalue().decode()
    assert samples.splitlines()[0].startswith("run,workload,provenance,series,unit,source,interval,at,value")


def test_the_schema_is_of_what_is_exported(client: Client, member: User) -> None:
    published = client.get(f"{API}schema/").json()
    assert published == json.loads(json.dumps(record_schema()))
    lines = lines_of(exported(member, sampled_run(member.tenant)))
    for line in lines:
        jsonschema.validate(line, published)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**lines[0], "surprise": 1}, published)


def test_a_viewer_sees_and_exports_but_does_not_import(viewer: User) -> None:
    run = sampled_run(viewer.tenant)
    client = Client()
    client.force_login(viewer)
    assert client.get(PAGE).status_code == 200
    assert b"<textarea" not in client.get(PAGE).content
    assert client.post(PAGE, {"text": P2P}).status_code == 403
    assert client.post(API, P2P.encode(), content_type="text/plain").status_code == 403
    assert client.get(f"/benchmarks/records/{run.pk}.jsonl").status_code == 200


def test_the_command_exports_and_imports(tmp_path: Any, member: User, capsys: pytest.CaptureFixture[str]) -> None:
    run = sampled_run(member.tenant)
    out, wrong = tmp_path / "runs.jsonl", tmp_path / "wrong.jsonl"
    call_command("records", "export", "--as", "bob", "--run", str(run.pk), "--output", str(out))
    lines = lines_of(out.read_bytes())
    run.delete()
    call_command("records", "import", str(out), "--as", "bob", "--dry-run")
    assert not Run.objects.exists()
    call_command("records", "import", str(out), "--as", "bob")
    assert Run.objects.get().provenance == "imported"
    wrong.write_bytes(written(lines[:-1]))
    with pytest.raises(SystemExit) as stopped:
        call_command("records", "import", str(wrong), "--as", "bob")
    assert stopped.value.code == 3
    assert "cut off" in capsys.readouterr().err
    User.objects.create_user("eve", role=Role.VIEWER, tenant=member.tenant)
    with pytest.raises(SystemExit) as stopped:
        call_command("records", "import", str(out), "--as", "eve")
    assert stopped.value.code == 5
