"""A run over several hosts, without agents: what is held, refused and requested of each host."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.utils import timezone
from msgspec.structs import replace

from accounts.models import Role, User
from benchmarks import model
from benchmarks.runs.attachment import attach_devices, authorise_requester
from benchmarks.runs.claims import RunClaim, holds_acquire, queue_status
from benchmarks.runs.claims import RunFailed as RunFailure
from benchmarks.runs.models import Hold, Run
from benchmarks.runs.nodes import DEVICE_VISIBLE_TIMEOUT, HostDevices, node_devices, train_requests
from benchmarks.runs.recording import log_tail, run_update_store
from benchmarks.runs.requests import RunRequest
from benchmarks.runs.rules import Composition, HostShare, held_key, rank_counts
from benchmarks.runs.scheduler import runs_schedule
from benchmarks.runs.services import run_create
from benchmarks.runs.topology import gpu_labels, recorded_topology
from benchmarks.workloads.catalogue import spec_of
from benchmarks.workloads.validation import SpecError
from core.errors import Invalid, NotFound
from fabric.agents.models import HostAgent
from fabric.agents.services import agent_register, report_store
from fabric.inventory.models import Host
from fabric.operations.models import Plan
from falconweb.testing import host_port_of
from hostwire.protocol import TrainerCapabilities
from hostwire.signing import new_key, seal_report
from hostwire.training import LATER_FIELDS, RunFailed, RunReading, RunUpdate, Spec, StepsCompleted
from tests.benchmarks.runs.conftest import reported
from tests.benchmarks.runs.lab import Lab, attached, until

pytestmark = pytest.mark.process

TRAINER = TrainerCapabilities(
    executors=("torch", "simulated"), framework="torch 2", backends=("cpu", "cuda"), address="10.0.0.1",
    spec_fields=tuple(LATER_FIELDS),
)  # fmt: skip


@pytest.fixture
def second(lab: Lab, simulated_hosts: Path) -> Host:
    """node-b; both hosts have reported GPUs for PyTorch, and an address."""
    host = Host.objects.get(name="node-b")
    report_capabilities(simulated_hosts, lab.host, TRAINER)
    report_capabilities(simulated_hosts, host, replace(TRAINER, address="10.0.0.2"))
    return host


def report_capabilities(hosts: Path, host: Host, trainer: TrainerCapabilities, **more: Any) -> None:
    key = new_key()
    agent_register(host=host, key=key)
    report_store(seal_report(replace(reported(hosts, host), trainer=trainer, **more), key))


def place(lab: Lab, second: Host, *slots: int, local: int = 0) -> Composition:
    """Return node-a with a GPU and own ones, and node-b with those in these slots of the first drawer."""
    port = host_port_of(lab.chassis, "H2").pk
    other = HostShare(host=second.pk, devices={lab.device(slot).pk: port for slot in slots})
    return replace(lab.place(1, local=local), others=(other,))


def ask(lab: Lab, composition: Composition, **more: Any) -> Run:
    count = sum(one.local_gpus + len(one.devices) for one in composition.shares)
    given = {"devices": count, "hosts": len(composition.shares), **more.pop("given", {})}
    return lab.ask(composition, given=given, **{"executor": "torch", **more})


def test_what_is_stored_of_one_host_is_as_before_and_several_keep_their_order() -> None:
    one = Composition(host=1, devices={9: 2, 3: 2})
    assert one.as_stored().keys() == {"host", "local_gpus", "devices", "storage", "own_drive", "cpu", "order"}
    assert list(Composition.from_json(one.as_stored()).devices) == [9, 3]
    several = replace(one, others=(HostShare(host=2, devices={8: 5, 4: 5}), HostShare(host=7, local_gpus=2)))
    read = Composition.from_json(several.as_stored())
    assert read == several
    assert [list(share.devices) for share in read.shares] == [[9, 3], [8, 4], []]
    assert rank_counts(several, spec_of("resnet50", "custom", {"devices": 6, "hosts": 3}), [9, 3, 8, 4]) == [2, 2, 2]
    on_cpus = replace(several, cpu=True)
    assert rank_counts(on_cpus, spec_of("resnet50", "custom", {"devices": 5, "hosts": 3}), []) == [2, 2, 1]
    with pytest.raises(msgspec.ValidationError):
        Composition.from_json({"host": 1, "others": [{"host": 2, "cpu": True}]})


def test_devices_are_attached_at_each_host_and_each_is_asked_for_its_ranks(lab: Lab, second: Host) -> None:
    run = ask(lab, place(lab, second, 3, 4, local=1))
    held = {f"device/{lab.device(slot).pk}" for slot in (1, 3, 4)} | {f"host/{lab.host.pk}/gpu/0"}
    held |= {f"host/{host.pk}/shared" for host in (lab.host, second)}
    runs_schedule()
    claim = RunClaim.claim(str(run.pk), "tests")  # nobody else asks the hosts to start it
    assert claim is not None
    attach_devices(claim)
    HostAgent.objects.all().delete()  # none answers here, and attaching would wait for it
    until(run, lambda one: one.plan is not None and one.plan.state == Plan.State.DONE)
    claim.run.refresh_from_db()
    assert attach_devices(claim)
    run = Run.objects.get(pk=run.pk)
    assert run.state == "starting"
    keys = {held_key(key) for key in Hold.objects.values_list("key", flat=True)}
    assert {key for key in keys if not key.startswith("switch/")} == held
    assert attached(lab.chassis)[1] == "H1"
    assert (attached(lab.chassis)[3], attached(lab.chassis)[4]) == ("H2", "H2")
    topology = recorded_topology(run)
    assert topology is not None
    assert (topology.host, topology.other_hosts) == ("node-a", ("node-b",))
    assert [one.host for one in topology.accelerators] == ["", "", "node-b", "node-b"]
    with pytest.raises(model.ModelError, match="no model of the network between hosts"):
        model.predict(run.specification(), topology)

    composition = Composition.from_json(run.composition)
    seen = [
        HostDevices(
            share, (), {str(pk): f"0000:4{n}:00.0" for n, pk in enumerate(share.devices)}, (), None, f"10.0.0.{n}"
        )
        for n, share in enumerate(composition.shares, 1)
    ]
    requests = train_requests(run, run.all_nodes(), seen)
    assert requests == train_requests(run, run.all_nodes(), seen)
    parts = [one.node for one in requests]
    assert [(part.first_rank, part.ranks, part.address) for part in parts if part] == [
        (0, 2, "10.0.0.1"), (2, 2, "10.0.0.2"),
    ]  # fmt: skip
    assert {(part.rendezvous, part.port, part.token) for part in parts if part} == {
        ("10.0.0.1", parts[0].port, parts[0].token)  # type: ignore[union-attr]
    }
    assert [one.local for one in requests] == [1, 0]


def test_agents_of_an_earlier_version_are_told_of_no_field_that_they_do_not_know(lab: Lab, second: Host) -> None:
    run = ask(lab, replace(place(lab, second, 5), others=()))
    (request,) = train_requests(run, run.all_nodes(), [HostDevices(lab.place(1), (), {}, (), None, "")])
    sent = msgspec.json.decode(msgspec.json.encode(request))
    assert "workload" in sent["spec"]
    assert not LATER_FIELDS & sent["spec"].keys()
    assert msgspec.convert(sent["spec"], Spec) == run.specification()
    Run.objects.filter(pk=run.pk).update(spec={**run.spec, "data": "files"})
    run.refresh_from_db()
    (request,) = train_requests(run, run.all_nodes(), [HostDevices(lab.place(1), (), {}, (), None, "")])
    assert request.spec.data == "files"


def test_a_host_whose_agent_does_not_know_a_field_is_named_and_runs_what_it_knows(
    lab: Lab, second: Host, simulated_hosts: Path
) -> None:
    report_capabilities(simulated_hosts, second, replace(TRAINER, spec_fields=()))
    composition, spec = Composition(host=second.pk, cpu=True), {"backend": "cpu", "devices": 1, "data": "random"}
    late = ask(lab, composition, given=spec)
    with pytest.raises(Invalid, match="agent of node-b is of an earlier release, which does not know cores and data"):
        ask(lab, composition, given={**spec, "data": "files", "cores": 1})
    # Another agent, or an earlier one again, has come to the host since it was asked for.
    Run.objects.filter(pk=late.pk).update(spec={**late.spec, "cores": 1})
    late.refresh_from_db()
    with pytest.raises(RunFailure, match="update it to run this there"):
        authorise_requester(late)


def test_a_gpu_that_nvml_shows_late_is_waited_for_a_while(lab: Lab, second: Host, simulated_hosts: Path) -> None:
    run = ask(lab, lab.place(1))
    Run.objects.filter(pk=run.pk).update(state="starting", state_since=timezone.now())
    claim = RunClaim.claim(str(run.pk), "tests")
    assert claim is not None
    assert node_devices(claim, run.all_nodes())
    report_capabilities(simulated_hosts, lab.host, TRAINER, gpus=())
    assert node_devices(claim, run.all_nodes()) is None
    assert claim.run.sentence.endswith("NVML of node-a does not show it.")
    claim.run.state_since -= timedelta(seconds=DEVICE_VISIBLE_TIMEOUT)
    assert node_devices(claim, run.all_nodes())  # the host refuses it, with what it has


def test_a_run_waits_for_each_of_its_hosts_and_names_the_one(lab: Lab, second: Host) -> None:
    both = Composition(host=lab.host.pk, cpu=True, others=(HostShare(host=second.pk),))
    cpus = {"backend": "cpu", "devices": 2}
    first = ask(lab, Composition(host=second.pk, cpu=True), title="first", given={**cpus, "hosts": 1})
    waits = ask(lab, both, title="both", given=cpus)
    behind = ask(lab, Composition(host=lab.host.pk, cpu=True), title="behind", given={**cpus, "hosts": 1})
    assert holds_acquire(first)
    assert not holds_acquire(waits)
    Run.objects.filter(pk=first.pk).update(state="running")
    assert [(run.title, sentence) for run, sentence in queue_status()] == [
        ("both", "Waiting for the CPU of node-b, which ‘first’ uses."),
        ("behind", "Waiting for the CPU of node-a, behind ‘both’."),
    ]
    assert behind.pk not in Hold.objects.values_list("run", flat=True)


def test_what_cannot_run_on_several_hosts_is_refused_in_words(
    lab: Lab, second: Host, simulated_hosts: Path, grant_to_tenant: Any
) -> None:
    def refusal(composition: Composition, **more: Any) -> str:
        with pytest.raises(Invalid) as caught:
            ask(lab, composition, **more)
        return caught.value.sentence

    two = place(lab, second, 5)
    twice = replace(two, others=(HostShare(host=lab.host.pk, local_gpus=1),))
    assert refusal(twice) == "A host is named twice."
    assert "does not lead to node-b" in refusal(replace(two, others=(HostShare(host=second.pk, devices=two.devices),)))
    assert "2 hosts, and 1 are chosen" in refusal(lab.place(1, 2), given={"hosts": 2})
    assert "No GPU of node-b is chosen" in refusal(place(lab, second, local=1))
    assert "between hosts is not simulated" in refusal(
        two, workload="all_reduce", executor="simulated", given={"batch": 1}
    )
    for workload, given, says in (
        ("resnet50", {"strategy": "dp"}, "strategy ddp or sharded"), ("resnet50", {"devices": 1}, "Each of 2 hosts"),
        ("resnet50", {"restarts": 1, "checkpoint_every": 1}, "not restarted"),
        ("gpu_bandwidth", {"batch": 1}, "runs on one host"),
    ):  # fmt: skip
        with pytest.raises(SpecError, match=says):
            spec_of(workload, "custom", {"devices": 2, "hosts": 2, **given})
    report_capabilities(simulated_hosts, second, replace(TRAINER, framework="torch 1"))
    assert "node-a has torch 2, and node-b has torch 1" in refusal(two)
    report_capabilities(simulated_hosts, second, replace(TRAINER, address=""))
    assert "set AGENT_RENDEZVOUS of its agent" in refusal(two)
    report_capabilities(simulated_hosts, second, TRAINER)
    # Who may use one of the hosts cannot use the other with it.
    grant_to_tenant(lab.device(1), lab.device(5), host_port_of(lab.chassis, "H1"))
    bob = User.objects.create_user("bob", password="a-long-password-1", role=Role.USER, tenant=lab.device(1).tenant)
    with pytest.raises(NotFound):
        ask(lab, two, person=bob)
    on_cpus = Composition(host=lab.host.pk, cpu=True, others=(HostShare(host=second.pk),))
    spec = spec_of("mnist_cnn", "tiny", {"hosts": 2})
    with pytest.raises(NotFound):
        run_create(person=bob, request=RunRequest(spec=spec, composition=on_cpus, executor="torch"))
    assert not Run.objects.exists()


def test_readings_and_logs_are_kept_apart_and_the_cause_of_a_failure_is_its_hosts(lab: Lab, second: Host) -> None:
    run = ask(lab, place(lab, second, 5, local=1))
    first, other = run.all_nodes()
    reading = RunReading(at=1.0, interval=1.0, source="nvml", values={"cpu": 0.5, "gpu/0000:10:00.0/power": 70.0})
    steps = StepsCompleted(at=2.0, phase="timed", first=0, seconds=(0.5,))

    def tell(node: Any, *events: Any, log: str = "") -> None:
        news = RunUpdate(run=str(run.pk), state="running", events=events, log=log, next_byte=len(log))
        Run.objects.filter(pk=run.pk).update(**run_update_store(run, news, node))
        run.refresh_from_db()

    tell(first, reading, steps, RunFailed(at=3.0, what="peer", sentence="Another ended."), log="one\ntwo")
    tell(other, reading, steps, RunFailed(at=4.0, what="out_of_memory", sentence="It was full."), log="three\n")
    tell(other, reading)  # a repeated answer
    assert set(run.series.values_list("key", "count")) == {
        ("cpu", 1), ("host/node-b/cpu", 1), ("gpu/0000:10:00.0/power", 1), ("gpu/node-b 0000:10:00.0/power", 1),
        ("steps/timed/seconds", 1),
    }  # fmt: skip
    assert (run.trouble, run.error) == ("out_of_memory", "node-b: It was full.")
    assert log_tail(run).text == "node-a: one\nnode-a: two\nnode-b: three\n"
    _own, slot_1, slot_5 = (one["name"] for one in run.topology["accelerators"])
    run.source = {"addresses": {"0000:41:00.0": slot_1, "node-b 0000:10:00.0": slot_5}}
    labels = gpu_labels(run, run.series.values_list("key", flat=True))
    assert labels["0000:10:00.0"] == "own GPU 1"
    assert "drawer 1 slot 5 · " in labels["node-b 0000:10:00.0"]
