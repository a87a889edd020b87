"""Deployments for a person, limited to what they may see; the audit log records the event, not the request."""

from __future__ import annotations

import json
from typing import Final
from uuid import UUID

import msgspec
from msgspec.structs import replace

from accounts.audit.actions import Action
from accounts.audit.services import Target, audit_record
from accounts.models import User
from accounts.visibility import visible_or_404
from benchmarks.deploy.bases import TargetFacts, architecture_of
from benchmarks.deploy.deployment import MODAK_TRAINING, Deployment, deploy
from benchmarks.deploy.request import DeploymentTarget
from benchmarks.deploy.tuning import TUNED_FIELDS, TunedSetting, Tuning, tuning_grid
from benchmarks.model import TopologyError, read_topology
from benchmarks.model.topology import Topology
from benchmarks.runs.choices import host_choices
from benchmarks.runs.models import Run
from benchmarks.runs.results import observations
from benchmarks.runs.rules import Composition
from benchmarks.runs.topology import composition_now, composition_topology, host_composition
from benchmarks.sweeps.grid import SweepGrid
from benchmarks.sweeps.models import Sweep
from benchmarks.sweeps.selectors import point_list, sweep_get
from benchmarks.sweeps.services import sweep_create
from core.database import natural
from core.errors import FalconWebError, Invalid, NotFound
from core.language import _
from fabric.agents.models import HostAgent
from fabric.agents.selectors import latest_report
from fabric.inventory.models import Device, Host, HostPort
from fabric.operations.models import Plan
from fabric.plans.rules import DesiredState

TUNING_TITLE: Final = "Tuning of"


def deployment_create(person: User, text: str) -> Deployment:
    """Return the deployment for a person's request. Raises DeploymentRequestError."""

    made = deploy(
        text,
        find_topology=lambda place: target_topology(person, place),
        find_observations=lambda: observations(person),
        find_facts=lambda place: target_facts(person, place),
        find_tuning=lambda sweep: tuning_of(sweep_get(person, UUID(sweep))),
    )
    after = {"form": made.form, "scheduler": made.scheduler, "options": [one.option for one in made.gains if one.taken]}
    audit_record(action=Action.DEPLOYMENT_MAKE, actor=person, target=Target("deployment", name=made.name), after=after)
    return made


def tuning_create(person: User, made: Deployment, *, idempotency_key: str = "") -> tuple[Sweep, str]:
    """Start the sweep that tunes a deployment; return it, and the request that takes its best setting.

    Raises Invalid where nothing can be tuned, and what `sweep_create` raises.
    """
    sweep = sweep_create(
        person=person,
        grid=_grid_of(person, made),
        title=f"{TUNING_TITLE} {made.name}",
        idempotency_key=idempotency_key,
    )
    request = json.loads(made.request)
    place = request
    for name in MODAK_TRAINING.strip("/").split("/") if made.form == "modak" else ():
        place = place.setdefault(name, {})
    place["tuning"] = str(sweep.pk)
    return sweep, json.dumps(request, indent=2, ensure_ascii=False)


def why_not_tunable(person: User, made: Deployment) -> str:
    """Return why a deployment cannot be tuned, '' where it can."""
    if not person.may_compose:
        return _("You may not run anything: ask somebody who may.")
    try:
        _grid_of(person, made)
    except FalconWebError as error:
        return error.sentence
    return ""


def _grid_of(person: User, made: Deployment) -> SweepGrid:
    job = made.tunable
    if job is None:
        raise Invalid(_("Name a host and a workload: a tuning runs it there."))
    if job.place.topology is not None:
        raise Invalid(_("A topology file is no host of this site: nothing can be run there."))
    composition = _target_composition(person, job.place)
    if composition.others:
        raise Invalid(_("A tuning runs on one host, and this composition has several."))
    trainer = next((one.trainer for one in host_choices(person) if one.id == composition.host), None)
    # PyTorch of a host may lack the backend.
    able = trainer is not None and job.spec.backend in trainer.backends
    executors = [one for one in (trainer.executors if trainer is not None else ()) if able or one != "torch"]
    return tuning_grid(job.spec, composition, job.topology, variable=job.variable, executors=executors)


def tuning_of(sweep: Sweep) -> Tuning:
    """Return what a sweep says of the best setting; raises Invalid for one that compares more."""
    grid = SweepGrid.from_json(sweep.grid)
    if len(grid.workload) != 1 or len(grid.count) != 1 or grid.batch_of != "device":
        raise Invalid(_("This sweep compares more than settings: it tunes no job."))
    points = point_list(sweep)
    varied = [name for name in TUNED_FIELDS if len(getattr(grid, name)) > 1]
    settings = tuple(
        TunedSetting(
            values={name: one.values[name] for name in varied if name in one.values},
            rate=one.rate.value, low=one.rate.low, high=one.rate.high,
            provenance="simulated" if one.run.provenance == Run.Provenance.SIMULATED else "measured",
        )
        for one in points if one.rate is not None and one.run is not None
    )  # fmt: skip
    return Tuning(
        sweep=str(sweep.pk), title=sweep.title, workload=grid.workload[0], devices=grid.count[0], total=len(points),
        left=sum(one.state in {"waiting", "open"} for one in points) if sweep.is_open else 0, settings=settings,
        start={name: getattr(grid, name)[0] for name in varied},
    )  # fmt: skip


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
        composition = host_composition(person, place.host)
    hosts, attached = set(composition.hosts), composition.all_devices
    devices, ports = set(attached), set(attached.values())
    seen = (
        Host.objects.visible_to(person).filter(pk__in=hosts).count() == len(hosts)
        and Device.objects.visible_to(person).filter(pk__in=devices).count() == len(devices)
        and HostPort.objects.visible_to(person).filter(pk__in=ports).count() == len(ports)
    )
    if not seen:
        raise NotFound(_("There is no such host, device or host port."))
    return composition


def host_topology(person: User, host: int, plan: UUID | None = None) -> Topology:
    """Return a host with all that is attached to it, now or after a plan, as far as the person sees it.

    Raises NotFound.
    """
    composition = composition_now(person, visible_or_404(Host.objects.all(), person, host, "host"))
    if plan is not None:
        wanted = DesiredState.from_json(visible_or_404(Plan.objects.all(), person, plan, "plan").wanted).attachments
        ports = set(HostPort.objects.visible_to(person).filter(host=host).values_list("pk", flat=True))
        seen = set(Device.objects.visible_to(person).filter(pk__in=wanted).values_list("pk", flat=True))
        kept = {pk: port for pk, port in composition.devices.items() if pk not in wanted}
        more = {pk: port for pk, port in wanted.items() if port in ports and pk in seen and port is not None}
        composition = replace(composition, devices=kept | more)
    return composition_topology(composition)
