"""Finds Debian's Chromium for the browser tests; `python -m tests.chromium` installs it where apt may."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

ADVICE = "The browser tests need Chromium: apt-get install chromium"
# Chromium's own background traffic is switched off: tests contact this machine only.
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def find_chromium() -> str | None:
    """Return the path of Chromium, or None."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


def main() -> int:
    """Install Chromium where this account may; otherwise say in one sentence what to install. Never fails the run."""
    if find_chromium():
        return 0
    if os.geteuid() == 0 and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (
            ["apt-get", "update", "-qq"],
            ["apt-get", "install", "-y", "-qq", "chromium", "fonts-dejavu-core"],
        ):
            subprocess.run(command, env=environment, check=False, stdout=subprocess.DEVNULL)
    if not find_chromium():
        sys.stdout.write(ADVICE + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
