"""What stands against a run that somebody asks for: a sentence for each, before anything is changed."""

from __future__ import annotations

from typing import Final

from accounts.models import Tenant, User
from benchmarks import model
from benchmarks.model.shapes import Topology
from benchmarks.runs.composition import Composition
from benchmarks.runs.drives import own_drive_now
from benchmarks.runs.models import Run
from benchmarks.runs.placing import topology_of
from benchmarks.workloads.catalogue import workload_of
from benchmarks.workloads.shapes import Workload
from benchmarks.workloads.specs import SpecError, spec_checked
from fabric.models import Device, Host, HostAgent, HostPort
from fabric.outlook import drawers_seen
from fabric.planning import Wanted
from fabric.services.agents import is_away, report_of
from fabric.services.plan_rights import parts_of, refuse_forbidden, refuse_others
from fabric.services.plans import involved, steps_planned
from falconweb.errors import Conflict, Invalid, NotFound, RuleViolation
from hostwire.shapes import Trainer
from hostwire.training import Spec

EXECUTORS: Final = ("torch", "simulated")
LONGEST_LIMIT: Final = 30 * 86400.0  # s
MOST_OPEN: Final = 500  # runs of one person
COMMAND: Final = "command"


def workload_checked(spec: Spec) -> Workload:
    """Return the workload of a spec; raises Invalid, a sentence for each field that is wrong."""
    try:
        workload = workload_of(spec.workload)
    except KeyError as error:
        raise Invalid(
            f"There is no workload '{spec.workload[:50]}'.", errors={"workload": "Take one of the catalogue."}
        ) from error
    try:
        spec_checked(workload, spec)
    except SpecError as error:
        raise Invalid(next(iter(error.errors.values())), errors=error.errors) from error
    return workload


def refuse_too_many(person: User) -> None:
    """Raise Conflict where a person has very many runs that have not ended."""
    if Run.objects.open().filter(requested_by=person).count() >= MOST_OPEN:
        raise Conflict(f"You have {MOST_OPEN} runs that have not ended. Wait for some of them, or cancel them.")


def place_checked(person: User, spec: Spec, composition: Composition) -> Host:
    """Return the host of a composition, after a look at all that it names.

    Raises NotFound for what the person may not see, Invalid for what does not go together, Conflict for what is
    missing.
    """
    host: Host | None = Host.objects.visible_to(person).filter(pk=composition.host).first()
    if host is None:
        raise NotFound("There is no such host.")
    devices = _devices(person, composition, host)
    errors = _wrong_storage(composition, devices, host)
    gpus = [one for one in devices.values() if one.kind == Device.Kind.GPU]
    others = [one for one in devices.values() if one.kind != Device.Kind.GPU and one.pk != composition.storage]
    if others:
        errors["devices"] = f"{others[0].name} computes nothing: take GPUs, and one NVMe drive as storage."
    if composition.local_gpus > host.local_gpu_count:
        errors["local_gpus"] = f"{host.name} has {host.local_gpu_count} GPUs of its own."
    errors |= _wrong_count(spec, composition, len(gpus))
    if errors:
        raise Invalid(next(iter(errors.values())), errors=errors)
    return host


def executor_checked(person: User, host: Host, spec: Spec, composition: Composition, executor: str) -> Trainer:
    """Return what the host can run; raises Invalid for an executor that it has not, Conflict where nobody tells."""
    if executor not in EXECUTORS:
        raise Invalid(f"'{executor[:50]}' is no executor.", errors={"executor": f"One of {', '.join(EXECUTORS)}."})
    trainer = trainer_of(host)
    sentence = ""
    if executor not in trainer.executors:
        offered = " and ".join(trainer.executors) or "nothing"
        sentence = f"{host.name} offers {offered}, not {executor}."
        if executor == "torch" and trainer.absent:
            sentence = f"{sentence} {trainer.absent}"
    elif executor == "torch" and spec.workload != COMMAND and spec.backend not in trainer.backends:
        there = " and ".join(trainer.backends) or "nothing"
        sentence = f"PyTorch of {host.name} runs on {there}, not on {spec.backend}."
    if sentence:
        raise Invalid(sentence, errors={"executor": sentence})
    has_drive = composition.own_drive or composition.storage is not None
    if has_drive and spec.workload == COMMAND:
        sentence = "A command of your own reads what it names: no drive can be chosen for it."
        raise Invalid(sentence, errors={"storage": sentence})
    if has_drive and executor == "torch" and not trainer.drives:
        sentence = f"PyTorch of {host.name} reads no drive that is chosen: leave it out, or have the run simulated."
        raise Invalid(sentence, errors={"storage": sentence})
    if spec.workload == COMMAND:
        _refuse_command(person, host, executor, trainer)
    return trainer


def trainer_of(host: Host) -> Trainer:
    """Return what a host's agent says that it can run; raises Conflict where none reports."""
    agent = HostAgent.objects.filter(host=host).first()
    report = report_of(agent) if agent is not None and not is_away(agent) else None
    if report is None:
        raise Conflict(
            f"The agent of {host.name} does not report: nothing can be run there now."
            if agent is not None
            else f"No agent runs on {host.name}: nothing can be run there."
        )
    return report.trainer


def memory_checked(spec: Spec, composition: Composition, workload: Workload) -> Topology:
    """Return what a composition gets; raises Invalid, with the number, where the workload does not fit a device."""
    topology = topology_of(composition)
    sentence = "" if workload.costs is None else model.fits(spec, topology)
    if sentence:
        raise Invalid(sentence, errors={"batch": sentence})
    return topology


def rules_checked(person: User, composition: Composition) -> None:
    """Raise what stands against attaching the devices of a composition as it wants them."""
    wanted = wanted_of(composition)
    if not wanted.attachments:
        return
    parts = parts_of(person, wanted)
    refuse_forbidden(person, wanted, parts)
    planned = steps_planned(involved(drawers_seen(parts.chassis), wanted), wanted)
    refuse_others(person.tenant, planned)
    if planned.objections:
        raise RuleViolation(planned.objections[0].sentence, objections=[one.sentence for one in planned.objections])


def wanted_of(composition: Composition) -> Wanted:
    """Return a composition as a wanted allocation."""
    return Wanted(attachments=dict(composition.devices))


def _devices(person: User, composition: Composition, host: Host) -> dict[int, Device]:
    rows = Device.objects.visible_to(person).filter(pk__in=composition.devices).select_related("chassis")
    devices = {row.pk: row for row in rows}
    ports = {
        row.pk: row for row in HostPort.objects.visible_to(person).filter(pk__in=set(composition.devices.values()))
    }
    for pk, port in composition.devices.items():
        if pk not in devices:
            raise NotFound(f"There is no device {pk}.")
        if port not in ports:
            raise NotFound(f"There is no host port {port}.")
        if ports[port].host_id != host.pk:
            sentence = f"Host port {ports[port].label} does not lead to {host.name}."
            raise Invalid(sentence, errors={"devices": sentence})
        if devices[pk].missing_since is not None:
            raise Conflict(f"{devices[pk].name} of {devices[pk].chassis.name} is missing.")
    return devices


def _wrong_storage(composition: Composition, devices: dict[int, Device], host: Host) -> dict[str, str]:
    if composition.own_drive:
        return _wrong_own_drive(composition, host)
    if composition.storage is None:
        return {}
    drive = devices.get(composition.storage)
    if drive is None:
        return {"storage": "The drive to read from is not among the devices."}
    return {} if drive.kind == Device.Kind.NVME else {"storage": f"{drive.name} is no NVMe drive."}


def _wrong_own_drive(composition: Composition, host: Host) -> dict[str, str]:
    if composition.storage is not None:
        return {"own_drive": "Data is read from one drive: the host's own, or one of a chassis."}
    if own_drive_now(host.pk, report_of(HostAgent.objects.filter(host=host).first())) is None:
        return {"own_drive": f"{host.name} shows no NVMe drive of its own."}
    return {}


def _wrong_count(spec: Spec, composition: Composition, gpus: int) -> dict[str, str]:
    """Return what is wrong where a spec counts other devices than there are."""
    there = composition.local_gpus + gpus
    if composition.cpu:
        if there:
            return {"cpu": "A run on the CPU takes no GPUs."}
        return {} if spec.backend == CPU else {"backend": "A run on the CPU has the backend cpu."}
    if spec.workload == COMMAND:
        return {}
    if spec.backend == CPU:
        return {"backend": "A run on GPUs has the backend cuda. Take the CPU as its place, or another backend."}
    if not there:
        return {"devices": "No GPU is chosen: take some of the host's own, or of a chassis."}
    if there != spec.devices:
        return {"devices": f"The specification is for {spec.devices} devices, and {there} are chosen."}
    return {}


CPU: Final = "cpu"


def _refuse_command(person: User, host: Host, executor: str, trainer: Trainer) -> None:
    """Raise where a person's own command may not run: on a host that is not theirs, or without an account for it."""
    sentence = ""
    if executor != "torch":
        sentence = "A command of your own cannot be simulated: take the executor torch."
    elif not trainer.account:
        sentence = f"{host.name} runs no commands: its agent has no account for them."
    elif not _is_granted(person.tenant, host) and not (person.is_administrator and person.tenant is None):
        sentence = f"{host.name} is not granted to your tenant: your own commands run only on hosts that are."
    if sentence:
        raise Invalid(sentence, errors={"host": sentence})


def _is_granted(tenant: Tenant | None, host: Host) -> bool:
    return tenant is not None and HostPort.objects.filter(host=host, tenant=tenant).exists()
