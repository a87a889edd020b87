"""Deployments for a person, limited to what they may see; the audit log records the event, not the request."""

from __future__ import annotations

import json

import msgspec

from accounts.audit.actions import Action
from accounts.audit.services import Target, audit_record
from accounts.models import User
from benchmarks.deploy.bases import TargetFacts, architecture_of
from benchmarks.deploy.deployment import Deployment, deploy
from benchmarks.deploy.request import DeploymentTarget
from benchmarks.model import TopologyError, read_topology
from benchmarks.model.topology import Topology
from benchmarks.runs.models import Run
from benchmarks.runs.results import observations
from benchmarks.runs.rules import Composition
from benchmarks.runs.topology import composition_topology
from core.database import natural
from core.errors import Invalid, NotFound
from core.language import _
from core.text import parse_id
from fabric.agents.models import HostAgent
from fabric.agents.selectors import latest_report
from fabric.inventory.models import Device, Host, HostPort


def deployment_create(person: User, text: str) -> Deployment:
    """Return the deployment for a person's request. Raises DeploymentRequestError."""

    made = deploy(
        text,
        find_topology=lambda place: target_topology(person, place),
        find_observations=lambda: observations(person),
        find_facts=lambda place: target_facts(person, place),
    )
    after = {"form": made.form, "scheduler": made.scheduler, "options": [one.option for one in made.gains if one.taken]}
    audit_record(action=Action.DEPLOYMENT_MAKE, actor=person, target=Target("deployment", name=made.name), after=after)
    return made


def target_topology(person: User, place: DeploymentTarget) -> Topology:
    """Return the topology of a request's target; raises Invalid, and NotFound for what the person may not see."""
    if place.topology is None:
        return composition_topology(_target_composition(person, place))
    try:
        return read_topology(json.dumps(place.topology))
    except TopologyError as error:
        raise Invalid(error.sentence) from error


def target_facts(person: User, place: DeploymentTarget) -> TargetFacts:
    """Return what the newest run on a target's host, and its agent, say of its architecture and driver."""
    if place.topology is not None:
        return TargetFacts()
    host = _target_composition(person, place).host
    report = latest_report(HostAgent.objects.filter(host=host).first())
    newest = Run.objects.visible_to(person).filter(host=host, provenance=Run.Provenance.MEASURED).exclude(software={})
    software = newest.order_by("-queued_at").values_list("software", flat=True).first() or {}
    words = [
        report.kernel if report is not None else "",
        *(software.get(name, "") for name in ("operating_system", "processor")),
    ]
    return TargetFacts(architecture=architecture_of(" ".join(words)), driver=str(software.get("driver", "")))


def visible_hosts(person: User) -> list[tuple[int, str]]:
    return list(Host.objects.visible_to(person).order_by(natural("name")).values_list("pk", "name"))


def _target_composition(person: User, place: DeploymentTarget) -> Composition:
    """Return the given composition, or the current one of a host, limited to what the person sees."""
    if place.composition is not None:
        try:
            composition = Composition.from_json(place.composition)
        except msgspec.ValidationError as error:
            raise Invalid(_("The composition is invalid: {error}.", error=error)) from error
    else:
        composition = _host_composition(person, place.host)
    devices, ports = set(composition.devices), set(composition.devices.values())
    seen = (
        Host.objects.visible_to(person).filter(pk=composition.host).exists()
        and Device.objects.visible_to(person).filter(pk__in=devices).count() == len(devices)
        and HostPort.objects.visible_to(person).filter(pk__in=ports).count() == len(ports)
    )
    if not seen:
        raise NotFound(_("There is no such host, device or host port."))
    return composition


def _host_composition(person: User, name: str) -> Composition:
    hosts = Host.objects.visible_to(person)
    host = hosts.filter(name=name).first() or hosts.filter(pk=parse_id(name)).first()
    if host is None:
        raise NotFound(_("No host of this site has this name: there is no prediction."))
    attached = Device.objects.visible_to(person).filter(host_port__host=host, kind=Device.Kind.GPU, missing_since=None)
    ports = set(HostPort.objects.visible_to(person).filter(host=host).values_list("pk", flat=True))
    pairs = attached.order_by("pk").values_list("pk", "host_port")
    return Composition(
        host=host.pk,
        local_gpus=min(host.local_gpu_count, 64),
        devices={pk: port for pk, port in pairs if port in ports},
    )
