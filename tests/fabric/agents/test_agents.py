"""Attaching and detaching with an agent on the hosts: real agents over the trees of simulated hosts."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
import redis
from django.db import connection
from django.test import Client
from django.utils import timezone

from accounts.audit.models import AuditEntry
from accounts.models import Tenant, User
from core.errors import Forbidden, InUse, Invalid
from fabric.agents import selectors, services
from fabric.agents.models import HostAgent
from fabric.agents.selectors import devices_on_hosts, holders_label
from fabric.agents.services import agent_enrol, agent_register, agent_remove, report_store
from fabric.execution import host_steps, link_steps
from fabric.inventory.models import Chassis, Device, Host, HostPort
from fabric.operations.models import Operation
from fabric.operations.selectors import device_readiness
from fabric.operations.services import operation_request
from fabric.plans.rules import DesiredState
from fabric.plans.services import plan_apply, plan_create
from falconweb.testing import SimulatorProcess, carry_out, device_in, host_port_of
from falconweb.testing.hosts import AgentProcess
from hostwire.protocol import CommandAnswer, HostReport, ReportRequest
from hostwire.signing import new_key, queue_name, seal_report
from tests.fabric import outside
from tests.fabric.disorder import at_step
from tests.fabric.hosts import MARIA, VICTOR, TellingHost
from tests.pages import page_text
from tests.waiting import wait_for

pytestmark = pytest.mark.process

Start = Callable[..., AgentProcess]


@pytest.fixture
def enrolled(falcon_chassis: Chassis, host_agent: Start) -> Iterator[Callable[[str], AgentProcess]]:
    """A function that enrols the agent of a host and waits for its first report."""
    with ExitStack() as stack:

        def enrol(name: str) -> AgentProcess:
            host, agent = Host.objects.get(name=name), host_agent(name)
            agent_register(host=host, key=agent.key)
            stack.enter_context(agent.delivering())
            wait_for(lambda: HostAgent.objects.get(host=host).reported_at is not None)
            return agent

        yield enrol


def ladder(device: Device) -> dict[str, str]:
    row = Device.objects.select_related("host_port__host", "slot__port").get(pk=device.pk)
    return {stage.name: stage.state for stage in device_readiness(row).stages}


def step_result(operation: Operation, name: str) -> tuple[str, str]:
    return next((step["state"], step["sentence"]) for step in operation.steps if step["name"] == name)


def requested(person: User, device: Device, target: HostPort | None, **more: object) -> Operation:
    return operation_request(person=person, device=device, target=target, **more)  # type: ignore[arg-type]


def test_a_device_climbs_the_whole_ladder_and_leaves_by_it(
    falcon_chassis: Chassis,
    simulated_falcon: SimulatorProcess,
    falconweb_administrator: User,
    enrolled: Callable[[str], AgentProcess],
) -> None:
    enrolled("node-b")
    nic = device_in(falcon_chassis, drawer=1, slot=7)
    ended = carry_out(requested(falconweb_administrator, nic, host_port_of(falcon_chassis, "H2")))
    assert (ended.state, ended.error) == ("done", "")
    state, sentence = step_result(ended, "Seen by the host")
    assert (state, sentence.startswith("node-b sees it at 0000:")) == ("done", True)
    wait_for(lambda: ladder(nic)["Seen by the host"] == "done")
    assert ladder(nic)["In use"] == "waiting"
    simulated_falcon.hold("node-b", "drawer1slot7", owner="maria", command="train")
    wait_for(lambda: ladder(nic)["In use"] == "done")


def test_a_device_that_is_in_use_is_refused_with_who_uses_it(
    chassis: Chassis,
    falconweb_administrator: User,
) -> None:
    gpu = device_in(chassis, drawer=1, slot=1)
    TellingHost("node-a").tell({gpu: MARIA})
    assert ladder(gpu)["In use"] == "done"
    with pytest.raises(InUse) as refused:
        requested(falconweb_administrator, gpu, None)
    assert refused.value.sentence.endswith(f"is in use: train (process {MARIA.pid} of maria).")
    assert not Operation.objects.exists()
    with pytest.raises(InUse):
        plan_apply(
            person=falconweb_administrator,
            plan=plan_create(
                person=falconweb_administrator, desired=DesiredState(attachments={gpu.pk: None}), title="", origin="api"
            ),
        )


def test_who_takes_the_device_in_the_last_moment_stops_the_detach(
    falcon_chassis: Chassis,
    simulated_falcon: SimulatorProcess,
    falconweb_administrator: User,
    enrolled: Callable[[str], AgentProcess],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host_steps, "LEAVE_SECONDS", 0.5)
    enrolled("node-a")
    gpu = device_in(falcon_chassis, drawer=1, slot=1)
    operation = requested(falconweb_administrator, gpu, None)
    simulated_falcon.hold("node-a", "drawer1slot1", owner="maria", command="train")
    ended = carry_out(operation)
    assert ended.state == "failed"
    assert "is in use: train (process" in ended.error
    assert "drawer1slot1" in simulated_falcon.state()["zones"]["hostport1_H1"], "it stays where it was"


def test_force_wants_the_name_typed_and_is_on_record(
    falcon_chassis: Chassis,
    simulated_falcon: SimulatorProcess,
    falconweb_administrator: User,
    enrolled: Callable[[str], AgentProcess],
) -> None:
    enrolled("node-a")
    gpu = device_in(falcon_chassis, drawer=1, slot=1)
    simulated_falcon.hold("node-a", "drawer1slot1", owner="maria", command="train")
    wait_for(lambda: ladder(gpu)["In use"] == "done")
    with pytest.raises(Invalid):
        requested(falconweb_administrator, gpu, None, force=True, confirmation="yes")
    ended = carry_out(requested(falconweb_administrator, gpu, None, force=True, confirmation=gpu.name))
    assert (ended.state, ended.error) == ("done", "")
    assert "by force while in use: train" in step_result(ended, "Release on the host")[1]
    entry = AuditEntry.objects.get(action="operation.force")
    assert entry.actor_name == falconweb_administrator.username
    assert entry.before is not None
    assert "of maria" in entry.before["in_use_by"]


def test_a_mounted_drive_is_not_torn_off_even_by_force(
    falcon_chassis: Chassis,
    simulated_falcon: SimulatorProcess,
    falconweb_administrator: User,
    enrolled: Callable[[str], AgentProcess],
) -> None:
    enrolled("node-a")
    drive = device_in(falcon_chassis, drawer=2, slot=5)
    operation = requested(falconweb_administrator, drive, None, force=True, confirmation=drive.name)
    simulated_falcon.mount("node-a", "drawer2slot5", "/data")
    ended = carry_out(operation)
    assert ended.state == "failed"
    assert "mounted on /data" in ended.error
    assert "drawer2slot5" in simulated_falcon.state()["zones"]["hostport2_H4"]


def test_a_plan_takes_a_device_by_force_when_its_title_is_typed(
    chassis: Chassis,
    falconweb_administrator: User,
) -> None:
    gpu = device_in(chassis, drawer=1, slot=1)
    TellingHost("node-a").tell({gpu: MARIA})
    plan = plan_create(
        person=falconweb_administrator, desired=DesiredState(attachments={gpu.pk: None}), title="Free it", origin="api"
    )
    with pytest.raises(Invalid):
        plan_apply(person=falconweb_administrator, plan=plan, force=[gpu.pk], confirmation="free")
    plan_apply(person=falconweb_administrator, plan=plan, force=[gpu.pk], confirmation="Free it")
    assert plan.operations.get().forced


def test_a_host_that_does_not_see_the_device_is_told_as_that(
    falcon_chassis: Chassis,
    simulated_falcon: SimulatorProcess,
    falconweb_administrator: User,
    enrolled: Callable[[str], AgentProcess],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host_steps, "APPEAR_SECONDS", 1.0)
    enrolled("node-b")
    simulated_falcon.fault("host_misses_device", "drawer1slot7")
    ended = carry_out(
        requested(
            falconweb_administrator,
            device_in(falcon_chassis, drawer=1, slot=7),
            host_port_of(falcon_chassis, "H2"),
        )
    )
    assert ended.state == "failed"
    assert ended.error.startswith("Attached, with its link up, but node-b does not see it:")
    assert step_result(ended, "Read back") == ("done", "It is attached to H2.")


def test_an_agent_that_died_is_left_out_once_it_counts_as_away(
    falcon_chassis: Chassis,
    falconweb_administrator: User,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(services, "ANSWER_SECONDS", 0.3)
    monkeypatch.setattr(host_steps, "LEAVE_SECONDS", 0.0)
    monkeypatch.setattr(host_steps, "RESTORE_SECONDS", 0.0)
    TellingHost("node-a").tell()
    gpu = device_in(falcon_chassis, drawer=1, slot=1)
    ended = carry_out(requested(falconweb_administrator, gpu, None))
    assert (ended.state, ended.error) == ("failed", "The agent of node-a did not answer: nothing was detached.")
    monkeypatch.setattr(selectors, "AWAY_SECONDS", 0.0)
    ended = carry_out(requested(falconweb_administrator, gpu, None))
    assert ended.state == "done"
    assert step_result(ended, "Release on the host")[0] == "skipped"


def test_a_device_that_was_let_go_and_could_not_be_detached_is_given_back(
    falcon_chassis: Chassis,
    simulated_falcon: SimulatorProcess,
    falconweb_administrator: User,
    enrolled: Callable[[str], AgentProcess],
) -> None:
    agent = enrolled("node-a")
    gpu = device_in(falcon_chassis, drawer=1, slot=1)
    simulated_falcon.fault("server_error", path="/Zones/hostport1_H1", method="PATCH", status=400)
    ended = carry_out(requested(falconweb_administrator, gpu, None))
    assert ended.state == "failed"
    assert step_result(ended, "Release on the host")[0] == "done"
    serials = {device.serial for device in agent.report().devices}
    assert gpu.serial_number in serials


def test_reports_that_are_forged_or_old_are_not_believed(chassis: Chassis) -> None:
    host = TellingHost("node-a")
    for _ in range(2):
        host.tell()
    before = HostAgent.objects.get(host=host.host)
    assert before.number == 2
    host.number = 0
    host.tell()
    for text in ("", "1.x", 7, None, "1." + "a" * 32 + "." + "b" * 64 + ".{}", f"1.{before.digest}.{'b' * 64}.{{}}"):
        report_store(text)
    after = HostAgent.objects.get(pk=before.pk)
    assert (after.number, after.reported_at) == (before.number, before.reported_at)


@pytest.mark.django_db
@pytest.mark.parametrize("meanwhile", ["enrolled anew", "forgotten"])
def test_a_report_is_not_believed_whose_key_became_void_while_it_was_verified(meanwhile: str) -> None:
    host, key = Host.objects.create(name="node-a", identity="a"), new_key()
    agent_register(host=host, key=key)
    looks = 0

    def void(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        nonlocal looks
        looks += sql.startswith("SELECT") and 'FROM "fabric_hostagent"' in sql
        if looks == 2:  # verified by the first look, and now to be kept
            looks = 3
            if meanwhile == "forgotten":
                HostAgent.objects.all().delete()
            else:
                agent_register(host=host, key=new_key())
        return execute(sql, *rest)

    report = HostReport(host="a", number=1, started=time.time(), sent=time.time(), version="1")
    with connection.execute_wrapper(void):
        report_store(seal_report(report, key))
    assert looks >= 3
    assert not HostAgent.objects.filter(number=1).exists()
    if meanwhile == "enrolled anew":
        assert HostAgent.objects.get().reported_at is None


def test_administrators_alone_enrol_and_forget_agents(
    chassis: Chassis,
    falconweb_user: User,
    falconweb_administrator: User,
    falconweb_tenant: Tenant,
    administrator_client: Client,
) -> None:
    HostPort.objects.filter(label="H1").update(tenant=falconweb_tenant)
    host = Host.objects.get(name="node-a")
    with pytest.raises(Forbidden):
        agent_enrol(person=falconweb_user, host=host)
    answer = administrator_client.post(f"/hosts/{host.pk}/agent/")
    key = HostAgent.objects.get(host=host).key
    assert key in answer.content.decode()
    assert "no-store" in answer["Cache-Control"]
    assert key not in str(list(AuditEntry.objects.values_list("after", "before", "sentence")))
    agent_remove(person=falconweb_administrator, host=host)
    assert not HostAgent.objects.exists()


def test_a_member_sees_who_uses_its_own_device_and_nothing_of_others(
    chassis: Chassis,
    falconweb_tenant: Tenant,
    user_client: Client,
) -> None:
    own, other = device_in(chassis, drawer=1, slot=1), device_in(chassis, drawer=1, slot=2)
    Device.objects.filter(pk=own.pk).update(tenant=falconweb_tenant)
    HostPort.objects.filter(label="H1").update(tenant=falconweb_tenant)
    TellingHost("node-a").tell({own: MARIA, other: VICTOR})
    assert ladder(own)["In use"] == ladder(other)["In use"] == "done"
    page = user_client.get(f"/hosts/{Host.objects.get(name='node-a').pk}/").content.decode()
    assert "of maria" in page
    assert "victor" not in page
    Device.objects.filter(pk=own.pk).update(tenant=falconweb_tenant)
    HostPort.objects.filter(label="H1").update(tenant=None)
    page = user_client.get(f"/devices/{own.pk}/").content.decode()
    assert "maria" not in page, "the host is no longer the tenant's"


def test_a_process_has_its_start_on_the_pages_where_the_agent_tells_it(
    chassis: Chassis, falconweb_administrator: User, client: Client
) -> None:
    gpu, host = device_in(chassis, drawer=1, slot=1), TellingHost("node-a")
    client.force_login(falconweb_administrator)
    yesterday = datetime.now(UTC).replace(hour=10, minute=42) - timedelta(days=1)
    for started, label in (
        (time.time(), rf"train \(process {MARIA.pid} of maria since \d\d:\d\d UTC\)"),
        (yesterday.timestamp(), rf"since 10:42 on {yesterday:%Y-%m-%d} UTC\)"),
        (0.0, r"of maria\)"),
        (time.time() + 1e6, r"of maria\)"),
    ):
        host.tell({gpu: msgspec.structs.replace(MARIA, started=started)})
        assert re.search(label, client.get(f"/devices/{gpu.pk}/").content.decode())
        assert re.search(label, holders_label(devices_on_hosts([gpu])[gpu.pk].holders))


def test_a_command_that_is_lost_with_the_broker_is_sent_again(
    enrolled: Callable[[str], AgentProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "RESEND_SECONDS", 1.0)
    agent, host = enrolled("node-a"), Host.objects.get(name="node-a")
    agent.kill()
    answers: list[CommandAnswer | None] = []

    def ask() -> None:
        answers.append(asyncio.run(services.agent_request(host, ReportRequest())))
        connection.close()

    thread = threading.Thread(target=ask)
    thread.start()
    with redis.Redis.from_url(agent.broker) as broker:
        wait_for(lambda: broker.delete(queue_name(host.identity)))
    agent.start()
    thread.join(60)
    assert [answer.outcome for answer in answers if answer is not None] == ["done"]


def test_two_commands_at_once_have_answers_of_their_own(
    falcon_chassis: Chassis, falconweb_administrator: User, enrolled: Callable[[str], AgentProcess]
) -> None:
    enrolled("node-a")
    first = requested(falconweb_administrator, device_in(falcon_chassis, drawer=1, slot=1), None)
    second = requested(falconweb_administrator, device_in(falcon_chassis, drawer=2, slot=1), None)
    ended: dict[str, str] = {}

    def work(operation: Operation) -> None:
        ended[str(operation.pk)] = carry_out(operation).state
        connection.close()

    threads = [threading.Thread(target=work, args=(one,)) for one in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert ended == {str(first.pk): "done", str(second.pk): "done"}


@pytest.mark.nightly
def test_a_host_looks_for_no_device_while_another_is_let_go_and_not_detached_yet(
    falcon_chassis: Chassis,
    simulated_falcon: SimulatorProcess,
    falconweb_administrator: User,
    enrolled: Callable[[str], AgentProcess],
) -> None:
    """It would find the one that it has just let go, too, and begin to use it again."""
    enrolled("node-a")
    leaves, comes = (device_in(falcon_chassis, drawer=drawer, slot=1) for drawer in (1, 2))
    assert carry_out(requested(falconweb_administrator, comes, None)).state == "done"
    out = requested(falconweb_administrator, leaves, None)
    back = requested(falconweb_administrator, comes, host_port_of(falcon_chassis, "H4"))
    ended: list[Operation] = []

    def work() -> None:
        ended.append(carry_out(back))
        connection.close()

    thread = threading.Thread(target=work)

    def waits() -> bool:
        return "busy with another operation" in step_result(Operation.objects.get(pk=back.pk), "Seen by the host")[1]

    def meanwhile() -> None:
        thread.start()
        wait_for(waits)

    with at_step(out.pk, "Detach", meanwhile):
        assert carry_out(out).state == "done"
    thread.join(60)
    assert [one.state for one in ended] == ["done"]
    assert step_result(ended[0], "Seen by the host")[1].startswith("node-a sees it at ")
    assert HostAgent.objects.get(host__name="node-a").turn_of is None


@pytest.mark.parametrize("allowed", [True, False])
def test_the_turn_of_a_worker_that_died_is_given_up_by_whoever_takes_its_operation_up(
    falcon_chassis: Chassis,
    simulated_falcon: SimulatorProcess,
    falconweb_administrator: User,
    allowed: bool,
) -> None:
    TellingHost("node-a").tell()
    gpu = device_in(falcon_chassis, drawer=1, slot=1)
    operation = requested(falconweb_administrator, gpu, None)
    # It had detached the device, and told nobody.
    outside.put(falcon_chassis, simulated_falcon, gpu, to=None)
    until = timezone.now() + timedelta(seconds=100)
    HostAgent.objects.update(turn_of=operation.pk, turn_until=until)
    Operation.objects.filter(pk=operation.pk).update(attempts=1)
    if not allowed:
        User.objects.filter(pk=falconweb_administrator.pk).update(is_active=False, role="viewer")
    assert carry_out(operation).state == ("done" if allowed else "failed")
    assert HostAgent.objects.get(host__name="node-a").turn_of is None


def test_a_host_looks_for_a_device_whose_link_has_trained_badly_too(
    falcon_chassis: Chassis,
    simulated_falcon: SimulatorProcess,
    falconweb_administrator: User,
    enrolled: Callable[[str], AgentProcess],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link_steps, "RETRAIN_SECONDS", 0.2)
    enrolled("node-b")
    simulated_falcon.fault("link_downgrade", "drawer1slot7", lanes=4)
    nic = device_in(falcon_chassis, drawer=1, slot=7)
    ended = carry_out(requested(falconweb_administrator, nic, host_port_of(falcon_chassis, "H2")))
    assert (ended.state, "below what device and slot can do" in ended.error) == ("failed", True)
    assert step_result(ended, "Seen by the host")[0] == "done"
    wait_for(lambda: ladder(nic)["Seen by the host"] == "done")


def test_the_device_page_says_who_uses_it_and_forces_it_when_its_name_is_typed(
    chassis: Chassis,
    administrator_client: Client,
) -> None:
    gpu = device_in(chassis, drawer=1, slot=1)
    TellingHost("node-a").tell({gpu: MARIA})
    page = page_text(administrator_client.get(f"/devices/{gpu.pk}/"))
    assert "of maria). It stays where it is unless it is forced." in page
    form = {"device": gpu.pk, "target": "", "force": "1", "confirmation": "yes"}
    refused = page_text(administrator_client.post("/operations/", form, follow=True))
    assert f"Type &#x27;{gpu.name}&#x27; to confirm that." in refused
    assert not Operation.objects.exists()
    asked_for = administrator_client.post("/operations/", {**form, "confirmation": gpu.name})
    assert asked_for["Location"].startswith("/operations/")
    assert Operation.objects.get().forced
