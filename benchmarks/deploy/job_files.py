"""Job scripts, and how the command is launched."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

import msgspec

from benchmarks.deploy.quoting import shell_word, shell_words, variable_references
from benchmarks.deploy.request import DeploymentRequest, JobOptions, Scheduler, format_wall_time
from hostwire.training import Spec

SUBMIT_DIRECTORIES: Final[dict[Scheduler, str]] = {"slurm": "SLURM_SUBMIT_DIR", "torque": "PBS_O_WORKDIR", "bash": ""}
MAIL_EVENTS: Final = {"begin": ("BEGIN", "b"), "end": ("END", "e"), "fail": ("FAIL", "a")}


def job_script(
    request: DeploymentRequest, launch: LaunchCommand, scheduler: Scheduler, secrets: Mapping[str, str]
) -> str:
    """Return the script of a job; `secrets` are the names of variables that the caller must set."""
    gpus = request.job.gpus or (launch.processes if launch.kind == "torchrun" else 0)
    references = variable_references((*request.command, *request.environment.values()))
    needed = [name for name in references if request.environment.get(name, "") in {"", f"${{{name}}}"}]
    lines = ["#!/bin/bash", *_header_lines(request.job, launch, scheduler, gpus, needed), "", "set -euo pipefail"]
    if home := SUBMIT_DIRECTORIES[scheduler]:
        lines.append(f'cd "${{{home}:-.}}"')
    lines += [
        f': "${{{name}:?Set {name} before the job starts: it is a secret, and not part of this script}}"'
        for name in needed
        if name in secrets
    ]
    own = {name: value for name, value in request.environment.items() if value != f"${{{name}}}"}
    lines += [f"export {name}={shell_word(value)}" for name, value in own.items()]
    if launch.threads:
        lines.append(f"export OMP_NUM_THREADS={launch.threads}")
    lines += ["", *_container_lines(request, gpus)]
    if launch.spec is not None:
        plain = msgspec.json.encode(launch.spec).decode()
        lines.append(f"printf '%s\\n' {shell_word(plain)} > {shell_word(spec_file(request))}")
    lines += _command_lines(request, launch, scheduler)
    return "\n".join(lines) + "\n"


def _header_lines(
    job: JobOptions, launch: LaunchCommand, scheduler: Scheduler, gpus: int, needed: list[str]
) -> list[str]:
    if scheduler == "slurm":
        return [f"#SBATCH {one}" for one in _slurm_options(job, launch, gpus)]
    if scheduler == "torque":
        return [f"#PBS {one}" for one in _torque_options(job, launch, gpus, needed)]
    return [f"# {job.name}"]


def _slurm_options(job: JobOptions, launch: LaunchCommand, gpus: int) -> Iterable[str]:
    yield f"--job-name={job.name}"
    if job.seconds:
        yield f"--time={format_wall_time(job.seconds)}"
    yield f"--nodes={job.nodes}"
    yield f"--ntasks-per-node={launch.tasks}"
    if launch.cores:
        yield f"--cpus-per-task={max(1, launch.cores // launch.tasks)}"
    if gpus:
        yield f"--gres=gpu:{gpus}"
    options = {
        "mem": job.memory, "partition": job.queue, "account": job.account, "nodelist": job.nodes_named,
        "output": job.output, "error": job.error,
        "mail-type": ",".join(MAIL_EVENTS[one][0] for one in job.notify) if job.notify else "", "mail-user": job.email,
    }  # fmt: skip
    yield from (f"--{name}={value}" for name, value in options.items() if value)
    if job.exclusive:
        yield "--exclusive"
    if job.copy_environment:
        yield "--export=ALL"


def _torque_options(job: JobOptions, launch: LaunchCommand, gpus: int, needed: list[str]) -> Iterable[str]:
    yield "-S /bin/bash"
    # Torque limits names to 15 characters.
    yield f"-N {job.name[:15]}"
    if job.seconds:
        yield f"-l walltime={format_wall_time(job.seconds)}"
    each = f":ppn={max(launch.cores or 1, launch.tasks)}" + (f":gpus={gpus}" if gpus else "")
    names = job.nodes_named.split(",") if job.nodes_named and "[" not in job.nodes_named else []
    yield "-l nodes=" + ("+".join(f"{name}{each}" for name in names) if names else f"{job.nodes}{each}")
    if job.memory:
        yield f"-l mem={job.memory.lower()}b"
    if job.exclusive:
        yield "-n"
    options = {"q": job.queue, "A": job.account, "o": job.output, "e": job.error, "M": job.email}
    yield from (f"-{name} {value}" for name, value in options.items() if value)
    if not job.error:
        yield "-j oe"
    if job.notify:
        yield "-m " + "".join(sorted(MAIL_EVENTS[one][1] for one in job.notify))
    if job.copy_environment:
        yield "-V"
    elif needed:
        yield f"-v {','.join(needed)}"


def _container_lines(request: DeploymentRequest, gpus: int) -> list[str]:
    options = ["--nv"] if gpus else []
    if request.data:
        options += ["--bind", f"{request.data}:{request.data}"]
    inside = " ".join(part for part in ("apptainer exec", shell_words(options), '"$container"') if part)
    return [
        f'container="${{CONTAINER-{request.job.name}.sif}}"',
        "runtime=()",
        'if [ -n "$container" ]; then',
        f"  runtime=({inside})",
        "fi",
    ]


def _command_lines(request: DeploymentRequest, launch: LaunchCommand, scheduler: Scheduler) -> list[str]:
    inside = '${runtime[@]+"${runtime[@]}"}'
    nodes = request.job.nodes
    if launch.kind == "plain":
        return [f"{'srun ' if scheduler == 'slurm' and nodes > 1 else ''}{inside} {shell_words(launch.words)}"]
    if launch.kind == "mpi":
        count = launch.tasks * nodes
        launcher = f"srun --ntasks={count}" if scheduler == "slurm" else f"mpirun -np {count}"
        return [f"{launcher} {inside} {shell_words(launch.words)}"]
    before, after = torchrun_words(launch, nodes)
    port = [
        f'job="{JOB_NUMBERS[scheduler]}"', f"port=$(({FIRST_PORT} + ${{job%%[!0-9]*}} % {PORT_COUNT}))",
    ]  # fmt: skip
    if nodes == 1:
        meeting = '--master_addr=127.0.0.1 --master_port="$port"'
        return [*RENDEZVOUS_COMMENT, *port, f"{inside} {shell_words(before)} {meeting} {shell_words(after)}"]
    heads = {
        "slurm": 'head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        "torque": 'head=$(head -n 1 "$PBS_NODEFILE")',
    }
    launchers = {
        "slurm": f"srun --ntasks={nodes} --ntasks-per-node=1",
        "torque": f"mpirun -np {nodes} --map-by ppr:1:node",
    }
    # Each node finds its own number: torchrun takes options from variables PET_NAME.
    numbered = f"""bash -c 'PET_NODE_RANK="${NODE_RANKS[scheduler]}" exec "$@"' node"""
    meeting = '--master_addr="$head" --master_port="$port"'
    return [
        *RENDEZVOUS_COMMENT, *port, heads[scheduler],
        f"{launchers[scheduler]} {numbered} {inside} {shell_words(before)} {meeting} {shell_words(after)}",
    ]  # fmt: skip


PYTHON_PATTERN = re.compile(r"python(?:3(?:\.\d+)?)?")
# Fields of a specification that a command may have in braces.
SPEC_PLACEHOLDERS: Final = (
    "devices", "batch", "precision", "gradient", "strategy", "compile", "loader_workers", "threads",
)  # fmt: skip
PLACEHOLDER = re.compile(rf"\{{({'|'.join((*SPEC_PLACEHOLDERS, 'data'))})\}}")
# The number of a job chooses the port, so that two jobs on one node do not meet.
FIRST_PORT, PORT_COUNT = 20000, 10000
JOB_NUMBERS: Final = {"slurm": "${SLURM_JOB_ID:-$$}", "torque": "${PBS_JOBID:-$$}", "bash": "$$"}
NODE_RANKS: Final = {"slurm": "SLURM_PROCID", "torque": "OMPI_COMM_WORLD_RANK"}
RENDEZVOUS_COMMENT: Final = (
    "# Not --standalone, nor --rdzv-backend=c10d: torchrun listens on all addresses of the node, and there",
    "# unpickles (that is, runs) what anybody sends. The static rendezvous unpickles nothing; keep its port",
    "# closed to strangers all the same.",
)
SPEC_FILE_SUFFIX: Final = ".spec.json"


@dataclass(frozen=True, kw_only=True)
class LaunchCommand:
    """The launch of a job. `words` run on a node; `tasks` are started on each node by the queue or by MPI."""

    kind: str  # torchrun, mpi, plain
    words: tuple[str, ...]
    tasks: int
    processes: int
    threads: int | None
    cores: int | None
    unfilled: tuple[str, ...] = ()  # options without a placeholder in the command
    spec: Spec | None = None  # what the trainer of this site runs


def launch_command(request: DeploymentRequest, spec: Spec | None, cores: int | None) -> LaunchCommand:
    """Return the launch command of a request; `cores` are those of a node, None if unknown."""
    job, cores = request.job, request.job.cores or cores
    gpus = job.gpus or (spec.devices if spec is not None and spec.backend == "cuda" else 0)
    # A specification covers one node, whose one GPU is 'single': only what is requested keeps a job to one process.
    is_alone = spec is not None and spec.strategy in {"single", "dp"} and "strategy" in request.fixed
    command = trainer_words(request) if request.is_trainer else fill_placeholders(request, spec)
    is_python = bool(command) and PYTHON_PATTERN.fullmatch(PurePosixPath(command[0]).name) is not None
    spread = gpus * job.nodes > 1 and not is_alone
    kind, tasks, processes = "plain", 1, 1
    if request.is_trainer and spec is not None:
        processes = spec.processes  # the trainer starts them
    elif request.is_mpi:
        tasks = processes = job.processes or -(-request.ranks // job.nodes)
        kind = "mpi"
    elif request.framework == "pytorch" and is_python and spread:
        kind, processes = "torchrun", max(1, gpus)
    threads = request.threads or (spec.threads if spec is not None and spec.threads else None)
    if threads is None and cores:
        threads = max(1, cores // max(1, processes))
    return LaunchCommand(
        kind=kind,
        words=command,
        tasks=tasks,
        processes=processes,
        threads=threads,
        cores=cores,
        unfilled=_unfilled_options(request, spec) if spec is not None and not request.is_trainer else (),
        spec=spec if request.is_trainer else None,
    )


def trainer_words(request: DeploymentRequest) -> tuple[str, ...]:
    """Return the command of this site's trainer, which appends what happens to NAME.events.jsonl."""
    return ("python3", "-m", "trainer", spec_file(request), "--events", f"{request.job.name}.events.jsonl")


def spec_file(request: DeploymentRequest) -> str:
    """Return the name of the file with the specification that this site's trainer runs."""
    return f"{request.job.name}{SPEC_FILE_SUFFIX}"


def set_options(request: DeploymentRequest, spec: Spec | None) -> frozenset[str]:
    """Return the fields of a specification that the generated files set."""
    if request.is_trainer:
        return frozenset({*SPEC_PLACEHOLDERS})
    found = set(PLACEHOLDER.findall(" ".join(request.command))) & {*SPEC_PLACEHOLDERS}
    if launch_command(request, spec, None).kind in {"torchrun", "mpi"}:
        found.add("devices")
    return frozenset({*found, "threads"})  # OMP_NUM_THREADS


def _unfilled_options(request: DeploymentRequest, spec: Spec) -> tuple[str, ...]:
    named = set(PLACEHOLDER.findall(" ".join(request.command)))
    options = {
        "precision": spec.precision != "fp32", "compile": spec.compile, "loader_workers": spec.loader_workers > 0,
        "batch": True, "gradient": spec.gradient != "fp32",
    }  # fmt: skip
    return tuple(name for name, is_set in options.items() if is_set and name not in named)


def torchrun_words(launch: LaunchCommand, nodes: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words of torchrun before and after its rendezvous options."""
    command = launch.words[1:]
    # Underscores: releases before 2.0 know no hyphens.
    before = (f"--nnodes={nodes}", f"--nproc_per_node={launch.processes}")
    if command[:1] == ("-m",) and len(command) > 1:
        return ("torchrun", *before), ("-m", *command[1:])
    if command and not command[0].startswith("-"):
        return ("torchrun", *before), command
    # Options of the interpreter, or no program: torchrun starts the interpreter as requested.
    return ("torchrun", *before), ("--no-python", *launch.words)


def fill_placeholders(request: DeploymentRequest, spec: Spec | None) -> tuple[str, ...]:
    """Return the command with its placeholders, such as {batch}, replaced by values."""
    known = {"data": request.data}
    if spec is not None:
        known |= {name: str(getattr(spec, name)).lower() for name in SPEC_PLACEHOLDERS}
    return tuple(PLACEHOLDER.sub(lambda found: known.get(found[1]) or found[0], one) for one in request.command)
