"""The performance model: step time and traffic from workload, devices, links and options. Uses no database.

`predict` returns interval and reasons; `prior` is the belief before any run, `refit` after runs; `step_seconds`
draws many cells at once. Reasons, formulas and limits: docs/model.md.
"""

from __future__ import annotations

from benchmarks.model.belief import Belief, Draws, step_seconds
from benchmarks.model.calibration import paper_cells, prior, published_belief, refit
from benchmarks.model.features import ModelError
from benchmarks.model.memory import fits, memory_bytes
from benchmarks.model.prediction import predict
from benchmarks.model.reports import paper_rows, prediction_json, prediction_text
from benchmarks.model.step_time import link_tables
from benchmarks.model.topology import TopologyError, read_topology, topology_schema

__all__ = [
    "Belief",
    "Draws",
    "ModelError",
    "TopologyError",
    "fits",
    "link_tables",
    "memory_bytes",
    "paper_cells",
    "paper_rows",
    "predict",
    "prediction_json",
    "prediction_text",
    "prior",
    "published_belief",
    "read_topology",
    "refit",
    "step_seconds",
    "topology_schema",
]
