"""The msgspec structs of the site, inspected before threads start: see hostwire.protocol."""

from __future__ import annotations

from benchmarks.model.topology import Topology
from fabric.plans.rules import DesiredState
from hostwire.protocol import prepare_structs


def prepare_all_structs() -> int:
    """Prepare all structs that are defined so far; returns their number."""
    # Decoded directly, although not structs.
    return prepare_structs(Topology, DesiredState)
