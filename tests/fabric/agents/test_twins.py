"""Detaching devices whose hosts do not tell which card they are, and operations that another worker takes over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest
from django.test import Client
from django.utils import timezone

from accounts.audit.models import AuditEntry
from accounts.models import Tenant, User
from core.errors import InUse
from fabric.agents import services
from fabric.agents.models import HostAgent, HostAnswer
from fabric.agents.services import agent_register
from fabric.execution import host_steps
from fabric.inventory.models import Chassis, Device, Host, HostPort
from fabric.operations.models import Operation
from fabric.plans.preview import devices_in_use
from fabric.plans.rules import DesiredState
from fabric.plans.services import plan_apply, plan_create
from falconweb.testing import (
    AgentProcess,
    SimulatorProcess,
    carry_out,
    carry_out_plan,
    device_in,
    host_port_of,
    mirror,
)
from tests.fabric import outside
from tests.fabric.agents.test_agents import ladder, requested, step_result
from tests.fabric.disorder import endpoint_of
from tests.fabric.hosts import MARIA, VICTOR, TellingHost, card
from tests.turns import in_turn
from tests.waiting import wait_for

pytestmark = pytest.mark.process

FREE_NIC = (1, 7)


class Site:
    """A chassis whose hosts tell of their cards what a test wants them to, with the agents that it starts."""

    def __init__(
        self, chassis: Chassis, falcon: SimulatorProcess, hosts: Path, start: Callable[..., AgentProcess]
    ) -> None:
        self.chassis, self.falcon, self.hosts = chassis, falcon, hosts
        self.start, self.stack = start, ExitStack()

    def device(self, drawer: int, slot: int) -> Device:
        return device_in(self.chassis, drawer=drawer, slot=slot)

    def folder(self, host: str, address: str) -> Path:
        return self.hosts / host / "sys/bus/pci/devices" / address

    def silence(self, host: str, *devices: Device) -> list[str]:
        """Let a host tell no serial number of devices; returns their addresses there. Before its agent is started."""
        shown = self.falcon.state()["hosts"][host]
        places = [shown[endpoint_of(device)] for device in devices]
        for place in places:
            self.folder(host, place).joinpath("vpd").write_bytes(b"")
            for serial in self.folder(host, place).glob("nvme/*/serial"):
                serial.write_text("")
        return places

    def rescan(self, host: str) -> None:
        """Let a host without an agent look for what was attached to it."""
        before = len(self.falcon.state()["hosts"][host])
        (self.hosts / host / "sys/bus/pci/rescan").write_text("1\n")
        wait_for(lambda: len(self.falcon.state()["hosts"][host]) > before)

    def enrol(self, name: str) -> AgentProcess:
        host, agent = Host.objects.get(name=name), self.start(name, AGENT_NVML="")
        agent_register(host=host, key=agent.key)
        self.stack.enter_context(agent.delivering())
        wait_for(lambda: HostAgent.objects.get(host=host).reported_at is not None)
        return agent

    def reported(self, host: str) -> None:
        """Wait until a host has been looked at once more."""
        row = HostAgent.objects.get(host__name=host)
        wait_for(lambda: HostAgent.objects.get(pk=row.pk).number > row.number + 1)

    def zone(self, port: str) -> list[str]:
        return list(self.falcon.state()["zones"][port])


@pytest.fixture
def site(
    falcon_chassis: Chassis,
    simulated_falcon: SimulatorProcess,
    simulated_hosts: Path,
    host_agent: Callable[..., AgentProcess],
) -> Iterator[Site]:
    """`falcon_chassis` with the trees of its hosts."""
    site = Site(falcon_chassis, simulated_falcon, simulated_hosts, host_agent)
    with site.stack:
        yield site


def orphan(operation: Operation, **steps: str) -> None:
    """Leave an operation as a worker leaves it that was killed; `steps` are the states that it had kept."""
    for step in operation.steps:
        step["state"] = steps.get(step["name"].replace(" ", "_"), step["state"])
    past = timezone.now() - timedelta(seconds=1)
    Operation.objects.filter(pk=operation.pk).update(
        attempts=1, started_at=past, state="running", lease_until=None, worker="", steps=operation.steps
    )


def test_a_device_that_its_host_does_not_tell_from_one_in_use_is_not_detached(
    chassis: Chassis, falconweb_administrator: User, administrator_client: Client
) -> None:
    twins, host = [device_in(chassis, drawer=1, slot=slot) for slot in (1, 2)], TellingHost("node-a")
    host.tell({twins[1]: MARIA}, silent=twins)
    for device in twins:
        with pytest.raises(InUse) as refused:
            requested(falconweb_administrator, device, None)
        assert refused.value.sentence == (
            f"{device.name} may be in use: its host cannot distinguish it from other cards of its kind; "
            f"in use among them: train (process {MARIA.pid} of maria)."
        )
        assert (ladder(device)["Seen by the host"], ladder(device)["In use"]) == ("unknown", "unknown")
    page = administrator_client.get(f"/devices/{twins[0].pk}/").content.decode()
    assert "Perhaps in use on node-a: its host cannot distinguish it from other cards" in page
    assert "Force it</button>" in page
    others = device_in(chassis, drawer=1, slot=3)
    assert ladder(others)["Seen by the host"] == "done", "its host tells its serial number"
    assert requested(falconweb_administrator, others, None).is_open
    # Nobody uses either of them: which one is to be let go is as unknown.
    host.tell(silent=twins)
    with pytest.raises(InUse, match="no process uses any of them now"):
        requested(falconweb_administrator, twins[0], None)


def test_a_device_that_cannot_be_told_apart_is_forced_without_any_card_being_taken_for_it(
    site: Site, falconweb_administrator: User
) -> None:
    first, second = site.device(1, 1), site.device(1, 2)
    _, place = site.silence("node-a", first, second)
    site.falcon.hold("node-a", "drawer1slot2", owner="maria", command="train")
    site.enrol("node-a")
    plan = plan_create(
        person=falconweb_administrator,
        desired=DesiredState(attachments={first.pk: None}),
        title="Free it",
        origin="api",
    )
    (doubted,) = devices_in_use(falconweb_administrator, plan)
    assert doubted.by.startswith("not known: its host cannot distinguish it from other cards")
    with pytest.raises(InUse):
        plan_apply(person=falconweb_administrator, plan=plan)
    plan_apply(person=falconweb_administrator, plan=plan, force=[first.pk], confirmation="Free it")
    assert carry_out_plan(plan).state == "done"
    assert step_result(plan.operations.get(), "Release on the host")[1] == (
        "Its host was not told to release it: its host cannot distinguish it from other cards of its kind. "
        "It is forced anyway."
    )
    assert site.folder("node-a", place).joinpath("driver").is_symlink(), "the other one stays in use"
    entry = AuditEntry.objects.get(action="operation.force")
    assert entry.before is not None
    assert entry.before["in_use_by"].startswith("not known: ")
    assert "of maria" in entry.before["in_use_by"]


def test_who_uses_the_card_of_others_is_not_told_to_whom_it_may_not_belong(
    chassis: Chassis, falconweb_tenant: Tenant, falconweb_user: User, user_client: Client
) -> None:
    own, other = device_in(chassis, drawer=1, slot=1), device_in(chassis, drawer=1, slot=2)
    Device.objects.filter(pk=own.pk).update(tenant=falconweb_tenant)
    HostPort.objects.filter(label="H1").update(tenant=falconweb_tenant)
    TellingHost("node-a").tell({other: VICTOR}, silent=[own, other])
    with pytest.raises(InUse) as refused:
        requested(falconweb_user, Device.objects.get(pk=own.pk), None)
    assert "cannot distinguish it from other cards" in refused.value.sentence
    pages = (f"/devices/{own.pk}/", f"/hosts/{Host.objects.get(name='node-a').pk}/")
    said = [repr(vars(refused.value)), *(user_client.get(page).content.decode() for page in pages)]
    assert "cannot distinguish it from other cards" in said[1]
    assert "victor" not in "".join(said)
    assert "secret" not in "".join(said)


@pytest.mark.nightly
def test_the_only_card_of_its_kind_needs_no_serial_number(site: Site, falconweb_administrator: User) -> None:
    nic = site.device(*FREE_NIC)
    assert carry_out(requested(falconweb_administrator, nic, host_port_of(site.chassis, "H2"))).state == "done"
    site.rescan("node-b")
    (place,) = site.silence("node-b", nic)
    site.enrol("node-b")
    assert ladder(nic)["Seen by the host"] == "done"
    held = site.falcon.hold("node-b", "drawer1slot7", owner="maria", command="train")
    site.reported("node-b")
    with pytest.raises(InUse, match="is in use: train"):
        requested(falconweb_administrator, Device.objects.get(pk=nic.pk), None)
    site.falcon.release("node-b", held["pid"])
    site.reported("node-b")
    ended = carry_out(requested(falconweb_administrator, Device.objects.get(pk=nic.pk), None))
    assert (ended.state, ended.error) == ("done", "")
    assert step_result(ended, "Release on the host") == (
        "done",
        f"{place} was removed from the bus; it was not in use.",
    )


def test_one_card_for_two_devices_of_its_kind_may_be_either(chassis: Chassis, falconweb_administrator: User) -> None:
    first, second = (device_in(chassis, drawer=1, slot=slot) for slot in (1, 2))
    TellingHost("node-a").tell({second: MARIA}, silent=[second], unseen=[first])
    for device in (first, second):
        with pytest.raises(InUse, match="in use among them: train"):
            requested(falconweb_administrator, device, None)


def test_a_card_of_the_hosts_own_is_not_taken_for_a_device_of_its_kind(
    chassis: Chassis, falconweb_administrator: User
) -> None:
    """The host has a drive of its own of that model; neither of them tells a serial number."""
    drive = device_in(chassis, drawer=2, slot=5)
    TellingHost("node-a").tell(silent=[drive], own=[card(drive, at=0)])
    with pytest.raises(InUse, match="may be in use"):
        requested(falconweb_administrator, drive, None)


def test_what_was_detached_by_others_before_is_not_let_go_in_the_shape_of_another_card(
    site: Site, falconweb_administrator: User
) -> None:
    nic, host = site.device(*FREE_NIC), TellingHost("node-b")
    outside.put(site.chassis, site.falcon, nic, to=host_port_of(site.chassis, "H2"))
    mirror(site.chassis)
    host.tell(silent=[nic])
    operation = requested(falconweb_administrator, Device.objects.get(pk=nic.pk), None)
    # Its worker detached it and was killed; the host has one of its own by now.
    outside.put(site.chassis, site.falcon, nic, to=None)
    orphan(operation)
    host.tell(unseen=[nic], own=[card(nic, at=0)])
    ended = carry_out(operation)
    assert (ended.state, ended.error) == ("done", "")
    state, sentence = step_result(ended, "Release on the host")
    assert (state, "no longer attached to H2" in sentence) == ("skipped", True)
    assert not HostAnswer.objects.exists(), "the host was asked for nothing"


@pytest.mark.parametrize("again", [*in_turn([False, True], 1, of=2)])
def test_whoever_uses_what_has_arrived_already_is_not_cut_off_by_the_next_worker(
    site: Site, falconweb_administrator: User, again: bool
) -> None:
    """The worker before has attached the device, and was killed; the operation is forced."""
    outside.recable(site.falcon, "hostport1_H3", "node-a")
    mirror(site.chassis)
    gpu, source, target = site.device(1, 1), host_port_of(site.chassis, "H1"), host_port_of(site.chassis, "H3")
    site.enrol("node-a")
    operation = requested(falconweb_administrator, gpu, target, force=True, confirmation=gpu.name)
    if again:
        Operation.objects.filter(pk=operation.pk).update(target=source)
        operation.refresh_from_db()
    else:
        outside.put(site.chassis, site.falcon, gpu, to=target)
    orphan(operation, Check="done", Release_on_the_host="done", Detach="done", Attach="running")
    wait_for(lambda: "drawer1slot1" in site.falcon.state()["hosts"]["node-a"])
    held = site.falcon.hold("node-a", "drawer1slot1", owner="maria", command="train")
    site.reported("node-a")
    ended = carry_out(operation)
    assert (ended.state, ended.error) == ("done", "")
    using = [one["pid"] for one in site.falcon.ask_control("GET", "/hosts/node-a/processes")]
    assert held["pid"] in using
    assert site.folder("node-a", held["address"]).joinpath("driver").is_symlink(), "it was not let go again"


@pytest.mark.nightly
def test_a_device_is_given_back_where_the_answer_that_it_was_let_go_is_lost(
    site: Site, falconweb_administrator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "ANSWER_SECONDS", 1.5)
    monkeypatch.setattr(host_steps, "LEAVE_SECONDS", 0.0)
    monkeypatch.setattr(host_steps, "RESTORE_SECONDS", 2.0)
    host, gpu, agent = Host.objects.get(name="node-a"), site.device(1, 1), site.start("node-a")
    agent_register(host=host, key=agent.key)
    with agent.delivering():
        wait_for(lambda: HostAgent.objects.get(host=host).reported_at is not None)
    # From here on nothing that it says arrives.
    place = site.falcon.state()["hosts"]["node-a"]["drawer1slot1"]
    ended = carry_out(requested(falconweb_administrator, gpu, None))
    assert (ended.state, ended.error) == ("failed", "The agent of node-a did not answer: nothing was detached.")
    assert "drawer1slot1" in site.zone("hostport1_H1")
    done = agent.log.read_text()
    assert "agent.drain" in done
    wait_for(lambda: site.folder("node-a", place).joinpath("driver").is_symlink())
    assert "agent.restore" in agent.log.read_text()


def test_nothing_was_changed_is_said_of_the_first_attempt_alone(
    site: Site, falconweb_administrator: User, falconweb_tenant: Tenant
) -> None:
    gpu = site.device(1, 1)
    first, target = site.device(1, 2), host_port_of(site.chassis, "H3")
    before = requested(falconweb_administrator, first, target)
    operation = requested(falconweb_administrator, gpu, target)
    outside.put(site.chassis, site.falcon, gpu, to=None)
    User.objects.filter(pk=falconweb_administrator.pk).update(is_active=False)
    ended = carry_out(before)
    assert ended.error == f"{falconweb_administrator.username} may no longer do this. Nothing was changed."
    orphan(operation)
    ended = carry_out(operation)
    assert ended.error == f"{falconweb_administrator.username} may no longer do this."
    assert step_result(ended, "Read back") == ("done", "It is attached to no host.")


def test_what_was_attached_elsewhere_by_others_is_said_to_be_unchanged_at_the_first_attempt_alone(
    site: Site, falconweb_administrator: User
) -> None:
    gpu = site.device(1, 1)
    operation = requested(falconweb_administrator, gpu, None)
    outside.put(site.chassis, site.falcon, gpu, to=host_port_of(site.chassis, "H3"))
    orphan(operation)
    ended = carry_out(operation)
    assert ended.error == f"{gpu.name} was attached elsewhere outside this operation."
