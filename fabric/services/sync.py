"""Inventory that follows the BMC: hardware is the truth, a row that vanishes is marked missing, not deleted."""

from __future__ import annotations

import logging
import re
from collections import Counter
from typing import Any

import msgspec
from django.db import models, transaction
from django.utils import timezone

from fabric.bmc import types as wire
from fabric.models import Chassis, Device, Drawer, Host, HostPort, Part, Port, Slot, Switch, Walk
from fabric.signals import access_changed, inventory_changed

logger = logging.getLogger(__name__)

# Found in a body only for the moment of the walk: readings change each second and are no change of the inventory.
VOLATILE_KINDS = ("sensors", "fans", "port_metrics")


def inventory_apply(*, chassis: Chassis, inventory: wire.Inventory) -> bool:
    """Mirror one walk into the database, in one transaction; returns whether anything but readings changed."""
    with transaction.atomic():
        locked = Chassis.objects.select_for_update().get(pk=chassis.pk)
        walk, _ = Walk.objects.get_or_create(chassis=locked)
        # As the column gives it back: a tuple would differ from the list it is stored as.
        plain: dict[str, Any] = _storable(msgspec.json.decode(msgspec.json.encode(inventory)))
        changed = _stable(plain) != _stable(walk.found)
        _Mirror(locked, inventory).write()
        _describe(locked, inventory)
        locked.inventory_at = timezone.now()
        locked.last_error, locked.last_error_at = "", None
        if changed:
            locked.inventory_revision += 1
            Walk.objects.filter(chassis=locked).update(found=plain)
        locked.save()
        if changed:
            transaction.on_commit(lambda: inventory_changed.send(Chassis, chassis_id=locked.pk))
    return changed


def inventory_failed(*, chassis_id: int, sentence: str) -> None:
    """Note why a chassis cannot be read for now; what is known of it stays."""
    Chassis.objects.filter(pk=chassis_id).exclude(last_error=sentence).update(
        last_error=sentence, last_error_at=timezone.now()
    )


def attachment_read_back(*, device: Device, zone_uri: str, link: wire.Link | None) -> None:
    """Mirror what an operation has read back of one device, ahead of the next walk; '' is no zone."""
    port = HostPort.objects.filter(chassis=device.chassis_id, uri=zone_uri).first() if zone_uri else None
    Device.objects.filter(pk=device.pk).update(host_port=port)
    if link is not None:
        values = {
            "link_status": link.status, "width": link.width, "active_width": link.active_width,
            "speed_gbps": link.speed_gbps, "max_speed_gbps": link.max_speed_gbps,
        }  # fmt: skip
        Port.objects.filter(chassis=device.chassis_id, uri=link.port_uri).update(**_fitting(Port, values))


def mode_read_back(*, drawer: Drawer, mode: wire.DrawerMode) -> None:
    """Mirror the mode that an operation has read back, ahead of the next walk."""
    Drawer.objects.filter(pk=drawer.pk).update(mode=mode.value)


def _storable(value: Any) -> Any:
    """Return JSON without NUL characters, which PostgreSQL keeps in no text."""
    if isinstance(value, str):
        return value.replace("\0", "")
    if isinstance(value, dict):
        return {_storable(key): _storable(item) for key, item in value.items()}
    return [_storable(item) for item in value] if isinstance(value, list) else value


def _stable(inventory: dict[str, Any]) -> dict[str, Any]:
    """Return what is a change when it differs: of what is read each second, only what there is and how well it is."""
    return {
        kind: [(part.get("uri"), part.get("health")) for part in value] if kind in VOLATILE_KINDS else value
        for kind, value in inventory.items()
    }


def _describe(chassis: Chassis, inventory: wire.Inventory) -> None:
    service = inventory.service
    outer = next((found for found in inventory.chassis if not found.contained_by), None)
    values: dict[str, Any] = {
        "product": service.product, "redfish_version": service.redfish_version,
        "firmware_version": service.firmware_version, "uuid": service.uuid, "dialect": inventory.dialect,
    }  # fmt: skip
    if outer is not None:
        values |= {
            "uri": outer.uri, "health": outer.health, "power_state": outer.power_state,
            "manufacturer": outer.manufacturer, "model": outer.model, "serial_number": outer.serial_number,
            "part_number": outer.part_number,
        }  # fmt: skip
    for name, value in _fitting(Chassis, values).items():
        setattr(chassis, name, value)


def _fitting(model: type[models.Model], values: dict[str, Any]) -> dict[str, Any]:
    """Return values that the model's columns can hold: one nonsensical value must not keep all others out."""
    found = dict(values)
    for field in model._meta.concrete_fields:  # noqa: SLF001 - Django's documented name
        value = found.get(field.name)
        if isinstance(field, models.CharField) and isinstance(value, str):
            found[field.name] = value.replace("\0", "")[: field.max_length]
        elif isinstance(field, models.PositiveIntegerField) and isinstance(value, int):
            found[field.name] = value if 0 <= value < 2**31 else None if field.null else 0
        elif isinstance(field, models.BigIntegerField) and isinstance(value, int):
            found[field.name] = value if abs(value) < 2**63 else None
    return found


# One-to-one links, which two rows may not hold even for a moment.
EXCLUSIVE: dict[type[Part], tuple[str, ...]] = {Slot: ("port",), HostPort: ("port",), Device: ("slot",)}


def _is_another(row: Device, found: dict[str, Any]) -> bool:
    """Tell whether a slot holds another device than the row's; what is not told proves nothing."""
    if row.serial_number and found["serial_number"]:
        return bool(row.serial_number != found["serial_number"])
    names = ("manufacturer", "model", "vendor_id", "device_id")
    return any(getattr(row, name) and found[name] and getattr(row, name) != found[name] for name in names)


# What is true of a device for as long as it lives, but may be told by a part of it that cannot be read for now.
LASTING = (
    "manufacturer", "model", "serial_number", "part_number", "vendor_id", "device_id", "subsystem_vendor_id",
    "subsystem_id", "class_code", "memory_bytes", "capacity_bytes", "processor_uri",
)  # fmt: skip


class _Mirror:
    """One pass over an inventory, from what contains to what is contained."""

    def __init__(self, chassis: Chassis, inventory: wire.Inventory) -> None:
        self.chassis = chassis
        self.inventory = inventory
        # What could not be read for now is not missing, nor is what is reached through it alone.
        self.unread = {
            problem.uri.split("?", 1)[0].rstrip("/")
            for problem in inventory.problems
            if problem.kind is not wire.ProblemKind.DEAD_LINK
        }

    def _is_unread(self, uri: str) -> bool:
        while "/" in uri:
            if uri in self.unread:
                return True
            uri = uri.rpartition("#" if "#" in uri else "/")[0]
        return False

    def _may_be(self, endpoint: str) -> bool:
        """Tell whether an endpoint may still be a device's, although nothing that was read says so."""
        return bool(self.unread) and (
            self._is_unread(endpoint) or any(endpoint == found.uri for found in self.inventory.endpoints)
        )

    def write(self) -> None:
        self.drawers = self._rows(Drawer, {drawer.uri: self._drawer(drawer) for drawer in self.inventory.drawers})
        self.switches = self._rows(Switch, {switch.uri: self._switch(switch) for switch in self.inventory.switches})
        errors = {metrics.port_uri: metrics.errors for metrics in self.inventory.port_metrics}
        self.ports = self._rows(Port, {port.uri: self._port(port, errors) for port in self.inventory.ports})
        self.slots = self._rows(Slot, self._distinct("port", {s.uri: self._slot(s) for s in self.inventory.slots}))
        hosts = self._hosts()
        self.host_ports = self._rows(HostPort, self._distinct("port", self._host_ports(hosts)))
        endpoints = dict(Device.objects.filter(chassis=self.chassis).values_list("uri", "endpoint_uri"))
        devices = {d.uri: self._device(d, endpoints.get(d.uri, "")) for d in self.inventory.devices}
        self._rows(Device, self._distinct("slot", devices))

    def _rows(self, model: type[Part], wanted: dict[str, dict[str, Any]]) -> dict[str, Any]:
        rows: models.Manager[Any] = model._default_manager  # noqa: SLF001 - Django's documented name for generic code
        longest = model._meta.get_field("uri").max_length  # noqa: SLF001
        existing = {row.uri: row for row in rows.filter(chassis=self.chassis)}
        self._let_go(model, existing, wanted)
        for uri, plain in wanted.items():
            if longest is not None and len(uri) > longest:
                continue
            values = _fitting(model, plain)
            row = existing.get(uri)
            if row is None:
                existing[uri] = rows.create(chassis=self.chassis, uri=uri, **values)
                continue
            found = {name: self._or_known(row, name, value) for name, value in values.items()}
            found["missing_since"] = None
            if isinstance(row, Device):
                found |= self._identified(row, found)
            changed = [name for name, value in found.items() if getattr(row, name) != value]
            for name in changed:
                setattr(row, name, found[name])
            if changed:
                row.save(update_fields=changed)
        for uri, row in existing.items():
            if uri not in wanted and not self._is_unread(uri) and row.missing_since is None:
                self._lose(row)
        return existing

    def _or_known(self, row: Part, name: str, value: Any) -> Any:
        """Return a value, or the related row of before where the walk could not read that one."""
        if value is None and row._meta.get_field(name).is_relation:  # noqa: SLF001
            known = getattr(row, name)
            if isinstance(known, Part) and self._is_unread(known.uri):
                return known
        return value

    def _identified(self, row: Device, found: dict[str, Any]) -> dict[str, Any]:
        """Return what follows from which device this is: one that was swapped in is nobody's until it is granted."""
        if not _is_another(row, found):
            # A serial number that is not told for a moment is remembered, so that another one is told apart.
            lasting = LASTING if self.unread else ("serial_number",)
            kept = {name: found[name] or getattr(row, name) for name in lasting}
            return kept | ({"kind": row.kind} if self.unread and found["kind"] == Device.Kind.CUSTOM else {})
        if row.tenant_id is None:
            return {}
        logger.warning(
            "device %s is another one now (%s %s, was %s %s): its grant to tenant %s has ended",
            row.pk, found["model"], found["serial_number"], row.model, row.serial_number, row.tenant_id,
        )  # fmt: skip
        transaction.on_commit(lambda: access_changed.send(Device), robust=True)
        return {"tenant": None, "tenant_since": timezone.now()}

    @staticmethod
    def _let_go(model: type[Part], existing: dict[str, Any], wanted: dict[str, dict[str, Any]]) -> None:
        """Clear one-to-one links that another row takes over: a slot whose old device went keeps it only until then."""
        for name in EXCLUSIVE.get(model, ()):
            claimed = {values[name].pk for values in wanted.values() if values[name] is not None}
            for uri, row in existing.items():
                held = getattr(row, f"{name}_id")
                target = wanted.get(uri, {}).get(name)
                if held in claimed and (target is None or target.pk != held):
                    setattr(row, name, None)
                    row.save(update_fields=[name])

    def _lose(self, row: Part) -> None:
        row.missing_since = timezone.now()
        row.save(update_fields=["missing_since"])
        if isinstance(row, Device):
            row.host_port = None
            row.save(update_fields=["host_port"])

    @staticmethod
    def _distinct(name: str, wanted: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        seen: set[int] = set()
        for values in wanted.values():
            if (target := values.get(name)) is not None:
                if target.pk in seen:
                    values[name] = None
                seen.add(target.pk)
        return wanted

    def _drawer(self, drawer: wire.Drawer) -> dict[str, Any]:
        return {
            "name": drawer.name[:200], "health": drawer.health, "number": drawer.number, "mode": drawer.mode.value,
            "model": drawer.model, "serial_number": drawer.serial_number,
        }  # fmt: skip

    def _switch(self, switch: wire.Switch) -> dict[str, Any]:
        return {
            "name": switch.name[:200], "health": switch.health, "drawer": self.drawers.get(switch.chassis_uri),
            "manufacturer": switch.manufacturer, "model": switch.model, "serial_number": switch.serial_number,
            "firmware_version": switch.firmware_version, "total_width": switch.total_width,
        }  # fmt: skip

    def _port(self, port: wire.Port, errors: dict[str, dict[str, int]]) -> dict[str, Any]:
        return {
            "name": port.name[:200], "health": port.health, "switch": self.switches.get(port.switch_uri),
            "port_id": port.port_id[:100], "port_type": port.port_type, "protocol": port.protocol,
            "link_state": port.link_state, "link_status": port.link_status, "width": port.width,
            "active_width": port.active_width, "speed_gbps": port.speed_gbps, "max_speed_gbps": port.max_speed_gbps,
            "metrics_uri": port.metrics_uri, "errors": errors.get(port.uri, {}),
        }  # fmt: skip

    def _slot(self, slot: wire.Slot) -> dict[str, Any]:
        return {
            "name": slot.name[:200], "health": slot.health, "drawer": self.drawers.get(slot.chassis_uri),
            "port": self.ports.get(slot.port_uri), "number": slot.number, "slot_type": slot.slot_type,
            "pcie_type": slot.pcie_type, "lanes": slot.lanes,
        }  # fmt: skip

    def _hosts(self) -> dict[str, Host]:
        identities: dict[str, str] = {}
        wanted: dict[str, dict[str, Any]] = {}
        for system in self.inventory.systems:
            values = {
                "name": system.host_name or system.name, "manufacturer": system.manufacturer, "model": system.model,
                "serial_number": system.serial_number, "uuid": system.uuid, "power_state": system.power_state,
                "processor_summary": system.processor_summary, "memory_gib": system.memory_gib,
                "local_gpu_count": system.local_gpu_count, "health": system.health,
            }  # fmt: skip
            identities[system.uri] = self._identity(system)[:200]
            wanted[identities[system.uri]] = _fitting(Host, values)
        known = {row.identity: row for row in Host.objects.filter(identity__in=wanted)}
        # Always in the same order: two chassis that see the same hosts must not wait for each other.
        for identity in sorted(wanted):
            values, row = wanted[identity], known.get(identity)
            if row is None:
                known[identity], _ = Host.objects.get_or_create(identity=identity, defaults=values)
                continue
            changed = [name for name, value in values.items() if getattr(row, name) != value]
            if changed:
                for name in changed:
                    setattr(row, name, values[name])
                row.save(update_fields=changed)
        return {uri: known[identity] for uri, identity in identities.items()}

    def _identity(self, system: wire.System) -> str:
        """Return what tells a host from all others, in whichever chassis it is cabled."""
        # A board whose UUID was never set shows one digit throughout.
        if len(set(system.uuid.replace("-", ""))) > 1:
            return system.uuid
        if system.serial_number:
            return f"{system.manufacturer} {system.serial_number}".strip()
        return f"{self.chassis.pk}:{system.uri}"

    def _host_ports(self, hosts: dict[str, Host]) -> dict[str, dict[str, Any]]:
        endpoints = {endpoint.uri: endpoint for endpoint in self.inventory.endpoints}
        known = {row.uri: row for row in HostPort.objects.filter(chassis=self.chassis).select_related("host")}
        found: dict[str, dict[str, Any]] = {}
        labels: Counter[str] = Counter()
        zone_ids: dict[str, str] = {}
        for zone in self.inventory.zones:
            initiator = next(
                (
                    endpoints[uri]
                    for uri in zone.endpoint_uris
                    if uri in endpoints and endpoints[uri].role == "Initiator"
                ),
                None,
            )
            if initiator is None:
                if any(self._is_unread(uri) for uri in zone.endpoint_uris):
                    self.unread.add(zone.uri)  # the one that would tell whose zone it is
                continue
            port = next((self.ports[uri] for uri in initiator.port_uris if uri in self.ports), None)
            host = next((hosts[uri] for uri in initiator.entity_uris if uri in hosts), None)
            if host is None and zone.uri in known and any(self._is_unread(uri) for uri in initiator.entity_uris):
                host = known[zone.uri].host
            label = port.port_id if port is not None and port.port_id else str(zone.id or zone.name)
            labels[label] += 1
            zone_ids[zone.uri] = str(zone.id or zone.name)
            found[zone.uri] = {
                "name": zone.name[:200], "health": zone.health, "endpoint_uri": initiator.uri, "port": port,
                "host": host, "drawer": port.switch.drawer if port is not None and port.switch is not None else None,
                "label": label[:50], "number": int(digits[0]) if (digits := re.findall(r"\d+$", label)) else 0,
            }  # fmt: skip
        for uri, values in found.items():
            if labels[values["label"]] > 1:
                # Each switch of some services counts its ports from 1.
                values["label"] = zone_ids[uri][:50]
        return found

    def _device(self, device: wire.Device, known_endpoint: str) -> dict[str, Any]:
        zones = {uri: zone.uri for zone in self.inventory.zones for uri in zone.endpoint_uris}
        endpoint = next((uri for uri in device.endpoint_uris if uri in zones), next(iter(device.endpoint_uris), ""))
        if not endpoint and self._may_be(known_endpoint):
            endpoint = known_endpoint
        return {
            "name": (device.model or device.name)[:200], "health": device.health, "kind": device.kind.value,
            "slot": self.slots.get(device.slot_uri), "host_port": self.host_ports.get(zones.get(endpoint, "")),
            "manufacturer": device.manufacturer, "model": device.model, "serial_number": device.serial_number,
            "part_number": device.part_number, "firmware_version": device.firmware_version,
            "vendor_id": device.vendor_id, "device_id": device.device_id,
            "subsystem_vendor_id": device.subsystem_vendor_id, "subsystem_id": device.subsystem_id,
            "class_code": device.class_code, "pcie_type": device.pcie_type, "max_pcie_type": device.max_pcie_type,
            "lanes_in_use": device.lanes_in_use, "max_lanes": device.max_lanes, "memory_bytes": device.memory_bytes,
            "capacity_bytes": device.capacity_bytes, "endpoint_uri": endpoint,
            "processor_uri": next(iter(device.processor_uris), ""),
        }  # fmt: skip
