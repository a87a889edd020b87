"""Run requests: parsed from a file or the API, and validated."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from accounts.models import Tenant, User
from accounts.visibility import visible_or_404
from benchmarks import model
from benchmarks.model.topology import Topology
from benchmarks.runs.models import Run
from benchmarks.runs.rules import Composition
from benchmarks.runs.topology import composition_topology, current_own_drive
from benchmarks.workloads.catalogue import spec_of, workload_of
from benchmarks.workloads.definitions import SpecError, Workload, validate_spec
from core.errors import Conflict, Invalid, NotFound, RuleViolation
from core.strict_json import InvalidDocument, loads_strict
from fabric.agents.models import HostAgent
from fabric.agents.selectors import is_agent_away, latest_report
from fabric.inventory.models import Device, Host, HostPort
from fabric.operations.projected_state import projected_drawers
from fabric.plans.permissions import check_no_foreign_parts, check_permitted, desired_parts
from fabric.plans.rules import DesiredState
from fabric.plans.services import involved_drawers, steps_plan
from hostwire.protocol import TrainerCapabilities
from hostwire.training import Spec

MAX_FILE_LENGTH: Final = 256 * 1024  # characters
CUSTOM_PRESET: Final = "custom"
RowId = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]  # of a row: a database refuses others


class DeviceAttachment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A device, and the host port to attach it to."""

    device_id: RowId
    host_port_id: RowId


class CompositionInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The composition of a run in files and the API; see benchmarks.runs.rules.Composition."""

    host_id: RowId
    local_gpus: int = 0
    devices: tuple[DeviceAttachment, ...] = ()
    storage_device_id: RowId | None = None
    own_drive: bool = False
    cpu: bool = False

    def composition(self) -> Composition:
        """Return the composition; raises Invalid for a repeated device."""
        if len({one.device_id for one in self.devices}) < len(self.devices):
            raise Invalid("A device is named twice.", errors={"composition.devices": "Name each device once."})
        if not 0 <= self.local_gpus <= 64:
            raise Invalid("Those are no GPUs.", errors={"composition.local_gpus": "A number from 0 to 64."})
        return Composition(
            host=self.host_id,
            local_gpus=self.local_gpus,
            devices={one.device_id: one.host_port_id for one in self.devices},
            storage=self.storage_device_id,
            own_drive=self.own_drive,
            cpu=self.cpu,
        )


class Exercise(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A deliberate failure of a simulated run after a number of steps, to exercise error handling."""

    fails: str
    after: int = 0


class RunRequestInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A run request in files and the API."""

    workload: str
    composition: CompositionInput
    executor: str
    preset: str = CUSTOM_PRESET
    spec: dict[str, Any] = {}
    title: str = ""
    limit_seconds: float = 3600.0
    keep_composed: bool = False
    exercise: Exercise | None = None


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed run request, ready for `run_create`: from a form, a file, the API, a sweep or a recommendation.

    `exercise` makes a simulated run fail: {"fails": "crash", "after": 5}; its title says so.
    """

    spec: Spec
    composition: Composition
    executor: str
    preset: str = ""
    title: str = ""
    limit_seconds: float = 3600.0
    keep_composed: bool = False
    exercise: Mapping[str, Any] = {}


def parse_run_file(text: str) -> RunRequest:
    """Parse a file; raises Invalid, which names the field, or the line and character of a JSON error."""
    if len(text) > MAX_FILE_LENGTH:
        raise Invalid("The file is too long.", errors={"file": f"At most {MAX_FILE_LENGTH // 1024} KiB."})
    try:
        plain = loads_strict(text)
    except InvalidDocument as error:
        raise Invalid(error.sentence, errors={error.where or "file": error.sentence}) from error
    return parse_run_request(plain)


def parse_run_request(plain: Any) -> RunRequest:
    """Parse a run request; raises Invalid with a sentence for the wrong field."""
    try:
        given = msgspec.convert(plain, RunRequestInput)
    except msgspec.ValidationError as error:
        raise _field_error(error) from error
    composition = given.composition.composition()
    spec = spec_for_composition(given.workload, given.preset, given.spec, composition)
    exercise: Mapping[str, Any] = {}
    if given.exercise is not None:
        exercise = _validated_exercise(given.exercise, given.executor)
    return RunRequest(
        spec=spec,
        composition=composition,
        executor=given.executor,
        preset=given.preset,
        title=given.title,
        limit_seconds=given.limit_seconds,
        keep_composed=given.keep_composed,
        exercise=exercise,
    )


def spec_for_composition(workload: str, preset: str, given: Mapping[str, Any], composition: Composition) -> Spec:
    """Return the spec of a preset with the given values, for the number of devices in a composition.

    Raises Invalid with a sentence for each field that is wrong.
    """
    filled = dict(given)
    filled.setdefault("backend", "cpu" if composition.cpu else "cuda")
    if not composition.cpu and "devices" not in filled:
        filled["devices"] = max(1, composition.local_gpus + _gpu_count(composition))
    try:
        return spec_of(workload, preset, filled)
    except SpecError as error:
        raise Invalid(next(iter(error.errors.values())), errors=error.errors) from error


def run_file(run: Run) -> str:
    """Return a run as a JSON file that requests it again."""
    spec = {name: value for name, value in run.spec.items() if name not in {"workload", "framework"}}
    if not spec.get("command"):
        spec.pop("command", None)
    plain = {
        "workload": run.workload,
        "preset": run.preset or CUSTOM_PRESET,
        "spec": spec,
        "composition": Composition.from_json(run.composition).as_document(),
        "executor": run.executor,
        "title": run.title,
        "limit_seconds": run.limit_seconds,
        "keep_composed": run.keeps_devices,
        **({"exercise": run.exercise} if run.exercise else {}),
    }
    return json.dumps(plain, indent=2)


def _gpu_count(composition: Composition) -> int:
    """Return the number of computing devices of a composition; unknown devices are refused later."""
    others = Device.objects.filter(pk__in=composition.devices).exclude(kind=Device.Kind.GPU).count()
    return len(composition.devices) - others


def _validated_exercise(exercise: Exercise, executor: str) -> Mapping[str, Any]:
    kinds = ("out_of_memory", "crash", "hang")
    if exercise.fails not in kinds:
        sentence = f"One of {', '.join(kinds)}."
        raise Invalid("There is no such exercise.", errors={"exercise.fails": sentence})
    if executor != "simulated":
        sentence = "Only a simulated run ends badly on demand."
        raise Invalid(sentence, errors={"exercise": sentence})
    if not 0 <= exercise.after <= 10**6:
        raise Invalid("That is no step.", errors={"exercise.after": "A number from 0 to 1,000,000."})
    return {"fails": exercise.fails, "after": exercise.after}


def _field_error(error: msgspec.ValidationError) -> Invalid:
    """Return a msgspec error, 'Expected `int`, got `str` - at `$.a.b`', as a sentence for its field."""
    words, _, where = str(error).partition(" - at ")
    field = where.strip("`").removeprefix("$").lstrip(".")
    sentence = f"{words[:1].upper()}{words[1:]}.".replace("`", "'")
    return Invalid(f"{field or 'The file'}: {sentence}", errors={field or "file": sentence})


EXECUTORS: Final = ("torch", "simulated")
MAX_LIMIT_SECONDS: Final = 30 * 86400.0  # s
MAX_OPEN_RUNS: Final = 500  # runs of one person
COMMAND_WORKLOAD: Final = "command"


def validated_workload(spec: Spec) -> Workload:
    """Return the workload of a spec; raises Invalid, a sentence for each field that is wrong."""
    try:
        workload = workload_of(spec.workload)
    except KeyError as error:
        raise Invalid(
            f"There is no workload '{spec.workload[:50]}'.", errors={"workload": "Take one of the catalogue."}
        ) from error
    try:
        validate_spec(workload, spec)
    except SpecError as error:
        raise Invalid(next(iter(error.errors.values())), errors=error.errors) from error
    return workload


def refuse_too_many_open(person: User) -> None:
    """Raise Conflict if a person has too many open runs."""
    if Run.objects.open().filter(requested_by=person).count() >= MAX_OPEN_RUNS:
        raise Conflict(f"You have {MAX_OPEN_RUNS} runs that have not ended. Wait for some of them, or cancel them.")


def validated_host(person: User, spec: Spec, composition: Composition) -> Host:
    """Return the host of a composition whose members are validated.

    Raises NotFound for what the person may not see, Invalid for a contradiction, Conflict for a missing device.
    """
    host: Host = visible_or_404(Host.objects, person, composition.host, "host")
    devices = _composition_devices(person, composition, host)
    errors = _storage_errors(composition, devices, host)
    gpus = [one for one in devices.values() if one.kind == Device.Kind.GPU]
    others = [one for one in devices.values() if one.kind != Device.Kind.GPU and one.pk != composition.storage]
    if others:
        errors["devices"] = f"{others[0].name} computes nothing: take GPUs, and one NVMe drive as storage."
    if composition.local_gpus > host.local_gpu_count:
        errors["local_gpus"] = f"{host.name} has {host.local_gpu_count} GPUs of its own."
    errors |= _count_errors(spec, composition, len(gpus))
    if errors:
        raise Invalid(next(iter(errors.values())), errors=errors)
    return host


def validated_trainer(
    person: User, host: Host, spec: Spec, composition: Composition, executor: str
) -> TrainerCapabilities:
    """Return the host's capabilities; raises Invalid for an unsupported executor, Conflict without a report."""
    if executor not in EXECUTORS:
        raise Invalid(f"'{executor[:50]}' is no executor.", errors={"executor": f"One of {', '.join(EXECUTORS)}."})
    trainer = host_trainer(host)
    sentence = ""
    if executor not in trainer.executors:
        offered = " and ".join(trainer.executors) or "nothing"
        sentence = f"{host.name} offers {offered}, not {executor}."
        if executor == "torch" and trainer.absent:
            sentence = f"{sentence} {trainer.absent}"
    elif executor == "torch" and spec.workload != COMMAND_WORKLOAD and spec.backend not in trainer.backends:
        there = " and ".join(trainer.backends) or "nothing"
        sentence = f"PyTorch of {host.name} runs on {there}, not on {spec.backend}."
    if sentence:
        raise Invalid(sentence, errors={"executor": sentence})
    has_drive = composition.own_drive or composition.storage is not None
    if has_drive and spec.workload == COMMAND_WORKLOAD:
        sentence = "A command of your own reads what it names: no drive can be chosen for it."
        raise Invalid(sentence, errors={"storage": sentence})
    if has_drive and executor == "torch" and not trainer.drives:
        sentence = f"PyTorch of {host.name} reads no drive that is chosen: leave it out, or have the run simulated."
        raise Invalid(sentence, errors={"storage": sentence})
    if spec.workload == COMMAND_WORKLOAD:
        _refuse_command(person, host, executor, trainer)
    return trainer


def host_trainer(host: Host) -> TrainerCapabilities:
    """Return the capabilities that a host's agent reports; raises Conflict without a report."""
    agent = HostAgent.objects.filter(host=host).first()
    report = latest_report(agent) if agent is not None and not is_agent_away(agent) else None
    if report is None:
        raise Conflict(
            f"The agent of {host.name} does not report: nothing can be run there now."
            if agent is not None
            else f"No agent runs on {host.name}: nothing can be run there."
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
    """Raise the conflict that prevents attaching the devices of a composition."""
    wanted = desired_state(composition)
    if not wanted.attachments:
        return
    parts = desired_parts(person, wanted)
    check_permitted(person, wanted, parts)
    planned = steps_plan(involved_drawers(projected_drawers(parts.chassis), wanted), wanted)
    check_no_foreign_parts(person.tenant, planned)
    if planned.objections:
        raise RuleViolation(planned.objections[0].sentence, objections=[one.sentence for one in planned.objections])


def desired_state(composition: Composition) -> DesiredState:
    """Return the desired allocation of a composition."""
    return DesiredState(attachments=dict(composition.devices))


def _composition_devices(person: User, composition: Composition, host: Host) -> dict[int, Device]:
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


def _storage_errors(composition: Composition, devices: dict[int, Device], host: Host) -> dict[str, str]:
    if composition.own_drive:
        return _own_drive_errors(composition, host)
    if composition.storage is None:
        return {}
    drive = devices.get(composition.storage)
    if drive is None:
        return {"storage": "The drive to read from is not among the devices."}
    return {} if drive.kind == Device.Kind.NVME else {"storage": f"{drive.name} is no NVMe drive."}


def _own_drive_errors(composition: Composition, host: Host) -> dict[str, str]:
    if composition.storage is not None:
        return {"own_drive": "Data is read from one drive: the host's own, or one of a chassis."}
    if current_own_drive(host.pk, latest_report(HostAgent.objects.filter(host=host).first())) is None:
        return {"own_drive": f"{host.name} shows no NVMe drive of its own."}
    return {}


def _count_errors(spec: Spec, composition: Composition, gpus: int) -> dict[str, str]:
    """Return the errors of a spec whose backend or number of devices differs from the composition."""
    there = composition.local_gpus + gpus
    if composition.cpu:
        if there:
            return {"cpu": "A run on the CPU takes no GPUs."}
        return {} if spec.backend == CPU_BACKEND else {"backend": "A run on the CPU has the backend cpu."}
    if spec.workload == COMMAND_WORKLOAD:
        return {}
    if spec.backend == CPU_BACKEND:
        return {"backend": "A run on GPUs has the backend cuda. Take the CPU as its place, or another backend."}
    if not there:
        return {"devices": "No GPU is chosen: take some of the host's own, or of a chassis."}
    if there != spec.devices:
        return {"devices": f"The specification is for {spec.devices} devices, and {there} are chosen."}
    return {}


CPU_BACKEND: Final = "cpu"


def _refuse_command(person: User, host: Host, executor: str, trainer: TrainerCapabilities) -> None:
    """Refuse a user's own command on a host that is not granted to them, or that has no account for commands."""
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
