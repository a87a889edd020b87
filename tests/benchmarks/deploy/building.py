"""Containers built and run on this machine without a network: the base has this machine's Python and its libraries.

The base image is a file system of links into this machine's /usr, which is mounted for building and running, so that
an image takes some kilobytes, and pip finds all that it is to install.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

BASE_IMAGE = "localhost/falconweb-base"
ROOT = Path(__file__).parents[3]
TIMEOUT_SECONDS = 120
MERGED = ("bin", "sbin", "lib", "lib64")  # links into /usr


class Builder:
    """buildah with images and containers in a folder of its own, as root without a daemon."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mounts = sorted({"/usr", sys.base_prefix, sysconfig.get_path("purelib")})
        self._volumes = [word for path in self.mounts for word in ("--volume", f"{path}:{path}:ro")]

    def ask(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run buildah; with `check` raise AssertionError with what it says where it fails."""
        stores = ["--root", str(self.folder / "images"), "--runroot", str(self.folder / "state")]
        found = subprocess.run(
            ["buildah", "--storage-driver", "vfs", *stores, *words], capture_output=True, text=True, check=False,
            timeout=TIMEOUT_SECONDS, env={**os.environ, "BUILDAH_ISOLATION": "chroot"},
        )  # fmt: skip
        assert not check or found.returncode == 0, found.stdout + found.stderr
        return found

    def make_base(self) -> None:
        """Make the base image: links into /usr, and a python3 that finds the libraries of these tests."""
        root = self.folder / "base"
        for name in ("etc", "opt/base", "tmp", "proc", "sys", "dev", *(path.lstrip("/") for path in self.mounts)):
            (root / name).mkdir(parents=True, exist_ok=True)
        for name in MERGED:
            (root / name).symlink_to(f"usr/{name}")
        (root / "etc/passwd").write_text("root:x:0:0:root:/:/bin/sh\n")
        python = root / "opt/base/python3"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        libraries = sysconfig.get_path("purelib")
        python.write_text(
            f'#!/bin/sh\nPYTHONPATH="${{PYTHONPATH-}}:{libraries}" exec {sys.base_prefix}/bin/{version} "$@"\n'
        )
        python.chmod(0o755)
        (self.folder / "Containerfile").write_text(
            "FROM scratch\nCOPY base /\nENV PATH=/opt/base:/usr/bin:/bin PIP_NO_INDEX=1 PIP_BREAK_SYSTEM_PACKAGES=1\n"
        )
        self.ask("bud", "--tag", BASE_IMAGE, str(self.folder))

    def build(self, dockerfile: str, name: str) -> None:
        """Build a generated file on the base, in a folder with the packages of a checkout."""
        context = self.folder / name
        context.mkdir()
        for package in ("trainer", "hostwire"):
            shutil.copytree(ROOT / package, context / package, ignore=shutil.ignore_patterns("__pycache__"))
        lines = [f"FROM {BASE_IMAGE}" if line.startswith("FROM ") else line for line in dockerfile.splitlines()]
        (context / "Dockerfile").write_text("\n".join(lines) + "\n")
        self.ask("bud", *self._volumes, "--tag", name, str(context))
        self.ask("from", "--pull-never", "--name", f"{name}-job", name)

    def runtime(self, name: str) -> Path:
        """Return a folder with an `apptainer` that runs the command of `apptainer exec` in the container of a job."""
        folder = self.folder / f"{name}-bin"
        folder.mkdir()
        stores = f"--storage-driver vfs --root {self.folder / 'images'} --runroot {self.folder / 'state'}"
        tool = folder / "apptainer"
        tool.write_text(
            "#!/bin/bash\nset -eu\n"
            '[ "$1" = exec ]; shift; [[ "$1" = *.sif ]]; shift\n'
            f'exec buildah {stores} run --isolation chroot {" ".join(self._volumes)} --volume "$PWD:/work" '
            f'--workingdir /work {name}-job -- "$@"\n'
        )
        tool.chmod(0o755)
        return folder


def why_no_builder() -> str:
    """Return why no container can be built here, '' where one can."""
    if shutil.which("buildah") is None:
        return "buildah is not installed (Debian's package of this name): no container is built."
    if os.geteuid() != 0:
        return "Without an image of a registry, buildah mounts this machine's /usr, which only root may."
    return ""
