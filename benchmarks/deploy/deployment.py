"""From a request to a deployment: container definitions, scripts, reasons, and what each option brings."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from benchmarks.deploy.gains import (
    OptionEvaluation,
    OptionGain,
    evaluate_options,
    spec_for_devices,
    topology_with_devices,
)
from benchmarks.deploy.job_files import (
    BASE_IMAGE,
    LaunchCommand,
    apptainer_definition,
    copies_source,
    dockerfile,
    job_script,
    launch_command,
    uses_base_image,
)
from benchmarks.deploy.modak import read_modak
from benchmarks.deploy.quoting import SHELL_OPERATORS, variable_references
from benchmarks.deploy.redaction import RedactedRequest, redact_secrets
from benchmarks.deploy.request import SCHEDULERS, DeploymentRequest, DeploymentTarget, FieldNote, FieldNotes, Scheduler
from benchmarks.deploy.short_form import read_short
from benchmarks.model import Belief
from benchmarks.model.prediction import Prediction
from benchmarks.model.topology import Topology
from core.strict_json import InvalidDocument, loads_strict

MAX_REQUEST_BYTES: Final = 256 * 2**10  # bytes of a request
RequestFormat = Literal["modak", "short"]
FILE_NAMES: Final = {
    "apptainer": ("container.def", "Apptainer definition"), "docker": ("Dockerfile", "Dockerfile"),
    "slurm": ("job.slurm", "Slurm script"), "torque": ("job.pbs", "Torque script"), "bash": ("job.sh", "Bash script"),
}  # fmt: skip


class TargetError(Exception):
    """A place that a request names cannot be used: the sentence says why."""

    def __init__(self, sentence: str) -> None:
        self.sentence = sentence
        super().__init__(sentence)


class DeploymentRequestError(Exception):
    """A request was refused: `errors` has a sentence for each JSON pointer, `told` what became of all fields."""

    def __init__(self, errors: Mapping[str, str], told: tuple[FieldNote, ...] = (), request: str = "") -> None:
        self.errors, self.told, self.request = dict(errors), told, request
        super().__init__(" ".join(self.errors.values()))


@dataclass(frozen=True, kw_only=True)
class DeploymentFile:
    """A file to take away; `is_wanted`: it is of the queue that was asked for."""

    kind: str
    name: str
    title: str
    text: str
    is_wanted: bool = True


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """What a request comes to. `secrets` are the variables to set before the job, with where each was in the request.

    `request` is the request with those variables in the place of its secrets. `why_not` says why nothing is predicted.
    """

    form: RequestFormat
    name: str
    scheduler: Scheduler
    files: tuple[DeploymentFile, ...]
    reasons: tuple[str, ...]
    told: tuple[FieldNote, ...]
    gains: tuple[OptionGain, ...]
    prediction: Prediction | None
    why_not: str
    secrets: Mapping[str, str]
    request: str


@dataclass(frozen=True)
class _ParsedRequest:
    """A request as it was read."""

    form: RequestFormat
    wanted: DeploymentRequest
    book: FieldNotes
    taken: RedactedRequest

    @property
    def request(self) -> str:
        return json.dumps(self.taken.plain, indent=2, ensure_ascii=False)

    def refuse_errors(self) -> None:
        """Raise DeploymentRequestError where a field was refused."""
        if self.book.errors:
            raise DeploymentRequestError(self.book.errors, tuple(self.book.told), self.request)


def deploy(
    text: str, *, find_topology: Callable[[DeploymentTarget], Topology], find_belief: Callable[[], Belief | None]
) -> Deployment:
    """Return what a request in either form comes to.

    `find_topology` may raise TargetError. Raises DeploymentRequestError with a sentence for each field that is wrong.
    """
    read = _parse_request(text)
    _refuse_persisted_secrets(read)
    read.refuse_errors()
    topology = _target_topology(read, find_topology)
    wanted = read.wanted
    reasons: list[str] = []
    if topology is not None:
        wanted, topology = _apply_devices(read, wanted, topology, reasons)
    read.refuse_errors()
    weighed = _evaluation(wanted, topology, find_belief)
    spec = weighed.spec or wanted.spec
    if weighed.does_not_fit and "batch" in wanted.fixed:
        read.book.note(_spec_pointer(read, "batch"), "refused", weighed.does_not_fit)
    read.refuse_errors()
    launch = launch_command(wanted, spec, topology.cores if topology is not None else None)
    reasons += _reasons(wanted, launch, weighed, read.taken)
    return Deployment(
        form=read.form,
        name=wanted.job.name,
        scheduler=wanted.job.scheduler,
        files=tuple(_deployment_files(wanted, launch, read.taken.names)),
        reasons=tuple(reasons),
        told=tuple(read.book.told),
        gains=weighed.gains,
        prediction=weighed.prediction,
        why_not=weighed.why_not,
        secrets=dict(read.taken.names),
        request=read.request,
    )


def _parse_request(text: str) -> _ParsedRequest:
    if len(text.encode("utf-8", "surrogatepass")) > MAX_REQUEST_BYTES:
        raise DeploymentRequestError({"/": f"The request is larger than {MAX_REQUEST_BYTES // 1024} KiB."})
    try:
        plain: Any = loads_strict(text)
    except InvalidDocument as error:
        raise DeploymentRequestError(
            {f"/{error.where.replace('.', '/')}" if error.where else "/": error.sentence}
        ) from error
    if not isinstance(plain, dict):
        raise DeploymentRequestError({"/": "A request is a JSON object."})
    taken = redact_secrets(plain)
    book = FieldNotes()
    for name, pointer in taken.names.items():
        book.note(pointer, "used", f"It is a secret, kept nowhere: ${{{name}}} stands for it. Set {name} for the job.")
    form: RequestFormat = "modak" if "job" in plain else "short"
    wanted = (read_modak if form == "modak" else read_short)(taken.plain, book)
    if wanted.job.scheduler == "bash" and wanted.job.nodes > 1:
        pointer = "/job/job_options/node_count" if form == "modak" else "/nodes"
        book.note(pointer, "refused", "A shell begins on one node: name slurm or torque for more.")
    return _ParsedRequest(form, wanted, book, taken)


def _refuse_persisted_secrets(read: _ParsedRequest) -> None:
    """Refuse secrets that would stay in the image."""
    kept = {"build_command": read.wanted.build_command, "container_runtime": read.wanted.image}
    for name, text in kept.items():
        if set(variable_references([text])) & set(read.taken.names):
            pointer = f"/job/application/build/{name}" if name == "build_command" else f"/job/application/{name}"
            read.book.note(pointer, "refused", "A secret in it would stay in the container: leave it out.")
    for place, package in enumerate(read.wanted.packages):
        if variable_references([package]):
            read.book.note(f"/packages/{place}", "refused", "A secret in it would stay in the container.")


def _target_topology(read: _ParsedRequest, find_topology: Callable[[DeploymentTarget], Topology]) -> Topology | None:
    place = read.wanted.place
    if place is None:
        return None
    try:
        return find_topology(place)
    except TargetError as error:
        # MODAK names infrastructures of all kinds: one that is no host here is not known, and not wrong.
        unknown = place.pointer == "/job/target/name"
        read.book.note(place.pointer, "ignored" if unknown else "refused", error.sentence)
        return None


def _apply_devices(
    read: _ParsedRequest, wanted: DeploymentRequest, topology: Topology, reasons: list[str]
) -> tuple[DeploymentRequest, Topology]:
    """Return what is wanted with the GPUs of a topology, and the topology with those that are wanted."""
    there, asked = len(topology.accelerators), wanted.job.gpus
    where = topology.host or topology.name or "the topology"
    if asked and asked > there:
        pointer = "/job/job_options/request_gpus" if read.form == "modak" else "/gpus"
        sentence = f"{asked} GPUs are asked for, and {where} has {there}. Name a composition that has them."
        read.book.note(pointer, "refused", sentence)
        return wanted, topology
    if not asked and there:
        reasons.append(f"All {there} GPUs of {where} are taken: the request names no number.")
        wanted = replace(wanted, job=replace(wanted.job, gpus=there))
    count = wanted.job.gpus or 0
    if wanted.spec is not None:
        wanted = replace(
            wanted, spec=spec_for_devices(wanted.spec, topology_with_devices(topology, count), count or None)
        )
    return wanted, topology_with_devices(topology, count)


def _evaluation(
    wanted: DeploymentRequest, topology: Topology | None, find_belief: Callable[[], Belief | None]
) -> OptionEvaluation:
    if wanted.spec is None:
        return OptionEvaluation(
            why_not="Nothing is predicted: no workload of the catalogue is named, nor known by its name."
        )
    if topology is None:
        return OptionEvaluation(why_not="Nothing is predicted: no host, composition or topology of this site is named.")
    return evaluate_options(wanted.spec, topology, find_belief(), fixed=wanted.fixed)


def _deployment_files(
    wanted: DeploymentRequest, launch: LaunchCommand, secrets: Mapping[str, str]
) -> list[DeploymentFile]:
    texts = {"apptainer": apptainer_definition(wanted), "docker": dockerfile(wanted)}
    for scheduler in SCHEDULERS:
        if scheduler != "bash" or wanted.job.nodes == 1:
            texts[scheduler] = job_script(wanted, launch, scheduler, secrets)
    order = [wanted.job.scheduler, "apptainer", "docker", *SCHEDULERS]
    return [
        DeploymentFile(
            kind=kind, name=FILE_NAMES[kind][0], title=FILE_NAMES[kind][1], text=texts[kind],
            is_wanted=kind in {wanted.job.scheduler, "apptainer", "docker"},
        )
        for kind in dict.fromkeys(order)
        if texts.get(kind)
    ]  # fmt: skip


def _reasons(
    wanted: DeploymentRequest, launch: LaunchCommand, weighed: OptionEvaluation, taken: RedactedRequest
) -> list[str]:
    """Return why the files are as they are, a sentence each."""
    found = [_container_reason(wanted), _launch_reason(wanted, launch)]
    if launch.threads:
        asked = "as asked for" if wanted.threads else f"{launch.cores} cores over {launch.processes} processes"
        found.append(f"OMP_NUM_THREADS is {launch.threads}: {asked}.")
    if weighed.gains and launch.unfilled:
        names = ", ".join(launch.unfilled)
        found.append(
            f"The command has no place for {names}: set what is missing in your program, or write "
            f"{{{launch.unfilled[0]}}} into the command."
        )
    if weighed.does_not_fit:
        found.append(f"By the model it would not run: {weighed.does_not_fit}")
    if weighed.prediction is not None:
        found += [f"{term.name.capitalize()}: {term.why}" for term in weighed.prediction.terms]
        if wanted.job.nodes > 1:
            found.append("Predictions are of one node: the model knows no network between nodes.")
    if any(SHELL_OPERATORS.search(one) for one in wanted.command):
        found.append(
            "Signs of a shell in the command are passed on as words: put a pipeline into a file, and run that."
        )
    if copies_source(wanted):
        found.append("The source needs a secret: clone it into the folder 'source' first, from where it is copied.")
    if taken.names:
        found.append(f"Set {', '.join(taken.names)} where you submit the job: no file has the secrets.")
    found.append("With CONTAINER set to nothing the script runs without a container.")
    return [one for one in found if one]


def _container_reason(wanted: DeploymentRequest) -> str:
    if not uses_base_image(wanted):
        return f"The container is made from {wanted.image}, as asked for."
    version = f" {wanted.framework_version}" if wanted.framework_version else ", the newest: name a version to keep it"
    return f"The container is made from {BASE_IMAGE}, with PyTorch{version}. Its wheels bring CUDA along."


def _launch_reason(wanted: DeploymentRequest, launch: LaunchCommand) -> str:
    if launch.kind == "torchrun":
        where = f" on each of {wanted.job.nodes} nodes" if wanted.job.nodes > 1 else ""
        return (
            f"torchrun begins {launch.processes} processes{where}, one a GPU, and tells each its rank: the program has "
            f"to use them (DistributedDataParallel).{_unused_processes(wanted, launch)}"
        )
    if launch.kind == "mpi":
        return f"MPI begins {launch.tasks} ranks on each node."
    several = (wanted.job.gpus or 0) * wanted.job.nodes > 1
    return "The command is begun once, as it is" + (
        ": it is no Python program, and has to use all GPUs by itself." if several else "."
    )


def _unused_processes(wanted: DeploymentRequest, launch: LaunchCommand) -> str:
    asked = wanted.job.processes
    if not asked or asked == launch.processes:
        return ""
    return f" The {asked} processes a node that are asked for are not begun: each GPU has one."


def _spec_pointer(read: _ParsedRequest, name: str) -> str:
    if read.form == "short":
        return f"/{name}"
    return f"/job/optimisation/app_type-ai_training/ai_framework-pytorch/{name}"
