"""A lab with a host that runs what tunings ask for."""

from tests.benchmarks.runs.conftest import administrator, lab, running_lab

__all__ = ["administrator", "lab", "running_lab"]
