"""The resources of a chassis, rendered from its state."""

from __future__ import annotations

from simulator.resources import (
    access,
    blocks,
    chassis,
    devices,
    eventing,
    fabric,
    manager,
    ports,
    root,
    schemas,
    systems,
    tasking,
    telemetry,
    thermal,
    zones,
)
from simulator.service import Falcon


def register_all(falcon: Falcon) -> None:
    """Put every resource of a chassis into its tree."""
    for module in (
        root,
        schemas,
        access,
        manager,
        eventing,
        tasking,
        chassis,
        devices,
        thermal,
        blocks,
        fabric,
        zones,
        ports,
        systems,
        telemetry,
    ):
        module.register(falcon)
