"""Deployments from requests: container definitions, scripts, reasons, and the gain of each option."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from msgspec.structs import replace as replace_struct

from benchmarks.deploy.bases import BaseChoice, TargetFacts, choose_base
from benchmarks.deploy.containers import ContainerPlan, apptainer_definition, dockerfile
from benchmarks.deploy.gains import (
    OptionEvaluation,
    OptionGain,
    evaluate_options,
    spec_for_devices,
    topology_with_devices,
)
from benchmarks.deploy.job_files import LaunchCommand, job_script, launch_command, set_options
from benchmarks.deploy.modak import read_modak
from benchmarks.deploy.quoting import variable_references
from benchmarks.deploy.reasons import deployment_reasons
from benchmarks.deploy.redaction import RedactedRequest, redact_secrets
from benchmarks.deploy.request import SCHEDULERS, DeploymentRequest, DeploymentTarget, FieldNote, FieldNotes, Scheduler
from benchmarks.deploy.short_form import read_short
from benchmarks.deploy.tuning import Tuning
from benchmarks.model.calibration import Observation
from benchmarks.model.prediction import Prediction
from benchmarks.model.topology import Topology
from core.errors import FalconWebError, Invalid
from core.language import _, _n, gettext_noop
from core.strict_json import InvalidDocument, loads_strict
from hostwire.training import Spec

MAX_REQUEST_BYTES: Final = 256 * 2**10
RequestFormat = Literal["modak", "short"]
MODAK_TRAINING: Final = "/job/optimisation/app_type-ai_training/ai_framework-pytorch"
FILE_NAMES: Final = {
    "apptainer": ("container.def", gettext_noop("Apptainer definition")), "docker": ("Dockerfile", "Dockerfile"),
    "slurm": ("job.slurm", gettext_noop("Slurm script")), "torque": ("job.pbs", gettext_noop("Torque script")),
    "bash": ("job.sh", gettext_noop("Bash script")),
}  # fmt: skip


class DeploymentRequestError(Invalid):
    """A request was refused: `errors` has a sentence for each JSON pointer, `notes` the treatment of all fields."""

    def __init__(self, errors: Mapping[str, str], notes: tuple[FieldNote, ...] = (), request: str = "") -> None:
        super().__init__(_("The request cannot be deployed: a field of it is wrong."), errors=dict(errors))
        self.errors, self.notes, self.request = dict(errors), notes, request


@dataclass(frozen=True, kw_only=True)
class DeploymentFile:
    """A generated file; `is_wanted`: it is a container definition or the script of the requested scheduler."""

    kind: str
    name: str
    title: str
    text: str
    is_wanted: bool = True


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """The result of a request. `secrets` maps the variables to set before the job to their place in the request.

    `request` is the request with its secrets replaced by those variables. `why_not` is the reason for no prediction.
    """

    form: RequestFormat
    name: str
    scheduler: Scheduler
    files: tuple[DeploymentFile, ...]
    reasons: tuple[str, ...]
    notes: tuple[FieldNote, ...]
    gains: tuple[OptionGain, ...]
    prediction: Prediction | None
    why_not: str
    secrets: Mapping[str, str]
    request: str
    tuning: Tuning | None = None
    tunable: TunableJob | None = None


@dataclass(frozen=True, kw_only=True)
class TunableJob:
    """What a tuning varies: a specification at a place, in the fields that files set and the request leaves open."""

    spec: Spec
    topology: Topology
    place: DeploymentTarget
    variable: frozenset[str]


@dataclass(frozen=True)
class _ParsedRequest:
    form: RequestFormat
    request: DeploymentRequest
    notes: FieldNotes
    taken: RedactedRequest

    @property
    def redacted_json(self) -> str:
        return json.dumps(self.taken.plain, indent=2, ensure_ascii=False)

    def option_pointer(self, name: str) -> str:
        """Return the JSON pointer to an option of the workload."""
        return f"/{name}" if self.form == "short" else f"{MODAK_TRAINING}/{name}"

    def refuse_errors(self) -> None:
        if self.notes.errors:
            raise DeploymentRequestError(self.notes.errors, tuple(self.notes.all), self.redacted_json)


def deploy(
    text: str,
    *,
    find_topology: Callable[[DeploymentTarget], Topology],
    find_observations: Callable[[], Sequence[Observation]] = tuple,
    find_facts: Callable[[DeploymentTarget], TargetFacts] = lambda _place: TargetFacts(),
    find_tuning: Callable[[str], Tuning | None] = lambda _sweep: None,
) -> Deployment:
    """Return the deployment for a request in either form.

    `find_topology` and `find_tuning`, of the id of a sweep, may raise FalconWebError; `find_facts` is asked of places
    that were found. Raises DeploymentRequestError with a sentence for each wrong field.
    """
    read = _parse_request(text)
    _refuse_persisted_secrets(read)
    read.refuse_errors()
    topology = _target_topology(read, find_topology)
    request = read.request
    reasons: list[str] = []
    if topology is not None:
        request, topology = _apply_devices(read, request, topology, reasons)
    untuned = request
    tuning = _find_tuning(read, request, find_tuning)
    if tuning is not None and tuning.best is not None and request.spec is not None:
        chosen = {name: value for name, value in tuning.best.values.items() if name not in request.fixed}
        request = replace(request, spec=replace_struct(request.spec, **chosen), fixed=request.fixed | frozenset(chosen))
    read.refuse_errors()
    weighed = _evaluation(request, topology, find_observations)
    spec = weighed.spec or request.spec
    if weighed.does_not_fit and "batch" in request.fixed:
        read.notes.note(read.option_pointer("batch"), "refused", weighed.does_not_fit)
    read.refuse_errors()
    launch = launch_command(request, spec, topology.cores if topology is not None else None)
    facts = find_facts(request.place) if request.place is not None and topology is not None else TargetFacts()
    base = _container_base(request, launch, topology, facts)
    plan = ContainerPlan(request=request, base=base, compiles=spec is not None and spec.compile)
    reasons += deployment_reasons(plan, launch, weighed, read.taken)
    return Deployment(
        form=read.form,
        name=request.job.name,
        scheduler=request.job.scheduler,
        files=tuple(_deployment_files(plan, launch, read.taken.names)),
        reasons=tuple(reasons),
        notes=tuple(read.notes.all),
        gains=tuple(_tuned_gain(one, tuning) for one in weighed.gains),
        prediction=weighed.prediction,
        why_not=weighed.why_not,
        secrets=dict(read.taken.names),
        request=read.redacted_json,
        tuning=tuning,
        tunable=_tunable(untuned, topology),
    )


def _tuned_gain(gain: OptionGain, tuning: Tuning | None) -> OptionGain:
    """Return a gain with the tuning as its reason, where the tuning chose it."""
    if tuning is None or tuning.best is None or not gain.taken or gain.option not in tuning.best.values:
        return gain
    return replace(gain, why=_("Chosen by the tuning."))


def _find_tuning(
    read: _ParsedRequest, request: DeploymentRequest, find_tuning: Callable[[str], Tuning | None]
) -> Tuning | None:
    """Return the requested tuning; one of another job is refused."""
    if not request.tuning:
        return None
    pointer = read.option_pointer("tuning")
    try:
        tuning = find_tuning(request.tuning)
    except FalconWebError as error:
        read.notes.note(pointer, "refused", error.sentence)
        return None
    spec = request.spec
    if tuning is not None and (spec is None or (tuning.workload, tuning.devices) != (spec.workload, spec.devices)):
        read.notes.note(pointer, "refused", _("This sweep tuned another workload, or another number of devices."))
        return None
    return tuning


def _tunable(request: DeploymentRequest, topology: Topology | None) -> TunableJob | None:
    """Return what a tuning would vary; None without a place and a workload."""
    if request.spec is None or topology is None or request.place is None:
        return None
    variable = set_options(request, request.spec) - request.fixed
    return TunableJob(spec=request.spec, topology=topology, place=request.place, variable=variable)


def _parse_request(text: str) -> _ParsedRequest:
    if len(text.encode("utf-8", "surrogatepass")) > MAX_REQUEST_BYTES:
        raise DeploymentRequestError({"/": _("The request is larger than {size} KiB.", size=MAX_REQUEST_BYTES // 1024)})
    try:
        plain: Any = loads_strict(text)
    except InvalidDocument as error:
        raise DeploymentRequestError({f"/{error.where.replace('.', '/')}": error.sentence}) from error
    if not isinstance(plain, dict):
        raise DeploymentRequestError({"/": _("A request must be a JSON object.")})
    taken = redact_secrets(plain)
    notes = FieldNotes()
    for name, pointer in taken.names.items():
        notes.note(
            pointer, "used", _("A secret, stored nowhere: ${{{name}}} replaces it. Set {name} for the job.", name=name)
        )
    form: RequestFormat = "modak" if "job" in plain else "short"
    request = (read_modak if form == "modak" else read_short)(taken.plain, notes)
    if request.job.scheduler == "bash" and request.job.nodes > 1:
        pointer = "/job/job_options/node_count" if form == "modak" else "/nodes"
        notes.note(pointer, "refused", _("A bash script runs on one node: use slurm or torque for more."))
    return _ParsedRequest(form, request, notes, taken)


def _refuse_persisted_secrets(read: _ParsedRequest) -> None:
    kept = {"build_command": read.request.build_command, "container_runtime": read.request.image}
    for name, text in kept.items():
        if set(variable_references([text])) & set(read.taken.names):
            pointer = f"/job/application/build/{name}" if name == "build_command" else f"/job/application/{name}"
            read.notes.note(pointer, "refused", _("A secret in it would stay in the container: remove it."))
    for place, package in enumerate(read.request.packages):
        if variable_references([package]):
            read.notes.note(f"/packages/{place}", "refused", _("A secret in it would stay in the container."))


def _target_topology(read: _ParsedRequest, find_topology: Callable[[DeploymentTarget], Topology]) -> Topology | None:
    place = read.request.place
    if place is None:
        return None
    try:
        return find_topology(place)
    except FalconWebError as error:
        # MODAK names infrastructures of all kinds, so a name that is not a host here is not an error.
        unknown = place.pointer == "/job/target/name"
        read.notes.note(place.pointer, "ignored" if unknown else "refused", error.sentence)
        return None


def _apply_devices(
    read: _ParsedRequest, request: DeploymentRequest, topology: Topology, reasons: list[str]
) -> tuple[DeploymentRequest, Topology]:
    """Return the request with the GPUs of a topology, and the topology reduced to the requested GPUs."""
    available, requested = len(topology.accelerators), request.job.gpus
    where = topology.host or topology.name or _("the topology")
    if requested and requested > available:
        pointer = "/job/job_options/request_gpus" if read.form == "modak" else "/gpus"
        sentence = _n(
            "{count} GPU is requested, but {where} has {available}. Name a composition that has it.",
            "{count} GPUs are requested, but {where} has {available}. Name a composition that has them.",
            requested,
            where=where,
            available=available,
        )
        read.notes.note(pointer, "refused", sentence)
        return request, topology
    if not requested and available:
        reasons.append(
            _(
                "All {available} GPUs of {where} are used: the request names no number.",
                available=available,
                where=where,
            )
        )
        request = replace(request, job=replace(request.job, gpus=available))
    count = request.job.gpus or 0
    if request.spec is not None:
        request = replace(
            request, spec=spec_for_devices(request.spec, topology_with_devices(topology, count), count or None)
        )
    return request, topology_with_devices(topology, count)


def _evaluation(
    request: DeploymentRequest, topology: Topology | None, find_observations: Callable[[], Sequence[Observation]]
) -> OptionEvaluation:
    if request.spec is not None and topology is not None:
        settable = set_options(request, request.spec)
        return evaluate_options(request.spec, topology, find_observations(), fixed=request.fixed, settable=settable)
    if request.spec is None:
        why_not = _(
            "No prediction: the request names no workload of the catalogue, and none can be guessed. Add ‘workload’ to "
            "it."
        )
    else:
        why_not = _(
            "No prediction: the request names no host, composition or topology of this site. Add ‘host’ to it, or "
            "‘target.name’ in MODAK’s format."
        )
    return OptionEvaluation(why_not=why_not)


def _container_base(
    request: DeploymentRequest, launch: LaunchCommand, topology: Topology | None, facts: TargetFacts
) -> BaseChoice:
    """Return the base for the target: what the request says of it, else what the site knows."""
    known = replace(
        facts,
        architecture=request.architecture or facts.architecture,
        driver=request.driver or facts.driver,
        models=tuple(one.model for one in topology.accelerators) if topology is not None else (),
    )
    gpus = bool(request.job.gpus) or launch.kind == "torchrun"
    return choose_base(known, request.framework_version, gpus=gpus)


def _deployment_files(plan: ContainerPlan, launch: LaunchCommand, secrets: Mapping[str, str]) -> list[DeploymentFile]:
    request = plan.request
    texts = {"apptainer": apptainer_definition(plan), "docker": dockerfile(plan)}
    for scheduler in SCHEDULERS:
        if scheduler != "bash" or request.job.nodes == 1:
            texts[scheduler] = job_script(request, launch, scheduler, secrets)
    order = [request.job.scheduler, "apptainer", "docker", *SCHEDULERS]
    return [
        DeploymentFile(
            kind=kind, name=FILE_NAMES[kind][0], title=_(FILE_NAMES[kind][1]), text=texts[kind],
            is_wanted=kind in {request.job.scheduler, "apptainer", "docker"},
        )
        for kind in dict.fromkeys(order)
        if texts.get(kind)
    ]  # fmt: skip
