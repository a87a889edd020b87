"""The published observations in the simulation."""

from __future__ import annotations

from benchmarks.model.published_observations import OBSERVATIONS
from benchmarks.simulation.observations import simulated_observations


def test_each_observation_that_a_step_shows_is_judged_by_the_simulation() -> None:
    found = simulated_observations()
    assert {observation.key for observation in OBSERVATIONS} - set(found) == {"O7", "O9"}
    assert all(one.simulated for one in found.values())
    # These follow from mechanisms that no constant here was fitted to.
    assert {key for key, one in found.items() if one.holds} >= {"O3-time", "O6", "O10", "O12", "O13"}


def test_what_waits_for_the_fabric_reads_as_busy_with_idle_memory() -> None:
    found = simulated_observations()
    assert found["O6"].value < -0.1
    assert found["O11"].value > 0.5
