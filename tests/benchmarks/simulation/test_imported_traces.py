"""Traces of Chakra are imported by the page and the API, listed, played and deleted, each tenant for itself."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse

from accounts.audit.actions import Action
from accounts.audit.models import AuditEntry
from accounts.models import Role, Tenant, User
from benchmarks.simulation.chakra import is_trace
from benchmarks.traces import services
from benchmarks.traces.models import ImportedTrace
from benchmarks.traces.selectors import trace_get, trace_list, trace_play
from benchmarks.traces.services import trace_delete, trace_import
from core.errors import Conflict, Forbidden, Invalid, NotFound
from fabric.inventory.models import Host
from tests.benchmarks.runs.test_asking import client_of
from tests.benchmarks.simulation.traces import COLLECTIVE, COMPUTE, LOAD, as_json, binary, node

pytestmark = pytest.mark.django_db
IMPORT = "/benchmarks/records/import/"
JSON = b'{"id": 1, "type": "COMP_NODE", "durationMicros": 50000}'


def step() -> list[Any]:
    return [
        node(0, LOAD, 0, tensor_size=38_000_000),
        node(1, COMPUTE, 50_000, 0, is_cpu_op=False),
        node(2, COLLECTIVE, 0, 1, comm_type=0, comm_size=400_000_000),
    ]


@pytest.fixture
def stranger(db: None) -> User:
    return User.objects.create_user("mallory", role=Role.USER, tenant=Tenant.objects.create(name="Elsewhere"))


@pytest.fixture
def administrator(db: None) -> User:
    return User.objects.create_superuser("root", password="x")


def text_of(response: Any) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", response.content.decode()).split())


@pytest.mark.parametrize("written", [binary, as_json])
def test_a_person_imports_a_trace_as_a_workload_and_plays_it(member: User, written: Any) -> None:
    client = client_of(member)
    file = SimpleUploadedFile("step.et", written(*step()))
    preview = client.post(IMPORT, {"file": file})
    assert preview.status_code == 200
    assert "all_reduce" in text_of(preview)
    assert not ImportedTrace.objects.exists()
    fields = dict(re.findall(r'name="(staged|name|format)" value="([^"]+)"', preview.content.decode()))
    page = client.post(IMPORT, {**fields, "make": "1"}, follow=True)
    row = ImportedTrace.objects.get()
    assert page.redirect_chain == [(reverse("traces:trace", args=[row.pk]), 302)]
    assert (row.title, row.nodes, row.compute_seconds) == ("step.et", {"load": 1, "compute": 1, "collective": 1}, 0.05)
    assert row.collective_bytes == {"all_reduce": 4e8}
    assert "step.et" in text_of(client.get(reverse("runs:catalogue")))
    played = text_of(client.get(page.redirect_chain[0][0], {"place": "falconGPUs", "devices": "4"}))
    assert "4 GPUs, falconGPUs" in played
    found = trace_play(member, row, place="falconGPUs", devices="4").simulation
    assert found.sent == pytest.approx(2 * 3 / 4 * 4e8)
    assert found.seconds > found.computed == pytest.approx(0.05)


def test_the_api_imports_lists_plays_and_deletes(member: User) -> None:
    client, address = client_of(member), reverse("api:traces")
    made = client.generic("POST", f"{address}?title=A", binary(*step()), content_type="application/octet-stream")
    assert made.status_code == 201
    one = made.json()
    assert made.headers["Location"].endswith(reverse("api:trace", args=[one["id"]]))
    again = client.generic("POST", address, binary(*step()), content_type="application/octet-stream")
    assert (again.status_code, again.json()["id"]) == (200, one["id"])
    assert client.generic("POST", address, JSON, content_type="application/json").status_code == 201
    assert client.get(address).json()["count"] == 2
    play = reverse("api:trace_play", args=[one["id"]])
    local, falcon = (
        client.get(play, {"place": name}).json()["simulation"]["seconds"] for name in ("localGPUs", "falconGPUs")
    )
    assert local < falcon
    assert client.get(play, {"devices": "9"}).status_code == 400
    assert client.get(play, {"devices": "two"}).status_code == 400
    assert client.get(play, {"place": "nowhere"}).status_code == 404
    assert client.delete(reverse("api:trace", args=[one["id"]])).status_code == 204
    assert client.get(play).status_code == 404


def test_what_is_no_trace_is_refused_with_a_sentence_and_kept_nowhere(member: User) -> None:
    client = client_of(member)
    circle = b'{"id": 1, "type": "COMP_NODE", "ctrlDeps": [2]}{"id": 2, "type": 4, "ctrlDeps": [1]}'
    for content, sentence in (
        (circle, "circle"),
        (binary(*step())[:-3], "cut off"),
        (b'{"id": 1, "type": "COMM_COLL_NODE", "attr": [{"name": "comm_type", "stringVal": "x"}]}', "unknown kind"),
    ):
        page = client.post(IMPORT, {"file": SimpleUploadedFile("a.et", content), "make": "1"})
        assert (page.status_code, sentence in text_of(page)) == (400, True)
        answer = client.generic("POST", reverse("api:traces"), content, content_type="application/octet-stream")
        assert (answer.status_code, sentence in answer.json()["detail"]) == (400, True)
    assert client.generic("POST", reverse("api:traces"), b"", content_type="application/json").status_code == 400
    assert not ImportedTrace.objects.exists()


def test_records_and_other_files_are_not_taken_for_traces() -> None:
    record = b'{"format": "falconweb.record/1", "kind": "run"}\n'
    packed = b"\x1f\x8b\x08\x00"
    for other in (record, b"#  size count\n", b":::MLLOG {}", b"\x00" * 40, packed, b"\x89PNG\r\n", b"", b"{"):
        assert not is_trace(other)
    assert is_trace(binary(*step()))
    assert is_trace(binary(*step(), version=""))
    assert is_trace(as_json(*step()))


def test_each_tenant_sees_and_deletes_its_own(member: User, stranger: User, viewer: User, administrator: User) -> None:
    row, _new = trace_import(person=member, content=JSON, title="Ours\x00")
    assert row.title == "Ours"
    theirs, is_new = trace_import(person=stranger, content=JSON)
    assert is_new
    assert list(trace_list(stranger)) == [theirs]
    assert "Ours" not in text_of(client_of(stranger).get(reverse("runs:catalogue")))
    with pytest.raises(NotFound):
        trace_get(stranger, row.pk)
    with pytest.raises(NotFound):
        trace_delete(person=stranger, trace=row)
    with pytest.raises(NotFound):
        trace_play(member, row, place=str(Host.objects.create(name="hidden", identity="hidden").pk))
    with pytest.raises(Forbidden):
        trace_import(person=viewer, content=JSON)
    colleague = User.objects.create_user("carol", role=Role.USER, tenant=member.tenant)
    with pytest.raises(Forbidden):
        trace_delete(person=colleague, trace=row)
    page = client_of(colleague).get(reverse("traces:trace", args=[row.pk]))
    assert "Delete it" not in text_of(page)
    assert client_of(member).post(reverse("traces:trace_delete", args=[row.pk])).status_code == 302
    trace_delete(person=administrator, trace=theirs)
    done = AuditEntry.objects.filter(outcome="done", action__in=[Action.TRACE_IMPORT, Action.TRACE_DELETE])
    assert done.count() == 4


def test_a_host_is_played_as_it_is_composed_now(member: User, administrator: User) -> None:
    row, _new = trace_import(person=administrator, content=JSON)
    host = Host.objects.create(name="node-a", identity="a")
    with pytest.raises(Invalid, match="no GPU"):
        trace_play(administrator, row, place=str(host.pk))
    host.local_gpu_count = 2
    host.save()
    found = trace_play(administrator, row, place="node-a")
    assert (found.place, found.simulation.devices) == ("node-a", 2)


def test_a_tenant_keeps_a_bounded_number(member: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "MAX_TRACES", 1)
    row, _new = trace_import(person=member, content=JSON)
    with pytest.raises(Conflict):
        trace_import(person=member, content=JSON + b"\n")
    assert trace_import(person=member, content=JSON) == (row, False)
