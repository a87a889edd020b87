"""What GPUs draw, from their makers' data sheets: for energy, which nothing else predicts.

A GPU draws its most while it computes and a share of that while it waits. The share is an assumption, the same for all
models; the power of hosts and chassis is not counted.
"""

from __future__ import annotations

from typing import Final

from benchmarks.model.facts import device_facts

# Share of the most that a GPU draws while it waits in the middle of a job, clocks up: an assumption.
IDLE_SHARE: Final = 0.25


def watts_of(model: str) -> tuple[float, str]:
    """Return the most that a model draws, W, and where that comes from."""
    facts = device_facts(model)
    return facts.watts, facts.source
