"""A lab with a host that plays the experiment, and somebody who looks at it."""

from tests.benchmarks.figures.conftest import bob, client
from tests.benchmarks.runs.conftest import administrator, lab, running_lab

__all__ = ["administrator", "bob", "client", "lab", "running_lab"]
