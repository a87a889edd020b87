"""The time of a recommendation: from 64 devices of chassis, and from a small pool with an exhaustive comparison.

From a pool in memory to the ranked answer with its reasons: medians of alternating rounds.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable

from benchmarks.recommend.answer import recommend
from benchmarks.recommend.pool import RecommendationPool, read_pool
from benchmarks.recommend.request import RecommendationRequest, SoftwareChoices
from benchmarks.workloads.catalogue import spec_of
from perf.environment import CannotMeasureError
from perf.figures import PerfFigure

ROUNDS = 9
MAX_SECONDS = 1.0
SLOTS = 8


def measure(log: Callable[[str], None]) -> list[PerfFigure]:
    """Return the figures of recommending."""
    request = RecommendationRequest(
        spec=spec_of("bert_large", "paper", {}), samples=177_000, freedom=SoftwareChoices(precisions=("fp32", "fp16"))
    )
    pools = {
        "64 devices, 2 models, 4 chassis, 4 hosts": _pool(4, models=2),
        "64 devices, 1 model, 4 chassis, 4 hosts": _pool(4, models=1),
        "16 devices, 1 model, 1 chassis, 2 hosts": _pool(1, models=1),
    }
    log(f"{len(pools)} pools, {ROUNDS} times each")
    spent: dict[str, list[float]] = {name: [] for name in pools}
    answers = {}
    for _ in range(ROUNDS):
        for name, pool in pools.items():
            begin = time.perf_counter()
            answers[name] = recommend(pool, request)
            spent[name].append(time.perf_counter() - begin)
    if any(answer.best is None for answer in answers.values()):
        raise CannotMeasureError("a pool has no room for the workload.")
    return [
        PerfFigure(
            f"{name}, {answers[name].considered} ways, {'exact' if answers[name].exact else 'not exact'}",
            statistics.median(times),
            "s",
            most=MAX_SECONDS,
        )
        for name, times in spent.items()
    ]


def _pool(chassis: int, *, models: int) -> RecommendationPool:
    """Return full chassis: each drawer is cabled to two hosts, each host to several drawers."""
    hosts = [f"node-{letter}" for letter in "abcd"][: max(2, chassis)]
    kinds = (("V100-PCIE-16GB", 16), ("A100-PCIE-40GB", 40))[:models]
    drawers = [
        {
            "chassis": f"falcon-{number}",
            "drawer": drawer,
            "ports": [{"label": f"H{nth}", "host": hosts[(number + nth) % len(hosts)]} for nth in (1, 2)],
            "devices": [
                {"slot": slot, "model": kinds[slot % models][0], "memory_gb": kinds[slot % models][1]}
                for slot in range(1, SLOTS + 1)
            ],
        }
        for number in range(1, chassis + 1)
        for drawer in (1, 2)
    ]
    file = {
        "format": "falconweb-pool",
        "version": 1,
        "hosts": [{"name": name, "local_gpus": 8} for name in hosts],
        "drawers": drawers,
    }
    return read_pool(json.dumps(file))
