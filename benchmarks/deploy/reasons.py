"""The reasons for the contents of a deployment's files, a sentence each."""

from __future__ import annotations

from benchmarks.deploy.containers import ContainerPlan, copies_source
from benchmarks.deploy.gains import OptionEvaluation
from benchmarks.deploy.job_files import LaunchCommand
from benchmarks.deploy.quoting import SHELL_OPERATORS
from benchmarks.deploy.redaction import RedactedRequest
from benchmarks.deploy.request import DeploymentRequest
from benchmarks.model.prediction import TERM_LABELS
from core.language import _, _n, joined


def deployment_reasons(
    plan: ContainerPlan, launch: LaunchCommand, weighed: OptionEvaluation, taken: RedactedRequest
) -> list[str]:
    """Return the reasons for the contents of the files, a sentence each."""
    request = plan.request
    found: list[str] = [*_container_reasons(plan), _launch_reason(request, launch)]
    if launch.threads:
        reason = (
            _("as requested")
            if request.threads
            else _("{cores} cores over {processes} processes", cores=launch.cores, processes=launch.processes)
        )
        found.append(_("OMP_NUM_THREADS is {threads}: {reason}.", threads=launch.threads, reason=reason))
    if weighed.gains and launch.unfilled:
        names = ", ".join(launch.unfilled)
        found.append(
            _(
                "The command has no placeholder for {names}: set the values in your program, or write {{{unfilled}}} "
                "into the command.",
                names=names,
                unfilled=launch.unfilled[0],
            )
        )
    if weighed.does_not_fit:
        found.append(_("The model predicts that it does not run: {reason}", reason=weighed.does_not_fit))
    if weighed.prediction is not None:
        found += [joined([_(TERM_LABELS[term.name]), term.why], ": ") for term in weighed.prediction.terms]
        if request.job.nodes > 1:
            found.append(_("Predictions cover one node: the model has no network between nodes."))
    if any(SHELL_OPERATORS.search(one) for one in request.command):
        found.append(
            _("Shell operators in the command are passed as arguments: put a pipeline into a script, and run that.")
        )
    if copies_source(request):
        found.append(
            _("The source needs a secret: clone it into the folder 'source' before building; it is copied from there.")
        )
    if taken.names:
        found.append(
            _(
                "Set {names} where you submit the job: the files do not contain the secrets.",
                names=", ".join(taken.names),
            )
        )
    found.append(_("With an empty CONTAINER the script runs without a container."))
    return [one for one in found if one]


def _container_reasons(plan: ContainerPlan) -> list[str]:
    request, base = plan.request, plan.base
    found: list[str]
    if request.image:
        found = [_("The container is based on {image}, as requested.", image=request.image)]
    elif base.build is None:
        found = [_("There is no container definition."), *base.reasons]
    else:
        found = [
            _(
                "The container is based on {image}, with PyTorch {version}.",
                image=base.build.image,
                version=base.version,
            ),
            *base.reasons,
        ]
    if plan.compiles:
        found.append(
            _("The container has a C++ compiler: torch.compile builds code when the job runs.")
            if not request.image
            else _("torch.compile needs a C++ compiler when the job runs: the image must have one.")
        )
    if request.is_trainer:
        found.append(
            _("Build the container in a checkout of FalconWeb: it copies the folders trainer and hostwire from there.")
        )
    return found


def _launch_reason(request: DeploymentRequest, launch: LaunchCommand) -> str:
    if launch.kind == "torchrun":
        requested = request.job.processes
        if request.job.nodes > 1:
            started = _(
                "torchrun starts {processes} processes on each of {nodes} nodes, one a GPU, and passes each its rank: "
                "the program must use them (DistributedDataParallel).",
                processes=launch.processes,
                nodes=request.job.nodes,
            )
        else:
            started = _(
                "torchrun starts {processes} processes, one a GPU, and passes each its rank: the program must use them "
                "(DistributedDataParallel).",
                processes=launch.processes,
            )
        if not requested or requested == launch.processes:
            return started
        unused = _n(
            "The {count} requested process a node is not started: each GPU has one.",
            "The {count} requested processes a node are not started: each GPU has one.",
            requested,
        )
        return joined([started, unused])
    if launch.kind == "mpi":
        return _("MPI starts {tasks} ranks on each node.", tasks=launch.tasks)
    if request.is_trainer:
        return _n(
            "This site's trainer starts {count} process, and they meet at the loopback address alone.",
            "This site's trainer starts {count} processes, and they meet at the loopback address alone.",
            launch.processes,
        )
    several = (request.job.gpus or 0) * request.job.nodes > 1
    if several:
        return _("The command is started once, unchanged: it is not a Python program, and must use all GPUs by itself.")
    return _("The command is started once, unchanged.")
