"""Finds Debian's Chromium for the browser tests; `python -m tests.chromium` installs it where apt may."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import Any

# The build without windows takes a quarter less of a processor; not every distribution has it.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser")
ADVICE = "The browser tests need Chromium: apt-get install chromium-headless-shell (or chromium)"
# Chromium's own background traffic is switched off: tests contact this machine only.
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Each page of a test would start a process of its own otherwise, and compile all scripts anew.
    "--renderer-process-limit=1",
    # A page of a test is looked at for a second: what pays for itself later costs a sixth of the processor.
    "--in-process-gpu",
    "--num-raster-threads=1",
    "--js-flags=--max-optimized-bytecode-size=0",
]


def find_chromium() -> str | None:
    """Return the path of Chromium, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def main() -> int:
    """Install Chromium where this account may; otherwise say in one sentence what to install. Never fails the run."""
    if find_chromium():
        return 0
    if os.geteuid() == 0 and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        quiet: dict[str, Any] = {"env": environment, "stdout": subprocess.DEVNULL}
        subprocess.run(["apt-get", "update", "-qq"], check=False, **quiet)
        for name in NAMES[:2]:
            if not find_chromium():
                subprocess.run(["apt-get", "install", "-y", "-qq", name, "fonts-dejavu-core"], check=False, **quiet)
    if not find_chromium():
        sys.stdout.write(ADVICE + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
