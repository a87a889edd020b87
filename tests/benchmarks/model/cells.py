"""Cells for studies: what may run where."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from benchmarks.model.belief import Cell
from benchmarks.model.calibration import (
    PAPER_DRAWERS,
    PAPER_TOPOLOGIES,
    PAPER_WORKLOADS,
    paper_spec,
)
from benchmarks.model.topology import PcieLink, Topology


def one_drawer() -> Topology:
    """Return a host with the four GPUs of one drawer."""
    eight = PAPER_TOPOLOGIES["falconGPUs"]
    return replace(eight, name="oneDrawer", accelerators=eight.accelerators[:4], uplinks={PAPER_DRAWERS[0]: PcieLink()})


def study_cells() -> list[Cell]:
    """Return the published workloads over devices, precisions, strategies and batches, on four topologies."""
    return [
        (
            msgspec.structs.replace(
                paper_spec(workload),
                devices=devices,
                batch=max(1, int(paper_spec(workload).batch * share)),
                precision=precision,
                strategy="single" if devices == 1 else strategy,
            ),
            topology,
        )
        for workload in PAPER_WORKLOADS
        for topology in (*(PAPER_TOPOLOGIES[name] for name in ("localGPUs", "hybridGPUs", "falconGPUs")), one_drawer())
        for devices in (1, 2, 4, 8)
        if devices <= len(topology.accelerators)
        for precision in ("fp16", "fp32")
        for strategy in ("ddp", "sharded", "dp")
        if devices > 1 or strategy == "ddp"
        for share in (0.5, 1)
    ]
