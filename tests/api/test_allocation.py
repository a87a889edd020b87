"""Allocation files by the API."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from asgiref.testing import ApplicationCommunicator
from django.urls import reverse
from jsonschema import Draft202012Validator

from accounts.audit.models import AuditEntry
from accounts.models import Tenant, User
from fabric.allocation.reader import MAX_FILE_BYTES
from fabric.operations.models import Plan
from falconweb.asgi import application
from tests.access.lab import Lab

pytestmark = pytest.mark.django_db
JSON, YAML = "application/json", "application/yaml"


def address(**query: Any) -> str:
    words = "&".join(f"{name}={value}" for name, value in query.items())
    return f"{reverse('api:allocation')}?{words}"


def made_of_files() -> Any:
    """Return the plans that were made of files: the lab has others."""
    return Plan.objects.filter(origin="file")


def detached(lab: Lab, who: str = "owner") -> str:
    """Return the file of what somebody sees, with every device attached to no host."""
    plain = lab.clients[who].get(address()).json()
    for drawer in plain["chassis"][0]["drawers"]:
        for slot in drawer["slots"]:
            slot["attached_to"] = None
    return json.dumps(plain)


def test_what_is_exported_is_as_the_published_schema_says(lab: Lab) -> None:
    schema = lab.clients["member"].get(reverse("api:allocation_schema")).json()
    validator = Draft202012Validator(schema)
    for who in ("administrator", "owner", "member", "stranger"):
        for format_, read in (("json", json.loads), ("yaml", yaml.safe_load)):
            answer = lab.clients[who].get(address(format=format_))
            assert answer["Content-Type"] == f"application/{format_}; charset=utf-8"
            validator.validate(read(answer.content))
    assert lab.clients["stranger"].get(address()).json()["chassis"] == []
    answer = lab.clients["owner"].get(address(), headers={"accept": YAML})
    assert answer["Content-Type"].startswith(YAML)


def test_scopes_that_are_not_the_persons_are_not_found(lab: Lab) -> None:
    chassis = lab.device.chassis_id
    one, two = (Tenant.objects.get(name=name).pk for name in ("One", "Two"))
    for who, query, status in (
        ("owner", {"chassis_id": chassis}, 200), ("owner", {"tenant_id": one}, 200), ("owner", {"tenant_id": two}, 404),
        ("stranger", {"chassis_id": chassis}, 404), ("administrator", {"tenant_id": two}, 200),
        ("administrator", {"tenant_id": 10**6}, 404), ("owner", {"chassis_id": "x"}, 400),
        ("owner", {"chassis_id": chassis, "tenant_id": one}, 400), ("owner", {"format": "xml"}, 400),
    ):  # fmt: skip
        answer = lab.clients[who].get(address(**query))
        assert (answer.status_code, who, query) == (status, who, query)
        assert status == 200 or answer["Content-Type"] == "application/problem+json"


def test_an_import_makes_a_draft_and_a_dry_run_none(lab: Lab) -> None:
    owner, text = lab.clients["owner"], detached(lab)
    report = owner.post(address(dry_run="true"), text, content_type=JSON)
    assert (report.status_code, report.json()["plan_id"], made_of_files().count()) == (200, None, 0)
    assert (report.json()["changes"], report.json()["does_not_fit"]) == (1, 0)
    changed = [one for one in report.json()["entries"] if one["change"]]
    assert changed[0]["path"] == "chassis[0].drawers[0].slots[0]"
    made = owner.post(address(), text, content_type=JSON)
    plan = made_of_files().get()
    assert (made.status_code, made.json()["plan_id"]) == (201, str(plan.pk))
    assert made["Location"].endswith(reverse("api:plan", args=[plan.pk]))
    assert (plan.state, plan.origin, plan.requested_by) == ("draft", "file", User.objects.get(username="owner"))
    same = owner.post(address(), owner.get(address(format="yaml")).content, content_type=YAML)
    assert (same.status_code, same.json()["nothing_to_change"], same.json()["plan_id"]) == (200, True, None)
    old = owner.post(address(), yaml.safe_dump(json.loads(text)), content_type="application/x-yaml; charset=utf-8")
    assert old.status_code == 201


def test_a_key_answers_the_same_draft(lab: Lab) -> None:
    owner, text = lab.clients["owner"], detached(lab)
    made = [
        owner.post(address(), text, content_type=JSON, headers={"idempotency-key": "k"}).json()["plan_id"]
        for _ in range(2)
    ]
    assert made == [str(made_of_files().get().pk)] * 2


def test_the_audit_log_tells_a_look_at_a_file_from_a_plan(lab: Lab) -> None:
    owner, text = lab.clients["owner"], detached(lab)

    def kept(answer: Any) -> list[tuple[str, str]]:
        entries = AuditEntry.objects.filter(request_id=answer["X-Request-ID"])
        return list(entries.values_list("action", "outcome"))

    assert kept(owner.post(address(dry_run=1), text, content_type=JSON)) == [("allocation.read", "done")]
    assert kept(owner.post(address(), "x", content_type=JSON)) == [("allocation.read", "refused")]
    assert kept(owner.post(address(), text, content_type=JSON)) == [("plan.create", "done")]


def test_problems_have_their_places_and_nothing_is_made(lab: Lab) -> None:
    owner = lab.clients["owner"]
    for body, kind, path, line, words in (
        ('{"format": "falconweb-allocation",\n "version": 2}', JSON, "version", 2, "version 1"),
        ("format: x", JSON, "", 1, "no meaning in JSON"),
        ("", JSON, "", 1, "empty"),
        ("a: [", YAML, "", 1, "not valid YAML"),
        (detached(lab).replace('"slot": 1', '"slot": 7'), JSON, "chassis[0].drawers[0].slots[0]", 1, "no such slot"),
        (detached(lab).replace('"falcon"', '"elsewhere"', 1), JSON, "chassis[0]", 1, "no such chassis"),
        (detached(lab, "administrator"), JSON, "chassis[0].drawers[0].slots[1]", 1, "or you may not see it"),
    ):
        answer = owner.post(address(), body, content_type=kind)
        assert (answer.status_code, answer["Content-Type"]) == (400, "application/problem+json"), body
        found = answer.json()["problems"]
        assert [one for one in found if (one["path"], one["line"]) == (path, line) and words in one["sentence"]], found
        assert not [word for word in ("SN-OTHER", "GPU other", "node-other") if word in answer.content.decode()]
    assert made_of_files().count() == 0


def test_what_does_not_fit_is_left_out_only_when_told_so(lab: Lab) -> None:
    owner, text = lab.clients["owner"], detached(lab, "administrator")
    assert owner.post(address(), text, content_type=JSON).status_code == 400
    made = owner.post(address(partial="true"), text, content_type=JSON)
    assert made.status_code == 201
    assert "that do not fit" in made_of_files().get().title
    assert made_of_files().get().wanted["attachments"] == {str(lab.device.pk): None}


@pytest.mark.parametrize(
    ("query", "status"),
    [({"by": "magic"}, 400), ({"partial": "perhaps"}, 400), ({"dry_run": "2"}, 400), ({"chassis_id": str(10**6)}, 404),
     ({"chassis_id": "-1"}, 400), ({"by": "kind", "chassis_id": ""}, 201)],
)  # fmt: skip
def test_odd_choices_are_refused(lab: Lab, query: dict[str, str], status: int) -> None:
    assert lab.clients["owner"].post(address(**query), detached(lab), content_type=JSON).status_code == status


@pytest.mark.parametrize("kind", ["text/plain", "multipart/form-data; boundary=x", "application/xml", ""])
def test_other_kinds_of_bodies_are_not_taken(lab: Lab, kind: str) -> None:
    answer = lab.clients["owner"].post(address(), "x", content_type=kind)
    assert (answer.status_code, answer["Content-Type"]) == (415, "application/problem+json")


@pytest.mark.parametrize(
    "body",
    ["[" * 1_000_000, '{"a":' * 200_000, "9" * 1_000_000, '{"version": 1e999}', '"\\ud800"', '"\\u0000"', "\x00", "NaN",
     "a: &a [*a]\n", "a: &a [" + "*a," * 100_000 + "]", "? " * 200_000, "!!python/object/apply:os.system [ls]",
     '{"format": "falconweb-allocation", "version": 1, "chassis": [{"name": "\\u202e", "uuid": ' + "1" * 400 + "}]}",
     '{"format": "falconweb-allocation", "version": 1, "chassis": [{"name": "x", "drawers": [{"number": 1e30}]}]}'],
)  # fmt: skip
def test_no_body_breaks_it(lab: Lab, body: str) -> None:
    for kind in (JSON, YAML):
        answer = lab.clients["owner"].post(address(), body, content_type=kind)
        assert answer.status_code == 400, (kind, answer.content)
        assert len(answer.content) < 50_000


def test_a_file_is_taken_up_to_its_limit(lab: Lab) -> None:
    text = detached(lab)
    whole = text + " " * (MAX_FILE_BYTES - len(text))
    owner = lab.clients["owner"]
    assert owner.post(address(dry_run=1), whole, content_type=JSON).status_code == 200
    answer = owner.post(address(dry_run=1), whole + " ", content_type=JSON)
    assert answer.status_code == 400
    assert "larger than 5 MiB" in answer.json()["detail"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("path", ["/api/v1/allocation/", "/allocation/"])
async def test_fifty_megabytes_are_refused_before_anything_reads_them(path: str) -> None:
    async def post(size: int, *chunks: bytes) -> int:
        headers = [(b"host", b"localhost"), (b"content-type", JSON.encode()), (b"content-length", str(size).encode())]
        scope = {
            "type": "http", "http_version": "1.1", "method": "POST", "scheme": "http", "path": path,
            "raw_path": path.encode(), "query_string": b"", "headers": headers, "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }  # fmt: skip
        wire: Any = ApplicationCommunicator(application, scope)  # type: ignore[no-untyped-call]
        for chunk in chunks:
            await wire.send_input({"type": "http.request", "body": chunk, "more_body": chunk is not chunks[-1]})
        return int((await wire.receive_output(timeout=60))["status"])

    assert await post(50 * 2**20) == 413
    # One that lies about its length.
    assert await post(5, *(bytes([at]) * 2**20 for at in range(50))) == 413
    # A stranger's body of that size is not read either.
    assert await post(4 * 2**20, b"a" * 2**22) == 413
