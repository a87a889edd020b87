"""What the site reads by msgspec, looked at before threads begin: see hostwire.preparing."""

from __future__ import annotations

from benchmarks.model.shapes import Topology
from fabric.planning import Wanted
from hostwire.preparing import shapes_prepare


def shapes_ready() -> int:
    """Prepare all shapes that are defined by now; returns how many."""
    # Read as they are, and no structs.
    return shapes_prepare(Topology, Wanted)
