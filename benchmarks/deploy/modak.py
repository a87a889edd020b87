"""Requests in the form of MODAK: {"job": {job_options, target, application, optimisation}}, each field explained."""

from __future__ import annotations

import dataclasses
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

FRAMEWORKS: Final = ("pytorch", "tensorflow", "keras", "cntk", "mxnet")
ANSWER_FIELDS: Final = ("job_script", "build_script", "job_content", "build_content")
# Fields of MODAK's specification that its scripts have, and those of this site have not.
UNSUPPORTED_FIELDS: Final = {
    "job_array": "One job is made at a time: submit the script with an array option of your queue.",
    "job_dependency": "Give it to the queue when you submit the script.",
    "defer_job": "Give it to the queue when you submit the script.",
    "architecture_constraint": "Name a host or nodes instead: they are known here.",
    "minimum_memory_per_processor": "Give memory_limit, of a node.",
    "core_count_per_process": "Cores are shared out by threads.",
    "partition": "Give queue.",
}
AUTOTUNING_NOTE: Final = "Options are weighed by the performance model instead: see the gains."


def read_modak(plain: dict[str, Any], book: FieldNotes) -> DeploymentRequest:
    """Return what a request of this form asks for; what is wrong with it is in the book."""
    root = ObjectMembers(plain, "", book)
    job = root.inner("job", needed=True)
    root.close()
    if job is None:
        return DeploymentRequest()
    for name in ANSWER_FIELDS:
        job.ignore(name, "It is part of an answer, not of a request.")
    options = job.inner("job_options", needed=True)
    application = job.inner("application", needed=True)
    optimisation = job.inner("optimisation")
    target = job.inner("target")
    job.close()
    wanted = DeploymentRequest(job=_read_options(options) if options else JobOptions())
    if application is not None:
        wanted = _read_application(application, wanted)
    if target is not None:
        wanted = _read_target(target, wanted)
    else:
        book.note("/job/target", "ignored", "There is none: a script for bash is made, and one for each queue beside.")
    if optimisation is not None:
        wanted = _read_optimisation(optimisation, wanted)
    return wanted


def _read_options(options: ObjectMembers) -> JobOptions:
    """Read what the queue is asked for."""
    combine = options.flag("combine_stdout_stderr", "Both outputs go into one file, or into two.")
    errors = options.text("standard_error_file", "The errors go there.", forms.PATH, "a path without spaces")
    if combine is False and not errors:
        options.refuse("standard_error_file", "It is missing, and the outputs shall not be combined.")
    notify = options.parsed("request_event_notification", "The queue writes then.", forms.parse_mail_events) or ()
    email = options.text("email_address", "The queue writes there.", forms.EMAIL, "an address of e-mail")
    if notify and not email:
        options.refuse("email_address", "It is missing, and somebody shall be told.")
    if options.raw("copy_environment_variable") is not MISSING:
        options.ignore("copy_environment_variable", "Name variables in the environment of this site's own form.")
    for name, why in UNSUPPORTED_FIELDS.items():
        options.ignore(name, why)
    job = JobOptions(
        name=options.parsed("job_name", "The queue shows it.", forms.parse_job_name) or "job",
        seconds=options.parsed("wall_time_limit", "The queue ends the job then.", forms.parse_duration),
        nodes=options.whole("node_count", "So many nodes are asked for.", most=4096) or 1,
        gpus=options.whole("request_gpus", "So many GPUs of each node.", most=64),
        cores=options.whole("core_count", "So many cores, shared by the processes of a node.", most=4096),
        processes=options.whole("process_count_per_node", "So many processes on each node.", most=4096),
        memory=options.parsed("memory_limit", "So much memory of each node.", forms.parse_memory) or "",
        queue=options.text("queue", "The queue to submit to.", forms.NAME, "a name"),
        account=options.text("account", "Who pays.", forms.NAME, "a name"),
        nodes_named=options.text("request_specific_nodes", "Only these nodes.", forms.NODES, "names of nodes"),
        exclusive=options.flag("node_exclusive", "Nobody else is on the nodes.") or False,
        output=options.text("standard_output_file", "The output goes there.", forms.PATH, "a path without spaces"),
        error="" if combine is not False else errors,
        notify=notify,
        email=email,
        copy_environment=options.flag("copy_environment", "Your environment goes with the job.") or False,
    )
    options.close()
    return job


def _read_application(application: ObjectMembers, wanted: DeploymentRequest) -> DeploymentRequest:
    """Read what runs."""
    words = application.parsed("executable", "It is run.", split_words) or ()
    more = application.parsed("arguments", "They follow it, each as one word.", split_words) or ()
    tag = application.text("app_tag", "Tells which workload it may be.")
    kind = application.choice("app_type", "mpi and hpc start ranks of MPI, python processes.", ("mpi", "hpc", "python"))
    build = application.inner("build")
    source = command = ""
    if build is not None:
        source = build.parsed("src", "The container has it.", _source_address) or ""
        command = build.parsed("build_command", "It is run when the container is built.", _single_line) or ""
        build.ignore("build_parallelism", "Write it into the build command.")
        build.close()
    for name in ("pre-execution", "post-execution"):
        application.ignore(name, "Make it part of the executable: what runs is one command.")
    application.ignore("minimal_efficiency", "Scaling is predicted with its interval instead: see the gains.")
    image = application.text(
        "container_runtime", "The container is made from it.", forms.IMAGE, "a name of an image, with its tag"
    )
    made = dataclasses.replace(
        wanted,
        command=(*words, *more),
        is_mpi=kind in {"mpi", "hpc"},
        ranks=application.whole("mpi_ranks", "So many ranks of MPI.", most=1_000_000) or 1,
        threads=application.whole("threads", "OMP_NUM_THREADS of each process.", most=1024),
        image=image.removeprefix("docker://"),
        build_source=source,
        build_command=command,
    )
    if not words and application.at("executable") not in application.book.errors:
        application.refuse("executable", "It is missing: there is nothing to run.")
    application.close()
    guess = guess_workload((tag, *made.command))
    if guess:
        application.book.note(
            application.at("app_tag" if tag and guess in guess_workload((tag,)) else "executable"),
            "used", f"Taken for {guess} in predictions, by its name.",
        )  # fmt: skip
        made = dataclasses.replace(made, spec=request_spec(guess, {}, made, FieldNotes(), ""))
    return made


def _read_target(target: ObjectMembers, wanted: DeploymentRequest) -> DeploymentRequest:
    """Read where it shall run."""
    kinds = ("slurm", "torque", "bash")
    scheduler = target.choice("job_scheduler_type", "The script is for it.", kinds) or target.choice(
        "queue_type", "The script is for it.", kinds
    )
    name = target.text("name", "A host of this site of that name tells the topology.")
    host, composition, topology = target.raw("host"), target.raw("composition"), target.raw("topology")
    place = None
    if isinstance(composition, dict):
        place = DeploymentTarget(pointer=target.at("composition"), composition=composition)
    elif isinstance(topology, dict):
        place = DeploymentTarget(pointer=target.at("topology"), topology=topology)
    elif host is not MISSING and isinstance(host, str | int) and not isinstance(host, bool):
        place = DeploymentTarget(pointer=target.at("host"), host=str(host)[:200])
    elif name:
        place = DeploymentTarget(pointer=target.at("name"), host=name)
    for member, value in (("composition", composition), ("topology", topology)):
        if value is not MISSING and not isinstance(value, dict):
            target.refuse(member, "An object is expected.")
    target.close()
    chosen: Scheduler = next((one for one in forms.SCHEDULERS if one == scheduler), "bash")
    return dataclasses.replace(wanted, job=dataclasses.replace(wanted.job, scheduler=chosen), place=place)


def _read_optimisation(optimisation: ObjectMembers, wanted: DeploymentRequest) -> DeploymentRequest:
    """Read what shall be made quicker."""
    optimisation.flag("enable_opt_build", "A container is made in either case.")
    optimisation.ignore("enable_autotuning", AUTOTUNING_NOTE)
    optimisation.ignore("autotuning", AUTOTUNING_NOTE)
    kind = optimisation.choice("app_type", "", ("ai_training", "hpc", "big_data", "ai_inference"))
    build = optimisation.inner("opt_build")
    if build is not None:
        build.choice("cpu_type", "The container is for it.", ("x86", "arm", "amd", "power"))
        accelerator = build.choice("acc_type", "The container gets GPUs of NVIDIA.", ("nvidia", "amd", "fpga"))
        if accelerator in {"amd", "fpga"}:
            build.refuse("acc_type", "Containers of this site have GPUs of NVIDIA, or none.")
        build.close()
    training = optimisation.inner("app_type-ai_training")
    for name in ("hpc", "big_data", "ai_inference"):
        optimisation.ignore(f"app_type-{name}", "The model of this site knows training alone: nothing is predicted.")
    if kind == "ai_training":
        optimisation.used("app_type", "It is a training: its options are weighed.")
    elif kind:
        optimisation.ignore("app_type", "Scripts are made; nothing is predicted of what is no training.")
    optimisation.close()
    if kind == "ai_training" and training is None:
        # Nobody has to fill in a section for a framework that is not used.
        return wanted
    return _read_training(training, wanted) if training is not None else wanted


def _read_training(training: ObjectMembers, wanted: DeploymentRequest) -> DeploymentRequest:
    config = training.inner("config")
    framework = "pytorch"
    given: dict[str, Any] = {}
    if config is not None:
        framework = config.choice("ai_framework", "The container has it.", FRAMEWORKS) or "pytorch"
        distributed = config.flag("distributed_training", "One process for each GPU, or one for all.")
        if distributed is False:
            given["strategy"] = "single"
        for name, why in {
            "type": "The workload is told by its name.", "layers": "The workload tells it.",
            "parameters": "The workload tells it.",
        }.items():  # fmt: skip
            config.ignore(name, why)
        config.close()
    data = training.inner("data")
    location = wanted.data
    if data is not None:
        location = data.text("location", "The container sees it there.", forms.FOLDER, "a path from the root on")
        for name in ("basedata", "size", "count", "etl"):
            data.ignore(name, "The workload tells what its samples are like.")
        data.close()
    version = ""
    for name in FRAMEWORKS:
        part = training.inner(f"ai_framework-{name}")
        if part is None:
            continue
        version = _read_framework(part, name, framework, given) or version
    training.close()
    made = dataclasses.replace(wanted, framework=framework, framework_version=version, data=location)
    workload = str(given.pop("workload", "") or (made.spec.workload if made.spec else ""))
    if workload:
        spec = request_spec(workload, given, made, training.book, training.at("ai_framework-pytorch"))
        made = dataclasses.replace(made, spec=spec, fixed=frozenset(given))
    if framework != "pytorch" and not made.image:
        pointer = "/job/application/container_runtime"
        training.book.note(pointer, "refused", f"Give an image that has {framework}: ours are made for PyTorch.")
    return made


def _read_framework(part: ObjectMembers, name: str, framework: str, given: dict[str, Any]) -> str:
    """Read the section of a framework; return its version, '' where it is of another one than is used."""
    if name != framework:
        for member in part.plain:
            part.ignore(member, f"The framework is {framework}.")
        return ""
    version = part.text("version", "The container has it.", forms.VERSION, "a version such as 2.4.0")
    if name == "pytorch":
        part.ignore("glow", "PyTorch compiles by torch.compile: see the gains.")
        for member in ("workload", "preset", *forms.SPEC_FIELDS):
            value = part.raw(member)
            if value is not MISSING:
                given[member] = value
                part.used(member, "Predictions are of it." if member == "workload" else "It is taken as asked for.")
    else:
        part.ignore("xla", "Set it in your program: scripts of this site set nothing of this framework.")
        part.ignore("backend", "The image decides.")
    part.close()
    return version


def _single_line(text: str) -> str:
    return refuse_control_characters(text.strip())


def _source_address(text: str) -> str:
    """Return an address of source; raises UnsafeError for what is none."""
    plain = refuse_control_characters(text.strip())
    if not plain.startswith(("https://", "http://", "git://", "ssh://", "git@")) or " " in plain:
        raise UnsafeError("It is an address that begins with https://, http://, git:// or ssh://.")
    return plain
