"""What the site reads by msgspec, looked at before threads begin: see hostwire.protocol."""

from __future__ import annotations

from benchmarks.model.topology import Topology
from fabric.plans.rules import DesiredState
from hostwire.protocol import prepare_structs


def prepare_all_structs() -> int:
    """Prepare all shapes that are defined by now; returns how many."""
    # Read as they are, and no structs.
    return prepare_structs(Topology, DesiredState)
