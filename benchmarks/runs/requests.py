"""Run requests and their validation."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from accounts.approvals.selectors import guarded_dangers
from accounts.models import User
from accounts.visibility import visible_or_404
from benchmarks import model
from benchmarks.model.topology import Topology
from benchmarks.runs.models import Run
from benchmarks.runs.rules import Composition, HostShare, rank_counts
from benchmarks.runs.topology import composition_topology, current_own_drive
from benchmarks.workloads.catalogue import spec_of, workload_of
from benchmarks.workloads.definitions import Workload
from benchmarks.workloads.validation import SpecError, validate_spec
from core.errors import Conflict, Forbidden, Invalid, NotFound, RuleViolation
from core.language import _, join_words, joined
from fabric.agents.models import HostAgent
from fabric.agents.selectors import is_agent_away, latest_report
from fabric.inventory.models import Device, Host, HostPort
from fabric.operations.projected_state import projected_drawers
from fabric.plans.permissions import check_no_foreign_parts, check_permitted, desired_parts
from fabric.plans.rules import DesiredState
from fabric.plans.selectors import desired_dangers
from fabric.plans.services import involved_drawers, steps_plan
from hostwire.protocol import TrainerCapabilities
from hostwire.training import Spec

CUSTOM_PRESET: Final = "custom"
EXECUTORS: Final = ("torch", "simulated")
MAX_LIMIT_SECONDS: Final = 30 * 86400.0  # s
MAX_OPEN_RUNS: Final = 500  # runs of one person
COMMAND_WORKLOAD: Final = "command"
CPU_BACKEND: Final = "cpu"


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for `run_create`: from a form, a file, the API, a sweep or a recommendation.

    `exercise` makes a simulated run fail: {"fails": "crash", "after": 5}; its title says so.
    """

    spec: Spec
    composition: Composition
    executor: str
    preset: str = ""
    title: str = ""
    limit_seconds: float = 3600.0
    keep_composed: bool = False
    may_share: bool | None = None  # its host and its switches; None: as is usual for its workload
    # None, not {}: the digest tells them apart, and requests with a key were recorded with it.
    exercise: Mapping[str, Any] | None = None

    @property
    def is_sharing(self) -> bool:
        """Whether it may share its host and its switches."""
        return shares_by_default(self.spec.workload) if self.may_share is None else self.may_share


def shares_by_default(workload: str) -> bool:
    """Return whether runs of a workload share unless they are told: only a command, which measures nothing."""
    return workload == COMMAND_WORKLOAD


def spec_for_composition(workload: str, preset: str, given: Mapping[str, Any], composition: Composition) -> Spec:
    """Return the spec of a preset with the given values, for the number of devices in a composition.

    Raises Invalid with a sentence for each field that is wrong.
    """
    filled = dict(given)
    filled.setdefault("backend", CPU_BACKEND if composition.cpu else "cuda")
    filled.setdefault("hosts", len(composition.shares))
    if not composition.cpu and "devices" not in filled:
        devices = composition.all_devices
        others = Device.objects.filter(pk__in=devices).exclude(kind=Device.Kind.GPU).count()
        # Unknown devices are refused later.
        filled["devices"] = max(1, sum(one.local_gpus for one in composition.shares) + len(devices) - others)
    try:
        return spec_of(workload, preset, filled)
    except SpecError as error:
        raise Invalid(next(iter(error.errors.values())), errors=error.errors) from error


def validated_workload(spec: Spec) -> Workload:
    """Return the workload of a spec; raises Invalid, a sentence for each field that is wrong."""
    try:
        workload = workload_of(spec.workload)
        validate_spec(workload, spec)
    except KeyError as error:
        raise Invalid(
            _("There is no workload '{workload}'.", workload=spec.workload[:50]),
            errors={"workload": _("Take one of the catalogue.")},
        ) from error
    except SpecError as error:
        raise Invalid(next(iter(error.errors.values())), errors=error.errors) from error
    return workload


def refuse_too_many_open(person: User) -> None:
    if Run.objects.open().filter(requested_by=person).count() >= MAX_OPEN_RUNS:
        raise Conflict(
            _("You have {most} runs that have not ended. Wait for some of them, or cancel them.", most=MAX_OPEN_RUNS)
        )


def validated_hosts(person: User, spec: Spec, composition: Composition) -> list[Host]:
    """Return the hosts of a composition whose members are validated, that of rank 0 first.

    Raises NotFound for what the person may not see, Invalid for a contradiction, Conflict for a missing device.
    """
    hosts: list[Host] = [visible_or_404(Host.objects, person, pk, "host") for pk in composition.hosts]
    devices: dict[int, Device] = {}
    for share, host in zip(composition.shares, hosts, strict=True):
        devices |= _share_devices(person, share, host)
    errors = _hosts_errors(spec, composition, devices)
    for host in hosts:
        errors |= _storage_errors(composition, devices, host)
    gpus = [one.pk for one in devices.values() if one.kind == Device.Kind.GPU]
    others = [one for one in devices.values() if one.kind != Device.Kind.GPU and one.pk != composition.storage]
    if others:
        errors["devices"] = _("{name} computes nothing: take GPUs, and one NVMe drive as storage.", name=others[0].name)
    for share, host in zip(composition.shares, hosts, strict=True):
        if share.local_gpus > host.local_gpu_count:
            errors["local_gpus"] = _("{name} has {count} GPUs of its own.", name=host.name, count=host.local_gpu_count)
    errors |= _count_errors(spec, composition, gpus, hosts)
    if errors:
        raise Invalid(next(iter(errors.values())), errors=errors)
    return hosts


def _hosts_errors(spec: Spec, composition: Composition, devices: Mapping[int, Device]) -> dict[str, str]:
    """Return what is wrong with the hosts of a run over several."""
    if len({*composition.hosts}) < len(composition.hosts):
        return {"other_hosts": _("A host is named twice.")}
    if len(devices) < sum(len(one.devices) for one in composition.shares):
        return {"devices": _("A device is named twice.")}
    if spec.hosts != len(composition.hosts):
        return {
            "hosts": _(
                "The specification is for {hosts} hosts, and {chosen} are chosen.",
                hosts=spec.hosts,
                chosen=len(composition.hosts),
            )
        }
    if composition.others and composition.storage is not None:
        return {
            "storage": _(
                "A drive of a chassis is at one host: over several, data is read from each host's own drive, or "
                "wherever each has it."
            )
        }
    return {}


def validate_trainers(
    person: User, hosts: Sequence[Host], spec: Spec, composition: Composition, executor: str
) -> list[TrainerCapabilities]:
    """Return what the trainers of a run's hosts can run.

    Raises Invalid for what one of them does not support, and Conflict if an agent does not report.
    """
    if executor not in EXECUTORS:
        raise Invalid(
            _("'{executor}' is no executor.", executor=executor[:50]),
            errors={"executor": _("One of {choices}.", choices=", ".join(EXECUTORS))},
        )
    found = [_validated_trainer(person, host, spec, composition, executor) for host in hosts]
    if len(hosts) > 1 and (sentence := _together_refusal(hosts, found, spec, executor)):
        raise Invalid(sentence, errors={"other_hosts": sentence})
    return found


def _together_refusal(hosts: Sequence[Host], trainers: Sequence[TrainerCapabilities], spec: Spec, executor: str) -> str:
    """Return why hosts cannot run something together, '' if they can."""
    if executor != "torch":
        is_link = workload_of(spec.workload).family == "link"
        return _("What links carry between hosts is not simulated: take the executor torch.") if is_link else ""
    for host, trainer in zip(hosts, trainers, strict=True):
        if not trainer.address:
            return _(
                "{name} takes part in no run over several hosts: set AGENT_RENDEZVOUS of its agent to its address in "
                "the network of these hosts.",
                name=host.name,
            )
        if trainer.framework != trainers[0].framework:
            return _(
                "{first} has {one}, and {second} has {other}: a run over several hosts needs the same on all.",
                first=hosts[0].name,
                one=trainers[0].framework,
                second=host.name,
                other=trainer.framework,
            )
    return ""


def _validated_trainer(
    person: User, host: Host, spec: Spec, composition: Composition, executor: str
) -> TrainerCapabilities:
    trainer = _host_trainer(host)
    sentence = ""
    if executor not in trainer.executors:
        offered = join_words(list(trainer.executors)) if trainer.executors else _("nothing")
        sentence = _("{name} offers {offered}, not {executor}.", name=host.name, offered=offered, executor=executor)
        if executor == "torch" and trainer.absent:
            sentence = joined([sentence, trainer.absent])
    elif executor == "torch" and spec.workload != COMMAND_WORKLOAD and spec.backend not in trainer.backends:
        there = join_words(list(trainer.backends)) if trainer.backends else _("nothing")
        sentence = _(
            "PyTorch of {name} runs on {there}, not on {backend}.", name=host.name, there=there, backend=spec.backend
        )
    elif unknown := spec.later_fields - {*trainer.spec_fields}:
        sentence = _(
            "The agent of {name} is of an earlier release, which does not know {fields}: update it to run this there.",
            name=host.name,
            fields=join_words(sorted(unknown)),
        )
    if sentence:
        raise Invalid(sentence, errors={"executor": sentence})
    has_drive = composition.own_drive or composition.storage is not None
    if has_drive and spec.workload == COMMAND_WORKLOAD:
        sentence = _("A command of your own reads what it names: no drive can be chosen for it.")
        raise Invalid(sentence, errors={"storage": sentence})
    if has_drive and executor == "torch" and not trainer.drives:
        sentence = _(
            "PyTorch of {name} reads no drive that is chosen: leave it out, or have the run simulated.", name=host.name
        )
        raise Invalid(sentence, errors={"storage": sentence})
    if spec.workload == COMMAND_WORKLOAD:
        _refuse_command(person, host, executor, trainer)
    return trainer


def _host_trainer(host: Host) -> TrainerCapabilities:
    agent = HostAgent.objects.filter(host=host).first()
    report = latest_report(agent) if agent is not None and not is_agent_away(agent) else None
    if report is None:
        raise Conflict(
            _("The agent of {name} does not report: nothing can be run there now.", name=host.name)
            if agent is not None
            else _("No agent runs on {name}: nothing can be run there.", name=host.name)
        )
    return report.trainer


def validated_topology(spec: Spec, composition: Composition, workload: Workload) -> Topology:
    """Return the topology of a composition; raises Invalid, with the size, if the workload exceeds device memory."""
    topology = composition_topology(composition)
    sentence = "" if workload.costs is None else model.fits(spec, topology)
    if sentence:
        raise Invalid(sentence, errors={"batch": sentence})
    return topology


def validate_attachments(person: User, composition: Composition) -> None:
    desired = desired_state(composition)
    if not desired.attachments:
        return
    parts = desired_parts(person, desired)
    check_permitted(person, desired, parts)
    refuse_unapproved(person, desired)
    planned = steps_plan(involved_drawers(projected_drawers(parts.chassis), desired), desired)
    check_no_foreign_parts(person.tenant, planned)
    if planned.objections:
        raise RuleViolation(planned.objections[0].sentence, objections=[one.sentence for one in planned.objections])


def refuse_unapproved(person: User, desired: DesiredState) -> None:
    """Raise Forbidden where attaching needs two people: a run is carried out by the site, and would need one alone."""
    if guarded_dangers() & set(desired_dangers(person, desired)):
        raise Forbidden(_("Attaching these devices needs two people: have a plan for it approved, then run."))


def desired_state(composition: Composition) -> DesiredState:
    return DesiredState(attachments=composition.all_devices)


def _share_devices(person: User, share: HostShare, host: Host) -> dict[int, Device]:
    rows = Device.objects.visible_to(person).filter(pk__in=share.devices).select_related("chassis")
    devices = {row.pk: row for row in rows}
    ports = {row.pk: row for row in HostPort.objects.visible_to(person).filter(pk__in=set(share.devices.values()))}
    for pk, port in share.devices.items():
        if pk not in devices:
            raise NotFound(_("There is no device {pk}.", pk=pk))
        if port not in ports:
            raise NotFound(_("There is no host port {port}.", port=port))
        if ports[port].host_id != host.pk:
            sentence = _("Host port {port} does not lead to {host}.", port=ports[port].label, host=host.name)
            raise Invalid(sentence, errors={"devices": sentence})
        if devices[pk].missing_since is not None:
            raise Conflict(
                _("{device} of {chassis} is missing.", device=devices[pk].name, chassis=devices[pk].chassis.name)
            )
    return devices


def _storage_errors(composition: Composition, devices: dict[int, Device], host: Host) -> dict[str, str]:
    if composition.own_drive:
        if composition.storage is not None:
            return {"own_drive": _("Data is read from one drive: the host's own, or one of a chassis.")}
        if current_own_drive(host.pk, latest_report(HostAgent.objects.filter(host=host).first())) is None:
            return {"own_drive": _("{name} shows no NVMe drive of its own.", name=host.name)}
        return {}
    if composition.storage is None:
        return {}
    drive = devices.get(composition.storage)
    if drive is None:
        return {"storage": _("The drive to read from is not among the devices.")}
    return {} if drive.kind == Device.Kind.NVME else {"storage": _("{name} is no NVMe drive.", name=drive.name)}


def _count_errors(spec: Spec, composition: Composition, gpus: Collection[int], hosts: Sequence[Host]) -> dict[str, str]:
    """Return the errors of a spec whose backend or number of devices differs from the composition."""
    there = sum(one.local_gpus for one in composition.shares) + len(gpus)
    if composition.cpu:
        if there:
            return {"cpu": _("A run on the CPU takes no GPUs.")}
        return {} if spec.backend == CPU_BACKEND else {"backend": _("A run on the CPU has the backend cpu.")}
    if spec.workload == COMMAND_WORKLOAD:
        return {}
    if spec.backend == CPU_BACKEND:
        return {"backend": _("A run on GPUs has the backend cuda. Take the CPU as its place, or another backend.")}
    if not there:
        return {"devices": _("No GPU is chosen: take some of the host's own, or of a chassis.")}
    if there != spec.devices:
        return {
            "devices": _(
                "The specification is for {devices} devices, and {there} are chosen.", devices=spec.devices, there=there
            )
        }
    for ranks, host in zip(rank_counts(composition, spec, gpus), hosts, strict=True):
        if not ranks:
            return {"devices": _("No GPU of {name} is chosen: take some, or leave the host out.", name=host.name)}
    return {}


def _refuse_command(person: User, host: Host, executor: str, trainer: TrainerCapabilities) -> None:
    """Refuse a user's own command on a host that is not granted to them, or that has no account for commands."""
    is_granted = person.tenant is not None and HostPort.objects.filter(host=host, tenant=person.tenant).exists()
    sentence = ""
    if executor != "torch":
        sentence = _("A command of your own cannot be simulated: take the executor torch.")
    elif not trainer.account:
        sentence = _("{name} runs no commands: its agent has no account for them.", name=host.name)
    elif not is_granted and not (person.is_administrator and person.tenant is None):
        sentence = _(
            "{name} is not granted to your tenant: your own commands run only on hosts that are.", name=host.name
        )
    if sentence:
        raise Invalid(sentence, errors={"host": sentence})
