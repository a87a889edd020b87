"""Walks of a chassis that find it otherwise than the last one did, without a chassis to be walked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from fabric.bmc.types import DrawerMode, Inventory, RedfishResource
from fabric.inventory.models import Chassis, Device, Drawer, HostPort, Port, Walk
from fabric.inventory.sync import inventory_apply


def last_walk(chassis: Chassis) -> Inventory:
    """Return what the walk found of which the rows were made."""
    return msgspec.convert(Walk.objects.get(chassis=chassis).found, Inventory)


def with_device(inventory: Inventory, uri: str, **changes: Any) -> Inventory:
    """Return a walk in which one device answers otherwise."""
    return _with(inventory, devices={uri: changes})


def found(
    chassis: Chassis,
    *,
    attached: Mapping[Device, HostPort | None] | None = None,
    modes: Mapping[Drawer, DrawerMode] | None = None,
    cables: Mapping[HostPort, HostPort | None] | None = None,
    ports: Mapping[Port, dict[str, Any]] | None = None,
    devices: Mapping[Device, dict[str, Any]] | None = None,
) -> None:
    """Write a walk that finds what has changed behind the site's back since the last one.

    A cable leads where that of another host port leads, or nowhere.
    """
    inventory, attached = last_walk(chassis), attached or {}
    moved = {device.endpoint_uri: port.uri if port else "" for device, port in attached.items()}
    zones = {
        zone.uri: {
            "endpoint_uris": (
                *(uri for uri in zone.endpoint_uris if uri not in moved),
                *(uri for uri, at in moved.items() if at == zone.uri),
            )
        }
        for zone in inventory.zones
    }
    hosts = {endpoint.uri: endpoint.entity_uris for endpoint in inventory.endpoints}
    inventory = _with(
        inventory,
        zones=zones,
        endpoints={
            port.endpoint_uri: {"entity_uris": hosts[to.endpoint_uri] if to else ()}
            for port, to in (cables or {}).items()
        },
        drawers={drawer.uri: {"mode": mode} for drawer, mode in (modes or {}).items()},
        ports={port.uri: changes for port, changes in (ports or {}).items()},
        devices={device.uri: changes for device, changes in (devices or {}).items()},
    )
    inventory_apply(chassis=chassis, inventory=inventory)


def _with(inventory: Inventory, **changes: Mapping[str, Mapping[str, Any]]) -> Inventory:
    def changed(part: RedfishResource, of: Mapping[str, Mapping[str, Any]]) -> RedfishResource:
        return msgspec.structs.replace(part, **of[part.uri]) if part.uri in of else part

    kinds = {kind: tuple(changed(part, of) for part in getattr(inventory, kind)) for kind, of in changes.items()}
    return msgspec.structs.replace(inventory, **kinds)
