"""The stage, and the results of the scenarios that ran on it before anything is killed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from tests.stage.scenarios import SCENARIOS, Scenario, run_scenario, webhook_down
from tests.stage.soak import Soaked, soak
from tests.stage.stage import Stage, set_up
from tests.turns import NIGHTLY


@dataclass
class StageResults:
    """The results of scenarios beside the site's other work; one that failed raises where it is judged."""

    soaked: Soaked
    webhook: Future[list[str]]
    scenarios: dict[str, Future[Scenario]]

    def __getitem__(self, name: str) -> Scenario:
        return self.scenarios[name].result()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A site, and many chassis."""
    with set_up(tmp_path_factory.mktemp("stage")) as stage:
        yield stage


@pytest.fixture(scope="module")
def results(stage: Stage) -> StageResults:
    """All that goes wrong without anybody's death, at once."""
    stage.wait_until_shared()
    with ThreadPoolExecutor(len(SCENARIOS) + 1) as pool:
        webhook = pool.submit(webhook_down, stage)
        scenarios = {name: pool.submit(run_scenario, stage, name, act) for name, act in SCENARIOS.items()}
        soaked = soak(stage, lambda: webhook.done() and all(scenario.done() for scenario in scenarios.values()))
    stage.heal()
    with ThreadPoolExecutor(1) as pool:  # one after the other: the page of all that was counted is long
        for scenario in (one.result() for one in scenarios.values() if one.exception() is None):
            scenario.counting = pool.submit(scenario.look)
    if not NIGHTLY:
        stage.keep_few()
    return StageResults(soaked, webhook, scenarios)
