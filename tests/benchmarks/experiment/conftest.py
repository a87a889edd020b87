"""A lab with a host that plays the experiment."""

from tests.benchmarks.runs.conftest import administrator, lab, running_lab

__all__ = ["administrator", "lab", "running_lab"]
