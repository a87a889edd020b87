"""An event simulation of training steps over a composition, independent of the performance model. Uses no database.

It shares data sheets, link rates and the networks' layers with the model, and nothing of its formula. What it plays,
its constants and how far it is from the model: docs/simulation.md.
"""

from __future__ import annotations

from benchmarks.simulation.result import StepSimulation, TimelinePoint
from benchmarks.simulation.steps import simulate_step

__all__ = ["StepSimulation", "TimelinePoint", "simulate_step"]
