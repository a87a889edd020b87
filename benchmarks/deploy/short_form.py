"""Requests in this site's own short form: one flat object of used fields."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from benchmarks.deploy import request as forms
from benchmarks.deploy.bases import ARCHITECTURES
from benchmarks.deploy.quoting import UnsafeError, refuse_control_characters, split_words
from benchmarks.deploy.request import (
    MISSING,
    DeploymentRequest,
    DeploymentTarget,
    FieldNotes,
    JobOptions,
    ObjectMembers,
    guess_workload,
    request_spec,
)
from benchmarks.workloads.catalogue import workload_title
from core.language import _

MAX_VARIABLES: Final = 100
TARGET_FIELDS: Final = ("host", "composition", "topology")
EXAMPLE: Final = {
    "name": "resnet50",
    "command": "python train.py --batch-size {batch} --amp {precision} --workers {loader_workers}",
    "workload": "resnet50",
    "scheduler": "slurm",
    "time": "12:00:00",
    "gpus": 4,
    "framework_version": "2.4.0",
    "data": "/data/imagenet",
    "environment": {"HF_TOKEN": "${HF_TOKEN}"},
}


def read_short(plain: dict[str, Any], notes: FieldNotes) -> DeploymentRequest:
    """Parse a request in the short form; errors are recorded in `notes`."""
    form = ObjectMembers(plain, "", notes)
    job = JobOptions(
        scheduler=form.choice("scheduler", _("The scheduler of the script."), forms.SCHEDULERS) or "bash",
        name=form.parsed_text("name", _("The name of the job in the queue."), forms.parse_job_name) or "job",
        seconds=form.parsed_text("time", _("The time limit of the job."), forms.parse_duration),
        nodes=form.whole("nodes", _("The number of nodes."), most=4096) or 1,
        gpus=form.whole("gpus", _("GPUs per node."), most=64),
        cores=form.whole("cores", _("Cores per node."), most=4096),
        memory=form.parsed_text("memory", _("Memory per node."), forms.parse_memory) or "",
        queue=form.text("queue", _("The queue to submit to."), forms.NAME, _("a name")),
        account=form.text("account", _("The account to charge."), forms.NAME, _("a name")),
        output=form.text("output", _("The file for standard output."), forms.PATH, _("a path without spaces")),
        notify=form.parsed_text("notify", _("The events of which the queue sends e-mail."), forms.parse_mail_events)
        or (),
        email=form.text("email", _("The recipient of the queue's e-mail."), forms.EMAIL, _("an e-mail address")),
    )
    if job.notify and not job.email:
        form.refuse("email", _("It is missing, but required for notifications."))
    command = _read_command(form)
    request = DeploymentRequest(
        job=job,
        command=command,
        threads=form.whole("threads", _("OMP_NUM_THREADS of each process."), most=256),
        image=form.text(
            "image", _("The base image of the container."), forms.IMAGE, _("the name of an image")
        ).removeprefix("docker://"),
        framework_version=form.text(
            "framework_version",
            _("The version of PyTorch in the container."),
            forms.VERSION,
            _("a version such as 2.4.0"),
        ),
        packages=_read_packages(form),
        environment=_read_environment(form),
        data=form.text("data", _("Mounted at this path in the container."), forms.FOLDER, _("an absolute path")),
        place=_read_target(form),
        architecture=form.choice("architecture", _("The architecture of the container."), ARCHITECTURES),
        tuning=form.text("tuning", _("The sweep whose best setting is taken."), forms.SWEEP_ID, _("the id of a sweep")),
        driver=form.text("driver", _("NVIDIA's driver on the host."), forms.VERSION, _("a version such as 535.161.08")),
    )
    return _with_spec(form, request)


def _read_command(form: ObjectMembers) -> tuple[str, ...]:
    if form.raw("command") is MISSING and form.raw("workload") is MISSING:
        form.refuse("command", _("It is missing, and so is a workload: there is nothing to run."))
    return form.parsed("command", _("The command; each word is one argument."), _command_words) or ()


def _command_words(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        words = split_words(value)
    elif isinstance(value, list) and all(isinstance(one, str) for one in value):
        words = tuple(refuse_control_characters(one) for one in value)
    else:
        raise UnsafeError(_("It must be a text or a list of words."))
    if not words:
        raise UnsafeError(_("It is empty."))
    return words


def _read_environment(form: ObjectMembers) -> dict[str, str]:
    inner = form.inner("environment")
    if inner is None:
        return {}
    found: dict[str, str] = {}
    for name in list(inner.plain)[:MAX_VARIABLES]:
        if not forms.VARIABLE.fullmatch(str(name)):
            inner.refuse(str(name)[:80], _("A variable has letters, digits and _, and does not start with a digit."))
            continue
        value = inner.text(str(name), _("An environment variable of the job."))
        if inner.at(str(name)) not in form.notes.errors:
            found[str(name)] = value
    inner.close()
    return found


def _read_packages(form: ObjectMembers) -> tuple[str, ...]:
    value = form.raw("packages")
    if value is MISSING:
        return ()
    if not isinstance(value, list) or len(value) > 100 or not all(isinstance(one, str) for one in value):
        form.refuse("packages", _("It must be a list of up to 100 package names."))
        return ()
    for place, one in enumerate(value):
        if not forms.PACKAGE.fullmatch(one):
            form.notes.note(
                f"/packages/{place}", "refused", _("It must be a package name, with a version such as name==1.2.")
            )
    form.used("packages", _("Installed in the container."))
    return tuple(value)


def _read_target(form: ObjectMembers) -> DeploymentTarget | None:
    given = [name for name in TARGET_FIELDS if form.raw(name) is not MISSING]
    if len(given) > 1:
        form.refuse(given[1], _("Only one target is possible, and '{given}' is set.", given=given[0]))
        return None
    return form.target(given[0]) if given else None


def _with_spec(form: ObjectMembers, request: DeploymentRequest) -> DeploymentRequest:
    given = form.spec_members()
    workload = form.text("workload", _("The workload of the predictions."))
    form.close()
    if not workload:
        workload = guess_workload(request.command)
        if workload:
            form.used(
                "command", _("Taken for {workload} in predictions, by its name.", workload=workload_title(workload))
            )
        elif given:
            form.refuse("workload", _("It is missing, but required for options of a workload."))
    if not workload or "/workload" in form.notes.errors:
        return request
    is_trainer = not request.command and "/command" not in form.notes.errors
    if is_trainer and request.job.nodes > 1:
        form.refuse("nodes", _("This site's trainer runs on one node in a job: name a command for more."))
    spec = request_spec(workload, given, request, form.notes, "")
    return replace(request, spec=spec, fixed=frozenset(given), is_trainer=is_trainer)
