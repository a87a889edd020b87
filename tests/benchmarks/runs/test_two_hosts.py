"""A run over two hosts: two real agents, PyTorch on the CPU, and a network of the loopback."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone
from msgspec.structs import replace

from accounts.models import User
from benchmarks.runs.documents import parse_run_file, run_file
from benchmarks.runs.models import Hold, Run
from benchmarks.runs.recording import log_tail, series_of, series_values
from benchmarks.runs.requests import RunRequest
from benchmarks.runs.results import observations, summary_of
from benchmarks.runs.rules import Composition, HostShare
from benchmarks.runs.scheduler import SITE_ERROR, run_advance
from benchmarks.runs.services import run_cancel, run_create
from benchmarks.runs.topology import gpu_labels
from benchmarks.workloads.catalogue import spec_of
from core.failpoints import Failpoint, set_failpoint_handler
from fabric.agents.models import HostAgent
from fabric.agents.services import agent_register
from fabric.inventory.models import Chassis, Host
from falconweb.testing import AgentProcess, SimulatorProcess, host_port_of
from tests.benchmarks.runs.lab import RunningLab, attached, ended, in_state, until
from tests.benchmarks.runs.test_asking import client_of
from tests.waiting import wait_for
from tests.without import needs_torch

pytestmark = [pytest.mark.process, needs_torch]

ENDLESS = {"steps": 1_000_000}


@dataclass
class TwoHosts(RunningLab):
    """node-a and node-b with their agents."""

    second: Host
    second_agent: AgentProcess

    @property
    def both(self) -> Composition:
        """The CPUs of both hosts."""
        return Composition(host=self.host.pk, cpu=True, others=(HostShare(host=self.second.pk),))

    def train(self, composition: Composition, **given: Any) -> Run:
        """Ask for a tiny training in two processes."""
        spec = spec_of("mnist_cnn", "tiny", {"hosts": len(composition.shares), **given})
        request = RunRequest(spec=spec, composition=composition, executor="torch", preset="tiny")
        return run_create(person=self.person, request=request)

    def processes(self, run: Run) -> dict[str, list[int]]:
        """Return the processes of a run on each host, those of its trainer."""
        return {agent.root.name: trainers(agent, run) for agent in (self.agent, self.second_agent)}


def agent_folder(agent: AgentProcess, run: Run) -> Path:
    """Return where a host keeps a run."""
    return agent.log.parent / "runs" / str(run.pk)


def trainers(agent: AgentProcess, run: Run) -> list[int]:
    """Return the processes that a host's trainer has, by their command line."""
    events = str(agent_folder(agent, run) / "told.jsonl").encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if events in words and b"trainer" in words:
            found.append(int(entry.name))
    return found


@pytest.fixture
def lab(
    falcon_chassis: Chassis,
    simulated_falcon: SimulatorProcess,
    host_agent: Callable[..., AgentProcess],
    administrator: User,
) -> Iterator[TwoHosts]:
    """Both hosts, heard by the site; each has an address of its own, and runs two runs at most."""
    hosts = [Host.objects.get(name=name) for name in ("node-a", "node-b")]
    agents = [
        host_agent(host.name, AGENT_RENDEZVOUS=f"127.0.0.{number}", AGENT_MOST_RUNS="1")
        for number, host in enumerate(hosts, 2)
    ]
    for host, agent in zip(hosts, agents, strict=True):
        agent_register(host=host, key=agent.key)
    with agents[0].delivering(), agents[1].delivering():
        wait_for(lambda: all(agent.report for agent in HostAgent.objects.all()), "the agents report")
        yield TwoHosts(falcon_chassis, simulated_falcon, administrator, hosts[0], agents[0], hosts[1], agents[1])


def test_two_hosts_train_what_two_processes_of_one_host_train(lab: TwoHosts) -> None:
    alone = ended(lab.train(replace(lab.both, others=())))
    client = client_of(lab.person)
    given = {"workload": "mnist_cnn", "preset": "tiny", "host": lab.host.pk, "where": "cpu", "executor": "torch"}
    answer = client.post("/benchmarks/runs/new/", {**given, "devices": 2, "limit": 5, f"with-{lab.second.pk}": "on"})
    assert answer.status_code == 302, answer.context["form"].errors
    run = Run.objects.get(pk=answer["Location"].split("/")[-2])
    assert run.title == "MNIST CNN, CPU, batch 8, node-a + node-b"
    until(run, in_state("running"))
    held = {key for host in (lab.host, lab.second) for key in (f"host/{host.pk}", f"host/{host.pk}/cpu")}
    assert held == set(Hold.objects.values_list("key", flat=True))
    run = ended(run)
    assert (run.state, run.error, run.exit_code) == ("completed", "", 0)
    losses = [series_values(one, ["steps/timed/loss"])["steps/timed/loss"][1].tolist() for one in (alone, run)]
    assert len(losses[0]) == 10
    assert losses[0] == losses[1]
    assert alone.spec_hash != run.spec_hash
    assert {"cpu", "host/node-b/cpu"} <= {one.key for one in series_of(run)}
    assert "node-a: " in log_tail(run).text
    assert (run.topology["host"], run.topology["other_hosts"]) == ("node-a", ["node-b"])
    summary = summary_of(run)
    assert summary.step_seconds is not None
    assert summary.exposed_seconds is not None
    assert observations(lab.person) == []
    assert not Hold.objects.exists()
    page = client.get(answer["Location"]).content.decode()
    for host in (lab.host, lab.second):
        assert f'{reverse("fabric:host", args=[host.pk])}">{host.name}</a>' in page
        found = client.get(f"/api/v1/benchmarks/runs/?host={host.pk}").json()["results"]
        assert str(run.pk) in {one["id"] for one in found}
    assert parse_run_file(run_file(run)).composition == lab.both
    again = client.get(f"/benchmarks/runs/new/?again={run.pk}").content.decode()
    assert re.search(rf'name="with-{lab.second.pk}"[^>]*checked', again)
    # Nothing of it is left on either host.
    wait_for(
        lambda: not any((agent.log.parent / "runs" / str(run.pk)).exists() for agent in (lab.agent, lab.second_agent))
    )


@pytest.mark.nightly
def test_what_ends_one_host_ends_the_other_and_names_it(lab: TwoHosts) -> None:
    run = until(lab.train(lab.both, **ENDLESS), lambda one: one.steps_done > 0)
    for pid in lab.processes(run)["node-b"]:
        os.kill(pid, signal.SIGKILL)
    run = ended(run)
    assert (run.state, run.trouble, run.exit_code) == ("failed", "crash", -signal.SIGKILL)
    assert run.error.startswith("node-b: It ended with the signal SIGKILL")
    assert lab.processes(run) == {"node-a": [], "node-b": []}

    run = until(lab.train(lab.both, **ENDLESS), lambda one: one.steps_done > 0)
    assert all(lab.processes(run).values())
    behind = lab.train(Composition(host=lab.second.pk, cpu=True))
    until(behind, lambda one: one.sentence == f"Waiting for the CPU of node-b, which ‘{run.title}’ uses.")
    run_cancel(person=lab.person, run=behind)
    run_cancel(person=lab.person, run=run)
    run = ended(run)
    assert (run.state, run.trouble, run.error) == ("cancelled", "", "ada cancelled it.")
    assert lab.processes(run) == {"node-a": [], "node-b": []}
    assert not Hold.objects.exists()


def test_a_simulated_run_loads_the_devices_of_each_host_and_gives_them_back(lab: TwoHosts) -> None:
    before = attached(lab.chassis)
    other = HostShare(host=lab.second.pk, devices={lab.device(6).pk: host_port_of(lab.chassis, "H2").pk})
    place = replace(lab.place(5, local=1), others=(other,))

    def loaded(run: Run) -> set[str]:
        return {one.key.split("/")[1] for one in series_of(run) if one.key.endswith("/utilisation")}

    run = until(lab.ask(place, given={"hosts": 2, "devices": 3, **ENDLESS}), lambda one: len(loaded(one)) == 3)
    run_cancel(person=lab.person, run=run)
    run = ended(run)
    assert (run.state, run.error, run.provenance) == ("cancelled", "ada cancelled it.", "simulated")
    assert attached(lab.chassis) == before
    labels = gpu_labels(run, [one.key for one in series_of(run)])
    assert loaded(run) == set(labels)
    assert sorted(address.rpartition(" ")[0] for address in loaded(run)) == ["", "", "node-b"]
    assert "own GPU 1" in labels.values()


def test_where_the_second_host_refuses_nothing_is_left_running(lab: TwoHosts) -> None:
    other = lab.ask(Composition(host=lab.second.pk, local_gpus=1), given=ENDLESS)
    until(other, in_state("running"))
    run = lab.train(lab.both, **ENDLESS)
    Run.objects.filter(pk=run.pk).update(may_share=True)
    run = ended(run)
    assert (run.state, run.trouble, run.started_at) == ("failed", "refused", None)
    assert run.error.startswith("node-b: This host runs 1 concurrent benchmarks at most")
    assert lab.processes(run) == {"node-a": [], "node-b": []}
    assert not agent_folder(lab.agent, run).exists()
    run_cancel(person=lab.person, run=other)
    assert ended(other).state == "cancelled"


def test_an_error_of_the_site_ends_a_run_on_all_its_hosts(lab: TwoHosts) -> None:
    given = {"hosts": 2, "devices": 2, "backend": "cpu", **ENDLESS}
    run = until(lab.ask(lab.both, given=given), lambda one: one.steps_done > 0)

    def fail(name: Failpoint, about: object) -> None:
        if name == "run.polled":
            raise ValueError(name)

    set_failpoint_handler(fail)
    try:
        run_advance(str(run.pk), worker="tests")
    finally:
        set_failpoint_handler(None)
    assert all((agent_folder(agent, run) / "end.json").exists() for agent in (lab.agent, lab.second_agent))
    run = ended(run)
    assert (run.state, run.trouble, run.error) == ("failed", "lost", SITE_ERROR)


@pytest.mark.nightly
def test_a_host_that_is_lost_ends_the_run_on_the_other(lab: TwoHosts) -> None:
    run = until(lab.train(lab.both, **ENDLESS), lambda one: one.steps_done > 0)
    lab.second_agent.kill()
    long_ago = timezone.now() - timedelta(minutes=10)
    HostAgent.objects.filter(host=lab.second).update(reported_at=long_ago)
    Run.objects.filter(pk=run.pk).update(state_since=long_ago)
    run = ended(run)
    assert (run.state, run.trouble) == ("failed", "lost")
    assert run.error == "The agent of node-b has not reported for 5 minutes."
    assert lab.processes(run)["node-a"] == []
    lab.second_agent.start()
