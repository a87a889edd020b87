"""Requests in this site's own short form: one flat object, and nothing in it that is not used."""

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
    Scheduler,
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


def read_short(plain: dict[str, Any], book: FieldNotes) -> DeploymentRequest:
    """Return what a request of this form asks for; what is wrong with it is in the book."""
    form = ObjectMembers(plain, "", book)
    scheduler = form.choice("scheduler", "The script is for it.", forms.SCHEDULERS)
    chosen: Scheduler = next((one for one in forms.SCHEDULERS if one == scheduler), "bash")
    job = JobOptions(
        name=form.parsed("name", "The queue shows it.", forms.parse_job_name) or "job",
        scheduler=chosen,
        seconds=form.parsed("time", "The queue ends the job then.", forms.parse_duration),
        nodes=form.whole("nodes", "So many nodes are asked for.", most=4096) or 1,
        gpus=form.whole("gpus", "So many GPUs of each node.", most=64),
        cores=form.whole("cores", "So many cores of each node.", most=4096),
        memory=form.parsed("memory", "So much memory of each node.", forms.parse_memory) or "",
        queue=form.text("queue", "The queue to submit to.", forms.NAME, "a name"),
        account=form.text("account", "Who pays.", forms.NAME, "a name"),
        output=form.text("output", "The output goes there.", forms.PATH, "a path without spaces"),
        notify=form.parsed("notify", "The queue writes then.", forms.parse_mail_events) or (),
        email=form.text("email", "The queue writes there.", forms.EMAIL, "an address of e-mail"),
    )
    if job.notify and not job.email:
        form.refuse("email", "It is missing, and somebody shall be told.")
    command = _read_command(form)
    wanted = DeploymentRequest(
        job=job,
        command=command,
        threads=form.whole("threads", "OMP_NUM_THREADS of each process.", most=256),
        image=form.text("image", "The container is made from it.", forms.IMAGE, "a name of an image").removeprefix(
            "docker://"
        ),
        framework_version=form.text(
            "framework_version", "The container has this PyTorch.", forms.VERSION, "a version such as 2.4.0"
        ),
        packages=_read_packages(form),
        environment=_read_environment(form),
        data=form.text("data", "The container sees it there.", forms.FOLDER, "a path from the root on"),
        place=_read_target(form),
    )
    return _with_spec(form, wanted)


def _read_command(form: ObjectMembers) -> tuple[str, ...]:
    value = form.raw("command")
    if value is MISSING:
        form.refuse("command", "It is missing: there is nothing to run.")
        return ()
    try:
        words = _command_words(value)
    except UnsafeError as error:
        form.refuse("command", error.sentence)
        return ()
    form.used("command", "It is run, each word as one word.")
    return words


def _command_words(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        words = split_words(value)
    elif isinstance(value, list) and all(isinstance(one, str) for one in value):
        words = tuple(refuse_control_characters(one) for one in value)
    else:
        raise UnsafeError("It is a text, or a list of words.")
    if not words:
        raise UnsafeError("There is nothing in it.")
    return words


def _read_environment(form: ObjectMembers) -> dict[str, str]:
    inner = form.inner("environment")
    if inner is None:
        return {}
    found: dict[str, str] = {}
    for name in list(inner.plain)[:MAX_VARIABLES]:
        if not forms.VARIABLE.fullmatch(str(name)):
            inner.refuse(str(name)[:80], "A variable has letters, digits and _, and begins with no digit.")
            continue
        value = inner.text(str(name), "The job has this variable.")
        if inner.at(str(name)) not in form.book.errors:
            found[str(name)] = value
    inner.close()
    return found


def _read_packages(form: ObjectMembers) -> tuple[str, ...]:
    value = form.raw("packages")
    if value is MISSING:
        return ()
    if not isinstance(value, list) or len(value) > 100 or not all(isinstance(one, str) for one in value):
        form.refuse("packages", "It is a list of up to 100 names of packages.")
        return ()
    for place, one in enumerate(value):
        if not forms.PACKAGE.fullmatch(one):
            form.book.note(f"/packages/{place}", "refused", "It is a name, with a version such as name==1.2.")
    form.used("packages", "The container has them.")
    return tuple(value)


def _read_target(form: ObjectMembers) -> DeploymentTarget | None:
    given = [(name, form.raw(name)) for name in TARGET_FIELDS]
    given = [(name, value) for name, value in given if value is not MISSING]
    if len(given) > 1:
        form.refuse(given[1][0], f"There is '{given[0][0]}' already: one place is enough.")
        return None
    for name, value in given:
        if name == "host" and isinstance(value, str | int) and not isinstance(value, bool):
            return DeploymentTarget(pointer="/host", host=str(value)[:200])
        if name == "composition" and isinstance(value, dict):
            return DeploymentTarget(pointer="/composition", composition=value)
        if name == "topology" and isinstance(value, dict):
            return DeploymentTarget(pointer="/topology", topology=value)
        form.refuse(name, "It is a name or id." if name == "host" else "An object is expected.")
    return None


def _with_spec(form: ObjectMembers, wanted: DeploymentRequest) -> DeploymentRequest:
    given: dict[str, Any] = {}
    for name in ("preset", *forms.SPEC_FIELDS):
        value = form.raw(name)
        if value is not MISSING:
            given[name] = value
            form.used(name, "It is taken as asked for.")
    workload = form.text("workload", "Predictions are of it.")
    form.close()
    if not workload:
        workload = guess_workload(wanted.command)
        if workload:
            form.used("command", f"Taken for {workload} in predictions, by its name.")
        elif given:
            form.refuse("workload", "It is missing, and options of a workload are asked for.")
    if not workload or "/workload" in form.book.errors:
        return wanted
    return replace(wanted, spec=request_spec(workload, given, wanted, form.book, ""), fixed=frozenset(given))
