"""The resources of a chassis, rendered from its state."""

from __future__ import annotations

from simulator.resources import (
    access,
    blocks,
    bridges,
    chassis,
    connections,
    devices,
    dumps,
    fabric,
    legacy,
    manager,
    network,
    root,
    services,
    systems,
    telemetry,
    thermal,
    updates,
    zones,
)
from simulator.service import Falcon


def register_all(falcon: Falcon) -> None:
    """Put every resource of a chassis into its tree."""
    for module in (
        dumps,
        root,
        access,
        network,
        manager,
        services,
        chassis,
        devices,
        dumps,
        thermal,
        legacy,
        blocks,
        fabric,
        bridges,
        zones,
        connections,
        systems,
        telemetry,
        updates,
    ):
        module.register(falcon)
