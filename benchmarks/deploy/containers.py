"""Container definitions: Apptainer's and Dockerfiles, with all that the job script relies on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.deploy.bases import BaseChoice
from benchmarks.deploy.quoting import comment_text, docker_exec, docker_value, shell_words, variable_references
from benchmarks.deploy.request import DeploymentRequest

SOURCE_FOLDER: Final = "/opt/source"
TRAINER_FOLDER: Final = "/opt/falconweb"
TRAINER_PARTS: Final = ("trainer", "hostwire")  # packages of a checkout of FalconWeb
TRAINER_PACKAGES: Final = ("transformers", "msgspec", "numpy", "pillow")


@dataclass(frozen=True, kw_only=True)
class ContainerPlan:
    """What a container is made of: its request, its base, and whether the job compiles its network.

    torch.compile builds code when the job runs, so that the container needs a C++ compiler.
    """

    request: DeploymentRequest
    base: BaseChoice
    compiles: bool = False


def apptainer_definition(plan: ContainerPlan) -> str:
    """Return the definition; '' where no image covers the target."""
    request = plan.request
    bootstrap, image = _bootstrap(plan)
    if not image:
        return ""
    name = request.job.name
    lines = [f"# {comment_text(name)}: build it by 'apptainer build {name}.sif container.def'"]
    lines += [f"Bootstrap: {bootstrap}", f"From: {image}", "", "%labels", f"    job {name}"]
    if copies := _copies(request):
        lines += ["", "%files", *(f"    {source} {target}" for source, target in copies)]
    lines += ["", "%environment", *(f"    export {name}={value}" for name, value in _environment(request))]
    if steps := _build_steps(plan):
        lines += ["", "%post", "    set -e", *(f"    {shell_words(step)}" for step in steps)]
    lines += ["", "%runscript", '    exec "$@"']
    return "\n".join(lines) + "\n"


def dockerfile(plan: ContainerPlan) -> str:
    """Return a Dockerfile; '' where no image covers the target, and for one that Docker cannot use."""
    request = plan.request
    bootstrap, image = _bootstrap(plan)
    if bootstrap != "docker" or not image:
        return ""
    lines = [
        f"# {comment_text(request.job.name)}: build it by 'docker build --tag {request.job.name.lower()} .'",
        f"FROM {image}",
        "ENV " + " ".join(f"{name}={docker_value(value)}" for name, value in _environment(request)),
    ]
    lines += [f"COPY {docker_exec([source, target])}" for source, target in _copies(request)]
    lines += [f"RUN {docker_exec(step)}" for step in _build_steps(plan)]
    lines += ["WORKDIR /work", f"CMD {docker_exec(['bash'])}"]
    return "\n".join(lines) + "\n"


def copies_source(request: DeploymentRequest) -> bool:
    """Whether the source is copied into the container: fetching it needs a secret, which no image may keep."""
    return bool(request.build_source) and bool(variable_references([request.build_source]))


def _copies(request: DeploymentRequest) -> list[tuple[str, str]]:
    """Return what is copied from the folder of the definition, with its place in the container."""
    found = [("source", SOURCE_FOLDER)] if copies_source(request) else []
    if request.is_trainer:
        found += [(part, f"{TRAINER_FOLDER}/{part}") for part in TRAINER_PARTS]
    return found


def _environment(request: DeploymentRequest) -> list[tuple[str, str]]:
    found = [("LC_ALL", "C.UTF-8"), ("PYTHONUNBUFFERED", "1")]
    return [*found, ("PYTHONPATH", TRAINER_FOLDER)] if request.is_trainer else found


def _bootstrap(plan: ContainerPlan) -> tuple[str, str]:
    """Return Apptainer's bootstrap and the image, '' where there is none."""
    image = plan.request.image or (plan.base.build.image if plan.base.build is not None else "")
    if image.endswith(".sif"):
        return "localimage", image
    if image.startswith("library://"):
        return "library", image.removeprefix("library://")
    return "docker", image


def _build_steps(plan: ContainerPlan) -> list[Sequence[str]]:
    """Return the build commands, each as words that a shell does not expand."""
    request = plan.request
    steps: list[Sequence[str]] = []
    if not request.image and (tools := _debian_packages(plan)):
        # Only the images of this site are known to be Debian's.
        install = 'apt-get update && apt-get install -y --no-install-recommends "$@" && rm -rf /var/lib/apt/lists/*'
        steps.append(["sh", "-ec", install, "install", *tools])
    if packages := _pip_packages(plan):
        steps.append(["python3", "-m", "pip", "install", "--no-cache-dir", *packages])
    if request.build_source and not copies_source(request):
        if _is_repository(request.build_source):
            steps.append(["git", "clone", "--depth=1", "--", request.build_source, SOURCE_FOLDER])
        else:
            fetch = 'mkdir -p "$2" && curl --fail --silent --show-error --location -- "$1" | tar -x -z -C "$2"'
            steps.append(["sh", "-ec", fetch, "fetch", request.build_source, SOURCE_FOLDER])
    if request.build_command:
        folder = SOURCE_FOLDER if request.build_source else "/"
        steps.append(["sh", "-ec", 'cd "$1" && eval "$2"', "build", folder, request.build_command])
    return steps


def _debian_packages(plan: ContainerPlan) -> list[str]:
    request, build = plan.request, plan.base.build
    found: list[str] = []
    if build is not None and not build.is_wheel:
        found += ["python3-torch", "python3-pip"]
    if plan.compiles:
        found += ["g++", *([] if build is None or build.is_wheel else ["python3-dev"])]
    if request.build_source and not copies_source(request):
        found += ["ca-certificates", "git" if _is_repository(request.build_source) else "curl"]
    return found


def _pip_packages(plan: ContainerPlan) -> list[str]:
    request, build = plan.request, plan.base.build
    found = [*(TRAINER_PACKAGES if request.is_trainer else ()), *request.packages]
    if request.image or build is None:
        return found
    if build.is_wheel:
        return [f"torch=={plan.base.version}", *found]
    # Debian's Python is managed by its packages; a container is nobody else's.
    return ["--break-system-packages", *found] if found else []


def _is_repository(source: str) -> bool:
    return source.endswith(".git") or source.startswith(("git://", "ssh://", "git@"))
