"""Definitions of containers: of Apptainer, and a Dockerfile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from benchmarks.deploy.quoting import comment, docker_exec, docker_value, references, word, words
from benchmarks.deploy.wanted import Wanted

BASE: Final = "python:3.11-slim-bookworm"
SOURCE: Final = "/opt/source"


def apptainer(wanted: Wanted) -> str:
    """Return the definition of an Apptainer image."""
    bootstrap, image = _bootstrap(wanted)
    lines = [f"# {comment(wanted.job.name)}: build it by 'apptainer build {wanted.job.name}.sif container.def'"]
    lines += [f"Bootstrap: {bootstrap}", f"From: {image}", "", "%labels", f"    job {wanted.job.name}"]
    steps = _steps(wanted)
    if copies_source(wanted):
        lines += ["", "%files", f"    source {SOURCE}"]
    lines += ["", "%environment", "    export LC_ALL=C.UTF-8", "    export PYTHONUNBUFFERED=1"]
    if steps:
        lines += ["", "%post", "    set -e", *(f"    {words(step)}" for step in steps)]
    lines += ["", "%runscript", '    exec "$@"']
    return "\n".join(lines) + "\n"


def dockerfile(wanted: Wanted) -> str:
    """Return a Dockerfile; '' where the image is none of Docker's."""
    bootstrap, image = _bootstrap(wanted)
    if bootstrap != "docker":
        return ""
    lines = [
        f"# {comment(wanted.job.name)}: build it by 'docker build --tag {wanted.job.name.lower()} .'",
        f"FROM {image}",
        f"ENV LC_ALL={docker_value('C.UTF-8')} PYTHONUNBUFFERED={docker_value('1')}",
    ]
    if copies_source(wanted):
        lines.append(f"COPY {docker_exec(['source', SOURCE])}")
    lines += [f"RUN {docker_exec(step)}" for step in _steps(wanted)]
    lines += ["WORKDIR /work", f"CMD {docker_exec(['bash'])}"]
    return "\n".join(lines) + "\n"


def copies_source(wanted: Wanted) -> bool:
    """Whether the source is copied into the container: it is fetched with a secret, which no image may keep."""
    return bool(wanted.build_source) and bool(references([wanted.build_source]))


def is_ours(wanted: Wanted) -> bool:
    """Whether the container is made from a bare one, PyTorch put into it."""
    return not wanted.image


def _bootstrap(wanted: Wanted) -> tuple[str, str]:
    image = wanted.image or BASE
    if image.endswith(".sif"):
        return "localimage", image
    if image.startswith("library://"):
        return "library", image.removeprefix("library://")
    return "docker", image


def _steps(wanted: Wanted) -> list[Sequence[str]]:
    """Return the commands that build it, each as words that a shell leaves as they are."""
    steps: list[Sequence[str]] = []
    packages = list(wanted.packages)
    if is_ours(wanted):
        version = wanted.framework_version
        packages.insert(0, f"torch=={version}" if version else "torch")
    if packages:
        steps.append(["python3", "-m", "pip", "install", "--no-cache-dir", *packages])
    if wanted.build_source and not copies_source(wanted):
        if _is_git(wanted.build_source):
            steps.append(["git", "clone", "--depth=1", "--", wanted.build_source, SOURCE])
        else:
            fetch = 'mkdir -p "$2" && curl --fail --silent --show-error --location -- "$1" | tar -x -z -C "$2"'
            steps.append(["sh", "-ec", fetch, "fetch", wanted.build_source, SOURCE])
    if wanted.build_command:
        folder = SOURCE if wanted.build_source else "/"
        steps.append(["sh", "-ec", 'cd "$1" && eval "$2"', "build", folder, wanted.build_command])
    return steps


def _is_git(source: str) -> bool:
    return source.endswith(".git") or source.startswith(("git://", "ssh://", "git@"))


__all__ = ["BASE", "apptainer", "copies_source", "dockerfile", "is_ours", "word"]
