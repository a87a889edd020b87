"""The stage, and what was played on it before anybody is killed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from tests.stage.plays import PLAYS, Play, perform, webhook_down
from tests.stage.soak import Soaked, soak
from tests.stage.stage import Stage, set_up
from tests.turns import NIGHTLY


@dataclass
class Played:
    """What was played side by side while the site was at work; a play that failed raises where it is judged."""

    soaked: Soaked
    webhook: Future[list[str]]
    plays: dict[str, Future[Play]]

    def __getitem__(self, name: str) -> Play:
        return self.plays[name].result()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A site, and many chassis."""
    with set_up(tmp_path_factory.mktemp("stage")) as stage:
        yield stage


@pytest.fixture(scope="module")
def played(stage: Stage) -> Played:
    """All that goes wrong without anybody's death, at once."""
    stage.wait_until_shared()
    with ThreadPoolExecutor(len(PLAYS) + 1) as pool:
        webhook = pool.submit(webhook_down, stage)
        plays = {name: pool.submit(perform, stage, name, act) for name, act in PLAYS.items()}
        soaked = soak(stage, lambda: webhook.done() and all(play.done() for play in plays.values()))
    stage.heal()
    with ThreadPoolExecutor(1) as pool:  # one after the other: the page of all that was counted is long
        for play in (one.result() for one in plays.values() if one.exception() is None):
            play.counting = pool.submit(play.look)
    if not NIGHTLY:
        stage.keep_few()
    return Played(soaked, webhook, plays)
