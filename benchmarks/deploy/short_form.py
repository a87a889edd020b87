"""Requests in this site's own short form: one flat object of used fields."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from benchmarks.deploy import request as forms
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
        scheduler=form.choice("scheduler", "The scheduler of the script.", forms.SCHEDULERS) or "bash",
        name=form.parsed_text("name", "The name of the job in the queue.", forms.parse_job_name) or "job",
        seconds=form.parsed_text("time", "The time limit of the job.", forms.parse_duration),
        nodes=form.whole("nodes", "The number of nodes.", most=4096) or 1,
        gpus=form.whole("gpus", "GPUs per node.", most=64),
        cores=form.whole("cores", "Cores per node.", most=4096),
        memory=form.parsed_text("memory", "Memory per node.", forms.parse_memory) or "",
        queue=form.text("queue", "The queue to submit to.", forms.NAME, "a name"),
        account=form.text("account", "The account to charge.", forms.NAME, "a name"),
        output=form.text("output", "The file for standard output.", forms.PATH, "a path without spaces"),
        notify=form.parsed_text("notify", "The events of which the queue sends e-mail.", forms.parse_mail_events) or (),
        email=form.text("email", "The recipient of the queue's e-mail.", forms.EMAIL, "an e-mail address"),
    )
    if job.notify and not job.email:
        form.refuse("email", "It is missing, but required for notifications.")
    command = _read_command(form)
    request = DeploymentRequest(
        job=job,
        command=command,
        threads=form.whole("threads", "OMP_NUM_THREADS of each process.", most=256),
        image=form.text("image", "The base image of the container.", forms.IMAGE, "the name of an image").removeprefix(
            "docker://"
        ),
        framework_version=form.text(
            "framework_version", "The version of PyTorch in the container.", forms.VERSION, "a version such as 2.4.0"
        ),
        packages=_read_packages(form),
        environment=_read_environment(form),
        data=form.text("data", "Mounted at this path in the container.", forms.FOLDER, "an absolute path"),
        place=_read_target(form),
    )
    return _with_spec(form, request)


def _read_command(form: ObjectMembers) -> tuple[str, ...]:
    if form.raw("command") is MISSING:
        form.refuse("command", "It is missing: there is nothing to run.")
    return form.parsed("command", "The command; each word is one argument.", _command_words) or ()


def _command_words(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        words = split_words(value)
    elif isinstance(value, list) and all(isinstance(one, str) for one in value):
        words = tuple(refuse_control_characters(one) for one in value)
    else:
        raise UnsafeError("It must be a text or a list of words.")
    if not words:
        raise UnsafeError("It is empty.")
    return words


def _read_environment(form: ObjectMembers) -> dict[str, str]:
    inner = form.inner("environment")
    if inner is None:
        return {}
    found: dict[str, str] = {}
    for name in list(inner.plain)[:MAX_VARIABLES]:
        if not forms.VARIABLE.fullmatch(str(name)):
            inner.refuse(str(name)[:80], "A variable has letters, digits and _, and does not start with a digit.")
            continue
        value = inner.text(str(name), "An environment variable of the job.")
        if inner.at(str(name)) not in form.notes.errors:
            found[str(name)] = value
    inner.close()
    return found


def _read_packages(form: ObjectMembers) -> tuple[str, ...]:
    value = form.raw("packages")
    if value is MISSING:
        return ()
    if not isinstance(value, list) or len(value) > 100 or not all(isinstance(one, str) for one in value):
        form.refuse("packages", "It must be a list of up to 100 package names.")
        return ()
    for place, one in enumerate(value):
        if not forms.PACKAGE.fullmatch(one):
            form.notes.note(
                f"/packages/{place}", "refused", "It must be a package name, with a version such as name==1.2."
            )
    form.used("packages", "Installed in the container.")
    return tuple(value)


def _read_target(form: ObjectMembers) -> DeploymentTarget | None:
    given = [name for name in TARGET_FIELDS if form.raw(name) is not MISSING]
    if len(given) > 1:
        form.refuse(given[1], f"Only one target is possible, and '{given[0]}' is set.")
        return None
    return form.target(given[0]) if given else None


def _with_spec(form: ObjectMembers, request: DeploymentRequest) -> DeploymentRequest:
    given = form.spec_members()
    workload = form.text("workload", "The workload of the predictions.")
    form.close()
    if not workload:
        workload = guess_workload(request.command)
        if workload:
            form.used("command", f"Taken for {workload} in predictions, by its name.")
        elif given:
            form.refuse("workload", "It is missing, but required for options of a workload.")
    if not workload or "/workload" in form.notes.errors:
        return request
    return replace(request, spec=request_spec(workload, given, request, form.notes, ""), fixed=frozenset(given))
