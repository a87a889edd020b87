"""The pool of a person, pages, API and command: on chassis of a database, with the rights of who asks."""

from __future__ import annotations

import csv
import io
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.models import Role, Tenant, User
from benchmarks.recommend.chart import CHART_WIDTH, MAX_TICKS, throughput_chart
from benchmarks.recommend.pool import PoolError, read_pool
from benchmarks.recommend.selectors import recommendation_pool
from benchmarks.runs.models import Chunk, Hold, Run, Series
from fabric.agents.models import HostAgent
from fabric.bmc.types import DrawerMode
from fabric.inventory.models import Chassis, Device, Drawer, Host, HostPort, Port, Slot
from fabric.operations.models import Operation, Plan
from hostwire.protocol import HostReport, TrainerCapabilities
from hostwire.training import LATER_FIELDS
from tests.benchmarks.recommend.pools import drawer
from tests.pages import page_text

pytestmark = pytest.mark.django_db
QUESTION = {"workload": "bert_large", "preset": "paper", "samples": "177000"}


@pytest.fixture
def chassis() -> Chassis:
    """A drawer of four GPUs and a drive with two host ports, one GPU attached; two hosts, one with GPUs of its own."""
    hosts = [
        Host.objects.create(name="node-a", identity="a", local_gpu_count=2),
        Host.objects.create(name="node-b", identity="b"),
    ]
    made = Chassis.objects.create(
        name="falcon", url="https://127.0.0.1:1", dialect="zone_patch", manufacturer="H3 Platform", model="Falcon 4016"
    )
    row = Drawer.objects.create(chassis=made, uri="/d1", name="Drawer 1", number=1, mode="Advanced")
    ports = [
        HostPort.objects.create(
            chassis=made, drawer=row, uri=f"/z{number}", label=f"H{number}", number=number, host=host,
            port=Port.objects.create(chassis=made, uri=f"/p{number}", name=f"H{number}", width=16,
                                     active_width=16, speed_gbps=256.0),
        )
        for number, host in enumerate(hosts, 1)
    ]  # fmt: skip
    for number in range(1, 6):
        port = Port.objects.create(
            chassis=made, uri=f"/s{number}/p", name=f"slot {number}", width=16, active_width=16, speed_gbps=128.0
        )
        slot = Slot.objects.create(
            chassis=made, drawer=row, uri=f"/s{number}", name=f"Slot {number}", number=number, port=port
        )
        Device.objects.create(
            chassis=made, uri=f"/g{number}", name=f"GPU {number}", endpoint_uri=f"/g{number}/e", slot=slot,
            kind="gpu" if number < 5 else "nvme", model="Tesla V100-PCIE-16GB" if number < 5 else "SSDPEDKX040T7",
            memory_bytes=16 * 2**30 if number < 5 else None, host_port=ports[0] if number == 1 else None,
        )  # fmt: skip
    return made


@pytest.fixture
def boss() -> User:
    return User.objects.create_superuser("boss")


@pytest.fixture
def owner(chassis: Chassis) -> User:
    """Somebody whose tenant holds the first two GPUs and the first host port."""
    tenant = Tenant.objects.create(name="One")
    Device.objects.filter(name__in=["GPU 1", "GPU 2"]).update(tenant=tenant)
    HostPort.objects.filter(label="H1").update(tenant=tenant)
    return User.objects.create_user("owner", tenant=tenant, role=Role.USER)


def browser(person: User) -> Client:
    client = Client()
    client.force_login(person)
    return client


def ask(person: User, **given: Any) -> Any:
    return browser(person).post(
        reverse("api:recommendations"), json.dumps({"workload": "bert_large", **given}), content_type="application/json"
    )


def test_the_pool_is_what_is_free_and_theirs(chassis: Chassis, boss: User, owner: User) -> None:
    theirs, others = recommendation_pool(owner), recommendation_pool(boss)
    assert {one.name for one in theirs.devices.values()} == {"falcon/Slot 1", "falcon/Slot 2"}
    assert {one.name for one in theirs.hosts.values()} == {"node-a"}
    assert {one.name for one in others.devices.values()} == {"falcon/Slot 3", "falcon/Slot 4", "falcon/Slot 5"}
    assert len(others.drawers[0].devices) == 5
    assert others.uplinks.keys() == {HostPort.objects.get(label="H2").pk}
    (kind,) = {one.kind for one in theirs.devices.values()}
    assert (kind.model, kind.link.lanes, kind.link.generation) == ("V100-PCIE-16GB", 16, 3)
    (uplink,) = theirs.uplinks.values()
    assert uplink.generation == 4
    stranger = User.objects.create_user("stranger", tenant=Tenant.objects.create(name="Two"), role=Role.USER)
    assert not recommendation_pool(stranger).hosts


def test_what_a_run_is_at_is_not_free(chassis: Chassis, boss: User) -> None:
    before = recommendation_pool(boss)
    run = Run.objects.create(title="a run", workload="resnet50", provenance="simulated", requested_by_name="boss")
    device = Device.objects.get(name="GPU 3")
    Hold.objects.create(run=run, key=f"device/{device.pk}")
    Hold.objects.create(run=run, key=f"host/{Host.objects.get(name='node-a').pk}/gpu/0")
    after = recommendation_pool(boss)
    assert set(before.devices) - set(after.devices) == {device.pk}
    assert after.gpus == before.gpus - 2
    Device.objects.filter(name="GPU 4").update(health="Critical")
    assert len(recommendation_pool(boss).devices) == len(after.devices) - 1
    # A BMC that does not answer attaches nothing, and takes nothing away; what its host has of its own is there.
    for state in ({"last_error": "It does not answer."}, {"last_error": "", "enabled": False}):
        Chassis.objects.update(**state)
        assert not recommendation_pool(boss).devices
        assert recommendation_pool(boss).gpus == sum(host.local_gpus for host in after.hosts.values())


def test_the_history_of_the_site_says_how_long_composing_takes(chassis: Chassis, boss: User) -> None:
    """Operations of one plan and drawer follow each other; what failed says nothing."""
    row, now = Drawer.objects.get(), timezone.now()
    plan = Plan.objects.create(title="four", requested_by_name="boss", state="done")

    def operation(place: int, begin: float, end: float, **values: Any) -> None:
        Operation.objects.create(
            **{"kind": "attach", "state": "done", "plan": plan, "chassis": chassis, "drawer": row, "position": place,
               "requested_by_name": "boss", "started_at": now + timedelta(seconds=begin),
               "finished_at": now + timedelta(seconds=end), **values}
        )  # fmt: skip

    assert recommendation_pool(boss).times.step("attach", chassis.pk, 4).count == 0
    for number in range(4):
        operation(number, 8.0 * number + 1.0, 8.0 * number + 8.0)  # a second apart
    operation(9, 100.0, 900.0, state="failed")
    operation(0, 1000.0, 1030.0, plan=None)
    times = recommendation_pool(boss).times
    together, alone = times.step("attach", chassis.pk, 4), times.step("attach", chassis.pk, 1)
    assert together.seconds == pytest.approx(8.0)
    assert together.count == 4
    assert alone.count == 5  # a single one is too few
    said = ask(boss, limits={"gpus": "chassis", "least_devices": 3}).json()["candidates"][0]["reasons"]
    assert any("Attaching a device takes 8 s here" in one for one in said)
    assert any("A start takes 20 s: assumed" in one for one in said)
    for seconds in (31.0, 33.0, 29.0):
        run = Run.objects.create(
            title="a run", workload="bert_large", provenance="measured", state="completed", started_at=now
        )
        series = Series.objects.create(run=run, key="phase/warmup")
        at = np.array([now.timestamp() + seconds]).tobytes()
        Chunk.objects.create(series=series, first=0, at=at, values=at)
    assert recommendation_pool(boss).times.start("bert_large").seconds == pytest.approx(31.0)


def test_a_slot_bears_its_share_of_the_chassis(chassis: Chassis, boss: User) -> None:
    answer = ask(boss, limits={"gpus": "chassis", "least_devices": 3}).json()["candidates"][0]
    share = 300 / 8 * answer["gpus"]  # a drawer of eight slots, and no reading
    assert f"{answer['gpus']} slots in the chassis’ own power, {share:.0f} W" in " ".join(answer["reasons"])
    hours = answer["job_hours"]["median"]
    assert answer["energy_parts"]["chassis_kwh"] == pytest.approx(share * hours / 1000, rel=0.02)


def test_the_pool_takes_as_many_queries_however_much_there_is(
    chassis: Chassis, boss: User, django_assert_max_num_queries: Any
) -> None:
    with django_assert_max_num_queries(25):
        recommendation_pool(boss)


def test_the_api_answers_with_candidates_that_become_a_plan(chassis: Chassis, boss: User) -> None:
    answer = ask(boss, limits={"gpus": "chassis", "least_devices": 3})
    assert answer.status_code == 200, answer.content
    found = answer.json()
    assert found["provenance"] == "predicted"
    best = found["candidates"][0]
    assert best["gpus"] >= 3
    assert best["value"]["low"] < best["value"]["median"] < best["value"]["high"]
    made = browser(boss).post(
        reverse("api:recommendation_plan"),
        json.dumps({"attachments": best["attachments"], "modes": best["modes"], "title": "As recommended"}),
        content_type="application/json",
    )
    assert made.status_code == 201, made.content
    plan = Plan.objects.get(pk=made.json()["id"])
    assert (plan.origin, plan.title, plan.state) == ("recommend", "As recommended", "draft")
    assert not [step for step in plan.preview if "objection" in step]
    assert len(plan.preview) == len(best["attachments"]) > 0


def test_the_api_refuses_nonsense_by_field(chassis: Chassis, boss: User) -> None:
    def refused(**given: Any) -> dict[str, Any]:
        answer = ask(boss, **given)
        assert answer.status_code == 400, answer.content
        errors: dict[str, Any] = answer.json()["errors"]
        return errors

    assert "objectives" in refused(objectives="time")
    assert "objective" in refused(objective="fun")
    assert "workload" in refused(workload="gpu_bandwidth")
    assert "workload" in refused(workload="nothing")
    assert any(name.startswith("spec.") for name in refused(spec={"sequence": "long"}))
    assert "spec.hosts" in refused(spec={"hosts": 2})
    assert "epochs" in refused(epochs=0)
    assert "limits.models" in refused(limits={"models": ["Voodoo 2"]})
    assert "limits.host_ids" in refused(limits={"host_ids": [4711]})
    assert "limits.least_devices" in refused(limits={"least_devices": 4, "most_devices": 2})
    assert "batches" in refused(batches=[1, 2], global_batch=8)


def test_impossible_constraints_are_an_answer_that_names_them(chassis: Chassis, boss: User) -> None:
    found = ask(boss, limits={"most_hours": 0.0001, "most_devices": 4}).json()
    assert found["impossible"]["constraints"] == ["most_seconds"]
    assert found["candidates"] == []


def test_the_page_shows_the_form_then_the_ranking_and_its_csv(chassis: Chassis, boss: User) -> None:
    client = browser(boss)
    form = page_text(client.get(reverse("recommend:recommend")))
    assert "4 GPUs" not in form
    assert 'name="workload"' in form
    page = page_text(client.get(reverse("recommend:recommend"), {**QUESTION, "objective": "energy"}))
    assert "local" in page
    assert "Best with" in page
    assert "Create plan" in page
    assert "predicted" in page
    assert "FP16, DDP, batch 6 a GPU, " in page
    # A bar for the parts of the time of each candidate, and one for those of its energy.
    for label, parts in (("Time to the answer", ("start", "train")), ("Energy", ("gpus", "host"))):
        assert page.count(f"<figcaption>{label}, ") == page.count('<li id="rank-')
        assert all(page.count(f'<rect class="{one}"') == page.count('<li id="rank-') for one in parts)
    assert '<h2 id="verdict"> Undecided </h2>' in page
    assert "Nothing is recommended yet." in page
    sure = page_text(client.get(reverse("recommend:recommend"), {**QUESTION, "gpus": "chassis"}))
    assert '<h2 id="verdict"> Recommended </h2>' in sure
    # One chart: each candidate with its interval, on one scale from 0.
    assert sure.count('<circle class="middle prior"') == sure.count('<li id="rank-') > 1
    chart = throughput_chart(client.get(reverse("recommend:recommend"), QUESTION).context["answer"].lines)
    assert all(0 < bar.low < bar.middle < bar.low + bar.span <= CHART_WIDTH + 0.01 for bar in chart.bars)
    assert chart.ticks[0] == (0.0, 0.0)
    assert 2 < len(chart.ticks) <= MAX_TICKS
    assert chart.bars[0].label == "node-a: 2 local, 4 Falcon"
    sent = client.get(reverse("recommend:recommend_csv"), QUESTION)
    rows = list(csv.DictReader(io.StringIO(sent.getvalue().decode())))
    assert rows[0]["rank"] == "1"
    assert float(rows[0]["low"]) < float(rows[0]["objective"]) < float(rows[0]["high"])
    assert {row["provenance"] for row in rows} == {"predicted"}


def test_what_needs_another_mode_is_a_plan_and_no_run(chassis: Chassis, boss: User) -> None:
    """A run changes no modes: to offer it would be to offer a refusal."""
    Drawer.objects.update(mode=DrawerMode.STANDARD_TWO_HOSTS)
    Device.objects.update(host_port=None)
    host = Host.objects.get(name="node-b").pk  # below its port are the slots 5 to 8, in this mode
    given = {**QUESTION, "gpus": "chassis", "least": "4", "most": "4", "host": str(host)}
    page = browser(boss).get(reverse("recommend:recommend"), given).content.decode()
    assert "the mode of 1 drawer to change" in page
    assert "It requires a change of a drawer's mode" in page
    assert "Create plan" in page
    assert "It cannot be run: no agent" not in page


def test_who_is_refused_is_asked_the_same_again(chassis: Chassis, boss: User) -> None:
    client = browser(boss)
    page = client.get(reverse("recommend:recommend"), {**QUESTION, "gpus": "chassis", "most": "2"})
    asked = page.wsgi_request.GET.urlencode()
    assert f'name="asked" value="{asked.replace("&", "&amp;")}"' in page.content.decode()
    gone = Device.objects.get(name="GPU 1")
    wanted = json.dumps({"attachments": {gone.pk: HostPort.objects.get(label="H2").pk}})
    Device.objects.filter(pk=gone.pk).update(missing_since=timezone.now())
    answer = client.post(reverse("recommend:recommend_plan"), {"wanted": wanted, "asked": asked})
    assert answer.status_code == 302
    assert answer["Location"] == f"{reverse('recommend:recommend')}?{asked}"


def test_what_is_wrong_in_the_form_is_told_where_it_is(chassis: Chassis, boss: User) -> None:
    answer = browser(boss).get(reverse("recommend:recommend"), {**QUESTION, "most": "many", "batch": "1,x"})
    assert answer.status_code == 400
    page = page_text(answer)
    assert "At most GPUs: ‘many’ is not a whole number." in page
    assert "‘x’ is not a whole number." in page
    assert 'value="many"' in page
    none = browser(boss).get(reverse("recommend:recommend"), {"workload": "<b>"})
    assert none.status_code == 400
    assert "<b>" not in page_text(none)


def test_empty_pools_say_why(boss: User) -> None:
    page = browser(boss).get(reverse("recommend:recommend")).content.decode()
    assert "You cannot use any host" in page
    Host.objects.create(name="node-a", identity="a")
    assert "No GPU is available" in browser(boss).get(reverse("recommend:recommend")).content.decode()


def test_a_viewer_looks_but_makes_neither_plan_nor_run(chassis: Chassis, owner: User) -> None:
    viewer = User.objects.create_user("viewer", tenant=owner.tenant, role=Role.VIEWER)
    client = browser(viewer)
    page = client.get(reverse("recommend:recommend"), QUESTION).content.decode()
    assert "You have read-only access" in page
    assert "Create plan" not in page
    device, port = Device.objects.get(name="GPU 2").pk, HostPort.objects.get(label="H1").pk
    wanted = json.dumps({"attachments": {device: port}})
    assert client.post(reverse("recommend:recommend_plan"), {"wanted": wanted}).status_code == 403
    best = ask(viewer).json()["candidates"][0]
    run = {"spec": json.dumps(best["spec"]), "composition": json.dumps(best["composition"]), "executor": "simulated"}
    assert client.post(reverse("recommend:recommend_run"), run).status_code == 403
    assert not Plan.objects.exists()
    assert not Run.objects.exists()


def test_what_is_sent_back_is_checked_as_if_it_were_new(chassis: Chassis, boss: User, owner: User) -> None:
    """A form can be forged: devices of others, cables, and what is no JSON are refused."""
    client = browser(owner)
    others = Device.objects.get(name="GPU 3").pk
    port = HostPort.objects.get(label="H1").pk

    def sent(wanted: str) -> int:
        return client.post(reverse("recommend:recommend_plan"), {"wanted": wanted}).status_code

    assert sent(json.dumps({"attachments": {others: port}})) == 404
    assert sent(json.dumps({"cables": {port: None}})) == 400
    assert sent("{") == 400
    assert sent("[]") == 400
    assert sent("{}") == 400
    assert sent("[" * 20_000) == 400
    client = browser(boss)
    for spec in ("{}", '{"workload": "nothing"}', "7"):
        body = {"spec": spec, "composition": json.dumps({"host": 1}), "executor": "torch"}
        assert client.post(reverse("recommend:recommend_run"), body).status_code == 400
    assert not Plan.objects.exists()


def test_what_is_recommended_is_exactly_what_is_run(chassis: Chassis, boss: User) -> None:
    host = Host.objects.get(name="node-b")
    trainer = TrainerCapabilities(executors=("simulated",), spec_fields=tuple(LATER_FIELDS))
    report = HostReport(host=host.identity, number=1, started=1.0, sent=1.0, version="1", trainer=trainer)
    HostAgent.objects.create(host=host, report=msgspec.to_builtins(report), reported_at=timezone.now())
    best = ask(
        boss,
        precisions=["fp16"],
        strategies=["sharded"],
        batches=[3],
        limits={"host_ids": [host.pk], "least_devices": 2},
        spec={"compile": True, "accumulation": 2, "loader_workers": 5, "cores": 8},
    ).json()["candidates"][0]
    assert best["variant"] == "FP16, sharded, batch 3 a GPU, 2 batches a step, compiled, 5 loaders, 8 cores"
    body = {name: best[name] for name in ("spec", "composition", "title")} | {"executor": "simulated"}
    made = browser(boss).post(
        reverse("api:recommendation_run"), json.dumps(body), content_type="application/json"
    )  # fmt: skip
    assert made.status_code == 201, made.content
    run = Run.objects.get(pk=made.json()["id"])
    assert run.spec == best["spec"]
    assert set(map(str, run.composition["devices"])) == set(map(str, best["composition"]["devices"]))
    assert run.title == best["title"]
    assert run.title.endswith(best["variant"])


def test_two_who_are_recommended_the_same_cannot_both_have_it(chassis: Chassis, boss: User) -> None:
    best = ask(boss, limits={"gpus": "chassis"}).json()["candidates"][0]
    wanted = {str(one["device_id"]): one["host_port_id"] for one in best["attachments"]}
    client = browser(boss)
    for _ in range(2):
        answer = client.post(reverse("recommend:recommend_plan"), {"wanted": json.dumps({"attachments": wanted})})
        assert answer.status_code == 302
    first, second = Plan.objects.order_by("created_at")
    apply = [
        client.post(reverse("fabric:plan_apply", args=[plan.pk]), {"on_failure": "stop"}) for plan in (first, second)
    ]
    assert [answer.status_code for answer in apply] == [302, 302]
    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.state, second.state) == ("running", "draft")


POOL = {
    "format": "falconweb-pool", "version": 1, "hosts": [{"name": "a", "local_gpus": 2}],
    "drawers": [drawer(1, ports=["a"], devices="VVVV")],
}  # fmt: skip


def command(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        call_command("recommend", *words)
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out + said.err


def test_the_command_answers_from_a_file_and_exits_by_what_came_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pool.json"
    file.write_text(json.dumps(POOL))
    code, said = command(capsys, "resnet50", "--pool", str(file), "--json")
    assert code == 0
    assert json.loads(said)["candidates"]
    code, said = command(capsys, "resnet50", "--pool", str(file), "--limit", "most_devices=1", "--precision", "fp16")
    assert code == 0
    assert "expected regret" in said
    code, said = command(capsys, "resnet50", "--pool", str(file), "--limit", "least_devices=9")
    assert code == 4
    assert "not possible" in said
    assert command(capsys, "nothing", "--pool", str(file))[0] == 3
    assert command(capsys, "resnet50", "--pool", str(tmp_path / "none.json"))[0] == 2
    assert command(capsys, "resnet50")[0] == 2
    assert command(capsys, "resnet50", "--as", "nobody")[0] == 2
    code, said = command(capsys, "--study", "--trials", "2", "--json")
    assert code == 0
    assert len(json.loads(said)["after"]) == 6


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 2}, "version"),
        ({"colour": "red"}, "colour"),
        ({"hosts": [{"name": "a"}, {"name": "a"}]}, "more than once"),
        ({"drawers": [drawer(1, ports=["b"], devices="V")]}, r"drawers\[0\].ports\[0\].host"),
        ({"drawers": [drawer(1, ports=["a"], devices="V2")]}, r"drawers\[0\].devices\[0\].attached"),
        ({"drawers": [{**drawer(1, ports=["a"], devices="V"), "mode": "Odd"}]}, r"drawers\[0\].mode"),
    ],
)
def test_a_pool_file_that_is_wrong_names_the_field(change: dict[str, Any], words: str) -> None:
    with pytest.raises(PoolError, match=words):
        read_pool(json.dumps({**POOL, **change}))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, "\ud800"])
def test_what_is_no_pool_file_is_refused(text: str) -> None:
    with pytest.raises(PoolError):
        read_pool(text.encode("utf-8", "surrogatepass"))
