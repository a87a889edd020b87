"""Scripts for Slurm, for Torque, and for a shell alone. Nothing in them is anybody's text but as a word of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from benchmarks.deploy.launching import PORT, Launch, torchrun
from benchmarks.deploy.quoting import references, word, words
from benchmarks.deploy.wanted import Job, Scheduler, Wanted, told_seconds

HOMES: Final[dict[Scheduler, str]] = {"slurm": "SLURM_SUBMIT_DIR", "torque": "PBS_O_WORKDIR", "bash": ""}
MAIL: Final = {"begin": ("BEGIN", "b"), "end": ("END", "e"), "fail": ("FAIL", "a")}


def script(wanted: Wanted, launch: Launch, scheduler: Scheduler, secrets: Mapping[str, str]) -> str:
    """Return the script of a job; `secrets` are the names of variables that it needs and does not have."""
    gpus = wanted.job.gpus or (launch.processes if launch.kind == "torchrun" else 0)
    needed = [name for name in references(_texts(wanted)) if wanted.environment.get(name, "") in {"", f"${{{name}}}"}]
    lines = ["#!/bin/bash", *_head(wanted.job, launch, scheduler, gpus, needed), "", "set -euo pipefail"]
    if home := HOMES[scheduler]:
        lines.append(f'cd "${{{home}:-.}}"')
    lines += [
        f': "${{{name}:?Set {name} before the job begins: it is a secret, and not part of this script}}"'
        for name in needed
        if name in secrets
    ]
    own = {name: value for name, value in wanted.environment.items() if value != f"${{{name}}}"}
    lines += [f"export {name}={word(value)}" for name, value in own.items()]
    if launch.threads:
        lines.append(f"export OMP_NUM_THREADS={launch.threads}")
    lines += ["", *_runtime(wanted, gpus), *_begin(wanted, launch, scheduler)]
    return "\n".join(lines) + "\n"


def _texts(wanted: Wanted) -> Iterable[str]:
    yield from wanted.command
    yield from wanted.environment.values()


def _head(job: Job, launch: Launch, scheduler: Scheduler, gpus: int, needed: list[str]) -> list[str]:
    if scheduler == "slurm":
        return [f"#SBATCH {one}" for one in _slurm(job, launch, gpus)]
    if scheduler == "torque":
        return [f"#PBS {one}" for one in _torque(job, launch, gpus, needed)]
    return [f"# {job.name}"]


def _slurm(job: Job, launch: Launch, gpus: int) -> Iterable[str]:
    yield f"--job-name={job.name}"
    if job.seconds:
        yield f"--time={told_seconds(job.seconds)}"
    yield f"--nodes={job.nodes}"
    yield f"--ntasks-per-node={launch.tasks}"
    if launch.cores:
        yield f"--cpus-per-task={max(1, launch.cores // launch.tasks)}"
    if gpus:
        yield f"--gres=gpu:{gpus}"
    told = {
        "mem": job.memory, "partition": job.queue, "account": job.account, "nodelist": job.nodes_named,
        "output": job.output, "error": job.error,
        "mail-type": ",".join(MAIL[one][0] for one in job.notify) if job.notify else "", "mail-user": job.email,
    }  # fmt: skip
    yield from (f"--{name}={value}" for name, value in told.items() if value)
    if job.exclusive:
        yield "--exclusive"
    if job.copy_environment:
        yield "--export=ALL"


def _torque(job: Job, launch: Launch, gpus: int, needed: list[str]) -> Iterable[str]:
    yield "-S /bin/bash"
    # A name of Torque has 15 characters at most.
    yield f"-N {job.name[:15]}"
    if job.seconds:
        yield f"-l walltime={told_seconds(job.seconds)}"
    each = f":ppn={max(launch.cores or 1, launch.tasks)}" + (f":gpus={gpus}" if gpus else "")
    names = job.nodes_named.split(",") if job.nodes_named and "[" not in job.nodes_named else []
    yield "-l nodes=" + ("+".join(f"{name}{each}" for name in names) if names else f"{job.nodes}{each}")
    if job.memory:
        yield f"-l mem={job.memory.lower()}b"
    if job.exclusive:
        yield "-n"
    told = {"q": job.queue, "A": job.account, "o": job.output, "e": job.error, "M": job.email}
    yield from (f"-{name} {value}" for name, value in told.items() if value)
    if not job.error:
        yield "-j oe"
    if job.notify:
        yield "-m " + "".join(sorted(MAIL[one][1] for one in job.notify))
    if job.copy_environment:
        yield "-V"
    elif needed:
        yield f"-v {','.join(needed)}"


def _runtime(wanted: Wanted, gpus: int) -> list[str]:
    """Return what puts a command into its container; with CONTAINER set to nothing it runs without one."""
    options = ["--nv"] if gpus else []
    if wanted.data:
        options += ["--bind", f"{wanted.data}:{wanted.data}"]
    inside = " ".join(part for part in ("apptainer exec", words(options), '"$container"') if part)
    return [
        f'container="${{CONTAINER-{wanted.job.name}.sif}}"',
        "runtime=()",
        'if [ -n "$container" ]; then',
        f"  runtime=({inside})",
        "fi",
    ]


def _begin(wanted: Wanted, launch: Launch, scheduler: Scheduler) -> list[str]:
    """Return the lines that begin it."""
    inside = '${runtime[@]+"${runtime[@]}"}'
    nodes = wanted.job.nodes
    if launch.kind == "plain":
        return [f"{'srun ' if scheduler == 'slurm' and nodes > 1 else ''}{inside} {words(launch.words)}"]
    if launch.kind == "mpi":
        count = launch.tasks * nodes
        begin = f"srun --ntasks={count}" if scheduler == "slurm" else f"mpirun -np {count}"
        return [f"{begin} {inside} {words(launch.words)}"]
    before, after = torchrun(launch, nodes)
    if nodes == 1:
        return [f"{inside} {words((*before, '--standalone', *after))}"]
    heads = {
        "slurm": 'head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        "torque": 'head=$(head -n 1 "$PBS_NODEFILE")',
    }
    begins = {
        "slurm": f"srun --ntasks={nodes} --ntasks-per-node=1",
        "torque": f"mpirun -np {nodes} --map-by ppr:1:node",
    }
    meet = f'--rdzv-backend=c10d --rdzv-id={word(wanted.job.name)} --rdzv-endpoint="$head:{PORT}"'
    return [heads[scheduler], f"{begins[scheduler]} {inside} {words(before)} {meet} {words(after)}"]
