"""A site at rest: what all processes of `make up` take while nobody looks, with its two simulated chassis.

The site is started by the launcher, as `make up` does, with its demonstration, and left alone until that is complete.
CPU time is that of all processes below the launcher, of those that ended meanwhile too.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from perf.figures import PerfFigure
from perf.processes import SiteCost, demonstration_site

MEASURED_SECONDS = 60.0
MOST_MB, MOST_CPU_MS = 400.0, 60.0


def measure(log: Callable[[str], None]) -> list[PerfFigure]:
    """Return the figures of a site at rest; reports its progress to `log`. Takes some three minutes."""
    with demonstration_site(log) as site:
        log("at rest")
        cost = SiteCost(site)
        time.sleep(MEASURED_SECONDS)
        return cost.figures(most_mb=MOST_MB, most_cpu_ms=MOST_CPU_MS)
