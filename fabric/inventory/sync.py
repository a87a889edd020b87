"""Synchronisation of the inventory with the BMC: hardware is authoritative; vanished rows are marked, not deleted."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, cached_property
from typing import Any

import msgspec
from django.db import models, transaction
from django.utils import timezone

from core.database import fit_columns, lock_rows, without_nul
from fabric.bmc import types as wire
from fabric.bmc.dialects import STATE_ABSENT, dialect_of
from fabric.bmc.values import paths_above, trailing_number
from fabric.inventory.labels import device_label
from fabric.inventory.locks import lock_chassis
from fabric.inventory.models import Chassis, Device, Drawer, Host, HostPort, ManagedPart, Part, Port, Slot, Switch, Walk
from fabric.inventory.rules import host_identity
from fabric.signals import access_changed, device_replaced, inventory_changed, walk_mirrored

logger = logging.getLogger(__name__)

NUL = rb"\u0000"  # in JSON
# Values that are read each second: they differ in every walk, and are no change of the inventory.
READING_KINDS = ("sensors", "fans", "port_metrics", "metrics")


@dataclass(frozen=True, kw_only=True)
class DeviceReplacement:
    """A device's row that represents another device from this walk on, with label and identity of the previous one."""

    device: Device
    label: str
    identity: str


@dataclass(frozen=True, kw_only=True)
class MirroredWalk:
    """The rows of a chassis after a walk; `drawer_of` has the drawer of each slot (ids).

    `is_first`: the chassis had none before, so that there is no operation, no drift and no history of them.
    """

    drawers: Collection[Drawer]
    ports: Collection[Port]
    host_ports: Collection[HostPort]
    devices: Collection[Device]
    drawer_of: dict[int, int | None]
    replacements: Sequence[DeviceReplacement] = ()
    is_first: bool = False


def inventory_apply(*, chassis: Chassis, inventory: wire.Inventory, begun_at: datetime | None = None) -> bool:
    """Mirror one walk into the database, in one transaction; returns whether anything but readings changed.

    `begun_at` is when the walk began: values read back by operations since are newer, so they stay, and are not
    compared. None: nothing was changed meanwhile.
    """
    # In the form of the column: a tuple would differ from the list it is stored as.
    raw = msgspec.json.encode(inventory)
    plain: dict[str, Any] = msgspec.json.decode(raw)
    if NUL in raw:
        plain = without_nul(plain)
    with transaction.atomic():
        if not (rows := lock_chassis([chassis.pk])):
            raise Chassis.DoesNotExist(f"{chassis.name} was removed.")
        locked = rows[0]
        walk = Walk.objects.filter(chassis=locked).first()
        changed = walk is None or _comparable(plain) != _comparable(walk.found)
        inventory_mirror(locked, inventory, begun_at)
        _update_chassis(locked, inventory)
        locked.inventory_at = timezone.now()
        locked.last_error, locked.last_error_at, locked.walk_progress = "", None, None
        if changed:
            locked.inventory_revision += 1
            if walk is None:
                Walk.objects.create(chassis=locked, found=plain)
            else:
                Walk.objects.filter(chassis=locked).update(found=plain)
        locked.save()
        if changed:
            transaction.on_commit(lambda: inventory_changed.send(Chassis, chassis_id=locked.pk))
    return changed


def inventory_mirror(locked: Chassis, inventory: wire.Inventory, begun_at: datetime | None) -> None:
    """Write the parts of a walk for a locked chassis, in its dialect; `begun_at` as above."""
    mirror = _InventoryMirror(locked, inventory, begun_at)
    mirror.write()
    walk_mirrored.send(Chassis, chassis=locked, walk=mirror.walked(), begun_at=begun_at)


def inventory_confirm(*, chassis_id: int) -> None:
    """Record that a walk confirmed the stored state; raises Chassis.DoesNotExist for a removed one."""
    now = timezone.now()
    if not Chassis.objects.filter(pk=chassis_id).update(inventory_at=now, last_error="", last_error_at=None):
        raise Chassis.DoesNotExist("The chassis was removed.")


def inventory_mark_unreachable(*, chassis_id: int, sentence: str) -> None:
    """Record why a chassis cannot be read for now; its last state stays."""
    rows = Chassis.objects.filter(pk=chassis_id).exclude(last_error=sentence)
    # Each attempt fails: most have nothing to store, and then wait for nobody who writes.
    if rows.exists():
        rows.update(last_error=sentence, last_error_at=timezone.now(), walk_progress=None)


def _comparable(inventory: dict[str, Any]) -> dict[str, Any]:
    """Return the part of an inventory whose differences are changes: of live values, only presence and health."""
    return {
        kind: [(part.get("uri"), part.get("health")) for part in value] if kind in READING_KINDS else value
        for kind, value in inventory.items()
    }


def _update_chassis(chassis: Chassis, inventory: wire.Inventory) -> None:
    service = inventory.service
    outer = next((found for found in inventory.chassis if not found.contained_by), None)
    values: dict[str, Any] = {
        "product": service.product, "redfish_version": service.redfish_version,
        "firmware_version": service.firmware_version, "uuid": service.uuid,
        "walk_limit": next(
            (one.sentence for one in inventory.problems if one.kind is wire.ProblemKind.INCOMPLETE), ""
        ),
    }  # fmt: skip
    if not chassis.dialect_choice and (inventory.dialect_known or chassis.inventory_at is None):
        values |= {"dialect": inventory.dialect, "dialect_reason": inventory.dialect_reason}
    if outer is not None:
        values |= {
            "uri": outer.uri, "health": outer.health, "power_state": outer.power_state,
            "manufacturer": outer.manufacturer, "model": outer.model, "serial_number": outer.serial_number,
            "part_number": outer.part_number,
        }  # fmt: skip
    for name, value in fit_columns(Chassis, values).items():
        setattr(chassis, name, value)


def _read_back_since(chassis: Chassis, at: datetime) -> dict[type[Part], set[int | None]]:
    """Return the parts (ids) that operations or resets have changed since a moment, or that operations work on.

    Their read-back is newer than the walk.
    """
    newer: dict[type[Part], set[int | None]] = defaultdict(set)
    reset = Port.objects.filter(chassis=chassis, errors_reset_at__gte=at).order_by()
    newer[Port].update(reset.values_list("pk", flat=True))
    for model, pk in chassis.operations.at_work_since(at).order_by().subjects():
        newer[model].add(pk)
    return newer


# One-to-one relations, which two rows must not have even for a moment.
ONE_TO_ONE_LINKS: dict[type[Part], tuple[str, ...]] = {Slot: ("port",), HostPort: ("port",), Device: ("slot",)}


def _is_replacement(row: Device, found: dict[str, Any]) -> bool:
    """Return whether a slot has another device than the row's; unreported values prove nothing."""
    if row.serial_number and found["serial_number"]:
        return bool(row.serial_number != found["serial_number"])
    names = ("manufacturer", "model", "vendor_id", "device_id")
    return any(getattr(row, name) and found[name] and getattr(row, name) != found[name] for name in names)


# Permanent properties of a device, which may be reported by a subresource that cannot be read for now.
PERMANENT_FIELDS = (
    "manufacturer", "model", "serial_number", "part_number", "vendor_id", "device_id", "subsystem_vendor_id",
    "subsystem_id", "class_code", "memory_bytes", "capacity_bytes", "processor_uri",
)  # fmt: skip


# The fields that an operation, or a reset of counters, reads back of the part that it changed.
READ_BACK_FIELDS: dict[type[Part], tuple[str, ...]] = {
    Device: ("host_port",), Drawer: ("mode",), HostPort: ("host",),
    Port: ("port_type", "configured_width", "link_state", "errors"),
}  # fmt: skip


@cache
def _common_names(model: type[models.Model], resource: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the names of the columns of a model that are also names of a resource's properties."""
    columns = {field.name for field in model._meta.concrete_fields if not field.is_relation}  # noqa: SLF001 - as below
    return tuple(sorted((columns - {"id", "uri"}) & set(resource.__struct_fields__)))


def _columns(model: type[models.Model], resource: msgspec.Struct, **others: Any) -> dict[str, Any]:
    """Return the values of a row for a resource: its properties of the same names, and `others`."""
    return {name: getattr(resource, name) for name in _common_names(model, type(resource))} | others


def _is_change(row: Part, name: str, value: Any) -> bool:
    """Return whether a row has another value; related rows are compared by id, which needs no query."""
    if not row._meta.get_field(name).is_relation:  # noqa: SLF001 - Django's documented name
        return bool(getattr(row, name) != value)
    return bool(getattr(row, f"{name}_id") != (None if value is None else value.pk))


class _InventoryMirror:
    """One pass over an inventory, from containers to their contents."""

    def __init__(self, chassis: Chassis, inventory: wire.Inventory, begun_at: datetime | None) -> None:
        self.chassis = chassis
        self.begun_at = begun_at
        self.inventory = inventory
        self.is_first = chassis.inventory_at is None
        # The evidence of the dialect may be unreadable for now; the chassis keeps its dialect then, as where it was
        # chosen.
        is_found = inventory.dialect_known and not chassis.dialect_choice
        self.dialect = dialect_of(inventory.dialect if is_found else chassis.dialect)
        self.zones = self.dialect.host_ports(inventory)
        self.zones_of: dict[str, list[str]] = defaultdict(list)
        for zone in self.zones:
            for member in zone.members:
                self.zones_of[member].append(zone.uri)
        self.replacements: list[DeviceReplacement] = []
        # Resources that could not be read for now are not missing, nor are those reached only through them.
        self.unread = {
            problem.uri.split("?", 1)[0].rstrip("/")
            for problem in inventory.problems
            if problem.kind is not wire.ProblemKind.DEAD_LINK
        }

    @cached_property
    def newer(self) -> dict[type[Part], set[int | None]]:
        """The parts whose rows are newer than the walk."""
        return _read_back_since(self.chassis, self.begun_at) if self.begun_at is not None else {}

    def _could_not_be_read(self, uri: str) -> bool:
        while "/" in uri:
            if uri in self.unread:
                return True
            uri = uri.rpartition("#" if "#" in uri else "/")[0]
        return False

    def _may_lack_members(self, collection: str) -> bool:
        return self._could_not_be_read(collection) or any(uri.startswith(f"{collection}/") for uri in self.unread)

    @cached_property
    def known_members(self) -> set[str]:
        """All possible members of host ports."""
        return self.dialect.known_members(self.inventory)

    def _may_be(self, endpoint: str) -> bool:
        """Return whether an endpoint may still be a device's, although no resource that was read links them."""
        return bool(self.unread) and (self._could_not_be_read(endpoint) or endpoint in self.known_members)

    def write(self) -> None:
        # Containers are written first, but grants and operations lock devices before host ports: so does a walk.
        for model in (Device, HostPort) if not self.is_first else ():
            list(lock_rows(model.objects.filter(chassis=self.chassis).values_list("pk")))
        found = self.inventory
        errors = {metrics.port_uri: metrics.errors for metrics in found.port_metrics}
        self.drawers = self._rows(Drawer, {one.uri: _columns(Drawer, one) for one in found.drawers})
        self.switches = self._rows(
            Switch,
            {one.uri: _columns(Switch, one, drawer=self.drawers.get(one.chassis_uri)) for one in found.switches},
        )
        ports = {
            one.uri: _columns(Port, one, switch=self.switches.get(one.switch_uri), errors=errors.get(one.uri, {}))
            for one in found.ports
        }
        self.ports = self._rows(Port, ports)
        slots = {
            one.uri: _columns(Slot, one, drawer=self.drawers.get(one.chassis_uri), port=self.ports.get(one.port_uri))
            for one in found.slots
        }
        self.slots = self._rows(Slot, self._distinct("port", slots))
        hosts = self._hosts()
        self.host_ports = self._rows(HostPort, self._distinct("port", self._host_ports(hosts)))
        rows = self._known(Device).values_list("uri", "endpoint_uri", "host_port__uri")
        known = {uri: (endpoint, zone) for uri, endpoint, zone in rows}
        devices = {one.uri: self._device(one, *known.get(one.uri, ("", None))) for one in found.devices}
        self.devices = self._rows(Device, self._distinct("slot", devices))
        self._attach_to_others()
        self._rows(ManagedPart, {one.uri: self._managed_part(one, hosts) for one in found.managed_parts})

    def _managed_part(self, one: wire.RedfishManagedPart, hosts: dict[str, Host]) -> dict[str, Any]:
        device = self.devices.get(one.uri)
        switch = self.switches.get(one.uri)
        drawer = self.drawers.get(one.chassis_uri)
        if drawer is None:
            drawer = device.slot.drawer if device and device.slot else switch.drawer if switch else None
        return _columns(
            ManagedPart, one, name=device.name if device else one.name, reset_types=list(one.reset_types),
            device=device, switch=switch, drawer=drawer, host=hosts.get(one.uri),
        )  # fmt: skip

    def walked(self) -> MirroredWalk:
        """Return the rows after `write`."""
        return MirroredWalk(
            drawers=self.drawers.values(),
            ports=self.ports.values(),
            host_ports=self.host_ports.values(),
            devices=self.devices.values(),
            drawer_of={slot.pk: slot.drawer_id for slot in self.slots.values()},
            replacements=self.replacements,
            is_first=self.is_first,
        )

    def _known(self, model: type[Part]) -> models.QuerySet[Any]:
        """Return the rows of a chassis from before the walk: none, without a query, where it is the first."""
        rows: models.Manager[Any] = model._default_manager  # noqa: SLF001 - Django's documented name for generic code
        return rows.none() if self.is_first else rows.filter(chassis=self.chassis).order_by()

    def _rows(self, model: type[Part], wanted: dict[str, dict[str, Any]]) -> dict[str, Any]:
        longest = model._meta.get_field("uri").max_length  # noqa: SLF001 - Django's documented name
        existing = {row.uri: row for row in self._known(model)}
        self._clear_taken_over(model, existing, wanted)
        new: list[Part] = []
        for uri, plain in wanted.items():
            if longest is not None and len(uri) > longest:
                continue
            values = fit_columns(model, plain)
            row = existing.get(uri)
            if row is None:
                new.append(model(chassis=self.chassis, uri=uri, **values))
                continue
            newer = READ_BACK_FIELDS.get(model, ()) if row.pk in self.newer.get(model, ()) else ()
            found = {
                name: self._or_known_relation(row, name, value) for name, value in values.items() if name not in newer
            }
            found["missing_since"] = None
            if isinstance(row, Device):
                found |= self._identified(row, found)
            changed = [name for name, value in found.items() if _is_change(row, name, value)]
            for name, value in found.items():
                setattr(row, name, value)  # unchanged related rows, too: they need not be fetched again
            if changed:
                row.save(update_fields=changed)
        for uri, row in existing.items():
            if uri not in wanted and not self._could_not_be_read(uri) and row.missing_since is None:
                row.missing_since = timezone.now()
                names = ["missing_since"]
                if isinstance(row, Device):
                    row.host_port = None
                    names.append("host_port")
                row.save(update_fields=names)
        return existing | {row.uri: row for row in model._default_manager.bulk_create(new)}  # noqa: SLF001

    def _or_known_relation(self, row: Part, name: str, value: Any) -> Any:
        """Return a value, or the previous related row where the walk could not read it."""
        if value is None and row._meta.get_field(name).is_relation:  # noqa: SLF001
            known = getattr(row, name)
            if isinstance(known, Part) and self._could_not_be_read(known.uri):
                return known
        return value

    def _identified(self, row: Device, found: dict[str, Any]) -> dict[str, Any]:
        """Return the fields that depend on the identity of the device: a replacement belongs to no tenant."""
        if not _is_replacement(row, found):
            # A serial number that is missing for a moment is kept, so that a replacement is recognised.
            lasting = PERMANENT_FIELDS if self.unread else ("serial_number",)
            kept = {name: found[name] or getattr(row, name) for name in lasting}
            return kept | ({"kind": row.kind} if self.unread and found["kind"] == Device.Kind.CUSTOM else {})
        self.replacements.append(DeviceReplacement(device=row, label=device_label(row), identity=row.identity))
        at = max((at for _, at in device_replaced.send(Device, device=row) if at), default=timezone.now())
        if row.tenant_id is None:
            return {}
        logger.warning(
            "device %s was replaced (now %s %s, was %s %s): its grant to tenant %s has ended",
            row.pk, found["model"], found["serial_number"], row.model, row.serial_number, row.tenant_id,
        )  # fmt: skip
        transaction.on_commit(lambda: access_changed.send(Device), robust=True)
        return {"tenant": None, "tenant_since": at}

    @staticmethod
    def _clear_taken_over(model: type[Part], existing: dict[str, Any], wanted: dict[str, dict[str, Any]]) -> None:
        """Clear one-to-one relations that another row takes over: a slot keeps its removed device until then."""
        for name in ONE_TO_ONE_LINKS.get(model, ()):
            claimed = {values[name].pk for values in wanted.values() if values[name] is not None}
            for uri, row in existing.items():
                held = getattr(row, f"{name}_id")
                target = wanted.get(uri, {}).get(name)
                if held in claimed and (target is None or target.pk != held):
                    setattr(row, name, None)
                    row.save(update_fields=[name])

    @staticmethod
    def _distinct(name: str, wanted: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        seen: set[int] = set()
        for values in wanted.values():
            if (target := values.get(name)) is not None:
                if target.pk in seen:
                    values[name] = None
                seen.add(target.pk)
        return wanted

    def _hosts(self) -> dict[str, Host]:
        identities: dict[str, str] = {}
        wanted: dict[str, dict[str, Any]] = {}
        for system in self.inventory.systems:
            if system.state == STATE_ABSENT and not (system.uuid or system.serial_number):
                continue  # the location for a host, without one
            values = _columns(Host, system, name=system.host_name or system.name)
            identities[system.uri] = host_identity(self.chassis.pk, system)
            wanted[identities[system.uri]] = fit_columns(Host, values)
        known = {row.identity: row for row in Host.objects.filter(identity__in=wanted).order_by()}
        # Always in the same order: two chassis with the same hosts must not deadlock.
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

    def _host_ports(self, hosts: dict[str, Host]) -> dict[str, dict[str, Any]]:
        known = {row.uri: row for row in self._known(HostPort).select_related("host")}
        found: dict[str, dict[str, Any]] = {}
        labels: Counter[str] = Counter()
        ids: dict[str, str] = {}
        for zone in self.zones:
            initiator = zone.initiator
            if initiator is None and any(self._could_not_be_read(uri) for uri in zone.doubtful):
                self.unread.add(zone.uri)  # unreadable evidence of its zone, or of its cabled host
                continue
            if initiator is None and not zone.stands_alone:
                continue
            if any(self._may_lack_members(source) for source in zone.sources):
                self.unread.add(zone.uri)
            ports = initiator.port_uris if initiator is not None else ()
            port = next((self.ports[uri] for uri in ports if uri in self.ports), None)
            # The host's end may be a part of the system: one of its processors.
            above = (system for uri in zone.system_uris for system in paths_above(uri))
            host = next((hosts[system] for system in above if system in hosts), None)
            if host is None and zone.uri in known and any(self._could_not_be_read(uri) for uri in zone.system_uris):
                host = known[zone.uri].host
            label = port.port_id if port is not None and port.port_id else zone.id
            labels[label] += 1
            ids[zone.uri] = zone.id
            found[zone.uri] = {
                "name": zone.name, "health": zone.health,
                "endpoint_uri": initiator.uri if initiator is not None else "", "port": port,
                "host": host, "drawer": port.switch.drawer if port is not None and port.switch is not None else None,
                "label": label, "number": trailing_number(label) or 0,
            }  # fmt: skip
        for uri, values in found.items():
            if labels[values["label"]] > 1:
                # Each switch of some services counts its ports from 1.
                values["label"] = ids[uri]
        self._follow_renamed(known, found)
        return found

    def _follow_renamed(self, known: dict[str, HostPort], found: dict[str, dict[str, Any]]) -> None:
        """Keep the row of a host port that another resource has from now on, as where the dialect is another one."""
        gone = [row for row in known.values() if row.uri not in found and not self._could_not_be_read(row.uri)]
        gone.sort(key=lambda row: row.missing_since is None)
        row_of = {row.endpoint_uri: row for row in gone if row.endpoint_uri}
        for uri, values in found.items():
            if uri not in known and (row := row_of.pop(values["endpoint_uri"], None)) is not None:
                row.uri = uri
                row.save(update_fields=["uri"])

    def _attach_to_others(self) -> None:
        """Store the further host ports of devices that are in several zones."""
        rows: models.Manager[Any] = Device.other_host_ports.through._default_manager  # noqa: SLF001
        others = rows.none() if self.is_first else rows.filter(device__chassis=self.chassis)
        existing = set(others.values_list("device", "hostport"))
        wanted = {
            (row.pk, self.host_ports[zone].pk)
            for device in self.inventory.devices
            if (row := self.devices.get(device.uri)) is not None
            for name in self.dialect.members_of(device)
            for zone in self.zones_of.get(name, ())
            if zone in self.host_ports and self.host_ports[zone].pk != row.host_port_id
        }
        # An endpoint that could not be read may still be in a zone.
        for device, port in existing - wanted if not self.unread else ():
            rows.filter(device=device, hostport=port).delete()
        rows.bulk_create(rows.model(device_id=device, hostport_id=port) for device, port in sorted(wanted - existing))

    def _device(self, device: wire.RedfishDevice, known_endpoint: str, known_zone: str | None) -> dict[str, Any]:
        names = self.dialect.members_of(device)
        endpoint = next((uri for uri in names if uri in self.zones_of), next(iter(names), ""))
        if not endpoint and self._may_be(known_endpoint):
            endpoint = known_endpoint
        zones = self.zones_of.get(endpoint, [])
        zone = known_zone if known_zone in zones else next(iter(zones), "")
        return _columns(
            Device,
            device,
            name=device.model or device.name,
            slot=self.slots.get(device.slot_uri),
            host_port=self.host_ports.get(zone),
            endpoint_uri=endpoint,
            processor_uri=next(iter(device.processor_uris), ""),
        )
