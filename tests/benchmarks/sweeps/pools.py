"""Pools of devices for tests of grids."""

from __future__ import annotations

from typing import Any

from benchmarks.runs.rules import Composition
from benchmarks.sweeps.grid import GridExpansion, SweepGrid, expand_grid, validated_grid
from benchmarks.sweeps.placement import PoolDevice, PoolHost, SweepPool
from hostwire.training import Spec

NODE_A, NODE_B = 1, 2
DRAWERS = {1: "falcon-1 Drawer 1", 2: "falcon-1 Drawer 2"}
GPU = "V100-SXM2-16GB"


def pool(*, gpus: int = 8, local_gpus: int = 4, **of_host: Any) -> SweepPool:
    """Two hosts with GPUs of their own, half of the devices in each of two drawers, and a drive; both reach all."""
    devices = [
        PoolDevice(
            id=10 + number,
            name=f"GPU {number}",
            model=GPU,
            drawer=1 + number % 2,
            slot=1 + number // 2,
            ports={NODE_A: 101 + number % 2, NODE_B: 201 + number % 2},
        )
        for number in range(gpus)
    ]
    drive = PoolDevice(id=90, name="Drive", model="P4500", drawer=1, slot=8, is_storage=True, ports={NODE_A: 101})
    hosts = tuple(
        PoolHost(id=pk, name=name, local_gpus=local_gpus, **of_host)
        for pk, name in ((NODE_A, "node-a"), (NODE_B, "node-b"))
    )
    return SweepPool(hosts=hosts, devices=(*devices, drive), drawers=DRAWERS)


def anything(spec: Spec, composition: Composition) -> str:
    """Stand against nothing."""
    return ""


def expanded(of: SweepPool | None = None, **members: Any) -> GridExpansion:
    """Return what a grid comes to, on node-a unless told."""
    grid = SweepGrid.from_json({"workload": ["resnet50"], "host": [NODE_A], **members})
    return expand_grid(validated_grid(grid), of or pool(), anything)
