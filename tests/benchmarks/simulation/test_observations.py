"""The published observations in the simulation."""

from __future__ import annotations

from benchmarks.model.observations import OBSERVATIONS
from benchmarks.simulation.observations import simulated_observations


def test_each_observation_that_a_step_shows_is_judged_by_the_simulation() -> None:
    found = simulated_observations()
    assert set(found) <= {observation.key for observation in OBSERVATIONS}
    assert len(found) == 13
    assert all(text for _, text, _ in found.values())
    # These follow from mechanisms that no constant here was fitted to.
    assert {key for key, (_, _, holds) in found.items() if holds} >= {"O3-time", "O6", "O10", "O12", "O13"}


def test_what_waits_for_the_fabric_reads_as_busy_with_idle_memory() -> None:
    found = simulated_observations()
    assert found["O6"][0] < -0.1
    assert found["O11"][0] > 0.5
