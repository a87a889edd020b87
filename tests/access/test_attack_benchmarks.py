"""Attacks on runs, sweeps, figures and records: other tenants, commands, hostile records and hosts."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, cast

import msgspec
import pytest
from django.db import connection, connections
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from accounts.models import Tenant, User
from benchmarks.runs.models import Hold, Run
from benchmarks.runs.recording import MAX_SERIES, run_update_store
from benchmarks.runs.requests import RunRequest
from benchmarks.runs.results import summarise, summary_of
from benchmarks.runs.rules import Composition
from benchmarks.runs.scheduler import run_advance, runs_schedule
from benchmarks.runs.services import run_cancel, run_create, run_delete, run_retry
from benchmarks.sweeps.models import Point, Sweep
from benchmarks.sweeps.scheduler import sweep_advance
from benchmarks.workloads.catalogue import spec_of
from core.errors import FalconWebError
from fabric.agents.models import HostAgent
from fabric.leases.grants import device_grant, host_port_grant
from hostwire.protocol import HostReport, TrainerCapabilities
from hostwire.training import LATER_FIELDS, RunReading, RunResult, RunUpdate, Spec, StepsCompleted
from tests.access.lab import Lab, lab, made_lab
from tests.benchmarks.records.making import SPEC, TOPOLOGY, exported, lines_of, sampled_run, written
from tests.turns import in_turn

__all__ = ["lab", "made_lab"]
pytestmark = pytest.mark.django_db
JSON = "application/json"
FILE = "/benchmarks/runs/new/file/"
PLACE = '"composition": {"host_id": 1, "cpu": true}'
COMMAND = {"workload": "command", "executor": "torch", "spec": {"command": ["id"]}}


def person(name: str) -> User:
    return User.objects.select_related("tenant").get(username=name)


def reporting(lab: Lab, **trainer: Any) -> None:
    """Let the agent of the owner's host say what it can run."""
    host = lab.host_port.host
    assert host is not None
    report = HostReport(
        host=host.identity, number=1, started=1.0, sent=1.0, version="1",
        trainer=TrainerCapabilities(spec_fields=tuple(LATER_FIELDS), **trainer),
    )  # fmt: skip
    HostAgent.objects.filter(host=host).update(
        report=msgspec.to_builtins(report), reported_at=timezone.now() + timedelta(hours=1)
    )


def queued(lab: Lab, **more: Any) -> Run:
    """Let the owner ask for a run on the CPU of their host."""
    assert lab.host_port.host_id is not None
    wanted = RunRequest(
        spec=spec_of("mnist_cnn", "tiny", {}), executor="simulated", title="secret-run",
        composition=Composition(host=lab.host_port.host_id, cpu=True), **more,
    )  # fmt: skip
    run = run_create(person=person("owner"), request=wanted)
    Run.objects.exclude(pk=run.pk).delete()
    return run


def gone_on(run: Run) -> Run:
    """Let a worker take a run as far as it goes."""
    assert str(run.pk) in runs_schedule()
    run_advance(str(run.pk), worker="tests")
    return Run.objects.get(pk=run.pk)


@pytest.mark.parametrize("how", ["port", "left", "inactive", "viewer"])
def test_what_was_taken_from_somebody_while_their_run_waited_is_not_run(lab: Lab, how: str) -> None:
    run, owner = queued(lab), person("owner")
    if how == "port":
        host_port_grant(
            person=person("administrator"), host_port=lab.host_port, tenant=Tenant.objects.get(name="Three"), take=True
        )
    else:
        changes: dict[str, dict[str, Any]] = {
            "left": {"tenant": Tenant.objects.get(name="Three")},
            "inactive": {"is_active": False},
            "viewer": {"role": "viewer"},
        }
        User.objects.filter(pk=owner.pk).update(**changes[how])
    run = gone_on(run)
    assert (run.state, run.trouble) == ("failed", "refused"), run.sentence
    assert not Hold.objects.exists()


def test_it_is_asked_again_whose_all_is_before_a_host_that_was_away_begins(lab: Lab) -> None:
    run = queued(lab)
    assert str(run.pk) in runs_schedule()
    Run.objects.filter(pk=run.pk).update(state="starting", state_since=timezone.now())
    host_port_grant(person=person("administrator"), host_port=lab.host_port, tenant=None, take=True)
    run_advance(str(run.pk), worker="tests")
    run.refresh_from_db()
    assert (run.state, run.trouble, run.started_at) == ("failed", "refused", None)


def test_who_takes_over_a_device_learns_nothing_of_the_run_that_has_it(lab: Lab) -> None:
    run = queued(lab)
    Hold.objects.create(key=f"device/{lab.device.pk}", run=run)
    device_grant(person=person("administrator"), device=lab.device, tenant=Tenant.objects.get(name="Three"), take=True)
    client = lab.clients["stranger"]
    body = {"attachments": {str(lab.device.pk): None}, "wanted": {}}
    for answer in (
        client.get("/benchmarks/runs/new/"), client.get("/benchmarks/recommend/?workload=resnet50"),
        client.get(reverse("fabric:device", args=[lab.device.pk])), client.get("/benchmarks/sweeps/new/"),
        client.post("/api/v1/plans/", json.dumps(body), content_type=JSON),
    ):  # fmt: skip
        assert answer.status_code < 500
        assert "secret-run" not in answer.content.decode()


def test_a_command_runs_only_where_the_tenant_has_a_host_with_an_account(lab: Lab) -> None:
    host = lab.host_port.host
    assert host is not None
    body = {**COMMAND, "composition": {"host_id": host.pk, "cpu": True}}
    body["spec"] = {"command": ["id"], "backend": "cpu"}

    def run_response(name: str) -> Any:
        return lab.clients[name].post("/api/v1/benchmarks/runs/", json.dumps(body), content_type=JSON)

    reporting(lab, executors=("torch", "simulated"), backends=("cpu",))
    assert "no account" in run_response("owner").json()["errors"]["host"]
    reporting(lab, executors=("torch", "simulated"), backends=("cpu",), account="falconweb-runs")
    assert [run_response(name).status_code for name in ("owner", "member", "stranger")] == [202, 403, 404]
    run = Run.objects.get(workload="command")
    Run.objects.filter(pk=run.pk).update(state="completed")
    run.refresh_from_db()
    grid = {"workload": ["command"], "command": ["id"], "host": [host.pk], "placement": ["cpu"], "executor": "torch"}
    answer = lab.clients["stranger"].post("/api/v1/benchmarks/sweeps/", json.dumps({"grid": grid}), content_type=JSON)
    assert answer.status_code == 400
    assert "node-owned" not in answer.content.decode()
    # Nor does a record bring one in.
    owner = person("owner")
    text = exported(owner, run)
    run.delete()
    imported = lab.clients["owner"].post("/api/v1/benchmarks/records/", text, content_type="application/jsonl")
    pk = imported.json()["records"][0]["run_id"]
    assert Run.objects.get(pk=pk).executor == ""
    assert lab.clients["owner"].post(f"/api/v1/benchmarks/runs/{pk}/retry/", "{}", content_type=JSON).status_code == 409
    for page in ("/benchmarks/runs/new/", FILE):
        assert lab.clients["owner"].get(page, {"again": pk}).status_code == 409


def test_nobody_resumes_a_sweep_in_the_name_of_who_left(lab: Lab) -> None:
    sweep = Sweep.objects.get(pk=str(lab.arguments["resume"][0]))
    owner = person("owner")
    Sweep.objects.filter(pk=sweep.pk).update(state="running", requested_by=owner)
    User.objects.filter(pk=owner.pk).update(tenant=Tenant.objects.get(name="Three"))
    before = Run.objects.count()
    sweep_advance(str(sweep.pk), worker="tests")
    sweep.refresh_from_db()
    assert (sweep.state, Run.objects.count()) == ("paused", before)
    assert "left the tenant" in sweep.sentence


def test_what_an_administrator_runs_again_is_theirs_alone(lab: Lab) -> None:
    run = queued(lab)
    sweep = Sweep.objects.get(pk=str(lab.arguments["sweep"][0]))
    Run.objects.filter(pk=run.pk).update(state="completed", sweep=sweep, keep_composed=True)
    run.refresh_from_db()
    again = run_retry(person=person("administrator"), run=run)
    assert (again.tenant, again.sweep, again.keep_composed) == (None, None, False)
    client = lab.clients["owner"]
    page = client.get(reverse("runs:run", args=[run.pk])).content.decode()
    assert str(again.pk) not in page
    assert str(again.pk) not in client.get(reverse("sweeps:sweep", args=[sweep.pk])).content.decode()
    assert str(run.pk) in lab.clients["administrator"].get(reverse("runs:run", args=[again.pk])).content.decode()


@pytest.mark.parametrize(
    "text",
    [
        '{"limit_seconds": %s}' % ("1" * 5000),
        '{"workload": "resnet50", "executor": "torch", "composition": {"host_id": 1, "devices": [{"device_id": %s, '
        '"host_port_id": -1}]}}' % ("1" + "0" * 30),
        '{"workload": "resnet50", "executor": "torch", "spec": {"\\ud800": 1}, ' + PLACE + "}",
        '{"workload": "resnet50", "executor": "torch", "spec": {"batch": NaN, "seed": 1e400}, ' + PLACE + "}",
        '{"workload": "resnet50", "executor": "torch", "spec": {"batch": true}, ' + PLACE + "}",
        '{"workload": "command", "executor": "torch", "spec": {"command": ["a\\u0000"]}, ' + PLACE + "}",
        "[" * 100_000, "null", '"x"', "NaN", "\ufeff{}",
    ],
)  # fmt: skip
def test_nothing_in_a_file_stops_the_page(lab: Lab, text: str) -> None:
    assert lab.clients["owner"].post(FILE, {"text": text}).status_code == 400


def test_a_text_that_no_database_takes_finds_nothing(lab: Lab) -> None:
    client = lab.clients["owner"]
    for address in (
        "/benchmarks/runs/", "/benchmarks/runs/csv/", "/api/v1/benchmarks/runs/", "/benchmarks/records/runs.csv",
        "/api/v1/benchmarks/records/", "/benchmarks/figures/", "/api/v1/benchmarks/figures/",
    ):  # fmt: skip
        assert client.get(address, {"workload": "a\0b"}).status_code == 400, address


def kept(run: Run, *events: Any) -> Run:
    """Let a host tell of a run, and make its figures."""
    news = msgspec.json.decode(msgspec.json.encode(RunUpdate(run="x", state="running", events=events)), type=RunUpdate)
    changes = run_update_store(run, news, run.all_nodes()[0])
    Run.objects.filter(pk=run.pk).update(**changes)
    run.refresh_from_db()
    Run.objects.filter(pk=run.pk).update(results=msgspec.to_builtins(summarise(run)))
    run.refresh_from_db()
    return run


def test_a_hostile_host_fills_no_table_and_stops_no_worker(lab: Lab) -> None:
    run = Run.objects.create(
        title="Hostile", state="running", workload="resnet50", provenance="measured",
        tenant=person("owner").tenant, spec=msgspec.to_builtins(SPEC),
    )  # fmt: skip
    huge = 1.7e308
    run = kept(
        run,
        StepsCompleted(at=huge, phase="timed", first=10**9, seconds=(huge, huge, -huge)),
        StepsCompleted(at=2.0, phase="no_sync", first=0, seconds=(-huge, -huge)),
        *(RunReading(at=float(one), interval=0.0, source="x" * 1000, values={"cpu": huge}) for one in range(3)),
        RunResult(at=1.0, values={"bandwidth": ["x" * 2**20]}),
        RunResult(at=1.0, values={"latency": [1.0]}),
    )
    for number in range(3):
        names = {f"n{number}-{one}": 1.0 for one in range(2400)}
        run.next_event = 0
        run = kept(run, RunReading(at=1.0, interval=0.0, source="x", values=names))
    assert run.series.count() == MAX_SERIES
    assert set(summary_of(run).tables) == {"latency"}
    json.dumps(run.results, allow_nan=False)
    for address in ("runs:run", "api:run"):
        assert lab.clients["owner"].get(reverse(address, args=[run.pk])).status_code == 200


POISON: list[dict[str, Any]] = [
    {"topology": {**TOPOLOGY, "storage": {"model": "x", "place": "nowhere", "link": {"lanes": 0, "generation": 0}}}},
    {"topology": {**TOPOLOGY, "accelerators": [{"name": "a", "model": "x", "link": {"lanes": -1}}] * 2, "cores": -5}},
    {"spec": {"options": {"image": "x", "classes": True}}},
    {"spec": {"options": {"image": -1, "classes": 10**18}, "batch": 10**9, "accumulation": 10**9}},
    {"spec": {"workload": "bert_large", "options": {"sequence": "a", "layers": "b", "hidden": 0, "heads": False}}},
    {"spec": {"workload": "all_reduce", "options": {"least_bytes": 0}}},
    {"title": "</script><script>alert(1)</script>", "results": {"tables": {"<b>": [["<i>", None], [2]]}}},
]


@pytest.mark.parametrize(("turn", "poison"), list(enumerate(POISON)))
def test_a_record_of_what_cannot_be_breaks_no_page_and_nobodys_recommendation(
    lab: Lab, turn: int, poison: dict[str, Any]
) -> None:
    owner = person("owner")
    run = sampled_run(owner.tenant, title="Elsewhere")
    lines = lines_of(exported(owner, run))
    run.delete()
    head = lines[0]
    spec = {**head["spec"], **poison.get("spec", {})}
    made = msgspec.convert(spec, Spec)
    head |= {**poison, "spec": spec, "spec_hash": made.hash, "workload": made.workload}
    answer = lab.clients["owner"].post("/api/v1/benchmarks/records/", written(lines), content_type="application/jsonl")
    assert answer.status_code == 201, answer.content
    pk = answer.json()["records"][0]["run_id"]
    addresses = (
        f"/benchmarks/runs/{pk}/", "/benchmarks/", "/benchmarks/runs/", f"/benchmarks/figures/?run={pk}",
        f"/benchmarks/figures/relative-time/?run={pk}&with=predicted",
        f"/benchmarks/figures/gpu-to-gpu/?run={pk}&with=published", "/benchmarks/recommend/?workload=resnet50",
    )  # fmt: skip
    for place, name in enumerate(("owner", "administrator")):
        client: Client = lab.clients[name]
        for address in in_turn(addresses, turn + place, of=2):
            page = client.get(address)
            assert page.status_code == 200, address
            assert b"<script>alert" not in page.content


def test_times_beyond_the_calendar_are_told_by_their_field(lab: Lab) -> None:
    owner = person("owner")
    lines = lines_of(exported(owner, sampled_run(owner.tenant)))
    lines[0] |= {"started_at": "0001-01-01T00:00:00+14:00", "ended_at": "9999-12-31T23:59:59-12:00"}
    answer = lab.clients["owner"].post("/api/v1/benchmarks/records/", written(lines), content_type="application/jsonl")
    assert [one["path"] for one in answer.json()["problems"]] == ["started_at", "ended_at"]


def test_lists_ask_as_often_however_many_there_are(lab: Lab) -> None:
    owner = person("owner")

    def more(count: int) -> None:
        for _ in range(count):
            sweep = Sweep.objects.create(
                title="S", state="completed", settled=True, requested_by=owner, tenant=owner.tenant,
                grid={"workload": ["resnet50"], "host": [1], "batch": [8, 16]},
            )  # fmt: skip
            for position in (0, 1):
                Point.objects.create(sweep=sweep, position=position, composition={"host": 1, "cpu": True})
                sampled_run(owner.tenant, sweep=sweep, position=position)

    def asked(address: str) -> int:
        with CaptureQueriesContext(connection) as found:
            answer = lab.clients["owner"].get(address)
            assert answer.status_code == 200
            if answer.streaming:
                b"".join(cast(Any, answer).streaming_content)
        return len(found)

    addresses = (
        "/benchmarks/runs/", "/benchmarks/sweeps/", "/benchmarks/", "/benchmarks/figures/step-time/",
        "/api/v1/benchmarks/runs/", "/api/v1/benchmarks/sweeps/", "/benchmarks/records/runs.csv",
        "/benchmarks/runs/csv/",
    )  # fmt: skip
    more(2)
    for address in addresses:
        asked(address)
    few = {address: asked(address) for address in addresses}
    more(5)
    assert {address: asked(address) for address in addresses} == few


@pytest.mark.django_db(transaction=True)
def test_of_many_who_do_the_same_at_once_one_does_it(lab: Lab) -> None:
    run = queued(lab)

    def at_once(act: Callable[[], object]) -> list[str]:
        def one() -> str:
            try:
                act()
            except FalconWebError as error:
                return type(error).__name__
            finally:
                connections.close_all()
            return "done"

        with ThreadPoolExecutor(6) as threads:
            return [found.result() for found in [threads.submit(one) for _ in range(6)]]

    spec = spec_of("mnist_cnn", "tiny", {})
    wanted = RunRequest(spec=spec, composition=Composition.from_json(run.composition), executor="simulated")
    assert at_once(lambda: run_create(person=person("owner"), request=wanted, idempotency_key="once")) == ["done"] * 6
    assert Run.objects.count() == 2
    at_once(runs_schedule)
    holders = Hold.objects.order_by().values("run").distinct().count()
    assert (holders, Run.objects.filter(state="composing").count()) == (1, 1)
    waiting = Run.objects.get(state="queued")
    cancelled = at_once(
        lambda: run_cancel(person=person("owner"), run=Run(pk=waiting.pk, requested_by=person("owner")))
    )
    assert sorted(cancelled) == ["Conflict"] * 5 + ["done"]
    deleted = at_once(lambda: run_delete(person=person("owner"), run=Run(pk=waiting.pk, requested_by=person("owner"))))
    assert sorted(deleted) == ["NotFound"] * 5 + ["done"]
