"""Requests in the form of MODAK: {"job": {job_options, target, application, optimisation}}, each field explained."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from benchmarks.deploy import request as forms
from benchmarks.deploy.bases import Architecture
from benchmarks.deploy.quoting import UnsafeError, refuse_control_characters, split_words
from benchmarks.deploy.request import (
    DeploymentRequest,
    DeploymentTarget,
    FieldNotes,
    JobOptions,
    ObjectMembers,
    guess_workload,
    request_spec,
)
from benchmarks.workloads.catalogue import workload_title
from core.language import _, gettext_noop

CPU_TYPES: Final[dict[str, Architecture]] = {
    "x86": "x86_64", "amd": "x86_64", "arm": "aarch64", "power": "ppc64le",
}  # fmt: skip
FRAMEWORKS: Final = ("pytorch", "tensorflow", "keras", "cntk", "mxnet")
ANSWER_FIELDS: Final = ("job_script", "build_script", "job_content", "build_content")
# Fields of MODAK's specification that scripts of this site do not support.
UNSUPPORTED_FIELDS: Final = {
    "job_array": gettext_noop("One job is made at a time: submit the script with an array option of your queue."),
    "job_dependency": gettext_noop("Pass it to the queue when you submit the script."),
    "defer_job": gettext_noop("Pass it to the queue when you submit the script."),
    "architecture_constraint": gettext_noop("Name a host or nodes of this site instead."),
    "minimum_memory_per_processor": gettext_noop("Set memory_limit, per node, instead."),
    "core_count_per_process": gettext_noop("Cores are distributed by threads."),
    "partition": gettext_noop("Set queue instead."),
}
AUTOTUNING_NOTE: Final = gettext_noop("A sweep of this site tunes instead: see the gains, and press Tune.")


def read_modak(plain: dict[str, Any], notes: FieldNotes) -> DeploymentRequest:
    """Parse a MODAK request; errors are recorded in `notes`."""
    root = ObjectMembers(plain, "", notes)
    job = root.inner("job", needed=True)
    root.close()
    if job is None:
        return DeploymentRequest()
    for name in ANSWER_FIELDS:
        job.ignore(name, _("It is part of an answer, not of a request."))
    options = job.inner("job_options", needed=True)
    application = job.inner("application", needed=True)
    optimisation = job.inner("optimisation")
    target = job.inner("target")
    job.close()
    request = DeploymentRequest(job=_read_options(options) if options else JobOptions())
    if application is not None:
        request = _read_application(application, request)
    if target is not None:
        request = _read_target(target, request)
    else:
        notes.note("/job/target", "ignored", _("It is missing: scripts for bash and for each queue are generated."))
    if optimisation is not None:
        request = _read_optimisation(optimisation, request)
    return request


def _read_options(options: ObjectMembers) -> JobOptions:
    combine = options.flag("combine_stdout_stderr", _("Selects one file for both outputs, or two."))
    errors = options.text(
        "standard_error_file", _("The file for standard error."), forms.PATH, _("a path without spaces")
    )
    if combine is False and not errors:
        options.refuse("standard_error_file", _("It is missing, but required if the outputs are not combined."))
    events = _("The events of which the queue sends e-mail.")
    notify = options.parsed_text("request_event_notification", events, forms.parse_mail_events) or ()
    email = options.text(
        "email_address", _("The recipient of the queue's e-mail."), forms.EMAIL, _("an e-mail address")
    )
    if notify and not email:
        options.refuse("email_address", _("It is missing, but required for notifications."))
    options.ignore("copy_environment_variable", _("Name variables in the environment of this site's own form."))
    for name, why in UNSUPPORTED_FIELDS.items():
        options.ignore(name, _(why))
    job = JobOptions(
        name=options.parsed_text("job_name", _("The name of the job in the queue."), forms.parse_job_name) or "job",
        seconds=options.parsed_text("wall_time_limit", _("The time limit of the job."), forms.parse_duration),
        nodes=options.whole("node_count", _("The number of nodes."), most=4096) or 1,
        gpus=options.whole("request_gpus", _("GPUs per node."), most=64),
        cores=options.whole("core_count", _("Cores per node, shared by its processes."), most=4096),
        processes=options.whole("process_count_per_node", _("Processes per node."), most=4096),
        memory=options.parsed_text("memory_limit", _("Memory per node."), forms.parse_memory) or "",
        queue=options.text("queue", _("The queue to submit to."), forms.NAME, _("a name")),
        account=options.text("account", _("The account to charge."), forms.NAME, _("a name")),
        nodes_named=options.text("request_specific_nodes", _("The nodes to use."), forms.NODES, _("names of nodes")),
        exclusive=options.flag("node_exclusive", _("The nodes are exclusive to the job.")) or False,
        output=options.text(
            "standard_output_file", _("The file for standard output."), forms.PATH, _("a path without spaces")
        ),
        error="" if combine is not False else errors,
        notify=notify,
        email=email,
        copy_environment=options.flag("copy_environment", _("Your environment is copied to the job.")) or False,
    )
    options.close()
    return job


def _read_application(application: ObjectMembers, request: DeploymentRequest) -> DeploymentRequest:
    words = application.parsed_text("executable", _("The command."), split_words) or ()
    more = application.parsed_text("arguments", _("Arguments of the command."), split_words) or ()
    tag = application.text("app_tag", _("A hint to the workload."))
    kind = application.choice(
        "app_type", _("mpi and hpc start MPI ranks, python starts processes."), ("mpi", "hpc", "python")
    )
    build = application.inner("build")
    source = command = ""
    if build is not None:
        source = build.parsed_text("src", _("Copied into the container."), _source_address) or ""
        command = build.text("build_command", _("Runs when the container is built."))
        build.ignore("build_parallelism", _("Write it into the build command."))
        build.close()
    for name in ("pre-execution", "post-execution"):
        application.ignore(name, _("Make it part of the executable: a job runs one command."))
    application.ignore("minimal_efficiency", _("Scaling is predicted with its interval instead: see the gains."))
    image = application.text(
        "container_runtime", _("The base image of the container."), forms.IMAGE, _("the name of an image, with its tag")
    )
    made = dataclasses.replace(
        request,
        command=(*words, *more),
        is_mpi=kind in {"mpi", "hpc"},
        ranks=application.whole("mpi_ranks", "The number of MPI ranks.", most=1_000_000) or 1,
        threads=application.whole("threads", "OMP_NUM_THREADS of each process.", most=1024),
        image=image.removeprefix("docker://"),
        build_source=source,
        build_command=command,
    )
    if not words and application.at("executable") not in application.notes.errors:
        application.refuse("executable", _("It is missing: there is nothing to run."))
    application.close()
    guess = guess_workload((tag, *made.command))
    if guess:
        application.notes.note(
            application.at("app_tag" if tag and guess in guess_workload((tag,)) else "executable"),
            "used", _("Taken for {workload} in predictions, by its name.", workload=workload_title(guess)),
        )  # fmt: skip
        made = dataclasses.replace(made, spec=request_spec(guess, {}, made, FieldNotes(), ""))
    return made


def _read_target(target: ObjectMembers, request: DeploymentRequest) -> DeploymentRequest:
    scheduler = target.choice(
        "job_scheduler_type", _("The scheduler of the script."), forms.SCHEDULERS
    ) or target.choice("queue_type", _("The scheduler of the script."), forms.SCHEDULERS)
    name = target.text("name", _("The host of this site that provides the topology."))
    places = [target.target(member) for member in ("composition", "topology", "host")]
    if name:
        places.append(DeploymentTarget(pointer=target.at("name"), host=name))
    target.close()
    job = dataclasses.replace(request.job, scheduler=scheduler or "bash")
    return dataclasses.replace(request, job=job, place=next(filter(None, places), None))


def _read_optimisation(optimisation: ObjectMembers, request: DeploymentRequest) -> DeploymentRequest:
    optimisation.flag("enable_opt_build", _("A container is generated in either case."))
    optimisation.ignore("enable_autotuning", _(AUTOTUNING_NOTE))
    optimisation.ignore("autotuning", _(AUTOTUNING_NOTE))
    kind = optimisation.choice("app_type", "", ("ai_training", "hpc", "big_data", "ai_inference"))
    build = optimisation.inner("opt_build")
    if build is not None:
        cpu = build.choice("cpu_type", _("The architecture of the container."), tuple(CPU_TYPES))
        request = dataclasses.replace(request, architecture=CPU_TYPES[cpu] if cpu else request.architecture)
        accelerator = build.choice("acc_type", _("The container uses NVIDIA GPUs."), ("nvidia", "amd", "fpga"))
        if accelerator in {"amd", "fpga"}:
            build.refuse("acc_type", _("Only NVIDIA GPUs are covered: leave it out, and name an image for others."))
        build.close()
    training = optimisation.inner("app_type-ai_training")
    for name in ("hpc", "big_data", "ai_inference"):
        optimisation.ignore(
            f"app_type-{name}", _("The model of this site covers training only: there is no prediction.")
        )
    if kind == "ai_training":
        optimisation.used("app_type", _("The options of a training are evaluated."))
    elif kind:
        optimisation.ignore("app_type", _("Scripts are generated; predictions cover training only."))
    optimisation.close()
    return _read_training(training, request) if training is not None else request


def _read_training(training: ObjectMembers, request: DeploymentRequest) -> DeploymentRequest:
    config = training.inner("config")
    framework = "pytorch"
    given: dict[str, Any] = {}
    if config is not None:
        framework = config.choice("ai_framework", _("Installed in the container."), FRAMEWORKS) or "pytorch"
        distributed = config.flag("distributed_training", _("One process for each GPU, or one for all."))
        if distributed is False:
            given["strategy"] = "single"
        for name, why in {
            "type": _("The name determines the workload."), "layers": _("The workload determines it."),
            "parameters": _("The workload determines it."),
        }.items():  # fmt: skip
            config.ignore(name, why)
        config.close()
    data = training.inner("data")
    location = request.data
    if data is not None:
        location = data.text(
            "location", _("Mounted at this path in the container."), forms.FOLDER, _("an absolute path")
        )
        for name in ("basedata", "size", "count", "etl"):
            data.ignore(name, _("The workload determines its samples."))
        data.close()
    version = ""
    for name in FRAMEWORKS:
        part = training.inner(f"ai_framework-{name}")
        if part is None:
            continue
        version = _read_framework(part, name, framework, given) or version
    training.close()
    made = dataclasses.replace(
        request, framework=framework, framework_version=version, data=location, tuning=given.pop("tuning", "")
    )
    workload = str(given.pop("workload", "") or (made.spec.workload if made.spec else ""))
    if workload:
        spec = request_spec(workload, given, made, training.notes, training.at("ai_framework-pytorch"))
        made = dataclasses.replace(made, spec=spec, fixed=frozenset(given))
    if framework != "pytorch" and not made.image:
        pointer = "/job/application/container_runtime"
        training.notes.note(
            pointer,
            "refused",
            _("Name an image with {framework}: images of this site have PyTorch.", framework=framework),
        )
    return made


def _read_framework(part: ObjectMembers, name: str, framework: str, given: dict[str, Any]) -> str:
    """Parse the section of a framework; return its version, '' if the framework is not used."""
    if name != framework:
        for member in part.plain:
            part.ignore(member, _("The framework is {framework}.", framework=framework))
        return ""
    version = part.text("version", _("Installed in the container."), forms.VERSION, _("a version such as 2.4.0"))
    if name == "pytorch":
        given["tuning"] = part.text(
            "tuning", _("The sweep whose best setting is taken."), forms.SWEEP_ID, _("the id of a sweep")
        )
        part.ignore("glow", _("PyTorch compiles with torch.compile: see the gains."))
        given |= part.spec_members("workload")
    else:
        part.ignore("xla", _("Set it in your program: scripts of this site do not configure this framework."))
        part.ignore("backend", _("Determined by the image."))
    part.close()
    return version


def _source_address(text: str) -> str:
    """Return the URL of the source; raises UnsafeError for anything else."""
    plain = refuse_control_characters(text.strip())
    if not plain.startswith(("https://", "http://", "git://", "ssh://", "git@")) or " " in plain:
        raise UnsafeError(_("It must be a URL that begins with https://, http://, git:// or ssh://."))
    return plain
